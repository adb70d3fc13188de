"""Types that cross between Arrow and Spark unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from transom.backends.spark.types import arrow_type, plain, schema_of, to_arrow, to_frame, to_spark, to_table
from transom.errors import SettingError

INSTANT = pa.timestamp("us", tz="UTC")
PAIRS = [
    (pa.bool_(), T.BooleanType()),
    (pa.int8(), T.ByteType()),
    (pa.int16(), T.ShortType()),
    (pa.int32(), T.IntegerType()),
    (pa.int64(), T.LongType()),
    (pa.float32(), T.FloatType()),
    (pa.float64(), T.DoubleType()),
    (pa.string(), T.StringType()),
    (pa.binary(), T.BinaryType()),
    (pa.date32(), T.DateType()),
    (INSTANT, T.TimestampType()),
    (pa.timestamp("us"), T.TimestampNTZType()),
    (pa.decimal128(38, 18), T.DecimalType(38, 18)),
    (pa.list_(pa.int32()), T.ArrayType(T.IntegerType())),
    (pa.null(), T.NullType()),
]


@pytest.mark.parametrize("arrow, spark_type", PAIRS, ids=[str(arrow) for arrow, _ in PAIRS])
def test_each_type_has_its_counterpart(arrow: pa.DataType, spark_type: T.DataType) -> None:
    assert to_spark(arrow) == spark_type
    assert arrow_type(spark_type) == arrow


@pytest.mark.parametrize(
    "given, held_as",
    [
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ns", tz="Asia/Tokyo"), INSTANT),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.date64(), pa.date32()),
        (pa.struct({"t": pa.timestamp("ms", tz="UTC")}), pa.struct({"t": INSTANT})),
    ],
    ids=str,
)
def test_other_arrow_types_are_widened(given: pa.DataType, held_as: pa.DataType) -> None:
    assert plain(given) == held_as


def test_a_type_that_spark_lacks_is_refused() -> None:
    with pytest.raises(SettingError, match="decimal256"):
        to_spark(pa.decimal256(60, 2))


def test_a_schema_is_read_from_text(spark: SparkSession) -> None:
    schema = schema_of("site int, price double, ts timestamp, note string")
    assert to_arrow(schema) == {"site": pa.int32(), "price": pa.float64(), "ts": INSTANT, "note": pa.string()}


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, None]),
    "small": (pa.int8(), [-128, None]),
    "big": (pa.int64(), [2**63 - 1, None]),
    "single": (pa.float32(), [0.5, None]),
    "double": (pa.float64(), [0.1, None]),
    "money": (pa.decimal128(20, 4), [Decimal("12345678901234.5678"), None]),
    "text": (pa.string(), ["naïve", None]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "day": (pa.date32(), [date(1960, 2, 29), None]),
    "ts": (INSTANT, [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None]),
    "local": (pa.timestamp("us"), [datetime(2024, 3, 31, 2, 30), None]),  # skipped hour in Berlin
    "list": (pa.list_(pa.int32()), [[1, None], None]),
    "pair": (pa.struct({"at": INSTANT}), [{"at": datetime(2024, 1, 1, tzinfo=UTC)}, None]),
}
EVERYTHING = pa.table({name: pa.array(values, type) for name, (type, values) in COLUMNS.items()})


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles"])
def test_a_table_comes_back_as_it_was_in_any_time_zone(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        back = to_table(to_frame(spark, EVERYTHING))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert back.equals(EVERYTHING)


def test_an_empty_table_keeps_its_columns(spark: SparkSession) -> None:
    back = to_table(to_frame(spark, EVERYTHING.slice(0, 0)))
    assert back.schema == EVERYTHING.schema and back.num_rows == 0
