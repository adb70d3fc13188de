"""File streams on Spark give the same answers wherever the files are read: on the driver, in tasks, or by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transom
from tests.engine_factory import on_spark
from transom.backends.base import Backend
from transom.backends.local.backend import LocalBackend
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.file_tasks import FileJob
from transom.backends.spark.task_frame import TaskFrame
from transom.plan.limits import Limits

pytestmark = [on_spark("Spark reads files in three ways"), pytest.mark.comparison]

START = 1_600_000_000_000_000
MINUTE = 60_000_000
SCHEMA = "ts timestamp, site int, price double, note string"
QUERIES = {
    "total": "SELECT site, count(*) AS n, sum(price) AS s FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site",
    "named": "SELECT s.name, max(price) AS top FROM bids [RANGE 1 minute SLIDE 1 minute] b "
    "LEFT JOIN sites s ON b.site = s.site GROUP BY s.name",
    "text": "SELECT count(*) AS n, max(length(note)) AS longest FROM bids [RANGE 1 minute SLIDE 1 minute] "
    "WHERE upper(note) <> 'NOTE 3'",
    "like": "SELECT concat(note, '!') AS shout, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] "
    "WHERE note LIKE '%te 1' GROUP BY concat(note, '!')",
}
LEFT_TO_SPARK = {  # joins that repeat rows, and functions that tasks do not evaluate
    "repeated": "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] b "
    "JOIN visits v ON b.site = v.site",
    "matched": "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] WHERE note RLIKE '[13]'",
}
COUNTS = ("counted", "late", "rejected", "unwanted")


class SparkReads(SparkBackend):
    """A backend that reads all files as DataFrames."""

    def open_files(self, *args: Any, **options: Any) -> Any:
        files = super().open_files(*args, **options)
        files._tasks = None
        return files


def write_files(directory: Path) -> None:
    """Files of several types and row groups, with late rows, rows without a time and rows far ahead."""
    directory.mkdir()
    chance = np.random.default_rng(5)
    for number in range(4):
        rows = 300
        times = START + number * MINUTE + chance.integers(0, MINUTE, rows)
        times[:7] -= 5 * MINUTE  # late, except in the first file
        at = pa.array(times, mask=chance.random(rows) < 0.02)
        unit = ("us", "ms", "ns", "us")[number]
        columns = {
            "TS" if number == 1 else "ts": at.cast(pa.timestamp("us", tz="UTC")).cast(
                pa.timestamp(unit, tz="UTC"), safe=False
            ),
            "site": pa.array(chance.integers(0, 5, rows), pa.int32() if number else pa.int16()),
            "note": [f"note {i % 9}" for i in range(rows)],
            "price": pa.array(
                np.round(chance.random(rows) * 64), pa.float32() if number == 2 else pa.float64()
            ),
        }
        if number == 3:
            columns.pop("price")
            columns["extra"] = pa.nulls(rows)
        pq.write_table(pa.table(columns), directory / f"{number}.parquet", row_group_size=120)


def outcome(
    backend: Backend, directory: Path, limits: Limits | None = None, queries: Mapping[str, str] = QUERIES
) -> dict[str, Any]:
    """Everything that an engine says about a stream of the files."""
    with transom.Engine(backend=backend, limits=limits) as engine:
        engine.table("sites", pa.table({"site": pa.array([0, 1, 2], pa.int32()), "name": ["a", "b", None]}))
        engine.table("visits", pa.table({"site": pa.array([1, 1, 2], pa.int32())}))
        engine.stream("bids", str(directory), time="ts", schema=SCHEMA, format="parquet", slack="30 seconds")
        engine.register_all(dict(queries))
        engine.drain()
        progress = engine.progress().streams["bids"]
        problems = engine.file_problems("bids").to_pylist()
        return {
            "results": {name: sorted_rows(engine.query(name).results()) for name in queries},
            "late": sorted_rows(engine.late("bids")),
            "rejected": sorted_rows(engine.rejected("bids")),
            "counts": {name: getattr(progress, name) for name in COUNTS},
            "problems": sorted(
                (row["problem"], row["file"].split("/")[-1], row["column"]) for row in problems
            ),
        }


def sorted_rows(table: pa.Table) -> list[str]:
    clock = [name for name in ("made", "latency") if name in table.column_names]
    return sorted(map(str, table.drop_columns(clock).to_pylist()))


@pytest.mark.parametrize("queries", [QUERIES, QUERIES | LEFT_TO_SPARK], ids=["in tasks", "some by Spark"])
def test_files_give_the_same_answers_however_they_are_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: Mapping[str, str]
) -> None:
    write_files(tmp_path / "in")
    jobs = []
    run = FileJob.run
    monkeypatch.setattr(FileJob, "run", lambda job, context: jobs.append(job) or run(job, context))
    in_tasks = Limits(pushed_rows=0)
    by_spark = outcome(SparkReads(spark, in_tasks), tmp_path / "in", in_tasks, queries)
    assert not jobs
    by_tasks = outcome(SparkBackend(spark, in_tasks), tmp_path / "in", in_tasks, queries)
    assert len(jobs) == (4 if queries is QUERIES else 0)
    on_driver = outcome(SparkBackend(spark), tmp_path / "in", None, queries)
    local = outcome(LocalBackend(), tmp_path / "in", None, queries)
    assert by_spark["late"] and by_spark["rejected"] and by_spark["counts"]["late"]
    assert by_tasks == by_spark
    assert on_driver == by_spark
    assert local == by_spark


def test_late_and_rejected_rows_come_with_the_aggregates(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job for each batch, whatever rows are late or rejected; no DataFrame."""
    write_files(tmp_path / "in")
    jobs = []
    run = FileJob.run
    monkeypatch.setattr(FileJob, "run", lambda job, context: jobs.append(job) or run(job, context))
    planned = []
    frame = TaskFrame.df.func
    monkeypatch.setattr(TaskFrame.df, "func", lambda self: planned.append(self) or frame(self))
    limits = Limits(pushed_rows=0)
    with transom.Engine(backend=SparkBackend(spark, limits), limits=limits) as engine:
        engine.stream("bids", str(tmp_path / "in"), time="ts", schema=SCHEMA, format="parquet")
        engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]", name="n")
        engine.drain()
        assert engine.late("bids").num_rows and engine.rejected("bids").num_rows
    assert len(jobs) == 4 and not planned


