"""Profiles: runs of times, cuts, and tasks that each have a part of a batch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows.batch_profile import MOST_RUNS, Profile

TIMES = st.lists(st.integers(-50, 150), max_size=20)


def profile(times: list[int], gap: int | None = None, cut: int | None = None) -> Profile:
    return Profile.of(np.array(times, np.int64), gap, cut)


@pytest.mark.parametrize(
    ("times", "gap", "cut", "runs"),
    [
        pytest.param([], None, None, (), id="no rows, no runs"),
        pytest.param([5], None, None, ((5, 5, 1),), id="one row is a run"),
        pytest.param([1, 3, 2, 2], 5, None, ((1, 3, 4),), id="order does not matter, ties count"),
        pytest.param([1, 2, 4], 5, None, ((1, 2, 2), (4, 4, 1)), id="short batches are cut finely"),
        pytest.param([1, 2, 3], 5, 2, ((1, 2, 2), (3, 3, 1)), id="always cut above the given time"),
        pytest.param([1, 2, 3], 5, 9, ((1, 3, 3),), id="a cut above all rows cuts nothing"),
        pytest.param([1, 2, 3], 5, 0, ((1, 3, 3),), id="nor one below all rows"),
        pytest.param([-(2**63), 0, 2**63 - 1], 10, None,
                     ((-(2**63), -(2**63), 1), (0, 0, 1), (2**63 - 1, 2**63 - 1, 1)), id="ends of 64 bits"),
    ],
)  # fmt: skip
def test_runs(
    times: list[int], gap: int | None, cut: int | None, runs: tuple[tuple[int, int, int], ...]
) -> None:
    assert profile(times, gap, cut).runs == runs


@given(TIMES, st.integers(1, 40), st.none() | st.integers(-60, 160))
def test_runs_have_all_rows_and_no_gap_larger_than_given(times: list[int], gap: int, cut: int | None) -> None:
    whole = profile(times, gap, cut)
    assert whole.count == len(times)
    assert whole.top == max(times, default=None)
    for low, top, count in whole.runs:
        inside = sorted(time for time in times if low <= time <= top)
        assert len(inside) == count and inside[0] == low and inside[-1] == top
        assert all(b - a <= gap for a, b in pairwise(inside))
        assert cut is None or not low <= cut < top
    if cut is not None:
        assert whole.count_above(cut) == sum(time > cut for time in times)
        assert whole.upto(cut).count == sum(time <= cut for time in times)
    assert whole.upto(None) == whole


@given(TIMES.filter(bool), st.integers(1, 40))
def test_the_median_run_holds_the_lower_median(times: list[int], gap: int) -> None:
    low, top, _ = profile(times, gap).median_run()
    assert low <= sorted(times)[(len(times) - 1) // 2] <= top


def test_an_empty_profile_has_no_median() -> None:
    with pytest.raises(ValueError, match="no median"):
        Profile().median_run()


@given(TIMES, st.integers(1, 4), st.none() | st.integers(-60, 160))
def test_parts_merged_hold_what_the_whole_holds(times: list[int], splits: int, cut: int | None) -> None:
    whole = profile(times, 5, cut)
    merged = Profile.merged(profile(times[start::splits], 5, cut) for start in range(splits))
    assert (merged.count, merged.top) == (whole.count, whole.top)
    assert all(b[0] > a[1] for a, b in pairwise(merged.runs)), "runs are disjoint"
    for low, top, count in merged.runs:
        assert sum(low <= time <= top for time in times) == count
    if cut is not None:
        assert merged.count_above(cut) == whole.count_above(cut)
    occupied = merged.occupied()
    assert occupied.covers(np.array(times, np.int64), np.array(times, np.int64)).all()


def test_runs_are_few_however_many_rows_there_are() -> None:
    times = np.random.default_rng(3).integers(0, 10**15, 100_000)
    assert len(Profile.of(times).runs) <= MOST_RUNS + 1
