"""A state as bytes and back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transom.aggregates.sketches import Distinct, Quantiles
from transom.elements import Clock, ClockKind
from transom.errors import StateError
from transom.promising.regions import Regions
from transom.state import snapshot
from transom.state.checkpoint_format import FORMAT_VERSION
from transom.state.commit_record import CommitRecord
from transom.state.pass_decisions import PassDecisions
from transom.state.promising import PreferenceState, PromisingState, UnmatchedTuples
from transom.state.state import ClockState, QueryState, SelectionState, State, StreamState, Totals
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

TIME, SEQ, ROWS = Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER), Clock("s", "", ClockKind.ROWS)


def there_and_back(state: State) -> State:
    record = CommitRecord("local", sources={"s": {"files": ["a"]}})
    found, restored = snapshot.loads(snapshot.dumps(state, record))
    assert restored == record
    return found


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.50"), Decimal("-" + "9" * 38), date(1969, 12, 31), b"\x00\xff", b"", "", "é 😀 \" \\", 0,
        -(2**63), 2**63 - 1, None, True, False, 1.5, math.inf,
    ],
    ids=repr,
)  # fmt: skip
def test_a_pattern_keeps_its_value_and_type(value: Any) -> None:
    closed = Closed().close(9, 3, (("x", value), ("other", 1)))
    state = State(4, {"s": StreamState({TIME: ClockState(5, closed)})})
    found = there_and_back(state)
    assert found == state
    ((pattern, _),) = found.stream("s").clock(TIME).closed.patterned
    assert type(dict(pattern)["x"]) is type(value)
    assert str(dict(pattern)["x"]) == str(value)


def test_clocks_totals_selections_and_what_queries_missed_come_back() -> None:
    clocks = {
        TIME: ClockState(-5, Closed().close(-7).close(20, 10), IntervalSet.of((-9, -4), (0, 3))),
        SEQ: ClockState(),
        ROWS: ClockState(3, Closed().close(3)),
    }
    queries = {
        "sees all": QueryState((1,)),
        "missed some": QueryState((1,), IntervalSet.of((LOWEST, 8)), 12),
        "not known yet": QueryState((7, 1), None, -3),
    }
    selections = {
        1: SelectionState("s by ts", "slices of s", ("count of *", "é"), True),
        7: SelectionState("s by ts where x", "rows of s", ()),
    }
    streams = {"s": StreamState(clocks, Totals(10, 5, 2, 2, 1)), "idle": StreamState()}
    state = State(7, streams, queries, selections, {1: -9})
    assert there_and_back(state) == state
    assert there_and_back(State()) == State()


def test_tuples_of_outer_joins_without_a_partner_come_back() -> None:
    table = pa.table({"key": pa.array([7], pa.uint64()), "time": [4], "batch": [2], ".name": ["é"]})
    ended = table.append_column("ended", pa.array([3]))
    for unmatched in (
        UnmatchedTuples(),
        UnmatchedTuples((table, None), (None, ended), (12, None)),
        UnmatchedTuples((None, table), (ended, None), (None, None)),
    ):
        query = PreferenceState((Regions.none(), Regions.none()), 2, unmatched=unmatched, registered=1)
        (found,) = there_and_back(
            State(3, promising=PromisingState(queries={"q": query}))
        ).promising.queries.values()
        assert found.unmatched == unmatched and (found.since, found.registered_with) == (2, 1)


def test_slices_of_every_type_come_back_bit_by_bit() -> None:
    values = pa.array([1, 2, 3])
    (distinct,) = Distinct(pa.int64(), 9).lift(values, np.array([0, 0, 1]), 3)
    (quantiles,) = Quantiles(pa.int64(), 200).lift(values, np.array([0, 0, 1]), 3)
    columns = {
        "slice": pa.array([-(2**62), 0, 5]),
        "k0": pa.array(["é", None, ""]),
        "k1": pa.array([math.nan, -0.0, None]),
        "k2": pa.array([Decimal("1.50"), None, Decimal("-9.99")], pa.decimal128(38, 2)),
        "k3": pa.array([date(1969, 1, 1), None, date(9999, 12, 31)]),
        "k4": pa.array([b"\x00", None, b""]),
        "k5": pa.array([-1, None, 2**50], pa.timestamp("us", tz="UTC")),
        "k6": pa.array([True, None, False]),
        "k7": pa.nulls(3),
        "s0_0": distinct,
        "s1_0": quantiles,
        "s2_0": pa.array([Decimal("9" * 70), None, Decimal(0)], pa.decimal256(76, 0)),
    }
    slices = pa.table(columns)
    found = there_and_back(State(1, sheets={"slices of s": slices})).sheets["slices of s"]
    assert found.schema == slices.schema
    for name in columns:
        ours, theirs = found[name].combine_chunks(), slices[name].combine_chunks()
        assert str(ours.to_pylist()) == str(theirs.to_pylist()), name


def test_a_snapshot_of_another_version_is_refused_with_both_numbers_and_what_to_do() -> None:
    packed = snapshot.dumps(State(), CommitRecord("local"))
    table = pa.ipc.open_stream(packed).read_all()
    meta = json.loads(table.schema.metadata[b"transom"]) | {"version": 99}
    sink = pa.BufferOutputStream()
    changed = table.replace_schema_metadata({"transom": json.dumps(meta)})
    with pa.ipc.new_stream(sink, changed.schema) as writer:
        writer.write_table(changed)
    expected = f"format 99, this version of transom reads format {FORMAT_VERSION}: continue it with"
    with pytest.raises(StateError, match=expected):
        snapshot.loads(sink.getvalue().to_pybytes())


# --- what a newcomer has missed --------------------------------------------------------------

SEEN = State(
    1, {"s": StreamState({TIME: ClockState(9, occupied=IntervalSet.of((3, 10)))}, Totals(5, 4, 0, 0, 1))}
)


@pytest.mark.parametrize(
    ("state", "clock", "missed"),
    [
        pytest.param(State(), TIME, IntervalSet(), id="the first query has missed nothing"),
        pytest.param(
            SEEN, TIME, IntervalSet.of((3, 10)), id="a later one has missed where rows were accepted"
        ),
        pytest.param(SEEN, ROWS, IntervalSet.of((0, 4)), id="along the rows: the accepted ones"),
        pytest.param(SEEN, SEQ, None, id="on a clock that nobody followed it is not known yet"),
    ],
)
def test_a_newcomer_has_missed_what_was_accepted(
    state: State, clock: Clock, missed: IntervalSet | None
) -> None:
    assert state.missed(clock) == missed


def test_decisions_are_stored_by_columns() -> None:
    decisions = PassDecisions(
        "bids", "admission", (("query q", "opens selection 1", "new", "opens_selection"),)
    )
    assert json.loads(decisions.packed) == {
        "stream": "bids",
        "pass": "admission",
        "about": ["query q"],
        "chosen": ["opens selection 1"],
        "reason": ["new"],
        "kind": ["opens_selection"],
    }
    record = CommitRecord("local", decisions=(decisions, PassDecisions("bids", "placement", ())))
    assert snapshot.loads(snapshot.dumps(State(), record))[1] == record


def test_parts_that_no_batch_changed_are_packed_once() -> None:
    lasting, made = snapshot.LastingParts(), []

    def add(source: object) -> bytes:
        lasting.add(("queries", "", 0), source, lambda: made.append(source) or b"packed" * 9)  # type: ignore[func-returns-value]
        ((_, size, packed),) = lasting.take()
        return snapshot.ZSTD.decompress(packed, size, asbytes=True)

    first, second = {"a": 1}, {"a": 1}
    assert [add(source) for source in (first, first, second, second, first)] == [b"packed" * 9] * 5
    assert [id(source) for source in made] == [id(first), id(second), id(first)]


def test_snapshots_with_remembered_parts_are_those_without() -> None:
    lasting, record = snapshot.LastingParts(), CommitRecord("local")
    states = [
        State(1, queries={"q": QueryState((1,))}, selections={1: SelectionState("s", "slices", ())}),
        State(2, queries={"q": QueryState((1,), IntervalSet.of((0, 9)))}, floors={1: 4}),
        State(3),
    ]
    for state in (states[0], replace(states[0], batch_id=2), *states[1:], states[1]):
        packed = snapshot.dumps(state, record, None, lasting)
        assert snapshot.loads(packed) == (state, record)
        assert packed == snapshot.dumps(state, record)
