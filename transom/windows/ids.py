"""Window arithmetic, in one place: window ids, window extents and paired slices.

    RANGE 60, SLIDE 20                 0    20    40    60    80    100   120
                            wid 2      [------------------)
                            wid 3            [------------------)
                            wid 4                  [------------------)

Windows are half-open, `[end - range, end)`, in integer microseconds or in plain numbers. A window id is the
paper's: with ends at `phase + k * slide`, window `w` ends at `phase + (w + 1) * slide`. Divisions round down,
so times before 1970 need no special case. Each formula takes one window specification, or `WindowSpecs` with
one for each time, and a number or an array. The oracle has naive definitions of its own, on purpose.
Paper: window ids and panes; paired windows are of On-the-Fly Sharing, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

Times = NDArray[np.int64]
_T = TypeVar("_T", int, Times)


class Windows(Protocol):
    """Periodic windows: numbers in a `WindowSpec`, arrays in `WindowSpecs`."""

    @property
    def range(self) -> Any: ...

    @property
    def slide(self) -> Any: ...

    @property
    def phase(self) -> Any: ...


@dataclass(frozen=True)
class WindowSpecs:
    """The window specifications of many queries, as arrays."""

    range: Times
    slide: Times
    phase: Times

    @classmethod
    def of(cls, specs: Sequence[tuple[int, int, int]]) -> WindowSpecs:
        """Range, slide and phase of each.

        >>> window_end(WindowSpecs.of([(60, 20, 0), (10, 5, 1)]), np.array([2, 2])).tolist()
        [60, 16]
        """
        numbers = chain.from_iterable(specs)
        try:
            flat = np.fromiter(numbers, np.int64, 3 * len(specs))
        except OverflowError:  # a window that is longer than all of time
            flat = np.array([min(number, HIGHEST) for spec in specs for number in spec], np.int64)
        return cls(*np.ascontiguousarray(flat.reshape(-1, 3).T))

    def __len__(self) -> int:
        return len(self.slide)

    def __getitem__(self, places: Times | list[int]) -> WindowSpecs:
        return WindowSpecs(self.range[places], self.slide[places], self.phase[places])


def wid_from(spec: Windows, times: _T) -> _T:
    """The first window that ends after each time: the first that can hold it."""
    return (times - spec.phase) // spec.slide


def wid_to(spec: Windows, times: _T) -> _T:
    """The last window that starts at or before each time: the last that can hold it.

    It is before `wid_from` when the time is in no window.
    """
    return (times - spec.phase + spec.range) // spec.slide - 1


def last_ended(spec: Windows, times: _T) -> _T:
    """The last window that ends at or before each time."""
    return wid_from(spec, times) - 1


def first_starting(spec: Windows, times: _T) -> _T:
    """The first window that starts at or after each time."""
    return -(-(times + spec.range - spec.phase) // spec.slide) - 1


def window_end(spec: Windows, wids: _T) -> _T:
    """Where windows end."""
    return spec.phase + (wids + 1) * spec.slide


def window_start(spec: Windows, wids: _T) -> _T:
    """Where windows start."""
    return start_of(spec, window_end(spec, wids))


def start_of(spec: Windows, ends: _T) -> _T:
    """Where the windows start that end there."""
    return ends - spec.range


def trailing_start(length: int, end: int) -> int:
    """Where a window of some length starts that is looked up at its end; no earlier than time itself."""
    return max(LOWEST, end - length)


def has_gaps(spec: Windows) -> Any:
    """Whether there are times between windows that are in none: the slide is longer than the range."""
    return spec.slide > spec.range


def in_some_window(spec: Windows, times: Times) -> NDArray[np.bool_]:
    """Which times are in a window at all."""
    if not np.any(has_gaps(spec)):
        return np.ones(len(times), bool)
    return wid_from(spec, times) <= wid_to(spec, times)


def windows_per_row(spec: Windows) -> float:
    """How many windows hold a row, on average.

    >>> windows_per_row(WindowSpecs.of([(60, 20, 0), (12, 5, 0)])).tolist()
    [3.0, 2.4]
    """
    return spec.range / spec.slide


def slides_to_end(spec: Windows, ends: Times, now: int | Times) -> NDArray[np.float64]:
    """How many slides are still to come before windows end."""
    return (ends - now) / spec.slide


def wid_by_mark(spec: Windows, point: float, time: int) -> int:
    """The first window whose mark is after a time: a mark lies at a part of the window's last slide.

    >>> from transom.elements import WindowSpec
    >>> [wid_by_mark(WindowSpec.ending(60, 20), 0.25, time) for time in (44, 45)]  # window 2 ends at 60
    [2, 3]
    """
    return wid_from(spec, time + spec.slide - round(point * spec.slide))


# --- runs of windows and stretches of time: both half-open, open ends are LOWEST and HIGHEST ------


def open_start(spec: Windows, wids: Times) -> Times:
    """The start of the first windows that are open, where all windows before them are closed."""
    return np.where(wids <= LOWEST, LOWEST, window_start(spec, np.minimum(wids, HIGHEST // spec.slide)))


def wids_meeting(spec: Windows, start: int, stop: int) -> tuple[int, int]:
    """The windows that have a time of a stretch."""
    first = LOWEST if start <= LOWEST else wid_from(spec, start)
    return first, HIGHEST if stop >= HIGHEST else wid_to(spec, stop - 1) + 1


def closed_wids(spec: Windows, closed: IntervalSet) -> IntervalSet:
    """The windows whose whole extent lies inside closed time.

    >>> from transom.elements import WindowSpec
    >>> closed_wids(WindowSpec.ending(60, 20), IntervalSet.of((0, 130))).pairs
    ((2, 6),)
    """
    pairs = []
    for start, stop in closed:
        first = LOWEST if start <= LOWEST else first_starting(spec, start)
        after = HIGHEST if stop >= HIGHEST else wid_from(spec, stop)
        pairs.append((first, after))
    return IntervalSet.of(*pairs)


def result_time(ends: _T) -> _T:
    """The time of a result in the stream of a query's results: the last microsecond of its window."""
    return ends - 1


