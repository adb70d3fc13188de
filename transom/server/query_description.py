"""A query's kind, window and columns, as text for users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.records import ColumnInfo
from transom.durations import format_duration
from transom.elements import ClockKind, Emit
from transom.ondemand.lookup import lookup_schema
from transom.plan.explain.early_text import emit_text
from transom.plan.explain.element_text import window_text
from transom.results.result_rows import ESTIMATES, result_schema
from transom.server.chart_hints import ChartHints, chart_hints
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import preference_schema
from transom.sql.query import OnDemandQuery, Query, RowQuery

STANDING, ON_DEMAND, BY_ROW, PREFERENCE = "standing", "on demand", "rows", "preference"

_SQL_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.null(): "void",
}


@dataclass(frozen=True)
class QueryDescription:
    """The properties of a query that do not change."""

    kind: str
    streams: tuple[str, ...]
    window: str | None
    columns: tuple[ColumnInfo, ...]
    schema: pa.Schema
    emit: Emit | None = None
    hints: ChartHints = field(default_factory=ChartHints)
    shares_windows: bool = True  # whether all groups have the same windows

    @property
    def early(self) -> str | None:
        """When it emits early results, as text."""
        return None if self.emit is None else emit_text(self.emit, None)


@singledispatch
def description_of(query: BoundQuery) -> QueryDescription:
    """Describe a bound query."""
    raise TypeError(f"{type(query).__name__} has no description")


@description_of.register
def _(query: Query) -> QueryDescription:
    return _describe_windows(
        STANDING, query, result_schema(query), window_text(query.window, query.clock.kind)
    )


@description_of.register
def _(query: OnDemandQuery) -> QueryDescription:
    kind, length = query.clock.kind, query.window.range
    shown = format_duration(length) if kind is ClockKind.TIME else f"{length:,}"
    unit = "rows" if kind is ClockKind.ROWS else f"of {query.clock.attribute}"
    return _describe_windows(ON_DEMAND, query, lookup_schema(query), f"the last {shown} {unit}")


def _describe_windows(kind: str, query: Query, schema: pa.Schema, window: str) -> QueryDescription:
    columns = _columns(schema, 2, query.selected)
    return QueryDescription(
        kind,
        query.streams,
        window,
        columns,
        schema,
        query.emit,
        chart_hints(query),
        query.window.is_shared_by_groups,
    )


@description_of.register
def _(query: RowQuery) -> QueryDescription:
    schema = result_schema(query)
    columns = _columns(schema, 1, query.selected, bound_role="time")
    return QueryDescription(BY_ROW, query.streams, None, columns, schema)


@description_of.register
def _(query: PreferenceQuery) -> QueryDescription:
    window, schema = query.preference.window, preference_schema(query)
    return QueryDescription(
        PREFERENCE,
        query.streams,
        None if window is None else f"within {format_duration(window)}",
        _columns(schema, 0, query.selected),
        schema,
    )


def _columns(
    schema: pa.Schema, bounds: int, items: Sequence[tuple[str, bool]], bound_role: str = "window"
) -> tuple[ColumnInfo, ...]:
    """The result columns with their roles, in order: window bounds, items, estimates, system columns."""
    estimates = {f"{name}_{suffix}": name for name, is_key in items if not is_key for suffix in ESTIMATES}
    columns = []
    for index, column in enumerate(schema):
        role, of = "system", None
        if index < bounds:
            role = bound_role
        elif index < bounds + len(items):
            role = "key" if items[index - bounds][1] else "value"
        elif column.name in estimates:
            role, of = "estimate", estimates[column.name]
        columns.append(ColumnInfo(column.name, sql_type(column.type), role, of))
    return tuple(columns)


def sql_type(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type.

    >>> sql_type(pa.list_(pa.int32())), sql_type(pa.decimal128(10, 2)), sql_type(pa.timestamp("us", tz="UTC"))
    ('array<int>', 'decimal(10,2)', 'timestamp')
    """
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return "timestamp"
    if kinds.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kinds.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if kinds.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if kinds.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    return _SQL_NAMES.get(kind, str(kind))
