"""Python functions of the program: called outside of Spark SQL, with the results that Spark gives."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import EngineFactory, on_spark
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.task_frame import TaskFrame
from transom.plan.limits import Limits

pytestmark = on_spark("functions are called by worker processes instead of Spark")

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
RESULTS = [
    None,
    True,
    1,
    300,
    3_000_000_000,
    1 << 70,
    1.5,
    1e300,
    -0.0,
    float("nan"),
    "x",
    "5",
    b"ab",
    [1],
    {"a": 1},
]
TYPES = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string"]


@pytest.fixture(scope="module")
def backend(spark: Any) -> Any:
    made = SparkBackend(spark, Limits(pushed_rows=0))
    yield made
    made.stop()


@pytest.mark.comparison
@pytest.mark.parametrize("returns", TYPES)
def test_results_become_what_spark_makes_of_them(backend: SparkBackend, returns: str) -> None:
    table = pa.table({"n": range(len(RESULTS))})
    kept = [
        place
        for place, value in enumerate(RESULTS)
        if returns != "string" or not isinstance(value, bytes | list | dict)
    ]
    table = table.take(pa.array(kept))
    values = list(RESULTS)
    backend.register_function("chosen", lambda n: values[n], returns)
    assert backend.calling_python({"n": pa.int64()}, ["chosen(`n`)"]) == {"chosen(`n`)"}
    ours = backend.scalars.project(table, {"x": "chosen(`n`)"})
    by_spark = backend.scalars.project_by_spark(table, {"x": "chosen(`n`)"})
    assert ours.schema == by_spark.schema
    assert str(ours["x"].to_pylist()) == str(by_spark["x"].to_pylist())


def test_failed_calls_are_null_and_counted_wherever_they_run(backend: SparkBackend, tmp_path: Path) -> None:
    backend.register_function("inverse", lambda x: 1.0 / x, "double")
    table = pa.table({"x": [4, 0, None]})
    assert backend.scalars.project(table, {"y": "inverse(`x`)"})["y"].to_pylist() == [0.25, None, None]
    assert backend.function_failures("Inverse") == 2
    pq.write_table(table, tmp_path / "a.parquet")
    files = backend.open_files(str(tmp_path), "parquet", "x bigint")
    frame = files.read(files.pending()[0]).project({"y": "inverse(`x`) * 2"})
    assert isinstance(frame, TaskFrame) and frame.is_read_by_tasks
    assert frame.to_table()["y"].to_pylist() == [0.5, None, None]
    assert backend.function_failures("inverse") == 4
    backend.register_function("inverse", lambda x: 2.0, "double")
    assert frame.to_table()["y"].to_pylist() == [4.0, 4.0, 4.0]
    assert backend.function_failures("inverse") == 0


def test_times_and_names_that_look_like_calls_are_no_calls(backend: SparkBackend) -> None:
    backend.register_function("price", lambda x: x, "double")
    columns = {"price": pa.float64(), "ts": pa.timestamp("us", tz="UTC"), "price_of": pa.int64()}
    texts = ["`price` * 2", "abs(`price_of`)", "price(`price`)", "price(`ts`)"]
    assert backend.calling_python(columns, texts) == {"price(`price`)"}
    assert list(backend.delegated(columns, texts)) == ["price(`ts`)"]


def test_a_function_that_ends_its_process_suspends_its_query_only(make_engine: EngineFactory) -> None:
    def deadly(value: int) -> int:
        if value == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    engine = make_engine()
    engine.udf("deadly_here", deadly, "int")
    feed = engine.feed("s", "v int, ts timestamp", time="ts")
    good = engine.register(f"SELECT sum(v) AS n FROM s {WINDOW}", "good")
    bad = engine.register(f"SELECT sum(deadly_here(v)) AS n FROM s {WINDOW}", "bad")
    assert "deadly_here(v) (1): by a worker process" in engine.explain()
    for minute in range(4):
        feed.push([(minute, f"2013-01-01 12:0{minute}:00")])
        engine.step()
    assert good.results()["n"].to_pylist() == [0, 1, 2] and good.suspended is None
    assert bad.results()["n"].to_pylist() == [0] and "ended the worker process" in (bad.suspended or "")


def test_a_function_that_never_returns_is_killed_at_the_deadline(make_engine: EngineFactory) -> None:
    def endless(value: int) -> int:
        while value:
            value += 1
        return value

    engine = make_engine(batch_deadline="2 seconds")
    engine.udf("endless_here", endless, "int")
    feed = engine.feed("s", "v int, ts timestamp", time="ts")
    good = engine.register(f"SELECT sum(v) AS n FROM s {WINDOW}", "good")
    bad = engine.register(f"SELECT sum(endless_here(v)) AS n FROM s {WINDOW}", "bad")
    for minute in range(3):
        feed.push([(minute, f"2013-01-01 12:0{minute}:00")])
        engine.step()
    assert good.results()["n"].to_pylist() == [0, 1] and good.suspended is None
    assert "deadline" in (bad.suspended or "")
