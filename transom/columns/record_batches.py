"""Record batches of any size, put together into tables that are worth a vector operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

# Spark hands out batches of ten thousand rows: too few to keep the kernel's vectors long.
TASK_ROWS = 1 << 18


def in_large_tables(batches: Iterable[pa.RecordBatch], rows: int = TASK_ROWS) -> Iterator[pa.Table]:
    """Batches put together into tables of at least so many rows, but the last one."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        if held_rows >= rows:
            yield pa.Table.from_batches(held)
            held, held_rows = [], 0
    if held:
        yield pa.Table.from_batches(held)
