"""Late rows with the queries that missed them: one bit for each group of queries that want the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.backends.base import RecordBatches, ShippedPlan, Task
from transom.columns.bit_columns import bit_column, bit_matrix
from transom.columns.record_batches import in_large_tables
from transom.kernel.aggregate import BatchPlan, late_rows

MISSED_BY = "missed_by"


def with_missed(table: pa.Table, plan: BatchPlan, keep: Sequence[str]) -> pa.Table:
    """The rows that some query missed: some of their columns, and the groups of queries that missed them."""
    late = late_rows(table, plan)
    return table.select(list(keep)).take(pa.array(late.at)).append_column(MISSED_BY, late.missed_by)


def late_task(shipped: ShippedPlan, keep: list[str]) -> Task:
    """A task that passes on the rows that some query missed, and which queries did."""

    def task(batches: RecordBatches) -> RecordBatches:
        plan = shipped.plan()
        for table in in_large_tables(batches):
            yield from with_missed(table, plan, keep).combine_chunks().to_batches()

    return task


def joined_bits(ids: NDArray[np.int64], parts: Sequence[tuple[int, pa.Table, str]]) -> pa.Array:
    """The bits of some rows over all branches of a batch, each with its groups, late rows and column of row ids.

    A join repeats rows: a query missed a row if it missed it once.
    """
    order = np.argsort(ids)
    found = np.zeros((len(ids), sum(groups for groups, _, _ in parts)), bool)
    first = 0
    for groups, table, row_id in parts:
        at = order[np.searchsorted(ids[order], table[row_id].to_numpy())]
        np.logical_or.at(found[:, first : first + groups], at, bit_matrix(table[MISSED_BY], groups))
        first += groups
    return bit_column(found)
