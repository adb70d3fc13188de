"""Results as text: aligned tables, JSON lines or CSV."""

from __future__ import annotations

import functools
import json
from enum import StrEnum
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.csv_text import write_csv
from transom.api.value_text import value_to_json, value_to_text

SYSTEM_COLUMN_COUNT = (
    7  # the result of a window ends with kind, complete, rows, late, batch, made and latency
)
ROW_COLUMNS = 3  # the result of a query without a window ends with kind, batch and made
LOOKUP_COLUMNS = 3  # every lookup ends with complete, batch and made
# Results of a query with a preference end with batch, made, complete, share and skipped.
PREFERENCE_COLUMNS = 5


class Format(StrEnum):
    """The output format of results; raw CSV is not safe to open in a spreadsheet."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    RAW_CSV = "raw-csv"

    @property
    def is_csv(self) -> bool:
        """Whether a header precedes the rows."""
        return self in (Format.CSV, Format.RAW_CSV)


def default_format(form: Format | None, out: TextIO) -> Format:
    """The given format; by default a table on a terminal, otherwise JSON."""
    return form or (Format.TABLE if out.isatty() else Format.JSON)


def system_columns_start(results: pa.Table) -> int:
    """The place of the first system column, which is the kind: of windows, or of rows."""
    are_of_rows = kinds.is_timestamp(results.schema.types[-1])  # made, where windows have the latency
    return results.num_columns - (ROW_COLUMNS if are_of_rows else SYSTEM_COLUMN_COUNT)


def without_system_columns(results: pa.Table) -> pa.Table:
    """Results without the system columns, which are the last ones."""
    return results.select(range(system_columns_start(results)))


def shorten_lookup(answer: pa.Table, form: Format, with_time: bool = False) -> pa.Table:
    """An answer with `complete` as its only system column and, on request, `made`.

    A table omits `complete` if all of the answer is complete; other formats always have the same columns.
    """
    complete, _, made = range(answer.num_columns - LOOKUP_COLUMNS, answer.num_columns)
    shows_complete = form is not Format.TABLE or not all(answer.column(complete).to_pylist())
    return answer.select([*range(complete), *[complete] * shows_complete, *[made] * with_time])


def shorten_preference_query(results: pa.Table) -> pa.Table:
    """Results of a query with a preference, with only `batch` and `share` of their system columns."""
    batch_id, _, _, share, _ = range(results.num_columns - PREFERENCE_COLUMNS, results.num_columns)
    return results.select([*range(batch_id), batch_id, share])


def in_window_order(results: pa.Table) -> pa.Table:
    """Results in window order."""
    first = [name for name in ("window_end", "window_start") if name in results.column_names]
    rest = [
        field.name for field in results.schema if field.name not in first and not kinds.is_nested(field.type)
    ]
    order = [(name, "ascending") for name in first + rest if results.column_names.count(name) == 1]
    return results.sort_by(order) if results.num_rows and order else results


def write_results(results: Mapping[str, pa.Table], form: Format, out: TextIO, named: bool = False) -> None:
    """Write the results of each query; with several queries, or if `named`, with the query's name."""
    several = named or len(results) > 1
    for at, (name, table) in enumerate(results.items()):
        if at and form is not Format.JSON:
            out.write("\n")
        WRITERS[form](table, name if several else None, out)


def _write_json(table: pa.Table, name: str | None, out: TextIO) -> None:
    owner = [] if name is None else [f'"query": {json.dumps(name, ensure_ascii=False)}']
    keys = [json.dumps(column, ensure_ascii=False) for column in table.column_names]
    for row in _rows(table):
        pairs = [f"{key}: {value_to_json(value)}" for key, value in zip(keys, row, strict=True)]
        out.write("{" + ", ".join(owner + pairs) + "}\n")


def _write_csv(table: pa.Table, name: str | None, out: TextIO, escape: bool = True) -> None:
    owner = [] if name is None else [name]
    write_csv([["query"] * len(owner) + table.column_names], out, escape)
    write_csv(((*owner, *row) for row in _rows(table)), out, escape)


def _write_table(table: pa.Table, name: str | None, out: TextIO) -> None:
    if name is not None:
        out.write(f"{name}\n")
    if not table.num_rows:
        out.write("(no results)\n")
        return
    columns = [_cells(column) for column in table.columns]
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
    Format.RAW_CSV: functools.partial(_write_csv, escape=False),
}


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows in order; columns are read by position, since two may have the same name."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _cells(column: pa.ChunkedArray) -> list[str]:
    """The cells of a table's column; times have neither T nor Z, since all are in UTC."""
    values = column.to_pylist()
    if kinds.is_timestamp(column.type):
        return [
            "" if value is None else value_to_text(value).replace("T", " ").removesuffix("Z")
            for value in values
        ]
    return ["null" if value is None else value_to_text(value) for value in values]
