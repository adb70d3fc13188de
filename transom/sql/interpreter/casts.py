"""CAST with ANSI mode off: what can't be read is null, what doesn't fit wraps or is cut."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.types import is_number
from transom.durations import SECOND
from transom.errors import SQLError
from transom.sql.interpreter.types import (
    DATE,
    NULL,
    TIMESTAMP_NTZ,
    is_decimal,
    is_float,
    is_int,
    is_interval,
    is_text,
    is_timestamp,
    unsupported,
)
from transom.sql.interpreter.values import EPOCH, EXACT, MICROSECOND, fit, single, wrap

TRUE, FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
NUMBER_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?$")
WHOLE = re.compile(r"([+-]?\d+)(\.\d*)?$")
SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
MOMENT = re.compile(
    r"(?P<year>\d{4})(-(?P<month>\d{1,2})(-(?P<day>\d{1,2})"
    r"([ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(:(?P<second>\d{1,2})(\.(?P<fraction>\d{0,9}))?)?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{1,2}(:\d{2})?)?)?)?)?$"
)


def cast(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """A value of the source type as the target type, null where Spark gives null."""
    if value is None or source == target:
        return value
    if is_text(target):
        return value if is_text(source) else spark_text(value, source)
    if is_int(target):
        return to_int(value, source, target.bit_width)
    if is_float(target):
        if is_int(source) and target.bit_width == 32:  # by way of a double it would be rounded twice
            return float(np.int64(value).astype(np.float32))
        number = to_double(value, source)
        return single(number) if number is not None and target.bit_width == 32 else number
    if is_decimal(target):
        return to_decimal(value, source, target)
    if pa.types.is_boolean(target):
        return to_bool(value, source)
    if is_timestamp(target):
        return to_timestamp(value, source)
    if target == DATE:
        return to_date(value, source)
    raise impossible(source, target)


def try_cast(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """TRY_CAST, which is CAST with ANSI mode on: null where an integer would be cut or wrap."""
    if value is None or not is_int(target):
        return cast(value, source, target)
    if is_text(source):
        return cast(value, source, target) if "." not in value else None
    if is_float(source) and not math.isfinite(value):
        return None
    whole = value // SECOND if is_timestamp(source) else int(value)
    return whole if wrap(whole, target.bit_width) == whole else None


def family(type: pa.DataType) -> str:
    """The group of types to which a type belongs where casts are concerned."""
    tests = {"text": is_text, "integer": is_int, "float": is_float, "decimal": is_decimal, "timestamp": is_timestamp,
             "interval": is_interval, "boolean": pa.types.is_boolean, "date": pa.types.is_date32}  # fmt: skip
    return next((name for name, test in tests.items() if test(type)), "other")


_NUMBERS = {"integer", "float", "decimal"}
CASTS = {  # by the source
    "text": {"text", "boolean", "timestamp", "date", *_NUMBERS},
    "integer": {"text", "boolean", "timestamp", *_NUMBERS},
    "float": {"text", "boolean", "timestamp", *_NUMBERS},
    "decimal": {"text", "boolean", "timestamp", *_NUMBERS},
    "boolean": {"text", "boolean", *_NUMBERS},
    "timestamp": {"text", "timestamp", "date", *_NUMBERS},
    "date": {"text", "timestamp", "date"},
    "interval": {"interval", "decimal"},
}


def check_cast(source: pa.DataType, target: pa.DataType) -> None:
    """Raise an error unless values of the source type can be cast to the target type."""
    if (target == TIMESTAMP_NTZ and is_number(source)) or (source == TIMESTAMP_NTZ and is_number(target)):
        raise impossible(source, target)
    same = source in (target, NULL)
    if not same and family(target) not in CASTS.get(family(source), ()):
        raise impossible(source, target)


def impossible(source: pa.DataType, target: object) -> SQLError:
    """The error for a cast that the interpreter does not make."""
    return unsupported(f"a cast from {source} to {target}")


def to_int(value: Any, source: pa.DataType, bits: int) -> int | None:
    """Floats saturate as in Java, other numbers wrap, strings lose their fraction."""
    if is_text(source):
        found = WHOLE.match(value.strip())
        number = int(found[1]) if found else None
        return number if number is not None and wrap(number, bits) == number else None
    if is_float(source):
        if math.isnan(value):
            return 0
        return wrap(clamped(value, max(bits, 32)), bits)  # Java goes by way of int for byte and short
    if is_timestamp(source):
        seconds: int = value // SECOND
        return seconds if wrap(seconds, bits) == seconds else None
    if is_number(source) or pa.types.is_boolean(source):
        return wrap(int(value), bits)
    raise impossible(source, f"an integer of {bits} bits")


def clamped(value: float, bits: int) -> int:
    """The whole part of a number, clamped to the range of integers with this number of bits."""
    most = (1 << (bits - 1)) - 1
    return int(max(-most - 1, min(most, value)))


def to_double(value: Any, source: pa.DataType) -> float | None:
    """A number, a string or a timestamp (in seconds) as a double."""
    if is_text(source):
        word = value.strip()
        unsigned = word.lstrip("+-").lower()
        if unsigned in SPECIAL_FLOATS and len(word) - len(unsigned) <= 1:
            return -SPECIAL_FLOATS[unsigned] if word.startswith("-") else SPECIAL_FLOATS[unsigned]
        return float(word.rstrip("dDfF")) if NUMBER_TEXT.match(word) else None
    if is_timestamp(source):
        return float(value) / SECOND
    if is_number(source) or pa.types.is_boolean(source):
        return float(value)
    raise impossible(source, "a double")


def to_decimal(value: Any, source: pa.DataType, target: pa.DataType) -> Decimal | None:
    """Rounded half up to the scale; a double goes by way of its shortest text."""
    if is_text(source):
        word = value.strip()
        return fit(Decimal(word), target) if NUMBER_TEXT.match(word) and word[-1] not in "dDfF" else None
    if is_float(source):
        return fit(Decimal(repr(value)), target) if math.isfinite(value) else None
    if is_number(source) or pa.types.is_boolean(source):
        return fit(Decimal(value), target)
    if is_interval(source) or is_timestamp(source):  # in seconds
        return fit(Decimal(value).scaleb(-6), target)
    raise impossible(source, target)


def to_bool(value: Any, source: pa.DataType) -> bool | None:
    """A number that is not zero, or one of Spark's words for true and false."""
    if is_text(source):
        word = value.strip().lower()
        return True if word in TRUE else False if word in FALSE else None
    if is_number(source):
        return bool(value != 0)
    raise impossible(source, "a boolean")


