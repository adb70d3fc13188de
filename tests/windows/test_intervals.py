"""Interval sets against Python's own sets."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows.intervals import IntervalSet, union

PAIR = st.tuples(st.integers(-20, 20), st.integers(-20, 20))
SETS = st.lists(PAIR, max_size=6).map(lambda pairs: IntervalSet.of(*pairs))


def members(intervals: IntervalSet) -> set[int]:
    return {number for start, stop in intervals for number in range(start, stop)}


def is_canonical(intervals: IntervalSet) -> bool:
    """Sorted, not empty, and with a gap between any two."""
    edges = [edge for pair in intervals for edge in pair]
    return edges == sorted(set(edges))


@given(st.lists(PAIR, max_size=8))
def test_of_is_the_union_of_its_intervals(pairs: list[tuple[int, int]]) -> None:
    result = IntervalSet.of(*pairs)
    assert members(result) == {number for start, stop in pairs for number in range(start, stop)}
    assert is_canonical(result)


@given(SETS, SETS)
def test_union_intersection_and_difference_are_those_of_sets(first: IntervalSet, other: IntervalSet) -> None:
    for result, expected in [
        (first | other, members(first) | members(other)),
        (first & other, members(first) & members(other)),
        (first - other, members(first) - members(other)),
    ]:
        assert members(result) == expected
        assert is_canonical(result)
    assert bool(first) == bool(members(first))


@given(st.lists(SETS, max_size=4))
def test_the_union_of_many_is_the_union_of_all(sets: list[IntervalSet]) -> None:
    result = union(sets)
    assert members(result) == set().union(*map(members, sets))
    assert is_canonical(result)


@given(SETS, st.lists(PAIR, max_size=5))
def test_a_run_is_covered_when_all_of_its_members_are_in_the_set(
    first: IntervalSet, runs: list[tuple[int, int]]
) -> None:
    runs = [(min(run), max(run)) for run in runs]
    both = np.array(runs, np.int64).reshape(-1, 2)
    expected = [set(range(low, high + 1)) <= members(first) for low, high in runs]
    assert first.covers(both[:, 0], both[:, 1]).tolist() == expected


@given(SETS, st.lists(PAIR, max_size=5))
def test_an_interval_meets_the_set_when_they_share_a_member(
    first: IntervalSet, pairs: list[tuple[int, int]]
) -> None:
    pairs = [(min(pair), max(pair) + 1) for pair in pairs]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    expected = [bool(set(range(start, stop)) & members(first)) for start, stop in pairs]
    assert first.meets(both[:, 0], both[:, 1]).tolist() == expected


@given(SETS, st.integers(1, 5))
def test_a_coarsened_set_is_a_superset_of_so_many_intervals(first: IntervalSet, most: int) -> None:
    result = first.coarsened(most)
    assert members(result) >= members(first)
    assert len(result) == min(most, len(first))
    assert is_canonical(result)


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        pytest.param(4, ((0, 1), (3, 4), (10, 11), (12, 13)), id="few enough: as it was"),
        pytest.param(3, ((0, 1), (3, 4), (10, 13)), id="the smallest gap is filled first"),
        pytest.param(2, ((0, 4), (10, 13)), id="then the next"),
        pytest.param(1, ((0, 13),), id="in the end there is one interval"),
    ],
)
def test_coarsening_fills_the_smallest_gaps(most: int, expected: tuple[tuple[int, int], ...]) -> None:
    assert IntervalSet.of((0, 1), (3, 4), (10, 11), (12, 13)).coarsened(most).pairs == expected


def test_a_set_within_the_slack_is_left_as_it_is() -> None:
    long = IntervalSet.of((0, 1), (3, 4), (10, 11), (12, 13))
    assert long.coarsened(2, slack=2) is long
    assert long.coarsened(2, slack=1) == IntervalSet.of((0, 4), (10, 13))


@pytest.mark.parametrize("seed", range(20))
def test_filled_gaps_meet_the_same_windows(seed: int) -> None:
    numbers = random.Random(seed)
    cuts = sorted(numbers.sample(range(200), 24))
    some = IntervalSet.of(*zip(cuts[::2], cuts[1::2], strict=True))
    length = numbers.randrange(1, 30)
    filled = some.without_gaps(shorter_than=length)
    assert len(filled) <= len(some) and not some - filled
    for start in range(-length - 5, 210):
        window = IntervalSet.of((start, start + length))
        assert bool(window & some) == bool(window & filled), (seed, start, length)
