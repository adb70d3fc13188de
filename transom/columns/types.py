"""Predicates over Arrow types that several packages use."""

from __future__ import annotations

import pyarrow as pa


def is_number(kind: pa.DataType) -> bool:
    """Whether Spark calls a type numeric: integers, floats and decimals.

    >>> is_number(pa.decimal128(10, 2)), is_number(pa.bool_())
    (True, False)
    """
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
