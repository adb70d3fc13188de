"""TimeGram compared with naive and exact lookups: `python -m reproduce timegram` (section 5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from operator import add
from pathlib import Path
from typing import Any

from reproduce.algorithms.staircase import Staircase
from reproduce.algorithms.suffix_tree import SuffixTree
from reproduce.algorithms.timegram import TimeGram
from reproduce.report import Options
from reproduce.shared_aggregates import measures as sharing
from reproduce.shared_aggregates.measures import (
    Bar,
    Experiment,
    Tables,
    by_lookup,
    by_queries,
    by_ratio,
    speedups,
)
from reproduce.shared_aggregates.response_times import BUCKETS, DATA, HIGH, LARGEST, LOW, MIXED

SYSTEMS = ("naive", "timegram", "exact")
STREAMS: Mapping[str, Callable[[random.Random, int], float]] = {
    "uniform": lambda rng, step: DATA["uniform"](rng),
    "gaussian": lambda rng, step: DATA["gaussian"](rng),
    "drifting": lambda rng, step: rng.gauss(step / 1000, 10.0),
    "adversarial": lambda rng, step: rng.choice([LOW, HIGH, 0.1, 1e300, -1e300, 5e-324, rng.gauss(0, 10)]),
}


def run_timegram(directory: Path, options: Options) -> list[Bar]:
    """Run the experiment; write tables and plots, print the bars."""
    return sharing.run(EXPERIMENT, directory, options)


def tables(options: Options) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Response times by ratio and by queries, the cost of a lookup, and whether intervals contain the answers."""
    yield "ratios", by_ratio(SYSTEMS, options)
    yield "mixed", by_ratio(SYSTEMS, options, MIXED)
    yield "mixed_large", by_ratio(SYSTEMS, options, MIXED, 10 * LARGEST)
    yield "queries", by_queries(SYSTEMS, options)
    yield "lookups", by_lookup(SYSTEMS[1:], options)
    steps = 2500 if options.short else 100_000
    yield "intervals", [intervals(name, steps, seed=1) for name in STREAMS]


def intervals(name: str, steps: int, seed: int) -> dict[str, Any]:
    """Count the intervals that contain the exact answer, of five functions over a random window at every step."""
    rng = random.Random(seed)
    gram = TimeGram.evenly(LOW, HIGH, BUCKETS)
    greatest, least, tree = Staircase(), Staircase(greatest=False), SuffixTree(add)
    held = lookups = 0
    for time in range(steps):
        value = STREAMS[name](rng, time)
        for structure in (gram, greatest, least, tree):
            structure.insert(time, value)
            structure.expire(time + 1 - LARGEST)
        since = time + 1 - rng.randint(1, LARGEST)
        total, count = tree.lookup(since), tree.count(since)
        answers = {
            "max": greatest.lookup(since),
            "min": least.lookup(since),
            "count": count,
            "sum": total,
            "avg": total / count,
        }
        for function, answer in answers.items():
            lookups += 1
            held += getattr(gram, function)(since).holds(answer)
    return {"data": name, "seed": seed, "lookups": lookups, "intervals_that_hold_the_answer": held}


def bars(tables: Tables) -> list[Bar]:
    """The bars (targets) of TimeGram, and the cost of five functions in turns."""
    rows = tables["ratios"] + tables["queries"] + tables["lookups"]
    missing = [row["lookups"] - row["intervals_that_hold_the_answer"] for row in tables["intervals"]]
    lookups = sum(row["lookups"] for row in tables["intervals"])
    mixed = tables["mixed"] + tables["mixed_large"]
    return [
        *sharing.common_bars(tables, "timegram", "TimeGram"),
        Bar(f"intervals without the exact answer, of {lookups:,}", sum(missing), most=0, unit=""),
        Bar(
            "exact against TimeGram, MAX, the worst of all workloads",
            min(speedups(rows, "timegram", "exact")),
        ),
        *(
            Bar(
                f"{title} against naive, five functions in turns, windows up to {largest:,}, ratio {ratio}:1",
                min(speedups(mixed, "naive", system, ratio=ratio, largest_window=largest)),
            )
            for largest in (LARGEST, 10 * LARGEST)
            for system, title in (("timegram", "TimeGram"), ("exact", "exact"))
            for ratio in (1, 10)
        ),
    ]


EXPERIMENT = Experiment(
    "timegram",
    tables,
    bars,
    {
        "ratios": ("ratio", "TimeGram: response time by update:lookup ratio, 8 queries (figures 3 and 5)"),
        "mixed": ("ratio", "TimeGram: MAX, MIN, COUNT, SUM and AVG in turns, 8 queries"),
        "queries": ("queries", "TimeGram: response time by queries, ratio 1:1 (figures 4 and 6)"),
    },
)
