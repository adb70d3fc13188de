"""Chunks of sidelined rows, and the event times that they hold open.

The times of sidelined rows are *held*: they do not close, while later windows close on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from transom.elements import Clock
from transom.windows.closed_time import Closed
from transom.windows.intervals import IntervalSet

MAX_HELD_RANGES = 12  # the closed times are in as many more pieces, for every query


@dataclass(frozen=True)
class SidelinedChunk:
    """Rows that were sidelined, or shed, together: their number, since when, and their range on each clock."""

    name: str
    rows: int
    since: int  # the engine's clock
    ranges: Mapping[Clock, tuple[int, int]] = field(default_factory=dict)  # both ends included


@dataclass(frozen=True)
class BurstOutcome:
    """What a batch did with chunks: those it sidelined, those it resumed, and those it shed."""

    sidelined: tuple[SidelinedChunk, ...] = ()
    resumed: tuple[SidelinedChunk, ...] = ()
    shed: tuple[SidelinedChunk, ...] = ()


NO_BURST = BurstOutcome()


def chunk_rows(chunks: Iterable[SidelinedChunk]) -> int:
    """The number of rows in some chunks."""
    return sum(chunk.rows for chunk in chunks)


def chunk_ranges(chunks: Iterable[SidelinedChunk], clock: Clock) -> IntervalSet:
    """The ranges of some chunks on a clock."""
    ranges = (chunk.ranges[clock] for chunk in chunks if clock in chunk.ranges)
    return IntervalSet.of(*((first, last + 1) for first, last in ranges))


def highest_time(chunks: Iterable[SidelinedChunk], clock: Clock) -> int | None:
    """The highest value of a clock in some chunks; None if they have none."""
    return max((chunk.ranges[clock][1] for chunk in chunks if clock in chunk.ranges), default=None)


def held_times(chunks: Iterable[SidelinedChunk], clock: Clock) -> IntervalSet:
    """The times that some chunks hold open, in few ranges: the gap between close ranges is held as well."""
    return chunk_ranges(chunks, clock).coarsened(MAX_HELD_RANGES)


def closed_except_held(before: Closed, closed: Closed, held: IntervalSet) -> Closed:
    """The times that are closed while some are held: `closed` without `held`, and all closed `before`."""
    if not held:
        return closed
    new, old = dict(closed.patterned), dict(before.patterned)
    general = before.general | (closed.general - held)
    patterned = {
        pattern: old.get(pattern, IntervalSet()) | (new.get(pattern, IntervalSet()) - held)
        for pattern in (*old, *(pattern for pattern in new if pattern not in old))
    }
    return Closed(
        general, tuple((pattern, ranges) for pattern, ranges in patterned.items() if ranges - general)
    )
