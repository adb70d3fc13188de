"""Group rows by several columns at once: dense codes, with nulls and NaN as ordinary values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True)
class Groups:
    """`codes[i]` is the group of row i; `firsts[g]` is one row of group g."""

    codes: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.firsts)


@dataclass(frozen=True)
class Encoded:
    """A column as small numbers: equal values have equal codes below `size`."""

    codes: NDArray[np.int64]
    size: int

    def take(self, rows: NDArray[np.int64]) -> Encoded:
        return Encoded(self.codes[rows], self.size)


def group(columns: Sequence[pa.Array | NDArray[np.int64] | Encoded], rows: int) -> Groups:
    """The groups of equal rows.

    >>> group([pa.array(["a", None, "a", None])], 4).codes.tolist()
    [0, 1, 0, 1]
    """
    codes, size = np.zeros(rows, np.int64), 1
    for column in columns:
        column_codes, column_size = (
            (column.codes, column.size) if isinstance(column, Encoded) else _encode(column)
        )
        if size * column_size >= 2**62:
            codes, size = densify(codes, size)
        codes, size = codes * column_size + column_codes, size * column_size
    codes, size = densify(codes, size)
    firsts = np.empty(size, np.int64)
    firsts[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return Groups(codes, firsts)


def encode(column: pa.Array) -> Encoded:
    """The codes of a column, for callers that group different rows of it again and again."""
    return Encoded(*_encode(column))


def each_row_alone(rows: int) -> Groups:
    """A group for each row."""
    return Groups(np.arange(rows), np.arange(rows))


def normalized(column: pa.Array) -> pa.Array:
    """A column with one spelling of zero and of NaN, as Spark groups them."""
    if not pa.types.is_floating(column.type):
        return column
    zeroed = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(zeroed), pa.scalar(float("nan"), column.type), zeroed)


def sorted_distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order; sorting is several times faster than the hashes of `np.unique`.

    >>> sorted_distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(numbers)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def _encode(column: pa.Array | NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    if isinstance(column, np.ndarray):
        if len(column) and int(column.max()) - int(column.min()) >= 2**62:
            return _ranked(column)
        return densify(column - (column.min() if len(column) else 0), None)
    if pa.types.is_nested(column.type):  # Arrow can't dictionary-encode these
        column = pa.array(map(repr, column.to_pylist()), pa.string())
    encoded = normalized(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), max(1, len(encoded.dictionary))


def densify(codes: NDArray[np.int64], size: int | None) -> tuple[NDArray[np.int64], int]:
    """Codes without gaps, in the same order: by counting while that is cheap, otherwise by sorting."""
    rows = len(codes)
    if rows == 0:
        return codes, 0
    size = int(codes.max()) + 1 if size is None else size
    if size <= max(1 << 16, 4 * rows):
        present = np.zeros(size, bool)
        present[codes] = True
        ranks = np.cumsum(present) - 1
        return ranks[codes], int(ranks[-1]) + 1
    return _ranked(codes)


def _ranked(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    distinct, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.int64), len(distinct)
