"""Decimal arithmetic, casts and comparisons on vectors: exact, rounded half up, null where digits are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from transom.sql.interpreter.decimals import LARGEST, Decimals, as_python, most, times
from transom.sql.interpreter.vectors import Vector, either, zeros_of


def fitted(decimals: Decimals, type: pa.DataType) -> Vector:
    """Decimals rounded half up to a type's scale; null where they have too many digits."""
    if decimals.exponent < -type.scale:
        decimals = Decimals(
            rounded_division(decimals.integers, 10 ** (-type.scale - decimals.exponent)), -type.scale
        )
    integers = decimals.integers
    limit = 10 ** max(type.precision - type.scale - decimals.exponent, 0)
    if most(integers) < limit:
        return Vector(decimals)
    if integers.dtype != object and limit > LARGEST:
        return Vector(decimals)
    outside = ((integers >= limit) | (integers <= -limit)).astype(np.bool_)
    return Vector(Decimals(np.where(outside, 0, integers), decimals.exponent), outside)


def rounded_division(integers: np.ndarray, divisor: Any) -> np.ndarray:
    """Quotients rounded half away from zero."""
    integers = roomy(integers)
    if not isinstance(divisor, np.ndarray) and divisor > LARGEST // 4:
        integers = as_python(integers)
    whole, rest = whole_division(integers, divisor)
    up = 2 * abs(rest) >= abs(divisor)
    sign = np.where((integers < 0) != (divisor < 0), -1, 1)
    return whole + np.where(up.astype(np.bool_), sign, 0)


def roomy(integers: np.ndarray) -> np.ndarray:
    """The integers as a type in which a few sums can't overflow."""
    return as_python(integers) if integers.dtype != object and most(integers) > LARGEST // 4 else integers


def whole_division(integers: np.ndarray, divisor: Any) -> tuple[np.ndarray, np.ndarray]:
    """Quotients towards zero, and remainders with the sign of the dividend."""
    integers = roomy(integers)
    absolute = abs(integers) // abs(divisor)
    whole = np.where((integers < 0) != (divisor < 0), -absolute, absolute)
    return whole, integers - whole * divisor


def aligned(left: Decimals, right: Decimals) -> tuple[np.ndarray, np.ndarray, int]:
    """The integers of both for one exponent."""
    exponent = min(left.exponent, right.exponent)
    first, second = left.at(exponent), right.at(exponent)
    if most(first) > LARGEST // 2 or most(second) > LARGEST // 2:
        return as_python(first), as_python(second), exponent
    return first, second, exponent


def decimal_arithmetic_vector(operator: str, type: pa.DataType) -> Callable[[Decimals, Decimals], Vector]:
    """`left operator right` of decimals."""

    def compute(left: Decimals, right: Decimals) -> Vector:
        match operator:
            case "*":
                if most(left.integers) * most(right.integers) > LARGEST:
                    left = Decimals(as_python(left.integers), left.exponent)
                return fitted(Decimals(left.integers * right.integers, left.exponent + right.exponent), type)
            case "/":
                return decimal_quotient(left, right, type)
            case "+" | "-":
                first, second, exponent = aligned(left, right)
                return fitted(Decimals(first + second if operator == "+" else first - second, exponent), type)
        first, second, exponent = aligned(left, right)
        zeros = zeros_of(second)
        divisor = second if zeros is None else np.where(zeros, 1, second)
        found = fitted(Decimals(whole_division(first, divisor)[1], exponent), type)
        return Vector(found.values, either(found.nulls, zeros))

    return compute


def decimal_quotient(left: Decimals, right: Decimals, type: pa.DataType) -> Vector:
    """The quotient with the digits of the type's scale."""
    zeros = zeros_of(right.integers)
    divisor = right.integers if zeros is None else np.where(zeros, 1, right.integers)
    shift = left.exponent - right.exponent + type.scale
    if shift >= 0:
        numerator = times(left.integers, 10**shift)
    else:
        numerator, divisor = left.integers, times(divisor, 10**-shift)
    if most(numerator) > LARGEST // 4 or most(divisor) > LARGEST // 4:
        numerator, divisor = as_python(numerator), as_python(divisor)
    found = fitted(Decimals(rounded_division(numerator, divisor), -type.scale), type)
    return Vector(found.values, either(found.nulls, zeros))


def decimal_comparison(operator: Callable[[Any, Any], Any], left: Decimals, right: Decimals) -> np.ndarray:
    """A comparison of decimals by value."""
    first, second, _ = aligned(left, right)
    return operator(first, second).astype(np.bool_)


def to_doubles(decimals: Decimals) -> np.ndarray:
    """The nearest double of each decimal."""
    integers, exponent = decimals.integers, decimals.exponent
    if exponent >= 0:
        return times(integers, 10**exponent).astype(np.float64)
    if exponent >= -22 and most(integers) <= 1 << 53:  # both are exact doubles, so that one rounding is left
        return integers.astype(np.float64) / 10.0**-exponent
    divisor = 10**-exponent
    return np.array([integer / divisor for integer in integers.tolist()], np.float64)


def to_integers(decimals: Decimals, dtype: Any) -> np.ndarray:
    """The whole part, wrapped to the type's bits."""
    integers, exponent = decimals.integers, decimals.exponent
    if exponent > 0:
        integers = times(integers, 10**exponent)
    elif exponent < 0:
        integers, _ = whole_division(*_of_one_kind(integers, 10**-exponent))
    if integers.dtype == object:
        integers = (integers & ((1 << 64) - 1)).astype(np.uint64).view(np.int64)
    return integers.astype(dtype)


def _of_one_kind(integers: np.ndarray, divisor: int) -> tuple[np.ndarray, int]:
    return (as_python(integers) if divisor > LARGEST else integers), divisor


def from_integers(type: pa.DataType, exponent: int = 0) -> Callable[[np.ndarray], Vector]:
    """Integers times a power of ten as decimals."""
    return lambda values: fitted(Decimals(values.astype(np.int64, copy=False), exponent), type)


def stepped_decimals(is_up: bool) -> Callable[[Decimals], Vector]:
    """`floor` and `ceil`."""

    def compute(decimals: Decimals) -> Vector:
        if decimals.exponent >= 0:
            return Vector(decimals)
        integers, divisor = _of_one_kind(roomy(decimals.integers), 10**-decimals.exponent)
        return Vector(Decimals(-(-integers // divisor) if is_up else integers // divisor, 0))

    return compute


def rounded_decimals(places: int, type: pa.DataType) -> Callable[[Decimals], Vector]:
    """`round` to a number of places, which may be negative."""

    def compute(decimals: Decimals) -> Vector:
        if decimals.exponent >= -places:
            return fitted(decimals, type)
        integers = rounded_division(decimals.integers, 10 ** (-places - decimals.exponent))
        return fitted(Decimals(integers, -places), type)

    return compute
