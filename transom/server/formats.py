"""Tables as JSON, CSV and Arrow; encoded by column, since encoding value by value is too slow."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.csv_text import write_csv
from transom.api.formats import MEDIA_TYPES, RowsFormat
from transom.api.records import ColumnInfo
from transom.api.value_text import value_to_json
from transom.server.query_description import sql_type


@dataclass(frozen=True)
class RowsEncoding:
    """The format of an answer's rows; `escape` is whether CSV is safe to open in a spreadsheet."""

    format: RowsFormat = RowsFormat.JSON
    escape: bool = True

    @property
    def media_type(self) -> str:
        """The media type of the answer."""
        return MEDIA_TYPES[self.format]


def wanted_format(named: RowsFormat | None, accept: str | None) -> RowsFormat:
    """The format that a request names, or the first that its Accept header lists; otherwise JSON.

    >>> str(wanted_format(None, "text/html, text/csv;q=0.9")), str(wanted_format(RowsFormat.ARROW, None))
    ('csv', 'arrow')
    """
    if named is not None:
        return named
    listed = [part.partition(";")[0].strip().casefold() for part in (accept or "").split(",")]
    by_media_type = {media_type: form for form, media_type in MEDIA_TYPES.items()}
    return next((by_media_type[each] for each in listed if each in by_media_type), RowsFormat.JSON)


def unique_names(names: Sequence[str]) -> list[str]:
    """Names without duplicates: the second n becomes n_2, the third n_3.

    >>> unique_names(["n", "site", "n", "n_2"])
    ['n', 'site', 'n_3', 'n_2']
    """
    unique, taken = list[str](), set(names)
    for name in names:
        candidate, number = name, 1
        while candidate in unique or (number > 1 and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        unique.append(candidate)
    return unique


def with_unique_names(table: pa.Table) -> pa.Table:
    """The table with column names without duplicates."""
    names = unique_names(table.column_names)
    return table if names == table.column_names else table.rename_columns(names)


# --- JSON ------------------------------------------------------------------------------------


def json_rows(table: pa.Table) -> str:
    """Rows as a JSON list of objects, each value as `value_to_json` writes it.

    >>> json_rows(pa.table({"site": [1, None], "n": [float("nan"), 2.5]}))
    '[{"site": 1, "n": "NaN"}, {"site": null, "n": 2.5}]'
    """
    if not table.num_rows:
        return "[]"
    names = unique_names(table.column_names)
    keys = (json.dumps(name, ensure_ascii=False).replace("%", "%%") for name in names)
    template = "{" + ", ".join(f"{key}: %s" for key in keys) + "}"
    rows: Iterator[tuple[str, ...]] = zip(*map(_json_column, table.columns), strict=True)
    return "[" + ", ".join(template % row for row in rows) + "]"


def _json_column(column: pa.ChunkedArray) -> list[str]:
    """A column's values as JSON; frequent types are encoded without a check of each value's type."""
    values, kind = column.to_pylist(), column.type
    if kinds.is_integer(kind):
        return ["null" if value is None else str(value) for value in values]
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return _encode_repeated(values, _json_instant)
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return _encode_repeated(values, _json_string)
    return [value_to_json(value) for value in values]


def _encode_repeated(values: list[Any], encode: Callable[[Any], str]) -> list[str]:
    """Encode values that often repeat, such as the window and the group of many rows."""
    texts = {None: "null"}
    for value in values:
        if value not in texts:
            texts[value] = encode(value)
    return [texts[value] for value in values]


def _json_instant(value: datetime) -> str:
    return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"'


def _json_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def json_columns(columns: Sequence[ColumnInfo]) -> str:
    """Columns as a JSON list."""
    names = unique_names([column.name for column in columns])
    return json.dumps(
        [
            {"name": name, "type": column.type, "role": column.role, "of": column.of}
            for name, column in zip(names, columns, strict=True)
        ],
        ensure_ascii=False,
    )


def table_columns(table: pa.Table, described: Sequence[ColumnInfo] = ()) -> list[ColumnInfo]:
    """The columns of a table; a column that is not known becomes a value of its Arrow type."""
    if len(described) == table.num_columns and [column.name for column in described] == table.column_names:
        return list(described)
    by_name = {column.name: column for column in described}
    return [
        by_name.get(field.name) or ColumnInfo(field.name, sql_type(field.type), "value")
        for field in table.schema
    ]


# --- CSV and Arrow ---------------------------------------------------------------------------


def csv_text(table: pa.Table, escape: bool = True) -> str:
    """A header and the rows; null is empty. With `escape`, no cell is a formula."""
    out = io.StringIO()
    columns = (column.to_pylist() for column in table.columns)
    write_csv([unique_names(table.column_names), *zip(*columns, strict=True)], out, escape)
    return out.getvalue()


def arrow_stream(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# --- answers ---------------------------------------------------------------------------------


def encode_rows(
    table: pa.Table,
    columns: Sequence[ColumnInfo],
    encoding: RowsEncoding,
    position: tuple[str, bool] | None = None,
) -> bytes:
    """The body of an answer; JSON includes the columns and the position: cursor and whether there is more."""
    match encoding.format:
        case RowsFormat.JSON:
            suffix = ""
            if position is not None:
                suffix = f', "cursor": {json.dumps(position[0])}, "more": {json.dumps(position[1])}'
            described = json_columns(table_columns(table, columns))
            return f'{{"columns": {described}, "rows": {json_rows(table)}{suffix}}}'.encode()
        case RowsFormat.CSV:
            return csv_text(table, encoding.escape).encode()
        case RowsFormat.ARROW:
            return arrow_stream(with_unique_names(table))


def results_event(table: pa.Table, cursor: str) -> bytes:
    """Rows as a server-sent event; its id is the cursor after them."""
    return f'event: results\nid: {cursor}\ndata: {{"rows": {json_rows(table)}}}\n\n'.encode()


def columns_event(columns: Sequence[ColumnInfo], cursor: str) -> bytes:
    """Columns as a server-sent event; its id is the cursor at which results begin."""
    return f'event: columns\nid: {cursor}\ndata: {{"columns": {json_columns(columns)}}}\n\n'.encode()


DROPPED_EVENT = b"event: dropped\ndata: {}\n\n"
HEARTBEAT = b": \n\n"
