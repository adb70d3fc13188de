"""Sheets: tables of shared slices, one row for each selection, group and slice, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import CountRows
from transom.columns.arrays import Ints, plain_column
from transom.columns.groups import group
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.plan.layout import Layout
from transom.windows.sessions import run_heads


def combine(layout: Layout, tables: Iterable[pa.Table]) -> pa.Table:
    """The slices of several tables on one sheet."""
    return combine_sheets({layout.id: layout}, {layout.id: list(tables)})[layout.id]


def combine_sheets(
    layouts: Mapping[str, Layout], parts: Mapping[str, Sequence[pa.Table]]
) -> dict[str, pa.Table]:
    """The slices of several tables on each sheet.

    Sheets with groups of the same types are sorted in one step: for small sheets, each step costs more than its rows.
    """
    combined: dict[str, pa.Table] = {}
    stacks: dict[tuple[bool, int | None, tuple[pa.DataType, ...]], dict[str, list[pa.Table]]] = {}
    for sheet, tables in parts.items():
        layout, filled = layouts[sheet], [table for table in tables if table.num_rows]
        if filled:
            stacks.setdefault((layout.merged, layout.gap, layout.keys), {})[sheet] = filled
        else:
            combined[sheet] = layout.schema.empty_table()
    with np.errstate(invalid="ignore"):  # NaN and infinities are numbers like others here
        for stack in stacks.values():
            combined |= _combined_stack(layouts, stack)
    return combined


def _combined_stack(
    layouts: Mapping[str, Layout], stack: Mapping[str, Sequence[pa.Table]]
) -> Iterator[tuple[str, pa.Table]]:
    """Combine sheets whose groups have the same types."""
    any_layout = layouts[next(iter(stack))]
    tables = [table for parts in stack.values() for table in parts]
    selections, starts, stops, rows = (stacked(tables, name) for name in (SELECTION, SLICE, STOP, ROWS))
    sizes = [sum(table.num_rows for table in parts) for parts in stack.values()]
    keys = [pa.concat_arrays([one_array(table[name]) for table in tables]) for name in any_layout.key_names]
    places = np.repeat(np.arange(len(sizes)), sizes)
    if any_layout.gap is None:
        order, heads = _in_order(places, selections, keys, starts)
    else:
        order, heads = _runs_in_order(places, selections, keys, starts, stops, any_layout.gap)
    ends = np.cumsum(sizes)
    if not any_layout.merged:
        heads = np.arange(len(order))
    firsts = order[heads]
    selections, starts = selections[firsts], starts[firsts]
    is_merged = len(heads) < len(order)
    stops = np.maximum.reduceat(stops[order], heads) if is_merged else stops[order]
    rows = np.add.reduceat(rows[order], heads) if is_merged else rows[order]
    first_heads = np.searchsorted(heads, [0, *ends])
    for i, (sheet, parts) in enumerate(stack.items()):
        start, (low, high) = int(ends[i]) - sizes[i], first_heads[i : i + 2].tolist()
        picked = order[start : start + sizes[i]] - start
        runs = heads[low:high] - start if high - low < sizes[i] else None
        at = pa.array(firsts[low:high])
        columns = [plain_column(numbers[low:high].copy()) for numbers in (selections, starts, stops)]
        columns += [key.take(at) for key in keys]
        columns.append(plain_column(rows[low:high].copy()))
        columns += _combined_states(layouts[sheet], parts, picked, runs)
        yield sheet, pa.Table.from_arrays(columns, schema=layouts[sheet].schema)


def _in_order(places: Ints, selections: Ints, keys: Sequence[pa.Array], starts: Ints) -> tuple[Ints, Ints]:
    """The order of rows by sheet, selection, group and start, and where each slice begins in it."""
    low = int(selections.min())
    codes, size = places * (int(selections.max()) - low + 1) + selections - low, 0
    size = int(codes.max()) + 1
    if keys:
        groups = group(keys, len(places))
        codes, size = codes * groups.count + groups.codes, size * groups.count
    first, last = int(starts.min()), int(starts.max())
    if size * (last - first + 1) >= 2**62:  # slices that are far apart
        codes = group([codes, starts], len(codes)).codes
    else:
        codes = codes * (last - first + 1) + starts - first
    order = np.argsort(codes, kind="stable")  # rows that are mostly in order are merged, not sorted
    codes = codes[order]
    is_head = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=is_head[1:])
    return order, np.flatnonzero(is_head)


def _runs_in_order(
    places: Ints, selections: Ints, keys: Sequence[pa.Array], starts: Ints, stops: Ints, gap: int
) -> tuple[Ints, Ints]:
    """The same for sessions: cells that are at most the gap apart are one."""
    lanes = group([places, selections, *keys], len(places)).codes
    order = np.lexsort((starts, lanes))
    return order, run_heads(lanes[order], starts[order], stops[order], gap)


def _combined_states(
    layout: Layout, tables: Sequence[pa.Table], picked: Ints, runs: Ints | None
) -> Iterator[pa.Array]:
    """The states of a sheet: those of the picked rows, combined in runs if some have several rows."""
    codes: Ints | None = None
    for i, accumulator in enumerate(layout.accumulators):
        states = [stacked_column(tables, name) for name in layout.columns(i)]
        form = layout.forms[i]
        if runs is None and (form is None or states[0].null_count):
            yield from (state.take(pa.array(picked)) for state in states)
        elif form is None and runs is not None:
            if codes is None:
                codes = np.zeros(len(picked), np.int64)
                codes[runs] = 1
                codes = np.cumsum(codes) - 1
            at = pa.array(picked)
            yield from accumulator.combine([state.take(at) for state in states], codes, len(runs))
        elif form is not None:
            numbers, valid = form.values(states[0])
            numbers, present = numbers[picked], None if valid is None else valid[picked]
            if runs is not None:
                numbers = form.ufunc.reduceat(numbers, runs)
                present = None if present is None else np.logical_or.reduceat(present, runs)
            yield form.column(numbers, present)


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


def stacked(tables: Sequence[pa.Table], name: str) -> Ints:
    """A column of integers of several tables, one after the other."""
    return np.concatenate([one_array(table[name]).to_numpy() for table in tables])


def stacked_column(tables: Sequence[pa.Table], name: str) -> pa.Array:
    """A column of several tables, one after the other."""
    arrays = [one_array(table[name]) for table in tables]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
