"""Results as text: a table for people, JSON lines and CSV for programs."""

from __future__ import annotations

import csv
import json
from enum import StrEnum
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.value_text import json_text, plain_text

SYSTEM_COLUMNS = 6  # kind, complete, rows, batch, made and latency close every result
LOOKUP_COLUMNS = 3  # complete, batch and made close every lookup
PREFERENCE_COLUMNS = 5  # batch, made, complete, share and skipped close those of queries with a preference


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def without_system_columns(results: pa.Table) -> pa.Table:
    """Results without the last columns, which are about the result itself."""
    return results.select(range(results.num_columns - SYSTEM_COLUMNS))


def of_lookup(found: pa.Table, form: Format, when: bool = False) -> pa.Table:
    """An answer with what must be known of it: whether it is complete, and with `when`, the time it was made.

    People are told only of an answer that is not complete; programs have the same columns every time.
    """
    complete, _, made = range(found.num_columns - LOOKUP_COLUMNS, found.num_columns)
    told = form is not Format.TABLE or not all(found.column(complete).to_pylist())
    return found.select([*range(complete), *[complete] * told, *[made] * when])


def of_preference_query(found: pa.Table) -> pa.Table:
    """Results of a query with a preference with what must be known of them: the batch that they are of, and
    the share of the batch's estimated output that they are a part of."""
    batch_id, _, _, share, _ = range(found.num_columns - PREFERENCE_COLUMNS, found.num_columns)
    return found.select([*range(batch_id), batch_id, share])


def arranged(shown: pa.Table) -> pa.Table:
    """Results in window order."""
    first = [name for name in ("window_end", "window_start") if name in shown.column_names]
    rest = [
        field.name for field in shown.schema if field.name not in first and not kinds.is_nested(field.type)
    ]
    order = [(name, "ascending") for name in first + rest if shown.column_names.count(name) == 1]
    return shown.sort_by(order) if shown.num_rows else shown


def write(results: Mapping[str, pa.Table], form: Format, out: TextIO, named: bool = False) -> None:
    """Write the results of each query; when there are several, or `named`, each row or table says whose it
    is."""
    several = named or len(results) > 1
    for at, (name, table) in enumerate(results.items()):
        if at and form is not Format.JSON:
            out.write("\n")
        WRITERS[form](table, name if several else None, out)


def _write_json(table: pa.Table, name: str | None, out: TextIO) -> None:
    owner = [] if name is None else [f'"query": {json.dumps(name, ensure_ascii=False)}']
    keys = [json.dumps(column, ensure_ascii=False) for column in table.column_names]
    for row in _rows(table):
        pairs = [f"{key}: {json_text(value)}" for key, value in zip(keys, row, strict=True)]
        out.write("{" + ", ".join(owner + pairs) + "}\n")


def _write_csv(table: pa.Table, name: str | None, out: TextIO) -> None:
    owner = [] if name is None else [name]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["query"] * len(owner) + table.column_names)
    for row in _rows(table):
        writer.writerow(owner + ["" if value is None else plain_text(value) for value in row])


def _write_table(table: pa.Table, name: str | None, out: TextIO) -> None:
    if name is not None:
        out.write(f"{name}\n")
    if not table.num_rows:
        out.write("(no results)\n")
        return
    columns = [_texts(column) for column in table.columns]
    right = [
        kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
        for kind in table.schema.types
    ]
    widths = [max(map(len, [head, *texts])) for head, texts in zip(table.column_names, columns, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = zip(cells, widths, right, strict=True)
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in aligned).rstrip() + "\n"

    out.write(line(table.column_names))
    out.write(line(["-" * width for width in widths]))
    for cells in zip(*columns, strict=True):
        out.write(line(cells))


WRITERS: Mapping[Format, Callable[[pa.Table, str | None, TextIO], None]] = {
    Format.TABLE: _write_table,
    Format.JSON: _write_json,
    Format.CSV: _write_csv,
}


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows in order; columns are taken by position, since two may share a name."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _texts(column: pa.ChunkedArray) -> list[str]:
    """A column's cells for people: times without the T and the zone, which is UTC throughout."""
    values = column.to_pylist()
    if kinds.is_timestamp(column.type):
        return [
            "" if value is None else plain_text(value).replace("T", " ").removesuffix("Z") for value in values
        ]
    return ["null" if value is None else plain_text(value) for value in values]
