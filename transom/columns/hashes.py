"""Hashes of Arrow columns that are the same in every process, null and NaN included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.groups import normalized

Hashes = NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)


def row_hashes(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """One hash for each row; rows of the same group have the same hash.

    >>> a, b, c = row_hashes([pa.array([0.0, -0.0, None])], 3)
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        words = _words(column)
        if column.null_count:
            words = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, words)
        hashes = mix_bits(hashes * _PRIME + words)
    return hashes


def mix_bits(words: Hashes) -> Hashes:
    """Make every bit depend on every bit (the last steps of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(column: pa.Array) -> Hashes:
    """The values of a column as 64-bit words; the caller replaces those of nulls."""
    type = column.type
    if pa.types.is_null(type):
        return np.zeros(len(column), np.uint64)
    if pa.types.is_floating(type):
        numbers = normalized(column).fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return numbers.view(np.uint64)
    if pa.types.is_boolean(type):
        return _words(column.cast(pa.int8()))
    if pa.types.is_temporal(type):
        return _words(column.view(pa.int64() if type.bit_width == 64 else pa.int32()))
    if pa.types.is_integer(type):
        filled = column.fill_null(0).to_numpy(zero_copy_only=False)
        return filled.astype(np.int64).view(np.uint64)
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _of_bytes(column.cast(pa.large_binary()))
    texts = column.to_pylist() if pa.types.is_nested(type) else column.cast(pa.string()).to_pylist()
    return _of_bytes(pa.array([repr(text).encode() for text in texts], pa.large_binary()))


def _of_bytes(column: pa.Array) -> Hashes:
    """A polynomial over the bytes of each value."""
    column = column.fill_null(b"")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    hashes = np.zeros(len(column), np.uint64)
    if not lengths.any():
        return hashes
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].astype(np.uint64) + np.uint64(1)
    powers = np.cumprod(np.full(int(lengths.max()), _PRIME))
    filled = np.flatnonzero(lengths)
    places = np.arange(len(letters)) - np.repeat((ends[:-1] - ends[0])[filled], lengths[filled])
    hashes[filled] = np.add.reduceat(letters * powers[places], (ends[:-1] - ends[0])[filled])
    return hashes
