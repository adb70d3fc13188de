"""Which type Spark SQL gives to an expression, with ANSI mode off."""

from __future__ import annotations

from functools import reduce
from typing import Iterable

import pyarrow as pa

from transom.columns.types import is_number
from transom.errors import SQLError

NULL, BOOL, STRING, DATE = pa.null(), pa.bool_(), pa.string(), pa.date32()
TINY, SHORT, INT, LONG = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
TIMESTAMP, TIMESTAMP_NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
INTERVAL = pa.duration("us")  # of days and shorter units
MOST_DIGITS = 38
LEAST_SCALE = 6  # that Spark keeps when a product or quotient has too many digits
DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of an integer type as a decimal

is_int, is_float = pa.types.is_integer, pa.types.is_floating
is_decimal, is_timestamp, is_struct = pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_struct
is_interval = pa.types.is_duration
BY_NAME = {
    "TINYINT": TINY, "SMALLINT": SHORT, "INT": INT, "BIGINT": LONG, "FLOAT": FLOAT,
    "DOUBLE": DOUBLE, "BOOLEAN": BOOL, "TEXT": STRING, "VARCHAR": STRING, "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMP, "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}  # fmt: skip

TYPE_NAMES = {type: name for name, type in reversed(BY_NAME.items())} | {
    STRING: "STRING", TIMESTAMP_NTZ: "TIMESTAMP_NTZ"
}  # fmt: skip


def is_text(type: pa.DataType) -> bool:
    """Whether this is a string."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


NEEDS_SPARK = "is not supported without Spark"  # in the message of each such error


def unsupported(what: str) -> SQLError:
    """The error for what Spark evaluates and the interpreter does not."""
    return SQLError(f"{what} {NEEDS_SPARK}; run this query on the Spark backend")


def decimal(precision: int, scale: int) -> pa.DataType:
    """A decimal type, giving up scale for whole digits where there are too many (`adjustPrecisionScale`)."""
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MOST_DIGITS, max(MOST_DIGITS - whole, min(scale, LEAST_SCALE)))


def bounded(precision: int, scale: int) -> pa.DataType:
    """A decimal type cut off at 38 digits."""
    return pa.decimal128(min(precision, MOST_DIGITS), min(scale, MOST_DIGITS))


def as_decimal(type: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    return type if is_decimal(type) else pa.decimal128(DIGITS[type.bit_width], 0)


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of `left operator right`, for one of + - * / %.

    >>> arithmetic_type("/", pa.int32(), pa.int64())
    DataType(double)
    >>> arithmetic_type("*", pa.decimal128(10, 2), pa.decimal128(4, 1))
    Decimal128Type(decimal128(15, 3))
    """
    left, right = (DOUBLE if is_text(type) else type for type in (left, right))
    left, right = (other if type == NULL else type for type, other in ((left, right), (right, left)))
    if left == right == NULL:
        return DOUBLE
    if not (is_number(left) and is_number(right)):
        raise unsupported(f"{left} {operator} {right}")
    if (is_decimal(left) or is_decimal(right)) and not (is_float(left) or is_float(right)):
        return decimal_arithmetic(operator, as_decimal(left), as_decimal(right))
    return DOUBLE if operator == "/" else wider(left, right)


def decimal_arithmetic(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Spark's table of precision and scale (`DecimalPrecision`)."""
    (p1, s1), (p2, s2) = (left.precision, left.scale), (right.precision, right.scale)
    scale = max(s1, s2)
    match operator:
        case "+" | "-":
            return decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return decimal(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(LEAST_SCALE, s1 + p2 + 1)
            return decimal(p1 - s1 + s2 + scale, scale)
        case _:
            return decimal(min(p1 - s1, p2 - s2) + scale, scale)


def wider(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type both can be read as, without turning anything into a string."""
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if is_number(left) and is_number(right):
        return wider_number(left, right)
    for one, other in ((left, right), (right, left)):
        if one == DATE and is_timestamp(other):
            return other
    raise unsupported(f"a common type of {left} and {right}")


def wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Byte, short, int, long, float, double in this order; a decimal with a float is a double."""
    if is_float(left) or is_float(right):
        both_single = not (is_decimal(left) or is_decimal(right)) and DOUBLE not in (left, right)
        return FLOAT if both_single else DOUBLE
    if is_int(left) and is_int(right):
        return max(left, right, key=lambda type: type.bit_width)
    left, right = as_decimal(left), as_decimal(right)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return bounded(
        whole + scale, max(min(scale, MOST_DIGITS - whole), 0)
    )  # digits before the point come first


def wider_or_text(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The same for CASE, coalesce and IN, where a string makes a string of the other."""
    if is_text(left) or is_text(right):
        return STRING
    return wider(left, right)


def common_type(types: Iterable[pa.DataType], text: bool = False) -> pa.DataType:
    """The widest of several types."""
    return reduce(wider_or_text if text else wider, types)


def compared(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type in which two values are compared: a string is read as the other's type."""
    for one, other in ((left, right), (right, left)):
        if is_text(one) and not is_text(other) and other != NULL:
            return DOUBLE if is_decimal(other) else other
    return wider(left, right)
