"""Window arithmetic, in one place: window ids, window extents and paired slices.

    RANGE 60, SLIDE 20                 0    20    40    60    80    100   120
                            wid 2      [------------------)
                            wid 3            [------------------)
                            wid 4                  [------------------)

Windows are half-open, `[end - range, end)`, in integer microseconds or in plain numbers. A window id is the
paper's: with ends at `phase + k * slide`, window `w` ends at `phase + (w + 1) * slide`. Divisions round down,
so times before 1970 need no special case. Each formula takes one window specification, or `WindowSpecs` with
one for each time, and a number or an array. The oracle has naive definitions of its own, on purpose.

    RANGE UP TO 60, SLIDE 20           0    20    40    60    80    100   120
                            wid 0      [-----)
                            wid 1      [-----------)
                            wid 2      [-----------------)
                            wid 3                        [-----)

Cumulative windows start together and end as other windows do. Calendar windows have no such formulas:
`calendar` finds them. In every kind of window, a later one neither starts nor ends before an earlier one.
Paper: window ids and panes; paired windows are of On-the-Fly Sharing, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transom.elements import WindowSpec
from transom.windows.calendar import Extents, extents
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

Times = NDArray[np.int64]
_T = TypeVar("_T", int, Times)


class Windows(Protocol):
    """Windows: numbers in a `WindowSpec`, arrays in `WindowSpecs`."""

    @property
    def range(self) -> Any: ...

    @property
    def slide(self) -> Any: ...

    @property
    def phase(self) -> Any: ...

    @property
    def is_cumulative(self) -> Any: ...


_NUMBERS = attrgetter("range", "slide", "phase")
_KIND = attrgetter("is_cumulative", "calendar")


@dataclass(frozen=True)
class WindowSpecs:
    """The window specifications of many queries, as arrays.

    Specifications with a calendar are in `calendars`, each once; `calendar_of` is the place of each, -1 for others.
    """

    range: Times
    slide: Times
    phase: Times
    is_cumulative: NDArray[np.bool_] | bool = False  # False: none is
    calendars: tuple[WindowSpec, ...] = ()
    calendar_of: Times | None = None

    @classmethod
    def of(cls, specs: Sequence[WindowSpec]) -> WindowSpecs:
        """The specifications of some windows.

        >>> specs = WindowSpecs.of([WindowSpec(60, 20), WindowSpec(10, 5, 1)])
        >>> window_end(specs, np.array([2, 2])).tolist()
        [60, 16]
        """
        try:
            flat = np.fromiter(chain.from_iterable(map(_NUMBERS, specs)), np.int64, 3 * len(specs))
        except OverflowError:  # a window that is longer than all of time
            each = chain.from_iterable((spec.range, spec.slide, spec.phase) for spec in specs)
            flat = np.array([min(number, HIGHEST) for number in each], np.int64)
        ranges, slides, phases = np.ascontiguousarray(flat.reshape(-1, 3).T)
        if set(map(_KIND, specs)) <= {(False, None)}:
            return cls(ranges, slides, phases)
        cumulative = np.array([spec.is_cumulative for spec in specs], np.bool_)
        calendars = tuple(dict.fromkeys(spec for spec in specs if spec.calendar is not None))
        if not calendars:
            return cls(ranges, slides, phases, cumulative)
        places = {spec: place for place, spec in enumerate(calendars)}
        calendar_of = np.array([places.get(spec, -1) for spec in specs], np.int64)
        return cls(ranges, slides, phases, cumulative, calendars, calendar_of)

    def __len__(self) -> int:
        return len(self.slide)

    def __getitem__(self, places: Times | list[int]) -> WindowSpecs:
        return WindowSpecs(
            self.range[places],
            self.slide[places],
            self.phase[places],
            self.is_cumulative if isinstance(self.is_cumulative, bool) else self.is_cumulative[places],
            self.calendars,
            None if self.calendar_of is None else self.calendar_of[places],
        )

    def spec(self, place: int) -> WindowSpec:
        """One of the specifications."""
        if self.calendar_of is not None and self.calendar_of[place] >= 0:
            return self.calendars[self.calendar_of[place]]
        is_cumulative = bool(np.broadcast_to(self.is_cumulative, self.slide.shape)[place])
        return WindowSpec(
            int(self.range[place]), int(self.slide[place]), int(self.phase[place]), is_cumulative
        )

    def kinds(self, owners: Times) -> Times:
        """A place for each different specification of an owner."""
        cumulative = np.broadcast_to(self.is_cumulative, self.slide.shape)
        calendar = np.full_like(self.slide, -1) if self.calendar_of is None else self.calendar_of
        columns = np.stack([owners, self.range, self.slide, self.phase, cumulative, calendar])
        return np.unique(columns, axis=1, return_index=True)[1]


def _by_calendar(spec: Windows, numbers: Any, plain: Any, of: Callable[[Extents, Times], Times]) -> Any:
    """The value of a formula; for calendar windows, the value from their extents."""
    if isinstance(spec, WindowSpecs):
        if spec.calendar_of is None:
            return plain
        found, numbers = np.array(plain), np.broadcast_to(numbers, spec.slide.shape)
        order = np.argsort(spec.calendar_of, kind="stable")
        bounds = np.searchsorted(spec.calendar_of[order], np.arange(len(spec.calendars) + 1))
        for place in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            chosen = order[bounds[place] : bounds[place + 1]]
            found[chosen] = of(extents(spec.calendars[place]), numbers[chosen])
        return found
    if not isinstance(spec, WindowSpec) or spec.calendar is None:
        return plain
    if isinstance(numbers, np.ndarray):
        return of(extents(spec), numbers)
    return int(of(extents(spec), np.array([numbers], np.int64))[0])


def wid_from(spec: Windows, times: _T) -> _T:
    """The first window that ends after each time: the first that can hold it."""
    found: _T = _by_calendar(spec, times, (times - spec.phase) // spec.slide, Extents.wid_from)
    return found


def wid_to(spec: Windows, times: _T) -> _T:
    """The last window that starts at or before each time: the last that can hold it.

    It is before `wid_from` when the time is in no window.
    """
    last = (times - spec.phase + spec.range) // spec.slide - 1
    if spec.is_cumulative is not False:
        of_period = ((times - spec.phase) // spec.range + 1) * (spec.range // spec.slide) - 1
        last = _where(spec.is_cumulative, of_period, last)
    found: _T = _by_calendar(spec, times, last, Extents.wid_to)
    return found


def _where(chosen: Any, yes: Any, no: Any) -> Any:
    """`yes` where chosen; of one window, as the number that it is."""
    return (yes if chosen else no) if isinstance(chosen, bool) else np.where(chosen, yes, no)


def last_ended(spec: Windows, times: _T) -> _T:
    """The last window that ends at or before each time."""
    return wid_from(spec, times) - 1


def first_starting(spec: Windows, times: _T) -> _T:
    """The first window that starts at or after each time."""
    return wid_to(spec, times - 1) + 1


def window_end(spec: Windows, wids: _T) -> _T:
    """Where windows end."""
    found: _T = _by_calendar(spec, wids, spec.phase + (wids + 1) * spec.slide, Extents.end)
    return found


def window_start(spec: Windows, wids: _T) -> _T:
    """Where windows start."""
    found: _T = _by_calendar(spec, wids, _start_of(spec, spec.phase + (wids + 1) * spec.slide), Extents.start)
    return found


def start_of(spec: Windows, ends: _T) -> _T:
    """Where the windows start that end there."""
    found: _T = _by_calendar(spec, ends, _start_of(spec, ends), _start_by_end)
    return found


def _start_of(spec: Windows, ends: Any) -> Any:
    starts = ends - spec.range
    if spec.is_cumulative is False:
        return starts
    of_period = ends - 1 - (ends - 1 - spec.phase) % spec.range
    return _where(spec.is_cumulative, of_period, starts)


def _start_by_end(own: Extents, ends: Times) -> Times:
    return own.start(own.wid_from(ends - 1))  # of windows that end together, the others are empty


def trailing_start(length: int, end: int) -> int:
    """Where a window of some length starts that is looked up at its end; no earlier than time itself."""
    return max(LOWEST, end - length)


def has_gaps(spec: Windows) -> Any:
    """Whether there may be times between windows that are in none: the slide is longer than the range."""
    return _by_calendar(
        spec, spec.slide, spec.slide > spec.range, lambda own, slides: np.full(len(slides), own.has_gaps)
    )


def in_some_window(spec: Windows, times: Times) -> NDArray[np.bool_]:
    """Which times are in a window at all."""
    if not np.any(has_gaps(spec)):
        return np.ones(len(times), bool)
    return wid_from(spec, times) <= wid_to(spec, times)


def windows_per_row(spec: Windows) -> float:
    """How many windows hold a row, on average.

    >>> windows_per_row(WindowSpecs.of([WindowSpec(60, 20), WindowSpec(12, 5)])).tolist()
    [3.0, 2.4]
    >>> windows_per_row(WindowSpec.cumulative(60, 20))
    2.0
    """
    sliding = spec.range / spec.slide
    return sliding if spec.is_cumulative is False else _where(spec.is_cumulative, (sliding + 1) / 2, sliding)


def slides_to_end(spec: Windows, ends: Times, now: int | Times) -> NDArray[np.float64]:
    """How many slides are still to come before windows end."""
    return (ends - now) / spec.slide


def wid_by_mark(spec: Windows, point: float, time: int) -> int:
    """The first window whose mark is after a time: a mark lies at a part of the window's last slide.

    >>> [wid_by_mark(WindowSpec.ending(60, 20), 0.25, time) for time in (44, 45)]  # window 2 ends at 60
    [2, 3]
    """
    if not isinstance(spec, WindowSpec) or spec.calendar is None:
        return wid_from(spec, time + spec.slide - round(point * spec.slide))
    wid = wid_from(spec, time)  # its last slide has the time
    begin, end = window_end(spec, wid - 1), window_end(spec, wid)
    return wid if begin + round(point * (end - begin)) > time else wid + 1


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

    >>> closed_wids(WindowSpec.ending(60, 20), IntervalSet.of((0, 130))).pairs
    ((2, 6),)
    """
    pairs = []
    for start, stop in closed:
        first = LOWEST if start <= LOWEST else first_starting(spec, start)
        after = HIGHEST if stop >= HIGHEST else wid_from(spec, stop)
        pairs.append((first, after))
    return IntervalSet.of(*pairs)


def closed_below(spec: WindowSpec, until: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each time, the id below which windows are closed when all before the time is.

    >>> closed_below(WindowSpec.ending(60, 20), np.array([130, LOWEST])) == [6, LOWEST]
    array([ True,  True])
    """
    usual = (until > LOWEST) & (until < HIGHEST)
    ids = wid_from(spec, np.where(usual, until, 0))
    return np.where(usual, ids, until)


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
    if after >= HIGHEST // spec.slide:
        return start, HIGHEST
    # An empty window at the end of a shorter calendar period ends with the one before it.
    return start, max(result_time(window_end(spec, after)), window_end(spec, after - 1))


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
    """How many paired slices a window consists of; for cumulative and calendar windows, at most.

    >>> paired_slices(WindowSpecs.of([WindowSpec(60, 20), WindowSpec(12, 5), WindowSpec(3, 5)])).tolist()
    [3, 5, 1]
    """
    whole = spec.range // spec.slide
    return np.where((spec.range % spec.slide == 0) | spec.is_cumulative, whole, 2 * whole + 1)
