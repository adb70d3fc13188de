"""Python functions in queries."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType

from transom.backends.spark.udf import failures, register_udf, user_functions
from transom.errors import SettingError


def test_a_call_that_fails_is_null_and_counted(spark: SparkSession) -> None:
    register_udf(spark, "Inverse", lambda x: 1 / x, "double")
    register_udf(spark, "fine", lambda x: x + 1, "bigint")
    rows = spark.range(-1, 2).selectExpr("inverse(id) AS a", "fine(id) AS b").collect()
    assert [(row.a, row.b) for row in rows] == [(-1.0, 0), (None, 1), (1.0, 2)]
    assert failures(spark, "inverse") == 1 and failures(spark, "fine") == 0


def test_a_function_registered_again_counts_from_zero(spark: SparkSession) -> None:
    for _ in range(2):
        register_udf(spark, "wrong", lambda x: [][x], DoubleType())
        assert failures(spark, "wrong") == 0
        assert spark.range(3).selectExpr("wrong(id) AS a").where("a IS NULL").count() == 3
        assert failures(spark, "WRONG") == 3


def test_what_a_program_registered_is_listed_and_nothing_else(spark: SparkSession) -> None:
    before = user_functions(spark)
    spark.udf.register("mineTwice", lambda x: 2 * x, "int")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION thrice(x INT) RETURNS INT RETURN 3 * x")
    assert user_functions(spark) - before == {"minetwice", "thrice"}
    assert "abs" not in user_functions(spark)


def test_a_wrong_type_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="not a type: 'duoble'"):
        register_udf(spark, "f", lambda x: x, "duoble")


def test_no_failures_of_an_unknown_function(spark: SparkSession) -> None:
    assert failures(spark, "never_registered") == 0
