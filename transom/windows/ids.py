"""Window arithmetic, in one place: window ids, window extents and paired slices.

    RANGE 60, SLIDE 20                 0    20    40    60    80    100   120
                            wid 2      [------------------)
                            wid 3            [------------------)
                            wid 4                  [------------------)

A window id is the paper's: with ends at `phase + k * slide`, window `w` ends at
`phase + (w + 1) * slide`. Divisions round down, so times before 1970 need no special case.
Paper: window ids and panes; paired windows are of On-the-Fly Sharing, section 3.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transom.elements import WindowSpec
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

Times = NDArray[np.int64]


def wid_from(spec: WindowSpec, times: Times) -> Times:
    """The first window that can hold each time: the one that ends next after it."""
    return (times - spec.phase) // spec.slide


def wid_to(spec: WindowSpec, times: Times) -> Times:
    """The last window that holds each time; before `wid_from` when the time is in no window."""
    return (times - spec.phase + spec.range) // spec.slide - 1


def in_some_window(spec: WindowSpec, times: Times) -> NDArray[np.bool_]:
    """Which times are in a window at all: with a slide longer than the range, not every one is."""
    if spec.slide <= spec.range:
        return np.ones(len(times), bool)
    return wid_from(spec, times) <= wid_to(spec, times)


def window_end(spec: WindowSpec, wids: Times) -> Times:
    """Where windows end."""
    return spec.phase + (wids + 1) * spec.slide


def slice_start(spec: WindowSpec, times: Times) -> Times:
    """The start of the paired slice that holds each time.

    A slide is cut where windows end and, if the slide does not divide the range, where windows
    start: two slices a slide at the most. A slice lies in windows `wid_from` to `wid_to` of its start.
    """
    since_end = (times - spec.phase) % spec.slide
    after_end = times - since_end
    overhang = spec.range % spec.slide
    if overhang == 0:
        return after_end
    cut = spec.slide - overhang
    return np.where(since_end < cut, after_end, after_end + cut)


def slice_number(spec: WindowSpec, times: Times) -> Times:
    """The paired slice that holds each time, as a number: small and dense where `slice_start` is neither."""
    slides = (times - spec.phase) // spec.slide
    overhang = spec.range % spec.slide
    if overhang == 0:
        return slides
    return 2 * slides + (times - spec.phase - slides * spec.slide >= spec.slide - overhang)


def closed_wids(spec: WindowSpec, closed: IntervalSet) -> IntervalSet:
    """The windows whose whole extent lies inside closed time.

    >>> closed_wids(WindowSpec.ending(60, 20), IntervalSet.of((0, 130))).pairs
    ((2, 6),)
    """
    pairs = []
    for start, stop in closed:
        first = LOWEST if start <= LOWEST else -((-(start + spec.range - spec.phase)) // spec.slide) - 1
        after = HIGHEST if stop >= HIGHEST else (stop - spec.phase) // spec.slide
        pairs.append((first, after))
    return IntervalSet.of(*pairs)
