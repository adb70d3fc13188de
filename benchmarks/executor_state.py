"""State on the executors: a million groups, twenty live slices, a hundred queries.

Ten windows times ten predicates, all grouped by user, over files of 300,000 rows, each a batch of one minute:
6 M rows are live when the first full windows close. For each batch it prints the seconds, the growth of the
driver's memory since the first batch (this process and its JVM), and the state before the batch.
Run: `python -m benchmarks.executor_state [--state driver]`.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import transom
from transom.backends.spark.session import start_session

MINUTE = 60_000_000
START = 1_357_041_600_000_000  # 2013-01-01 12:00
SCHEMA = "user bigint, value double, ts timestamp"


def write_files(directory: Path, rows: int, users: int, batches: int) -> None:
    """Write one Parquet file per minute, each with an equal share of the rows."""
    for batch_id in range(batches):
        dice = np.random.default_rng(batch_id)
        size = rows // batches
        times = np.sort(START + batch_id * MINUTE + dice.integers(0, MINUTE, size))
        table = pa.table(
            {
                "user": dice.integers(0, users, size),
                "value": dice.random(size) * 100,
                "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, directory / f"{batch_id:04d}.parquet", row_group_size=size // 4 + 1)


def queries(windows: int, predicates: int) -> dict[str, str]:
    """Windows of 30 minutes, every 20 minutes, with different origins, over values above different constants."""
    return {
        f"w{w} p{p}": f"SELECT user, count(*) AS n, sum(value) AS total "
        f"FROM s [RANGE 30 minutes SLIDE 20 minutes ORIGIN '{w} minutes'] "
        f"WHERE value > {p * 10} GROUP BY user"
        for w in range(windows)
        for p in range(predicates)
    }


def memory() -> dict[str, int]:
    """Resident bytes of this process and of its children, by name."""
    sizes: dict[str, int] = {}
    for pid in ("self", *_children()):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in status if ":" in line)
        name = "driver" if pid == "self" else fields["Name"].strip()
        sizes[name] = sizes.get(name, 0) + 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
    return sizes


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        yield from (task / "children").read_text().split()


def run(rows: int, users: int, batches: int, state: str, windows: int, predicates: int) -> None:
    """Process the batches, and print the cost of each."""
    spark = start_session("executor state", config={"spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as place:
        files = Path(place) / "files"
        files.mkdir()
        write_files(files, rows, users, batches)
        engine = transom.Engine(spark, f"{place}/checkpoint", state=state)
        engine.stream("s", str(files), time="ts", schema=SCHEMA, format="parquet")
        engine.register_all(queries(windows, predicates))
        engine._loop.listeners.append(lambda report: print(line(engine, report.seconds, before, place)))
        before = memory()
        started = time.perf_counter()
        engine.drain(close=False)
        print(f"{batches} batches: {time.perf_counter() - started:.1f} s")
        print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def line(engine: transom.Engine, seconds: float, before: dict[str, int], place: str) -> str:
    now = memory()
    grown = ", ".join(f"{name} {(now[name] - before.get(name, 0)) / 1e6:+,.0f} MB" for name in now)
    state = engine._loop.state
    driver_rows = sum(table.num_rows for table in state.sheets.values())
    shards = sum(ref.rows for ref in state.shards), sum(ref.bytes for ref in state.shards) / 1e6
    results = sum(file.stat().st_size for file in Path(place).glob("checkpoint/results/*/*")) / 1e6
    return (
        f"batch {state.batch_id + 1}: {seconds:.2f} s; {grown}; before it on the driver {driver_rows:,} rows; "
        f"on the executors {shards[0]:,} cells, {shards[1]:,.0f} MB in {len(state.shards)} shards; "
        f"results {results:,.0f} MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_600_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=22)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--predicates", type=int, default=10)
    parser.add_argument("--state", default="auto")
    run(**vars(parser.parse_args()))
