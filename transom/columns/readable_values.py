"""Values that Python can show: texts in UTF-8, and times of the years 1 to 9999."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_DAY = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, counted from 1970
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def readable_table(table: pa.Table) -> pa.Table:
    """The table with values that Python can show: texts are repaired, and times that no datetime holds are null."""
    columns = [readable_column(column) for column in table.columns]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return pa.Table.from_arrays(columns, schema=table.schema)


def readable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with values that Python can show.

    >>> far = pa.chunked_array([pa.array([0, 2**62]).cast(pa.timestamp("us"))])
    >>> readable_column(far).is_null().to_pylist()
    [False, True]
    """
    kind = column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return valid_text(column)
    if kinds.is_timestamp(kind):
        size = _UNITS[kind.unit]
        low, high = _FIRST_DAY * _DAY * size, (_LAST_DAY + 1) * _DAY * size - 1
        return column if kind.unit == "ns" else _within(column, pa.int64(), low, high)
    if kinds.is_date32(kind):
        return _within(column, pa.int32(), _FIRST_DAY, _LAST_DAY)
    return column


def valid_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts, with bytes that are no UTF-8 replaced; columns of other types as they are."""
    if not (kinds.is_string(column.type) or kinds.is_large_string(column.type)):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        packed = column.cast(pa.binary() if kinds.is_string(column.type) else pa.large_binary()).to_pylist()
        texts = [None if text is None else text.decode(errors="replace") for text in packed]
        return pa.chunked_array([pa.array(texts, column.type)], column.type)
    return column


def _within(column: pa.ChunkedArray, plain: pa.DataType, low: int, high: int) -> pa.ChunkedArray:
    """The column with values outside of a range null."""
    numbers = column.cast(plain)
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (low <= found["min"] and found["max"] <= high):
        return column
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(inside, column, pa.scalar(None, column.type))
