"""The cost of structures: tuples inserted per second, microseconds per lookup, bytes per tuple, as a table.

python -m benchmarks.structures [--rows 1000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Moments, Sum
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import Structure, TupleBatch
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.timegram import TimeGram
from transom.ondemand.structures.value_structures import RawTuples

FLOAT, LONG = pa.float64(), pa.int64()
LOOKUPS = 50
SECOND = 1_000_000


@dataclass(frozen=True)
class Stream:
    """A stream's tuples, `rate` of them a second, over some groups."""

    rows: int
    groups: int
    rate: int = 1000
    seed: int = 11

    def batches(self, size: int, type: pa.DataType | None) -> Iterator[TupleBatch]:
        rng = np.random.default_rng(self.seed)
        keys = (pa.array([f"group {i}" for i in range(self.groups)]),) if self.groups > 1 else ()
        size = min(size, self.rows)
        for start in range(0, self.rows, size):
            times = np.arange(start, start + size) * (SECOND // self.rate)
            codes = rng.integers(0, self.groups, size)
            values = pa.array(rng.normal(100, 15, size))
            yield TupleBatch(times, codes, keys, None if type is None else values.cast(type, safe=False))


def structures() -> dict[str, tuple[Structure, pa.DataType | None]]:
    """The structures to measure and the types of their values, by name."""
    aggregates: dict[str, tuple[Accumulator, pa.DataType | None]] = {
        "count(*)": (CountRows(), None),
        "count": (Count(), FLOAT),
        "sum of longs": (Sum(LONG), LONG),
        "sum of doubles": (Sum(FLOAT), FLOAT),
        "max": (Extreme(FLOAT, "max"), FLOAT),
        "moments": (Moments(), FLOAT),
    }
    found: dict[str, tuple[Structure, pa.DataType | None]] = {
        f"{name}, exact": (exact_structure(accumulator), type)
        for name, (accumulator, type) in aggregates.items()
    }
    found["sum of doubles, naive"] = (RawTuples(Sum(FLOAT)), FLOAT)
    found["timegram(64)"] = (TimeGram(FLOAT), FLOAT)
    found["timegram(64 BETWEEN 0 AND 200)"] = (TimeGram(FLOAT, between=(0, 200)), FLOAT)
    found["WITHIN 5%"] = (TimeGram(FLOAT, within=0.05), FLOAT)
    found["timegram(64, SLICE '1 second')"] = (TimeGram(FLOAT, slice=SECOND), FLOAT)
    return found


def measured(structure: Structure, batches: list[TupleBatch], rows: int) -> str:
    """One row of the table."""
    kept, began = RunTiers(), time.perf_counter()
    for batch in batches:
        kept = kept.with_run(structure, structure.run(batch), -1)
    insert_seconds = time.perf_counter() - began
    high = max(run.high for run in kept.runs)
    sinces = np.random.default_rng(5).integers(0, high, LOOKUPS).tolist()
    began = time.perf_counter()
    structure.lookup(kept.runs, 0)  # derives the structures that runs build at their first lookup
    first = time.perf_counter() - began
    began = time.perf_counter()
    for since in sinces:
        list(structure.lookup(kept.runs, since).columns.values())
    lookup_seconds = (time.perf_counter() - began) / LOOKUPS
    figures = (
        rows / insert_seconds / 1e6,
        first * 1e6,
        lookup_seconds * 1e6,
        kept.nbytes / rows,
        len(kept.runs),
        kept.entries,
    )
    return " ".join(f"{figure:10.2f}" if figure < 100 else f"{figure:10.0f}" for figure in figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    options = parser.parse_args(arguments)
    heads = ("batch", "groups", "M rows/s", "first, us", "lookup, us", "bytes/row", "runs", "entries")
    print(f"{'':32} " + " ".join(f"{head:>10}" for head in heads))
    for name, (structure, type) in structures().items():
        for groups, size in ((1, 10_000), (1, 100_000), (10_000, 100_000)):
            if options.only in name:
                batches = list(Stream(options.rows, groups).batches(size, type))
                print(
                    f"{name:32} {size:10d} {groups:10d} {measured(structure, batches, options.rows)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
