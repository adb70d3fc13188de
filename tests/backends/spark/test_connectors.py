"""Sources and sinks by format: what Spark has is opened, and what it lacks is named."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.version import __version__ as spark_version

import transom
from tests.engine_factory import EngineFactory, on_spark
from transom.backends.spark.failures import failure_text, is_external_failure
from transom.errors import BackendLimitError, SettingError

pytestmark = on_spark("formats and options are Spark's")
KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


def test_a_stream_by_its_format(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        engine.stream(
            "ticks",
            format="rate-micro-batch",
            options={
                "rowsPerBatch": 30,
                "startTimestamp": 1_704_110_400_000,
                "advanceMillisPerBatch": 60_000,
            },
            select="SELECT value % 3 AS k, timestamp AS ts FROM ticks WHERE value % 2 = 0",
            time="ts",
        )
        query = engine.register(
            "SELECT k, count(*) AS n FROM ticks [RANGE 1 minute SLIDE 1 minute] GROUP BY k"
        )
        engine.start()
        deadline = 600
        while not query.results().num_rows and deadline:
            deadline -= 1
            engine.await_termination(0.1)
        first = [row for row in query.results().to_pylist() if f"{row['window_end']:%H:%M}" == "12:01"]
        assert {(row["k"], row["n"]) for row in first} == {(0, 5), (1, 5), (2, 5)}


def test_a_package_for_another_release_of_spark_is_said_and_is_no_querys_fault(
    make_engine: EngineFactory,
) -> None:
    jvm = make_engine.session._jvm
    missing = jvm.java.lang.NoSuchMethodError("'void org.apache.spark.sql.execution.LogicalRDD.<init>()'")
    with pytest.raises(Py4JJavaError) as raised:
        jvm.java.util.concurrent.CompletableFuture.failedFuture(missing).get()
    text = f"a package was built for another release of Spark than {spark_version}: 'void org.apache.spark"
    assert failure_text(raised.value).startswith(text)
    assert is_external_failure(raised.value)


STREAMS = [
    ({"format": "kafka"}, f"no package for kafka: set spark.jars.packages to {KAFKA}"),
    (
        {"format": "iceberg", "source": "/lake"},
        "no package for iceberg: .*iceberg-spark-runtime-4.3_2.13:VERSION",
    ),
    ({"format": "kafak"}, "no reader for kafak; did you mean kafka"),
    (
        {"format": "rate", "options": {"rowsPerSeconds": 5}},
        "rate has no option rowsPerSeconds; did you mean rows",
    ),
    ({"format": "rate", "options": {"rowsPerSecond": "many"}}, "can't open rate: .*many"),
    (
        {"format": "jdbc", "options": {"url": "jdbc:derby:x", "dbtable": "t"}},
        "jdbc is not a stream for Spark",
    ),
    ({}, "bids needs a source: a path of files, a DataFrame, or a format such as kafka"),
    ({"format": "json"}, "files of json need a path"),
    ({"source": "x", "format": "json", "decode": "json"}, "decode is for a format such as kafka"),
    ({"format": "rate", "decode": "yaml"}, "decode: expected one of json, csv, avro, protobuf, not 'yaml'"),
    ({"format": "rate", "decode": {"format": "avro"}}, "decode: avro needs schema_file"),
    ({"format": "rate", "decode": {"format": "json", "colum": "v"}}, "decode.colum: .* did you mean column"),
    (
        {"format": "rate", "decode": "json", "schema": "a int"},
        "decode: the column value is neither binary nor",
    ),
    ({"format": "rate", "decode": {"format": "json", "message": "x"}}, "decode.message: json has no such"),
    ({"format": "rate", "decode": {"format": "json", "skip_bytes": -1}}, "expected at least 0"),
]


@pytest.mark.parametrize(("given", "says"), STREAMS, ids=[str(case[0]) for case in STREAMS])
def test_wrong_sources_are_refused(make_engine: EngineFactory, given: dict[str, Any], says: str) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match=says):
        engine.stream("bids", time="ts", **given)


TABLES = [
    (
        {"format": "jdbc", "options": {"url": "jdbc:postgresql://h/d", "dbtable": "t"}},
        "org.postgresql:postgresql:VERSION",
    ),
    (
        {"format": "jdbc", "options": {"url": "jdbc:derby:x", "dbtables": "t"}},
        "no option dbtables; did you mean dbtable",
    ),
    ({"format": "jdbc", "options": {"dbtable": "t"}}, "can't open jdbc: .*url"),
]


@pytest.mark.parametrize(("given", "says"), TABLES, ids=[str(case[0]) for case in TABLES])
def test_wrong_tables_are_refused(make_engine: EngineFactory, given: dict[str, Any], says: str) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match=says):
        engine.table("sites", **given)


SINKS = [
    ({"format": "kafka", "topic": "t"}, f"no package for kafka: set spark.jars.packages to {KAFKA}"),
    ({"format": "parqet", "path": "x"}, "no writer for parqet; did you mean parquet"),
    ({"format": "jdbc", "url": "jdbc:derby:x"}, "a sink of jdbc needs the option dbtable"),
    ({"format": "jdbc", "url": "${env:NOT_SET_AT_ALL}", "dbtable": "t"}, "NOT_SET_AT_ALL is not set"),
]


@pytest.mark.parametrize(("given", "says"), SINKS, ids=[str(case[0]) for case in SINKS])
def test_wrong_sinks_are_refused(make_engine: EngineFactory, given: dict[str, Any], says: str) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match=says):
        engine.sink(**given)


def test_errors_do_not_show_secrets(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSOM_TEST_SECRET", "hunter2-and-more")
    with make_engine() as engine, pytest.raises(SettingError) as raised:
        engine.stream(
            "bids", format="rate", options={"rowsPerSecond": "${env:TRANSOM_TEST_SECRET}"}, time="ts"
        )
    assert "hunter2" not in str(raised.value) and "***" in str(raised.value)


def test_the_local_backend_says_what_it_lacks() -> None:
    with (
        transom.Engine(backend="local") as engine,
        pytest.raises(BackendLimitError, match="rate is read by Spark"),
    ):
        engine.stream("bids", format="rate", time="timestamp")
