"""NumPy arrays: names of their types for annotations, offsets, numbers as columns of Arrow, and columns as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Keys = NDArray[np.uint64]  # join keys, hashed

_PLAIN = {np.dtype(np.int64): pa.int64(), np.dtype(np.float64): pa.float64()}


def plain_column(numbers: NDArray[Any]) -> pa.Array:
    """Numbers as a column over the same memory; for 64 bits in two thirds of the time that Arrow's own way takes.

    >>> plain_column(np.array([1.5, 2.5])).to_pylist()
    [1.5, 2.5]
    """
    kind = _PLAIN.get(numbers.dtype)
    if kind is None or not numbers.flags.c_contiguous:
        return pa.array(numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def count_offsets(counts: Ints) -> Ints:
    """The sum of all counts before each, and of all.

    >>> count_offsets(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    totals = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=totals[1:])
    return totals


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def stacked(tables: Sequence[pa.Table], name: str) -> Ints:
    """A column of integers of several tables, one after the other."""
    return np.concatenate([one_array(table[name]).to_numpy() for table in tables])


def stacked_column(tables: Sequence[pa.Table], name: str) -> pa.Array:
    """A column of several tables, one after the other."""
    return joined_array([one_array(table[name]) for table in tables])


def joined_array(arrays: Sequence[pa.Array]) -> pa.Array:
    """Several arrays as one."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
