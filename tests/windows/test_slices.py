"""Where slices lie: the paper's figures, drawn, and everything else against an enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.elements import WindowSpec
from transom.windows.slices import Progressions, cuts, progressions, slices

SPECS = st.builds(WindowSpec, st.integers(1, 12), st.integers(1, 9), st.integers(0, 8))
OWNERS = st.lists(st.lists(SPECS, min_size=1, max_size=3), min_size=1, max_size=4)


def edges(windows: list[list[WindowSpec]], low: int, high: int, paned: bool = False) -> list[int]:
    """All edges in (low, high]."""
    _, times = progressions(windows, paned).between(low, high)
    return sorted(set(times.tolist()))


def widths(edges: list[int]) -> list[int]:
    return np.diff([0, *edges]).tolist()


# --- the paper's figures ---------------------------------------------------------------------
#
#   RANGE 18 SLIDE 15       0           12 15          27 30          42 45
#   windows           ------[-----------|--)
#                           .           [--|-----------|--)
#                           .           .  .           [--|-----------|--)
#   paired                  |-----------|--|-----------|--|-----------|--|    12 and 3
#   paned                   |--|--|--|--|--|--|--|--|--|--|--|--|--|--|--|    3 each

EIGHTEEN_BY_FIFTEEN = WindowSpec.ending(range=18, slide=15)


def test_a_paired_window_is_cut_where_windows_end_and_where_they_start() -> None:
    assert widths(edges([[EIGHTEEN_BY_FIFTEEN]], 0, 45)) == [12, 3] * 3


def test_a_paned_window_is_cut_at_every_common_divisor() -> None:
    assert widths(edges([[EIGHTEEN_BY_FIFTEEN]], 0, 45, paned=True)) == [3] * 15


# Figure 3.  U(12, 3) three times:  |-----------|--|-----------|--|-----------|--|
#            V(6, 3) five times:    |-----|--|-----|--|-----|--|-----|--|-----|--|
#            W, all of their edges: |-----|--|--|--|--|-----|--|--|--|--|-----|--|
#                                   0     6  9 12 15 18    24 27 30 33 36    42 45
#
# (The paper prints two more slices of 3, with which W would be longer than its period of 45.)


def test_windows_are_composed_at_every_edge_of_each() -> None:
    twelve_by_nine = WindowSpec.ending(range=12, slide=9)
    assert widths(edges([[twelve_by_nine]], 0, 45)) == [6, 3] * 5
    composed = edges([[EIGHTEEN_BY_FIFTEEN], [twelve_by_nine]], 0, 45)
    assert widths(composed) == [6, 3, 3, 3, 3, 6, 3, 3, 3, 3, 6, 3]
    assert composed == edges([[EIGHTEEN_BY_FIFTEEN, twelve_by_nine]], 0, 45), "of one owner or of two"


@pytest.mark.parametrize(
    ("spec", "paired", "paned"),
    [
        pytest.param(WindowSpec.ending(20, 10), [(0, 10)], [(0, 10)], id="one cut if they divide"),
        pytest.param(WindowSpec.ending(18, 15), [(0, 15), (12, 15)], [(0, 3)], id="else two, or panes"),
        pytest.param(WindowSpec.ending(7, 5), [(0, 5), (3, 5)], [(0, 1)], id="or panes of one"),
        pytest.param(WindowSpec.ending(3, 10), [(0, 10), (7, 10)], [(0, 1)], id="gaps between windows"),
        pytest.param(WindowSpec.ending(20, 10, 3), [(3, 10)], [(3, 10)], id="an origin moves the cuts"),
        pytest.param(WindowSpec.starting(12, 5, 1), [(3, 5), (1, 5)], [(0, 1)], id="an offset, too"),
    ],
)  # fmt: skip
def test_where_a_window_is_cut(
    spec: WindowSpec, paired: list[tuple[int, int]], paned: list[tuple[int, int]]
) -> None:
    assert cuts(spec) == paired
    assert cuts(spec, paned=True) == paned


# --- against an enumeration ------------------------------------------------------------------


def is_edge(specs: list[WindowSpec], time: int) -> bool:
    """Whether a window of one of them starts or ends there."""
    return any((time - s.phase) % s.slide == 0 or (time + s.range - s.phase) % s.slide == 0 for s in specs)


@given(OWNERS, st.integers(-40, 40), st.integers(0, 40))
def test_edges_found_on_the_fly_are_those_of_an_enumeration(
    owners: list[list[WindowSpec]], low: int, length: int
) -> None:
    cut = progressions(owners)
    whose, times = cut.between(low, low + length)
    found = set(zip(whose.tolist(), times.tolist(), strict=True))
    assert found == {
        (i, time)
        for i, specs in enumerate(owners)
        for time in range(low + 1, low + length + 1)
        if is_edge(specs, time)
    }
    assert cut.count(low, low + length) >= len(times), "never fewer than are made"


@given(OWNERS, st.integers(-40, 40))
def test_the_edges_before_and_after_a_time_are_the_nearest(owners: list[list[WindowSpec]], time: int) -> None:
    cut = progressions(owners)
    before, after = cut.before(time, len(owners)), cut.after(time, len(owners))
    for i, specs in enumerate(owners):
        assert before[i] == max(t for t in range(time - 12, time + 1) if is_edge(specs, t))
        assert after[i] == min(t for t in range(time + 1, time + 13) if is_edge(specs, t))
        starts, stops = cut.around(np.array([time]), i)
        assert (starts[0], stops[0]) == (before[i], after[i])


@given(OWNERS, st.integers(-40, 40), st.integers(0, 30), st.booleans())
def test_every_time_lies_in_one_slice_of_each_owner(
    owners: list[list[WindowSpec]], low: int, length: int, paned: bool
) -> None:
    cut = progressions(owners, paned)
    made = slices(cut, len(owners), low, low + length)
    times = np.arange(low, low + length + 1)
    fine = made.of(times)
    assert fine.tolist() == made.of(times, in_order=True).tolist()
    assert made.fine == len(made.edges) + 1
    for i in range(len(owners)):
        starts, stops = (
            made.starts[made.bounds[i] : made.bounds[i + 1]],
            made.stops[made.bounds[i] : made.bounds[i + 1]],
        )
        firsts = made.firsts[made.bounds[i] : made.bounds[i + 1]]
        assert starts[1:].tolist() == stops[:-1].tolist(), "one ends where the next one starts"
        own = np.searchsorted(firsts, fine, side="right") - 1
        assert ((starts[own] <= times) & (times < stops[own])).all()
        around_starts, around_stops = cut.around(times, i)
        assert (around_starts == starts[own]).all() and (around_stops == stops[own]).all()


@given(st.lists(SPECS, min_size=1, max_size=3), st.integers(-30, 30))
def test_no_window_begins_or_ends_inside_a_slice(specs: list[WindowSpec], time: int) -> None:
    for paned in (False, True):
        starts, stops = progressions([specs], paned).around(np.array([time]), 0)
        assert not any(is_edge(specs, inside) for inside in range(int(starts[0]) + 1, int(stops[0])))


def test_panes_are_never_longer_than_pairs() -> None:
    for size in range(1, 20):
        for slide in range(1, 20):
            specs = [[WindowSpec.ending(size, slide)]]
            assert set(edges(specs, 0, 400)) <= set(edges(specs, 0, 400, paned=True))


def test_equal_cuts_of_one_owner_are_one() -> None:
    same = [WindowSpec.ending(20, 10), WindowSpec.ending(30, 10), WindowSpec.ending(10, 10)]
    cut = progressions([same, same[:1]])
    assert isinstance(cut, Progressions)
    assert (cut.bases.tolist(), cut.steps.tolist(), cut.owners.tolist()) == ([0, 0], [10, 10], [0, 1])
