"""Queries with two expressions of their own each: how long registering them takes, and each of three batches.

`python -m benchmarks.own_expressions` prints a line for each number of queries. A batch should take longer by the
number of expressions, and not by more. The first batch of the smallest number includes the start of Spark.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

import transom

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SCHEMA = "name string, v int, price double, ts timestamp"
BATCHES = 3


def query(number: int) -> str:
    """A query whose argument and condition no other one has."""
    argument = f"v * {number + 2} + length(replace(name, 'a', 'x{number}'))"
    return f"SELECT sum({argument}) AS n FROM s {WINDOW} WHERE price * {number + 1} > {number}.5 + v"


def rows(minute: int, count: int) -> list[tuple[str, int, float, str]]:
    """Rows of one minute."""
    return [(f"a{i % 7}", i, 1.5 * i, f"2013-01-01 12:{minute:02d}:{i % 60:02d}") for i in range(count)]


def measure(queries: int, arguments: argparse.Namespace, directory: Path) -> list[float]:
    """Seconds for the registration, and for each batch after it."""
    with transom.Engine(backend=arguments.backend, sync=False, batch_deadline=arguments.deadline) as engine:
        feed = None
        if arguments.files:
            directory.mkdir()
            engine.stream("s", str(directory), time="ts", format="csv", schema=SCHEMA)
        else:
            feed = engine.feed("s", SCHEMA, time="ts")
        seconds = []
        for batch in range(BATCHES + 1):
            started = time.perf_counter()
            if batch == 0:  # one query: the backend starts
                engine.register(query(0), "first")
            elif batch == 1:
                engine.register_all({f"q{i}": query(i) for i in range(1, queries)})
                seconds.append(time.perf_counter() - started)
                started = time.perf_counter()
            made = rows(batch, arguments.rows)
            if feed is not None:
                feed.push(made)
            else:
                columns = [list(column) for column in zip(*made, strict=True)]
                table = pa.table(columns, names=["name", "v", "price", "ts"])
                csv.write_csv(table, directory / f"{batch}.csv", csv.WriteOptions(include_header=False))
            engine.step()
            seconds += [time.perf_counter() - started] if batch else []
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queries", type=int, nargs="*", default=[250, 500, 1000, 2000])
    parser.add_argument("--backend", default="spark")
    parser.add_argument("--rows", type=int, default=100, help="rows of each batch")
    parser.add_argument("--deadline", help="of a batch, such as '10 minutes'")
    parser.add_argument("--files", action="store_true", help="rows come in files, and are read by jobs")
    arguments = parser.parse_args()
    print("queries  registration  batches, in seconds")
    with tempfile.TemporaryDirectory() as directory:
        for queries in arguments.queries:
            registration, *batches = measure(queries, arguments, Path(directory) / str(queries))
            shown = "".join(f"{seconds:8.1f}" for seconds in batches)
            print(f"{queries:7}  {registration:12.1f}  {shown}", flush=True)


if __name__ == "__main__":
    main()
