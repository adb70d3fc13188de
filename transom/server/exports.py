"""Results of a query as a file: CSV, JSON, Parquet or Arrow, with the query's name."""

from __future__ import annotations

import re
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transom.api.formats import EXPORT_TYPES, ExportFormat, ResultKind
from transom.server.formats import csv_text, json_rows, with_unique_names

_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]+")


def of_kind(table: pa.Table, kind: ResultKind) -> pa.Table:
    """The final or the early results among some; queries without a kind have finals only."""
    names = table.column_names
    column = next((name for name in ("transom_kind", "kind") if name in names), None)
    if kind is ResultKind.ALL:
        return table
    if column is None or not pa.types.is_string(table.schema.field(column).type):
        return table if kind is ResultKind.FINAL else table.slice(0, 0)
    return table.filter(pc.equal(table[column], kind.value))


def encode_export(table: pa.Table, form: ExportFormat, escape: bool = True) -> bytes:
    """Rows as the content of a file; `escape` is whether CSV is safe to open in a spreadsheet."""
    if form is ExportFormat.CSV:
        return csv_text(table, escape).encode()
    if form is ExportFormat.JSON:
        return f"{json_rows(table)}\n".encode()
    buffer, unique = pa.BufferOutputStream(), with_unique_names(table)
    if form is ExportFormat.PARQUET:
        pq.write_table(unique, buffer)
    else:
        with pa.ipc.new_file(buffer, unique.schema) as writer:
            writer.write_table(unique)
    return buffer.getvalue().to_pybytes()


def export_headers(query: str, kind: ResultKind, form: ExportFormat) -> dict[str, str]:
    """The headers that give a file its name and make a browser save it."""
    name = export_name(query, kind, form)
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"
    return {"Content-Disposition": disposition, "Content-Type": EXPORT_TYPES[form]}


def export_name(query: str, kind: ResultKind, form: ExportFormat) -> str:
    """The name of the file with a query's results.

    >>> export_name("late flights/EWR", ResultKind.FINAL, ExportFormat.CSV), export_name(
    ...     "n", ResultKind.EARLY, ExportFormat.ARROW
    ... )
    ('late_flights_EWR.csv', 'n-early.arrow')
    """
    safe = _NOT_IN_FILE_NAMES.sub("_", query).strip("._") or "query"
    return f"{safe}{'' if kind is ResultKind.FINAL else f'-{kind.value}'}.{form.value}"
