"""Words of a query that are printed for Spark as they are: none of them can smuggle in more than a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import transom
from transom.errors import SQLError
from transom.sql.syntax.expression_guard import reaches_out

WINDOW = "[RANGE 10 seconds SLIDE 10 seconds]"
SECRET = "(SELECT MAX(VALUE) FROM IDENTIFIER(CAST(X'{}' AS STRING)))"


def smuggling(secret: str) -> dict[str, str]:
    """Queries that were read as harmless, and printed as something else."""
    sub = SECRET.format(f"text.`{secret}`".encode().hex().upper())
    return {
        "extract": f'extract("DAY FROM `TS`) || {sub} || EXTRACT(DAY" FROM ts)',
        "extract in backticks": f"extract(`DAY FROM TS) || {sub} || EXTRACT(DAY` FROM ts)",
        "a unit of dateadd": f"dateadd(`HOUR, 1, TS) || {sub} || DATEADD(HOUR`, 1, ts)",
        "a unit of an interval": f"ts + INTERVAL '1' `DAY || {sub}`",
        "the end of an interval": f"ts + INTERVAL '1 1:1:1' DAY TO `SECOND || {sub}`",
        "a size of a type": f"CAST(price AS DECIMAL(`10) || {sub} || CAST(PRICE AS DECIMAL(10`,2))",
        "a type": f"CAST(price AS `INT) || {sub} || CAST(PRICE AS INT`)",
        "a field of a type": f"CAST(price AS STRUCT<`a: INT>) || {sub} || CAST(PRICE AS STRUCT<a`: INT>)",
    }


@pytest.mark.parametrize("way", list(smuggling("")))
def test_no_query_text_reaches_spark_unchecked(spark: SparkSession, tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP")
    engine = transom.Engine(spark, str(tmp_path / "checkpoint"))
    engine.feed("s", "ts timestamp, price double", time="ts")
    with pytest.raises(SQLError):
        engine.check(f"SELECT max(concat('', {smuggling(str(secret))[way]})) AS x FROM s {WINDOW}")


@pytest.mark.parametrize(
    "expression",
    [
        "extract(DAY FROM ts)",
        "extract(dow FROM ts)",
        "dateadd(HOUR, 1, ts)",
        "ts + INTERVAL 1 DAY",
        "ts + INTERVAL '1 2:3:4.5' DAY TO SECOND",
        "ts - INTERVAL '2' HOURS",
        "CAST(price AS DECIMAL(10, 2))",
        "CAST(price AS BIGINT)",
        "CAST(NULL AS STRUCT<a: INT, b: ARRAY<STRING>>).a",
    ],
)
def test_keywords_in_strings_and_names_are_accepted(
    spark: SparkSession, tmp_path: Path, expression: str
) -> None:
    engine = transom.Engine(spark, str(tmp_path / "checkpoint"))
    engine.feed("s", "ts timestamp, price double", time="ts")
    engine.check(f"SELECT max({expression}) AS x FROM s {WINDOW}")


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT 1)",
        "reflect('java.lang.System', 'exit')",
        "Java_Method('a', 'b')",
        "1; DROP TABLE x",
        "`a` -- b",
    ],
)
def test_the_guard_detects_texts_that_are_more_than_expressions(text: str) -> None:
    assert reaches_out(text)


@pytest.mark.parametrize(
    "text", ["'SELECT'", "`select` + 1", "`reflect`(`x`)", "concat('-- ', `with`)", "1e5"]
)
def test_the_guard_accepts_expressions(text: str) -> None:
    assert not reaches_out(text)
