"""Streaming DataFrames give the same answers wherever their scalars are evaluated: in tasks or by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import transom
from tests.engine_factory import on_spark
from tests.runtime.test_file_streams_on_spark import (
    COUNTS,
    LEFT_TO_SPARK,
    MINUTE,
    QUERIES,
    START,
    sorted_rows,
)
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.stream_rows import StreamRows, stream_frame
from transom.backends.spark.task_frame import TaskFrame
from transom.plan.limits import Limits

pytestmark = [on_spark("Spark brings the rows of a stream"), pytest.mark.comparison]

FILES = 5


def write_files(spark: Any, directory: Path) -> None:
    """One JSON file for each batch. All but the first have late rows, rows without a time and rows far ahead."""
    directory.mkdir()
    for number in range(FILES):
        lines = []
        for row in range(400):
            time = START + number * MINUTE + row * (MINUTE // 400)
            if number and row % 50 == 3:
                time -= 6 * MINUTE
            at = (
                None
                if number and row % 97 == 1
                else time + (10_000 * MINUTE if number == 3 and row == 5 else 0)
            )
            note = None if row % 11 == 0 else f'"note {row % 9}"'
            shown = "null" if at is None else f"{at / 1e6:.6f}"
            lines.append(
                f'{{"at": {shown}, "site": {row % 5}, "price": {row % 64}, "note": {note or "null"}, '
                f'"tags": ["a", "b{row % 2}"], "extra": {{"k": {row}}}}}'
            )
        (directory / f"{number}.json").write_text("\n".join(lines))


def stream_of(spark: Any, directory: Path) -> DataFrame:
    schema = "at double, site int, price double, note string, tags array<string>, extra map<string, int>"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory))
    times = F.expr("timestamp_micros(CAST(at * 1e6 AS BIGINT))").alias("ts")
    return rows.select(times, "site", "price", "note", "tags", "extra")


def outcome(spark: Any, directory: Path, queries: Mapping[str, str], limits: Limits) -> dict[str, Any]:
    """Everything that an engine says about a stream of Spark."""
    with transom.Engine(backend=SparkBackend(spark, limits), limits=limits) as engine:
        sites = spark.createDataFrame([(0, "a"), (1, "b"), (2, None)], "site int, name string")
        engine.table("sites", sites)
        engine.table("visits", spark.createDataFrame([(1,), (1,), (2,)], "site int"))
        engine.stream("bids", stream_of(spark, directory), time="ts", slack="30 seconds", horizon="1 hour")
        engine.register_all(dict(queries))
        engine.drain()
        progress = engine.progress().streams["bids"]
        return {
            "results": {name: sorted_rows(engine.query(name).results()) for name in queries},
            "late": sorted_rows(engine.late("bids")),
            "rejected": sorted_rows(engine.rejected("bids")),
            "counts": {name: getattr(progress, name) for name in COUNTS},
        }


@contextmanager
def counted_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StreamRows]]:
    """The jobs whose tasks evaluate scalars."""
    jobs: list[StreamRows] = []
    run = StreamRows.run
    with monkeypatch.context() as patch:
        patch.setattr(StreamRows, "run", lambda rows, *given: jobs.append(rows) or run(rows, *given))
        yield jobs


@pytest.mark.parametrize("queries", [QUERIES, QUERIES | LEFT_TO_SPARK], ids=["in tasks", "some by Spark"])
def test_a_stream_gives_the_same_answers_however_its_scalars_are_evaluated(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: Mapping[str, str]
) -> None:
    write_files(spark, tmp_path / "in")
    limits = Limits(pushed_rows=0)
    with counted_jobs(monkeypatch) as jobs:
        in_tasks = outcome(spark, tmp_path / "in", queries, limits)
    assert bool(jobs) is (queries is QUERIES)
    monkeypatch.setattr("transom.backends.spark.streaming_input.stream_frame", lambda df, _: SparkFrame(df))
    by_spark = outcome(spark, tmp_path / "in", queries, limits)
    assert by_spark["late"] and by_spark["rejected"] and by_spark["counts"]["late"]
    assert in_tasks == by_spark


def test_late_and_rejected_rows_come_with_the_aggregates(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first batch with such rows, a batch is one job, whose tasks get all columns."""
    write_files(spark, tmp_path / "in")
    limits = Limits(pushed_rows=0)
    query = {"n": "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"}
    with counted_jobs(monkeypatch) as jobs:
        found = outcome(spark, tmp_path / "in", query, limits)
    assert found["late"] and found["rejected"]
    read = [set(rows.needed()) for rows in jobs]
    everything = {"ts", "site", "price", "note", "tags", "extra"}
    assert read[0] == {"ts", "site"}
    assert read[-3:] == [everything] * 3 and len(read) <= FILES + 2


def test_more_late_rows_than_are_listed_are_found_by_a_second_job(spark: Any, tmp_path: Path) -> None:
    write_files(spark, tmp_path / "in")
    few, many = Limits(pushed_rows=0, listed_rows=2), Limits(pushed_rows=0)
    assert outcome(spark, tmp_path / "in", QUERIES, few) == outcome(spark, tmp_path / "in", QUERIES, many)


@pytest.mark.parametrize(
    ("kind", "value", "is_plain"),
    [
        ("string", "'x'", True),
        ("array<struct<a: timestamp, b: decimal(5, 2)>>", None, True),
        ("string collate utf8_lcase", "'X' collate utf8_lcase", False),
        ("variant", "parse_json('1')", False),
        ("interval day to second", "INTERVAL 1 day", False),
    ],
)
def test_columns_that_arrow_does_not_have_are_left_to_spark(
    spark: Any, kind: str, value: str | None, is_plain: bool
) -> None:
    resources = SparkBackend(spark)._task_resources
    df = spark.sql(f"SELECT {value} AS x, 1 AS y" if value else f"SELECT CAST(NULL AS {kind}) AS x, 1 AS y")
    frame = stream_frame(df, resources)
    assert isinstance(frame, TaskFrame) and frame.is_read_by_tasks is is_plain
    assert frame.project({"z": "y + 1"}).to_table().to_pylist() == [{"z": 2}]


def test_rows_without_columns_are_counted(spark: Any) -> None:
    frame = stream_frame(spark.range(5000), SparkBackend(spark)._task_resources)
    assert frame.project({"one": "1"}).to_table().num_rows == 5000