def to_timestamp(value: Any, source: pa.DataType) -> int | None:
    """From text, a date, another timestamp (the session's zone is UTC) or seconds since 1970."""
    if is_text(source):
        return parse_timestamp(value)
    if source == DATE:
        return (datetime(value.year, value.month, value.day, tzinfo=UTC) - EPOCH) // MICROSECOND
    if is_timestamp(source):
        return int(value)
    if is_float(source):
        return clamped(value * SECOND, 64) if math.isfinite(value) else None
    if is_int(source):
        return clamped(value * SECOND, 64)
    if is_decimal(source):
        return wrap(int(EXACT.multiply(value, SECOND)), 64)
    raise impossible(source, "a timestamp")


def to_date(value: Any, source: pa.DataType) -> date | None:
    """From text or from a timestamp, whose time of day is cut off."""
    if is_text(source):
        micros = parse_timestamp(value)
        return None if micros is None else to_date(micros, pa.timestamp("us"))
    if is_timestamp(source):
        return (EPOCH + timedelta(microseconds=value)).date()
    raise impossible(source, "a date")


def parse_timestamp(word: str) -> int | None:
    """Microseconds since 1970 of a date or a time as text; parts left out at the end are the first.

    >>> parse_timestamp("1970-01-02"), parse_timestamp("1970-1-1 0:00:01.5"), parse_timestamp("yesterday")
    (86400000000, 1500000, None)
    """
    match = MOMENT.match(word.strip())
    if not match:
        return None
    parts = {name: int(match[name] or (name in ("month", "day"))) for name in ("year", "month", "day")}
    clock = {name: int(match[name] or 0) for name in ("hour", "minute", "second")}
    fraction = int((match["fraction"] or "").ljust(6, "0")[:6])
    try:
        at = datetime(**parts, **clock, microsecond=fraction, tzinfo=UTC)
    except ValueError:
        return None
    return (at - EPOCH) // MICROSECOND - offset(match["zone"])


def offset(zone: str | None) -> int:
    """Microseconds that a zone such as +02:00 is ahead of UTC."""
    if zone in (None, "Z", "UTC"):
        return 0
    assert zone is not None
    hours, _, minutes = zone[1:].partition(":")
    return (-1 if zone[0] == "-" else 1) * (int(hours) * 60 + int(minutes or 0)) * 60 * SECOND


def spark_text(value: Any, source: pa.DataType) -> str:
    """A value as Spark prints it."""
    if pa.types.is_boolean(source):
        return "true" if value else "false"
    if is_int(source):
        return str(value)
    if is_decimal(source):
        return str(value)
    if is_float(source):
        return java_text(value, source.bit_width)
    if is_timestamp(source):
        moment = (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        return moment.isoformat(" ", "microseconds").rstrip("0").rstrip(".")
    if source == DATE:
        return str(value.isoformat())
    raise impossible(source, "a string")


def java_text(value: float, bits: int) -> str:
    """A float or double as Java prints it.

    >>> java_text(1e7, 64), java_text(0.1, 64), java_text(12.0, 64)
    ('1.0E7', '0.1', '12.0')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    shortest = repr(value)
    if bits == 32:
        shortest = next(s for d in range(1, 10) if single(float(s := f"{value:.{d}g}")) == value)
    if len(Decimal(shortest).normalize().as_tuple().digits) == 1:  # Java shows two digits, the nearest
        shortest = f"{value:.1e}"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) - 1 + exponent
    if -3 <= power < 7:
        plain = format(Decimal(shortest).normalize(), "f")
        return plain if "." in plain else plain + ".0"
    mantissa = "".join(map(str, digits))
    return f"{'-' * sign}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"
