"""Columns of decimals as integers: of 64 bits where they fit, else Python's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

LARGEST = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class Decimals:
    """Decimals as integers times a power of ten, which may be above the one that their type's scale asks for."""

    integers: np.ndarray  # of int64, or of Python's integers
    exponent: int

    def __len__(self) -> int:
        return len(self.integers)

    def at(self, exponent: int) -> np.ndarray:
        """The integers for a lower exponent: the same numbers."""
        return times(self.integers, 10 ** (self.exponent - exponent))


def most(integers: np.ndarray) -> int:
    """The largest absolute value."""
    return max(int(integers.max()), -int(integers.min())) if len(integers) else 0


def as_python(integers: np.ndarray) -> np.ndarray:
    """The integers as Python's, which do not overflow."""
    return integers if integers.dtype == object else integers.astype(object)


def times(integers: np.ndarray, factor: int) -> np.ndarray:
    """The product with a number, exactly."""
    if factor == 1:
        return integers
    if integers.dtype != object and (factor > LARGEST or most(integers) > LARGEST // factor):
        integers = as_python(integers)
    return integers * factor


def decimals_of(array: pa.Array, nulls: np.ndarray | None) -> Decimals:
    """The decimals of an Arrow array."""
    size, data = len(array), array.buffers()[1]
    if data is None or not size:
        return Decimals(np.zeros(size, np.int64), -array.type.scale)
    words = np.frombuffer(data, np.int64, 2 * size, array.offset * 16).reshape(size, 2)
    low, high = words[:, 0], words[:, 1]
    is_large = high != low >> 63
    if nulls is not None:
        is_large &= ~nulls
    if not is_large.any():
        integers = low if nulls is None else np.where(nulls, 0, low)
        return Decimals(integers, -array.type.scale)
    large = (high.astype(object) << 64) + low.view(np.uint64).astype(object)
    return Decimals(large if nulls is None else np.where(nulls, 0, large), -array.type.scale)


def arrow_decimals(decimals: Decimals, type: pa.DataType, size: int, nulls: np.ndarray | None) -> pa.Array:
    """Decimals as an Arrow array of a type and a length."""
    integers = decimals.at(-type.scale)
    if len(integers) != size:
        integers = np.broadcast_to(integers, size)
    if nulls is not None:
        integers = np.where(nulls, 0, integers)
    words = np.empty((size, 2), np.int64)
    if integers.dtype == object:
        words[:, 1] = (integers >> 64).astype(np.int64)
        words[:, 0] = (integers & ((1 << 64) - 1)).astype(np.uint64).view(np.int64)
    else:
        words[:, 0] = integers
        np.right_shift(integers, 63, out=words[:, 1])
    bitmap = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(type, size, [bitmap, pa.py_buffer(words)])