def result_times(spec: Windows, wids: tuple[int, int]) -> tuple[int, int]:
    """The stretch from the time of the first result of a run of windows to that of the last."""
    first, after = wids
    start = LOWEST if first <= LOWEST else result_time(window_end(spec, first))
    return start, HIGHEST if after >= HIGHEST // spec.slide else result_time(window_end(spec, after - 1)) + 1


def times_up_to_next_result(spec: Windows, wids: tuple[int, int]) -> tuple[int, int]:
    """The stretch from the end of the window before a run to the time of the next result after the run.

    The stretch has the times of the run's results, and of no other.
    """
    first, after = wids
    start = LOWEST if first <= LOWEST else window_end(spec, first - 1)
    return start, HIGHEST if after >= HIGHEST // spec.slide else result_time(window_end(spec, after))


# --- paired slices ---------------------------------------------------------------------------------


def slice_start(spec: Windows, times: Times) -> Times:
    """The start of the paired slice that holds each time.

    A slide is cut where windows end and, if the slide does not divide the range, where windows
    start: two slices a slide at the most. A slice lies in windows `wid_from` to `wid_to` of its start.
    """
    after_end = window_end(spec, last_ended(spec, times))
    since_end = times - after_end
    overhang = spec.range % spec.slide
    if overhang == 0:
        return after_end
    cut = spec.slide - overhang
    return np.where(since_end < cut, after_end, after_end + cut)


def slice_number(spec: Windows, times: Times) -> Times:
    """The paired slice that holds each time, as a number: small and dense where `slice_start` is neither."""
    wids, overhang = wid_from(spec, times), spec.range % spec.slide
    if overhang == 0:
        return wids
    return 2 * wids + (times - window_end(spec, wids - 1) >= spec.slide - overhang)


def paired_slices(spec: Windows) -> Any:
    """How many paired slices a window is made of.

    >>> paired_slices(WindowSpecs.of([(60, 20, 0), (12, 5, 0), (3, 5, 0)])).tolist()
    [3, 5, 1]
    """
    whole = spec.range // spec.slide
    return np.where(spec.range % spec.slide == 0, whole, 2 * whole + 1)