def test_more_late_rows_than_are_listed_are_read_by_a_second_job(spark: Any, tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    few = Limits(pushed_rows=0, listed_rows=3)
    by_spark = outcome(SparkReads(spark, few), tmp_path / "in", few)
    assert outcome(SparkBackend(spark, few), tmp_path / "in", few) == by_spark


@pytest.mark.parametrize("far", [False, True], ids=["one row is far ahead", "most rows are far ahead"])
def test_the_horizon_of_a_first_batch(spark: Any, tmp_path: Path, far: bool) -> None:
    """Rows of a first batch that lie apart are judged as if its times had been looked at before."""
    hours = 60 * MINUTE
    times = (
        [START, START + 1, START + 2 * hours] if not far else [START, START + 2 * hours, START + 2 * hours]
    )
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))}), tmp_path / "in" / "a.parquet"
    )
    rejected = []
    for backend in (SparkBackend(spark, Limits(pushed_rows=0)), SparkBackend(spark), LocalBackend()):
        with transom.Engine(backend=backend) as engine:
            engine.stream("bids", str(tmp_path / "in"), time="ts", horizon="1 hour")
            query = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]")
            engine.drain()
            rejected.append((engine.rejected("bids").num_rows, sorted_rows(query.results())))
    assert rejected[0][0] == (0 if far else 1)
    assert rejected[0] == rejected[1] == rejected[2]
