"""The thesis's streams as a query sees them: early values at marks, and finals, made by plain rescans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.elements import Emit
from transom.estimates import EarlyValues, Estimator, FinalValues, ItemKind

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
class EmittedResults:
    """The early results of one run with their finals, by result and item."""

    early: Floats
    projected: Floats
    low: Floats
    high: Floats
    final: Floats
    left: Floats
    estimator: Estimator

    def where(self, kept: NDArray[np.bool_]) -> EmittedResults:
        """Some of the results."""
        columns = self.early, self.projected, self.low, self.high, self.final, self.left
        return EmittedResults(*(column[kept] for column in columns), self.estimator)

    def covered(self) -> tuple[Floats, Floats]:
        """By item, how many finals had bounds, and how many were within."""
        bounded = ~np.isnan(self.low) & ~np.isnan(self.final)
        inside = bounded & (self.low <= self.final) & (self.final <= self.high)
        return bounded.sum(axis=0).astype(np.float64), inside.sum(axis=0).astype(np.float64)


def run(
    stream: Stream, size: int, slide: int, left: float | None = 0.5, emit: Emit | None = None
) -> EmittedResults:
    """A query over a stream without delays, emitted when `left` of the slide is left, or at its own point."""
    estimator = Estimator.of(emit or Emit(at=(0.5,)), KINDS, size / slide)
    emitted: list[tuple[Floats, ...]] = []
    for number, close in enumerate(range(size, int(stream.time[-1]), slide)):
        moment = round(1 - estimator.point if left is None else left, 6)
        moments = np.unique(np.r_[LEFT, moment])
        rows = np.stack([aggregated(stream, close - size, close - m * slide) for m in moments])
        final = aggregated(stream, close - size, close)
        early_values = seen(np.full(len(rows), number), moments, rows, moments == moment, close)
        estimates = estimator.estimate(early_values)
        estimator = estimator.with_observation(early_values, estimates).with_finals(
            closing(number, final, close)
        )
        at = int(np.flatnonzero(early_values.emitted)[0])
        estimated = estimates.projected[at], estimates.low[at], estimates.high[at]
        emitted.append((rows[at], *estimated, final, np.array(moment)))
    columns = [np.stack([row[i] for row in emitted]) for i in range(6)]
    return EmittedResults(*columns, estimator)


def seen(
    window: NDArray[np.int64], left: Floats, rows: Floats, emitted: NDArray[np.bool_], now: float
) -> EarlyValues:
    """Early values of windows of a single group."""
    counts = rows[:, -1].astype(np.int64)
    return EarlyValues(
        np.zeros(len(rows), np.int64), window, left, counts, table(rows), int(now * 1e6), emitted
    )


def closing(window: int, final: Floats, now: float) -> FinalValues:
    """The final of a single group."""
    count = final[-1:].astype(np.int64)
    return FinalValues(np.zeros(1, np.int64), np.array([window]), count, table(final[None]), int(now * 1e6))


def run_every(stream: Stream, size: int, slide: int, batches: Floats) -> EmittedResults:
    """All open windows are emitted at the end of each batch; windows close at batch ends, too."""
    estimator = Estimator.of(Emit(every=1), KINDS, size / slide)
    finals: dict[int, Floats] = {}
    emitted: list[tuple[int, tuple[Floats, ...]]] = []
    first = size // slide
    for now in np.cumsum(batches).tolist():
        while first * slide <= now:
            finals[first] = aggregated(stream, first * slide - size, first * slide)
            estimator = estimator.with_finals(closing(first, finals[first], now))
            first += 1
        windows = np.arange(first, int(now + size) // slide + 1)
        windows = windows[windows * slide - size < now]
        left = (windows * slide - now) / slide
        rows = np.stack([aggregated(stream, w * slide - size, now) for w in windows.tolist()])
        early_values = seen(windows, left, rows, np.ones(len(windows), np.bool_), now)
        estimates = estimator.estimate(early_values)
        estimator = estimator.with_observation(early_values, estimates)
        estimated = zip(rows, estimates.projected, estimates.low, estimates.high, left, strict=True)
        emitted += zip(windows.tolist(), estimated, strict=True)
    known = [
        (*estimated[:4], finals[window], estimated[4]) for window, estimated in emitted if window in finals
    ]
    columns = [np.stack([row[i] for row in known]) for i in range(6)]
    return EmittedResults(*columns, estimator)
