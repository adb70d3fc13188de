"""The thesis's streams as a query sees them: early values at marks, and finals, made by plain rescans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.elements import Emit
from transom.estimates import Finals, ItemKind, Learned, Sight

Floats = NDArray[np.float64]

VALUES = ("uniform", "100", "400", "1000")  # uniform in 0..999, or normal around 500 with such a deviation
# AVG, MAX and SUM of each kind of values, and COUNT: one query with them all.
KINDS = (
    *(ItemKind(f"avg {values}", True) for values in VALUES),
    *(ItemKind(f"max {values}", True) for values in VALUES),
    *(ItemKind(f"sum {values}", True, grows=True) for values in VALUES),
    ItemKind("count", True, grows=True),
)
LEFT = np.arange(20) / 20  # what is left at the marks of 5 %, 10 % ... 100 % of the slide, the last first


@dataclass(frozen=True)
class Stream:
    """Tuples in the order of their time, in seconds; a column of values for each kind."""

    time: Floats
    value: Floats


def thesis(seed: int, seconds: int = 2000, poisson: bool = False) -> Stream:
    """The thesis's generator (4.4): after a tuple of time t the next has t with 95 %, else t + 1 s; or as
    many tuples a second that come independently of each other."""
    random = np.random.default_rng(seed)
    if poisson:
        time = np.sort(random.uniform(0, seconds, random.poisson(20 * seconds)))
    else:
        time = np.cumsum(random.random(25 * seconds) < 0.05).astype(np.float64)
        time = time[time < seconds]
    uniform = random.integers(0, 1000, len(time)).astype(np.float64)
    normal = random.normal(0, 1, len(time))
    return Stream(time, np.column_stack([uniform, *(500 + float(sd) * normal for sd in VALUES[1:])]))


def aggregated(stream: Stream, begin: float, end: float) -> Floats:
    """The items over the tuples with begin <= time < end; NaN for null."""
    first, last = np.searchsorted(stream.time, [begin, end])
    found = stream.value[first:last]
    if not len(found):
        return np.r_[np.full(len(KINDS) - 1, np.nan), 0.0]
    sums = found.sum(axis=0)
    return np.r_[sums / len(found), found.max(axis=0), sums, len(found)]


def table(rows: Floats) -> pa.Table:
    """Rows of items, NaN as null."""
    columns = {
        kind.name: pa.array(column, mask=np.isnan(column)) for kind, column in zip(KINDS, rows.T, strict=True)
    }
    return pa.table(columns)


@dataclass(frozen=True)
class Told:
    """What was told in one run, by result and item."""

    early: Floats
    projected: Floats
    low: Floats
    high: Floats
    final: Floats
    left: Floats
    learned: Learned

    def where(self, kept: NDArray[np.bool_]) -> Told:
        """Some of the results."""
        columns = self.early, self.projected, self.low, self.high, self.final, self.left
        return Told(*(column[kept] for column in columns), self.learned)

    def covered(self) -> tuple[Floats, Floats]:
        """By item, how many finals had bounds, and how many were within."""
        bounded = ~np.isnan(self.low) & ~np.isnan(self.final)
        inside = bounded & (self.low <= self.final) & (self.final <= self.high)
        return bounded.sum(axis=0).astype(np.float64), inside.sum(axis=0).astype(np.float64)


def run(stream: Stream, size: int, slide: int, left: float | None = 0.5, emit: Emit | None = None) -> Told:
    """A query over a stream without delays, told when so much of the slide is left, or at its own point."""
    learned = Learned.of(emit or Emit(at=(0.5,)), KINDS, size / slide)
    told: list[tuple[Floats, ...]] = []
    for number, close in enumerate(range(size, int(stream.time[-1]), slide)):
        asked = round(1 - learned.point if left is None else left, 6)
        moments = np.unique(np.r_[LEFT, asked])
        rows = np.stack([aggregated(stream, close - size, close - m * slide) for m in moments])
        final = aggregated(stream, close - size, close)
        sight = seen(np.full(len(rows), number), moments, rows, moments == asked, close)
        estimates = learned.estimate(sight)
        learned = learned.seen(sight, estimates).closed(closing(number, final, close))
        at = int(np.flatnonzero(sight.told)[0])
        said = estimates.projected[at], estimates.low[at], estimates.high[at]
        told.append((rows[at], *said, final, np.array(asked)))
    columns = [np.stack([row[i] for row in told]) for i in range(6)]
    return Told(*columns, learned)


def seen(window: NDArray[np.int64], left: Floats, rows: Floats, told: NDArray[np.bool_], now: float) -> Sight:
    """Windows of the one group there is."""
    counts = rows[:, -1].astype(np.int64)
    return Sight(np.zeros(len(rows), np.int64), window, left, counts, table(rows), int(now * 1e6), told)


def closing(window: int, final: Floats, now: float) -> Finals:
    """The final of the one group there is."""
    count = final[-1:].astype(np.int64)
    return Finals(np.zeros(1, np.int64), np.array([window]), count, table(final[None]), int(now * 1e6))


def run_every(stream: Stream, size: int, slide: int, batches: Floats) -> Told:
    """All open windows are told at the end of each batch; windows close at batch ends, too."""
    learned = Learned.of(Emit(every=1), KINDS, size / slide)
    finals: dict[int, Floats] = {}
    told: list[tuple[int, tuple[Floats, ...]]] = []
    first = size // slide
    for now in np.cumsum(batches).tolist():
        while first * slide <= now:
            finals[first] = aggregated(stream, first * slide - size, first * slide)
            learned = learned.closed(closing(first, finals[first], now))
            first += 1
        windows = np.arange(first, int(now + size) // slide + 1)
        windows = windows[windows * slide - size < now]
        left = (windows * slide - now) / slide
        rows = np.stack([aggregated(stream, w * slide - size, now) for w in windows.tolist()])
        sight = seen(windows, left, rows, np.ones(len(windows), np.bool_), now)
        estimates = learned.estimate(sight)
        learned = learned.seen(sight, estimates)
        said = zip(rows, estimates.projected, estimates.low, estimates.high, left, strict=True)
        told += zip(windows.tolist(), said, strict=True)
    known = [(*said[:4], finals[window], said[4]) for window, said in told if window in finals]
    columns = [np.stack([row[i] for row in known]) for i in range(6)]
    return Told(*columns, learned)
