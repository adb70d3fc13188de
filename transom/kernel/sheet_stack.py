"""Sheets with groups of the same types, one below the other, column by column.

A batch with few rows adds a few cells to each of many small sheets. What a step costs whatever it works on is then far
more than its cells, so each step works on all sheets of a stack at once. A sheet of a stack becomes a table when it is
read as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_not
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.numeric import NumericForm, Values, numeric_form, reduce_runs
from transom.aggregates.run_tree import RunTree
from transom.columns.arrays import (
    Ints,
    Mask,
    count_offsets,
    joined_array,
    one_array,
    plain_column,
    stacked,
    stacked_column,
)
from transom.columns.groups import densify, group
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.plan.layout import Layout
from transom.windows.sessions import run_heads

StackColumnKey = tuple[
    Accumulator, int
]  # the second state of the same accumulator on a sheet has the number 1


@dataclass(frozen=True, eq=False)
class StackColumn:
    """The states of one accumulator on all sheets that have it; `holds` says which sheets do."""

    accumulator: Accumulator
    form: NumericForm | None
    holds: Mask
    pattern: int  # columns of the same sheets have the same


class StackShape:
    """The layouts of the sheets of a stack, and the columns of states that these have together."""

    def __init__(self, layouts: Sequence[Layout]):
        self.layouts = tuple(layouts)
        self.sheets = {layout.id: number for number, layout in enumerate(layouts)}
        holders: dict[StackColumnKey, list[int]] = {}
        keys_of = []
        for number, layout in enumerate(layouts):
            keys = list(_column_keys(layout))
            keys_of.append(keys)
            for key in keys:
                holders.setdefault(key, []).append(number)
        self.column_numbers = {key: number for number, key in enumerate(holders)}
        self.columns_of = [tuple(map(self.column_numbers.__getitem__, keys)) for keys in keys_of]
        patterns: dict[tuple[int, ...], int] = {}
        self.columns: list[StackColumn] = []
        for (accumulator, _), sheets in holders.items():
            holds = np.zeros(len(layouts), bool)
            holds[sheets] = True
            pattern = patterns.setdefault(tuple(sheets), len(patterns))
            self.columns.append(StackColumn(accumulator, numeric_form(accumulator), holds, pattern))
        self._numbers: WeakKeyDictionary[StackShape, Ints] = WeakKeyDictionary()

    @property
    def layout(self) -> Layout:
        """The first layout: all have the same groups."""
        return self.layouts[0]

    def numbers_in(self, other: StackShape) -> Ints:
        """The number of each sheet in another shape; -1 for those that are not there."""
        numbers = self._numbers.get(other)
        if numbers is None:
            found = [other.sheets.get(sheet, -1) for sheet in self.sheets]
            numbers = self._numbers[other] = np.array(found, np.int64)
        return numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return stack_shape, (self.layouts,)


_shapes: WeakValueDictionary[tuple[str, ...], StackShape] = WeakValueDictionary()


def stack_shape(layouts: Sequence[Layout]) -> StackShape:
    """The shape of some layouts; the same object while it is in use."""
    ids = tuple(layout.id for layout in layouts)
    shape = _shapes.get(ids)
    if shape is None or any(map(is_not, shape.layouts, layouts)):
        shape = _shapes[ids] = StackShape(layouts)
    return shape


def _column_keys(layout: Layout) -> Iterator[StackColumnKey]:
    seen: dict[Accumulator, int] = {}
    for accumulator in layout.accumulators:
        number = seen.get(accumulator, 0)
        seen[accumulator] = number + 1
        yield accumulator, number


@dataclass(frozen=True, eq=False)
class NumberStates:
    """States with a numeric form: numbers with the identity in place of nulls, and which are not null, None: all."""

    form: NumericForm
    values: Values
    valid: Mask | None

    @classmethod
    def of(cls, form: NumericForm, arrays: States) -> NumberStates:
        return cls(form, *form.values(arrays[0]))

    @classmethod
    def concatenated(cls, parts: Sequence[NumberStates]) -> NumberStates:
        if len(parts) == 1:
            return parts[0]
        valid = None
        if any(part.valid is not None for part in parts):
            every = (np.ones(len(p.values), bool) if p.valid is None else p.valid for p in parts)
            valid = np.concatenate(list(every))
        return cls(parts[0].form, np.concatenate([part.values for part in parts]), valid)

    def chosen(self, at: Ints | Mask) -> NumberStates:
        return NumberStates(self.form, self.values[at], None if self.valid is None else self.valid[at])

    def merged(self, heads: Ints) -> NumberStates:
        """The states of each run of rows, combined; runs begin at the heads."""
        valid = None if self.valid is None else np.logical_or.reduceat(self.valid, heads)
        return NumberStates(self.form, self.form.ufunc.reduceat(self.values, heads), valid)

    def over(self, runs: RunTree) -> States:
        """The states of some runs, combined."""
        present, places = None, (runs.starts, runs.stops)
        if self.valid is not None:
            present = reduce_runs(np.add, self.valid.astype(np.int64), places) > 0
        return [self.form.column(reduce_runs(self.form.ufunc, self.values, places), present)]

    def arrays(self) -> States:
        """The states as Arrow columns."""
        return [self.form.column(self.values, self.valid)]


@dataclass(frozen=True, eq=False)
class ArrowStates:
    """States of any kind, as Arrow columns."""

    accumulator: Accumulator
    parts: States

    @classmethod
    def concatenated(cls, parts: Sequence[ArrowStates]) -> ArrowStates:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part.parts for part in parts), strict=True)
        return cls(parts[0].accumulator, [pa.concat_arrays(column) for column in columns])

    def chosen(self, at: Ints | Mask) -> ArrowStates:
        places = pa.array(np.flatnonzero(at) if at.dtype == bool else at)
        return ArrowStates(self.accumulator, [part.take(places) for part in self.parts])

    def merged(self, heads: Ints) -> ArrowStates:
        """The states of each run of rows, combined; runs begin at the heads."""
        codes = np.zeros(len(self.parts[0]), np.int64)
        codes[heads] = 1
        combined = self.accumulator.combine(self.parts, np.cumsum(codes) - 1, len(heads))
        return ArrowStates(self.accumulator, combined)

    def over(self, runs: RunTree) -> States:
        """The states of some runs, combined."""
        return runs.combine(self.accumulator, self.parts)

    def arrays(self) -> States:
        """The states as Arrow columns."""
        return self.parts


StackStates = NumberStates | ArrowStates


def stack_states(column: StackColumn, arrays: States) -> StackStates:
    """The states of a column, given as Arrow columns."""
    if column.form is None:
        return ArrowStates(column.accumulator, arrays)
    return NumberStates.of(column.form, arrays)


def _no_states(column: StackColumn) -> StackStates:
    return stack_states(column, [pa.array([], kind) for kind in column.accumulator.types()])


def _concatenated(parts: Sequence[StackStates]) -> StackStates:
    return type(parts[0]).concatenated(parts)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class SheetStack:
    """The cells of sheets, sheet by sheet: those of sheet `i` are rows `offsets[i]` to `offsets[i + 1]`.

    A column of states has those of the cells whose sheets hold it, in the order of the cells.
    """

    shape: StackShape
    offsets: Ints
    selections: Ints
    starts: Ints
    stops: Ints
    keys: Sequence[pa.Array]
    rows: Ints
    states: Sequence[StackStates]

    @classmethod
    def of(cls, shape: StackShape, tables: Sequence[pa.Table]) -> SheetStack:
        """Sheets given as tables: one for each layout of the shape."""
        columns = [
            stack_states(column, list(map(joined_array, zip(*_parts(shape, number, tables), strict=True))))
            for number, column in enumerate(shape.columns)
        ]
        selections, starts, stops, rows = (stacked(tables, name) for name in (SELECTION, SLICE, STOP, ROWS))
        keys = [stacked_column(tables, name) for name in shape.layout.key_names]
        offsets = np.cumsum([0, *(table.num_rows for table in tables)])
        return cls(shape, offsets, selections, starts, stops, keys, rows, columns)

    def __len__(self) -> int:
        return len(self.selections)

    @cached_property
    def sheet_of(self) -> Ints:
        """The number of each cell's sheet."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def sheets_in(self, shape: StackShape) -> Ints:
        """The number of each cell's sheet in another shape; -1 for sheets that are not there."""
        return self.sheet_of if shape is self.shape else self.shape.numbers_in(shape)[self.sheet_of]

    def fits(self, shape: StackShape) -> bool:
        """Whether all sheets that have cells are in another shape."""
        return shape is self.shape or not bool((self.sheets_in(shape) < 0).any())

    def reshaped(self, shape: StackShape) -> SheetStack | None:
        """The same cells in another shape that they fit; None if it has their sheets in another order."""
        sheets = self.sheets_in(shape)
        if (sheets[1:] < sheets[:-1]).any():
            return None
        numbers = map(self.shape.column_numbers.get, shape.column_numbers)
        moved = replace(
            self,
            shape=shape,
            offsets=np.searchsorted(sheets, np.arange(len(shape.layouts) + 1)),
            states=[
                _no_states(column) if number is None else self.states[number]
                for column, number in zip(shape.columns, numbers, strict=True)
            ],
        )
        if "groups" in vars(self):
            vars(moved)["groups"] = self.groups
        return moved

    @cached_property
    def groups(self) -> Ints | None:
        """Cells of the same group have the same code; None if all are of one group."""
        return group(self.keys, len(self)).codes if self.keys and len(self) else None

    def where(self, is_kept: Mask) -> SheetStack:
        """The stack with some of its cells."""
        kept = np.flatnonzero(is_kept)
        masks: dict[int, Mask] = {}
        states = []
        for column, own in zip(self.shape.columns, self.states, strict=True):
            if column.pattern not in masks:
                masks[column.pattern] = is_kept[column.holds[self.sheet_of]]
            states.append(own.chosen(masks[column.pattern]))
        at = pa.array(kept) if self.keys else None
        left = SheetStack(
            self.shape,
            count_offsets(is_kept.astype(np.int64))[self.offsets],
            self.selections[kept],
            self.starts[kept],
            self.stops[kept],
            [key.take(at) for key in self.keys],
            self.rows[kept],
            states,
        )
        if "groups" in vars(self) and self.groups is not None:
            vars(left)["groups"] = self.groups[kept]  # the codes still tell groups apart
        return left

    def places(self, sheets: Mask) -> Ints:
        """What to take from a cell's number for its place in a column that some sheets hold, by sheet."""
        return self.offsets[:-1] - count_offsets(np.where(sheets, np.diff(self.offsets), 0))[:-1]

    def alone(self, number: int) -> SheetStack:
        """One of the sheets by itself, over memory of its own."""
        start, stop = self.offsets[number : number + 2].tolist()
        at, states = pa.array(np.arange(start, stop)) if self.keys else None, []
        for place in self.shape.columns_of[number]:
            first = start - self._before[self.shape.columns[place].pattern][number]
            states.append(self.states[place].chosen(np.arange(first, first + stop - start)))
        shape = stack_shape([self.shape.layouts[number]])
        # The shape of one layout has its columns in the order of the accumulators.
        return SheetStack(
            shape,
            np.array([0, stop - start]),
            self.selections[start:stop].copy(),
            self.starts[start:stop].copy(),
            self.stops[start:stop].copy(),
            [key.take(at) for key in self.keys],
            self.rows[start:stop].copy(),
            states,
        )

    def table(self, number: int) -> pa.Table:
        """One of the sheets, over the memory of the stack."""
        layout, (start, stop) = self.shape.layouts[number], self.offsets[number : number + 2].tolist()
        before, size = self._before, stop - start
        columns = [array.slice(start, size) for array in self._arrays]
        for place in self.shape.columns_of[number]:
            first = start - before[self.shape.columns[place].pattern][number]
            columns += [array.slice(first, size) for array in self._state_arrays[place]]
        return pa.Table.from_arrays(columns, schema=layout.schema)

    @cached_property
    def _arrays(self) -> list[pa.Array]:
        """The columns of all sheets, apart from states."""
        numbers = [plain_column(each) for each in (self.selections, self.starts, self.stops)]
        return [*numbers, *self.keys, plain_column(self.rows)]

    @cached_property
    def _state_arrays(self) -> list[States]:
        return [own.arrays() for own in self.states]

    @cached_property
    def _before(self) -> dict[int, list[int]]:
        """By pattern, what to take from the number of a cell of each sheet for its place in a column."""
        patterns = {column.pattern: column.holds for column in self.shape.columns}
        return {pattern: self.places(holds).tolist() for pattern, holds in patterns.items()}


