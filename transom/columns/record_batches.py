"""Record batches of any size, put together into tables that are worth a vector operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

# Spark hands out batches of ten thousand rows: too few to keep the kernel's vectors long.
TASK_ROWS = 1 << 18


def in_large_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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
