"""Bursts: which rows go aside, what is held for them, and when they are taken in again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.elements import Clock, ClockKind
from transom.overload.bursts import (
    BUCKETS,
    LEAST_ROWS,
    MOST_HELD,
    Chunk,
    credit_after,
    due,
    grid,
    held_by,
    in_a_lull,
    layer,
    parted,
    rows_within,
    withheld,
)
from transom.windows.closed import Closed
from transom.windows.intervals import LOWEST, IntervalSet

TIME, SEQ, ROWS = Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER), Clock("s", "", ClockKind.ROWS)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=BUCKETS), st.integers(-3, 400))
def test_the_kept_rows_are_an_even_layer_that_fills_the_budget(counts: list[int], budget: int) -> None:
    kept = layer(counts, budget)
    assert sum(kept) == min(sum(counts), max(budget, 0))
    assert all(0 <= keep <= count for keep, count in zip(kept, counts, strict=True))
    cut = [keep for keep, count in zip(kept, counts, strict=True) if keep < count]
    if cut:  # nobody keeps more than those who had to give, but for the remainder
        assert max(kept) <= min(cut) + 1 and max(cut) - min(cut) <= 1


@given(st.integers(-(2**60), 2**60), st.integers(0, 2**61))
def test_the_buckets_reach_from_the_first_time_to_the_last(low: int, length: int) -> None:
    start, width = grid(low, low + length)
    assert start == low and 0 <= length // width < BUCKETS


def split(
    times: list[int | None], budget: int, closed: dict[Clock, Closed] | None = None, **options: Any
) -> list[list[int]]:
    """The chunks of some rows, whose seq is the number of the row."""
    valid = np.array([time is not None for time in times])
    numbers = np.array([0 if time is None else time for time in times], np.int64)
    columns = {TIME: (numbers, valid), SEQ: (np.arange(len(times)), np.ones(len(times), bool))}
    found = parted(columns, TIME, closed or {}, options.pop("limit", None), budget, **options)
    for rows, ranges in found:
        own = numbers[rows]
        assert ranges[TIME] == (own.min(), own.max()) and ranges[SEQ] == (rows.min(), rows.max())
    return [rows.tolist() for rows, _ in found]


@pytest.mark.parametrize(
    ("times", "budget", "options", "expected"),
    [
        pytest.param([1, 2, 3], 3, {}, [], id="what fits the budget stays"),
        pytest.param([0, 50, 51, 50, 100], 4, {}, [[2]], id="of a burst, the trailing rows go"),
        pytest.param([7, 7, 7, 7], 2, {}, [[2], [3]], id="of one instant, the last that were given go"),
        pytest.param([0, 50, None, 50, 100], 4, {}, [], id="rows without a time do not count"),
        pytest.param([0, 50, 50, 900], 2, {"limit": 100}, [[2]], id="nor those ahead of the stream"),
        pytest.param([0, 50, 50, 100], 3, {"taken": 1}, [[2], [3]], id="rows taken in again do"),
        pytest.param([0] * 20, 16, {}, [[16, 17], [18, 19]], id="chunks are an eighth of the budget"),
    ],
)
def test_rows_go_aside(
    times: list[int | None], budget: int, options: dict[str, Any], expected: list[list[int]]
) -> None:
    assert split(times, budget, **options) == expected


def test_rows_where_something_is_closed_stay() -> None:
    times: list[int | None] = [10, 11, 12, 20, 21, 22]
    assert split(times, 0, {TIME: Closed().close(15)}) == [[3], [4], [5]]
    assert split(times, 0, {TIME: Closed().close(15, None, (("site", 1),))}) == [[3], [4], [5]]
    assert split(times, 0, {SEQ: Closed().close(4)}) == [[4], [5]]
    assert split(times, 0, {ROWS: Closed().close(400)}) == [[0], [1], [2], [3], [4], [5]]


def test_times_at_the_ends_of_the_world_have_buckets() -> None:
    ends: list[int | None] = [-(2**62), 2**62, 2**62]
    assert split(ends, 2) == [[2]]


def by_rank(times: list[int | None], budget: int, ranks: list[float], **options: Any) -> list[list[int]]:
    return split(times, budget, ranks=np.array(ranks), **options)


@pytest.mark.parametrize(
    ("times", "budget", "ranks", "expected"),
    [
        pytest.param([7, 7, 7, 7], 2, [3, 1, 2, 0], [[0], [2]], id="the first by rank stay"),
        pytest.param([0, 0, 0, 0], 2, [1, 0, 1, 1], [[2], [3]], id="of one rank, the first that were given"),
        pytest.param([1, 0, 1, 0], 3, [0, 0, 1, 1], [[2]], id="ranks are compared within a bucket"),
        pytest.param([50, 51, 50, 50, 0, 600], 4, [0, 2, 3, 1, 9, 9], [[2], [1]], id="chunks go by time"),
        pytest.param([0, 50, None, 50, 100], 3, [9, 5, 0, 3, 9], [[1]], id="without a time, no rank counts"),
        pytest.param([1, 2, 3], 3, [3, 2, 1], [], id="what fits the budget stays"),
    ],
)
def test_the_best_rows_of_a_bucket_stay(
    times: list[int | None], budget: int, ranks: list[float], expected: list[list[int]]
) -> None:
    assert by_rank(times, budget, ranks) == expected


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=80), st.integers(0, 80))
def test_ranks_change_which_rows_of_a_bucket_go_and_not_how_many(
    rows: list[tuple[int, int]], budget: int
) -> None:
    times: list[int | None] = [time for time, _ in rows]
    plain, ranked = split(times, budget), by_rank(times, budget, [rank for _, rank in rows])
    assert list(map(len, plain)) == list(map(len, ranked))
    if not ranked:
        return
    start, width = grid(min(time for time, _ in rows), max(time for time, _ in rows))
    gone = {row for chunk in ranked for row in chunk}
    for bucket in range(BUCKETS):
        own = [row for row, (time, _) in enumerate(rows) if (time - start) // width == bucket]
        left, kept = [row for row in own if row in gone], [row for row in own if row not in gone]
        assert all(rows[k][::-1] <= rows[g][::-1] for k in kept for g in left)  # by rank, then by time
        assert sum(row in {r for c in plain for r in c} for row in own) == len(left)


def test_ranks_that_are_all_alike_say_nothing() -> None:
    times: list[int | None] = [5, 3, 9, 3, 3, 5, 900]
    assert by_rank(times, 4, [1.0] * 7) == split(times, 4)


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(0, 80))
def test_no_row_goes_twice_and_the_budget_is_kept(times: list[int], budget: int) -> None:
    rows = [row for chunk in split(list(times), budget) for row in chunk]
    assert len(rows) == len(set(rows)) == max(0, len(times) - budget)


# --- what is held ----------------------------------------------------------------------------


def test_what_is_held_is_closed_when_it_is_released_and_nothing_opens_again() -> None:
    before, said = Closed().close(10), Closed().close(40).close(60, 50, (("site", 1),))
    closed = withheld(before, said, IntervalSet.of((5, 20), (55, 58)))
    assert closed.general == IntervalSet.of((LOWEST, 10), (20, 40))
    assert dict(closed.patterned) == {frozenset({("site", 1)}): IntervalSet.of((50, 55), (58, 60))}
    assert withheld(closed, said, IntervalSet()) == said


def test_times_are_held_in_few_pieces() -> None:
    chunks = [Chunk(str(i), 1, 0, {TIME: (100 * i, 100 * i + i % 2)}) for i in range(40)]
    held = held_by(chunks, TIME)
    assert len(held) == MOST_HELD and not held_by(chunks, SEQ)
    assert all((held & IntervalSet.of((100 * i, 100 * i + 1))) for i in range(40))


# --- when they are taken in again ------------------------------------------------------------

ASIDE = [Chunk(name, rows, 0) for name, rows in (("a", 2), ("b", 3), ("c", 1))]


@pytest.mark.parametrize(
    ("credit", "share", "expected"),
    [(0, 3, ""), (5, 3, ""), (6, 3, "a"), (14, 3, "a"), (15, 3, "ab"), (99, 3, "abc"), (5, 1, "ab")],
)
def test_new_rows_pay_for_old_ones_oldest_first(credit: int, share: int, expected: str) -> None:
    assert "".join(chunk.name for chunk in due(ASIDE, credit, share)) == expected


@pytest.mark.parametrize(("budget", "expected"), [(None, "a"), (1, "a"), (5, "ab"), (6, "abc")])
def test_a_lull_takes_what_fits_and_at_least_one(budget: int | None, expected: str) -> None:
    assert "".join(chunk.name for chunk in in_a_lull(ASIDE, budget)) == expected


def test_credit_is_earned_while_rows_wait_and_spent_on_those_taken() -> None:
    assert credit_after(4, waiting=True, new=10, taken=2, share=3) == 8
    assert credit_after(4, waiting=True, new=0, taken=2, share=3) == 4  # a lull is free
    assert credit_after(4, waiting=False, new=10, taken=2, share=3) == 0


def test_a_time_is_as_many_rows_as_the_best_batch_made_in_it() -> None:
    assert rows_within(2_000_000, []) is None
    assert rows_within(2_000_000, [(0, 1.0)]) is None
    assert rows_within(2_000_000, [(10, 0.5), (90_000, 3.0)]) == 60_000
    assert rows_within(2_000_000, [(10, 0.5)]) == LEAST_ROWS
