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
