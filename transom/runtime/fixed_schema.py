"""Results of any queries in one schema, with keys and values as JSON objects."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from functools import singledispatch
from typing import Any

import pyarrow as pa

from transom.durations import format_instant
from transom.elements import ClockKind
from transom.results.result_rows import SYSTEM_COLUMNS
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query, free_name

_INSTANT = pa.timestamp("us", tz="UTC")
FIXED = pa.schema(
    [
        ("query", pa.string()),
        ("window_start", _INSTANT),
        ("window_end", _INSTANT),
        ("window_from", pa.int64()),
        ("window_to", pa.int64()),
        *SYSTEM_COLUMNS,
        ("keys", pa.string()),
        ("values", pa.string()),
    ]
)


def fixed_rows(results: Mapping[str, pa.Table], queries: Mapping[str, BoundQuery]) -> pa.Table:
    """Results of any queries in the one schema that fits all: keys and values as JSON objects."""
    rows: list[dict[str, Any]] = []
    for name, table in results.items():
        rows += _fixed(queries[name], name, table)
    columns = {
        field.name: pa.array([row[field.name] for row in rows], _storage(field.type)) for field in FIXED
    }
    return pa.table(
        {name: column.cast(FIXED.field(name).type) for name, column in columns.items()}, schema=FIXED
    )


@singledispatch
def _fixed(query: BoundQuery, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of one query's results."""
    raise TypeError(f"results of {type(query).__name__} have no fixed schema")


@_fixed.register
def _(query: Query, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """Results of a window query."""
    rows: list[dict[str, Any]] = []
    keys = [key for key, is_key in query.selected if is_key]
    start, end, *columns = table.column_names
    columns, system = columns[: -len(SYSTEM_COLUMNS)], columns[-len(SYSTEM_COLUMNS) :]
    values = [name for name in columns if name not in keys]
    kind, complete, count, late, batch_id, made, latency = system
    is_time = query.clock.kind is ClockKind.TIME
    bounds = {side: table[side].cast(pa.int64()).to_pylist() for side in (start, end)}
    times = table[made].cast(pa.int64()).to_pylist()
    for i, row in enumerate(table.to_pylist()):
        low, high = bounds[start][i], bounds[end][i]
        rows.append(
            {
                "query": name,
                "window_start": low if is_time else None,
                "window_end": high if is_time else None,
                "window_from": low,
                "window_to": high,
                "kind": row[kind],
                "complete": row[complete],
                "rows": row[count],
                "late": row[late],
                "batch": row[batch_id],
                "made": times[i],
                "latency": row[latency],
                "keys": as_json({key: row[key] for key in keys}),
                "values": as_json({value: row[value] for value in values}),
            }
        )
    return rows


@_fixed.register
def _(query: PreferenceQuery, name: str, table: pa.Table) -> list[dict[str, Any]]:
    """Results of a query with a preference: they have no window, and are complete if nothing was skipped."""
    values = [value for value, _ in query.selected]
    system = {column: free_name(column, values) for column in ("batch", "made", "complete")}
    made = table[system["made"]].cast(pa.int64()).to_pylist()
    nothing = dict.fromkeys(
        ("window_start", "window_end", "window_from", "window_to", "rows", "late", "latency"), None
    )
    return [
        nothing
        | {
            "query": name,
            "kind": "final",
            "complete": row[system["complete"]],
            "batch": row[system["batch"]],
            "made": made[i],
            "keys": "{}",
            "values": as_json({value: row[value] for value in values}),
        }
        for i, row in enumerate(table.to_pylist())
    ]


def as_json(values: Mapping[str, Any]) -> str:
    """A JSON object; numbers that JSON does not have are texts, as in Spark's `to_json`."""
    strange = {name: repr(v) for name, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return json.dumps({**values, **{name: names[text] for name, text in strange.items()}}, default=plain_json)


def plain_json(value: Any) -> Any:
    """Values that JSON can't express: instants in ISO form, others as text."""
    if isinstance(value, datetime):
        return format_instant(pa.scalar(value, pa.timestamp("us")).value)
    return str(value)


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind
