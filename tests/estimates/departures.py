"""New York's flights as a query by hour and origin sees them: real delays, days and nights, small counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.estimates.streams import LEFT, EmittedResults, Floats
from transom.cli.flights import flights
from transom.elements import Emit
from transom.estimates import EarlyValues, Estimator, FinalValues, ItemKind

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


def run(data: Hours, days: int, emitted_at: tuple[float, ...]) -> EmittedResults:
    """A query that emits whenever one of `emitted_at` of the hour is left."""
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
            estimator = estimator.with_finals(_finals(finals, closing, now))
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
    )


def _finals(finals: list[tuple[int, list[float]]], window: int, now: int) -> FinalValues:
    origin, rows = zip(*finals, strict=True)
    items = np.array(rows)
    windows = np.full(len(rows), window)
    return FinalValues(
        np.array(origin, np.int64), windows, items[:, -1].astype(np.int64), _table(items), now * HOUR
    )


def _table(items: Floats) -> pa.Table:
    return pa.table(
        {kind.name: pa.array(c, mask=np.isnan(c)) for kind, c in zip(KINDS, items.T, strict=True)}
    )
