"""Constants in comparisons, and which of them the kernel can compare by value as Spark does."""

from __future__ import annotations

import re
import struct
from datetime import date
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
from sqlglot import exp

from transom.durations import parse_instant
from transom.errors import SettingError
from transom.sql.syntax.canonical import bare

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?")
_EXACT_DOUBLE = 2**53
_MOST_DIGITS = 38  # of a decimal
_ZONED = {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPLTZ}


class Constant:
    """A constant of the text: its value, and its type if the text names one."""

    def __init__(self, value: Any, kind: exp.DType | None = None):
        self.value, self.kind = value, kind


def constant_of(node: exp.Expr) -> Constant | None:
    """The constant of a node; None if the node is no constant, or if only Spark can read it."""
    node = bare(node)
    if isinstance(node, exp.Neg):
        inner = constant_of(node.this)
        number = inner is not None and isinstance(inner.value, (int, Decimal, float))
        return Constant(-inner.value, inner.kind) if inner is not None and number else None
    if isinstance(node, exp.Boolean):
        return Constant(bool(node.this))
    if isinstance(node, exp.Literal):
        value = node.name if node.is_string else _number(node.name)
        return None if value is None else Constant(value)
    if type(node) is exp.Cast and isinstance(node.this, exp.Literal):
        return _cast(node.this, node.args["to"].this)
    return None


def _number(text: str) -> int | Decimal | float | None:
    try:
        number = float(text)
        if "e" in text.lower():
            return number if isfinite(number) else None  # Spark refuses numbers beyond the range of doubles
        if len(text.replace(".", "").lstrip("0")) > _MOST_DIGITS:
            return None  # and those that no decimal holds
        return Decimal(text) if "." in text else int(text)
    except ValueError:
        return None


def _cast(inner: exp.Literal, kind: exp.DType) -> Constant | None:
    """`1L`, `1.5D`, `DATE '...'` and `TIMESTAMP '...'`, which sqlglot reads as casts."""
    if inner.is_string:
        temporal = kind in _ZONED or kind in (exp.DType.DATE, exp.DType.TIMESTAMPNTZ)
        return Constant(inner.name, kind) if temporal else None
    if kind == exp.DType.DOUBLE:
        return Constant(float(inner.name))
    number = _number(inner.name)
    whole = isinstance(number, int) and number < 2**63
    return Constant(number) if kind == exp.DType.BIGINT and whole else None


def comparable(constant: Constant, kind: pa.DataType, utc: bool = True) -> Any:
    """The value with which to compare a scalar of this type, or None if Spark has to compare.

    `utc` says that times without a zone are in UTC.
    """
    value = constant.value
    if isinstance(value, bool):
        return value if pa.types.is_boolean(kind) else None
    if isinstance(value, (int, float, Decimal)):
        return _numeric(value, kind)
    if constant.kind is None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return value
    if pa.types.is_date(kind):
        return _date(value) if constant.kind in (None, exp.DType.DATE) else None
    if pa.types.is_timestamp(kind):
        return _instant(value, constant.kind, kind, utc)
    return None


def _numeric(value: int | float | Decimal, kind: pa.DataType) -> int | float | Decimal | None:
    if pa.types.is_float64(kind):
        return float(value)
    if pa.types.is_float32(kind):
        # Spark widens to double, except that an integer becomes a float.
        return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, int) else float(value)
    if pa.types.is_integer(kind):
        if isinstance(value, float):
            # Spark turns the column to double; below 2**53 that is a comparison by value.
            return value if abs(value) < _EXACT_DOUBLE else None
        if not -(2**63) <= value < 2**63:
            return None  # Spark's analyzer folds such comparisons, nulls included: leave them to it
        return int(value) if value == int(value) else value
    if pa.types.is_decimal(kind) and not isinstance(value, float):
        exact = Decimal(value)
        _, digits, exponent = exact.as_tuple()
        scale = max(0, -int(exponent))
        whole = max(kind.precision - kind.scale, len(digits) - scale)
        return exact if whole + max(scale, kind.scale) <= 38 else None
    return None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _instant(text: str, written: exp.DType | None, kind: pa.DataType, utc: bool) -> int | None:
    pattern = _DATE if written == exp.DType.DATE else _TIME
    found = pattern.fullmatch(text)
    if not found:
        return None
    zoned = text.endswith("Z") or bool(re.search(r":\d{2}[+-]\d{2}:\d{2}$|:\d{2}\.\d+[+-]\d{2}:\d{2}$", text))
    if zoned and (kind.tz is None or written == exp.DType.TIMESTAMPNTZ):
        return None  # a zone has another meaning for a time without one
    if not utc and not zoned and kind.tz is not None:
        return None
    try:
        return parse_instant(text)
    except SettingError:
        return None
