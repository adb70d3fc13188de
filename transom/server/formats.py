"""Tables as JSON, CSV and Arrow; by columns, since a value at a time is too slow for many readers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.records import ColumnInfo
from transom.cli.result_text import json_value, plain
from transom.server.query_description import sql_type

ARROW = "application/vnd.apache.arrow.stream"


class RowsFormat(StrEnum):
    """How rows are written."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


MEDIA = {RowsFormat.JSON: "application/json", RowsFormat.CSV: "text/csv", RowsFormat.ARROW: ARROW}


def wanted_format(asked: RowsFormat | None, accept: str | None) -> RowsFormat:
    """The format that a request names, or the first that its Accept header lists; otherwise JSON.

    >>> str(wanted_format(None, "text/html, text/csv;q=0.9")), str(wanted_format(RowsFormat.ARROW, None))
    ('csv', 'arrow')
    """
    if asked is not None:
        return asked
    listed = [part.partition(";")[0].strip().casefold() for part in (accept or "").split(",")]
    by_media = {media: form for form, media in MEDIA.items()}
    return next((by_media[media] for media in listed if media in by_media), RowsFormat.JSON)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of which no two are the same: the second n is n_2, the third n_3.

    >>> distinct(["n", "site", "n", "n_2"])
    ['n', 'site', 'n_3', 'n_2']
    """
    made, taken = list[str](), set(names)
    for name in names:
        free, number = name, 1
        while free in made or (number > 1 and free in taken):
            number += 1
            free = f"{name}_{number}"
        made.append(free)
    return made


def renamed(table: pa.Table) -> pa.Table:
    """The table with names of which no two are the same."""
    names = distinct(table.column_names)
    return table if names == table.column_names else table.rename_columns(names)


# --- JSON ------------------------------------------------------------------------------------


def json_rows(table: pa.Table) -> str:
    """Rows as a JSON list of objects, each value as `json_value` writes it.

    >>> json_rows(pa.table({"site": [1, None], "n": [float("nan"), 2.5]}))
    '[{"site": 1, "n": "NaN"}, {"site": null, "n": 2.5}]'
    """
    if not table.num_rows:
        return "[]"
    keys = (json.dumps(name, ensure_ascii=False).replace("%", "%%") for name in distinct(table.column_names))
    template = "{" + ", ".join(f"{key}: %s" for key in keys) + "}"
    rows: Iterator[tuple[str, ...]] = zip(*map(_json_texts, table.columns), strict=True)
    return "[" + ", ".join(template % row for row in rows) + "]"


def _json_texts(column: pa.ChunkedArray) -> list[str]:
    """A column's values as JSON; kinds that are frequent go without a look at each value's type."""
    values, kind = column.to_pylist(), column.type
    if kinds.is_integer(kind):
        return ["null" if value is None else str(value) for value in values]
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return _each(values, _instant_text)
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return _each(values, _string_text)
    return [json_value(value) for value in values]


def _each(values: list[Any], text: Callable[[Any], str]) -> list[str]:
    """Texts of values that often repeat: one group, one window, one moment in many rows."""
    known = {None: "null"}
    for value in values:
        if value not in known:
            known[value] = text(value)
    return [known[value] for value in values]


def _instant_text(value: datetime) -> str:
    return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"'


def _string_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def json_columns(columns: Sequence[ColumnInfo]) -> str:
    """Columns as a JSON list."""
    names = distinct([column.name for column in columns])
    return json.dumps(
        [
            {"name": name, "type": column.type, "role": column.role, "of": column.of}
            for name, column in zip(names, columns, strict=True)
        ],
        ensure_ascii=False,
    )


def columns_of(table: pa.Table, known: Sequence[ColumnInfo] = ()) -> list[ColumnInfo]:
    """A table's columns, each as it is known, or as Arrow knows it."""
    if len(known) == table.num_columns and [column.name for column in known] == table.column_names:
        return list(known)
    by_name = {column.name: column for column in known}
    return [
        by_name.get(field.name) or ColumnInfo(field.name, sql_type(field.type), "value")
        for field in table.schema
    ]


# --- CSV and Arrow ---------------------------------------------------------------------------


def csv_text(table: pa.Table) -> str:
    """A header and the rows; null is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(distinct(table.column_names))
    columns = (column.to_pylist() for column in table.columns)
    writer.writerows(
        ["" if value is None else plain(value) for value in row] for row in zip(*columns, strict=True)
    )
    return out.getvalue()


def arrow_stream(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# --- answers ---------------------------------------------------------------------------------


def answer(
    table: pa.Table, columns: Sequence[ColumnInfo], form: RowsFormat, place: tuple[str, bool] | None = None
) -> bytes:
    """The body of an answer; of JSON with its columns, and with its cursor and whether there is more."""
    match form:
        case RowsFormat.JSON:
            behind = ""
            if place is not None:
                behind = f', "cursor": {json.dumps(place[0])}, "more": {json.dumps(place[1])}'
            known = json_columns(columns_of(table, columns))
            return f'{{"columns": {known}, "rows": {json_rows(table)}{behind}}}'.encode()
        case RowsFormat.CSV:
            return csv_text(table).encode()
        case RowsFormat.ARROW:
            return arrow_stream(renamed(table))


def results_event(table: pa.Table, cursor: str) -> bytes:
    """Rows as a server-sent event, whose id is where to go on."""
    return f'event: results\nid: {cursor}\ndata: {{"rows": {json_rows(table)}}}\n\n'.encode()


def columns_event(columns: Sequence[ColumnInfo], cursor: str) -> bytes:
    return f'event: columns\nid: {cursor}\ndata: {{"columns": {json_columns(columns)}}}\n\n'.encode()


DROPPED = b"event: dropped\ndata: {}\n\n"
HEARTBEAT = b": \n\n"
