"""Sheets: tables of shared slices, one row for each selection, group and slice, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import CountRows, reduce_groups
from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.plan.layout import Layout


def combine(layout: Layout, tables: Iterable[pa.Table]) -> pa.Table:
    """The slices of several tables on one sheet."""
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return layout.schema.empty_table()
    table = pa.concat_tables(filled).combine_chunks()
    columns = [one_array(table[name]) for name in (SELECTION, *layout.key_names, SLICE)]
    groups = group(
        [column.to_numpy() if i in (0, len(columns) - 1) else column for i, column in enumerate(columns)],
        table.num_rows,
    )
    if not layout.merged:
        return table.take(pa.array(np.argsort(groups.codes, kind="stable"))).combine_chunks()
    if groups.count == table.num_rows:
        return table.take(pa.array(groups.firsts)).combine_chunks()
    stops = reduce_groups(one_array(table[STOP]), groups.codes, groups.count, "max")
    found = regroup(layout, table, groups.codes, groups.firsts, [SELECTION, SLICE])
    return found.add_column(2, STOP, stops)


def regroup(layout: Layout, table: pa.Table, codes: Ints, firsts: Ints, leading: Sequence[str]) -> pa.Table:
    """The rows of a sheet combined by code; keys and leading columns are those of `firsts`."""
    groups = len(firsts)
    at = pa.array(firsts)
    columns = {name: one_array(table[name]).take(at) for name in (*leading, *layout.key_names)}
    columns[ROWS] = CountRows().combine([one_array(table[ROWS])], codes, groups)[0]
    for i, accumulator in enumerate(layout.accumulators):
        names = layout.columns(i)
        states = accumulator.combine([one_array(table[name]) for name in names], codes, groups)
        columns.update(zip(names, states, strict=True))
    return pa.table(columns)


def lanes(layout: Layout, table: pa.Table) -> Ints:
    """Where each lane (the slices of one selection and group) starts, and where the last one ends."""
    if not table.num_rows:
        return np.zeros(1, np.int64)
    selections = one_array(table[SELECTION]).to_numpy()
    changes = selections[1:] != selections[:-1]
    if layout.keys:
        codes = group([one_array(table[name]) for name in layout.key_names], table.num_rows).codes
        changes |= codes[1:] != codes[:-1]
    return np.r_[0, np.flatnonzero(changes) + 1, table.num_rows]


def rows_of(table: pa.Table, selection: int) -> pa.Table:
    """The slices of one selection."""
    selections = table[SELECTION].to_numpy()
    start, stop = np.searchsorted(selections, [selection, selection + 1])
    return table.slice(start, stop - start)


def without(table: pa.Table, selections: Iterable[int]) -> pa.Table:
    """A sheet without the slices of some selections."""
    gone = pa.array(list(selections), pa.int64())
    return table.filter(pc.invert(pc.is_in(table[SELECTION], gone))) if len(gone) else table


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
