"""The arithmetic of sessions, with drawn timelines."""

from __future__ import annotations

import numpy as np
import pytest

from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.sessions import (
    extent_of_interest,
    passed_results,
    run_heads,
    session_closed,
    session_end,
)


def heads(lanes: list[int], runs: list[tuple[int, int]], gap: int) -> list[int]:
    starts, lasts = np.array(runs, np.int64).reshape(-1, 2).T
    return run_heads(np.array(lanes, np.int64), starts, lasts + 1, gap).tolist()


def test_rows_at_most_the_gap_apart_are_one_run() -> None:
    #   0 . . 3 . . 6 . . . 10        gap 3
    #   [-----------)       [---)
    assert heads([0] * 4, [(0, 0), (3, 3), (6, 6), (10, 10)], gap=3) == [0, 3]


def test_a_run_inside_of_a_longer_one_does_not_hide_its_end() -> None:
    #   0 ----------- 9               the second run lies inside of the first
    #     1 - 2
    #                     12          3 after the first
    assert heads([0] * 3, [(0, 9), (1, 2), (12, 12)], gap=3) == [0]
    assert heads([0] * 3, [(0, 9), (1, 2), (13, 13)], gap=3) == [0, 2]


def test_lanes_are_apart() -> None:
    assert heads([0, 0, 1, 1], [(0, 50), (51, 51), (1, 1), (60, 60)], gap=3) == [0, 2, 3]


def test_no_rows_have_no_runs() -> None:
    assert heads([], [], gap=3) == []


@pytest.mark.parametrize(
    ("closed", "is_final"),
    [
        (IntervalSet(), False),
        (IntervalSet.of((LOWEST, 15)), False),  # a row at 15 would extend it
        (IntervalSet.of((LOWEST, 16)), True),
        (IntervalSet.of((5, 16)), True),  # from one gap before the first row
        (IntervalSet.of((6, 16)), False),  # a row at 5 would extend it
        (IntervalSet.of((5, 9), (10, 16)), False),
    ],
)
def test_a_session_is_final_when_no_row_can_extend_it(closed: IntervalSet, is_final: bool) -> None:
    #   gap 5, a row at 10: [10, 15)
    assert session_closed(np.array([10]), np.array([11]), 5, closed, IntervalSet(), 5).tolist() == [is_final]


def test_the_end_of_the_stream_closes_sessions_by_their_ids() -> None:
    ended = IntervalSet.of((LOWEST, 15))
    assert session_closed(np.array([10, 11]), np.array([11, 12]), 5, IntervalSet(), ended, 5).tolist() == [
        True,
        False,
    ]


def test_extents() -> None:
    assert session_end(np.array([11]), 5).tolist() == [15]
    assert [times.tolist() for times in extent_of_interest(np.array([10]), np.array([15]), 5)] == [[5], [16]]


def test_only_a_watermark_says_which_results_cannot_come_any_more() -> None:
    assert passed_results(IntervalSet.of((LOWEST, 16), (20, 30))) == IntervalSet.of((LOWEST, 15))
