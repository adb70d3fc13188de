"""Bursts: which rows of a batch are sidelined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.elements import Clock, ClockKind
from transom.overload.bursts import BURST_BUCKETS, bucket_grid, layer, split_burst
from transom.windows.closed_time import Closed

TIME, SEQ, ROWS = Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER), Clock("s", "", ClockKind.ROWS)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=BURST_BUCKETS), st.integers(-3, 400))
def test_the_kept_rows_are_an_even_layer_that_fills_the_budget(counts: list[int], budget: int) -> None:
    kept = layer(counts, budget)
    assert sum(kept) == min(sum(counts), max(budget, 0))
    assert all(0 <= keep <= count for keep, count in zip(kept, counts, strict=True))
    cut = [keep for keep, count in zip(kept, counts, strict=True) if keep < count]
    if cut:  # no bucket keeps more than the buckets that were cut, but for the remainder
        assert max(kept) <= min(cut) + 1 and max(cut) - min(cut) <= 1


@given(st.integers(-(2**60), 2**60), st.integers(0, 2**61))
def test_the_buckets_reach_from_the_first_time_to_the_last(low: int, length: int) -> None:
    start, width = bucket_grid(low, low + length)
    assert start == low and 0 <= length // width < BURST_BUCKETS


def sidelined(
    times: list[int | None], budget: int, closed: dict[Clock, Closed] | None = None, **options: Any
) -> list[list[int]]:
    """The chunks of some rows, whose seq is the number of the row."""
    valid = np.array([time is not None for time in times])
    numbers = np.array([0 if time is None else time for time in times], np.int64)
    columns = {TIME: (numbers, valid), SEQ: (np.arange(len(times)), np.ones(len(times), bool))}
    found = split_burst(columns, TIME, closed or {}, options.pop("limit", None), budget, **options)
    for rows, ranges in found:
        own = numbers[rows]
        assert ranges[TIME] == (own.min(), own.max()) and ranges[SEQ] == (rows.min(), rows.max())
    return [rows.tolist() for rows, _ in found]


@pytest.mark.parametrize(
    ("times", "budget", "options", "expected"),
    [
        pytest.param([1, 2, 3], 3, {}, [], id="what fits the budget stays"),
        pytest.param([0, 50, 51, 50, 100], 4, {}, [[2]], id="of a burst, the trailing rows are sidelined"),
        pytest.param([7, 7, 7, 7], 2, {}, [[2], [3]], id="of one instant, the last rows are sidelined"),
        pytest.param([0, 50, None, 50, 100], 4, {}, [], id="rows without a time do not count"),
        pytest.param([0, 50, 50, 900], 2, {"limit": 100}, [[2]], id="nor those ahead of the stream"),
        pytest.param([0, 50, 50, 100], 3, {"resumed": 1}, [[2], [3]], id="resumed rows do"),
        pytest.param([0] * 20, 16, {}, [[16, 17], [18, 19]], id="chunks are an eighth of the budget"),
    ],
)
def test_rows_beyond_the_budget_are_sidelined(
    times: list[int | None], budget: int, options: dict[str, Any], expected: list[list[int]]
) -> None:
    assert sidelined(times, budget, **options) == expected


def test_rows_where_something_is_closed_stay() -> None:
    times: list[int | None] = [10, 11, 12, 20, 21, 22]
    assert sidelined(times, 0, {TIME: Closed().close(15)}) == [[3], [4], [5]]
    assert sidelined(times, 0, {TIME: Closed().close(15, None, (("site", 1),))}) == [[3], [4], [5]]
    assert sidelined(times, 0, {SEQ: Closed().close(4)}) == [[4], [5]]
    assert sidelined(times, 0, {ROWS: Closed().close(400)}) == [[0], [1], [2], [3], [4], [5]]


def test_the_lowest_and_highest_times_have_buckets() -> None:
    ends: list[int | None] = [-(2**62), 2**62, 2**62]
    assert sidelined(ends, 2) == [[2]]


def by_rank(times: list[int | None], budget: int, ranks: list[float], **options: Any) -> list[list[int]]:
    return sidelined(times, budget, ranks=np.array(ranks), **options)


@pytest.mark.parametrize(
    ("times", "budget", "ranks", "expected"),
    [
        pytest.param([7, 7, 7, 7], 2, [3, 1, 2, 0], [[0], [2]], id="the first by rank stay"),
        pytest.param([0, 0, 0, 0], 2, [1, 0, 1, 1], [[2], [3]], id="of one rank, the first rows stay"),
        pytest.param([1, 0, 1, 0], 3, [0, 0, 1, 1], [[2]], id="ranks are compared within a bucket"),
        pytest.param(
            [50, 51, 50, 50, 0, 600], 4, [0, 2, 3, 1, 9, 9], [[2], [1]], id="chunks are in order of time"
        ),
        pytest.param([0, 50, None, 50, 100], 3, [9, 5, 0, 3, 9], [[1]], id="without a time, no rank counts"),
        pytest.param([1, 2, 3], 3, [3, 2, 1], [], id="what fits the budget stays"),
    ],
)
def test_the_best_rows_of_a_bucket_stay(
    times: list[int | None], budget: int, ranks: list[float], expected: list[list[int]]
) -> None:
    assert by_rank(times, budget, ranks) == expected


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=80), st.integers(0, 80))
def test_ranks_change_which_rows_of_a_bucket_are_sidelined_but_not_how_many(
    rows: list[tuple[int, int]], budget: int
) -> None:
    times: list[int | None] = [time for time, _ in rows]
    plain, ranked = sidelined(times, budget), by_rank(times, budget, [rank for _, rank in rows])
    assert list(map(len, plain)) == list(map(len, ranked))
    if not ranked:
        return
    start, width = bucket_grid(min(time for time, _ in rows), max(time for time, _ in rows))
    moved = {row for chunk in ranked for row in chunk}
    for bucket in range(BURST_BUCKETS):
        own = [row for row, (time, _) in enumerate(rows) if (time - start) // width == bucket]
        leaving, kept = [row for row in own if row in moved], [row for row in own if row not in moved]
        assert all(rows[k][::-1] <= rows[g][::-1] for k in kept for g in leaving)  # by rank, then by time
        assert sum(row in {r for c in plain for r in c} for row in own) == len(leaving)


def test_equal_ranks_change_nothing() -> None:
    times: list[int | None] = [5, 3, 9, 3, 3, 5, 900]
    assert by_rank(times, 4, [1.0] * 7) == sidelined(times, 4)


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(0, 80))
def test_no_row_is_sidelined_twice_and_the_budget_is_kept(times: list[int], budget: int) -> None:
    rows = [row for chunk in sidelined(list(times), budget) for row in chunk]
    assert len(rows) == len(set(rows)) == max(0, len(times) - budget)
