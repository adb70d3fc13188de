"""New York's flights as a query by hour and origin sees them: real delays, days and nights, small counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tests.estimates.streams import KINDS, LEFT, Told
from transom.app.flights import flights
from transom.elements import Emit
from transom.estimates import Finals, Learned, Sight

HOUR = 3_600_000_000
ORIGINS = ("EWR", "JFK", "LGA")
AFTER = np.array([-0.25, -0.5, -0.75, -1.0, -1.5])  # windows stay open for two hours after their end


@dataclass(frozen=True)
class Hours:
    """Flights by (hour, origin), each with its delay and the hour's part at which it came."""

    first: int
    arrival: dict[tuple[int, int], NDArray[np.float64]]
    delay: dict[tuple[int, int], NDArray[np.float64]]

    def row(self, hour: int, origin: int, left: float) -> list[float | None] | None:
        """AVG, MAX and SUM of the delays, and COUNT, of what has come when so much of the hour is left."""
        came = self.arrival.get((hour, origin))
        if came is None:
            return None
        there = came < 1 - left
        if not there.any():
            return None
        delay = self.delay[hour, origin][there]
        delay = delay[~np.isnan(delay)]
        if not len(delay):
            return [None, None, None, int(there.sum())]
        return [float(delay.mean()), float(delay.max()), float(delay.sum()), int(there.sum())]


def hours(days: int) -> Hours:
    table = flights()
    sched = table["sched"].to_numpy()
    kept = sched < sched.min() + days * 24 * HOUR
    hour, arrival = sched[kept] // HOUR, table["left"].to_numpy()[kept]
    origin = pc.index_in(table["origin"], pa.array(ORIGINS)).to_numpy()[kept]
    delay = table["delay"].cast(pa.float64()).to_numpy()[kept]
    part = (arrival - hour * HOUR) / HOUR
    order = np.lexsort((part, origin, hour))
    edges = np.flatnonzero(np.r_[True, np.diff(hour[order]) + np.diff(origin[order]) != 0, True])
    first = int(hour.min())
    came, late = {}, {}
    for begin, end in pairwise(edges.tolist()):
        rows = order[begin:end]
        key = int(hour[rows[0]]) - first, int(origin[rows[0]])
        came[key], late[key] = part[rows], delay[rows]
    return Hours(first, came, late)


def run(data: Hours, days: int, left: float) -> Told:
    """Told when so much of the hour is left; what comes two hours after the end is too late."""
    learned = Learned.of(Emit(at=(0.5,)), KINDS, 1.0)
    told: dict[tuple[int, int], list] = {}
    rows: list[list] = []
    moments = (
        [(1, float(m)) for m in LEFT] + [(0, float(m)) for m in AFTER if m > -1] + [(-1, -1.0), (-1, -1.5)]
    )
    for hour in range(days * 24):
        seen = [
            (origin, hour + ahead, m, row)
            for ahead, m in moments
            for origin in range(3)
            if (row := data.row(hour + ahead, origin, m)) is not None
        ]
        if seen:
            lefts = np.array([m for _, _, m, _ in seen])
            sight = Sight(
                np.array([origin for origin, *_ in seen], np.int64),
                np.array([window for _, window, *_ in seen], np.int64),
                lefts,
                np.array([row[3] for *_, row in seen], np.int64),
                _table([row for *_, row in seen]),
                hour * HOUR,
                lefts == left,
            )
            estimates = learned.estimate(sight)
            learned = learned.seen(sight, estimates)
            for at in np.flatnonzero(sight.told).tolist():
                origin, window, m, row = seen[at]
                told[window, origin] = [
                    row,
                    estimates.projected[at],
                    estimates.low[at],
                    estimates.high[at],
                    m,
                ]
        finals = [
            (origin, row) for origin in range(3) if (row := data.row(hour - 1, origin, -2.0)) is not None
        ]
        if finals:
            n = len(finals)
            keys = np.array([origin for origin, _ in finals], np.int64)
            counts = np.array([row[3] for _, row in finals], np.int64)
            learned = learned.closed(
                Finals(keys, np.full(n, hour - 1), counts, _table([row for _, row in finals]), hour * HOUR)
            )
            for origin, row in finals:
                if (hour - 1, origin) in told:
                    *said, m = told.pop((hour - 1, origin))
                    rows.append([*said, row, m])
    columns = [np.array([row[i] for row in rows], np.float64) for i in range(6)]
    return Told(*columns, learned)


def _table(rows: list[list[float | None]]) -> pa.Table:
    return pa.table(
        {kind.name: pa.array([row[i] for row in rows], pa.float64()) for i, kind in enumerate(KINDS)}
    )
