"""Columns of values for vector forms, and the table over which vector forms are evaluated.

Integers, floats, truth values, dates (days), timestamps and intervals (microseconds) are NumPy arrays with a mask
of nulls, decimals are integers (`Decimals`), and every other type stays an Arrow array. A constant is a vector of
length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.interpreter.decimals import Decimals, arrow_decimals, decimals_of
from transom.sql.interpreter.values import EXACT, FIRST_DATE, LAST_DATE, PER_UNIT

NullMask = np.ndarray | None  # of truth values; None where all are false

_DTYPES = {
    pa.int8(): np.int8, pa.int16(): np.int16, pa.int32(): np.int32, pa.int64(): np.int64,
    pa.float32(): np.float32, pa.float64(): np.float64, pa.bool_(): np.bool_, pa.date32(): np.int32,
    pa.null(): np.bool_,
}  # fmt: skip

_ARROW_TYPES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_decimal128
)  # fmt: skip


class Vector(NamedTuple):
    """A column: its values, which of them are null, and the rows that only the row form can compute."""

    values: Any  # a NumPy or an Arrow array, see the module; whatever where null
    nulls: NullMask = None
    by_row: NullMask = None


class VectorNode(Protocol):
    """An expression as a vector table evaluates it; see `TypedExpression`."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def is_shared(self) -> bool: ...

    @property
    def vector(self) -> Callable[[VectorTable], Vector] | None: ...


def dtype_of(type: pa.DataType) -> Any:
    """The NumPy type of a column's values, or None if the column stays an Arrow array."""
    if pa.types.is_timestamp(type) or pa.types.is_duration(type):
        return np.int64
    return _DTYPES.get(type)


def has_vectors(type: pa.DataType) -> bool:
    """Whether a column of this type can be a vector."""
    if pa.types.is_struct(type):
        return all(has_vectors(field.type) for field in type)
    if pa.types.is_map(type):
        return has_vectors(type.key_type) and has_vectors(type.item_type)
    if pa.types.is_list(type):
        return has_vectors(type.value_type)
    return dtype_of(type) is not None or any(test(type) for test in _ARROW_TYPES)


def either(left: NullMask, right: NullMask) -> NullMask:
    """Where one of two masks is true."""
    if left is None:
        return right
    return left if right is None else left | right


def any_mask(masks: Iterable[NullMask]) -> NullMask:
    """Where one of several masks is true."""
    return reduce(either, masks, None)


