"""Roll-ups: groups made of finer ones are what they would be made of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.test_fold import BY_FAMILY, WAYS, with_opaque
from tests.plan.bids import SEQ, compiled, planned
from transom.aggregates.sketches import Distinct, Quantiles
from transom.kernel import rollups
from transom.kernel.aggregate import BatchPlan, Outcome, aggregate_rows
from transom.kernel.shards import held
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.strategy import FragmentSharing, Strategy

SCHEMA = {
    "seq": pa.int64(), "site": pa.int32(), "kind": pa.string(), "price": pa.float64(),
    "amount": pa.decimal128(10, 2),
}  # fmt: skip
Row = tuple[Any, ...]
ROWS = st.lists(
    st.tuples(
        st.integers(-20, 40), st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", None]),
        st.sampled_from([-3.0, 0.0, -0.0, 1.0, 2.5, 1e300, math.nan, None]),
        st.sampled_from([Decimal("0.10"), Decimal("-7.25"), None]),
    ),
    min_size=1, max_size=30,
)  # fmt: skip
ITEMS = [
    "count(*), sum(price)", "min(price), max(seq), count(price)", "sum(seq) FILTER (WHERE kind = 'a')",
    "sum(amount), avg(amount)", "stddev(seq), max(kind)", "count(*) FILTER (WHERE price > 0)",
    "approx_count_distinct(kind)", "approx_percentile(seq, 0.5)", "max(price), avg(seq)",
]  # fmt: skip
LISTS = ["", "site", "kind", "site, kind", "kind, site", "price", "price, kind", "seq % 3, site"]
WHERES = ["", "WHERE price > 0", "WHERE price <= 2", "WHERE price IS NULL OR price > 1",
          "WHERE kind LIKE 'a%'", "WHERE kind LIKE 'a%' AND price > 0"]  # fmt: skip
WINDOWS = [(10, 10), (20, 5), (12, 5), (3, 7)]


# Everything that can be rolled up is, even if it does not pay.
ALWAYS = replace(BY_FAMILY, tuples_per_cell=0, tuples_per_sketch=0)


def query(i: int, by: str, items: str = "count(*)", where: str = "", window: Any = (10, 10)) -> CompiledQuery:
    grouped = f"GROUP BY {by}" if by else ""
    bracket = f"[RANGE {window[0]} SLIDE {window[1]} WATTR seq]"
    return compiled(f"SELECT {items} FROM bids {bracket} {where} {grouped}", f"q{i}")


def outcome(queries: list[CompiledQuery], rows: list[Row], rolls: bool, **more: Any) -> Outcome:
    shared = planned(*queries, strategy=Strategy(rolls=rolls, paned=more.pop("paned", False)))
    more = {"limits": BY_FAMILY} | more
    columns = {f"`{name}`": name for name in SCHEMA}
    opaque = {s.sql: s.sql for one in queries for s in one.query.scalars() if s.sql not in columns}
    arrays = zip(*rows, strict=True)
    batch_id = pa.table(
        {n: pa.array(list(v), t, from_pandas=False) for (n, t), v in zip(SCHEMA.items(), arrays, strict=True)}
    )
    plan = BatchPlan(shared.families, shared.interests, columns | opaque, {SEQ: "seq"}, "seq", **more)
    return aggregate_rows(with_opaque(batch_id, list(opaque)), plan)


def slices(done: Outcome, queries: list[CompiledQuery]) -> dict[tuple[Any, ...], Any]:
    """What was made of some rows: by selection, slice and group, the tuples and the states."""
    layouts = {one.layout.id: one.layout for one in planned(*queries).selections}
    found: dict[tuple[Any, ...], Any] = {}
    for key, sheet in done.partials.items():
        for row in sheet.to_pylist():
            place = row["selection"], row["slice"], *(repr(row[name]) for name in layouts[key].key_names)
            assert place not in found, "a slice comes once"
            found[place] = row["stop"], row["rows"], list(_states(layouts[key], row))
    return found


def _states(layout: Layout, row: dict[str, Any]) -> Iterator[Any]:
    for i, accumulator in enumerate(layout.accumulators):
        state = [row[name] for name in layout.columns(i)]
        if isinstance(accumulator, Distinct):
            yield accumulator.estimates(pa.array(state, pa.binary())).to_pylist()
        elif isinstance(accumulator, Quantiles):
            yield accumulator.percentiles(pa.array(state, pa.binary()), (0.0, 0.3, 0.5, 1.0))
        else:
            # Of zeros with both signs, an extreme has the one that it meets first: adding zero makes them the same.
            yield [f"{value + 0.0:.9g}" if isinstance(value, float) else value for value in state]


def counts(done: Outcome) -> tuple[int, ...]:
    return done.counted, done.unwanted, done.late, done.unshared


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(
    rows=ROWS,
    drawn=st.lists(
        st.tuples(
            st.sampled_from(LISTS), st.sampled_from(ITEMS), st.sampled_from(WHERES), st.sampled_from(WINDOWS)
        ),
        min_size=2,
        max_size=6,
    ),
    paned=st.booleans(),
)
def test_rolled_up_slices_are_those_of_rows(
    way: str, rows: list[Row], drawn: list[tuple[str, str, str, tuple[int, int]]], paned: bool
) -> None:
    queries = [query(i, *one) for i, one in enumerate(drawn)]
    expected = outcome(queries, rows, rolls=False, paned=paned)
    limits = replace(WAYS[way], tuples_per_cell=0, tuples_per_sketch=0)
    found = outcome(queries, rows, rolls=True, paned=paned, limits=limits)
    assert slices(found, queries) == slices(expected, queries)
    assert counts(found) == counts(expected)


def test_a_huge_neighbour_does_not_disturb_a_small_sum() -> None:
    """1e300 lies in the next group of the finer list, and in the next fragment."""
    queries = [query(i, by, "sum(price)", "WHERE price < 100") for i, by in enumerate(["site, kind", "site"])]
    rows = [
        (1, 1, "a", 3.0, None),
        (2, 1, "b", 4.0, None),
        (3, 1, "b", 1e300, None),
        (4, 2, "a", 1e300, None),
    ]
    found = slices(outcome(queries, rows, rolls=True, limits=ALWAYS), queries)
    assert found[2, 0, "1"] == (10, 2, [["7"]])


# --- when it pays ---


def many(sites: int, kinds: int, size: int = 4_000) -> list[Row]:
    """Tuples of two slices, in so many groups."""
    return [(i * 20 // size, i % sites, f"k{i // 7 % kinds}", 1.0, None) for i in range(size)]


NESTED = [query(i, by) for i, by in enumerate(["site, kind", "site", ""])]


def test_each_tuple_is_added_once_where_cells_are_few() -> None:
    rows = many(3, 4)
    assert outcome(NESTED, rows, rolls=False).lifted == 3 * len(rows)
    done = outcome(NESTED, rows, rolls=True)
    assert (done.lifted, done.unshared) == (len(rows), 3 * len(rows))


def test_where_the_finest_groups_are_too_many_the_others_are_rolled_up_without_them() -> None:
    rows = many(5, 1_000)
    done = outcome(NESTED, rows, rolls=True)
    assert done.lifted == 2 * len(rows), "once for (site, kind), once for the others"


def test_lists_that_only_together_are_too_fine_are_rolled_up_in_parts() -> None:
    rows = [(0, i % 50, f"k{i // 50 % 40}", 1.0, None) for i in range(4_000)]
    queries = [query(i, by) for i, by in enumerate(["site", "kind", ""])]
    assert outcome(queries, rows, rolls=True).lifted == 2 * len(rows)


def test_groups_that_are_hardly_fewer_than_tuples_are_made_of_tuples() -> None:
    queries = [query(i, by) for i, by in enumerate(["seq % 1000, site", "seq % 1000, kind"])]
    rows = [(i, i % 3, "a", 1.0, None) for i in range(1_000)]
    assert outcome(queries, rows, rolls=True).lifted == 2 * len(rows)


def test_of_many_tuples_some_tell_that_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    original = rollups.group
    monkeypatch.setattr(
        rollups, "group", lambda columns, rows: (looked_at.append(rows), original(columns, rows))[1]
    )
    outcome(NESTED[:2], many(1_000, 1_000), rolls=True, limits=replace(BY_FAMILY, cell_sample=100))
    assert looked_at == [100]


def test_many_cells_that_are_few_next_to_tuples_are_not_too_many_for_a_sample() -> None:
    draws = np.random.default_rng(1).integers(0, [19, 13], (4_000, 2)).tolist()
    rows = [(i // 2_000 * 10, site, f"k{kind}", 1.0, None) for i, (site, kind) in enumerate(draws)]
    assert outcome(NESTED, rows, rolls=True, limits=replace(BY_FAMILY, cell_sample=200)).lifted == len(
        rows
    ), "494 cells"


def test_sketches_are_merged_only_where_they_are_very_few() -> None:
    queries = [query(i, by, "approx_count_distinct(kind)") for i, by in enumerate(["site", ""])]
    few, more = many(2, 3), many(40, 3)
    assert outcome(queries, few, rolls=True).lifted == len(few)
    assert outcome(queries, more, rolls=True).lifted == 2 * len(more)


# --- which families take part ---


@pytest.mark.parametrize(
    ("others", "added"),
    [
        pytest.param(["site"], 1, id="the same WHERE"),
        pytest.param(["site", "WHERE price > 5"], 1, id="another constant"),
        pytest.param(["site", "WHERE seq > 5"], 2, id="another scalar"),
        pytest.param(["kind, site"], 1, id="the same groups in another order"),
    ],
)
def test_kin_ask_for_the_same_rows(others: list[str], added: int) -> None:
    by, where = (*others, "WHERE price > 0")[:2]
    rows = [(i % 20, i % 2, "a", 9.0, None) for i in range(10, 50)]
    queries = [query(0, "site, kind", where="WHERE price > 0"), query(1, by, where=where)]
    expected = len(rows) + (0 if added == 1 else sum(row[0] > 5 for row in rows))
    assert outcome(queries, rows, rolls=True, limits=ALWAYS).lifted == expected


@pytest.mark.parametrize("strategy", [Strategy(shared=False), Strategy(fragments=FragmentSharing.JOINT)])
def test_what_shares_nothing_else_is_not_rolled_up(strategy: Strategy) -> None:
    assert all(family.kin is None for family in planned(*NESTED, strategy=strategy).families)


def test_far_cells_are_rolled_up_too() -> None:
    rows = many(3, 4, 200)
    ids = frozenset(one.id for one in planned(*NESTED).selections)
    plain, rolled = (outcome(NESTED, rows, rolls, on_executors=ids, limits=ALWAYS) for rolls in (False, True))
    assert rolled.lifted == len(rows) and not rolled.partials

    def shards(done: Outcome) -> list[tuple[Any, ...]]:
        found = []
        for _, shard in done.shards:
            order = [(name, "ascending") for name in shard.table.column_names]
            found.append((len(order), shard.table.sort_by(order).to_pylist(), held(shard)))
        return sorted(found, key=lambda one: one[0])

    assert shards(rolled) == shards(plain)


def test_a_batch_with_few_groups_goes_far_no_sooner_for_being_rolled_up() -> None:
    rows = many(3, 4, 200)
    plain, rolled = (outcome(NESTED, rows, rolls, most_groups=5, limits=ALWAYS) for rolls in (False, True))
    far = [{int(family.ids[0]) for family, _ in done.shards} for done in (plain, rolled)]
    assert far == [{1}, {1}], "only the finest has twelve groups"


def test_codes_of_cells_and_rows_agree_where_every_row_is_a_cell() -> None:
    """Cells are in another order than their rows: codes must be looked up even if there are as many."""
    rows = [(int(i), int(i) % 3, "ab"[int(i) % 2], float(i % 5), None) for i in np.arange(20)[::-1]]
    queries = [query(i, by, "sum(price)", f"WHERE price > {i}") for i, by in enumerate(["seq", "site", ""])]
    expected = slices(outcome(queries, rows, rolls=False), queries)
    assert slices(outcome(queries, rows, rolls=True, limits=ALWAYS), queries) == expected