def empty_stack(shape: StackShape) -> SheetStack:
    """A stack without cells."""
    return SheetStack.of(shape, [layout.empty for layout in shape.layouts])


def combine_stacks(shape: StackShape, parts: Sequence[SheetStack]) -> SheetStack:
    """The cells of several stacks on the sheets of one shape; equal slices of a group are combined.

    The shape has all sheets of the parts. Cells are sorted by sheet, selection, group and start.
    """
    sheet_of = np.concatenate([part.sheets_in(shape) for part in parts])
    selections, starts, stops, rows = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("selections", "starts", "stops", "rows")
    )
    keys = [joined_array(columns) for columns in zip(*(part.keys for part in parts), strict=True)]
    groups = group(keys, len(sheet_of)).codes if keys and len(sheet_of) else None
    order, is_head = _in_order(shape.layout, sheet_of, selections, groups, starts, stops)
    is_merged = not is_head.all()
    heads = np.flatnonzero(is_head)
    firsts = order[heads]
    with np.errstate(invalid="ignore"):  # NaN and infinities are numbers like others here
        states = _combined_states(shape, parts, sheet_of, order, is_head if is_merged else None)
    at = pa.array(firsts) if keys else None
    combined = SheetStack(
        shape,
        np.searchsorted(sheet_of[firsts], np.arange(len(shape.layouts) + 1)),
        selections[firsts],
        starts[firsts],
        np.maximum.reduceat(stops[order], heads) if is_merged else stops[order],
        [key.take(at) for key in keys],
        np.add.reduceat(rows[order], heads) if is_merged else rows[order],
        states,
    )
    if groups is not None:
        vars(combined)["groups"] = groups[firsts]
    return combined


