"""CAST of vectors, for the pairs of types whose cast needs no Python per value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.durations import DAY, SECOND
from transom.sql.interpreter.decimal_vectors import fitted, from_integers, to_doubles, to_integers
from transom.sql.interpreter.types import (
    BOOL,
    DATE,
    NULL,
    STRING,
    TIMESTAMP_NTZ,
    is_decimal,
    is_float,
    is_int,
    is_interval,
    is_text,
    is_timestamp,
)
from transom.sql.interpreter.values import FIRST_DATE, LAST_DATE
from transom.sql.interpreter.vectors import Vector, array_of, dtype_of, vector_of

Cast = Callable[[Any], Any]
INT64 = np.iinfo(np.int64)


def vector_cast(source: pa.DataType, target: pa.DataType) -> Cast | None:
    """The cast of an array from one type to another; None if there is only the row form."""
    if source == NULL:
        return all_null(target)
    dtype = dtype_of(target)
    if is_text(target):
        return text_cast(source)
    if is_decimal(source) or is_decimal(target):
        return decimal_cast(source, target)
    if is_int(target):
        if is_int(source) or source == BOOL:
            return lambda values: values.astype(dtype)
        if is_float(source):
            return lambda values: float_to_int(values, target.bit_width).astype(dtype)
        if is_timestamp(source):
            return lambda values: timestamp_to_int(values, dtype)
    if is_float(target):
        if is_int(source) or source == BOOL or is_float(source):
            return lambda values: values.astype(dtype)
        if is_timestamp(source):
            return lambda values: (values / float(SECOND)).astype(dtype, copy=False)
    if target == BOOL and (is_int(source) or is_float(source)):
        return lambda values: values != 0
    if is_timestamp(target):
        if is_timestamp(source):
            return lambda values: values
        if source == DATE:
            return lambda values: values.astype(np.int64) * DAY
        if is_int(source):
            return seconds_to_timestamp
        if is_float(source):
            return float_seconds_to_timestamp
    if target == DATE and is_timestamp(source):
        return timestamp_to_date
    return None


def decimal_cast(source: pa.DataType, target: pa.DataType) -> Cast | None:
    """A cast from or to a decimal."""
    if is_decimal(target):
        if is_decimal(source):
            return lambda values: fitted(values, target)
        if is_int(source) or source == BOOL:
            return from_integers(target)
        return from_integers(target, -6) if is_timestamp(source) or is_interval(source) else None
    if is_int(target):
        return lambda values: to_integers(values, dtype_of(target))
    if is_float(target):
        return lambda values: to_doubles(values).astype(dtype_of(target), copy=False)
    return (lambda values: values.integers != 0) if target == BOOL else None


def text_cast(source: pa.DataType) -> Cast | None:
    """A cast to a string."""
    if is_text(source):
        return lambda texts: texts
    if is_int(source) or source in (BOOL, DATE):
        return lambda values: vector_of(array_of(Vector(values), source, len(values)).cast(STRING))
    return timestamp_to_text if is_timestamp(source) else None


def timestamp_to_text(micros: np.ndarray) -> Vector:
    """Timestamps as Spark prints them: without the zeros at the end of a fraction."""
    by_row = checked_dates(micros // DAY).by_row
    if by_row is not None:
        micros = np.where(by_row, 0, micros)
    texts = array_of(Vector(micros), TIMESTAMP_NTZ, len(micros)).cast(STRING)
    return Vector(pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), "."), None, by_row)


def all_null(target: pa.DataType) -> Cast:
    """NULL as a type."""
    dtype = dtype_of(target)

    def cast_null(values: np.ndarray) -> Any:
        if dtype is None:
            return vector_of(pa.nulls(len(values), target))
        return np.zeros(len(values), dtype)

    return cast_null


def float_to_int(values: np.ndarray, bits: int) -> np.ndarray:
    """The whole part of floats, clamped as in Java; NaN is 0."""
    values = values.astype(np.float64, copy=False)
    if bits < 64:  # Java goes by way of int for byte and short
        clipped = np.clip(values, -(2.0**31), 2.0**31 - 1)
        return np.where(np.isnan(values), 0.0, clipped).astype(np.int32)
    whole = np.where(np.abs(values) < 2.0**63, values, 0.0).astype(np.int64)
    whole[values >= 2.0**63] = INT64.max
    whole[values <= -(2.0**63)] = INT64.min
    return whole


def timestamp_to_int(micros: np.ndarray, dtype: Any) -> Vector:
    """Whole seconds; null where they do not fit."""
    seconds = micros // SECOND
    whole = seconds.astype(dtype)
    outside = whole != seconds
    return Vector(whole, outside if outside.any() else None)


def seconds_to_timestamp(values: np.ndarray) -> np.ndarray:
    """Whole seconds as microseconds, clamped to 64 bits."""
    values = values.astype(np.int64, copy=False)
    most = INT64.max // SECOND
    micros = values * SECOND
    return np.where(values > most, INT64.max, np.where(values < -most, INT64.min, micros))


def float_seconds_to_timestamp(values: np.ndarray) -> Vector:
    """Seconds with a fraction as microseconds; null where they are not finite."""
    values = values.astype(np.float64, copy=False)
    return Vector(float_to_int(values * float(SECOND), 64), ~np.isfinite(values))


def timestamp_to_date(values: np.ndarray) -> Vector:
    """The day of a timestamp."""
    return checked_dates(values // DAY)


def checked_dates(days: np.ndarray) -> Vector:
    """Days since 1970 as dates; the row form decides what a date outside of the years 1 to 9999 is."""
    outside = (days < FIRST_DATE) | (days > LAST_DATE)
    if not outside.any():
        return Vector(days.astype(np.int32, copy=False))
    return Vector(np.where(outside, 0, days).astype(np.int32), None, outside)
