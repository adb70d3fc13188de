"""CSV and JSON files of the usual forms, read at once: Spark reads them in the same way beyond doubt.

A file with anything unusual (a quote within a value, a nested object, a number such as `1e5` in CSV) is not
plain. The local backend reads such a file row by row, and `transom query` leaves it to Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from transom.backends.local.plain_values import column_type, csv_type, fits, json_type
from transom.sql.interpreter.casts import cast
from transom.sql.interpreter.types import NULL

_UNUSUAL_LINES = re.compile(rb"\x00|\r(?!\n)|\A\xef\xbb\xbf")
_UNUSUAL_CSV = re.compile(rb"\\|^[ \t]+\r?$", re.MULTILINE)


class PlainFile:
    """The values of a plain file by column: texts of CSV, Python values of JSON. Missing values are null."""

    def __init__(self, columns: Mapping[str, pa.ChunkedArray | list[Any]], rows: int, is_csv: bool):
        self.columns, self.rows, self._is_csv = columns, rows, is_csv
        self._types: dict[str, set[pa.DataType | None]] = {}

    def types(self, name: str) -> set[pa.DataType | None]:
        """The types of a column's values; among them None if only Spark can tell one."""
        if name not in self._types:
            self._types[name] = self._types_of(self.columns[name]) if name in self.columns else {NULL}
        return self._types[name]

    def _types_of(self, values: pa.ChunkedArray | list[Any]) -> set[pa.DataType | None]:
        if isinstance(values, list):
            return {json_type(value) for value in values}
        return {NULL if value is None else csv_type(value) for value in values.unique().to_pylist()}

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table | None:
        """The rows with declared columns; None if Spark may read a value in another way."""
        spelled = {name.casefold(): name for name in self.columns}
        if any(spelled.get(name.casefold(), name) != name for name in columns):
            return None
        arrays = []
        for name, type in columns.items():
            is_text = pa.types.is_string(type) and self._has_texts_only(name)
            if not is_text and any(each is None or not fits(each, type) for each in self.types(name)):
                return None
            arrays.append(self._array(name, type))
        return pa.table(arrays, names=list(columns))

    def _has_texts_only(self, name: str) -> bool:
        values = self.columns.get(name, ())
        return self._is_csv or all(value is None or isinstance(value, str) for value in values)

    def _array(self, name: str, type: pa.DataType) -> pa.Array | pa.ChunkedArray:
        values = self.columns.get(name)
        if values is None:
            return pa.nulls(self.rows, type)
        if isinstance(values, list):
            if not pa.types.is_timestamp(type):
                return pa.array(values, type)
            values = pa.chunked_array([pa.array(values, pa.string())])
        if pa.types.is_string(type) or pa.types.is_integer(type) or pa.types.is_floating(type):
            return pc.cast(values, type)
        codes = values.combine_chunks().dictionary_encode()
        distinct = [cast(value, pa.string(), type) for value in codes.dictionary.to_pylist()]
        return pa.array(distinct, type).take(codes.indices)


def plain_csv(data: bytes, separator: str, names: list[str] | None) -> PlainFile | None:
    """The content of a CSV file; None if it is not plain. Without `names`, the first line has the names."""
    if _UNUSUAL_LINES.search(data) or _UNUSUAL_CSV.search(data):
        return None
    if len(separator) != 1 or not _has_plain_quotes(data, separator):
        return None
    first = data.split(b"\n", 1)[0].rstrip(b"\r").decode(errors="replace")
    header = first.split(separator) if names is None else names
    folded = {name.casefold() for name in header}
    if len(folded) < len(header) or any(not name or name != name.strip() or '"' in name for name in header):
        return None
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(column_names=header, skip_rows=1 if names is None else 0),
            arrow_csv.ParseOptions(delimiter=separator, double_quote=False),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
        )
    except pa.ArrowInvalid:  # rows of different lengths, or bytes that are no text
        return None
    empty = pa.scalar(None, pa.string())
    columns = {name: pc.if_else(pc.equal(table[name], ""), empty, table[name]) for name in header}
    return PlainFile(columns, table.num_rows, is_csv=True)


def _has_plain_quotes(data: bytes, separator: str) -> bool:
    """Whether quotes are only around whole values that have neither quotes nor line ends and are not empty."""
    if b'"' not in data:
        return True
    mark = re.escape(separator.encode())
    value = rb'(?:"[^"\n]+"|[^"\n' + mark + rb"]*)"
    line = re.compile(value + rb"(?:" + mark + value + rb")*\r?")
    return all(line.fullmatch(each) for each in data.split(b"\n") if b'"' in each)


def plain_json_lines(data: bytes) -> PlainFile | None:
    """The content of a file of JSON lines; None if it is not plain."""
    if _UNUSUAL_LINES.search(data):
        return None
    try:
        text = data.decode()
        records = [json.loads(line, object_pairs_hook=_record) for line in text.split("\n") if line.strip()]
    except ValueError:
        return None
    if not all(isinstance(record, dict) for record in records):
        return None
    names = dict.fromkeys(name for record in records for name in record)
    if len({name.casefold() for name in names}) < len(names):
        return None
    columns = {name: [record.get(name) for record in records] for name in names}
    return PlainFile(columns, len(records), is_csv=False)


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name occurs twice")
    return record


def plain_columns(files: list[PlainFile], is_csv: bool) -> dict[str, pa.DataType] | None:
    """The columns that Spark infers from plain files; None if only Spark can tell."""
    names = dict.fromkeys(name for file in files for name in file.columns)
    if len({name.casefold() for name in names}) < len(names):
        return None
    if is_csv and any(list(file.columns) != list(names) for file in files):
        return None
    columns: dict[str, pa.DataType] = {}
    for name in names if is_csv else sorted(names):  # Spark sorts the fields of JSON objects
        types = {type for file in files for type in file.types(name)}
        known = {type for type in types if type is not None}
        if len(known) < len(types) or (type := column_type(known, is_csv)) is None:
            return None
        columns[name] = type
    return columns
