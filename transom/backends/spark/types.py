"""Arrow types and Spark types, and tables that cross between the two with their types unchanged."""

from __future__ import annotations

from typing import Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from transom.errors import SettingError

# Spark has no unsigned integers and no half floats: the next wider type holds every value.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def to_arrow(schema: StructType) -> dict[str, pa.DataType]:
    """The Arrow type of each column; TIMESTAMP is in UTC whatever the session's zone."""
    return {field.name: arrow_type(field.dataType) for field in schema.fields}


def arrow_type(spark_type: DataType) -> pa.DataType:
    """The Arrow type that holds exactly the values of a Spark type."""
    try:
        return to_arrow_type(spark_type, timezone="UTC")
    except PySparkException as error:
        raise SettingError(f"columns of type {spark_type.simpleString()} are not supported") from error


def to_spark(type: pa.DataType) -> DataType:
    """The Spark type that holds every value of an Arrow type."""
    if pa.types.is_decimal(type) and type.precision > 38:
        raise SettingError(f"columns of type {type} are not supported: Spark's decimals have 38 digits")
    try:
        return from_arrow_type(plain(type), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise SettingError(f"columns of type {type} are not supported") from error


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


def spark_schema(columns: Mapping[str, pa.DataType]) -> StructType:
    """A Spark schema of nullable columns."""
    return StructType([StructField(name, to_spark(type)) for name, type in columns.items()])


def schema_of(text: str) -> StructType:
    """The schema that a text such as `site int, price double, ts timestamp` describes; Spark parses it."""
    try:
        schema = DataType.fromDDL(text)
    except PySparkException as error:
        raise SettingError(f"not a schema: {text!r}; expected one like 'site int, ts timestamp'") from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise SettingError(f"not a schema: {text!r}; expected one like 'site int, ts timestamp'")
    return schema


def plain_table(table: pa.Table) -> pa.Table:
    """The table with each column in its plain type, without metadata; values are unchanged."""
    target = pa.schema([pa.field(field.name, plain(field.type)) for field in table.schema])
    return table.cast(target, safe=False)


def to_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of an Arrow table; small ones are local relations that need no job to read."""
    table = plain_table(table)
    schema = spark_schema({field.name: field.type for field in table.schema})
    return spark.createDataFrame(table, schema=schema)


def to_table(frame: DataFrame) -> pa.Table:
    """A DataFrame's rows as an Arrow table; timestamps say UTC instead of the session's zone."""
    return plain_table(frame.toArrow())
