"""Rows to partial aggregates: wanted and late rows, and tasks that share a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.plan.bids import SEQ, bound, planned
from transom.columns.bit_columns import bit_matrix
from transom.kernel.aggregate import (
    BatchPlan,
    Outcome,
    accounts_of,
    aggregate_rows,
    count_partials,
    late_rows,
    merge,
)
from transom.kernel.query_counts import FATES
from transom.kernel.sheets import combine
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.results.close import Boundary, Reader, close
from transom.results.lower import lower_windows, slot_columns
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

SCHEMA = {"seq": pa.int64(), "site": pa.int32(), "kind": pa.string(), "price": pa.float64()}
ROWS = [
    (1, 1, "a", 1.5), (4, 2, "b", None), (6, 1, None, 2.5), (12, None, "a", 4.0),
    (None, 1, "a", 9.0), (90, 1, "a", 0.0),
]  # fmt: skip


def batch(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    own = {name: pa.array(list(v), t) for (name, t), v in zip(SCHEMA.items(), columns, strict=True)}
    return pa.table({**own, "id": pa.array(range(len(rows)), pa.int64())})


def plan(*queries: CompiledQuery, forced: int | None = None, **more: Any) -> BatchPlan:
    """The plan of some queries; windows with an id below `forced` were closed by an end."""
    shared = planned(*queries)
    interests, index = shared.interests, shared.index
    if forced is not None:
        index = replace(index, forced=np.full(len(index.names), forced))
        interests = tuple(
            replace(interest, windows=tuple((window, forced) for window, _ in interest.windows))
            for interest in interests
        )
    columns = {f"`{name}`": name for name in SCHEMA}
    return BatchPlan(shared.families, interests, columns, {SEQ: "seq"}, "seq", index=index, **more)


def query(items: str, rest: str = "", name: str = "q", size: int = 10) -> CompiledQuery:
    return compile_query(name, bound(f"SELECT {items} FROM bids [RANGE {size} SLIDE 10 WATTR seq] {rest}"))


def results_of(
    compiled: CompiledQuery, given: BatchPlan, outcome: Outcome, closed: Closed = Closed()
) -> list[tuple[Any, ...]]:
    """(window end, aggregates) of all windows that an outcome's partials hold and that are not closed yet."""
    (selection,) = (
        member for family in given.families for member in family.members if compiled.name in member.queries
    )
    before = Boundary(closed.view({}, {}), IntervalSet())
    reader = Reader(compiled, selection.id, before, Boundary(before.view, IntervalSet.of((LOWEST, 99))))
    closed_windows = close(selection.layout, outcome.partials[selection.layout.id], [reader]).table
    places = slot_columns(compiled, {slot.id: i for i, slot in enumerate(selection.slots)})
    table = lower_windows(
        selection.layout, closed_windows, [compiled], np.zeros(closed_windows.num_rows, np.int64), places
    )
    names = ["window_end", *(f"a{i}" for i in range(len(compiled.query.calls)))]
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_rows_without_time_and_rows_beyond_the_limit_are_not_accepted() -> None:
    compiled = query("count(*)")
    given = plan(compiled, limit=50)
    outcome = aggregate_rows(batch(ROWS), given)
    assert (outcome.rows, outcome.timeless, outcome.ahead, outcome.counted) == (6, 1, 1, 4)
    assert results_of(compiled, given, outcome) == [(10, 3), (20, 1)]
    assert outcome.clocks[SEQ].top == 12, "what is rejected moves no watermark"
    assert outcome.profile.top == 90, "but is seen by the horizon"


def test_rows_up_to_the_floor_were_aggregated_before() -> None:
    compiled = query("count(*)")
    given = plan(compiled, limit=50, floor=4)
    assert results_of(compiled, given, aggregate_rows(batch(ROWS), given)) == [(10, 1), (20, 1)]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param("count(price, kind)", [(10, 1), (20, 1)], id="count of two columns wants both"),
        pytest.param("count(kind, site)", [(10, 2), (20, 0)], id="in either order"),
        pytest.param("count(price, kind) FILTER (WHERE site = 2)", [(10, 0), (20, 0)], id="and its FILTER"),
        pytest.param("stddev_pop(price) FILTER (WHERE site = 77)", [(10, None), (20, None)],
                     id="a FILTER may let nothing through"),
        pytest.param("count(*) FILTER (WHERE kind = 'a')", [(10, 1), (20, 1)], id="null is not true"),
        pytest.param("approx_count_distinct(site) FILTER (WHERE site = 77)", [(10, 0), (20, 0)],
                     id="a sketch of nothing counts nothing"),
    ],
)  # fmt: skip
def test_aggregates_read_the_rows_that_pass_their_filter(items: str, expected: list[tuple[Any, ...]]) -> None:
    compiled = query(items)
    given = plan(compiled, limit=50)
    assert results_of(compiled, given, aggregate_rows(batch(ROWS), given)) == expected


