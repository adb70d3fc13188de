"""Bursts: which rows of a batch are set aside, what they hold open, and when they are taken in again.

A batch that brings more rows than its budget keeps an even layer of them: its time is cut into equal
buckets, and of those that stand out the trailing rows go aside, to be processed when there is less to do.

    rows      #                          #  aside (trailing rows of the buckets above the cap)
              # #                        #
           . .#.#. . . . . . . .  cap    .
           #.#####.#..#.##.#.##          #  kept
           time ->

Where queries prefer some rows, the trailing rows of a bucket are those that are worth least to them.
The times of rows that are aside are *held*: nothing closes them, while later windows close on time.
Thesis: section 6.2 (a), deprioritized burst processing under range punctuations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from transom.elements import Clock, ClockKind
from transom.windows.closed import Closed
from transom.windows.intervals import IntervalSet, union

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

BUCKETS = 64
CHUNKS_OF_BUDGET = 8  # a batch that is full can take in some of them, not all or nothing
MOST_CHUNKS = 256  # of a batch, roughly
MOST_HELD = 12  # stretches of time: what is closed then comes in as many pieces, for every query
MOST_CLOSED = 64  # ranges that a row is compared with before it may go aside
PACES = 8  # batches by which the pace is judged
LEAST_ROWS = 1024  # a batch of fewer rows takes as long as it takes to start a job: no burst


@dataclass(frozen=True)
class Overload:
    """What becomes of rows beyond a batch's budget, which is a number of rows or of microseconds.

    `shed` ones are dropped; others are set aside, and one of them is taken in for every `share` new rows.
    """

    budget: int
    in_time: bool = False
    shed: bool = False
    share: int = 3


@dataclass(frozen=True)
class Chunk:
    """Rows that are aside together, or were shed: how many, since when, from where to where on each clock."""

    name: str
    rows: int
    since: int  # the engine's clock
    ranges: Mapping[Clock, tuple[int, int]] = field(default_factory=dict)  # both ends included


@dataclass(frozen=True)
class Parted:
    """What a batch did beside processing its rows: chunks set aside, chunks taken in again, chunks shed."""

    aside: tuple[Chunk, ...] = ()
    released: tuple[Chunk, ...] = ()
    shed: tuple[Chunk, ...] = ()


NOTHING = Parted()


def rows_of(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def ranges_of(chunks: Iterable[Chunk], clock: Clock) -> IntervalSet:
    """The times of a clock between which rows of some chunks lie."""
    found = (chunk.ranges[clock] for chunk in chunks if clock in chunk.ranges)
    return IntervalSet.of(*((first, last + 1) for first, last in found))


def held_by(chunks: Iterable[Chunk], clock: Clock) -> IntervalSet:
    """The times that are held for some chunks, in few pieces: between close ones nothing closes either."""
    return ranges_of(chunks, clock).coarsened(MOST_HELD)


def top_of(chunks: Iterable[Chunk], clock: Clock) -> int | None:
    """The highest value of a clock among the rows of some chunks."""
    return max((chunk.ranges[clock][1] for chunk in chunks if clock in chunk.ranges), default=None)


# --- which rows ------------------------------------------------------------------------------


def layer(counts: Sequence[int], budget: int) -> list[int]:
    """How many rows each bucket keeps so that all of them together fit a budget: as evenly as can be.

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
class Choice:
    """Equal buckets of a batch's time from `start` on, how many rows each has and how many it keeps.

    Of a bucket that keeps fewer than it has, the trailing rows go aside, in chunks of `size`.
    """

    start: int
    width: int
    counts: tuple[int, ...]
    keeps: tuple[int, ...]
    size: int

    @property
    def affected(self) -> list[int]:
        return [at for at, count in enumerate(self.counts) if count > self.keeps[at]]

    @property
    def rows(self) -> int:
        """How many go aside."""
        return sum(self.counts) - sum(self.keeps)

    def first_chunks(self) -> list[int]:
        """By bucket, the number of its first chunk: none is of two buckets, so that few times are held."""
        chunks = [
            -(-(count - kept) // self.size) for count, kept in zip(self.counts, self.keeps, strict=True)
        ]
        return [sum(chunks[:at]) for at in range(len(chunks))]


def grid(low: int, high: int) -> tuple[int, int]:
    """The start and the width of the buckets between two times, both included.

    >>> grid(10, 10), grid(0, 127), grid(0, 128)
    ((10, 1), (0, 2), (0, 3))
    """
    return low, max(1, -(-(high - low + 1) // BUCKETS))


def choose(start: int, width: int, counts: Sequence[int], budget: int, left: int) -> Choice:
    """What each bucket keeps when so many rows are `left` of a batch's budget."""
    keeps = layer(counts, left)
    aside = sum(counts) - sum(keeps)
    size = max(1, budget // CHUNKS_OF_BUDGET, aside // MOST_CHUNKS)
    return Choice(start, width, tuple(counts), tuple(keeps), size)


def closed_times(closed: Mapping[Clock, Closed]) -> dict[Clock, IntervalSet]:
    """By clock, the times at which no row may be set aside, because something there is closed already.

    A window that lies across the border could otherwise close without the row. Windows of rows hold
    whatever is processed next, so that nothing needs to be held for them.
    """
    found = {
        clock: union([own.general, *(ranges for _, ranges in own.patterned)]).coarsened(MOST_CLOSED)
        for clock, own in closed.items()
        if clock.kind is not ClockKind.ROWS
    }
    return {clock: ranges for clock, ranges in found.items() if ranges}


def parted(
    columns: Mapping[Clock, tuple[Numbers, Mask]],
    time: Clock,
    closed: Mapping[Clock, Closed],
    limit: int | None,
    budget: int,
    taken: int = 0,
    ranks: Floats | None = None,
) -> list[tuple[Numbers, dict[Clock, tuple[int, int]]]]:
    """The rows of a batch that go aside, chunk by chunk in order of time, with their ranges on each clock.

    `columns` are the values of each clock and whether a row has one, `time` is the stream's own; `taken`
    rows from aside are in the batch already. Rows of one time go in the order in which they are given.
    With `ranks`, a bucket keeps its rows of the lowest ranks, and of one rank the earliest.
    """
    times, accepted = columns[time]
    if limit is not None:
        accepted = accepted & (times <= limit)
    may = accepted.copy()
    for clock, ranges in closed_times(closed).items():
        if clock in columns:
            numbers, valid = columns[clock]
            may &= ~(valid & ranges.covers(numbers, numbers))
    at = np.flatnonzero(may)
    if int(accepted.sum()) + taken <= budget or not len(at):
        return []
    start, width = grid(int(times[at].min()), int(times[at].max()))
    # Without a sign: the distance between two times may be more than fits.
    since = times[at].view(np.uint64) - np.uint64(start % (1 << 64))
    counts = np.bincount((since // np.uint64(width)).astype(np.int64), minlength=BUCKETS).tolist()
    choice = choose(start, width, counts, budget, budget - taken - (int(accepted.sum()) - len(at)))
    found, firsts = [], np.cumsum([0, *counts])
    ordered = at[np.argsort(times[at], kind="stable")]
    for bucket in choice.affected:
        own, keep = ordered[firsts[bucket] : firsts[bucket + 1]], choice.keeps[bucket]
        order = np.arange(len(own)) if ranks is None else np.argsort(ranks[own], kind="stable")
        trailing = own[np.sort(order[keep:])]
        for first in range(0, len(trailing), choice.size):
            rows = trailing[first : first + choice.size]
            found.append((rows, _ranges(rows, columns)))
    return found


def _ranges(rows: Numbers, columns: Mapping[Clock, tuple[Numbers, Mask]]) -> dict[Clock, tuple[int, int]]:
    found = {}
    for clock, (numbers, valid) in columns.items():
        own = numbers[rows][valid[rows]]
        if clock.kind is not ClockKind.ROWS and len(own):
            found[clock] = int(own.min()), int(own.max())
    return found


# --- what is held ----------------------------------------------------------------------------


def withheld(before: Closed, promised: Closed, held: IntervalSet) -> Closed:
    """What is closed when some time is held: all that was said to be but that, and what was closed before."""
    if not held:
        return promised
    own = dict(promised.patterned)
    known = dict(before.patterned)
    general = before.general | (promised.general - held)
    patterned = {
        pattern: known.get(pattern, IntervalSet()) | (own.get(pattern, IntervalSet()) - held)
        for pattern in (*known, *(pattern for pattern in own if pattern not in known))
    }
    return Closed(
        general, tuple((pattern, ranges) for pattern, ranges in patterned.items() if ranges - general)
    )


# --- when they are taken in again ------------------------------------------------------------


def due(aside: Sequence[Chunk], credit: int, share: int) -> tuple[Chunk, ...]:
    """The oldest chunks that a batch may take in when so many new rows came since the last were."""
    found = 0
    for chunk in aside:
        credit -= share * chunk.rows
        if credit < 0:
            break
        found += 1
    return tuple(aside[:found])


def in_a_lull(aside: Sequence[Chunk], budget: int | None) -> tuple[Chunk, ...]:
    """The oldest chunks that fit a budget; at least one."""
    found = due(aside, budget, 1) if budget is not None else ()
    return found or tuple(aside[:1])


def credit_after(credit: int, waiting: bool, new: int, taken: int, share: int) -> int:
    """What new rows have earned for the rows that are aside; nothing while none are `waiting`.

    Rows that were taken in a lull, without new ones, cost nothing.
    """
    return max(0, credit + new - share * taken) if waiting and new else credit if waiting else 0


def rows_within(micros: int, batches: Iterable[tuple[int, float]]) -> int | None:
    """How many rows fit a time at the best pace of some batches, given by their rows and seconds.

    The start of a batch's jobs weighs on small batches: their pace is too low, and the next budget with it,
    which then shows a better one. None while nothing is known.
    """
    paces = [rows / seconds for rows, seconds in batches if rows and seconds > 0]
    return max(LEAST_ROWS, int(max(paces) * micros / 1e6)) if paces else None
