"""The types that values of text files have for Spark, where that is beyond doubt.

Spark infers the columns of CSV and JSON files by parsers that accept much more than the usual forms. A value of
a usual form is plain: its type is certain. Of any other value only Spark can tell what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from transom.sql.interpreter.types import BOOL, DATE, DOUBLE, INT, LONG, NULL, STRING, TIMESTAMP

_INTEGER = re.compile(r"-?\d{1,18}")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP_TEXT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
# Everything that Spark may take for a number, and for a date or a time.
_NUMBER_LIKE = re.compile(r"[\s\x00-\x1f]*[+-]?(\d|\.|nan|inf)", re.IGNORECASE)
_TIME_LIKE = re.compile(r"[\s\x00-\x1f]*([+-]?\d+\s*(-|$)|T?\d{1,2}:|T\d)")


def csv_type(text: str) -> pa.DataType | None:
    """The type of a value of a CSV file; None if only Spark can tell.

    >>> csv_type("17"), csv_type("1.5"), csv_type("2024-02-29"), csv_type("JFK"), csv_type("1e5")
    (DataType(int32), DataType(double), DataType(date32[day]), DataType(string), None)
    """
    if not text:
        return NULL
    if _INTEGER.fullmatch(text):
        return INT if -(1 << 31) <= int(text) < 1 << 31 else LONG
    if _FRACTION.fullmatch(text):
        return DOUBLE
    if _DAY.fullmatch(text):
        return DATE if _is_valid(date.fromisoformat, text) else None
    if _TIMESTAMP_TEXT.fullmatch(text):
        return TIMESTAMP if _is_valid(datetime.fromisoformat, text) else None
    if text.lower() in ("true", "false"):
        return BOOL
    return None if _NUMBER_LIKE.match(text) or _TIME_LIKE.match(text) else STRING


def json_type(value: Any) -> pa.DataType | None:
    """The type of a value of a JSON object; None if only Spark can tell, as of objects and arrays.

    >>> json_type(17), json_type(1.5), json_type("2024-02-29T12:00:00Z"), json_type("JFK")
    (DataType(int64), DataType(double), TimestampType(timestamp[us, tz=UTC]), DataType(string))
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return LONG if -(1 << 63) <= value < 1 << 63 else None
    if isinstance(value, float):
        return DOUBLE if abs(value) != float("inf") and value == value else None
    if not isinstance(value, str):
        return None
    if _TIMESTAMP_TEXT.fullmatch(value) or _DAY.fullmatch(value):
        return TIMESTAMP if _is_valid(datetime.fromisoformat, value) else None
    return None if _TIME_LIKE.match(value) else STRING


def column_type(types: Iterable[pa.DataType], is_csv: bool) -> pa.DataType | None:
    """The type of a column with values of some types; None if only Spark can tell.

    >>> column_type([INT, DOUBLE, NULL], is_csv=True), column_type([INT, BOOL], is_csv=True)
    (DataType(double), None)
    """
    present = {type for type in types if type != NULL}
    if len(present) <= 1:
        return present.pop() if present else STRING
    if present <= {INT, LONG, DOUBLE}:
        return DOUBLE if DOUBLE in present else LONG
    if STRING in present and (is_csv or present <= {STRING, TIMESTAMP}):
        return STRING
    return None


def fits(type: pa.DataType, column: pa.DataType) -> bool:
    """Whether a plain value of a type is read into a column of a declared type as it is."""
    return type in (NULL, column) or (
        (type == INT and column in (LONG, DOUBLE)) or (type == LONG and column == DOUBLE)
    )


def _is_valid(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return text[:4] >= "1000"
