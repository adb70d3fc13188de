"""The order in which Spark sorts a column: nulls first, NaN after all numbers, texts by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.nan_order import orderable


def sort_codes(column: pa.Array) -> NDArray[np.int64]:
    """Numbers that sort rows as their values do; equal values have equal numbers.

    >>> sort_codes(pa.array([2.0, None, float("nan"), -0.0, 0.0])).tolist()
    [2, 0, 3, 1, 1]
    """
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_floating(column.type):
        numbers = column.fill_null(0.0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        _, codes = np.unique(numbers, return_inverse=True)
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        return np.where(is_null, 0, codes + 1)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):  # of any year
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy().astype(np.int64)
    if pa.types.is_nested(column.type):
        return _nested_codes(column)
    distinct = column.dictionary_encode()
    values = distinct.dictionary.to_pylist()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = [value.encode() for value in values]
    ranks = np.empty(len(values) + 1, np.int64)
    ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(1, len(values) + 1)
    ranks[-1] = 0  # of nulls
    return ranks[distinct.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]


def _nested_codes(column: pa.Array) -> NDArray[np.int64]:
    """The codes of structs and arrays, which Arrow does not sort."""
    keys = [sort_key(value) for value in column.to_pylist()]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] for key in keys], np.int64)


def sort_key(value: Any) -> tuple[Any, ...]:
    """A hashable key by which values sort as in Spark: structs and arrays part by part, nulls first.

    >>> sort_key(None) < sort_key([]) < sort_key([None]) < sort_key([1.0]) < sort_key([float("nan")])
    True
    """
    match value:
        case None:
            return (0,)
        case dict():
            return (1, tuple(map(sort_key, value.values())))
        case list() | tuple():
            return (1, tuple(map(sort_key, value)))
        case str():
            return (1, value.encode())
    return (1, orderable(value))
