"""Sinks: a batch's files exactly once, other writers appended."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from transom.backends.spark.sinks import Sink
from transom.backends.spark.types import to_frame, to_table
from transom.errors import SettingError

TABLE = pa.table(
    {
        "ts": pa.array([0, None], pa.timestamp("us", tz="UTC")),
        "fee": pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)),
        "day": pa.array([date(2013, 1, 1), None], pa.date32()),
        "n": pa.array([1, 2], pa.int64()),
    }
)


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "csv"])
def test_a_replayed_batch_replaces_its_files(spark: SparkSession, tmp_path: Path, format: str) -> None:
    sink = Sink(format.upper(), {"path": f"{tmp_path}/out"})
    assert sink.exactly_once
    sink.write(TABLE, 1, spark)
    sink.write(TABLE, 2, spark)
    sink.write(TABLE, 2, spark)
    back = spark.read.format(format).schema(to_frame(spark, TABLE).schema).load(f"{tmp_path}/out")
    assert back.count() == 4
    assert {row.batch_id for row in spark.read.format(format).load(f"{tmp_path}/out").collect()} == {1, 2}
    one = spark.read.format(format).schema(back.schema).load(f"{tmp_path}/out/batch=1")
    assert to_table(one.select(TABLE.column_names)).sort_by("n").equals(TABLE)


def test_a_frame_is_written_too(spark: SparkSession, tmp_path: Path) -> None:
    Sink("parquet", {"path": f"{tmp_path}/out/"}).write(spark.range(3), 7, spark)
    assert spark.read.parquet(f"{tmp_path}/out").count() == 3


def test_options_reach_the_writer(spark: SparkSession, tmp_path: Path) -> None:
    Sink("csv", {"path": str(tmp_path), "header": "true", "sep": ";"}).write(
        TABLE.select(["n", "fee"]), 1, spark
    )
    assert spark.read.text(f"{tmp_path}/batch=1").collect()[0].value == "n;fee"


def test_other_writers_append(spark: SparkSession) -> None:
    options = {
        "url": "jdbc:derby:memory:sinks;create=true",
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "dbtable": "results",
    }
    sink = Sink("jdbc", options)
    assert not sink.exactly_once
    sink.write(TABLE, 1, spark)
    sink.write(TABLE, 1, spark)
    back = to_table(spark.read.format("jdbc").options(**options).load())
    assert sorted(back["n"].to_pylist()) == [1, 1, 2, 2]
    assert back["fee"].type == pa.decimal128(12, 2)


def test_the_console_shows_the_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    Sink("console").write(TABLE, 1, spark)
    shown = capsys.readouterr().out
    assert "1970-01-01 00:00:00" in shown and "1.50" in shown


def test_no_rows_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    Sink("parquet", {"path": f"{tmp_path}/out"}).write(TABLE.slice(0, 0), 1, spark)
    assert not (tmp_path / "out").exists()


def test_files_need_a_path() -> None:
    with pytest.raises(SettingError, match="a sink of csv files needs a path"):
        Sink("csv")
