"""The arithmetic of sessions: a session lasts from its first row to one gap after its last.

Rows that are at most the gap apart are in one session. A run of rows is given by the time of its first row (its start)
and the tick after its last (its stop).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transom.windows.ids import Times
from transom.windows.intervals import LOWEST, IntervalSet


def run_heads(lanes: Times, starts: Times, stops: Times, gap: int) -> Times:
    """Where runs begin that are more than the gap behind all runs before them in their lane.

    The runs are in the order of their lanes and starts; they may overlap.

    >>> run_heads(np.zeros(4, np.int64), np.array([0, 3, 9, 20]), np.array([1, 9, 10, 21]), gap=5).tolist()
    [0, 3]
    """
    is_head = np.ones(len(starts), bool)
    if len(starts) > 1:
        # The largest stop so far in each lane: as ranks, so that all lanes are one rising sequence.
        known, ranks = np.unique(stops, return_inverse=True)
        upto = np.maximum.accumulate(lanes * len(known) + ranks)
        reached = known[upto - lanes * len(known)]
        np.not_equal(lanes[1:], lanes[:-1], out=is_head[1:])
        is_head[1:] |= starts[1:] - (reached[:-1] - 1) > gap
    return np.flatnonzero(is_head)


def session_end(stops: Times, gap: int) -> Times:
    """Where sessions end, given the ticks after their last rows."""
    return stops - 1 + gap


def extent_of_interest(starts: Times, ends: Times, gap: int) -> tuple[Times, Times]:
    """The times, half-open, at which a row would belong to a session or join it with another."""
    return starts - gap, ends + 1


def session_closed(
    starts: Times, stops: Times, gap: int, closed: IntervalSet, forced: IntervalSet, reach: int
) -> NDArray[np.bool_]:
    """Which sessions are closed. With the gap as `reach` they are final: no row can extend them.

    Then all times are closed from one gap before the first row to one gap after the last, both included. With a reach
    of 0, the extents of the sessions are closed. The id of a session is the last tick before its end; ids in `forced`
    were closed because the stream ended.

    >>> session_closed(np.array([10]), np.array([13]), 5, IntervalSet.of((LOWEST, 18)), IntervalSet(), 5).tolist()
    [True]
    """
    ends = session_end(stops, gap)
    is_closed: NDArray[np.bool_] = closed.covers(starts - reach, ends if reach else ends - 1)
    return is_closed | forced.meets(ends - 1, ends) if forced else is_closed


def passed_results(closed: IntervalSet) -> IntervalSet:
    """The ids of the sessions that no row can open or extend any more, whatever sessions are open.

    Only what is closed from the beginning of time decides that: an open session may reach far back.
    """
    return IntervalSet.of(*((start, stop - 1) for start, stop in closed if start <= LOWEST))
