"""Lookups over a running engine: a thousand on-demand queries, data flowing, how long an answer takes.

python -m benchmarks.lookups            a minute of data
python -m benchmarks.lookups --short    a few seconds
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import transom

SCHEMA = "ts timestamp, symbol string, price double, volume bigint"
SYMBOLS = [f"S{i:02d}" for i in range(50)]
AGGREGATES = ["max(price)", "min(price)", "sum(volume)", "count(*)", "avg(price)", "stddev(price)"]
BAR = 0.050  # seconds, of 99 in a hundred lookups
START = 1_767_225_600_000_000


@dataclass(frozen=True)
class Load:
    """What is asked and what flows: queries, rows a page, pages, and seconds from page to page."""

    queries: int = 1000
    rows: int = 10_000
    pages: int = 60
    pause: float = 1.0


def texts(load: Load) -> Iterator[str]:
    """Queries over all rows, over one symbol's, and by symbol, from every structure, each its own window."""
    dice = random.Random(7)
    for i in range(load.queries):
        length = f"[RANGE {dice.randint(10, 3600)} seconds]"
        aggregate = dice.choice(AGGREGATES)
        match i % 5:
            case 0:
                yield f"SELECT {aggregate} AS x FROM trades {length}"
            case 1:
                yield f"SELECT {aggregate} AS x FROM trades {length} WHERE symbol = '{dice.choice(SYMBOLS)}'"
            case 2:
                yield f"SELECT symbol, {aggregate} AS x FROM trades {length} GROUP BY symbol"
            case 3:
                chosen = dice.choice(AGGREGATES[:5])
                yield f"SELECT {chosen} AS x FROM trades {length} USING timegram(64)"
            case _:
                yield f"SELECT max(price) AS x FROM trades {length} USING ordered_sharing"


def page(number: int, load: Load) -> pa.Table:
    """Trades of one second and a half, a little out of order."""
    dice = np.random.default_rng(number)
    times = START + number * 1_500_000 + np.sort(dice.integers(0, 1_500_000, load.rows))
    times -= np.where(dice.random(load.rows) < 0.05, 2_000_000, 0)
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(SYMBOLS).take(pa.array(dice.integers(0, len(SYMBOLS), load.rows))),
            "price": 100 + dice.normal(0, 1, load.rows).cumsum() / 100,
            "volume": dice.integers(1, 1000, load.rows),
        }
    )


@dataclass(frozen=True)
class Measured:
    """Seconds that lookups took, beside pages and without any."""

    beside: list[float]
    quiet: list[float]
    pages: int

    def rows(self) -> Iterator[dict[str, object]]:
        for kind, seconds in (("while data flows", self.beside), ("no data", self.quiet)):
            points = np.percentile(np.array(seconds), [50, 99, 100])
            names = ("p50_ms", "p99_ms", "max_ms")
            shown = {name: round(float(point) * 1000, 2) for name, point in zip(names, points, strict=True)}
            yield {"lookups": kind, "asked": len(seconds), **shown, "pages": self.pages}


def measure(load: Load) -> Measured:
    """Push pages into a started engine, and look queries up at random all the while."""
    engine = transom.Engine(poll="20 ms")
    feed = engine.feed("trades", SCHEMA, time="ts", slack="5 seconds")
    handles = list(engine.register_all({f"q{i}": text for i, text in enumerate(texts(load))}).values())
    feed.push(page(0, load))
    engine.step()
    for handle in handles[:20]:
        handle.lookup()
    done = threading.Event()

    def push() -> None:
        try:
            for number in range(1, load.pages + 1):
                feed.push(page(number, load))
                time.sleep(load.pause)
        finally:
            done.set()

    engine.start()
    pusher = threading.Thread(target=push)
    pusher.start()
    dice = random.Random(11)
    beside = asked(handles, dice, done)
    pusher.join()
    pages = engine.progress().page
    engine.stop()
    quiet = threading.Timer(min(10.0, load.pages * load.pause), (over := threading.Event()).set)
    quiet.start()
    rest = asked(handles, dice, over)
    return Measured(beside, rest, pages)


def asked(handles: list[transom.QueryHandle], dice: random.Random, end: threading.Event) -> list[float]:
    """How long lookups take, for whole windows and for shorter ones, until the end."""
    found = []
    while not end.is_set():
        handle, length = dice.choice(handles), dice.choice([None, f"{dice.randint(1, 10)} seconds"])
        start = time.perf_counter()
        handle.lookup(range=length)
        found.append(time.perf_counter() - start)
        time.sleep(0.002)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--out", type=Path, help="a directory for lookups.csv")
    options = parser.parse_args(arguments)
    found = measure(Load(100, 2_000, 5, 0.5) if options.short else Load())
    rows = list(found.rows())
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "lookups.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    is_met = np.percentile(np.array(found.beside), 99) <= BAR
    print(f"p99 below {BAR * 1000:.0f} ms: {'yes' if is_met else 'NO'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
