"""Columns of bits: each value is one row of a matrix of bits, packed into bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bits = NDArray[np.bool_]


def bit_column(matrix: Bits) -> pa.Array:
    """The column of a matrix: a value for each row, with a bit for each column.

    >>> bit_column(np.array([[True, False, True]])).to_pylist()
    [b'\\xa0']
    """
    packed = np.packbits(matrix, axis=1) if matrix.shape[1] else np.zeros((len(matrix), 1), np.uint8)
    buffer = pa.py_buffer(np.ascontiguousarray(packed))
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(packed.shape[1]), len(packed), [None, buffer])
    return column.cast(pa.binary())


def bit_matrix(column: pa.Array | pa.ChunkedArray, bits: int) -> Bits:
    """The matrix of a column of so many bits.

    >>> bit_matrix(pa.array([b"\\xa0"]), 3).tolist()
    [[True, False, True]]
    """
    width = max(-(-bits // 8), 1)
    packed = np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, width)
    return np.unpackbits(packed, axis=1, count=bits).astype(bool)
