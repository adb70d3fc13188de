"""Arrow types of columns, and predicates over them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

Columns = Mapping[str, pa.DataType]  # names and types


def is_number(kind: pa.DataType) -> bool:
    """Whether Spark calls a type numeric: integers, floats and decimals.

    >>> is_number(pa.decimal128(10, 2)), is_number(pa.bool_())
    (True, False)
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def has_sort_order(kind: pa.DataType) -> bool:
    """Whether values of a type can be compared: not maps and intervals, nor what contains them."""
    if pa.types.is_struct(kind):
        return all(has_sort_order(field.type) for field in kind)
    if pa.types.is_list(kind):
        return has_sort_order(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_duration(kind))
