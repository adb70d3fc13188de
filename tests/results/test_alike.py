"""Queries that are finished, planned or kept together without being the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.plan.bids import SCALARS, TIME, admitted, compiled
from tests.results.in_process import advance
from transom.kernel.aggregate import BatchPlan, aggregate_rows
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.results.batch_input import BatchInput
from transom.results.emit import BatchOutput
from transom.state.state import State
from transom.windows.intervals import IntervalSet
from transom.windows.stream_rules import StreamRules

WINDOW = "FROM bids [RANGE 10 seconds SLIDE 10 seconds]"
SECOND = 1_000_000


def batch(
    state: State, queries: list[CompiledQuery], planner: Planner, rows: pa.Table, ended: bool = True
) -> BatchOutput:
    """What a batch of rows with the columns `ts` (microseconds) and any others comes to."""
    names = {scalar.sql: f"c{i}" for i, scalar in enumerate(s for q in queries for s in q.query.scalars())}
    projected = SCALARS.project(rows, {name: sql for sql, name in names.items()})
    table = projected.append_column("t0", rows["ts"].cast(pa.int64()))
    shared = planner.plan(state, queries)
    closed = {TIME: state.stream("bids").clock(TIME).closed}
    outcome = aggregate_rows(
        table, BatchPlan(shared.families, shared.interests, names, {TIME: "t0"}, "t0", closed)
    )
    return advance(state, [BatchInput(StreamRules(TIME, 0), queries, outcome, ended=ended)], SCALARS)


def bids(**columns: Any) -> pa.Table:
    types = {
        "ts": pa.timestamp("us", tz="UTC"),
        "price": pa.float64(),
        "seq": pa.int64(),
        "kind": pa.string(),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def test_aggregates_that_read_other_slots_are_not_mixed_up() -> None:
    head = "avg(price) AS p, avg(price * 10) AS q"
    x = compiled(f"SELECT {head}, sum(price) AS r {WINDOW}", "x")
    y = compiled(f"SELECT {head}, sum(price * 10) AS r {WINDOW}", "y")
    done = batch(admitted(x, y), [x, y], Planner(), bids(ts=[0, SECOND], price=[1.0, 2.0]))
    assert {name: table["r"].to_pylist() for name, table in done.results.items()} == {"x": [3.0], "y": [30.0]}


def test_having_with_other_constants_is_told_together() -> None:
    queries = [
        compiled(f"SELECT sum(price) AS p {WINDOW} HAVING sum(price) > {i}", f"q{i}") for i in range(6)
    ]
    assert len({query.shape for query in queries}) == 1
    done = batch(admitted(*queries), queries, Planner(), bids(ts=[0, SECOND], price=[1.0, 2.0]))
    assert sorted(done.results) == ["q0", "q1", "q2"]


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1, -(2**62), 2**62])
def test_a_row_at_the_end_of_time_harms_no_query(time: int) -> None:
    query = compiled("SELECT count(*) AS n FROM bids [RANGE 7 SLIDE 5 WATTR seq]")
    names = {scalar.sql: "c" for scalar in query.query.scalars()}
    clock = query.query.clock
    state = admitted(query)
    shared = Planner().plan(state, [query])
    table = pa.table({"seq": pa.array([3, time, 1_700_000_000_000_000], pa.int64())})
    plan = BatchPlan(shared.families, shared.interests, names, {clock: "seq"}, "seq")
    outcome = aggregate_rows(table, plan)
    assert (outcome.counted, outcome.unwanted) == (2, 1)
    done = advance(state, [BatchInput(StreamRules(clock, 0), [query], outcome, ended=True)], SCALARS)
    assert done.results["q"]["window_end"].to_pylist()[0] == 5


def test_a_signature_family_that_does_not_pay_is_split_and_tried_again_later() -> None:
    bits = [f"seq % {2 << i} >= {1 << i}" for i in range(12)]  # no two of them say anything of each other
    queries = [compiled(f"SELECT count(*) AS n {WINDOW} WHERE {p}", f"q{i}") for i, p in enumerate(bits)]
    planner, state = Planner(), admitted(*queries)
    assert [len(family) for family in planner.plan(state, queries).families] == [12]
    rows = bids(ts=np.arange(2_000) * 1000, seq=np.arange(2_000))
    state = batch(state, queries, planner, rows, ended=False).state
    assert {len(family) for family in planner.plan(state, queries).families} == {1}
    later = State(**{**vars(state), "batch_id": state.batch_id + 65})
    assert [len(family) for family in planner.plan(later, queries).families] == [12]


def test_who_moved_is_tidied_up_whatever_the_strategy_is_now() -> None:
    query = compiled(f"SELECT count(*) AS n {WINDOW}")
    state = admitted(query)
    (home,) = state.queries["q"].homes
    moved = State(
        **{
            **vars(state),
            "queries": {"q": type(state.queries["q"])((2, home), IntervalSet())},
            "selections": {2: state.selections[home], home: state.selections[home]},
        }
    )
    after = Planner().begin(moved, Membership({"q": query}), [query])
    assert after.queries["q"].homes == (2,)
