"""Results of any queries in one schema: their columns are maps by name, or JSON text in formats without maps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import singledispatch
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.types import is_number
from transom.durations import format_instant
from transom.elements import ClockKind
from transom.results.result_rows import ROW_SYSTEM_COLUMNS, SYSTEM_COLUMNS
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query, RowQuery, free_name

EXACT_NUMBERS = 1 << 53  # up to here a double holds every whole number
_INSTANT = pa.timestamp("us", tz="UTC")
_FIELDS = [
    ("query", pa.string()),
    ("window_start", _INSTANT),
    ("window_end", _INSTANT),
    ("window_from", pa.int64()),
    ("window_to", pa.int64()),
    *SYSTEM_COLUMNS,
]
_TEXTS, _NUMBERS = pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.float64())
NESTED = pa.schema([*_FIELDS, ("keys", _TEXTS), ("values", _NUMBERS), ("texts", _TEXTS)])
FIXED = pa.schema([*_FIELDS, ("keys", pa.string()), ("values", pa.string())])


class FixedLayout(Enum):
    """How a format of sinks holds the columns of different queries."""

    MAPS = "maps"
    # For formats that repeat the name of a column in each row, and leave out nulls.
    SPARSE_MAPS = "sparse maps"
    TEXT = "text"  # JSON objects as text, for formats without maps

    @property
    def schema(self) -> pa.Schema:
        """The columns of the results."""
        return FIXED if self is FixedLayout.TEXT else NESTED


_LAYOUTS = {"json": FixedLayout.SPARSE_MAPS} | dict.fromkeys(
    ("parquet", "orc", "avro", "delta", "iceberg", "console"), FixedLayout.MAPS
)


def layout_of(format: str) -> FixedLayout:
    """The layout for a format of sinks."""
    return _LAYOUTS.get(format, FixedLayout.TEXT)


@dataclass(frozen=True)
class _FixedColumns:
    """The columns of one query's results that the schema has for all, and the names of the group and value columns."""

    system: Mapping[str, Any]  # an array, or one value for all rows
    keys: Sequence[str]
    values: Sequence[str]


def fixed_rows(
    results: Mapping[str, pa.Table],
    queries: Mapping[str, BoundQuery],
    layout: FixedLayout = FixedLayout.MAPS,
) -> pa.Table:
    """Results of any queries in the one schema that fits all.

    `keys` has the group columns as texts, `values` the numbers, and `texts` the other values, and the exact text of
    numbers that a double does not hold. Sparse maps are null if they are empty, and instants that are in
    `window_start` and `window_end` are not repeated as numbers.
    """
    tables = [_fixed_table(queries[name], name, table, layout) for name, table in results.items()]
    return pa.concat_tables([layout.schema.empty_table(), *tables])


def _fixed_table(query: BoundQuery, name: str, table: pa.Table, layout: FixedLayout) -> pa.Table:
    fixed, rows = _fixed(query, table), table.num_rows
    columns: dict[str, Any] = {"query": name, **fixed.system}
    if layout is FixedLayout.TEXT:
        columns["keys"] = _json_objects(table, fixed.keys)
        columns["values"] = _json_objects(table, fixed.values)
    else:
        columns["keys"] = _map_of([(key, _text_column(table[key])) for key in fixed.keys], rows, _TEXTS)
        columns |= _value_maps([(value, table[value]) for value in fixed.values], rows)
    if layout is FixedLayout.SPARSE_MAPS:
        columns = _without_repetition(columns)
    made = [_column(columns.get(field.name), field.type, rows) for field in layout.schema]
    return pa.table(made, schema=layout.schema)


