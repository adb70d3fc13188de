"""The streams of the experiments: generated from a seed as in the thesis, or read from recordings."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from transom.cli.flights import flights
from transom.errors import SettingError
from transom.runtime.streamer import Streamer

SECOND = 1_000_000
INSTANT = pa.timestamp("us", tz="UTC")
DENSITY = 0.95  # in the thesis's generator, the probability that the next tuple has the same second
TUPLES_A_SECOND = 1 / (1 - DENSITY)
BURSTS = ((12, 4), (32, 5), (62, 13))  # second and length, in every hundred seconds: A, B and C of figure 4.4
FREEWAY, REQUESTS = "freeway-loop-detectors-2011-09-15.csv.gz", "web-requests-1995-08-01.tsv.gz"

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Recording:
    """Rows with an event time `ts` and an arrival time, both in microseconds."""

    rows: pa.Table
    arrivals: Numbers

    @property
    def times(self) -> Numbers:
        return self.rows["ts"].cast(pa.int64()).to_numpy()

    def delayed(self, streamer: Streamer) -> Recording:
        """The same rows with the arrival times of a Streamer."""
        return Recording(self.rows, streamer.arrivals(self.times))

    def served(self, seconds: float) -> Recording:
        """The same rows after an operator that takes this long for each row (section 4.3.2)."""
        order = np.argsort(self.arrivals, kind="stable")
        cost = round(seconds * SECOND)
        number = np.arange(len(order))
        # Row i is done when the busy period that contains it has processed it: the latest start plus the work since.
        done = np.maximum.accumulate(self.arrivals[order] - number * cost) + (number + 1) * cost
        arrivals = np.empty_like(self.arrivals)
        arrivals[order] = done
        return Recording(self.rows, arrivals)


def recording(times: Numbers, **columns: NDArray[np.float64] | Numbers) -> Recording:
    """Rows that arrive at their event times."""
    rows = pa.table(
        {"ts": pa.array(times).cast(INSTANT), **{name: pa.array(c) for name, c in columns.items()}}
    )
    return Recording(rows, times)


def clumped(draw: np.random.Generator, seconds: int) -> Numbers:
    """The times of the thesis's generator: whole seconds; the next tuple has the same second with probability 95 %."""
    steps = draw.random(int(seconds * TUPLES_A_SECOND * 1.5) + 1000) >= DENSITY
    times = np.cumsum(steps).astype(np.int64)
    return times[times < seconds] * SECOND


def poisson(draw: np.random.Generator, seconds: int) -> Numbers:
    """Times of a Poisson process with the same rate."""
    count = draw.poisson(seconds * TUPLES_A_SECOND)
    return np.sort(draw.integers(0, seconds * SECOND, count))


ARRIVALS: dict[str, Callable[[np.random.Generator, int], Numbers]] = {"clumped": clumped, "poisson": poisson}
VALUES: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "uniform": lambda draw, count: draw.integers(0, 1000, count).astype(np.float64),
    "normal_100": lambda draw, count: draw.normal(500, 100, count),
    "normal_400": lambda draw, count: draw.normal(500, 400, count),
    "normal_1000": lambda draw, count: draw.normal(500, 1000, count),
}


def generated(arrivals: str, values: str, seconds: int, seed: int) -> Recording:
    """A stream of section 4.4: a column `value` of some distribution."""
    draw = np.random.default_rng(seed)
    times = ARRIVALS[arrivals](draw, seconds)
    return recording(times, value=VALUES[values](draw, len(times)))


def wireless(records: int, seed: int) -> Recording:
    """A stream like the one of section 4.3.2: bursts of arrivals, and a counter that grows in short runs.

    Dartmouth's records are not available. As in figure 4.4, a hundred seconds have about 14,000 rows.
    """
    draw = np.random.default_rng(seed)
    found: list[Numbers] = []
    second = 0
    while sum(map(len, found)) < records:
        in_burst = any(start <= second % 100 < start + long for start, long in BURSTS)
        count = draw.poisson(400 if in_burst else 60)
        found.append(np.sort(draw.integers(second * SECOND, (second + 1) * SECOND, count)))
        second += 1
    times = np.concatenate(found)[:records]
    runs = np.cumsum(draw.random(records) < 0.1)
    starts = draw.integers(0, 4000, runs[-1] + 1)[runs]
    steps = np.arange(records) - np.searchsorted(runs, runs)
    return recording(times, counter=(starts + steps).astype(np.int64))


def freeway(directory: Path) -> Recording:
    """An hour of loop detectors' rows, one per detector every twenty seconds (the thesis's source of Q4-1)."""
    raw = _table(directory / FREEWAY, ",")
    times = pc.strptime(raw["starttime"], "%m/%d/%Y %H:%M:%S", "us").cast(pa.int64())
    raw = raw.append_column("us", times).sort_by([("us", "ascending"), ("detectorid", "ascending")])
    volume = raw["volume"].fill_null(0).cast(pa.int64()).to_numpy()
    return recording(raw["us"].to_numpy(), volume=volume, detector=raw["detectorid"].to_numpy())


def requests(directory: Path) -> Recording:
    """Thirteen hours of a web server's requests; times are whole seconds."""
    raw = _table(directory / REQUESTS, "\t")
    order = pc.sort_indices(raw["time"])
    times = raw["time"].take(order).cast(pa.int64()).to_numpy() * SECOND
    return recording(times, bytes=raw["bytes"].take(order).fill_null(0).cast(pa.int64()).to_numpy())


def departures(days: int) -> Recording:
    """Flights out of New York by their scheduled times; a row arrives when the flight departs."""
    table = flights()
    left = table["left"].to_numpy()
    until = int(np.searchsorted(left, left[0] + days * 86_400 * SECOND))
    part = table.slice(0, until)
    rows = pa.table(
        {
            "ts": part["sched"].cast(INSTANT),
            "origin": part["origin"],
            "value": part["distance"].cast(pa.float64()),
        }
    )
    return Recording(rows, left[:until])


def _table(path: Path, separator: str) -> pa.Table:
    if not path.exists():
        raise SettingError(f"there is no recording {path}; --data must name its directory")
    with gzip.open(path) as file:
        return pyarrow.csv.read_csv(file, parse_options=pyarrow.csv.ParseOptions(delimiter=separator))
