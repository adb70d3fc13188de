"""Which rows are accepted, slack and the order of ROWS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.oracle.query_helpers import CLOCK, ROWS
from transom.elements import Clock, ClockKind
from transom.oracle import OracleBatch, OracleStreamRules
from transom.oracle.batches import DAY, accept_rows, in_order

HORIZON = 10


@pytest.mark.parametrize(
    ("name", "times", "high", "accepted"),
    [
        ("a row just within the horizon", [1, 15], 5, [1, 15]),
        ("a row just beyond it", [1, 16], 5, [1]),
        ("steps within the horizon lead anywhere", [15, 25, 35], 5, [15, 25, 35]),
        ("nothing above the first longer step is accepted", [1, 10, 21, 22, 2], 5, [1, 10, 2]),
        ("exactly half of the batch is not most of it", [1, 100], 5, [1]),
        ("most of the batch jumped: it is followed", [1, 100, 101], 5, [1, 100, 101]),
        ("after a jump the horizon holds again", [100, 101, 102, 500], 5, [100, 101, 102]),
        ("a whole batch beyond the horizon is a jump", [100], 5, [100]),
        ("the first batch starts at its lower median", [1, 2, 90, 91], None, [1, 2]),
        ("the first batch goes up from its median", [1, 50, 59, 69, 80], None, [1, 50, 59, 69]),
        ("old rows are always accepted", [-1000, 5], 5, [-1000, 5]),
    ],
)
def test_the_horizon(name: str, times: list[int], high: int | None, accepted: list[int]) -> None:
    rules = OracleStreamRules("ts", horizon=HORIZON)
    took, left = accept_rows(OracleBatch("s", [{"ts": time} for time in times]), rules, high)
    assert [row["ts"] for row in took] == accepted
    assert left == [({"ts": time}, "ahead of the stream") for time in times if time not in accepted]


def test_a_live_stream_also_compares_with_the_clock() -> None:
    batch_id = OracleBatch("s", [{"ts": 100}, {"ts": 101}], clock=90)
    assert accept_rows(batch_id, OracleStreamRules("ts", horizon=HORIZON, live=True), 95) == (
        [{"ts": 100}],
        [({"ts": 101}, "ahead of the clock")],
    )
    assert accept_rows(batch_id, OracleStreamRules("ts", horizon=HORIZON), 95)[1] == []


def test_rows_without_a_time_and_rows_that_are_none_are_rejected() -> None:
    batch_id = OracleBatch(
        "s", [{"ts": None}, {}, "{not json", {"ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]
    )
    assert accept_rows(batch_id, OracleStreamRules("ts"), None) == (
        [{"ts": 1_000_000}],
        [({"ts": None}, "time is null"), ({}, "time is null"), ("{not json", "unparsable")],
    )


@pytest.mark.parametrize(
    ("rules", "horizon"),
    [
        (OracleStreamRules("ts"), 366 * DAY),
        (OracleStreamRules("ts", ClockKind.INTEGER), None),
        (OracleStreamRules("ts", horizon=None), None),
        (OracleStreamRules("ts", ClockKind.INTEGER, horizon=7), 7),
    ],
)
def test_the_usual_horizon_is_366_days_for_times_and_none_for_integers(
    rules: OracleStreamRules, horizon: int
) -> None:
    assert rules.furthest() == horizon
    assert timedelta(days=366) // timedelta(microseconds=1) == 366 * DAY


OTHER_TIME = Clock("traffic", "sent")
COUNTER = Clock("traffic", "seq", ClockKind.INTEGER)


@pytest.mark.parametrize(
    ("name", "slack", "clock", "expected"),
    [
        ("the stream's own clock has the stream's slack, also an integer one", 5, CLOCK, 5),
        ("another time has it too", 5, OTHER_TIME, 5),
        ("another integer has none", 5, COUNTER, 0),
        ("no slack, no watermark", None, OTHER_TIME, None),
        ("not on an integer either", None, COUNTER, None),
        ("rows always have one", None, ROWS, 0),
        ("a mapping tells them apart", {"ts": 5, "sent": 7}, OTHER_TIME, 7),
        ("a mapping can leave out the watermark", {"ts": 5, "seq": None}, COUNTER, None),
        ("a time that the mapping leaves out follows the stream", {"ts": 5}, OTHER_TIME, 5),
        ("an integer that it leaves out has no slack", {"ts": 5}, COUNTER, 0),
    ],
)
def test_slack(name: str, slack: object, clock: Clock, expected: int | None) -> None:
    assert OracleStreamRules("ts", ClockKind.INTEGER, slack=slack).slack_of(clock) == expected  # type: ignore[arg-type]


def test_rows_are_ordered_by_time_then_by_the_other_columns_with_null_first() -> None:
    rows = [
        {"a": 2, "ts": 1, "b": "x"},
        {"a": None, "ts": 2, "b": "x"},
        {"a": 2, "ts": 1, "b": None},
        {"a": None, "ts": 1, "b": "z"},
        {"a": "text", "ts": 1, "b": "z"},
        {"a": float("nan"), "ts": 1, "b": "z"},
    ]
    expected = [rows[3], rows[4], rows[2], rows[0], rows[5], rows[1]]
    assert in_order(rows, "ts", ["a", "ts", "b"]) == expected
