"""Layouts of sheets: selections whose groups and accumulators have the same types share a sheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, columns_in_moments
from transom.aggregates.numeric import NumericForm, numeric_form
from transom.columns.table_columns import (
    ROWS,
    SELECTION,
    SLICE,
    STOP,
    group_columns,
    is_state_column,
    state_column,
)
from transom.columns.type_ids import type_id
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.slot_sources import source_slot


@dataclass(frozen=True)
class Layout:
    """The stream, the group types and the accumulators of a sheet; one that is not `merged` keeps every row.

    A sheet with a `gap` holds sessions in place of slices: runs of rows that are at most the gap apart. One that is
    `keyed` holds the last rows of each group, in the order of their numbers in the stream; where a slice stops, it has
    the number of rows that the group has had, up to and with this one.
    """

    stream: str
    keys: tuple[pa.DataType, ...]
    accumulators: tuple[Accumulator, ...]
    merged: bool = True
    gap: int | None = None
    keyed: bool = False

    @classmethod
    def of(cls, query: CompiledQuery, slots: Iterable[Slot]) -> Layout:
        """The layout for a query's groups and some slots. Equal layouts are one object, with one schema."""
        slots = tuple(slots)
        bound, is_merged = query.query, not query.naive and not query.is_keyed
        parts = (
            bound.stream,
            bound.keys,
            tuple([slot.id for slot in slots]),
            is_merged,
            query.gap,
            query.is_keyed,
        )
        layout = _layouts_by_parts.get(parts)
        if layout is None:
            types = tuple(key.scalar.type for key in bound.keys)
            accumulators = tuple(slot.accumulator for slot in slots)
            layout = cls(bound.stream, types, accumulators, is_merged, query.gap, query.is_keyed)
            living = _layouts.get(layout.id)
            if living is None or living != layout:
                living = _layouts[layout.id] = layout
            layout = _layouts_by_parts[parts] = living
        return layout

    @cached_property
    def id(self) -> str:
        """The id of the sheet in checkpoints and in every process.

        >>> Layout("bids", (pa.int32(),), ()).id
        'slices of bids by [int] with []'
        """
        rows = "slices" if self.merged else "rows"
        if self.gap is not None:
            rows = f"sessions of {self.gap}"
        if self.keyed:
            rows = "last rows"
        accumulators = ", ".join(accumulator.id for accumulator in self.accumulators)
        return f"{rows} of {self.stream} by [{', '.join(self.group_types)}] with [{accumulators}]"

    @property
    def stack(self) -> tuple[object, ...]:
        """What sheets have in common that can be worked on together."""
        return self.stream, self.keys, self.merged, self.gap, self.keyed

    @cached_property
    def group_types(self) -> tuple[str, ...]:
        """The ids of the types of the group columns."""
        return tuple(map(type_id, self.keys))

    @cached_property
    def schema(self) -> pa.Schema:
        """The selection, where its slice starts and stops, the group columns, the tuples and the states."""
        fields = [pa.field(name, pa.int64()) for name in (SELECTION, SLICE, STOP)]
        fields += [pa.field(name, key) for name, key in zip(self.key_names, self.keys, strict=True)]
        fields.append(pa.field(ROWS, pa.int64()))
        for i in range(len(self.accumulators)):
            types = self.accumulators[i].types()
            fields += [pa.field(name, kind) for name, kind in zip(self.columns(i), types, strict=True)]
        return pa.schema(fields)

    @cached_property
    def empty(self) -> pa.Table:
        """A sheet without slices."""
        return self.schema.empty_table()

    @cached_property
    def closed_schema(self) -> pa.Schema:
        """The columns of closed windows: the reader, the window's id, the group, the rows and the states."""
        fields = [pa.field("reader", pa.int64()), pa.field("wid", pa.int64()), *list(self.schema)[3:]]
        return pa.schema(fields)

    @cached_property
    def key_names(self) -> list[str]:
        """The names of the group columns."""
        return group_columns(len(self.keys))

    @cached_property
    def forms(self) -> tuple[NumericForm | None, ...]:
        """The numeric form of each accumulator that has one."""
        return tuple(map(numeric_form, self.accumulators))

    def columns(self, accumulator: int) -> list[str]:
        """The state columns of the accumulator at a place."""
        return self._columns[accumulator]

    @cached_property
    def _columns(self) -> list[list[str]]:
        return [state_columns(accumulator, i) for i, accumulator in enumerate(self.accumulators)]

    def __getstate__(self) -> dict[str, object]:
        """What tasks need: not the forms, whose functions some Python versions can't pickle."""
        return {name: value for name, value in self.__dict__.items() if name != "forms"}


_layouts: WeakValueDictionary[str, Layout] = WeakValueDictionary()
_layouts_by_parts: WeakValueDictionary[object, Layout] = WeakValueDictionary()


def layout_in_use(sheet: str) -> Layout | None:
    """The layout of a sheet, by its id, if a plan has it."""
    return _layouts.get(sheet)


def state_columns(accumulator: Accumulator, place: int) -> list[str]:
    """The state columns of an accumulator at a place."""
    return [state_column(place, part) for part in range(len(accumulator.types()))]


def source_columns(slot: Slot, places: Mapping[str, int]) -> tuple[str, ...]:
    """The columns to read a slot's state from, in a table that keeps slots at these places."""
    source = source_slot(slot, places)
    assert source is not None
    names = state_columns(source.accumulator, places[source.id])
    if source.id == slot.id:
        return tuple(names)
    parts = columns_in_moments(slot.accumulator)
    assert parts is not None
    return tuple(names[part] for part in parts)


def with_slots(table: pa.Table, old: Sequence[str], new: Sequence[Slot]) -> pa.Table:
    """The rows of a sheet or shard with other slots: a slot without a source begins with its identity.

    `old` are the ids of the slots in the table.
    """
    places = {slot_id: i for i, slot_id in enumerate(old)}
    columns = {name: table[name] for name in table.column_names if not is_state_column(name)}
    for i, slot in enumerate(new):
        names = state_columns(slot.accumulator, i)
        if source_slot(slot, places) is not None:
            states = [table[name] for name in source_columns(slot, places)]
        else:
            identity = zip(slot.accumulator.identity(), slot.accumulator.types(), strict=True)
            states = [pa.repeat(pa.scalar(value, kind), table.num_rows) for value, kind in identity]
        columns.update(zip(names, states, strict=True))
    return pa.table(columns)
