"""Arrow types as Spark SQL knows them: microseconds, UTC, no dictionaries, no unsigned integers."""

from __future__ import annotations

import pyarrow as pa

# Spark has no unsigned integers and no half floats: the next wider type holds every value.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def plain(type: pa.DataType) -> pa.DataType:
    """The type as Spark would hand it back: microseconds, UTC, no dictionaries, no unsigned integers.

    >>> plain(pa.timestamp("ns", tz="Europe/Berlin")), plain(pa.uint16())
    (TimestampType(timestamp[us, tz=UTC]), DataType(int32))
    """
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return plain(type.value_type)
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", tz="UTC" if type.tz else None)
    if pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return pa.string()
    if pa.types.is_large_binary(type) or pa.types.is_binary_view(type) or pa.types.is_fixed_size_binary(type):
        return pa.binary()
    if pa.types.is_date(type):
        return pa.date32()
    if pa.types.is_decimal(type):
        return pa.decimal128(type.precision, type.scale) if type.precision <= 38 else type
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(plain(type.value_type))
    if pa.types.is_map(type):
        return pa.map_(plain(type.key_type), plain(type.item_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in type])
    return _WIDER.get(type, type)


def plain_table(table: pa.Table) -> pa.Table:
    """The table with each column in its plain type, without metadata; values are unchanged."""
    target = pa.schema([pa.field(field.name, plain(field.type)) for field in table.schema])
    return table.cast(target, safe=False)
