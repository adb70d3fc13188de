"""Matches by key: every pair of a line once, whichever part is taken when."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transom.promising.key_matches import KeyMatches, Lines, TupleRows, join_matches, selection_matches

tuples = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=12)


def rows_of(some: list[tuple[int, int]]) -> TupleRows:
    keys, times = (np.array([one[i] for one in some], np.int64) for i in (0, 1))
    return TupleRows(np.arange(len(some)), keys.view(np.uint64), times)


def listed(found: tuple[Any, Any]) -> list[tuple[int, int]]:
    return sorted(zip(found[0].tolist(), found[1].tolist(), strict=True))


@given(tuples, tuples, st.integers(0, 15) | st.none(), st.sampled_from([0, 2**61]))
def test_pairs_are_those_of_equal_keys_within_the_window(one: Any, other: Any, window: Any, far: int) -> None:
    """Also if times take so many bits that keys and times do not fit one number."""
    other = [*other, (9, far)]
    found = join_matches(Lines.of_keys(np.arange(4, dtype=np.uint64)), rows_of(one), rows_of(other), window)
    assert listed(found.all()) == [
        (i, j)
        for i, (key, time) in enumerate(one)
        for j, (same, there) in enumerate(other)
        if key == same and (window is None or abs(time - there) <= window)
    ]
    assert found.total == found.counts.sum() == len(found.all()[0])


def in_portions(matches: KeyMatches, size: int, spread: bool) -> list[tuple[int, int]]:
    done, found = np.zeros(matches.lines, np.int64), []
    while (left := matches.counts - done).any():
        taken = np.minimum(left, size)
        found += listed(matches.next(done, taken, spread))
        done = done + taken
    return sorted(found)


@given(tuples, tuples, st.integers(1, 4), st.booleans())
def test_portions_of_lines_are_the_whole(one: Any, other: Any, size: int, spread: bool) -> None:
    keys, ends = np.arange(4, dtype=np.uint64), np.full(4, 2**62)
    lines = Lines(
        np.repeat(keys, 2), np.tile([-(2**62), 0], 4), np.stack([np.zeros(4, np.int64), ends], 1).ravel()
    )
    matches = join_matches(lines, rows_of(one), rows_of(other), 10)
    assert in_portions(matches, size, spread) == listed(matches.all())


def test_a_spread_sample_of_pairs_does_not_favour_old_tuples() -> None:
    """A thousand tuples of each stream, one value: a tenth of the pairs has the mean time of all."""
    some = rows_of([(7, time) for time in range(1000)])
    matches = join_matches(Lines.of_keys(np.array([7], np.uint64)), some, some, None)
    mine, theirs = matches.next(np.zeros(1, np.int64), np.array([100_000]), spread=True)
    assert abs(mine.mean() - 499.5) < 5 and abs(theirs.mean() - 499.5) < 5


def test_a_sample_of_a_selection_is_even_in_time_and_differs_by_batch() -> None:
    some = rows_of([(7, time) for time in range(10_000)])
    first = []
    for seed in range(20):
        matches = selection_matches(np.array([7], np.uint64), some, seed)
        _, rows = matches.next(np.zeros(1, np.int64), np.array([1_000]))
        first.append(rows.mean())
    means = np.array(first)  # of a thousand numbers up to 10,000: a standard error of 87
    assert abs(means.mean() - 4999.5) < 4 * 87 / 20**0.5 and 40 < means.std() < 140
    assert sorted(matches.all()[1].tolist()) == list(range(10_000))
