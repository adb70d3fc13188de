"""The event time of a stream that is no column of its rows, such as `timestamp_millis(epoch)` or `event.ts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from transom.errors import SettingError, SQLError, near_miss
from transom.sql import Catalog, Relation, Scalars, bind_one
from transom.sql.query import free_name

EVENT_TIME = "event_time"
UNITS = {"s": "timestamp_seconds", "ms": "timestamp_millis", "us": "timestamp_micros"}
_LONG_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us"}


@dataclass(frozen=True)
class EventTime:
    """An expression over a stream's rows, in canonical text, and the column that holds its values."""

    column: str
    sql: str


def event_time(
    stream: str, columns: Mapping[str, pa.DataType], time: str, unit: str | None, scalars: Scalars
) -> tuple[EventTime, pa.DataType] | None:
    """The event time of a stream and its type; None if it is a column as it is."""
    names = {name.casefold(): name for name in columns}
    if unit is None and time.casefold() in names:
        return None
    named = names.get(time.casefold())
    written = time if named is None else f"`{named.replace('`', '``')}`"
    sql, kind = _bound(stream, columns, written, scalars)
    if unit is not None:
        function = UNITS.get(_LONG_UNITS.get(str(unit), str(unit)))
        if function is None:
            raise SettingError(f"unknown time_unit {unit!r}: {', '.join(UNITS)}{near_miss(str(unit), UNITS)}")
        if not pa.types.is_integer(kind):
            raise SettingError(f"time_unit is for numbers since 1970, and {time} is {kind}: leave it out")
        sql, kind = _bound(stream, columns, f"{function}({written})", scalars)
    elif pa.types.is_string(kind):
        sql, kind = _bound(stream, columns, f"CAST({written} AS TIMESTAMP)", scalars)
    return EventTime(free_name(EVENT_TIME, list(columns)), sql), kind


def _bound(
    stream: str, columns: Mapping[str, pa.DataType], written: str, scalars: Scalars
) -> tuple[str, pa.DataType]:
    """The canonical text of an expression for the time, and its type."""
    try:
        return bound_expression(stream, columns, written, scalars)
    except SQLError as error:
        is_name = written.replace("_", "").isalnum()
        if is_name:
            hint = near_miss(written, columns)
            raise SettingError(f"the stream {stream} has no column {written}{hint}") from None
        raise SettingError(f"the time of {stream}, {written}: {error.message}") from None


def bound_expression(
    stream: str, columns: Mapping[str, pa.DataType], written: str, scalars: Scalars
) -> tuple[str, pa.DataType]:
    """The canonical text of an expression over a stream's rows, as queries have it, and its type."""
    catalog = Catalog({stream: Relation(stream, columns)})
    name = stream.replace("`", "``")
    query = bind_one(f"SELECT max({written}) AS t FROM `{name}` [ROWS 1 SLIDE 1]", catalog, scalars)
    scalar = query.calls[0].args[0]
    return scalar.sql, scalar.type
