"""The rules of windows, closing, lateness and joining, as the oracle keeps them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.oracle.query_helpers import (
    COLUMNS,
    LONG,
    ROWS,
    batch,
    call,
    column,
    equals,
    one_of,
    query,
    reported,
    run,
    until,
)
from transom.elements import Clock, ClockKind, Drop, Punctuation, Register, WindowSpec
from transom.oracle import OracleBatch, OracleStreamRules, answer, join_tables, windows_of
from transom.oracle.window_close import covered
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.query import And, Comparison, Item, Join, Key, Not, Scalar, Truth

TEN = WindowSpec.ending(range=10, slide=10)


@pytest.mark.parametrize(
    ("name", "spec", "value", "windows"),
    [
        #   -4   1   6  11  16      starts on 1 + 5k
        #            [  7   .       . )18
        ("starts aligned, slide not dividing range", WindowSpec.starting(12, 5, 1), 7,
         [(-4, 8), (1, 13), (6, 18)]),
        #   -2   3   8      ends on 5k: 10, 15
        ("ends aligned, slide not dividing range", WindowSpec.ending(12, 5), 7, [(-2, 10), (3, 15)]),
        ("a slide longer than the range leaves gaps", WindowSpec.ending(3, 10), 6, []),
        ("and windows between them", WindowSpec.ending(3, 10), 7, [(7, 10)]),
        ("the start is inside", TEN, 10, [(10, 20)]),
        ("the end is outside", TEN, 9, [(0, 10)]),
        ("before 1970", TEN, -1, [(-10, 0)]),
        ("an origin", WindowSpec.ending(10, 10, origin=3), 3, [(3, 13)]),
    ],
)  # fmt: skip
def test_a_value_is_in_these_windows(name: str, spec: WindowSpec, value: int, windows: list) -> None:
    assert windows_of(value, spec) == windows


@pytest.mark.parametrize(
    ("name", "ranges", "closed"),
    [
        ("nothing closes nothing", [], False),
        ("a watermark at the end", [(None, 20)], True),
        ("a watermark just before the end", [(None, 19)], False),
        ("a range of exactly the window", [(10, 20)], True),
        ("a range that begins too late", [(11, 30)], False),
        ("two ranges that meet", [(15, 20), (5, 15)], True),
        ("two ranges with a hole", [(16, 20), (5, 15)], False),
        ("a watermark and a range that goes on from it", [(14, 25), (None, 15)], True),
    ],
)
def test_a_window_is_closed_when_the_union_of_ranges_covers_it(name: str, ranges: list, closed: bool) -> None:
    assert covered((10, 20), ranges) is closed


# --- watermarks and lateness -----------------------------------------------------------------


def test_a_watermark_closes_at_the_batch_s_end_and_rows_of_a_batch_have_no_order() -> None:
    # batch 0:  25 then 3: both count, whatever their order; at its end the watermark is 25 - 5 = 20
    # batch 1:  9 is late, 21 counts
    outcome = run(query(TEN), batch((25, 1, 0, 1), (3, 1, 0, 2)), batch((9, 1, 0, 4), (21, 1, 0, 8)), slack=5)
    assert reported(outcome) == [(0, 10, 2)]
    assert outcome.late["traffic"] == [({"ts": 9, "sensor": 1, "speed": 0, "volume": 4}, 1, ("q",))]
    assert outcome.missed["q"] == {(0, 10): 1}
    assert outcome.counts["traffic"] == {"in": 4, "counted": 3, "late": 1, "rejected": 0}


def test_a_row_late_for_one_query_still_counts_in_another() -> None:
    queries = {"short": query(TEN), "long": query(WindowSpec.ending(100, 100))}
    outcome = run(queries, batch((25, 1, 0, 1)), batch((9, 1, 0, 4), end_of_stream=True), slack=5)
    assert reported(outcome, "short") == [(20, 30, 1)]
    assert reported(outcome, "long") == [(0, 100, 5)]
    assert [(row["ts"], names) for row, _, names in outcome.late["traffic"]] == [(9, ("short",))]
    assert outcome.accounts["short"] == {"in": 2, "counted": 1, "late": 1, "rejected": 0}
    assert outcome.accounts["long"] == {"in": 2, "counted": 2, "rejected": 0}


def test_a_row_counts_in_those_of_its_windows_that_are_open() -> None:
    # after batch 0 the watermark is 10: 9 is in [-10, 10), closed, and in [0, 20), open
    outcome = run(
        query(WindowSpec.ending(20, 10)),
        batch((20, 1, 0, 1)),
        batch((9, 1, 0, 4), end_of_stream=True),
        slack=10,
    )
    assert reported(outcome) == [(0, 20, 4), (10, 30, 1), (20, 40, 1)]
    assert outcome.counts["traffic"]["late"] == 1
    assert outcome.missed["q"] == {(-10, 10): 1}


def test_rows_that_no_query_wants_are_counted_as_unwanted() -> None:
    asking = query(WindowSpec.ending(3, 10), where=Comparison(column("volume"), ">", 1))
    tuples = [(8, 1, 0, 5), (8, 1, 0, 1), (2, 1, 0, 5), (8, 1, 0, None)]
    outcome = run(asking, batch(*tuples, end_of_stream=True))
    assert reported(outcome) == [(7, 10, 5)]
    assert outcome.counts["traffic"] == {"in": 4, "counted": 1, "unwanted": 3, "rejected": 0}


def test_an_empty_window_has_no_result_and_a_control_batch_can_close() -> None:
    outcome = run(query(TEN), batch((5, 1, 0, 1)), OracleBatch("traffic", after=until(40)))
    assert reported(outcome, "q", "batch", "window_end", "rows", "complete") == [(1, 10, 1, True)]


def test_every_result_is_reported_once() -> None:
    outcome = run(
        query(TEN), batch((5, 1, 0, 1)), *[OracleBatch("traffic", after=until(t)) for t in (10, 10, 20)]
    )
    assert len(outcome.results["q"]) == 1


def test_the_end_of_the_stream_closes_what_holds_rows() -> None:
    outcome = run(query(TEN), batch((5, 1, 0, 1), end_of_stream=True), batch((6, 1, 0, 1), (16, 1, 0, 2)))
    assert reported(outcome) == [(0, 10, 1)]
    assert outcome.counts["traffic"] == {"in": 3, "counted": 2, "late": 1, "rejected": 0}


# --- punctuations for groups and ranges ------------------------------------------------------

BY_SENSOR = query(TEN, by=["sensor"])
PATTERNS: list[tuple[str, Any, list[Punctuation], list[Any]]] = [
    ("a pattern closes its group", BY_SENSOR, until(10, sensor=1), [1]),
    ("a pattern for null closes the null group", BY_SENSOR, until(10, sensor=None), [None]),
    ("a pattern on a column that is no key closes nothing", BY_SENSOR, until(10, speed=0), []),
    ("a pattern on a key and another column closes nothing", BY_SENSOR, until(10, sensor=1, speed=0), []),
    ("all patterns together close all groups", BY_SENSOR,
     until(10, sensor=1) + until(10, sensor=None), [1, None]),
    ("a range around the window closes it", query(TEN), until(10, since=0), ["-"]),
    ("a range inside the window does not", query(TEN), until(10, since=1), []),
    ("ranges that meet close it together", query(TEN), until(10, since=4) + until(4), ["-"]),
    ("a pinned column is matched", query(TEN, where=equals("sensor", 1)), until(10, sensor=1), ["-"]),
    ("but not by another value", query(TEN, where=equals("sensor", 1)), until(10, sensor=2), []),
    ("a conjunct pins", query(TEN, where=And((equals("sensor", 1), equals("speed", 0)))),
     until(10, sensor=1, speed=0), ["-"]),
    ("a negated equality does not", query(TEN, where=Not(equals("sensor", 2))), until(10, sensor=1), []),
    ("of IN one value is not enough", query(TEN, where=one_of("sensor", 1, 2)), until(10, sensor=1), []),
    ("of IN every value must be covered", query(TEN, where=one_of("sensor", 1, 2)),
     until(10, sensor=1) + until(10, sensor=2), ["-"]),
    ("of IN with ranges each value needs the whole window", query(TEN, where=one_of("sensor", 1, 2)),
     until(5) + until(10, since=5, sensor=1) + until(10, since=6, sensor=2), []),
    ("a key narrows what IN leaves open", query(TEN, by=["sensor"], where=one_of("sensor", 1, 2)),
     until(10, sensor=1), [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "control", "groups"), PATTERNS, ids=[case[0] for case in PATTERNS])
def test_a_punctuation_closes(name: str, asked: Any, control: list, groups: list) -> None:
    outcome = run(asked, batch((5, 1, 0, 1), (6, None, 0, 2), after=control))
    assert [result.get("sensor", "-") for result in outcome.results["q"]] == groups


def test_lateness_is_per_group() -> None:
    outcome = run(
        BY_SENSOR,
        batch((5, 1, 0, 1), after=until(10, sensor=1)),
        batch((6, 1, 0, 2), (6, 2, 0, 4), after=until(10)),
    )
    assert reported(outcome, "q", "batch", "sensor", "x0") == [(0, 1, 1), (1, 2, 4)]
    assert [row["sensor"] for row, *_ in outcome.late["traffic"]] == [1]


# --- other clocks ----------------------------------------------------------------------------


def test_another_windowing_attribute_has_its_own_watermark() -> None:
    # windows of 10 over `volume`; the stream's slack of 100 is for its time, an integer clock has 0
    by_volume = query(TEN, call("count_rows", None), clock=Clock("traffic", "volume", ClockKind.INTEGER))
    batches = batch((1, 1, 0, 3), (2, 1, 0, 12), (3, 1, 0, None)), batch((4, 1, 0, 4))
    outcome = run(by_volume, *batches, slack=100)
    assert reported(outcome) == [(0, 10, 1)]
    assert outcome.counts["traffic"] == {"in": 4, "counted": 2, "unwanted": 1, "late": 1, "rejected": 0}
    assert reported(run(by_volume, *batches, slack={"ts": 0, "volume": 5})) == []
    assert reported(run(by_volume, *batches, slack=None)) == []


def test_rows_windows_count_accepted_rows_by_time_then_by_the_other_columns() -> None:
    #  batch 0 sorted:  (1, null)0 (1, 7)1 (4, 2)2 | batch 1: (2, 5)3 (3, 9)4
    #  windows of 2:   [0, 2) = 7     [2, 4) = 2 + 5     [4, 6) is open
    counted = query(WindowSpec.ending(2, 2), clock=ROWS)
    outcome = run(
        counted,
        batch((4, 1, 0, 2), (1, 2, 0, 7), (1, None, 0, None), (None, 1, 0, 0)),
        batch((3, 1, 0, 9), (2, 1, 0, 5)),
        slack=0,
    )
    assert reported(outcome, "q", "batch", "window_start", "window_end", "x0") == [(0, 0, 2, 7), (1, 2, 4, 7)]
    assert outcome.counts["traffic"]["late"] == 0


def test_rows_are_numbered_before_where() -> None:
    counted = query(WindowSpec.ending(2, 2), clock=ROWS, where=equals("sensor", 1))
    outcome = run(counted, batch((1, 1, 0, 1), (2, 2, 0, 2), (3, 2, 0, 4), (4, 2, 0, 8)), slack=None)
    assert reported(outcome) == [(0, 2, 1)]


# --- joining and leaving ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partial", "results"),
    [(False, [(10, 20, 4, True)]), (True, [(0, 10, 2, False), (10, 20, 4, True)])],
)
def test_a_query_that_joins_reports_windows_it_saw_whole(partial: bool, results: list) -> None:
    outcome = run(
        query(TEN),
        batch((5, 1, 0, 1)),
        batch((6, 1, 0, 2), (12, 1, 0, 4), before=[Register("q", "", partial)], after=until(20)),
    )
    assert reported(outcome, "q", "window_start", "window_end", "x0", "complete") == results
    assert outcome.counts["traffic"] == {"in": 3, "unwanted": 1, "counted": 2, "rejected": 0}


def test_any_accepted_row_makes_a_window_partial_also_one_the_query_would_not_count() -> None:
    picky = query(TEN, where=equals("sensor", 2))
    joining = batch((6, 2, 0, 2), before=[Register("q", "")], after=until(10))
    assert reported(run(picky, batch((5, 1, 0, 1)), joining)) == []
    assert reported(run(picky, batch((15, 1, 0, 1)), joining)) == [(0, 10, 2)]
    assert reported(run(picky, batch((None, 1, 0, 1)), joining)) == [(0, 10, 2)]


def test_a_query_that_leaves_reports_no_more_and_may_come_back_as_new() -> None:
    outcome = run(
        query(TEN),
        batch((5, 1, 0, 1), before=[Register("q", "")]),
        batch((15, 1, 0, 2), before=[Drop("q")], after=until(10)),
        batch((16, 1, 0, 4), (25, 1, 0, 8), before=[Register("q", "")], end_of_stream=True),
    )
    assert reported(outcome) == [(20, 30, 8)]


# --- groups, items, joins --------------------------------------------------------------------


def test_nan_and_null_and_minus_zero_as_groups() -> None:
    asked = replace(query(TEN, call("count_rows", None)), keys=(Key("d", column("d", pa.float64())),))
    values = [float("nan"), -0.0, None, float("nan"), 0.0, None]
    batches = [OracleBatch("traffic", [{"ts": 1, "d": value} for value in values], end_of_stream=True)]
    rules = OracleStreamRules("ts", ClockKind.INTEGER, columns={"ts": LONG, "d": pa.float64()})
    outcome = answer({"q": asked}, batches, {"traffic": rules}, InterpretedScalars())
    assert sorted((str(result["d"]), result["x0"]) for result in outcome.results["q"]) == [
        ("0.0", 2), ("None", 2), ("nan", 2),
    ]  # fmt: skip


def test_items_having_and_names_that_system_columns_have() -> None:
    asked = query(TEN, call("sum"), call("count_rows", None), by=["sensor"], having="`a0` > 2")
    items = (
        Item("rows", "`a0` / `a1`", pa.float64()),
        Item("span", "`window_end` - `window_start`", LONG),
        Item("next", "`k0` + 1", LONG),
    )
    outcome = run(
        replace(asked, items=items), batch((1, 1, 0, 2), (2, 2, 0, 3), (3, 2, 0, 4), end_of_stream=True)
    )
    assert outcome.results["q"] == [
        {"window_start": 0, "window_end": 10, "sensor": 2, "rows": 3.5, "span": 10, "next": 3,
         "transom_rows": 2, "late": 0, "complete": True, "batch": 0}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "sums"), [(True, [("a", 3), ("b", 2)]), (False, [(None, 4), ("a", 3), ("b", 2)])]
)
def test_a_table_with_duplicate_keys_gives_a_row_several_times(inner: bool, sums: list) -> None:
    # sensor 1 is in site a, sensor 2 in sites a and b, sensor 3 nowhere
    join = Join("sites#1a2b3c4d", "sites", "`sensor` = `sites#1a2b3c4d.id`", ("id",), ("site",))
    flag = Truth(Scalar("`sites#1a2b3c4d`", pa.bool_()))
    site = Scalar("`sites#1a2b3c4d.site`", pa.string())
    asked = replace(query(TEN, joins=(join,), where=flag if inner else None), keys=(Key("site", site),))
    sites = [{"id": 1, "site": "a"}, {"id": 2, "site": "a"}, {"id": 2, "site": "b"}]
    batches = [batch((1, 1, 0, 1), (2, 2, 0, 2), (3, 3, 0, 4), end_of_stream=True)]
    rules = {"traffic": OracleStreamRules("ts", ClockKind.INTEGER, columns=COLUMNS)}
    scalars = InterpretedScalars()
    outcome = answer({"q": asked}, batches, rules, scalars, join_tables({"sites": sites}, scalars))
    assert sorted(reported(outcome, "q", "site", "x0"), key=str) == sorted(sums, key=str)
    assert outcome.counts["traffic"]["counted"] == (2 if inner else 3)
