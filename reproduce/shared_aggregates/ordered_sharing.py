"""OrderedSharing compared with naive and exact lookups: `python -m reproduce ordered-sharing` (section 6.5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

SYSTEMS = ("naive", "ordered_sharing", "exact")


def run_ordered_sharing(directory: Path, options: Options) -> list[Bar]:
    """Run the experiment; write tables and plots, print the bars."""
    return sharing.run(EXPERIMENT, directory, options)


def tables(options: Options) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Response times by ratio and by queries, and the cost of a lookup."""
    yield "ratios", by_ratio(SYSTEMS, options)
    yield "queries", by_queries(SYSTEMS, options)
    yield "lookups", by_lookup(SYSTEMS[1:], options)


def bars(tables: Tables) -> list[Bar]:
    """The bars (targets) of OrderedSharing and of the exact structure."""
    rows = [row for table in tables.values() for row in table]
    return [
        *sharing.common_bars(tables, "ordered_sharing", "OrderedSharing"),
        Bar(
            "exact against OrderedSharing, the worst of all workloads",
            min(speedups(rows, "ordered_sharing", "exact")),
            least=1,
        ),
    ]


EXPERIMENT = Experiment(
    "ordered_sharing",
    tables,
    bars,
    {
        "ratios": ("ratio", "OrderedSharing: response time by update:lookup ratio, 8 queries"),
        "queries": ("queries", "OrderedSharing: response time by queries, ratio 1:1 (figures 9 and 10)"),
    },
)
