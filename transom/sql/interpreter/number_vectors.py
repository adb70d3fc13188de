"""Arithmetic and functions of numbers on vectors, with the same results to the last bit as the row form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from transom.sql.interpreter.decimal_vectors import (
    decimal_arithmetic_vector,
    rounded_decimals,
    rounded_division,
    to_integers,
)
from transom.sql.interpreter.decimals import Decimals
from transom.sql.interpreter.types import is_decimal, is_float, is_int
from transom.sql.interpreter.vectors import Vector, zeros_of

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply}


def vector_arithmetic(operator: str, type: pa.DataType) -> Callable[[Any, Any], Any] | None:
    """`left operator right` of arrays of a type; None if there is only the row form."""
    if is_decimal(type):
        return decimal_arithmetic_vector(operator, type)
    if not (is_int(type) or is_float(type)):
        return None
    if operator in _PLAIN:
        return _PLAIN[operator]
    return quotient if operator == "/" else remainders


def quotient(left: np.ndarray, right: np.ndarray) -> Vector:
    """Null where the divisor is zero."""
    return Vector(left / right, zeros_of(right))


def remainders(left: np.ndarray, right: np.ndarray) -> Vector:
    """With the sign of the dividend; null where the divisor is zero."""
    return Vector(np.fmod(left, right), zeros_of(right))


def whole_quotients(left: np.ndarray, right: np.ndarray) -> Vector:
    """`div` of integers, towards zero."""
    left, right = left.astype(np.int64, copy=False), right.astype(np.int64, copy=False)
    floor = left // right
    inexact = (floor * right != left) & ((left < 0) != (right < 0))
    return Vector(floor + inexact, zeros_of(right))


def positive_remainders(left: np.ndarray, right: np.ndarray) -> Vector:
    """`pmod`: for a positive divisor never negative; sums of bytes and shorts are ints, as in Java."""
    dtype = left.dtype
    if dtype.kind == "i" and dtype.itemsize < 4:
        left, right = left.astype(np.int32), right.astype(np.int32)
    rest = np.fmod(left, right)
    found = np.where(rest < 0, np.fmod(rest + right, right), rest)
    return Vector(found.astype(dtype, copy=False), zeros_of(right))


def right_unsigned_arrays(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The bits moved to the right, with zeros coming in from the left."""
    unsigned = np.uint64 if values.dtype == np.int64 else np.uint32
    return (values.view(unsigned) >> places.view(unsigned)).view(values.dtype)


def signs(values: np.ndarray) -> np.ndarray:
    """-1.0, 0.0 or 1.0; NaN of NaN, and zero keeps its sign."""
    return np.where(values == 0, values, np.sign(values))


def each_double(function: Callable[..., float | None]) -> Callable[..., Vector]:
    """A function of doubles called for each value, because NumPy's may differ in the last bit."""

    def compute(*arrays: np.ndarray) -> Vector:
        size = next((len(array) for array in arrays if len(array) != 1), 1)
        lists = [np.broadcast_to(array, size).tolist() for array in arrays]
        found = list(map(function, *lists))
        if None not in found:
            return Vector(np.array(found, np.float64))
        nulls = np.array([value is None for value in found])
        return Vector(np.array([0.0 if value is None else value for value in found]), nulls)

    return compute


def vector_rounding(
    type: pa.DataType, places: int, function: Callable[[float], float]
) -> Callable[[Any], Any]:
    """`round` of arrays of numbers to a number of places; `function` rounds one float."""
    if is_decimal(type):
        return rounded_decimals(places, type)
    if is_int(type):
        if places >= 0:
            return lambda values: values
        return lambda values: to_integers(
            Decimals(rounded_division(values.astype(np.int64), 10**-places), -places), values.dtype
        )
    return lambda values: rounded_floats(values, places, function)


def rounded_floats(values: np.ndarray, places: int, function: Callable[[float], float]) -> np.ndarray:
    """Floats rounded half up by their shortest decimal text: only those close to a half need the text."""
    doubles = values.astype(np.float64, copy=False)
    power = 10.0 ** abs(places)
    if abs(places) > 22:
        return _each(function, doubles).astype(values.dtype)
    scaled = np.abs(doubles * power if places > 0 else doubles / power if places < 0 else doubles)
    whole = np.floor(scaled)
    rest = scaled - whole
    nearest = whole + (rest >= 0.5)
    found = nearest / power if places > 0 else nearest * power
    found = np.where(doubles < 0, -found, found) + 0.0  # 0.0, not -0.0
    unsure = ~(scaled < 2.0**52)
    if places:
        unsure |= np.abs(rest - 0.5) <= scaled * 2.0**-50
    unsure &= np.isfinite(doubles)
    found = np.where(np.isfinite(doubles), found, doubles)
    if unsure.any():
        found[unsure] = _each(function, doubles[unsure])
    return found.astype(values.dtype, copy=False)


def _each(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    return np.array([function(value) for value in values.tolist()], np.float64)
