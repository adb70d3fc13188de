"""Bursts: which rows of a batch are sidelined when it brings more rows than its budget.

The batch keeps an even layer of its rows. Its time is cut into equal buckets, and the trailing rows of the
buckets above a cap are sidelined, to be resumed when there is less to do.

    rows      #                          #  sidelined (trailing rows of the buckets above the cap)
              # #                        #
           . .#.#. . . . . . . .  cap    .
           #.#####.#..#.##.#.##          #  kept
           time ->

If queries prefer some rows, the trailing rows of a bucket are those of the least worth to them.
Thesis: section 6.2 (a), deprioritized burst processing under range punctuations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.elements import Clock, ClockKind
from transom.windows.closed_time import Closed
from transom.windows.intervals import IntervalSet, union

BURST_BUCKETS = 64
CHUNKS_PER_BUDGET = 8  # so that a nearly full batch can resume some chunks, not all or nothing
MAX_CHUNKS = 256  # of a batch, roughly
MAX_CLOSED_RANGES = 64  # that a row is compared with before it may be sidelined


def layer(counts: Sequence[int], budget: int) -> list[int]:
    """How many rows each bucket keeps so that all of them fit a budget, as evenly as possible.

    >>> layer([2, 90, 0, 5], 12)
    [2, 5, 0, 5]
    >>> layer([3, 3, 3], 5)
    [2, 2, 1]
    """
    left = max(budget, 0)
    order = sorted(range(len(counts)), key=lambda at: counts[at])
    for done, at in enumerate(order):
        cap, rest = divmod(left, len(order) - done)
        if counts[at] > cap:
            above = sorted(order[done:])
            caps = {bucket: cap + (i < rest) for i, bucket in enumerate(above)}
            return [caps.get(bucket, count) for bucket, count in enumerate(counts)]
        left -= counts[at]
    return list(counts)


@dataclass(frozen=True)
class BurstPlan:
    """Equal buckets of a batch's time from `start` on, with the rows that each has and keeps.

    The trailing rows of a bucket that keeps fewer than it has are sidelined, in chunks of `size`.
    """

    start: int
    width: int
    counts: tuple[int, ...]
    keeps: tuple[int, ...]
    size: int

    @property
    def affected(self) -> list[int]:
        """The buckets with sidelined rows."""
        return [at for at, count in enumerate(self.counts) if count > self.keeps[at]]

    @property
    def rows(self) -> int:
        """The number of sidelined rows."""
        return sum(self.counts) - sum(self.keeps)

    def first_chunks(self) -> list[int]:
        """By bucket, the number of its first chunk; no chunk spans two buckets, so that few times are held."""
        chunks = [
            -(-(count - kept) // self.size) for count, kept in zip(self.counts, self.keeps, strict=True)
        ]
        return [sum(chunks[:at]) for at in range(len(chunks))]


def bucket_grid(low: int, high: int) -> tuple[int, int]:
    """The start and the width of the buckets between two times, both included.

    >>> bucket_grid(10, 10), bucket_grid(0, 127), bucket_grid(0, 128)
    ((10, 1), (0, 2), (0, 3))
    """
    return low, max(1, -(-(high - low + 1) // BURST_BUCKETS))


def plan_burst(start: int, width: int, counts: Sequence[int], budget: int, left: int) -> BurstPlan:
    """What each bucket keeps if `left` rows of a batch's budget are left for them."""
    keeps = layer(counts, left)
    sidelined = sum(counts) - sum(keeps)
    size = max(1, budget // CHUNKS_PER_BUDGET, sidelined // MAX_CHUNKS)
    return BurstPlan(start, width, tuple(counts), tuple(keeps), size)


def closed_times(closed: Mapping[Clock, Closed]) -> dict[Clock, IntervalSet]:
    """By clock, the times at which rows may not be sidelined because something there is closed already.

    A window across the border of a held range could otherwise close without the row. Windows over rows
    contain whatever rows are processed next, so nothing is held for them.
    """
    ranges_of_clock = {
        clock: union([own.general, *(ranges for _, ranges in own.patterned)]).coarsened(MAX_CLOSED_RANGES)
        for clock, own in closed.items()
        if clock.kind is not ClockKind.ROWS
    }
    return {clock: ranges for clock, ranges in ranges_of_clock.items() if ranges}


def split_burst(
    columns: Mapping[Clock, tuple[Ints, Mask]],
    time: Clock,
    closed: Mapping[Clock, Closed],
    limit: int | None,
    budget: int,
    resumed: int = 0,
    ranks: Floats | None = None,
) -> list[tuple[Ints, dict[Clock, tuple[int, int]]]]:
    """The rows of a batch to sideline, chunk by chunk in order of time, with their ranges on each clock.

    `columns` are the values of each clock and whether a row has one; `time` is the stream's own clock. The
    batch also resumes `resumed` rows. Rows of one time are sidelined in the given order. With `ranks`, a
    bucket keeps the rows of the lowest ranks, and of one rank the earliest.
    """
    times, accepted = columns[time]
    if limit is not None:
        accepted = accepted & (times <= limit)
    movable = accepted.copy()
    for clock, ranges in closed_times(closed).items():
        if clock in columns:
            numbers, valid = columns[clock]
            movable &= ~(valid & ranges.covers(numbers, numbers))
    at = np.flatnonzero(movable)
    if int(accepted.sum()) + resumed <= budget or not len(at):
        return []
    start, width = bucket_grid(int(times[at].min()), int(times[at].max()))
    # Unsigned, since the distance between two times may exceed a signed integer.
    since = times[at].view(np.uint64) - np.uint64(start % (1 << 64))
    counts = np.bincount((since // np.uint64(width)).astype(np.int64), minlength=BURST_BUCKETS).tolist()
    plan = plan_burst(start, width, counts, budget, budget - resumed - (int(accepted.sum()) - len(at)))
    chunks, firsts = [], np.cumsum([0, *counts])
    ordered = at[np.argsort(times[at], kind="stable")]
    for bucket in plan.affected:
        rows, keep = ordered[firsts[bucket] : firsts[bucket + 1]], plan.keeps[bucket]
        order = np.arange(len(rows)) if ranks is None else np.argsort(ranks[rows], kind="stable")
        trailing = rows[np.sort(order[keep:])]
        for first in range(0, len(trailing), plan.size):
            chunk = trailing[first : first + plan.size]
            chunks.append((chunk, _ranges(chunk, columns)))
    return chunks


def _ranges(rows: Ints, columns: Mapping[Clock, tuple[Ints, Mask]]) -> dict[Clock, tuple[int, int]]:
    ranges = {}
    for clock, (numbers, valid) in columns.items():
        values = numbers[rows][valid[rows]]
        if clock.kind is not ClockKind.ROWS and len(values):
            ranges[clock] = int(values.min()), int(values.max())
    return ranges
