"""ORDER BY ... LIMIT: which rows of each window are results, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.sort_order import sort_codes
from transom.sql.query import OrderKey, Query


def top_rows(
    order: Sequence[OrderKey],
    columns: Sequence[pa.ChunkedArray],
    groups: Sequence[pa.ChunkedArray],
    windows: Sequence[Ints],
    limits: Ints,
    with_ties: Mask | None = None,
) -> Ints:
    """The places of the first rows of each window, in order; row i may have `limits[i]` rows before and with it.

    Where `with_ties[i]` is set, only rows that are less in the order count as before it.

    `windows` are numbers that are equal for the rows of a window, `columns` the values of the order. Rows that are
    equal in it are in the order of their `groups`, so that the choice does not depend on the order of rows.
    """
    values: list[Ints] = []
    for key, column in zip(order, columns, strict=True):
        values += _ranks(key, one_array(column))
    ranks: list[Ints] = [*windows, *values]
    ranks += [sort_codes(one_array(column)) for column in groups]
    sequence = np.lexsort(ranks[::-1])
    starts, places = _run_starts(windows, sequence), np.arange(len(sequence))
    if with_ties is not None and with_ties.any():
        places = np.where(with_ties[sequence], _run_starts([*windows, *values], sequence), places)
    return sequence[places - starts < limits[sequence]]


def _run_starts(columns: Sequence[Ints], sequence: Ints) -> Ints:
    """For each place of a sequence of rows, the first place of those around it that are equal in some columns."""
    is_new = np.zeros(len(sequence), bool)
    is_new[:1] = True
    for numbers in columns:
        is_new[1:] |= np.diff(numbers[sequence]) != 0
    return np.maximum.accumulate(np.where(is_new, np.arange(len(sequence)), 0))


def _ranks(key: OrderKey, values: pa.Array) -> list[Ints]:
    """Numbers that sort rows by a term of ORDER BY: where nulls are, then by value."""
    codes = sort_codes(values)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return [np.where(is_null, not key.nulls_first, key.nulls_first), -codes if key.is_descending else codes]


def order_columns(query: Query) -> list[tuple[str, pa.DataType]]:
    """The columns with the values of ORDER BY that executors add to the results of their groups."""
    return [] if query.top is None else [(f"order {i}", key.type) for i, key in enumerate(query.top.order)]


def top_of_parts(query: Query, table: pa.Table) -> pa.Table:
    """The results of a query from those of parts of its groups, each with its own first rows."""
    if query.top is None:
        return table
    names = [name for name, _ in order_columns(query)]
    ends = [table.column(place).cast(pa.int64()).to_numpy() for place in (0, 1)]
    groups = [table[item.name] for item in query.items if item.is_key]
    limits = np.full(table.num_rows, query.top.limit)
    with_ties = np.full(table.num_rows, query.top.with_ties)
    chosen = top_rows(query.top.order, [table[name] for name in names], groups, ends, limits, with_ties)
    return table.take(pa.array(chosen)).drop_columns(names)
