"""Dates, timestamps and intervals on vectors: days and microseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from transom.durations import DAY, SECOND
from transom.sql.interpreter.cast_vectors import INT64, checked_dates
from transom.sql.interpreter.vectors import Vector


def rounded_down(unit: int) -> Callable[[np.ndarray], np.ndarray]:
    """Microseconds as whole units."""
    return lambda micros: micros if unit == 1 else micros // unit


def units_to_micros(unit: int) -> Callable[[np.ndarray], Any]:
    """Whole units as microseconds; null where they do not fit into 64 bits."""

    def compute(numbers: np.ndarray) -> Vector:
        numbers = numbers.astype(np.int64, copy=False)
        if unit == 1:
            return Vector(numbers)
        most = INT64.max // unit
        return Vector(numbers * unit, (numbers > most) | (numbers < -most))

    return compute


def seconds_towards_zero(micros: np.ndarray) -> np.ndarray:
    """Whole seconds, cut."""
    down, rest = np.divmod(micros, SECOND)
    return down + ((micros < 0) & (rest != 0))


def differences(left: np.ndarray, right: np.ndarray) -> Vector:
    """`left - right` of microseconds; the row form decides where it does not fit into 64 bits."""
    found = left - right
    overflow = ((left ^ right) & (left ^ found)) < 0
    return Vector(found, None, overflow if overflow.any() else None)


# --- the calendar --------------------------------------------------------------------------------


def years_of(days: np.ndarray) -> np.ndarray:
    """Years since 1970 of days since 1970."""
    return days.astype("M8[D]").astype("M8[Y]").astype(np.int64)


def months_of(days: np.ndarray) -> np.ndarray:
    """Months since January 1970 of days since 1970."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_of_years(years: np.ndarray) -> np.ndarray:
    """The first days of years since 1970."""
    return years.astype("M8[Y]").astype("M8[D]").astype(np.int64)


def first_of_months(months: np.ndarray) -> np.ndarray:
    """The first days of months since January 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def first_of_weeks(days: np.ndarray) -> np.ndarray:
    """The Mondays of days."""
    return days - (days + 3) % 7  # the first of January 1970 was a Thursday


def iso_weeks(days: np.ndarray) -> np.ndarray:
    """The number of the week, which belongs to the year of its Thursday."""
    thursdays = first_of_weeks(days) + 3
    return (thursdays - first_of_years(years_of(thursdays))) // 7 + 1


DATE_PART_VECTORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: years_of(days) + 1970,
    "quarter": lambda days: months_of(days) % 12 // 3 + 1,
    "month": lambda days: months_of(days) % 12 + 1,
    "day": lambda days: days - first_of_months(months_of(days)) + 1,
    "dayofmonth": lambda days: days - first_of_months(months_of(days)) + 1,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "dayofyear": lambda days: days - first_of_years(years_of(days)) + 1,
    "weekday": lambda days: (days + 3) % 7,
    "weekofyear": iso_weeks,
}
FIRST_DATE_VECTORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda days: first_of_years(years_of(days)),
    "quarter": lambda days: first_of_months(months_of(days) // 3 * 3),
    "month": lambda days: first_of_months(months_of(days)),
    "week": lambda days: first_of_weeks(days.astype(np.int64)),
}


def date_part_vector(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """`year(d)` and the others, of days since 1970."""
    compute = DATE_PART_VECTORS[name]
    return lambda days: compute(days).astype(np.int32, copy=False)


def clock_part_vector(unit: int, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """`hour(t)` and the others: which of so many units it is."""
    return lambda micros: (micros // unit % count).astype(np.int32)


def last_days(days: np.ndarray) -> np.ndarray:
    """The last days of the months of days."""
    return (first_of_months(months_of(days) + 1) - 1).astype(np.int32)


def days_plus(sign: int) -> Callable[[np.ndarray, np.ndarray], Vector]:
    """`date_add` and `date_sub`."""
    return lambda days, numbers: checked_dates(days.astype(np.int64) + sign * numbers.astype(np.int64))


def months_later(days: np.ndarray, numbers: np.ndarray) -> Vector:
    """`add_months`: the same day of another month, or its last day."""
    months = months_of(days)
    day = days - first_of_months(months)
    later = months + numbers.astype(np.int64)
    outside = (later < -1969 * 12) | (later >= 8030 * 12)  # the years 1 to 9999
    later = np.where(outside, 0, later)
    first = first_of_months(later)
    found = np.minimum(first + day, first_of_months(later + 1) - 1)
    return Vector(found.astype(np.int32), None, outside if outside.any() else None)


def date_truncation(unit: str) -> Callable[[np.ndarray], Any] | None:
    """`trunc(d, unit)` for one of the units of `FIRST_DATE_VECTORS`."""
    compute = FIRST_DATE_VECTORS.get(unit)
    return None if compute is None else lambda days: checked_dates(compute(days))


def timestamp_truncation(unit: str) -> Callable[[np.ndarray], Any] | None:
    """`date_trunc(unit, t)` for a unit of the calendar."""
    compute = FIRST_DATE_VECTORS.get(unit)
    if compute is None:
        return None

    def truncate(micros: np.ndarray) -> Vector:
        days, _, by_row = checked_dates(micros // DAY)
        return Vector(compute(days).astype(np.int64) * DAY, None, by_row)

    return truncate


def cut_to(unit: int) -> Callable[[np.ndarray], Any]:
    """`date_trunc(unit, t)` for a unit of a fixed length."""

    def truncate(micros: np.ndarray) -> Vector:
        found = micros - micros % unit
        overflow = found > micros
        return Vector(found, None, overflow if overflow.any() else None)

    return truncate


def float_units_to_micros(unit: int) -> Callable[[np.ndarray], Any]:
    """Units with a fraction as microseconds; null where they do not fit into 64 bits."""

    def compute(numbers: np.ndarray) -> Vector:
        micros = numbers.astype(np.float64) * unit
        fits = np.abs(micros) < 2.0**63
        return Vector(np.where(fits, micros, 0.0).astype(np.int64), ~fits, ~np.isfinite(micros))

    return compute
