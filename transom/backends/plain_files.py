"""CSV and JSON files of the usual forms, read at once: Spark reads them in the same way beyond doubt.

A file with anything unusual (a quote within a value, a name that occurs twice, a number such as `+5` in CSV) is not
plain. The local backend reads such a file row by row; on Spark, and for `transom query`, Spark reads it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.types as kinds
from numpy.typing import NDArray

from transom.backends.plain_values import column_type, csv_type, has_plain_forms, json_type, typed_texts
from transom.sql.interpreter.types import NULL, STRING

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_END, _RETURN, _SPACE, _QUOTE = 10, 13, 32, 34
_BLANK = bytes(range(1, _SPACE + 1))  # what Java's trim removes, but for the zero byte
_NOT_A_JSON_NUMBER = re.compile(rb"[:\[,]\s*[-+]?(?:NaN|Inf(?:inity)?)\s*[,}\]]")
_NEGATIVE_ZERO = re.compile(rb"-0(?![.\deE])")  # an integer, which has no sign in Java
_MANY_DIGITS = re.compile(rb"\d{900}")  # Spark's parser of JSON refuses numbers of 1,000 digits
_LONG_LINE = 900
_MOST_NESTED = 900  # Spark's parser of JSON refuses objects that are nested a thousand times
_MOST_CSV_COLUMNS = 20_000  # Spark's parser of CSV refuses some more
_NAMED_ROWS = 100  # of JSON, whose names are compared with the stream's


class PlainText(Protocol):
    """The lines of a plain file, or of a part of one."""

    @property
    def names(self) -> Iterable[str] | None:
        """The names of its columns; None if only Spark can tell."""

    @property
    def line_starts(self) -> NDArray[np.int64]:
        """Where the line of each row begins."""

    def types(self, name: str) -> set[pa.DataType | None]:
        """The types of a column's values; among them None if only Spark can tell one."""

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table | None:
        """The rows with declared columns; None if Spark may read a value in another way."""


class PlainCsv:
    """The values of plain CSV lines by column, as texts. Missing values are null."""

    def __init__(self, columns: Mapping[str, pa.ChunkedArray], line_starts: NDArray[np.int64]):
        self.columns, self.line_starts = columns, line_starts

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def types(self, name: str) -> set[pa.DataType | None]:
        if name not in self.columns:
            return {NULL}
        values = self.columns[name].unique().to_pylist()
        return {NULL if value is None else csv_type(value) for value in values}

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table | None:
        spelled = {name.casefold(): name for name in self.columns}
        arrays = []
        for name, kind in columns.items():
            texts = self.columns.get(spelled.get(name.casefold(), ""))
            typed = pa.nulls(len(self.line_starts), kind) if texts is None else typed_texts(texts, kind)
            if typed is None:
                return None
            arrays.append(typed)
        return pa.table(arrays, names=list(columns))


