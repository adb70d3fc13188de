"""Recorded streams as a query sees them: early values at marks, and finals, made by plain rescans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.elements import Emit
from transom.estimates import Estimates, Finals, ItemKind, Learned, Sight

KINDS = (
    ItemKind("avg", True),
    ItemKind("max", True),
    ItemKind("sum", True, grows=True),
    ItemKind("count", True, grows=True),
)
LEFT = np.arange(20) / 20  # what is left at the marks of 5 %, 10 % ... 100 % of the slide, the last first


@dataclass(frozen=True)
class Stream:
    """Tuples in the order of arrival; `time` and `arrival` in seconds."""

    time: NDArray[np.float64]
    value: NDArray[np.float64]
    arrival: NDArray[np.float64]


def values(kind: str, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    if kind == "uniform":
        return random.integers(0, 1000, count).astype(np.float64)
    return random.normal(500, float(kind), count)


def thesis(kind: str, seed: int, seconds: int = 2000, poisson: bool = False) -> Stream:
    """The thesis's generator (4.4): after a tuple of time t the next has t with 95 %, else t + 1 s."""
    random = np.random.default_rng(seed)
    if poisson:
        time = np.sort(random.uniform(0, seconds, random.poisson(20 * seconds)))
    else:
        steps = random.random(25 * seconds) < 0.05
        time = np.cumsum(steps).astype(np.float64)
        time = time[time < seconds]
    return Stream(time, values(kind, len(time), random), time)


def aggregated(stream: Stream, begin: float, end: float, now: float) -> list[float | None]:
    """AVG, MAX, SUM and COUNT of the tuples of a window that have arrived before a moment."""
    lo, hi = np.searchsorted(stream.time, [begin, end])
    found = stream.value[lo:hi][stream.arrival[lo:hi] < now]
    if not len(found):
        return [None, None, None, 0]
    return [float(found.mean()), float(found.max()), float(found.sum()), len(found)]


def table(rows: list[list[float | None]]) -> pa.Table:
    return pa.table(
        {kind.name: pa.array([row[i] for row in rows], pa.float64()) for i, kind in enumerate(KINDS)}
    )


@dataclass(frozen=True)
class Told:
    """What was told of windows in one run, by window and item."""

    early: NDArray[np.float64]
    projected: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    final: NDArray[np.float64]
    left: NDArray[np.float64]
    learned: Learned

    def covered(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By item, how many finals had bounds, and how many were within."""
        bounded = ~np.isnan(self.low) & ~np.isnan(self.final)
        inside = bounded & (self.low <= self.final) & (self.final <= self.high)
        return bounded.sum(axis=0).astype(float), inside.sum(axis=0).astype(float)


def run(stream: Stream, size: int, slide: int, left: float | None = 0.5, emit: Emit | None = None) -> Told:
    """A query over a stream without delays, told when so much of the slide is left, or at its own point."""
    learned = Learned.of(emit or Emit(at=(0.5,)), KINDS, size / slide)
    end = int(stream.time[-1])
    told: list[tuple] = []
    for number, close in enumerate(range(size, end, slide)):
        asked = 1 - learned.point if left is None else left
        moments = np.unique(np.r_[LEFT, round(asked, 6)])
        rows = [aggregated(stream, close - size, close, close - m * slide) for m in moments]
        final = aggregated(stream, close - size, close, np.inf)
        sight = Sight(
            np.zeros(len(rows), np.int64),
            np.full(len(rows), number),
            moments,
            np.array([row[3] for row in rows], np.int64),
            table(rows),
            close * 1_000_000,
            moments == round(asked, 6),
        )
        estimates = learned.estimate(sight)
        learned = learned.seen(sight, estimates)
        learned = learned.closed(closing([0], [number], [final], close * 1_000_000))
        at = int(np.flatnonzero(sight.told)[0])
        told.append((rows[at], estimates.projected[at], estimates.low[at], estimates.high[at], final, asked))
    columns = [np.array([row[i] for row in told], np.float64) for i in range(6)]
    return Told(*columns, learned)


def closing(groups: list[int], windows: list[int], rows: list[list[float | None]], made: int = 0) -> Finals:
    counts = np.array([row[3] or 0 for row in rows], np.int64)
    return Finals(np.array(groups, np.int64), np.array(windows, np.int64), counts, table(rows), made)


def projected_only(estimates: Estimates) -> NDArray[np.float64]:
    return estimates.projected
