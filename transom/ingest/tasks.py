"""Tasks that run the kernel over the rows of a batch. A backend ships them by value to where the rows are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa

from transom.backends.base import RecordBatches, ShippedPlan, Task
from transom.ingest.late_rows import with_missed
from transom.kernel.aggregate import Outcome, aggregate_rows, merge, write_shards
from transom.kernel.shards import Shelf

# Spark hands out batches of ten thousand rows: too few to keep the kernel's vectors long.
TASK_ROWS = 1 << 18
CELLS_AT_ONCE = 1 << 20  # of selections on the executors that a task holds in memory


def aggregate_task(shipped: ShippedPlan, shelf: Shelf | None) -> Task:
    """A task that packs the outcome of its rows, and writes the cells that executors keep."""

    def task(batches: RecordBatches) -> RecordBatches:
        plan = shipped.plan()
        done: Outcome | None = None
        for table in in_large_tables(batches):
            outcome = aggregate_rows(table, plan)
            done = outcome if done is None else merge([done, outcome], plan.layouts)
            cells = sum(shard.table.num_rows for _, shard in done.shards)
            if (
                shelf is not None
                and cells + sum(one.run.entries for one in done.executor_runs) > CELLS_AT_ONCE
            ):
                done = write_shards(done, shelf)
        if done is not None:
            packed = pickle.dumps(done if shelf is None else write_shards(done, shelf))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], ["outcome"])

    return task


def late_task(shipped: ShippedPlan, keep: list[str]) -> Task:
    """A task that passes on the rows that some query missed, and which queries did."""

    def task(batches: RecordBatches) -> RecordBatches:
        plan = shipped.plan()
        for table in in_large_tables(batches):
            yield from with_missed(table, plan, keep).combine_chunks().to_batches()

    return task


def in_large_tables(batches: RecordBatches) -> Iterator[pa.Table]:
    """Batches put together into tables of a good size."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= TASK_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)
