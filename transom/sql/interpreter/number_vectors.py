"""Arithmetic and functions of numbers on vectors, with the same results to the last bit as the row form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from transom.sql.interpreter.types import is_float, is_int
from transom.sql.interpreter.vectors import Vector, dtype_of

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply}


def vector_arithmetic(operator: str, type: pa.DataType) -> Callable[[Any, Any], Any] | None:
    """`left operator right` of arrays of a type; None if there is only the row form."""
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


def zeros_of(divisor: np.ndarray) -> np.ndarray | None:
    """Where a divisor is zero."""
    zeros = divisor == 0
    return zeros if zeros.any() else None


def whole_quotients(left: np.ndarray, right: np.ndarray) -> Vector:
    """`div` of integers, towards zero."""
    left, right = left.astype(np.int64, copy=False), right.astype(np.int64, copy=False)
    floor = left // right
    inexact = (floor * right != left) & ((left < 0) != (right < 0))
    return Vector(floor + inexact, zeros_of(right))


def vector_of_number(function: Callable[[Any], Any], type: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that NumPy computes in the array's own type: integers wrap."""
    return function if dtype_of(type) is not None else None
