"""Dates, timestamps and intervals of Spark SQL on typed expressions, in the time zone UTC.

A timestamp is an integer of microseconds since 1970, an interval one of microseconds.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import Any, Callable, Sequence

import numpy as np
import pyarrow as pa

from transom.columns.types import is_number
from transom.durations import DAY, HOUR, MINUTE, SECOND
from transom.errors import SQLError
from transom.sql.interpreter.cast_vectors import checked_dates
from transom.sql.interpreter.casts import cast, to_date
from transom.sql.interpreter.time_vectors import (
    clock_part_vector,
    cut_to,
    date_part_vector,
    date_truncation,
    days_plus,
    differences,
    float_units_to_micros,
    last_days,
    months_later,
    rounded_down,
    seconds_towards_zero,
    timestamp_truncation,
    units_to_micros,
)
from transom.sql.interpreter.typed_expression import TypedExpression, converted, literal, strict
from transom.sql.interpreter.types import (
    DATE,
    INT,
    INTERVAL,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    is_float,
    is_int,
    is_interval,
    is_text,
    is_timestamp,
    unsupported,
)  # fmt: skip
from transom.sql.interpreter.values import wrap

FIRST_DAY = date(1970, 1, 1)
UNIT_MICROSECONDS = {
    "microsecond": 1, "millisecond": 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY,
    "week": 7 * DAY,
}  # fmt: skip


# --- parts of a date or a timestamp --------------------------------------------------------------

DATE_PARTS: dict[str, Callable[[date], int]] = {
    "year": lambda day: day.year,
    "quarter": lambda day: (day.month + 2) // 3,
    "month": lambda day: day.month,
    "day": lambda day: day.day,
    "dayofmonth": lambda day: day.day,
    "dayofweek": lambda day: day.isoweekday() % 7 + 1,
    "dayofyear": lambda day: day.timetuple().tm_yday,
    "weekday": lambda day: day.weekday(),
    "weekofyear": lambda day: day.isocalendar().week,
}
CLOCK_PARTS = {
    "hour": (HOUR, 24),
    "minute": (MINUTE, 60),
    "second": (SECOND, 60),
}  # a unit, and how many there are
PART_NAMES = {"week": "weekofyear", "dow": "dayofweek", "doy": "dayofyear", "d": "day", "days": "day",
              "hours": "hour", "minutes": "minute", "min": "minute", "months": "month", "mon": "month",
              "years": "year", "y": "year"}  # fmt: skip


def part(name: str, arg: TypedExpression) -> TypedExpression:
    """`year(x)`, `hour(x)` and the others."""
    if name in DATE_PARTS:
        return strict(INT, DATE_PARTS[name], as_date(arg), vector=date_part_vector(name))
    unit, count = CLOCK_PARTS[name]
    return strict(
        INT, lambda micros: micros // unit % count, as_timestamp(arg), vector=clock_part_vector(unit, count)
    )


def extracted(unit: str, arg: TypedExpression) -> TypedExpression:
    """`extract(unit FROM x)` and `date_part('unit', x)`."""
    name = PART_NAMES.get(unit.lower(), unit.lower())
    if name not in DATE_PARTS and name not in ("hour", "minute"):  # Spark's second has a fraction here
        raise unsupported(f"extract({unit} FROM ...)")
    return part(name, arg)


def as_date(arg: TypedExpression) -> TypedExpression:
    """The argument as a date."""
    return converted(arg, DATE)


def as_timestamp(arg: TypedExpression) -> TypedExpression:
    """The argument as a timestamp, with or without zone."""
    return arg if is_timestamp(arg.type) else converted(arg, TIMESTAMP)


# --- arithmetic with times -----------------------------------------------------------------------


def date_plus(sign: int, arg: TypedExpression, days: TypedExpression) -> TypedExpression:
    """`date_add(d, n)` (sign 1) and `date_sub(d, n)` (sign -1)."""
    if not (is_int(days.type) or is_text(days.type)) or days.type == LONG:
        raise SQLError(f"the number of days must be an int, not {days.type}")
    return strict(
        DATE,
        lambda day, n: day + timedelta(days=sign * n),
        as_date(arg),
        converted(days, INT),
        vector=days_plus(sign),
    )


def date_difference(end: TypedExpression, start: TypedExpression) -> TypedExpression:
    """`datediff(end, start)` in days."""
    return strict(
        INT, lambda last, first: (last - first).days, as_date(end), as_date(start), vector=np.subtract
    )


def is_time(type: pa.DataType) -> bool:
    """Whether values of this type have their own arithmetic: dates, timestamps and intervals."""
    return bool(type == DATE or is_timestamp(type) or is_interval(type))


def time_arithmetic(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`+` and `-` where one side is a date, a timestamp or an interval."""
    sign = 1 if operator == "+" else -1
    if operator == "+" and is_interval(left.type) and not is_interval(right.type):
        left, right = right, left
    if operator in "+-" and is_interval(right.type) and (is_timestamp(left.type) or is_interval(left.type)):
        vector = np.add if sign > 0 else np.subtract
        return strict(left.type, lambda a, b: wrap(a + sign * b, 64), left, right, vector=vector)
    if operator in "+-" and left.type == DATE and is_int(right.type):
        return date_plus(sign, left, right)
    if operator == "-" and not is_interval(left.type) and not is_interval(right.type):
        return strict(INTERVAL, lambda a, b: a - b, *map(to_micros, (left, right)), vector=differences)
    raise unsupported(f"{left.type} {operator} {right.type}")


