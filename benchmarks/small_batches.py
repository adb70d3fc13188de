"""Small batches with many queries: what a batch costs whatever it contains.

python -m benchmarks.small_batches                      all measurements, on the local backend
python -m benchmarks.small_batches small --profile 40   one of them, with the 40 most expensive functions
python -m benchmarks.small_batches --backend spark --short

| measurement | what is measured |
| --- | --- |
| small | 100 rows and 100 queries: the time from the push to the committed results |
| steady | 10,000 rows a second and 1,000 queries, in batches of 200 ms |
| early | 1,000 queries with EMIT EARLY: processor time per query and slide |
| churn | 1,000 queries stay while 4,700 a minute join and leave: how much longer a batch takes |

Times are milliseconds. `delay` is by how much a batch with queries that join and leave takes longer than the median
batch of the same engine without them. `cpu` is the processor time of this process, which depends little on what else
the machine does; the wall time is only worth something if the load is small.
"""

from __future__ import annotations

import argparse
import cProfile
import csv
import gc
import os
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import transom

SCHEMA = "ts timestamp, symbol string, price double, volume bigint"
SYMBOLS = [f"S{i}" for i in range(10)]
AGGREGATES = ("count(*)", "sum(volume)", "avg(price)", "min(price)", "max(price)")
RANGES = (5, 10, 30, 60, 120)  # seconds
SLIDES = (1, 2, 5, 10)
START = 1_767_225_600_000_000
SECOND = 1_000_000
CHANGES_A_MINUTE = 4_700


@dataclass(frozen=True)
class Load:
    """The size of a measurement: `step` is the time of the stream in a batch, in seconds."""

    queries: int
    rows: int
    batches: int
    step: float
    warm: int = 20
    early: str = ""
    changes: int = 0  # queries that join and queries that leave with each batch, together


LOADS = {
    "small": Load(queries=100, rows=100, batches=300, step=1.0),
    "steady": Load(queries=1_000, rows=2_000, batches=150, step=0.2),
    "early": Load(
        queries=1_000, rows=1_000, batches=12, step=1.0, warm=8, early="EMIT EARLY AT 50% OF SLIDE"
    ),
    "churn": Load(
        queries=1_000, rows=2_000, batches=100, step=0.2, changes=round(CHANGES_A_MINUTE / 60 * 0.2)
    ),
}
SHORT = {
    name: Load(20, 50, 4, load.step, 2, load.early, min(load.changes, 4)) for name, load in LOADS.items()
}


def texts(queries: int, early: str = "") -> Iterator[str]:
    """Queries as people write them: many windows, filters on one or two columns, a third of them by symbol."""
    dice = random.Random(7)
    for _ in range(queries):
        yield text(dice, early)


def text(dice: random.Random, early: str = "") -> str:
    """One query; with EMIT EARLY all of them slide by a second, so that a batch of a second is a slide."""
    slide = 1 if early else dice.choice(SLIDES)
    window = f"[RANGE {dice.choice(RANGES)} seconds SLIDE {slide} seconds]"
    aggregates = ", ".join(f"{a} AS x{i}" for i, a in enumerate(dice.sample(AGGREGATES, dice.randint(1, 2))))
    where = dice.choice(
        (
            "",
            f"WHERE volume > {dice.randrange(1000)}",
            f"WHERE price < {dice.randrange(900, 1100) / 10}",
            f"WHERE volume > {dice.randrange(500)} AND price < {dice.randrange(950, 1100) / 10}",
            f"WHERE symbol = '{dice.choice(SYMBOLS)}'",
        )
    )
    if dice.random() < 1 / 3:
        return f"SELECT symbol, {aggregates} FROM trades {window} {where} GROUP BY symbol {early}"
    return f"SELECT {aggregates} FROM trades {window} {where} {early}"


def trades(number: int, load: Load) -> pa.Table:
    """The rows of one batch."""
    dice = np.random.default_rng(number)
    length = round(load.step * SECOND)
    return pa.table(
        {
            "ts": pa.array(START + number * length + np.sort(dice.integers(0, length, load.rows))).cast(
                pa.timestamp("us", "UTC")
            ),
            "symbol": pa.array(SYMBOLS).take(pa.array(dice.integers(0, len(SYMBOLS), load.rows))),
            "price": 100 + dice.normal(0, 3, load.rows),
            "volume": dice.integers(1, 1000, load.rows),
        }
    )


