"""Stable ids of Arrow types for checkpoints: they don't depend on the text that a version of Arrow prints."""

from __future__ import annotations

import json

import pyarrow as pa

_SIMPLE = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "half",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "large_string",
    pa.string_view(): "string_view",
    pa.binary(): "binary",
    pa.large_binary(): "large_binary",
    pa.binary_view(): "binary_view",
    pa.date32(): "date",
    pa.date64(): "date64",
    pa.month_day_nano_interval(): "interval",
}


def type_id(kind: pa.DataType) -> str:
    """The id of a type: Spark's name where Spark has the type.

    >>> type_id(pa.decimal128(38, 2)), type_id(pa.timestamp("us", tz="UTC"))
    ('decimal(38,2)', 'timestamp(us,"UTC")')
    >>> type_id(pa.list_(pa.int32()))
    'array<int>'
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_decimal(kind):
        return f"decimal{kind.bit_width}({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return (
            f"timestamp_ntz({kind.unit})" if kind.tz is None else f"timestamp({kind.unit},{_quoted(kind.tz)})"
        )
    if pa.types.is_duration(kind):
        return f"duration({kind.unit})"
    if pa.types.is_time(kind):
        return f"time{kind.bit_width}({kind.unit})"
    if pa.types.is_fixed_size_binary(kind):
        return f"binary({kind.byte_width})"
    if pa.types.is_list(kind):
        return f"array<{_field_id(kind.value_field)}>"
    if pa.types.is_large_list(kind):
        return f"large_array<{_field_id(kind.value_field)}>"
    if pa.types.is_fixed_size_list(kind):
        return f"array({kind.list_size})<{_field_id(kind.value_field)}>"
    if pa.types.is_map(kind):
        return f"map<{type_id(kind.key_type)},{_field_id(kind.item_field)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{_field_id(field)}' for field in kind)}>"
    if pa.types.is_dictionary(kind):
        return f"dictionary<{type_id(kind.index_type)},{type_id(kind.value_type)}>"
    raise TypeError(f"columns of type {kind} have no id, so no checkpoint can refer to them")


def _field_id(field: pa.Field) -> str:
    return type_id(field.type) if field.nullable else f"{type_id(field.type)} not null"


def _quoted(name: str) -> str:
    return json.dumps(name)
