"""The value of the first or the last row in an order, and extremes of structs and arrays.

`first` and `last` order rows by time, `min_by` and `max_by` by another value. Rows that are equal in this order are
ordered by the value itself, so that the answer does not depend on how rows were split into batches and tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.table import AggregateFunction, Parameters
from transom.columns.sort_order import sort_codes
from transom.columns.type_ids import type_id
from transom.columns.types import has_sort_order


def row_choices(order: Sequence[pa.Array], codes: Codes, groups: int, is_last: bool) -> pa.Array:
    """The place of each group's first or last row in an order; null for a group without rows."""
    ranked = np.lexsort([*(sort_codes(column) for column in reversed(order)), codes])
    places = np.full(groups, -1, np.int64)
    ordered = codes[ranked]
    ends = np.ones(len(ordered), bool)
    if is_last:
        ends[:-1] = ordered[1:] != ordered[:-1]
    else:
        ends[1:] = ordered[1:] != ordered[:-1]
    places[ordered[ends]] = ranked[ends]
    return pa.array(places, mask=places < 0)


@dataclass(frozen=True)
class ExtremeRow:
    """The key and the value of the row whose key is the least or the greatest; rows without a key do not count."""

    key: pa.DataType
    value: pa.DataType
    end: str  # "first" or "last"

    @property
    def traits(self) -> AccumulatorTraits:
        return AccumulatorTraits()

    @property
    def label(self) -> str:
        return f"{self.end}_row"

    @property
    def id(self) -> str:
        return f"{self.label}({type_id(self.key)},{type_id(self.value)})"

    def types(self) -> list[pa.DataType]:
        return [self.key, self.value]

    def identity(self) -> list[object]:
        return [None, None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        return self.combine([fields.get("t", fields.get("o")), fields["x"]], codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        valid = states[0].is_valid().to_numpy(zero_copy_only=False)
        keys, values = (state.filter(pa.array(valid)) for state in states)
        at = row_choices([keys, values], codes[valid], groups, self.end == "last")
        return [keys.take(at), values.take(at)]


@dataclass(frozen=True)
class ExtremeValue:
    """The least or the greatest struct or array that is not null, part by part; a null part is the least."""

    input: pa.DataType
    function: str  # "min" or "max"

    @property
    def traits(self) -> AccumulatorTraits:
        return AccumulatorTraits()

    @property
    def label(self) -> str:
        return self.function

    @property
    def id(self) -> str:
        return f"{self.label}({type_id(self.input)})"

    def types(self) -> list[pa.DataType]:
        return [self.input]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        return self.combine([values], codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        valid = states[0].is_valid().to_numpy(zero_copy_only=False)
        values = states[0].filter(pa.array(valid))
        return [values.take(row_choices([values], codes[valid], groups, self.function == "max"))]


# --- the functions ---------------------------------------------------------------------------------


def _fields(kind: pa.DataType | None, names: Sequence[str]) -> list[pa.DataType] | None:
    if kind is None or not pa.types.is_struct(kind) or [field.name for field in kind] != list(names):
        return None
    return [kind.field(name).type for name in names]


def _by_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    fields = _fields(kind, ("x", "o"))
    if fields is None:
        return "needs a value and what to order it by"
    for each in fields:
        if not has_sort_order(each):
            return f"can't compare values of type {each}"
    return fields[0]


def _time_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    fields = _fields(kind, ("t", "x"))
    if fields is None:
        return "needs a value of a row with a time"
    return fields[1] if has_sort_order(fields[1]) else f"can't compare values of type {fields[1]}"


def _value(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    return states[0][1].cast(type)


def _of_row(name: str, end: str, by_time: bool, aliases: tuple[str, ...] = ()) -> AggregateFunction:
    def accumulators(kind: pa.DataType | None, parameters: Parameters) -> tuple[ExtremeRow]:
        assert kind is not None
        return (ExtremeRow(kind.field("t" if by_time else "o").type, kind.field("x").type, end),)

    return AggregateFunction(
        name=name,
        aliases=aliases,
        packs=("x",) if by_time else ("x", "o"),
        by_time=by_time,
        result_type=_time_type if by_time else _by_type,
        accumulators=accumulators,
        lower=_value,
        ignores_repeats=True,
    )


ROW_FUNCTIONS = (
    _of_row("first", "first", by_time=True, aliases=("first_value", "any_value")),
    _of_row("last", "last", by_time=True, aliases=("last_value",)),
    _of_row("min_by", "first", by_time=False),
    _of_row("max_by", "last", by_time=False),
)
