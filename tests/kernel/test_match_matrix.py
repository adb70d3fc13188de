"""Few rows are folded for all families at once: to the last bit what the families give one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.kernel.test_fold import with_opaque
from tests.plan.bids import SEQ, TIME, compiled, planned
from transom.aggregates.sketches import Distinct, Quantiles
from transom.elements import Clock, ClockKind
from transom.kernel.aggregate import BatchPlan, Outcome, accounts_of, aggregate_rows, count_partials
from transom.kernel.matrix_plan import matrix_plan
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Strategy
from transom.windows.closed_time import Closed

ROWS_CLOCK = Clock("bids", "", ClockKind.ROWS)
CLOCKS = {SEQ: "seq", TIME: "time", ROWS_CLOCK: "number"}
SCHEMA = {
    "seq": pa.int64(), "site": pa.int32(), "kind": pa.string(), "price": pa.float64(),
    "amount": pa.decimal128(10, 2), "day": pa.date32(), "time": pa.int64(), "number": pa.int64(),
}  # fmt: skip
WINDOWS = [
    "[RANGE 10 SLIDE 10 WATTR seq]", "[RANGE 12 SLIDE 5 WATTR seq]", "[RANGE 3 SLIDE 7 WATTR seq]",
    "[RANGE 20 seconds SLIDE 5 seconds]", "[ROWS 9 SLIDE 4]",
]  # fmt: skip
ITEMS = [
    "count(*)", "sum(price)", "avg(price)", "min(price)", "max(price)", "count(kind)", "sum(seq)", "max(seq)",
    "min(site)", "max(day)", "sum(amount)", "avg(amount)", "min(amount)", "stddev(seq)", "max(kind)",
    "sum(seq) FILTER (WHERE kind = 'a')", "count(*) FILTER (WHERE price > 0)", "max(price) FILTER (WHERE site = 1)",
    "sum(amount) FILTER (WHERE price IS NULL)", "min(kind) FILTER (WHERE seq > 10)", "count(price, kind)",
    "approx_count_distinct(kind)", "approx_count_distinct(site)", "approx_percentile(seq, 0.5)",
]  # fmt: skip
WHERES = [
    "", "price > {}", "price <= {}", "price BETWEEN {} AND 5", "price != {}", "price IN ({}, 1, 4)",
    "price < {} OR price > 3 OR price IS NULL", "kind = 'a'", "kind > 'a'", "kind LIKE 'a%' AND price > {}",
    "price > seq + {}", "price > {} AND seq < {}", "seq >= {} AND site = 1", "price > {} OR seq < {}",
    "NOT (price > {} AND seq < {})", "(price > {} OR site = 1) AND (seq < {} OR site IS NULL)", "price > 1.0",
    "amount > {}", "site = {} AND site != {}", "day IS NOT NULL AND amount < {}",
]  # fmt: skip
GROUPS = ["", "", "site", "kind", "site, kind", "price", "seq % 3, site", "day"]


def text(dice: Random) -> str:
    where = dice.choice(WHERES)
    where = where.format(*(dice.randint(-4, 5) for _ in range(where.count("{}"))))
    items = ", ".join(dice.sample(ITEMS, dice.randint(1, 3)))
    by = dice.choice(GROUPS)
    conditions = f" WHERE {where}" if where else ""
    return f"SELECT {items} FROM bids {dice.choice(WINDOWS)}{conditions}" + (f" GROUP BY {by}" if by else "")


def drawn_rows(dice: Random, size: int) -> pa.Table:
    """Rows whose floats add up exactly in any order, apart from infinities and NaN."""
    prices = [-3.0, 0.0, -0.0, 1.0, 2.5, 4.0, 0.125, None]
    prices += dice.choice([[], [float("nan")], [float("inf"), float("-inf")]])
    day = np.datetime64("2026-01-01").item()
    drawn = {
        "seq": [dice.choice([*range(-20, 40), None, 10**15]) for _ in range(size)],
        "site": [dice.choice([1, 2, None]) for _ in range(size)],
        "kind": [dice.choice(["a", "ab", "b", None]) for _ in range(size)],
        "price": [dice.choice(prices) for _ in range(size)],
        "amount": [dice.choice([Decimal("0.10"), Decimal("-7.25"), None]) for _ in range(size)],
        "day": [dice.choice([day, None]) for _ in range(size)],
        "time": [dice.choice([*range(0, 60_000_000, 700_001), None, 10**15]) for _ in range(size)],
        "number": [*range(5, 5 + size)],
    }
    if dice.random() < 0.3:
        drawn["seq"].sort(key=lambda number: -(10**9) if number is None else number)
    return pa.table({name: pa.array(drawn[name], kind, from_pandas=False) for name, kind in SCHEMA.items()})


def batch_plan(queries: list[CompiledQuery], strategy: Strategy, **more: Any) -> BatchPlan:
    shared = planned(*queries, strategy=strategy)
    columns = {f"`{name}`": name for name in SCHEMA}
    columns |= {s.sql: s.sql for one in queries for s in one.query.scalars() if s.sql not in columns}
    return BatchPlan(
        shared.families, shared.interests, columns, CLOCKS, "time", index=shared.index,
        limits=strategy.limits, **more,
    )  # fmt: skip


def folded(rows: pa.Table, plan: BatchPlan, matrix_cells: int) -> Outcome:
    opaque = [sql for sql in plan.columns if plan.columns[sql] not in SCHEMA]
    plan = replace(plan, limits=replace(plan.limits, matrix_cells=matrix_cells))
    return count_partials(aggregate_rows(with_opaque(rows, opaque), plan), plan)


def cells(done: Outcome, layouts: dict[str, Layout]) -> dict[tuple[Any, ...], Any]:
    """The rows of all sheets: by selection, slice and group, where the slice stops, its tuples and its states."""
    found: dict[tuple[Any, ...], Any] = {}
    for sheet, table in done.partials.items():
        layout = layouts[sheet]
        assert table.schema == layout.schema
        table.validate(full=True)
        for row in table.to_pylist():
            place = row["selection"], row["slice"], *(repr(row[name]) for name in layout.key_names)
            assert place not in found, "a slice comes once"
            found[place] = row["stop"], row["rows"], list(_states(layout, row))
    return found


def _states(layout: Layout, row: dict[str, Any]) -> Iterator[Any]:
    for i, accumulator in enumerate(layout.accumulators):
        state = [row[name] for name in layout.columns(i)]
        if isinstance(accumulator, Distinct):
            yield accumulator.estimates(pa.array(state, pa.binary())).to_pylist()
        elif isinstance(accumulator, Quantiles):
            yield accumulator.percentiles(pa.array(state, pa.binary()), (0.0, 0.3, 0.5, 1.0))
        elif accumulator.id == "moments":  # means are rounded, in the order in which states are merged
            yield [f"{value:.9g}" if isinstance(value, float) else value for value in state]
        else:
            # Of zeros with different signs either is the greatest: `+ 0.0` makes them alike.
            yield [(value + 0.0).hex() if isinstance(value, float) else value for value in state]


def fates(done: Outcome, plan: BatchPlan) -> tuple[Any, ...]:
    """What became of the rows, in all and for each query."""
    accounts = accounts_of(done, plan)
    missed = Counter(map(tuple, accounts.windows.T.tolist()))
    totals = done.rows, done.timeless, done.ahead, done.counted, done.late, done.unwanted, done.unshared
    return *totals, accounts.names, accounts.counts.tolist(), missed


STRATEGIES = {
    "families": Strategy(rolls=False),
    "paned": Strategy(rolls=False, paned=True),
    "grids": Strategy(rolls=False, limits=Limits(range_members=99, grids_per_range=1)),
    "one signature": Strategy(rolls=False, fragments=FragmentSharing.JOINT),
    "unshared": Strategy(rolls=False, shared=False, fragments=FragmentSharing.UNSHARED),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_few_rows_give_the_slices_of_many_to_the_last_bit(name: str, seed: int) -> None:
    for number in range(seed, seed + 12):
        dice = Random(number)
        queries = [compiled(text(dice), f"q{i}") for i in range(dice.randint(1, 18))]
        closed = {
            clock: Closed().close(dice.randint(-5, 30) * (10**6 if clock == TIME else 1)) for clock in CLOCKS
        }
        limit = dice.choice([None, 40_000_000])
        plan = batch_plan(queries, STRATEGIES[name], closed=closed, limit=limit)
        for size in (1, dice.randint(2, 60)):
            rows = drawn_rows(dice, size)
            few, many = folded(rows, plan, 1 << 40), folded(rows, plan, 0)
            assert cells(few, plan.layouts) == cells(many, plan.layouts), f"Random({number})"
            assert fates(few, plan) == fates(many, plan), f"Random({number})"
            assert few.lifted == many.lifted, f"Random({number})"


def test_sums_are_made_in_the_order_of_the_rows(seed: int) -> None:
    """Floats that round differently in another order: each selection adds its own rows, one after the other."""
    dice = np.random.default_rng(seed)
    prices = dice.normal(0, 1, 60) * 10.0 ** dice.integers(-9, 9, 60)
    queries = [
        compiled(f"SELECT sum(price) FROM bids [RANGE 100 SLIDE 100 WATTR seq] WHERE price > {i}", f"q{i}")
        for i in range(-2, 3)
    ]
    rows = drawn_rows(Random(seed), 60)
    rows = rows.set_column(rows.schema.get_field_index("seq"), "seq", pa.array(range(60)))
    rows = rows.set_column(rows.schema.get_field_index("price"), "price", pa.array(prices))
    plan = batch_plan(queries, Strategy())
    has_time = rows["time"].is_valid().to_pylist()
    (sheet,) = folded(rows, plan, 1 << 40).partials.values()
    expected = []
    for least in range(-2, 3):
        total = 0.0
        for price, counts in zip(prices.tolist(), has_time, strict=True):
            total += price if counts and price > least else 0.0
        expected.append(total)
    assert sheet["s0_0"].to_pylist() == expected
    again = folded(rows, plan, 1 << 40).partials.values()
    assert [sheet] == list(again)


def test_families_with_many_pairs_are_folded_one_by_one_beside_the_others() -> None:
    queries = [
        compiled(f"SELECT sum(seq) FROM bids {WINDOWS[0]} WHERE price > {i}", f"q{i}") for i in range(20)
    ]
    queries.append(compiled(f"SELECT sum(seq) FROM bids {WINDOWS[0]} WHERE kind = 'a'", "single"))
    plan = batch_plan(queries, Strategy(rolls=False))
    rows = drawn_rows(Random(1), 40)
    some, none = folded(rows, plan, 64 * 2), folded(rows, plan, 0)
    assert len(plan.layouts) == 1, "both kinds of families bring slices to one sheet"
    assert cells(some, plan.layouts) == cells(none, plan.layouts)
    assert fates(some, plan) == fates(none, plan)


def test_the_arrays_of_a_plan_are_made_once() -> None:
    plan = batch_plan([compiled("SELECT count(*) FROM bids [RANGE 10 SLIDE 10 WATTR seq]")], Strategy())
    assert matrix_plan(plan.families, plan.families) is matrix_plan(plan.families, plan.families)
