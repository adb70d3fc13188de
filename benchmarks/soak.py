"""A long run in which queries join and leave all the time: nothing may grow.

`make soak` runs it for twenty minutes (`ARGS="--minutes 2"`). Rows are pushed, some of them late, and come in files; in
each round, some of 200 queries are dropped and others registered; queries are prodded and looked up. Once a second the
soak notes the memory of the process, its threads and open files, the files and bytes of the checkpoint, and the time of
a batch. At the end it compares the last half of the run with itself, prints a report, and exits with 1 if something
grows.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

import transom
from transom.plan import compiled_query
from transom.runtime import alert_log
from transom.runtime.handles import Feed

SCHEMA = "site string, price double, volume int, ts timestamp"
COLUMNS = ("site", "price", "volume", "ts")
START = datetime(2013, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=10)  # of the streams' time in each round
RETENTION = 50  # batches
LEAVING = 4  # queries that are dropped in each round; as many join
ROUNDS_PER_FILE = 4
INPUT_FILES = 20  # files that stay in the directory; older ones are deleted, as an archive would do
ROWS = 100
LATE_EVERY = 50  # rows, of which one is minutes late
FEWER_EVENTS = 500  # of alerts that are retained
FEWER_AGGREGATES = 256  # SELECT lists that are kept for queries like those before
BLOCKS = 20  # of samples: the mean of a block depends little on the one before it
MOST_GROWTH = {"memory": 0.03, "batch_seconds": 0.3}  # of the mean, from the middle of the run to its end
BOUNDED = ("checkpoint_files", "checkpoint_bytes", "open_files", "threads")
MOST_ABOVE = 1.1  # the highest value of the last quarter, compared with that of the quarter before it


@dataclass(frozen=True)
class Sample:
    """What is measured once a second."""

    seconds: float  # since the soak began
    memory: float  # bytes in RAM of the process; on Spark also of its children
    open_files: float
    threads: float
    checkpoint_files: float
    checkpoint_bytes: float
    batch_seconds: float  # mean since the last sample; processor time, unless another process works


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    measure: str
    text: str
    is_fine: bool


def queries(numbers: random.Random) -> Iterator[str]:
    """Queries without end; most have a constant of their own."""
    while True:
        stream = numbers.choice(("pushed", "files"))
        slide = numbers.choice(("1 minute", "2 minutes", "5 minutes"))
        length = numbers.choice((5, 10, 20))
        window = f"{stream} [RANGE {length} minutes SLIDE {slide}]"
        number = numbers.randrange(10_000)
        if not number % 50:  # no regular expression: the query is suspended
            yield f"SELECT count(*) AS n FROM {window} WHERE site RLIKE concat('(', '{number}')"
        yield numbers.choice(
            (
                f"SELECT count(*) AS n FROM {window} WHERE volume > {number % 900}",
                f"SELECT site, avg(price) AS n FROM {window} GROUP BY site",
                f"SELECT sum(price * {number}) AS n FROM {window}",
                f"SELECT max(price) - min(price) AS n FROM {window} WHERE site LIKE '%{number % 50}%'",
                f"SELECT approx_count_distinct(volume + {number % 7}) AS n FROM {window}",
                f"SELECT sum(volume) AS n FROM {stream} [RANGE {length} minutes]",
                f"SELECT site, count(DISTINCT volume) AS d, median(price) AS n FROM {window} GROUP BY site",
                f"SELECT site, sum(price) AS n FROM {window} GROUP BY site ORDER BY n DESC LIMIT {1 + number % 5}",
                f"SELECT site, count(*) AS n FROM {window} GROUP BY ROLLUP(site) HAVING n > {number % 20}",
                f"SELECT site, count(*) AS n, LAG(n) OVER WINDOWS AS b FROM {window} GROUP BY site",
                f"SELECT site, count(*) AS n FROM {window} WHERE volume > {number % 900} GROUP BY site EMIT EMPTY",
                f"SELECT sum(price) AS n FROM {window} WHERE volume > {number % 900} EMIT EARLY EVERY '1 minute'",
                f"SELECT site, count(*) AS n FROM {stream} [SESSION {1 + number % 90} seconds] GROUP BY site",
                f"SELECT site, max(price) AS n FROM {stream} [PARTITION BY site ROWS 5 SLIDE {1 + number % 5}] "
                "GROUP BY site",
                f"SELECT count(*) AS n FROM {stream} [RANGE UP TO 1 hour SLIDE {slide}] WHERE volume > {number % 900}",
                f"SELECT sum(volume) AS n FROM {stream} [RANGE 1 day SLIDE 1 day IN TIME ZONE 'Europe/Berlin']",
                f"SELECT count(*) AS n FROM pushed a JOIN files b ON a.site = b.site AND a.volume = b.volume "
                f"AND b.ts BETWEEN a.ts AND a.ts + INTERVAL {1 + number % 3} minutes [RANGE 5 minutes SLIDE 5 minutes]",
                "SELECT count(*) AS n FROM pushed a LEFT JOIN files b ON a.site = b.site AND a.volume = b.volume "
                "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 minute [RANGE 5 minutes SLIDE 5 minutes]",
                f"SELECT site, price FROM {stream} WHERE price > {90 + number % 10} AND volume < {number % 900}",
                f"SELECT site, sum(price) AS n FROM {window} WHERE volume > {number % 900} GROUP BY site "
                "EMIT CORRECTIONS WITHIN '20 minutes'",
                f"SELECT site, count(*) AS n FROM {window} GROUP BY site HAVING n > {number % 20} "
                "ALERT FOR 2 WINDOWS RESOLVE AFTER 2 WINDOWS SEVERITY 'page' SUMMARY '{site}: {n}'",
                f"SELECT site, count(*) AS n FROM {window} GROUP BY site HAVING n > {number % 20} "
                "WITH CONFIDENCE 95% ALERT",
                f"SELECT site, avg(price) AS n FROM {window} WHERE volume > {number % 900} GROUP BY site "
                "BACKFILL SINCE '10 minutes ago'",
                f"SELECT count(*) AS n FROM {window} WHERE volume > {number % 900} BACKFILL",
                f"WITH both AS (SELECT ts, price FROM pushed UNION ALL SELECT ts, price FROM files) "
                f"SELECT avg(price) AS n FROM both [RANGE {length} minutes SLIDE {slide}] WHERE price > {number % 100}",
            )
        )


def rows(round_number: int, numbers: random.Random) -> list[tuple[str, float, int, str]]:
    """Rows of one step of the streams' time, and some that are late."""
    at = START + round_number * STEP
    return [
        (
            f"s{numbers.randrange(50)}",
            round(numbers.random() * 100, 2),
            numbers.randrange(1000),
            (at + STEP * i / ROWS - _lateness(i, numbers)).strftime("%Y-%m-%d %H:%M:%S.%f"),
        )
        for i in range(ROWS)
    ]


