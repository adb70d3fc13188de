"""Sheets: tables of shared slices, one row for each selection, group and slice, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import CountRows
from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import ROWS, SELECTION
from transom.kernel.sheet_stack import SheetStack, combine_stacks, stack_shape
from transom.plan.layout import Layout


def combine(layout: Layout, tables: Iterable[pa.Table]) -> pa.Table:
    """The slices of several tables on one sheet."""
    return combine_sheets({layout.id: layout}, {layout.id: list(tables)})[layout.id]


def combine_sheets(
    layouts: Mapping[str, Layout], parts: Mapping[str, Sequence[pa.Table]]
) -> dict[str, pa.Table]:
    """The slices of several tables on each sheet, each a table over memory of its own."""
    combined = {sheet: layouts[sheet].empty for sheet in parts}
    for stack in combine_tables(layouts, parts):
        is_alone = len(stack.shape.layouts) == 1
        for number, sheet in enumerate(stack.shape.sheets):
            combined[sheet] = stack.table(number) if is_alone else stack.alone(number).table(0)
    return combined


def combine_tables(
    layouts: Mapping[str, Layout], parts: Mapping[str, Sequence[pa.Table]]
) -> Iterator[SheetStack]:
    """The slices of several tables on each sheet, in stacks.

    Sheets with groups of the same types are sorted in one step: for small sheets, each step costs more than its rows.
    """
    stacks: dict[object, dict[str, pa.Table]] = {}
    for sheet, tables in parts.items():
        filled = [table for table in tables if table.num_rows]
        if filled:
            whole = filled[0] if len(filled) == 1 else pa.concat_tables(filled)
            stacks.setdefault(layouts[sheet].stack, {})[sheet] = whole
    for stack in stacks.values():
        shape = stack_shape([layouts[sheet] for sheet in stack])
        yield combine_stacks(shape, [SheetStack.of(shape, list(stack.values()))])


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


def rows_of(table: pa.Table, selection: int) -> pa.Table:
    """The slices of one selection."""
    selections = table[SELECTION].to_numpy()
    start, stop = np.searchsorted(selections, [selection, selection + 1])
    return table.slice(start, stop - start)


def without(table: pa.Table, selections: Iterable[int]) -> pa.Table:
    """A sheet without the slices of some selections."""
    gone = pa.array(list(selections), pa.int64())
    return table.filter(pc.invert(pc.is_in(table[SELECTION], gone))) if len(gone) else table
