"""The generic vector form: a function of single values, called once for every distinct combination of arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from transom.errors import DeadlineError
from transom.sql.interpreter.decimals import Decimals, arrow_decimals
from transom.sql.interpreter.values import column_values
from transom.sql.interpreter.vectors import NullMask, Vector, array_of, either, full, vector_of

Combine = Callable[[Sequence[Any], NullMask, NullMask], Vector]
MOST_COMBINATIONS = 1 << 62


def by_distinct(type: pa.DataType, function: Callable[..., Any], args: Sequence[pa.DataType]) -> Combine:
    """A null-strict function of vectors that calls a function of values once for every distinct combination.

    A row for which the function fails is left to the row form: the expression may not need its value.
    """
    is_nested = any(pa.types.is_nested(arg) for arg in args)

    def compute(arrays: Sequence[Any], nulls: NullMask, by_row: NullMask) -> Vector:
        size = next((len(array) for array in arrays if len(array) != 1), 1)
        valid = None if nulls is None else np.flatnonzero(~full(nulls, size))
        columns = [_column(array, arg, size, valid) for array, arg in zip(arrays, args, strict=True)]
        count = size if valid is None else len(valid)
        codes = None
        if not is_nested and count > 1:
            codes, columns = _distinct(columns, count)
        lists = [column_values(column) for column in columns]
        calls = next((len(column) for column in columns if len(column) != 1), 1) if count else 0
        found, failed = call_each(function, type, lists, calls)
        if codes is not None:
            found = found.take(pa.array(codes))
            failed = None if failed is None else failed[codes]
        if valid is None:
            vector = vector_of(found)
            return Vector(vector.values, vector.nulls, either(by_row, failed))
        places = np.full(size, -1, np.int64)
        places[valid] = np.arange(count)
        vector = vector_of(found.take(pa.array(places, mask=places < 0)))
        if failed is not None:
            by_row = either(by_row, (places >= 0) & failed[np.maximum(places, 0)])
        return Vector(vector.values, vector.nulls, by_row)

    return compute


def call_each(
    function: Callable[..., Any], type: pa.DataType, lists: Sequence[Sequence[Any]], count: int
) -> tuple[pa.Array, NullMask]:
    """A function of each combination of values (a list of length 1 is a constant), and where it failed."""
    args = [repeat(values[0], count) if len(values) == 1 else values for values in lists] if count else []
    rows: Sequence[tuple[Any, ...]] = list(zip(*args, strict=True)) if args else [()] * count
    try:
        return pa.array([function(*row) for row in rows], type), None
    except DeadlineError:  # raised in this thread to interrupt the call
        raise
    except Exception:
        outcomes = [_outcome(function, type, row) for row in rows]
        return pa.array([value for value, _ in outcomes], type), np.array([failed for _, failed in outcomes])


def _outcome(function: Callable[..., Any], type: pa.DataType, row: tuple[Any, ...]) -> tuple[Any, bool]:
    try:
        value = function(*row)
        pa.scalar(value, type)
    except DeadlineError:
        raise
    except Exception:  # the row form raises it again if the expression needs the value
        return None, True
    return value, False


def _column(array: Any, type: pa.DataType, size: int, valid: np.ndarray | None) -> pa.Array:
    """The values that are not null as an Arrow array; a constant stays one of length 1."""
    if len(array) == 1 and size != 1:
        return array_of(Vector(array), type, 1)
    if valid is None:
        return array_of(Vector(array), type, size)
    if isinstance(array, Decimals):
        return arrow_decimals(array, type, size, None).take(pa.array(valid))
    if isinstance(array, pa.Array):
        return array.take(pa.array(valid))
    return array_of(Vector(array[valid]), type, len(valid))


def _distinct(columns: list[pa.Array], count: int) -> tuple[np.ndarray | None, list[pa.Array]]:
    """The distinct combinations of the columns' values, and the place of each row among them."""
    varying = [column for column in columns if len(column) != 1]
    if not varying:
        return np.zeros(count, np.int64), columns
    encoded = [_bits(column).dictionary_encode() for column in varying]
    sizes = [len(each.dictionary) for each in encoded]
    if np.prod(sizes, dtype=np.float64) > MOST_COMBINATIONS:
        return None, columns
    codes = np.zeros(count, np.int64)
    for each, size in zip(encoded, sizes, strict=True):
        codes = codes * size + each.indices.to_numpy(zero_copy_only=False)
    if len(encoded) > 1:
        again = pa.array(codes).dictionary_encode()
        codes, keys = again.indices.to_numpy(), again.dictionary.to_numpy()
    else:
        keys = np.arange(sizes[0])
    places: list[np.ndarray] = []
    for size in reversed(sizes):
        keys, place = np.divmod(keys, size)
        places.insert(0, place)
    parts = iter(zip(varying, encoded, places, strict=True))
    distinct = []
    for column in columns:
        if len(column) == 1:
            distinct.append(column)
            continue
        _, each, place = next(parts)
        distinct.append(_from_bits(each.dictionary, column.type).take(pa.array(place)))
    return codes, distinct


def _bits(column: pa.Array) -> pa.Array:
    """Floats as the integers of their bits, so that 0.0 and -0.0 are two values."""
    if pa.types.is_floating(column.type):
        return column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    return column


def _from_bits(column: pa.Array, type: pa.DataType) -> pa.Array:
    return column.view(type) if pa.types.is_floating(type) else column