def _combined_states(
    shape: StackShape, parts: Sequence[SheetStack], sheet_of: Ints, order: Ints, is_head: Mask | None
) -> list[StackStates]:
    """The states in the order of the cells, combined in runs if some cells have several; they begin at heads."""
    orders: dict[int, tuple[Ints, Ints | None]] = {}  # by pattern
    states = []
    for key, column in zip(shape.column_numbers, shape.columns, strict=True):
        if column.pattern not in orders:
            orders[column.pattern] = _order_within(column.holds[sheet_of], order, is_head)
        own_order, heads = orders[column.pattern]
        numbers = (part.shape.column_numbers.get(key) for part in parts)
        own = [part.states[n] for part, n in zip(parts, numbers, strict=True) if n is not None]
        chosen = _concatenated(own or [_no_states(column)]).chosen(own_order)
        states.append(chosen if heads is None or not len(heads) else chosen.merged(heads))
    return states


def _order_within(is_held: Mask, order: Ints, is_head: Mask | None) -> tuple[Ints, Ints | None]:
    """The order of some of the cells, counted among themselves, and the heads of runs in it."""
    if is_held.all():
        return order, None if is_head is None else np.flatnonzero(is_head)
    in_order = is_held[order]
    own_order = (np.cumsum(is_held) - 1)[order[in_order]]
    return own_order, None if is_head is None else np.flatnonzero(is_head[in_order])