class VectorTable:
    """A table whose expressions are evaluated by vectors; the values of shared expressions are kept."""

    def __init__(self, table: pa.Table):
        self.num_rows: int = table.num_rows
        self._table = table
        self._columns: dict[str, Vector] = {}
        self._values: dict[int, Vector] = {}

    def column(self, name: str) -> Vector:
        """A column of the table."""
        known = self._columns.get(name)
        if known is None:
            known = self._columns[name] = vector_of(whole(self._table.column(name)))
        return known

    def value(self, node: VectorNode) -> Vector:
        """The values of an expression."""
        assert node.vector is not None
        if not node.is_shared:
            return node.vector(self)
        known = self._values.get(id(node))
        if known is None:
            known = self._values[id(node)] = node.vector(self)
        return known

    def values(self, nodes: Sequence[VectorNode]) -> tuple[list[Any], NullMask, NullMask]:
        """The values of several expressions, where any is null, and which rows are left to the row form."""
        arrays, nulls, by_row = [], None, None
        for node in nodes:
            vector = self.value(node)
            arrays.append(vector.values)
            nulls = either(nulls, vector.nulls)
            by_row = either(by_row, vector.by_row)
        return arrays, nulls, by_row


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def vector_of(array: pa.Array) -> Vector:
    """An Arrow array as a vector."""
    type = array.type
    dtype = dtype_of(type)
    if pa.types.is_decimal128(type):
        nulls = null_mask(array)
        return Vector(decimals_of(array, nulls), nulls)
    if dtype is None:
        return Vector(array.cast(pa.string()) if pa.types.is_large_string(type) else array, null_mask(array))
    size, offset = len(array), array.offset
    if pa.types.is_null(type):
        return Vector(np.zeros(size, np.bool_), np.ones(size, np.bool_))
    data = array.buffers()[1]
    if data is None or not size:
        return Vector(np.zeros(size, dtype), null_mask(array))
    if dtype is np.bool_:
        return Vector(bits(data, offset, size), null_mask(array))
    values = np.frombuffer(data, dtype, size, offset * np.dtype(dtype).itemsize)
    nulls = null_mask(array)
    if type == pa.date32():  # as in the row form
        outside = (values < FIRST_DATE) | (values > LAST_DATE)
        return Vector(values, either(nulls, outside) if outside.any() else nulls)
    if not (pa.types.is_timestamp(type) or pa.types.is_duration(type)):
        return Vector(values, nulls)
    times, over = PER_UNIT[type.unit]
    if times == 1:
        return Vector(values // over if over > 1 else values, nulls)
    most = np.iinfo(np.int64).max // times
    large = (values > most) | (values < -most)
    return Vector(values * times, nulls, large if large.any() else None)


def bits(data: pa.Buffer, offset: int, size: int) -> np.ndarray:
    """The bits of a bitmap as truth values."""
    first = offset // 8
    octets = np.frombuffer(data, np.uint8, (offset + size + 7) // 8 - first, first)
    return np.unpackbits(octets, bitorder="little")[offset % 8 : offset % 8 + size].view(np.bool_)


def null_mask(array: pa.Array) -> NullMask:
    """Where an Arrow array is null."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return pc.is_null(array).to_numpy(zero_copy_only=False)
    return ~bits(bitmap, array.offset, len(array))


def array_of(vector: Vector, type: pa.DataType, size: int) -> pa.Array:
    """A vector as an Arrow array of a type and a length."""
    values, nulls = vector.values, vector.nulls
    if nulls is not None:
        nulls = full(nulls, size)
        if not nulls.any():
            nulls = None
    if isinstance(values, Decimals):
        return arrow_decimals(values, type, size, nulls)
    if isinstance(values, pa.Array):
        if len(values) != size:
            values = pa.repeat(values[0], size) if size else values.slice(0, 0)
        if nulls is not None and values.null_count != np.count_nonzero(nulls):
            values = pc.if_else(pa.array(nulls), pa.scalar(None, values.type), values)
        return values if values.type == type else values.cast(type)
    if pa.types.is_null(type):
        return pa.nulls(size)
    values = np.ascontiguousarray(full(values, size))
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    bitmap = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(type, size, [bitmap, pa.py_buffer(data)])


def full(values: np.ndarray, size: int) -> np.ndarray:
    """An array of a length, by repeating a constant."""
    return values if len(values) == size else np.broadcast_to(values, size)


def constant_vector(value: Any, type: pa.DataType) -> Vector:
    """A value of the row form as a vector of length 1."""
    if value is not None and type == pa.date32():
        return vector_of(pa.array([value], type))
    if isinstance(value, Decimal):  # without zeros at the end, so that products stay small
        sign, digits, exponent = value.normalize(EXACT).as_tuple()
        integer = int("".join(map(str, digits))) * (-1 if sign else 1)
        integers = np.array([integer], np.int64 if abs(integer) < 1 << 63 else object)
        return Vector(Decimals(integers, max(int(exponent), -type.scale) if integer else -type.scale))
    dtype = dtype_of(type)
    if dtype is None:
        return vector_of(pa.array([value], type))
    if value is None:
        return Vector(np.zeros(1, dtype), np.ones(1, np.bool_))
    return Vector(np.array([value], dtype))


def zeros_of(divisor: np.ndarray) -> np.ndarray | None:
    """Where a divisor is zero."""
    zeros = divisor == 0
    return zeros if zeros.any() else None
