"""What runs inside Spark's tasks: the kernel over Arrow batches. Everything here is shipped by value."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa

from transom.partial.kernel import PagePlan, late_rows, merge, run

# Spark hands out batches of ten thousand rows: too few to keep the kernel's vectors long.
ROWS_AT_ONCE = 1 << 18

Batches = Iterator[pa.RecordBatch]


def aggregate_task(plan: PagePlan) -> Callable[[Batches], Batches]:
    """A task that turns its share of a page into one pickled `Outcome`."""

    def task(batches: Batches) -> Batches:
        outcomes = [run(table, plan) for table in gathered(batches)]
        if outcomes:
            packed = pickle.dumps(merge(outcomes, plan.layouts))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], ["outcome"])

    return task


def late_task(plan: PagePlan, keep: list[str]) -> Callable[[Batches], Batches]:
    """A task that passes on the rows that come too late for all who asked for them."""

    def task(batches: Batches) -> Batches:
        for table in gathered(batches):
            chosen = table.filter(pa.array(late_rows(table, plan))).select(keep)
            yield from chosen.combine_chunks().to_batches()

    return task


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Batches put together into tables of a good size."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)