def to_micros(arg: TypedExpression) -> TypedExpression:
    """A date, a timestamp or text as a timestamp."""
    return arg if is_timestamp(arg.type) else converted(arg, TIMESTAMP)


def interval(length: str, unit: str) -> TypedExpression:
    """`INTERVAL '5' MINUTES`, of days or shorter units; only seconds have a fraction."""
    name = unit.lower().removesuffix("s")
    size = UNIT_MICROSECONDS.get(name)
    form = r"[+-]?(\d+\.?\d*|\.\d+)" if name == "second" else r"[+-]?\d+"
    is_length = size is not None and re.fullmatch(form, length.strip()) is not None
    micros = cast(float(length) * (size or 0), pa.float64(), LONG) if is_length else None
    if micros is None:
        raise unsupported(f"INTERVAL '{length}' {unit.upper()}".rstrip())
    return literal(micros, INTERVAL)


# --- truncation ----------------------------------------------------------------------------------

YEAR_WORDS, QUARTER_WORDS, MONTH_WORDS = {"year", "yyyy", "yy"}, {"quarter"}, {"month", "mon", "mm"}


def first_date(unit: str, day: date) -> date | None:
    """The first day of the year, quarter, month or week; None for another unit."""
    if unit in YEAR_WORDS:
        return day.replace(month=1, day=1)
    if unit in QUARTER_WORDS:
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    if unit in MONTH_WORDS:
        return day.replace(day=1)
    return day - timedelta(days=day.weekday()) if unit == "week" else None


def truncated_date(day: date, unit: str) -> date | None:
    """`trunc(d, 'month')`."""
    return first_date(unit.lower(), day)


def trunc(arg: TypedExpression, unit: TypedExpression) -> TypedExpression:
    """`trunc(d, unit)`."""
    vector = constant_unit(unit, date_truncation)
    return strict(
        DATE,
        truncated_date,
        as_date(arg),
        converted(unit, STRING),
        vector=None if vector is None else lambda days, _: vector(days),
    )


def constant_unit(
    unit: TypedExpression, truncation: Callable[[str], Callable[[Any], Any] | None]
) -> Callable[[Any], Any] | None:
    """The vector form of a truncation to a constant unit of the calendar, by the first of the unit's words."""
    if not isinstance(unit.constant, str):
        return None
    word = unit.constant.lower()
    names = {"year": YEAR_WORDS, "quarter": QUARTER_WORDS, "month": MONTH_WORDS, "week": {"week"}}
    return next((truncation(name) for name, words in names.items() if word in words), None)


def fixed_unit(unit: str) -> str:
    """The name of a unit of time in lower case."""
    return {"dd": "day"}.get(unit.lower(), unit.lower())


def truncated_timestamp(unit: str, micros: int) -> int | None:
    """`date_trunc('hour', ts)`; null for a unit that Spark does not know."""
    unit = fixed_unit(unit)
    if unit in UNIT_MICROSECONDS and unit != "week":
        return micros - micros % UNIT_MICROSECONDS[unit]
    start = first_date(unit, to_date(micros, TIMESTAMP) or FIRST_DAY)
    return None if start is None else (start - FIRST_DAY).days * DAY