class PlainJson:
    """Lines that each hold one JSON object. Missing values are null."""

    def __init__(self, data: bytes, line_starts: NDArray[np.int64]):
        self._data, self.line_starts = data, line_starts

    @property
    def names(self) -> list[str] | None:
        if self._records is None:
            return None
        names = dict.fromkeys(name for record in self._records for name in record)
        return None if len({name.casefold() for name in names}) < len(names) else list(names)

    def types(self, name: str) -> set[pa.DataType | None]:
        return {json_type(record.get(name)) for record in self._records or ()}

    @cached_property
    def _records(self) -> list[dict[str, Any]] | None:
        """The objects as Python has them; None if there is something else."""
        lines = self._data.decode().split("\n")
        try:
            return [json.loads(line, object_pairs_hook=_record) for line in lines if line.strip()]
        except ValueError:
            return None

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table | None:
        stored = {name: _stored_type(kind) for name, kind in columns.items()}
        schema = pa.schema([(name, kind) for name, kind in stored.items() if kind is not None])
        if len(schema) < len(columns) or self._has_unusual_values(schema) or self._respells(columns):
            return None
        if not len(self.line_starts):
            return pa.schema(list(columns.items())).empty_table()
        try:
            table = arrow_json.read_json(
                pa.BufferReader(self._data),
                arrow_json.ReadOptions(use_threads=False, block_size=len(self._data) + 1),
                arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        # Each line begins and ends an object. So many rows as lines are one object a line.
        if table.num_rows != len(self.line_starts):
            return None
        arrays = [
            table[name] if stored[name] == kind else typed_texts(table[name], kind)
            for name, kind in columns.items()
        ]
        return None if any(array is None for array in arrays) else pa.table(arrays, names=list(columns))

    def _has_unusual_values(self, schema: pa.Schema) -> bool:
        data = self._data
        if (b"NaN" in data or b"Inf" in data) and _NOT_A_JSON_NUMBER.search(data):
            return True
        if any(map(_has_floats, schema.types)) and _NEGATIVE_ZERO.search(data):
            return True
        lengths = np.diff(self.line_starts, append=len(data))
        if lengths.max(initial=0) > _LONG_LINE and _MANY_DIGITS.search(data):
            return True
        opened = data.count(b"{") + data.count(b"[") - len(self.line_starts)
        return opened > _MOST_NESTED and self._most_opened() > _MOST_NESTED

    def _most_opened(self) -> int:
        """The most objects and arrays that a line opens."""
        content = np.frombuffer(self._data, np.uint8)
        places = np.flatnonzero((content == ord("{")) | (content == ord("[")))
        return int(np.bincount(np.searchsorted(self.line_starts, places, "right")).max())

    def _respells(self, columns: Mapping[str, pa.DataType]) -> bool:
        """Whether the first rows have a name that differs from a column's in case only: Spark does not read it."""
        folded = {name.casefold() for name in columns}
        for start in self.line_starts[:_NAMED_ROWS].tolist():
            end = self._data.find(b"\n", start)
            try:
                names = json.loads(self._data[start : end if end >= 0 else None])
            except (ValueError, RecursionError):
                return True
            if any(name not in columns and name.casefold() in folded for name in names):
                return True
        return False


def plain_csv(data: bytes, separator: str, names: list[str] | None) -> PlainCsv | None:
    """The content of a CSV file; None if it is not plain. Without `names`, the first line has the names."""
    if b"\\" in data or not is_plain_separator(separator):
        return None
    starts = _line_starts(data)
    if starts is None or _has_blank_lines(data, starts) or not _has_plain_quotes(data, separator):
        return None
    if names is None:
        if not len(starts) or starts[0] > 0:
            return None
        header = csv_header(data.split(b"\n", 1)[0], separator)
        if header is None:
            return None
        names, starts = header, starts[1:]
    if not len(starts):
        return PlainCsv({name: pa.chunked_array([[]], pa.string()) for name in names}, starts)
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(memoryview(data)[int(starts[0]) :]),
            arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            arrow_csv.ParseOptions(delimiter=separator, double_quote=False),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid:  # rows of different lengths, or bytes that are no text
        return None
    if table.num_rows != len(starts):
        return None
    return PlainCsv(dict(zip(names, table.columns, strict=True)), starts)


def is_plain_separator(separator: str) -> bool:
    """Whether values of plain CSV files can be separated by a text."""
    return len(separator) == 1 and separator.isascii() and separator not in '"\r\n\x00'


def csv_header(line: bytes, separator: str) -> list[str] | None:
    """The names in the first line of a plain CSV file; None if Spark may read other ones.

    >>> csv_header(b'a,"b c"', ","), csv_header(b"a,A", ","), csv_header(b"a, b", ",")
    (['a', 'b c'], None, None)
    """
    if not _has_plain_quotes(line, separator) or b"\\" in line or line.startswith(_BYTE_ORDER_MARK):
        return None
    try:
        names = next(csv.reader([line.rstrip(b"\r").decode()], delimiter=separator), [])
    except UnicodeDecodeError:
        return None
    is_plain = all(name and name == name.strip() and name.isprintable() for name in names)
    is_unique = len({name.casefold() for name in names}) == len(names)
    return names if names and is_plain and is_unique and len(names) < _MOST_CSV_COLUMNS else None


def plain_json_lines(data: bytes) -> PlainJson | None:
    """The content of a file of JSON lines; None if it is not plain."""
    starts = _line_starts(data)
    if starts is None:
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    # A line end between } and { is within no object and no text: a line holds whole objects.
    content = np.frombuffer(data, np.uint8)
    line_ends = np.r_[np.flatnonzero(content == _LINE_END), len(data)]
    last = line_ends[np.searchsorted(line_ends, starts)] - 1
    last = last - (content[last] == _RETURN)
    if not (content[starts] == ord("{")).all() or not (content[last] == ord("}")).all():
        return None
    return PlainJson(data, starts)


def plain_columns(files: list[PlainText], is_csv: bool) -> dict[str, pa.DataType] | None:
    """The columns that Spark infers from plain files; None if only Spark can tell."""
    names: dict[str, None] = {}
    for file in files:
        if file.names is None:
            return None
        names |= dict.fromkeys(file.names)
    if len({name.casefold() for name in names}) < len(names):
        return None
    if is_csv and any(list(file.names or ()) != list(names) for file in files):
        return None
    columns: dict[str, pa.DataType] = {}
    for name in names if is_csv else sorted(names):  # Spark sorts the fields of JSON objects
        types = {type for file in files for type in file.types(name)}
        known = {type for type in types if type is not None}
        if len(known) < len(types) or (type := column_type(known, is_csv)) is None:
            return None
        columns[name] = type
    return columns


def is_plain_type(kind: pa.DataType, format: str) -> bool:
    """Whether plain files of a format have values of a declared type."""
    return has_plain_forms(kind) if format == "csv" else _stored_type(kind) is not None


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name occurs twice")
    return record


def _line_starts(data: bytes) -> NDArray[np.int64] | None:
    """Where the lines that are not empty begin; None if Spark may see other lines."""
    if b"\x00" in data or data.startswith(_BYTE_ORDER_MARK):
        return None
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None
    content = np.frombuffer(data, np.uint8)
    starts = np.r_[0, np.flatnonzero(content == _LINE_END) + 1]
    starts = starts[starts < len(data)]
    return starts[~np.isin(content[starts], (_LINE_END, _RETURN))]


def _has_blank_lines(data: bytes, starts: NDArray[np.int64]) -> bool:
    """Whether a line has nothing but spaces: Spark leaves it out, and for Arrow it is a row."""
    content = np.frombuffer(data, np.uint8)
    for start in starts[content[starts] <= _SPACE].tolist():
        end = data.find(b"\n", start)
        if not data[start : end if end >= 0 else None].strip(_BLANK):
            return True
    return False


def _has_plain_quotes(data: bytes, separator: str) -> bool:
    """Whether quotes are only around whole values that have neither quotes nor line ends and are not empty."""
    if b'"' not in data:
        return True
    content = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(content == _QUOTE)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    if (closing - opening < 2).any():
        return False
    before = content[np.maximum(opening - 1, 0)]
    begins = (opening == 0) | (before == ord(separator)) | (before == _LINE_END)
    after = content[np.minimum(closing + 1, len(data) - 1)]
    ends = (closing == len(data) - 1) | (after == ord(separator)) | (after == _LINE_END) | (after == _RETURN)
    lines = np.flatnonzero(content == _LINE_END)
    is_in_line = np.searchsorted(lines, opening) == np.searchsorted(lines, closing)
    return bool((begins & ends & is_in_line).all())


def _stored_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which Arrow reads a declared column of JSON; None if Spark may read other values."""
    if kinds.is_date32(kind) or (kinds.is_timestamp(kind) and has_plain_forms(kind)):
        return STRING
    return kind if _is_same_in_json(kind) else None


def _is_same_in_json(kind: pa.DataType) -> bool:
    if kinds.is_struct(kind) or kinds.is_list(kind):
        return all(_is_same_in_json(kind.field(i).type) for i in range(kind.num_fields))
    return (
        kinds.is_signed_integer(kind)
        or kinds.is_float64(kind)
        or kinds.is_boolean(kind)
        or kinds.is_string(kind)
    )


def _has_floats(kind: pa.DataType) -> bool:
    if kinds.is_nested(kind):
        return any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(kinds.is_floating(kind))
