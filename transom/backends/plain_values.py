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
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.sql.interpreter.types import BOOL, DATE, DOUBLE, INT, LONG, NULL, STRING, TIMESTAMP

_INTEGER = re.compile(r"-?\d{1,18}")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP_TEXT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
# Everything that Spark may take for a number, and for a date or a time.
_NUMBER_LIKE = re.compile(r"[\s\x00-\x1f]*[+-]?(\d|\.|nan|inf)", re.IGNORECASE)
_TIME_LIKE = re.compile(r"[\s\x00-\x1f]*([+-]?\d+\s*(-|$)|T?\d{1,2}:|T\d)")

# The forms of texts that Spark and Arrow read in the same way into columns of declared types.
_INTEGER_FORM = r"^-?\d{1,18}$"
_FLOAT_FORM = r"^-?\d{1,17}(\.\d{1,17})?([eE][+-]?\d{1,3})?$"
_DECIMAL_FORM = r"^-?\d{1,38}(\.\d{1,38})?$"
_BOOLEAN_FORM = r"^(?i:true|false)$"
_DATE_FORM = r"^[1-9]\d{3}-\d\d-\d\d$"
_ZONE = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)"
_TIMESTAMP_FORM = r"^[1-9]\d{3}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d{1,6})?" + _ZONE + "?)?$"


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


def has_plain_forms(kind: pa.DataType) -> bool:
    """Whether texts can be plain values of a type; Spark alone reads the others."""
    return _form_of(kind) is not None or kinds.is_string(kind)


def typed_texts(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Texts of a file as values of a declared type; None if Spark may read one of them in another way.

    >>> typed_texts(pa.chunked_array([["7", None]]), pa.int64()).to_pylist()
    [7, None]
    >>> typed_texts(pa.chunked_array([["7", "+7"]]), pa.int64()) is None
    True
    """
    if kinds.is_string(kind):
        return texts
    form = _form_of(kind)
    if form is None or pc.all(pc.match_substring_regex(texts, form)).as_py() is False:
        return None
    try:
        if kinds.is_boolean(kind):
            return pc.equal(pc.utf8_lower(texts), "true")
        if kinds.is_timestamp(kind):
            return _instants(texts, kind)
        typed = pc.cast(texts, kind)
    except pa.ArrowInvalid:  # a day that does not exist, or a number that is too large
        return None
    if kinds.is_floating(kind) and pc.all(pc.is_finite(typed)).as_py() is False:
        return None
    return typed


def _form_of(kind: pa.DataType) -> str | None:
    if kinds.is_signed_integer(kind):
        return _INTEGER_FORM
    if kind in (pa.float32(), pa.float64()):
        return _FLOAT_FORM
    if kinds.is_decimal128(kind):
        return _DECIMAL_FORM
    if kinds.is_boolean(kind):
        return _BOOLEAN_FORM
    if kinds.is_date32(kind):
        return _DATE_FORM
    return _TIMESTAMP_FORM if kind == TIMESTAMP else None


def _instants(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Times, of which some may have a zone; the others are in UTC."""
    has_zone = pc.match_substring_regex(texts, _ZONE + "$")
    if pc.any(has_zone).as_py() is not True:
        return pc.cast(pc.cast(texts, pa.timestamp("us")), kind)
    if pc.all(has_zone).as_py():
        return pc.cast(texts, kind)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.cast(pc.if_else(has_zone, texts, nothing), kind)
    without = pc.cast(pc.cast(pc.if_else(has_zone, nothing, texts), pa.timestamp("us")), kind)
    return pc.coalesce(with_zone, without)


def _is_valid(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return text[:4] >= "1000"