def date_trunc(unit: TypedExpression, arg: TypedExpression) -> TypedExpression:
    """`date_trunc(unit, x)`."""
    vector = constant_unit(unit, timestamp_truncation)
    size = UNIT_MICROSECONDS.get(fixed_unit(unit.constant)) if isinstance(unit.constant, str) else None
    if vector is None and size is not None:
        vector = cut_to(size)
    return strict(
        TIMESTAMP,
        truncated_timestamp,
        converted(unit, STRING),
        converted(arg, TIMESTAMP),
        vector=None if vector is None else lambda _, micros: vector(micros),
    )


# --- numbers since 1970 --------------------------------------------------------------------------


def since_1970(unit: int, arg: TypedExpression) -> TypedExpression:
    """`unix_seconds`, `unix_millis` and `unix_micros`, rounded down."""
    if not (is_timestamp(arg.type) or arg.type == NULL):
        raise SQLError(f"a timestamp was expected, not {arg.type}")
    return strict(LONG, lambda micros: micros // unit, converted(arg, TIMESTAMP), vector=rounded_down(unit))


def timestamp_from(unit: int, arg: TypedExpression) -> TypedExpression:
    """`timestamp_seconds`, `timestamp_millis` and `timestamp_micros`."""
    if not is_int(arg.type) and not (unit == SECOND and arg.type != STRING):
        raise SQLError(f"a number was expected, not {arg.type}")
    vector = units_to_micros(unit) if is_int(arg.type) else None
    if is_float(arg.type):
        vector = float_units_to_micros(unit)
    return strict(TIMESTAMP, lambda number: fitting(int(number * unit)), arg, vector=vector)


def fitting(micros: int) -> int | None:
    """A timestamp, or null if it does not fit into 64 bits."""
    return micros if wrap(micros, 64) == micros else None


def local_timestamp(arg: TypedExpression) -> TypedExpression:
    """`to_timestamp_ntz(x)`, of a number by way of its text."""
    return converted(converted(arg, STRING) if is_number(arg.type) else arg, TIMESTAMP_NTZ)


def unix_timestamp(args: Sequence[TypedExpression]) -> TypedExpression:
    """`unix_timestamp(x)`: seconds since 1970 of a date, a timestamp or text like 2020-02-29 13:00:00."""
    arg = args[0]
    if not is_text(arg.type):  # towards zero, unlike unix_seconds
        return strict(
            LONG,
            lambda micros: abs(micros) // SECOND * (-1 if micros < 0 else 1),
            as_timestamp(arg),
            vector=seconds_towards_zero,
        )

    def function(value: str) -> Any:
        exact = len(value) == 19 and value[10] == " "  # the format that Spark assumes is a strict one
        micros = cast(value, STRING, TIMESTAMP) if exact else None
        return None if micros is None else micros // SECOND

    return strict(LONG, function, arg)


def unix_date(arg: TypedExpression) -> TypedExpression:
    """`unix_date(d)`: days since 1970."""
    if arg.type not in (DATE, NULL):
        raise SQLError(f"a date was expected, not {arg.type}")
    return strict(INT, lambda day: (day - FIRST_DAY).days, as_date(arg), vector=lambda days: days)


def date_from_days(arg: TypedExpression) -> TypedExpression:
    """`date_from_unix_date(n)`."""
    return strict(
        DATE, lambda days: FIRST_DAY + timedelta(days=days), converted(arg, INT), vector=checked_dates
    )


def seconds_as_text(arg: TypedExpression) -> TypedExpression:
    """`from_unixtime(n)` in Spark's usual format."""
    return strict(STRING, lambda seconds: cast(seconds * SECOND, TIMESTAMP, STRING), converted(arg, LONG))


def last_day(day: date) -> date:
    """The last day of the month."""
    return day.replace(day=monthrange(day.year, day.month)[1])


def last_day_of(arg: TypedExpression) -> TypedExpression:
    """`last_day(d)`."""
    return strict(DATE, last_day, as_date(arg), vector=last_days)


def add_months(arg: TypedExpression, months: TypedExpression) -> TypedExpression:
    """`add_months(d, n)`: the same day of another month, or its last day."""

    def function(day: date, number: int) -> date:
        year, month = divmod(day.year * 12 + day.month - 1 + number, 12)
        last = last_day(date(year, month + 1, 1)).day
        return date(year, month + 1, min(day.day, last))

    return strict(DATE, function, as_date(arg), converted(months, INT), vector=months_later)


def part_by_name(args: Sequence[TypedExpression]) -> TypedExpression:
    """`date_part('unit', x)`."""
    unit, arg = args
    if not isinstance(unit.constant, str):
        raise SQLError("date_part() takes a constant unit, as in date_part('year', x)")
    return extracted(unit.constant, arg)
