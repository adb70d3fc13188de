"""The latency of lookups over a running engine with a thousand on-demand queries.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import transom
from transom.runtime.handles import Feed, QueryHandle

SCHEMA = "ts timestamp, symbol string, price double, volume bigint"
SYMBOLS = [f"S{i:02d}" for i in range(50)]
AGGREGATES = ["max(price)", "min(price)", "sum(volume)", "count(*)", "avg(price)", "stddev(price)"]
START = 1_767_225_600_000_000


@dataclass(frozen=True)
class Load:
    """The size of the benchmark.

    `rows` is per batch and `pause` is the seconds between batches. `most` is the largest number of windows over
    the same few aggregates, and `lookups` the number of lookups while no data arrives.
    """

    queries: int = 1000
    rows: int = 10_000
    batches: int = 60
    pause: float = 1.0
    most: int = 10_000
    lookups: int = 2_000


SHORT = Load(queries=100, rows=2_000, batches=5, pause=0.5, most=200, lookups=100)


def texts(queries: int) -> Iterator[str]:
    """Queries over all rows, over one symbol and by symbol, for every structure, with different windows."""
    dice = random.Random(7)
    for i in range(queries):
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


def batch(number: int, rows: int) -> pa.Table:
    """Trades of one second and a half, a little out of order."""
    dice = np.random.default_rng(number)
    times = START + number * 1_500_000 + np.sort(dice.integers(0, 1_500_000, rows))
    times -= np.where(dice.random(rows) < 0.05, 2_000_000, 0)
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(SYMBOLS).take(pa.array(dice.integers(0, len(SYMBOLS), rows))),
            "price": 100 + dice.normal(0, 1, rows).cumsum() / 100,
            "volume": dice.integers(1, 1000, rows),
        }
    )


def started(texts: list[str], rows: int) -> tuple[transom.Engine, Feed, list[QueryHandle]]:
    """An engine with these queries that has processed one batch."""
    engine = transom.Engine(poll="20 ms")
    feed = engine.feed("trades", SCHEMA, time="ts", slack="5 seconds")
    handles = list(engine.register_all({f"q{i}": text for i, text in enumerate(texts)}).values())
    feed.push(batch(0, rows))
    engine.step()
    for handle in handles[:20]:
        handle.lookup()
    return engine, feed, handles


def beside_batches(load: Load) -> Iterator[tuple[str, list[float]]]:
    """Time random lookups while batches are pushed into a running engine, and then without batches."""
    engine, feed, handles = started(list(texts(load.queries)), load.rows)
    done = threading.Event()

    def push() -> None:
        try:
            for number in range(1, load.batches + 1):
                feed.push(batch(number, load.rows))
                time.sleep(load.pause)
        finally:
            done.set()

    engine.start()
    pusher = threading.Thread(target=push)
    pusher.start()
    dice = random.Random(11)
    yield (
        f"{load.queries} queries, while data arrives",
        lookup_seconds(handles, dice, lambda _: done.is_set()),
    )
    pusher.join()
    engine.stop()
    yield (
        f"{load.queries} queries, no data",
        lookup_seconds(handles, dice, lambda count: count == load.lookups),
    )


def by_number(load: Load) -> Iterator[tuple[str, list[float]]]:
    """The same few aggregates with few windows and with many: all share their stores."""
    for number in (8, load.most):
        windows = [f"[RANGE {10 + i * 3590 // number} seconds]" for i in range(number)]
        chosen = [f"SELECT {AGGREGATES[i % 4]} AS x FROM trades {own}" for i, own in enumerate(windows)]
        engine, _, handles = started(chosen, load.rows)
        engine.stop()
        yield (
            f"{number} windows",
            lookup_seconds(handles, random.Random(3), lambda count: count == load.lookups),
        )


def lookup_seconds(
    handles: list[QueryHandle], dice: random.Random, ends: Callable[[int], bool]
) -> list[float]:
    """Seconds of each lookup, for whole windows and for shorter ones, until `ends` returns True."""
    seconds: list[float] = []
    while not ends(len(seconds)):
        handle, length = dice.choice(handles), dice.choice([None, f"{dice.randint(1, 10)} seconds"])
        start = time.perf_counter()
        handle.lookup(range=length)
        seconds.append(time.perf_counter() - start)
        time.sleep(0.002)
    return seconds


def shown(what: str, seconds: list[float]) -> dict[str, object]:
    """A row of the table."""
    points = (np.percentile(np.array(seconds), [50, 99, 100]) * 1000).tolist()
    names = ("p50_ms", "p99_ms", "max_ms")
    found = {name: round(point, 2) for name, point in zip(names, points, strict=True)}
    return {"lookups": what, "count": len(seconds), **found}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a few seconds, to check that it works")
    parser.add_argument("--out", type=Path, help="a directory for lookups.csv")
    options = parser.parse_args(arguments)
    load = SHORT if options.short else Load()
    found = {what: seconds for what, seconds in (*by_number(load), *beside_batches(load))}
    rows = [shown(what, seconds) for what, seconds in found.items()]
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "lookups.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    few, many, flowing, _ = (np.array(seconds) for seconds in found.values())
    ratio, p99 = float(np.median(many) / np.median(few)), float(np.percentile(flowing, 99)) * 1000
    print(f"{load.most} windows against 8, cost of a lookup: {ratio:.2f}x (bar: at most 2x)")
    print(f"99th percentile of lookups while data arrives: {p99:.1f} ms (bar: 50 ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
