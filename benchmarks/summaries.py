"""The cost of summaries: tuples inserted per second of CPU by each structure (T1 to T4), as a table.

python -m benchmarks.summaries [--rows 1000000] [--batch 10000 100000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transom.elements import Summary
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.zones import bucket_of

SECOND = 1_000_000
STRUCTURES = {"T1": "none", "T2": "time", "T3": "cells", "T4": "adjusting"}


def stream(rows: int, values: int = 10_000, zipf: float = 1.0, seed: int = 17) -> tuple[NDArray, NDArray]:
    """Times and keys of a minute: Zipf values with exponential interarrival times."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1, values + 1) ** -zipf
    keys = rng.choice(values, rows, p=weights / weights.sum()).astype(np.uint64)
    return np.cumsum(rng.exponential(60 * SECOND / rows, rows)).astype(np.int64), keys


def inserted(shape: Summary, times: NDArray, keys: NDArray, batch: int) -> tuple[Representation, float]:
    """The representation of a stream, and the seconds to build it in batches of this size."""
    kept, began = Representation.new(shape), time.process_time()
    for at in range(0, len(times), batch):
        some, of = times[at : at + batch], keys[at : at + batch]
        kept = kept.inserted(summarize_steps(shape, some, of, bucket_of(shape, of)), int(some[-1]))
    return kept, time.process_time() - began


def probe(pairs: int = 1_000_000) -> float:
    """Seconds to compare an arriving tuple with a kept tuple, by value and by time."""
    times, keys = stream(2000)
    one, other = np.repeat(np.arange(1000), pairs // 1000), np.tile(np.arange(1000, 2000), pairs // 1000)
    spent = []
    for _ in range(5):
        began = time.process_time()
        np.flatnonzero((keys[one] == keys[other]) & (np.abs(times[one] - times[other]) <= SECOND))
        spent.append(time.process_time() - began)
    return min(spent) / pairs


def estimated(kept: Representation, keys: NDArray) -> float:
    """Seconds to estimate one value in one zone."""
    values, spent = np.unique(keys), []
    for _ in range(3):
        began = time.process_time()
        cells = kept.estimate(values, bucket_of(kept.shape, values)).size
        spent.append((time.process_time() - began) / cells)
    return min(spent)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    times, keys = stream(options.rows)
    unit = probe()
    print(f"a probe: {unit * 1e9:.1f} ns")
    print(
        f"{'structure':<16}{'batch':>9}{'tuples/s':>14}{'probes':>8}{'an estimate':>13}{'zones':>7}{'MB':>6}"
    )
    for name, structure in STRUCTURES.items():
        for batch in options.batch:
            shape = Summary("items", "store", "item", 10 * SECOND, structure=structure)
            rounds = [inserted(shape, times, keys, batch) for _ in range(options.rounds)]
            kept, took = rounds[0][0], min(seconds for _, seconds in rounds) / len(times)
            print(
                f"{name + ' ' + structure:<16}{batch:>9,}{1 / took:>14,.0f}{took / unit:>8.1f}"
                f"{estimated(kept, keys) / unit:>13.1f}{len(kept.every):>7}{kept.nbytes / 1e6:>6.1f}"
            )


if __name__ == "__main__":
    main()