def test_a_row_late_for_one_query_is_late_and_counts_for_another() -> None:
    narrow, wide = query("count(*)", name="narrow"), query("count(*)", name="wide", size=30)
    closed = Closed().close(10)
    given = plan(narrow, wide, closed={SEQ: closed}, limit=50)
    outcome = aggregate_rows(batch(ROWS), given)
    assert (outcome.counted, outcome.late, outcome.unwanted) == (1, 3, 0)
    accounts = accounts_of(count_partials(outcome, given), given)
    assert accounts.names == ("narrow", "wide")
    assert dict(zip(FATES, accounts.counts.T.tolist()[0], strict=True)) == {
        "rows": 6, "counted": 1, "unwanted": 0, "late": 3, "rejected": 2
    }  # fmt: skip
    assert results_of(narrow, given, outcome, closed) == [(20, 1)]
    assert results_of(wide, given, outcome, closed) == [(20, 4), (30, 4), (40, 1)]


def test_a_row_late_for_every_interested_query_is_late_and_an_unwanted_row_is_not() -> None:
    compiled = query("count(*)", "WHERE site = 1")
    given = plan(compiled, closed={SEQ: Closed().close(10)}, limit=50, row_id="id")
    outcome = aggregate_rows(batch(ROWS), given)
    assert (outcome.counted, outcome.late, outcome.unwanted) == (0, 2, 2)
    late = late_rows(batch(ROWS), given)
    assert late.at.tolist() == [0, 2]
    assert bit_matrix(late.missed_by, len(given.groups)).tolist() == [[True], [True]]
    assert outcome.flags is not None
    assert outcome.flags.to_pydict() == {"row": [0, 2], "late": [True, True]}


def test_windows_forced_to_close_make_rows_late() -> None:
    compiled = query("count(*)")
    outcome = aggregate_rows(batch(ROWS), plan(compiled, forced=1, limit=50))
    assert (outcome.counted, outcome.late) == (1, 3)


@pytest.mark.parametrize("splits", [1, 2, 3, 7])
@pytest.mark.parametrize("naive", [False, True])
def test_several_tasks_give_the_outcome_of_one_task(splits: int, naive: bool) -> None:
    text = "SELECT count(*), sum(price), stddev(price), max(kind), approx_count_distinct(site)"
    compiled = compile_query(
        "q", bound(f"{text} FROM bids [RANGE 10 SLIDE 10 WATTR seq] WHERE site > 0"), naive
    )
    given = plan(compiled, closed={SEQ: Closed().close(10, 0)}, limit=50)
    whole = aggregate_rows(batch(ROWS), given)
    parts = merge((aggregate_rows(batch(ROWS[i::splits]), given) for i in range(splits)), given.layouts)
    assert results_of(compiled, given, parts) == results_of(compiled, given, whole)
    for count in ("rows", "timeless", "ahead", "counted", "late", "unwanted"):
        assert getattr(parts, count) == getattr(whole, count), count
    assert parts.profile.count == whole.profile.count


def test_zero_and_nan_have_one_group_each_in_every_task() -> None:
    compiled = query("price, count(*)", "GROUP BY price")
    rows = [(1, 1, "a", value) for value in (0.0, -0.0, float("nan"), -float("nan"), None)]
    given = plan(compiled)
    ((key, layout),) = given.layouts.items()
    closed_windows = combine(layout, [aggregate_rows(batch([row]), given).partials[key] for row in rows])
    assert sorted(map(str, closed_windows["k0"].to_pylist())) == ["0.0", "None", "nan"]
    assert sorted(closed_windows["rows"].to_pylist()) == [1, 2, 2]


def test_an_empty_batch_brings_no_partials_and_no_slices_make_a_sheet_of_the_right_shape() -> None:
    given = plan(query("site, avg(price)", "GROUP BY site"))
    outcome = aggregate_rows(batch([]), given)
    assert (outcome.rows, outcome.partials) == (0, {})
    assert merge([], given.layouts).partials == {}
    (layout,) = given.layouts.values()
    assert combine(layout, []).schema == layout.schema
