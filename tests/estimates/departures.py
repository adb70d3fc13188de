"""New York's flights as a query by hour and origin sees them: real delays, days and nights, small counts.

`python -m tests.estimates.departures 120` prints how good estimates are over so many days, without and with the hour.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.estimates.streams import LEFT, EmittedResults, Floats
from transom.cli.flights import flights
from transom.elements import Emit
from transom.estimates import EarlyValues, Estimator, FinalValues, ItemKind
from transom.estimates.early_values import value_accuracy

HOUR = 3_600_000_000
ORIGINS = ("EWR", "JFK", "LGA")
KINDS = (
    ItemKind("avg", True),
    ItemKind("max", True),
    ItemKind("sum", True, grows=True),
    ItemKind("count", True, grows=True),
)
OPEN = 2.0  # hours that windows stay open after their end; what comes later is lost
# Observed between two closings: the window that begins, by its marks, and those that have ended.
LOOKS = (
    *((0, float(left)) for left in LEFT),
    *((-1, -part / 4) for part in range(1, 4)),
    (-2, -1.0),
    (-2, -1.5),
)


@dataclass
class Hours:
    """The flights of each (hour, origin): when they came, in hours from its begin, and their delays."""

    came: dict[tuple[int, int], tuple[Floats, Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, days: int) -> Hours:
        table = flights()
        sched, arrival = (table[name].to_numpy() for name in ("sched", "left"))
        first = int(sched.min()) // HOUR
        kept = sched < (first + days * 24) * HOUR
        hour = sched[kept] // HOUR
        part = (arrival[kept] - hour * HOUR) / HOUR
        origin = pc.index_in(table["origin"], pa.array(ORIGINS)).to_numpy()[kept]
        delay = table["delay"].cast(pa.float64()).to_numpy()[kept]
        found = cls()
        for key in np.unique(hour * 3 + origin).tolist():
            own = hour * 3 + origin == key
            found.came[key // 3 - first, key % 3] = part[own], delay[own]
        return found

    def row(self, hour: int, origin: int, left: float) -> list[float] | None:
        """AVG, MAX and SUM of the delays, and COUNT, of what has come when so much of the hour is left."""
        part, delay = self.came.get((hour, origin), (np.empty(0), np.empty(0)))
        count = int((part < 1 - left).sum())
        if not count:
            return None
        known = delay[(part < 1 - left) & ~np.isnan(delay)]
        if not len(known):
            return [np.nan, np.nan, np.nan, count]
        return [known.mean(), known.max(), known.sum(), count]


def run(data: Hours, days: int, emitted_at: tuple[float, ...], tells_time: bool = True) -> EmittedResults:
    """A query that emits whenever one of `emitted_at` of the hour is left; estimates know the hour if it tells them."""
    estimator = Estimator.of(Emit(at=(0.5,)), KINDS, 1.0)
    estimated: dict[tuple[int, int], list[tuple]] = {}
    results: list[tuple] = []
    for now in range(days * 24):
        seen = [
            (origin, now + ahead, left, row)
            for ahead, left in LOOKS
            for origin in range(len(ORIGINS))
            if (row := data.row(now + ahead, origin, left)) is not None
        ]
        if seen:
            early_values = _early_values(seen, now, emitted_at)
            early_values = replace(early_values, end=early_values.end if tells_time else None)
            estimates = estimator.estimate(early_values)
            estimator = estimator.with_observation(early_values, estimates)
            for at in np.flatnonzero(early_values.emitted).tolist():
                origin, window, left, row = seen[at]
                bounds = estimates.projected[at], estimates.low[at], estimates.high[at]
                estimated.setdefault((window, origin), []).append((row, *bounds, left))
        closing = now - 2
        finals = [
            (origin, row)
            for origin in range(len(ORIGINS))
            if (row := data.row(closing, origin, -OPEN)) is not None
        ]
        if finals:
            closed = _finals(finals, closing, now)
            estimator = estimator.with_finals(replace(closed, end=closed.end if tells_time else None))
        for origin, row in finals:
            results += [(*emitted, row, left) for *emitted, left in estimated.pop((closing, origin), [])]
    columns = [np.array([row[i] for row in results], np.float64) for i in range(6)]
    return EmittedResults(*columns, estimator)


def _early_values(
    seen: list[tuple[int, int, float, list[float]]], now: int, emitted_at: tuple[float, ...]
) -> EarlyValues:
    origin, window, left, rows = zip(*seen, strict=True)
    items = np.array(rows)
    return EarlyValues(
        np.array(origin, np.int64),
        np.array(window, np.int64),
        np.array(left),
        items[:, -1].astype(np.int64),
        _table(items),
        now * HOUR,
        np.isin(left, emitted_at),
        (np.array(window, np.int64) + 1) * HOUR,
    )


def _finals(finals: list[tuple[int, list[float]]], window: int, now: int) -> FinalValues:
    origin, rows = zip(*finals, strict=True)
    items = np.array(rows)
    windows = np.full(len(rows), window)
    return FinalValues(
        np.array(origin, np.int64),
        windows,
        items[:, -1].astype(np.int64),
        _table(items),
        now * HOUR,
        (windows + 1) * HOUR,
    )


def _table(items: Floats) -> pa.Table:
    return pa.table(
        {kind.name: pa.array(c, mask=np.isnan(c)) for kind, c in zip(KINDS, items.T, strict=True)}
    )


def main() -> None:
    """Print the accuracy of projections, and the coverage and width of bounds, for each moment."""
    days, moments = int(sys.argv[1]), (0.5, 0.0, -0.5)
    data = Hours.of(days)
    for tells_time in (False, True):
        results = run(data, days, moments, tells_time)
        for left in moments:
            one = results.where(results.left == left)
            bounded, inside = one.covered()
            accuracy = np.nanmean(value_accuracy(one.projected, one.final), axis=0)
            error = np.nanmean(np.abs(one.projected - one.final), axis=0)
            width = np.nanmean(one.high - one.low, axis=0)
            for i, kind in enumerate(KINDS):
                print(
                    f"{'with' if tells_time else 'without'} the hour, {left:+.1f} left, {kind.name}: accuracy "
                    f"{accuracy[i]:.1%}, error {error[i]:.2f}, covered {inside[i] / bounded[i]:.1%}, "
                    f"width {width[i]:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
