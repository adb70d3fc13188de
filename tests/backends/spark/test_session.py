"""Starting Spark, and saying in time why it can't start."""

from __future__ import annotations

import threading
import zipfile
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from transom.backends.spark import session as sessions
from transom.backends.spark.session import ANSI, ansi_off, ship


def context(master: str, id: str, sent: list[str]) -> Any:
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=master, applicationId=id, addPyFile=sent.append)
    )


def test_the_package_is_shipped_once_per_context_and_not_to_threads() -> None:
    sent: list[str] = []
    ship(context("local[2]", "a", sent))
    assert sent == []
    ship(context("spark://127.0.0.1:7077", "b", sent))
    ship(context("spark://127.0.0.1:7077", "b", sent))
    ship(context("spark://127.0.0.1:7077", "c", sent))
    assert len(sent) == 2
    names = zipfile.ZipFile(sent[0]).namelist()
    assert "transom/elements.py" in names and "transom/backends/spark/session.py" in names


def test_a_local_session_is_the_running_one(spark: SparkSession) -> None:
    assert sessions.local_session().sparkContext is spark.sparkContext


def test_workers_run_the_same_python_as_the_driver(spark: SparkSession) -> None:
    def executable(_: int) -> str:
        import sys

        return sys.executable

    import sys

    assert spark.sparkContext.parallelize([1], 1).map(executable).collect() == [sys.executable]


@pytest.mark.parametrize("before", ["true", "false"])
def test_the_ansi_setting_is_restored_even_after_an_error(spark: SparkSession, before: str) -> None:
    original = spark.conf.get(ANSI)
    spark.conf.set(ANSI, before)
    try:
        with pytest.raises(ZeroDivisionError), ansi_off(spark):
            assert spark.conf.get(ANSI) == "false"
            raise ZeroDivisionError
        assert spark.conf.get(ANSI) == before
    finally:
        spark.conf.set(ANSI, original or "true")


def test_expressions_keep_the_mode_they_were_analysed_with(spark: SparkSession) -> None:
    frame = spark.range(3)
    with ansi_off(spark):
        lenient = frame.selectExpr(
            "1 / id AS divided",
            "CAST('x' AS INT) AS cast",
            "id + 9223372036854775807 AS wrapped",
            "element_at(array(1), CAST(id AS INT) + 5) AS element",
            "to_timestamp('no time') AS time",
            "make_date(2020, 13, 1) AS date",
            "CAST(id AS INT) % 0 AS rest",
        )
    assert spark.conf.get(ANSI) == "true"
    rows = lenient.repartition(2).orderBy("wrapped").collect()  # through a shuffle, as batches go
    assert [row.wrapped for row in rows] == [-(2**63), -(2**63) + 1, 2**63 - 1]
    assert [row.divided for row in rows] == [1.0, 0.5, None]
    for name in ("cast", "element", "time", "date", "rest"):
        assert [row[name] for row in rows] == [None] * 3


def test_threads_take_turns_with_the_ansi_setting(spark: SparkSession) -> None:
    inside = threading.Event()
    seen: list[bool | str | None] = []

    def second() -> None:
        inside.wait()
        seen.append(sessions._ansi_lock.acquire(blocking=False))
        with ansi_off(spark):
            seen.append(spark.conf.get(ANSI))

    thread = threading.Thread(target=second)
    with ansi_off(spark):
        thread.start()
        inside.set()
        while not seen:
            thread.join(0.001)
        assert spark.conf.get(ANSI) == "false"
    thread.join()
    assert seen == [False, "false"] and spark.conf.get(ANSI) == "true"
