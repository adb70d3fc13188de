"""Arrow types and Spark types, and tables that cross between the two with their types unchanged."""

from __future__ import annotations

from typing import Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from transom.backends.arrow_types import plain, plain_table
from transom.errors import SettingError


def to_arrow(schema: StructType) -> dict[str, pa.DataType]:
    """The Arrow type of each column; TIMESTAMP is in UTC whatever the session's zone."""
    return {field.name: arrow_type(field.dataType) for field in schema.fields}


def arrow_type(spark_type: DataType) -> pa.DataType:
    """The Arrow type that holds exactly the values of a Spark type."""
    try:
        return to_arrow_type(spark_type, timezone="UTC")
    except PySparkException as error:
        raise SettingError(f"columns of type {spark_type.simpleString()} are not supported") from error


def unsupported_fields(schema: StructType) -> dict[str, str]:
    """The columns of types that Arrow or Parquet does not have, and their types."""
    found: dict[str, str] = {}
    for field in schema.fields:
        try:
            check_storable({field.name: arrow_type(field.dataType)})
        except SettingError:
            found[field.name] = field.dataType.simpleString()
    return found


def check_storable(columns: Mapping[str, pa.DataType]) -> None:
    """Refuse columns of input that Spark can't write to Parquet: a batch with late or rejected rows would fail."""
    for name, type in columns.items():
        if _has_time_of_day(type):
            raise SettingError(
                f"the column {name} is a time of day, which is not supported: cast it to a string"
            )


def _has_time_of_day(type: pa.DataType) -> bool:
    if pa.types.is_nested(type):
        return any(_has_time_of_day(type.field(place).type) for place in range(type.num_fields))
    return bool(pa.types.is_time(type))


def to_spark(type: pa.DataType) -> DataType:
    """The Spark type that holds every value of an Arrow type."""
    if pa.types.is_decimal(type) and type.precision > 38:
        raise SettingError(f"columns of type {type} are not supported: Spark's decimals have 38 digits")
    try:
        return from_arrow_type(plain(type), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise SettingError(f"columns of type {type} are not supported") from error


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


def to_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of an Arrow table; small ones are local relations that need no job to read."""
    table = plain_table(table)
    schema = spark_schema({field.name: field.type for field in table.schema})
    return spark.createDataFrame(table, schema=schema)


def to_table(frame: DataFrame) -> pa.Table:
    """A DataFrame's rows as an Arrow table; timestamps say UTC instead of the session's zone."""
    return plain_table(frame.toArrow())
