"""The sheets of a state or of a batch by their ids: some in stacks, the others as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.kernel.sheet_stack import SheetStack, StackShape, combine_stacks, empty_stack, stack_shape
from transom.kernel.sheets import combine, combine_tables, without
from transom.plan.layout import Layout

SliceColumns = tuple[Ints, Ints, Ints, Ints]  # selections, starts, stops and rows, selection by selection


class Sheets(Mapping[str, pa.Table]):
    """Sheets by their ids, as tables; a sheet of a stack becomes a table when it is read.

    A sheet of a stack that has no cells is not among them.
    """

    def __init__(self, tables: Mapping[str, pa.Table] | None = None, stacks: Sequence[SheetStack] = ()):
        self.tables: Mapping[str, pa.Table] = {} if tables is None else tables
        self.stacks = tuple(stacks)

    @classmethod
    def of(cls, sheets: Mapping[str, pa.Table]) -> Sheets:
        """Any sheets."""
        return sheets if isinstance(sheets, Sheets) else cls(sheets)

    @cached_property
    def _stacked(self) -> dict[str, tuple[SheetStack, int]]:
        """Where the sheets of stacks are."""
        places = {}
        for stack in self.stacks:
            is_filled = (stack.offsets[1:] > stack.offsets[:-1]).tolist()
            for (sheet, number), has_cells in zip(stack.shape.sheets.items(), is_filled, strict=True):
                if has_cells:
                    places[sheet] = stack, number
        return places

    @cached_property
    def _read(self) -> dict[str, pa.Table]:
        """The sheets of stacks that were read as tables."""
        return {}

    def __getitem__(self, sheet: str) -> pa.Table:
        if sheet in self.tables:
            return self.tables[sheet]
        if sheet not in self._read:
            stack, number = self._stacked[sheet]
            self._read[sheet] = stack.table(number)
        return self._read[sheet]

    def __contains__(self, sheet: object) -> bool:
        return sheet in self.tables or sheet in self._stacked

    def __iter__(self) -> Iterator[str]:
        yield from self.tables
        yield from self._stacked

    def __len__(self) -> int:
        return len(self.tables) + len(self._stacked)

    def __reduce__(self) -> tuple[type[Sheets], tuple[object, ...]]:
        return Sheets, (dict(self.tables), self.stacks)

    @property
    def cells(self) -> int:
        """The number of rows of all sheets."""
        return sum(map(len, self.stacks)) + sum(table.num_rows for table in self.tables.values())

    def with_tables(self, tables: Mapping[str, pa.Table]) -> Sheets:
        """The sheets with some others, or with others in their place."""
        if not tables:
            return self
        others, stacks = self._without(tables)
        return Sheets({**others, **tables}, stacks)

    def with_rows(self, layouts: Mapping[str, Layout], rows: Mapping[str, Sequence[pa.Table]]) -> Sheets:
        """The sheets with more rows, given by sheet. The rows of sheets in a stack are added to the stack."""
        sheets = self
        for added in combine_tables(layouts, rows):
            shape = added.shape
            alike = [stack for stack in sheets.stacks if stack.shape.layout.stack == shape.layout.stack]
            if len(alike) == 1 and shape.sheets.keys().isdisjoint(sheets.tables):
                (held,) = alike
                union = {layout.id: layout for layout in (*held.shape.layouts, *shape.layouts)}
                whole = combine_stacks(stack_shape(list(union.values())), [held, added])
                sheets = Sheets(sheets.tables, [whole if each is held else each for each in sheets.stacks])
                continue
            for number, layout in enumerate(shape.layouts):
                there = [sheets[layout.id]] if layout.id in sheets else []
                sheets = sheets.with_tables({layout.id: combine(layout, [*there, added.table(number)])})
        return sheets

    def without(self, sheets: Iterable[str]) -> Sheets:
        """The sheets without some of them."""
        return Sheets(*self._without(frozenset(sheets)))

    def _without(self, sheets: Iterable[str]) -> tuple[dict[str, pa.Table], list[SheetStack]]:
        """The tables and the stacks that are left; what is left of a stack are tables."""
        gone = set(sheets)
        tables = {sheet: table for sheet, table in self.tables.items() if sheet not in gone}
        stacks = []
        for stack in self.stacks:
            if gone.isdisjoint(stack.shape.sheets):
                stacks.append(stack)
            elif not stack.shape.sheets.keys() <= gone:
                places = ((sheet, place) for sheet, place in self._stacked.items() if place[0] is stack)
                tables |= {sheet: self[sheet] for sheet, _ in places if sheet not in gone}
        return tables, stacks

    def taken(self, shape: StackShape) -> tuple[SheetStack, Sheets]:
        """The sheets of a shape as one stack, and the others."""
        parts = self.parts_in(shape)
        if not parts:
            return empty_stack(shape), self
        whole = parts[0] if len(parts) == 1 else None
        if whole is not None and whole.shape is not shape:
            whole = whole.reshaped(shape)
        return combine_stacks(shape, parts) if whole is None else whole, self.without(shape.sheets)

    def parts_in(self, shape: StackShape) -> list[SheetStack]:
        """The sheets of a shape as stacks, which may have fewer sheets than it."""
        parts, stacks = [], []
        for stack in self.stacks:
            if not stack.fits(shape):
                stacks.append(stack)
            elif len(stack):
                parts.append(stack)
        others = Sheets(self.tables, stacks)
        if not shape.sheets.keys().isdisjoint(others):
            tables = [others.get(layout.id, layout.empty) for layout in shape.layouts]
            parts.append(SheetStack.of(shape, tables))
        return parts

    def with_stack(self, stack: SheetStack) -> Sheets:
        """The sheets with one more stack, if it has cells."""
        return Sheets(self.tables, [*self.stacks, stack]) if len(stack) else self

    def without_selections(self, selections: Mapping[str, Sequence[int]]) -> Sheets:
        """The sheets without the slices of some selections, which are given by sheet."""
        tables, stacks = dict(self.tables), []
        for stack in self.stacks:
            gone = [home for sheet in stack.shape.sheets for home in selections.get(sheet, ())]
            if gone:
                stack = stack.where(~np.isin(stack.selections, np.array(gone, np.int64)))
            if len(stack):
                stacks.append(stack)
        for sheet in selections.keys() & self.tables.keys():
            table = without(self.tables[sheet], selections[sheet])
            if table.num_rows:
                tables[sheet] = table
            else:
                del tables[sheet]
        return Sheets(tables, stacks)

    def selections(self) -> Iterator[Ints]:
        """The selections of all slices; of a stack, those of all of its sheets at once."""
        yield from (stack.selections for stack in self.stacks)
        yield from (one_array(table[SELECTION]).to_numpy() for table in self.tables.values())

    def slices_of(self, sheets: Iterable[str]) -> Iterator[SliceColumns]:
        """The slices of some sheets; of a stack, those of all of its sheets at once."""
        wanted = set(sheets)
        for stack in self.stacks:
            if len(stack) and not wanted.isdisjoint(stack.shape.sheets):
                yield stack.selections, stack.starts, stack.stops, stack.rows
        for sheet in wanted & self.tables.keys():
            table = self.tables[sheet]
            selections, starts, stops, rows = (
                one_array(table[name]).to_numpy() for name in (SELECTION, SLICE, STOP, ROWS)
            )
            yield selections, starts, stops, rows


def merged_sheets(layouts: Mapping[str, Layout], parts: Sequence[Mapping[str, pa.Table]]) -> Sheets:
    """The sheets of several tasks, or of several ways to aggregate rows."""
    several = [Sheets.of(part) for part in parts if part]
    if len(several) < 2:
        return several[0] if several else Sheets()
    stacks: dict[object, dict[str, Layout]] = {}
    for sheet in dict.fromkeys(sheet for part in several for sheet in part):
        stacks.setdefault(layouts[sheet].stack, {})[sheet] = layouts[sheet]
    merged = []
    for own in stacks.values():
        shape = stack_shape(list(own.values()))
        merged.append(combine_stacks(shape, [stack for part in several for stack in part.parts_in(shape)]))
    return Sheets(stacks=merged)
