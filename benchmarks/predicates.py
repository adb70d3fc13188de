"""The kernel with queries that compare one, two and three scalars with constants, and with OR between two.

`python -m benchmarks.predicates` prints processor seconds of the kernel and of the final aggregation, and each
form's ratio to one scalar. Constants differ from query to query. Windows are one for all queries, or differ as in
workload C with low sharing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.kernel import Measured, measure

ROWS = 200_000
START = 1_101_902_400_000_000
SPAN = 3_600_000_000  # microseconds
BATCHES = 2
Constants = Sequence[float]

FORMS: dict[str, Callable[[Constants], str]] = {
    "one scalar": lambda c: f"vol > {c[0]:.0f}",
    "two scalars": lambda c: f"vol > {c[0]:.0f} AND price < {c[1]:.4f}",
    "three scalars": lambda c: f"vol > {c[0]:.0f} AND price < {c[1]:.4f} AND price * vol > {c[2]:.2f}",
    "two sides of two scalars": lambda c: (
        f"vol > {c[0]:.0f} AND vol < {c[0] + 20_000:.0f} AND price > {c[1]:.4f} AND price < {c[1] + 20:.4f}"
    ),
    "either of two scalars": lambda c: f"(vol > {c[0]:.0f} OR price < {c[1]:.4f})",
    "a symbol and a scalar": lambda c: f"symbol = 'S{c[0] // 150:.0f}' AND price < {c[1]:.4f}",
}


def rows(count: int = ROWS, seed: int = 1) -> pa.Table:
    """Trades with continuous prices and volumes, in the order of their times."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "time": pa.array(np.sort(rng.integers(0, SPAN, count)) + START, pa.timestamp("us", tz="UTC")),
            "symbol": pa.array(np.char.add("S", rng.integers(0, 667, count).astype(str))),
            "price": pa.array(rng.uniform(0, 100, count)),
            "vol": pa.array(rng.integers(1, 100_000, count), pa.int32()),
        }
    )


def queries(form: str, count: int, own_windows: bool, seed: int = 2) -> dict[str, str]:
    """Queries of a form, each with constants that no other has."""
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            rng.permutation(np.linspace(5_000, 95_000, count)),
            rng.permutation(np.linspace(5, 95, count)),
            rng.permutation(np.linspace(1e5, 5e6, count)),
        ],
        axis=1,
    )
    texts = {}
    for number, constants in enumerate(drawn.tolist()):
        range_ms, slide_ms = 600_000, 300_000
        if own_windows:
            range_ms, slide_ms = (
                int(rng.integers(600_000, 900_000)),
                int(rng.integers(300_000, 600_000)),
            )
        window = f"[RANGE {range_ms} milliseconds SLIDE {slide_ms} milliseconds]"
        where = FORMS[form](constants)
        texts[f"q{number}"] = f"SELECT sum(price * vol) AS value FROM trades {window} WHERE {where}"
    return texts


def measured(form: str, count: int, own_windows: bool, table: pa.Table, repeats: int = 2) -> Measured:
    """The fastest of several runs."""
    size = -(-table.num_rows // BATCHES)
    batches = [table.slice(start, size).combine_chunks() for start in range(0, table.num_rows, size)]
    texts = queries(form, count, own_windows)
    runs = [
        measure(batches, texts, "shared_paired", "families", clock=time.process_time) for _ in range(repeats)
    ]
    return min(runs, key=lambda run: run.partial_seconds + run.final_seconds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="*", default=[256, 1_024, 4_096])
    parser.add_argument("--forms", nargs="*", default=list(FORMS))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    table = rows(given.rows)
    print(f"{'queries':>8} {'windows':8} {'form':26} {'kernel':>8} {'final':>8} {'to one scalar':>14}")
    for own_windows in (False, True):
        for count in given.queries:
            first = None
            for form in given.forms:
                run = measured(form, count, own_windows, table, given.repeats)
                first = first or run.partial_seconds
                print(
                    f"{count:>8,} {'own' if own_windows else 'one':8} {form:26} {run.partial_seconds:8.3f} "
                    f"{run.final_seconds:8.3f} {run.partial_seconds / first:13.1f}x",
                    flush=True,
                )


if __name__ == "__main__":
    main()