def _lateness(row: int, numbers: random.Random) -> timedelta:
    return timedelta(minutes=numbers.randrange(1, 10)) if row % LATE_EVERY == 1 else timedelta()


class Soak:
    """An engine under a changing set of queries, and the samples of its run."""

    def __init__(self, arguments: argparse.Namespace, directory: Path):
        self.arguments, self.directory = arguments, directory
        self.numbers = random.Random(arguments.seed)
        self.texts = queries(self.numbers)
        self.samples: list[Sample] = []
        self.rounds = self.registered = 0
        self.living: list[str] = []
        (directory / "input").mkdir()

    def run(self) -> list[Sample]:
        """Run rounds until the time is over.

        What the engine keeps within a limit fills up for as long as an hour here, and would look like a leak. So these
        limits are lower, and are reached in the first half.
        """
        alert_log.MOST_EVENTS = alert_log.MOST_DROPPED = FEWER_EVENTS
        compiled_query.MOST_SHARED_AGGREGATES = FEWER_AGGREGATES
        options = {"retention": RETENTION, "sync": False, "batch_deadline": "5 minutes"}
        with transom.Engine(
            checkpoint=str(self.directory / "checkpoint"), backend=self.arguments.backend, **options
        ) as engine:
            feed = engine.feed(
                "pushed", SCHEMA, time="ts", slack="99%", slack_max="1 minute", retain="15 minutes"
            )
            engine.stream(
                "files",
                str(self.directory / "input"),
                time="ts",
                format="csv",
                schema=SCHEMA,
                retain="15 minutes",
            )
            engine.alerting.file_sink("files", str(self.directory / "alerts"))
            began = sampled = time.monotonic()
            spent: list[float] = []
            while time.monotonic() - began < self.arguments.minutes * 60:
                started = time.monotonic()
                spent.append(self._round(engine, feed))
                if time.monotonic() - sampled >= 1:
                    sampled = time.monotonic()
                    self.samples.append(self._sample(sampled - began, sum(spent) / len(spent)))
                    spent.clear()
                time.sleep(max(0.0, 1 / self.arguments.rate - (time.monotonic() - started)))
        return self.samples

    def _round(self, engine: transom.Engine, feed: Feed) -> float:
        """Change the queries, bring rows, run their batches; the seconds of the batches."""
        while len(self.living) < self.arguments.queries:
            name = f"q{self.registered}"
            engine.register(next(self.texts), name)
            self.living.append(name)
            self.registered += 1
        feed.push(rows(self.rounds, self.numbers))
        if self.rounds % ROUNDS_PER_FILE == 0:
            self._write_file()
        clock = time.process_time if self.arguments.backend == "local" else time.monotonic
        started = clock()
        engine.step()
        seconds = clock() - started
        query = engine.query(self.numbers.choice(self.living))
        if self.rounds % 10 == 0 and query.suspended is None:
            if query.is_row_query:
                query.results()
            elif query.on_demand:
                query.lookup()
            else:
                query.prod()
                query.results()
                engine.alerting.events(limit=100)
        for _ in range(min(LEAVING, len(self.living))):
            leaving = self.living.pop(self.numbers.randrange(len(self.living)))
            engine.query(leaving).drop()
        self.rounds += 1
        return seconds

    def _write_file(self) -> None:
        made = self.directory / "input" / f"{self.rounds:08d}.csv"
        hidden = made.with_name(f".{made.name}")
        with hidden.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows(self.rounds, self.numbers)])
        hidden.rename(made)
        oldest = self.rounds - INPUT_FILES * ROUNDS_PER_FILE
        made.with_name(f"{oldest:08d}.csv").unlink(missing_ok=True)

    def _sample(self, seconds: float, batch_seconds: float) -> Sample:
        sizes = [
            size
            for path, _, names in os.walk(self.directory / "checkpoint")
            for name in names
            if (size := _size(Path(path) / name)) is not None
        ]
        memory = sum(map(_memory, [os.getpid(), *_children(os.getpid())]))
        open_files = len(os.listdir("/proc/self/fd"))
        return Sample(
            seconds, memory, open_files, threading.active_count(), len(sizes), sum(sizes), batch_seconds
        )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _memory(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [*found, *(below for child in found for below in _children(child))]


def slope(seconds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The growth per second by least squares over block means, and half of its 95 % confidence interval.

    >>> growth, doubt = slope(list(range(100)), [2.0 * second for second in range(100)])
    >>> round(growth, 6), round(doubt, 6)
    (2.0, 0.0)
    """
    blocks = min(BLOCKS, len(values))
    x = np.array([block.mean() for block in np.array_split(np.asarray(seconds, float), blocks)])
    y = np.array([block.mean() for block in np.array_split(np.asarray(values, float), blocks)])
    spread = x - x.mean()
    growth = float((spread * y).sum() / (spread**2).sum())
    residuals = y - y.mean() - growth * spread
    error = float(np.sqrt((residuals**2).sum() / max(blocks - 2, 1) / (spread**2).sum()))
    return growth, 2.1 * error


def findings(samples: Sequence[Sample]) -> Iterator[Finding]:
    """What the last half of a run shows."""
    half = samples[len(samples) // 2 :]
    seconds = [sample.seconds for sample in half]
    duration = seconds[-1] - seconds[0]
    for measure, most in MOST_GROWTH.items():
        values = [getattr(sample, measure) for sample in half]
        growth, doubt = slope(seconds, values)
        mean = sum(values) / len(values)
        part, range_part = growth * duration / mean, doubt * duration / mean
        text = f"{_shown(measure, mean)}, {part:+.1%} in {duration / 60:.1f} minutes (± {range_part:.1%})"
        yield Finding(measure, text, part - range_part <= 0 or part <= most)
    middle = len(half) // 2
    for measure in BOUNDED:
        values = [getattr(sample, measure) for sample in half]
        before, after = max(values[:middle]), max(values[middle:])
        text = f"at most {_shown(measure, before)}, then {_shown(measure, after)}"
        yield Finding(measure, text, after <= before * MOST_ABOVE + 2)


def _shown(measure: str, value: float) -> str:
    if measure in ("memory", "checkpoint_bytes"):
        return f"{value / 1e6:,.1f} MB"
    return f"{value * 1000:,.1f} ms" if measure == "batch_seconds" else f"{value:,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--backend", default="local", choices=("local", "spark"))
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rate", type=float, default=5, help="rounds per second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="a file for the samples (CSV)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(arguments, Path(directory))
        samples = soak.run()
    if arguments.out:
        with open(arguments.out, "w", newline="") as file:
            names = [field.name for field in fields(Sample)]
            csv.writer(file).writerows([names, *([getattr(s, n) for n in names] for s in samples)])
    print(f"{soak.rounds:,} rounds, {soak.registered:,} queries registered, {len(samples):,} samples")
    results = list(findings(samples))
    for finding in results:
        print(
            f"{'fine' if finding.is_fine else 'GROWS':6} {finding.measure.replace('_', ' '):18} {finding.text}"
        )
    return 0 if all(finding.is_fine for finding in results) else 1


if __name__ == "__main__":
    sys.exit(main())
