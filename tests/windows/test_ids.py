"""Window arithmetic: the papers' numbers, drawn, and everything else against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.elements import WindowSpec
from transom.windows.ids import (
    Times,
    WindowSpecs,
    closed_wids,
    first_starting,
    has_gaps,
    in_some_window,
    last_ended,
    open_start,
    paired_slices,
    result_time,
    result_times,
    slice_number,
    slice_start,
    slides_to_end,
    start_of,
    times_up_to_next_result,
    trailing_start,
    wid_by_mark,
    wid_from,
    wid_to,
    wids_meeting,
    window_end,
    window_start,
    windows_per_row,
)
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

MINUTE = 60_000_000


def at(*times: int) -> Times:
    return np.array(times, np.int64)


# --- the papers' numbers ---------------------------------------------------------------------
#
#   RANGE 60 SLIDE 20      160   180   200   220   240   260   280
#                 wid 10         [-----------------)
#                 wid 11               [-----------------)
#                 wid 12                     [-----------------)
#                 wid 13                           [-----------------)
#                                         ^     ^
#                                        211   230

SIXTY_BY_TWENTY = WindowSpec.ending(range=60, slide=20)


@pytest.mark.parametrize(
    ("time", "first", "last"),
    [
        pytest.param(211, 10, 12, id="211 is in the windows that end at 220, 240 and 260"),
        pytest.param(230, 11, 13, id="230 is in the windows that end at 240, 260 and 280"),
        pytest.param(219, 10, 12, id="the last microsecond before an end is still inside"),
        pytest.param(220, 11, 13, id="an end is outside of the window that it ends"),
        pytest.param(0, 0, 2, id="at zero the first window is number 0"),
        pytest.param(-1, -1, 1, id="before 1970 ids go on downward"),
        pytest.param(-20, -1, 1, id="a start before 1970 is inside its window"),
    ],
)
def test_a_tuple_is_in_the_windows_from_wid_from_to_wid_to(time: int, first: int, last: int) -> None:
    assert wid_from(SIXTY_BY_TWENTY, at(time)).tolist() == [first]
    assert wid_to(SIXTY_BY_TWENTY, at(time)).tolist() == [last]


@pytest.mark.parametrize(
    ("until", "last"),
    [
        pytest.param(240, 11, id="the punctuation 240 closes window 11, which ends there"),
        pytest.param(239, 10, id="239 does not close it yet"),
        pytest.param(259, 11, id="259 closes no more than 240"),
        pytest.param(-1, -2, id="before 1970 too"),
    ],
)
def test_a_punctuation_closes_all_windows_up_to_one(until: int, last: int) -> None:
    closed = closed_wids(SIXTY_BY_TWENTY, IntervalSet.of((LOWEST, until)))
    assert closed.pairs == ((LOWEST, last + 1),)
    assert window_end(SIXTY_BY_TWENTY, at(last)) <= until < window_end(SIXTY_BY_TWENTY, at(last + 1))


# --- RANGE 4 minutes SLIDE 1 minute, from 12:00 ------------------------------------------------
#
#     minute   3     4     5     6     7     8     9     10    11
#        6     [-----------------------)
#        7           [-----------------------)
#        8                 [-----------------------)
#        9                       [-----------------------)
#       10                             [-----------------------)
#                                 ^ 6:04

FOUR_BY_ONE = WindowSpec.ending(range=4 * MINUTE, slide=MINUTE)


def test_windows_6_to_10_of_the_four_minute_query_have_the_papers_extents() -> None:
    ends = window_end(FOUR_BY_ONE, np.arange(6, 11))
    assert (ends // MINUTE).tolist() == [7, 8, 9, 10, 11]
    assert ((ends - FOUR_BY_ONE.range) // MINUTE).tolist() == [3, 4, 5, 6, 7]


def test_the_tuple_of_6_minutes_4_seconds_is_in_windows_6_to_9() -> None:
    time = at(6 * MINUTE + 4_000_000)
    assert (wid_from(FOUR_BY_ONE, time)[0], wid_to(FOUR_BY_ONE, time)[0]) == (6, 9)


# --- a range that the slide does not divide: paired slices -------------------------------------
#
#   RANGE 12 SLIDE 5          0    5    10   15   20   25
#   ends on multiples of 5    [-----------)              wid 2 would be [3, 15)
#   slices                    |--|-|--|-|--|-|--|-|--|-|
#                             0  3 5  8 10 13 15 18 20 23


@pytest.mark.parametrize(
    ("time", "start"), [(0, 0), (2, 0), (3, 3), (4, 3), (5, 5), (7, 5), (8, 8), (-1, -2), (-3, -5)]
)
def test_a_slide_of_5_under_a_range_of_12_is_cut_into_3_and_2(time: int, start: int) -> None:
    assert slice_start(WindowSpec.ending(12, 5), at(time)).tolist() == [start]


# --- a slide longer than the range: some times are in no window --------------------------------
#
#   RANGE 3 SLIDE 10          0         10        20
#   ends on multiples of 10          [--)      [--)
#                                    7  10     17 20


@pytest.mark.parametrize(
    ("time", "inside"), [(6, False), (7, True), (9, True), (10, False), (17, True), (-3, True), (-4, False)]
)
def test_a_slide_of_10_over_a_range_of_3_leaves_holes(time: int, inside: bool) -> None:
    spec = WindowSpec.ending(3, 10)
    assert in_some_window(spec, at(time)).tolist() == [inside]


# --- marks: a part of the last slide of each window ------------------------------------------------
#
#   RANGE 60 SLIDE 20       0     20    40    60    80
#                wid 2      [-----------------)
#                wid 3            [-----------------)
#   marks at 0.25                       ^     ^           of windows 2 and 3: 45 and 65


@pytest.mark.parametrize(
    ("time", "wid"),
    [
        pytest.param(44, 2, id="a microsecond before its mark, window 2 is the next one"),
        pytest.param(45, 3, id="at its mark, window 2 is passed"),
        pytest.param(64, 3, id="up to the mark of window 3"),
        pytest.param(-16, -1, id="before 1970 too"),
        pytest.param(-15, 0, id="the mark of window -1 is at -15"),
    ],
)
def test_a_mark_lies_at_a_part_of_the_last_slide(time: int, wid: int) -> None:
    assert wid_by_mark(SIXTY_BY_TWENTY, 0.25, time) == wid


# --- the times of results: the last microsecond of their windows -----------------------------------
#
#   RANGE 60 SLIDE 20       0     20    40    60    80    100
#                wid 2      [-----------------)
#                wid 3            [-----------------)
#   results                                  *     *     *     at 59, 79 and 99
#   result_times((2, 4))                     [-----)           59 to 79, both results
#   times_up_to_next_result((2, 4))     [----------------)     40 to 98: no other result lies there


def test_the_results_of_windows_2_and_3_lie_between_59_and_79() -> None:
    assert result_time(window_end(SIXTY_BY_TWENTY, 2)) == 59
    assert result_times(SIXTY_BY_TWENTY, (2, 4)) == (59, 80)
    assert times_up_to_next_result(SIXTY_BY_TWENTY, (2, 4)) == (40, 99)


@pytest.mark.parametrize("stretch", [result_times, times_up_to_next_result])
def test_a_run_of_windows_without_an_end_has_results_without_an_end(stretch: Any) -> None:
    assert stretch(SIXTY_BY_TWENTY, (LOWEST, HIGHEST)) == (LOWEST, HIGHEST)


# --- on-demand windows end where the newest row is ---------------------------------------------------


def test_a_window_that_is_looked_up_starts_its_length_before_its_end() -> None:
    assert trailing_start(60, end=100) == 40
    assert trailing_start(60, end=LOWEST + 10) == LOWEST


# --- everything against the definition ---------------------------------------------------------

SPECS = st.builds(WindowSpec, st.integers(1, 30), st.integers(1, 20), st.integers(-40, 40))
AREA = range(-40, 41)


def windows_by_definition(spec: WindowSpec) -> dict[int, tuple[int, int]]:
    """The extents of all windows in reach of the area, straight from the definition of the ids."""
    ends = {wid: spec.phase + (wid + 1) * spec.slide for wid in range(-130, 130)}
    return {wid: (end - spec.range, end) for wid, end in ends.items() if -90 < end <= 95}


def holding(extents: dict[int, tuple[int, int]], time: int) -> list[int]:
    return [wid for wid, (start, end) in extents.items() if start <= time < end]


@given(SPECS)
def test_a_time_is_in_exactly_the_windows_between_its_two_ids(spec: WindowSpec) -> None:
    extents, times = windows_by_definition(spec), np.array(AREA)
    firsts, lasts = wid_from(spec, times).tolist(), wid_to(spec, times).tolist()
    inside = in_some_window(spec, times).tolist()
    for time, first, last, some in zip(AREA, firsts, lasts, inside, strict=True):
        assert list(range(first, last + 1)) == holding(extents, time)
        assert some == bool(holding(extents, time))


@given(SPECS)
def test_a_slice_lies_in_exactly_the_windows_of_its_start(spec: WindowSpec) -> None:
    extents = windows_by_definition(spec)
    for time, start in zip(AREA, slice_start(spec, np.array(AREA)).tolist(), strict=True):
        assert start <= time
        assert holding(extents, start) == holding(extents, time)


@given(SPECS)
def test_no_slice_crosses_an_edge_of_a_window_and_a_slide_has_two_at_most(spec: WindowSpec) -> None:
    edges = {edge for extent in windows_by_definition(spec).values() for edge in extent}
    starts = slice_start(spec, np.array(AREA)).tolist()
    assert set(starts) <= edges, "a slice starts at an edge"
    for before, time, start in zip(starts, AREA[1:], starts[1:], strict=False):
        assert (start == time) == (start != before), "a slice is a stretch of time"
        assert time not in edges or start == time, "and ends at the next edge"
    for low in AREA[: -spec.slide]:
        assert len({start for start in starts if low <= start < low + spec.slide}) <= 2


@given(SPECS, st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), max_size=4))
def test_a_window_is_closed_when_all_of_its_extent_is(spec: WindowSpec, pairs: list[tuple[int, int]]) -> None:
    closed = {time for start, stop in pairs for time in range(start, stop)}
    expected = {
        wid
        for wid, (start, end) in windows_by_definition(spec).items()
        if closed.issuperset(range(start, end))
    }
    found = closed_wids(spec, IntervalSet.of(*pairs))
    assert {wid for start, stop in found for wid in range(start, stop)} == expected


@given(SPECS)
def test_all_of_time_closes_every_window(spec: WindowSpec) -> None:
    assert closed_wids(spec, IntervalSet.of((LOWEST, HIGHEST))).pairs == ((LOWEST, HIGHEST),)


@given(st.integers(1, 30), st.integers(1, 20), st.integers(-40, 40))
def test_windows_aligned_by_their_starts_start_on_the_offset(size: int, slide: int, offset: int) -> None:
    spec = WindowSpec.starting(size, slide, offset)
    starts = window_end(spec, np.arange(-5, 5)) - size
    assert set(((starts - offset) % slide).tolist()) == {0}


@given(SPECS)
def test_the_first_window_that_starts_and_the_last_that_has_ended(spec: WindowSpec) -> None:
    extents, times = windows_by_definition(spec), np.array(AREA)
    for time, first, last in zip(
        AREA, first_starting(spec, times).tolist(), last_ended(spec, times).tolist(), strict=True
    ):
        assert first == min(wid for wid, (start, _) in extents.items() if start >= time)
        assert last == max(wid for wid, (_, end) in extents.items() if end <= time)


@given(SPECS)
def test_starts_and_ends_are_those_of_the_definition(spec: WindowSpec) -> None:
    extents = windows_by_definition(spec)
    wids = np.array(list(extents))
    pairs = zip(window_start(spec, wids).tolist(), window_end(spec, wids).tolist(), strict=True)
    assert list(pairs) == list(extents.values())
    assert start_of(spec, window_end(spec, wids)).tolist() == window_start(spec, wids).tolist()
    assert last_ended(spec, window_end(spec, wids)).tolist() == wids.tolist()
    assert open_start(spec, wids).tolist() == window_start(spec, wids).tolist()
    assert open_start(spec, np.array([LOWEST])).tolist() == [LOWEST]


@given(SPECS, st.integers(-40, 40), st.integers(1, 20))
def test_the_windows_that_meet_a_stretch_run_from_its_first_time_to_its_last(
    spec: WindowSpec, start: int, length: int
) -> None:
    stop = min(start + length, 41)
    first, after = wids_meeting(spec, start, stop)
    extents = windows_by_definition(spec)
    meeting = [wid for wid, (low, high) in extents.items() if low < stop and start < high and start < stop]
    assert set(meeting) <= set(range(first, after))
    assert meeting == list(range(first, after)) or has_gaps(spec) or start >= stop
    assert wids_meeting(spec, LOWEST, HIGHEST) == (LOWEST, HIGHEST)


@given(SPECS, st.integers(-40, 40))
def test_slices_are_numbered_in_order_and_a_window_has_as_many_as_promised(
    spec: WindowSpec, wid: int
) -> None:
    times = np.arange(window_start(spec, wid), window_end(spec, wid))
    numbers = slice_number(spec, times)
    starts = slice_start(spec, times)
    assert ((np.diff(numbers) > 0) == (np.diff(starts) > 0)).all()
    assert len(np.unique(numbers)) == paired_slices(spec)


@given(st.lists(st.tuples(SPECS, st.integers(-100, 100)), min_size=1, max_size=5))
def test_many_windows_at_once_are_each_computed_as_one(cases: list[tuple[WindowSpec, int]]) -> None:
    specs = WindowSpecs.of([spec for spec, _ in cases])
    numbers = np.array([number for _, number in cases])
    assert len(specs) == len(cases)
    for formula in (wid_from, wid_to, last_ended, first_starting, window_end, window_start, start_of):
        assert formula(specs, numbers).tolist() == [formula(spec, number) for spec, number in cases], formula
    for formula in (has_gaps, windows_per_row, paired_slices):
        assert formula(specs).tolist() == [formula(spec) for spec, _ in cases], formula
    inside = [bool(in_some_window(spec, at(number))[0]) for spec, number in cases]
    assert in_some_window(specs, numbers).tolist() == inside
    left = [(number - 7) / spec.slide for spec, number in cases]
    assert slides_to_end(specs, numbers, now=7).tolist() == left
    assert specs[[0]].range.tolist() == [cases[0][0].range]
