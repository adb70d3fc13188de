"""Rows joined with a static table of intervals: processor time of a batch, by its rows.

    python -m benchmarks.range_joins [--intervals 100000]

The intervals are either apart, like networks of addresses, or of very different lengths and overlapping.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from transom.backends.arrow_joins import KeyIndexes, left_join
from transom.backends.choose import choose_backend
from transom.sql.query import ColumnBound, Join

ADDRESSES = 2**32
BOUNDS = (ColumnBound("lo", False, "`ip`"), ColumnBound("hi", True, "`ip`"))
NETS = Join("nets#1", "nets", "`ip` BETWEEN `nets#1.lo` AND `nets#1.hi`", (), ("lo", "hi"), BOUNDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intervals", type=int, default=100_000)
    count = parser.parse_args().intervals
    scalars, dice = choose_backend("local", None).scalars, np.random.default_rng(1)
    low = np.sort(dice.integers(0, ADDRESSES, count))
    ends = {
        "apart": np.r_[low[1:] - 1, ADDRESSES],
        "overlapping": low + dice.choice([10, 1_000, 10**5, 10**6], count),
    }
    for name, high in ends.items():
        table = KeyIndexes(pa.table({"lo": low, "hi": high}), scalars)
        for size in (1_000, 10_000, 100_000):
            rows = pa.table({"ip": dice.integers(0, ADDRESSES, size)})
            left_join(rows.slice(0, 10), table, NETS, scalars)  # makes the index
            started = time.process_time()
            joined = left_join(rows, table, NETS, scalars)
            spent = 1000 * (time.process_time() - started)
            print(
                f"{count:,} intervals, {name}: {size:>7,} rows, {joined.num_rows:>7,} matches: {spent:6.1f} ms"
            )


if __name__ == "__main__":
    main()
