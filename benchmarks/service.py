"""A server under load: the cost of a batch with a thousand queries and two hundred readers of live results.

python -m benchmarks.service            about five minutes
python -m benchmarks.service --short    a few seconds: does it run, and does every event arrive?

Blocks of batches without readers and with readers alternate, so that a machine that becomes slower is visible.
The readers run in a separate process on the same machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

import transom
from transom.runtime.batch_report import BatchReport
from transom.runtime.handles import Feed
from transom.server.settings import ServerSettings
from transom.web_service import Served, serving

SCHEMA = "ts timestamp, symbol string, price double, volume bigint"
SYMBOLS = [f"S{i:02d}" for i in range(50)]
AGGREGATES = ["max(price)", "min(price)", "sum(volume)", "count(*)", "avg(price)"]
START = 1_767_225_600_000_000
BATCH = 1_000_000  # microseconds of data in a batch
BAR = 1.1
PATIENCE = 30.0  # seconds to wait for outstanding results at the end of a block


@dataclass(frozen=True)
class Load:
    """The size of the benchmark.

    `rows` is per batch, `pause` the seconds between batches, `batches` the length of a block and `blocks` the
    number of blocks of each kind. `warm` batches precede the first block. `look` is the seconds between two
    rounds of status requests.
    """

    queries: int = 1000
    readers: int = 200
    slow: int = 2
    rows: int = 4_000
    pause: float = 1.0
    batches: int = 20
    blocks: int = 4
    warm: int = 20
    look: float = 5.0


SHORT = Load(queries=60, readers=12, slow=1, rows=500, pause=0.2, batches=3, blocks=1, warm=2, look=0.5)


def texts(queries: int) -> Iterator[str]:
    """Windows of all lengths that slide with every batch: over all rows, one symbol's, and by symbol."""
    dice = random.Random(7)
    for i in range(queries):
        window = f"[RANGE {dice.randint(2, 60)} seconds SLIDE {dice.choice([1, 1, 1, 2, 5])} seconds]"
        aggregate = dice.choice(AGGREGATES)
        match i % 10:
            case 0:
                yield f"SELECT symbol, {aggregate} AS x FROM trades {window} GROUP BY symbol"
            case 1 | 2 | 3:
                yield f"SELECT {aggregate} AS x FROM trades {window}"
            case _:
                symbol = dice.choice(SYMBOLS)
                yield f"SELECT {aggregate} AS x FROM trades {window} WHERE symbol = '{symbol}'"


def trades(number: int, rows: int) -> pa.Table:
    """Trades of one batch, a little out of order."""
    dice = np.random.default_rng(number)
    times = START + number * BATCH + np.sort(dice.integers(0, BATCH, rows))
    times -= np.where(dice.random(rows) < 0.05, BATCH // 2, 0)
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(SYMBOLS).take(pa.array(dice.integers(0, len(SYMBOLS), rows))),
            "price": 100 + dice.normal(0, 1, rows).cumsum() / 100,
            "volume": dice.integers(1, 1000, rows),
        }
    )


@dataclass
class Flow:
    """A source with a steady rate, and the seconds that its batches took."""

    feed: Feed
    load: Load
    pushed: int = 0
    seconds: list[float] = field(default_factory=list)
    committed: dict[int, float] = field(default_factory=dict)  # wall-clock time of each batch's commit
    done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def note(self, report: BatchReport) -> None:
        """Record a committed batch; called in the engine's thread."""
        if report.stream is not None:
            self.seconds.append(report.seconds)
            self.committed[report.batch_id] = time.time()
            self.done.release()

    def run(self, batches: int) -> list[float]:
        """Push batches at a steady rate, wait for each, and return the seconds that each took."""
        before, start = len(self.seconds), time.monotonic()
        for number in range(batches):
            time.sleep(max(0.0, start + number * self.load.pause - time.monotonic()))
            self.feed.push(trades(self.pushed, self.load.rows))
            self.pushed += 1
            self.done.acquire()
        return self.seconds[before:]


