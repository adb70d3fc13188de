"""The horizon against the rule itself, walked naively over the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.elements import Clock, ClockKind
from transom.windows.batch_profile import Profile
from transom.windows.horizon import horizon_limit
from transom.windows.stream_rules import StreamRules


def accepted(times: list[int], high: int | None, horizon: int | None, splits: int = 1) -> list[int]:
    """The times that the engine takes, when so many tasks each see a part of the batch."""
    cut = None if high is None or horizon is None else high + horizon
    parts = (Profile.of(np.array(times[i::splits], np.int64), horizon, cut) for i in range(splits))
    limit = horizon_limit(Profile.merged(parts), high, horizon)
    return sorted(time for time in times if limit is None or time <= limit)


def walked(times: list[int], high: int | None, horizon: int) -> list[int]:
    """Row by row: up from `high`, or from the median when most of the batch is beyond or it is the first."""
    ordered = sorted(times)
    start = high
    if high is None or 2 * sum(time > high + horizon for time in times) > len(times):
        start = ordered[(len(ordered) - 1) // 2]
    assert start is not None
    reach, taken = start, []
    for time in ordered:
        if time > reach + horizon:
            break
        reach = max(reach, time)
        taken.append(time)
    return taken


@pytest.mark.parametrize(
    ("times", "high", "horizon", "expected"),
    [
        pytest.param([1, 2, 500], None, None, [1, 2, 500], id="without a horizon all is taken"),
        pytest.param([], 5, 10, [], id="an empty batch"),
        pytest.param([11, 12, 99], 10, 20, [11, 12], id="one row far ahead is rejected"),
        pytest.param([30, 50, 70], 10, 20, [30, 50, 70], id="the stream reaches up from row to row"),
        pytest.param([31, 51, 71], 10, 20, [31, 51, 71], id="all beyond: the stream jumped"),
        pytest.param([12, 90, 91], 10, 20, [12, 90, 91], id="most are beyond: followed, the rest stays"),
        pytest.param([12, 13, 90, 91], 10, 20, [12, 13], id="half of them is not most"),
        pytest.param([1, 2, 99], None, 20, [1, 2], id="a first batch is judged by its median"),
        pytest.param([-500, 1, 2], None, 20, [-500, 1, 2], id="the past is always taken"),
    ],
)
def test_the_rule(times: list[int], high: int | None, horizon: int | None, expected: list[int]) -> None:
    assert accepted(times, high, horizon) == expected


@given(
    st.lists(st.integers(-20, 120), min_size=1, max_size=14),
    st.none() | st.integers(-20, 60),
    st.integers(0, 40),
    st.integers(1, 3),
)
def test_tasks_together_take_what_the_walk_takes(
    times: list[int], high: int | None, horizon: int, splits: int
) -> None:
    assert accepted(times, high, horizon, splits) == walked(times, high, horizon)


TIME, SEQ = Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER)


@pytest.mark.parametrize(
    ("rules", "clock", "slack"),
    [
        pytest.param(StreamRules(TIME, 5), TIME, 5, id="the stream's own clock has the stream's slack"),
        pytest.param(StreamRules(TIME, 5), Clock("s", "paid"), 5, id="so has another time column"),
        pytest.param(StreamRules(TIME, 5), SEQ, 0, id="the unit of an integer column is not known: none"),
        pytest.param(StreamRules(TIME, None), SEQ, None, id="punctuations only: for all clocks"),
        pytest.param(StreamRules(TIME, 5, {"seq": 3}), SEQ, 3, id="a slack of its own wins"),
        pytest.param(StreamRules(TIME, 5, {"seq": None}), SEQ, None, id="also when that is none at all"),
        pytest.param(StreamRules(TIME, None), Clock("s", "", ClockKind.ROWS), 0, id="rows are never late"),
        pytest.param(StreamRules(SEQ, 5), SEQ, 5, id="a stream that runs by numbers"),
        pytest.param(StreamRules(SEQ, 5), TIME, 0, id="whose number is no duration"),
    ],
)
def test_slack_by_clock(rules: StreamRules, clock: Clock, slack: int | None) -> None:
    assert rules.slack_of(clock) == slack