def _in_order(
    layout: Layout, sheet_of: Ints, selections: Ints, groups: Ints | None, starts: Ints, stops: Ints
) -> tuple[Ints, Mask]:
    """The order of cells by sheet, selection, group and start, and which of them begin a slice in it.

    Cells of sessions that are at most the gap apart are one. Sheets that are not merged keep every cell.
    """
    if not len(sheet_of):
        return np.empty(0, np.int64), np.empty(0, bool)
    low = int(selections.min())
    codes = sheet_of * (int(selections.max()) - low + 1) + selections - low
    size = int(codes.max()) + 1
    if groups is not None:
        count = int(groups.max()) + 1
        codes, size = codes * count + groups, size * count
    if layout.gap is not None:
        lanes, _ = densify(codes, size)
        order = np.lexsort((starts, lanes))
        is_head = np.zeros(len(order), bool)
        is_head[run_heads(lanes[order], starts[order], stops[order], layout.gap)] = True
        return order, is_head
    first, last = int(starts.min()), int(starts.max())
    if size * (last - first + 1) >= 2**62:  # slices that are far apart
        codes = group([codes, starts], len(codes)).codes
    else:
        codes = codes * (last - first + 1) + starts - first
    order = np.argsort(codes, kind="stable")  # rows that are mostly in order are merged, not sorted
    is_head = np.ones(len(codes), bool)
    if layout.merged:
        codes = codes[order]
        np.not_equal(codes[1:], codes[:-1], out=is_head[1:])
    return order, is_head


def _parts(shape: StackShape, number: int, tables: Sequence[pa.Table]) -> Iterator[States]:
    """The states of a column on each sheet that has it."""
    for sheet, columns in enumerate(shape.columns_of):
        if number in columns:
            names = shape.layouts[sheet].columns(columns.index(number))
            yield [one_array(tables[sheet][name]) for name in names]