class ReaderProcess:
    """A separate process with readers of results, and a client that requests the server's status."""

    def __init__(self, served: Served, names: list[str], slow: dict[str, str], look: float):
        self.served, self.names, self.slow = served, names, slow
        self._before = self._counts()
        command = [sys.executable, "-m", "benchmarks.subscribers"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url = httpx.URL(served.url)
        order = {"host": url.host, "port": url.port, "names": names, "slow": slow, "look": look}
        ready = self._ask(order)["ready"]
        if ready != len(names) + len(slow):
            raise RuntimeError(f"{ready} readers of {len(names) + len(slow)} are connected")

    def end(self) -> dict[str, Any]:
        """Wait until the readers have received all results since the start, and return their report."""
        made = self._counts()
        expect = {name: made[name] - self._before[name] for name in self.names}
        expect |= {f"slow {name}": made[name] - 1 for name in self.slow}  # they begin after the first row
        report = self._ask({"expect": expect, "patience": PATIENCE})
        self._process.wait()
        return report | {"expect": expect}

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def _counts(self) -> dict[str, int]:
        service = self.served.service
        return {name: service.query(name).results for name in {*self.names, *self.slow}}


@contextmanager
def running(load: Load) -> Iterator[tuple[Served, Flow]]:
    """A server with all queries, after its warm-up batches."""
    engine = transom.Engine(poll="10 ms", retention=load.warm + 2 * load.blocks * load.batches + 10)
    flow = Flow(engine.feed("trades", SCHEMA, time="ts", slack="1 second"), load)
    engine.register_all({f"q{i}": text for i, text in enumerate(texts(load.queries))})
    with serving(engine, ServerSettings(port=0, dashboard=False)) as served:
        engine.follow(flow.note)
        flow.run(load.warm)
        yield served, flow


def blocks(load: Load) -> Iterator[dict[str, Any]]:
    """Alternate blocks without readers and with readers."""
    spread = max(1, load.queries // load.readers)
    names = [f"q{i * spread}" for i in range(load.readers)]
    slow = [f"q{10 * i}" for i in range(load.slow)]
    with running(load) as (served, flow):
        for number in range(load.blocks):
            yield shown(number, "without", flow.run(load.batches))
            first = {name: served.service.results(name, None, 1).cursor for name in slow}
            readers = ReaderProcess(served, names, first, load.look)
            seconds = flow.run(load.batches)
            yield shown(number, "with", seconds) | delivered(readers.end(), flow.committed)


def shown(block: int, readers: str, seconds: list[float]) -> dict[str, Any]:
    """A row of the table."""
    points = np.percentile(np.array(seconds) * 1000, [50, 90, 100]).round(1).tolist()
    names = ("batch_p50_ms", "batch_p90_ms", "batch_max_ms")
    return {
        "block": block,
        "readers": readers,
        "batches": len(seconds),
        "batch_mean_ms": round(statistics.fmean(seconds) * 1000, 1),
        **dict(zip(names, points, strict=True)),
        "memory_mb": round(resident() / 1e6),
    }


def delivered(report: dict[str, Any], committed: dict[int, float]) -> dict[str, Any]:
    """The results that readers received, and their delay after the commit of their batch."""
    looks = report["looks"]
    delays = [at - committed[batch_id] for batch_id, at in report["came"] if batch_id in committed]
    missing = {name: rows - report["rows"][name] for name, rows in report["expect"].items()}
    return {
        "events": report["events"],
        "rows": sum(report["rows"].values()),
        "missing": sum(map(abs, missing.values())),
        "errors": len(report["errors"]),
        "behind": sum(report["expect"][f"slow {name}"] - rows for name, rows in report["early"].items()),
        "delay_p50_ms": round(statistics.median(delays) * 1000, 1),
        "delay_max_ms": round(max(delays) * 1000, 1),
        "look_p50_ms": round(statistics.median(looks) * 1000, 1) if looks else None,
        "look_max_ms": round(max(looks) * 1000, 1) if looks else None,
    }


def resident() -> int:
    """Resident bytes of this process: the server and the engine, without the JVM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a few seconds, to check that it works")
    parser.add_argument("--out", type=Path, help="a directory for service.csv")
    options = parser.parse_args(arguments)
    load = SHORT if options.short else Load()
    rows = []
    for row in blocks(load):
        rows.append(row)
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "service.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[-1]), restval="")
            writer.writeheader()
            writer.writerows(rows)
    return verdict(rows, options.short)


def verdict(rows: list[dict[str, Any]], short: bool) -> int:
    """Print the outcome; fail on a missing row, on a failed reader and, in a full run, on a missed bar."""
    medians = {
        kind: [row["batch_p50_ms"] for row in rows if row["readers"] == kind] for kind in ("without", "with")
    }
    ratio = statistics.median(medians["with"]) / statistics.median(medians["without"])
    pairs = [f"{w / wo:.2f}" for w, wo in zip(medians["with"], medians["without"], strict=True)]
    missing, errors = (sum(row.get(name, 0) for row in rows) for name in ("missing", "errors"))
    print(f"a batch with readers against one without: {ratio:.3f}x (bar: below {BAR}x); by block {pairs}")
    print(f"rows that did not arrive, or arrived twice: {missing}; readers that failed: {errors}")
    return int(missing > 0 or errors > 0 or (ratio >= BAR and not short))


if __name__ == "__main__":
    sys.exit(main())