@dataclass
class Times:
    """The seconds that each batch took, and how many times files were brought to disk."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    syncs: int = 0
    quiet: Times | None = None  # of batches in which no query joins or leaves

    def row(self, name: str, load: Load) -> dict[str, Any]:
        """A row of the table."""
        millis = {"wall": np.array(self.wall) * 1000, "cpu": np.array(self.cpu) * 1000}
        shown: dict[str, Any] = {"measurement": name, "queries": load.queries, "rows": load.rows}
        for kind, values in millis.items():
            for point, at in (("p50", 50), ("p99", 99), ("max", 100)):
                shown[f"{kind}_{point}"] = round(float(np.percentile(values, at)), 2)
            if self.quiet is not None:
                usual = float(np.median(getattr(self.quiet, kind))) * 1000
                shown[f"{kind}_quiet_p50"] = round(usual, 2)
                for point, at in (("p50", 50), ("p99", 99), ("max", 100)):
                    shown[f"{kind}_delay_{point}"] = round(float(np.percentile(values, at)) - usual, 2)
        shown["cpu_mean"] = round(float(millis["cpu"].mean()), 2)
        if load.early:
            shown["cpu_per_query_and_slide"] = round(float(millis["cpu"].mean()) / load.queries, 3)
        shown["syncs"] = round(self.syncs / len(self.wall), 1)
        shown["load"] = round(os.getloadavg()[0], 1)
        return shown


class Run:
    """An engine with the queries of a load."""

    def __init__(self, load: Load, backend: str, sync: bool, directory: str):
        self.load, self.pushed = load, 0
        self.engine = transom.Engine(checkpoint=directory, backend=backend, sync=sync, retention=50)
        self.feed = self.engine.feed("trades", SCHEMA, time="ts")
        given = {f"q{i}": query for i, query in enumerate(texts(load.queries, load.early))}
        self.engine.register_all(given)
        self._dice = random.Random(11)
        self._visitors: list[str] = []
        self._joined = 0

    def batches(self, count: int, times: Times, changes: bool = True) -> None:
        """Push batches one by one and process each; with `changes`, queries join and leave if the load says so."""
        for _ in range(count):
            rows = trades(self.pushed, self.load)
            self.pushed += 1
            if changes:
                self._change_queries()
            wall, cpu = time.perf_counter(), time.process_time()
            self.feed.push(rows)
            self.engine.step()
            times.wall.append(time.perf_counter() - wall)
            times.cpu.append(time.process_time() - cpu)

    def _change_queries(self) -> None:
        """Some queries join, and those that joined with the last batch leave."""
        for name in self._visitors:
            self.engine.query(name).drop()
        joining = self.load.changes // 2
        some = {f"visitor{self._joined + i}": text(self._dice) for i in range(joining)}
        self._joined += joining
        self._visitors = list(some)
        if some:
            self.engine.register_all(some)


@contextmanager
def counted_syncs(times: Times) -> Iterator[None]:
    """Count the calls of fsync."""
    fsync = os.fsync

    def counting(descriptor: int) -> None:
        times.syncs += 1
        fsync(descriptor)

    os.fsync = counting
    try:
        yield
    finally:
        os.fsync = fsync


def measured(name: str, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """One measurement."""
    times = Times()
    with tempfile.TemporaryDirectory() as directory:
        run = Run(load, options.backend, not options.no_sync, directory)
        with run.engine:
            _measure(run, times, options)
    return times.row(name, load)


def _measure(run: Run, times: Times, options: argparse.Namespace) -> None:
    run.batches(run.load.warm, Times())
    if run.load.changes:
        times.quiet = Times()
        run.batches(run.load.batches, times.quiet, changes=False)
    gc.collect()
    profile = cProfile.Profile() if options.profile else None
    with counted_syncs(times):
        _call(profile, lambda: run.batches(run.load.batches, times))
    if profile is not None:
        pstats.Stats(profile).sort_stats(options.order).print_stats(options.profile)


def _call(profile: cProfile.Profile | None, work: Callable[[], None]) -> None:
    if profile is None:
        work()
    else:
        profile.runcall(work)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"measurements: {', '.join(LOADS)}")
    parser.add_argument("--backend", default="local", choices=("local", "spark"))
    parser.add_argument("--short", action="store_true", help="a few seconds, to check that it works")
    parser.add_argument("--no-sync", action="store_true", help="files are not brought to disk")
    parser.add_argument("--batches", type=int, help="how many batches are measured")
    parser.add_argument("--profile", type=int, default=0, metavar="LINES", help="print a profile")
    parser.add_argument("--order", default="tottime", help="the order of the profile")
    parser.add_argument("--out", type=Path, help="a directory for small_batches.csv")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.names or LOADS:
        load = (SHORT if options.short else LOADS)[name]
        if options.batches:
            load = Load(**{**vars(load), "batches": options.batches})
        rows.append(measured(name, load, options))
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "small_batches.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), restval="")
            writer.writeheader()
            writer.writerows(rows)
    return rows


if __name__ == "__main__":
    main()
    sys.exit(0)