def _without_repetition(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that say something; all maps of a query have the same names, so all are empty or none is."""
    repeated = {"window_from", "window_to"} if "window_start" in columns else set()
    empty = {
        name
        for name in ("keys", "values", "texts")
        if isinstance(columns[name], pa.MapArray) and not len(columns[name].keys)
    }
    return {name: column for name, column in columns.items() if name not in repeated | empty}


def _column(given: Any, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given if given.type == kind else given.cast(kind)
    return pa.repeat(pa.scalar(given, kind), rows)


@singledispatch
def _fixed(query: BoundQuery, table: pa.Table) -> _FixedColumns:
    """The columns of one query's results."""
    raise TypeError(f"results of {type(query).__name__} have no fixed schema")


@_fixed.register
def _(query: Query, table: pa.Table) -> _FixedColumns:
    """Results of a window query."""
    keys = [key for key, is_key in query.selected if is_key]
    start, end, *columns = table.column_names
    columns, system = columns[: -len(SYSTEM_COLUMNS)], columns[-len(SYSTEM_COLUMNS) :]
    made = {name: table[own] for (name, _), own in zip(SYSTEM_COLUMNS, system, strict=True)}
    made |= _extent(query, table[start], table[end])
    return _FixedColumns(made, keys, [name for name in columns if name not in keys])


@_fixed.register
def _(query: RowQuery, table: pa.Table) -> _FixedColumns:
    """Results of a row query: the window is the event time."""
    time, *columns = table.column_names
    values, system = columns[: -len(ROW_SYSTEM_COLUMNS)], columns[-len(ROW_SYSTEM_COLUMNS) :]
    made: dict[str, Any] = {"complete": True, "rows": 1, "late": 0}
    made |= {name: table[own] for (name, _), own in zip(ROW_SYSTEM_COLUMNS, system, strict=True)}
    return _FixedColumns(made | _extent(query, table[time], table[time]), [], values)


@_fixed.register
def _(query: PreferenceQuery, table: pa.Table) -> _FixedColumns:
    """Results of a query with a preference: they have no window, and are complete if nothing was skipped."""
    values = [value for value, _ in query.selected]
    system = {column: table[free_name(column, values)] for column in ("batch", "made", "complete")}
    return _FixedColumns({"kind": "final", **system}, [], values)


def _extent(query: Query, start: pa.ChunkedArray, end: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """The ends of windows as instants, if they are, and as numbers."""
    numbers = {"window_from": start.cast(pa.int64()), "window_to": end.cast(pa.int64())}
    if query.clock.kind is not ClockKind.TIME:
        return numbers
    instants = zip(("window_start", "window_end"), numbers.values(), strict=True)
    return numbers | {name: column.cast(_INSTANT) for name, column in instants}


# --- maps ---


def _value_maps(columns: Sequence[tuple[str, pa.ChunkedArray]], rows: int) -> dict[str, pa.Array]:
    numbers = [(name, column) for name, column in columns if is_number(column.type)]
    texts = [(name, _text_column(column)) for name, column in columns if not _is_exact(column)]
    doubles = [(name, column.cast(pa.float64(), safe=False)) for name, column in numbers]
    return {"values": _map_of(doubles, rows, _NUMBERS), "texts": _map_of(texts, rows, _TEXTS)}


def _is_exact(column: pa.ChunkedArray) -> bool:
    """Whether doubles hold all values of a column."""
    if pa.types.is_floating(column.type):
        return True
    if not pa.types.is_integer(column.type):
        return False
    if column.type.bit_width < 64 or column.null_count == len(column):
        return True
    bounds = pc.min_max(column).as_py()
    return bounds["min"] >= -EXACT_NUMBERS and bounds["max"] <= EXACT_NUMBERS


def _map_of(columns: Sequence[tuple[str, Any]], rows: int, kind: pa.DataType) -> pa.Array:
    """A map for each row, from the names of columns to their values."""
    width = len(columns)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    if not width or not rows:
        return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], kind.item_type))
    names = pa.array([name for name, _ in columns], pa.string())
    keys = names.take(pa.array(np.tile(np.arange(width), rows)))
    below = pa.chunked_array([chunk for _, column in columns for chunk in _chunks(column)], kind.item_type)
    by_row = np.arange(width * rows).reshape(width, rows).T.ravel()
    return pa.MapArray.from_arrays(offsets, keys, below.combine_chunks().take(pa.array(by_row)))


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return [column] if isinstance(column, pa.Array) else column.chunks


def _text_column(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as texts; values that repeat are written once."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        return pa.array(
            [None if value is None else map_text(value) for value in column.to_pylist()], pa.string()
        )
    distinct = column.combine_chunks().dictionary_encode()
    distinct = distinct if isinstance(distinct, pa.DictionaryArray) else distinct.combine_chunks()
    texts = pa.array([map_text(value) for value in distinct.dictionary.to_pylist()], pa.string())
    return texts.take(distinct.indices)


def map_text(value: Any) -> str:
    """A value as the texts of maps have it: text as it is, others as in JSON."""
    plain = plain_json(value) if not isinstance(value, bool | int | float | list | dict) else value
    return plain if isinstance(plain, str) else _dumped(plain)


# --- JSON ---


def _json_objects(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Some columns as a JSON object for each row."""
    if not names:
        return pa.repeat(pa.scalar("{}"), table.num_rows)
    columns = (table[name].to_pylist() for name in names)
    rows = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
    return pa.array([as_json(row) for row in rows], pa.string())


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def as_json(values: Mapping[str, Any]) -> str:
    """A JSON object; numbers that JSON does not have are texts, as in Spark's `to_json`."""
    strange = {
        name: _NOT_FINITE[repr(v)]
        for name, v in values.items()
        if isinstance(v, float) and not math.isfinite(v)
    }
    return json.dumps({**values, **strange}, default=plain_json)


def _dumped(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[repr(value)]
    dump: Callable[..., str] = json.dumps
    return dump(value, default=plain_json)


def plain_json(value: Any) -> Any:
    """Values that JSON can't express: instants in ISO form, others as text."""
    if isinstance(value, datetime):
        return format_instant(pa.scalar(value, pa.timestamp("us")).value)
    return str(value)
