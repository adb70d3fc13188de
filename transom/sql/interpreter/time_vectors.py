"""Dates, timestamps and intervals on vectors: days and microseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from transom.durations import SECOND
from transom.sql.interpreter.vectors import Vector

INT64 = np.iinfo(np.int64)


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
