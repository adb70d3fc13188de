"""Spark SQL's scalar expressions, evaluated in Python."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.interpreter.scalar_cases import CASES, COLUMNS
from transom.errors import SQLError
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import table_of, table_rows

NAMES, ARGUMENTS = [case[0] for case in CASES], [case[1:] for case in CASES]


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal: NaN equals NaN, and the last digit of a double may differ."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12)
    return bool(left == right) and type(left) is type(right)


def test_the_names_of_the_cases_are_all_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("sql", "row", "type", "value"), ARGUMENTS, ids=NAMES)
def test_an_expression_has_its_type_and_value(sql: str, row: dict, type: pa.DataType, value: Any) -> None:
    scalars = InterpretedScalars()
    assert scalars.types(COLUMNS, [sql]) == [type]
    projected = scalars.project(table_of([row], COLUMNS), {"x": sql})
    assert projected.schema.field("x").type == type
    found = table_rows(projected)[0]["x"]
    assert same(found, value), f"{found!r} instead of {value!r}"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("`prise` + 1", "unknown column prise; did you mean price?"),
        (
            "soundex(`name`)",
            "the function soundex is not supported without Spark; run this query on the Spark backend",
        ),
        ("no_such(`name`)", "the function no_such is not supported without Spark"),
        ("`price` +", "an expression is missing"),
        ("`price` AND true", "a condition was expected"),
        ("`name`.`x`", "string has no field x"),
        ("`price` IN (SELECT 1)", "IN takes a list of values: subqueries are not supported"),
        ("CAST(`price` AS BINARY)", "a cast to BINARY is not supported without Spark"),
        ("greatest(`price`, `name`)", "a common type of double and string is not supported"),
    ],
)
def test_unsupported_expressions_are_errors(sql: str, message: str) -> None:
    columns = {"price": pa.float64(), "name": pa.string()}
    good, error = InterpretedScalars().types(columns, ["`price`", sql])
    assert good == pa.float64()
    assert isinstance(error, SQLError) and message in error.message
    with pytest.raises(SQLError, match=re.escape(message)):
        InterpretedScalars().project(table_of([], columns), {"x": sql})


def test_a_column_passes_through_as_it_is_stored() -> None:
    table = pa.table({"price": pa.chunked_array([[1.5], [2.5]])})
    projected = InterpretedScalars().project(table, {"x": "`price`", "y": "PRICE"})
    assert projected["x"].chunk(1).buffers()[1].address == table["price"].chunk(1).buffers()[1].address
    assert projected["y"].to_pylist() == [1.5, 2.5]


def test_a_value_that_python_can_t_compute_is_null_in_its_row_only() -> None:
    table = pa.table({"l": [5, 2**62]})
    found = InterpretedScalars().project(table, {"x": "year(CAST(`l` AS TIMESTAMP))"})["x"].to_pylist()
    assert found == [1970, None]


def test_a_python_function_gets_nulls_and_times_and_its_failures_are_counted() -> None:
    seen: list[Any] = []

    def described(time: datetime | None, number: int) -> str:
        seen.append(time)
        return f"{time:%H:%M} {10 // number}"

    scalars = InterpretedScalars({"Described": (described, pa.string())})
    time = pa.array([0, None, 60_000_000], pa.timestamp("us", tz="UTC"))
    table = pa.table({"t": time, "n": [5, 5, 0]})
    assert scalars.types({"t": time.type, "n": pa.int64()}, ["described(t, n)"]) == [pa.string()]
    assert scalars.project(table, {"x": "DESCRIBED(t, n)"})["x"].to_pylist() == ["00:00 2", None, None]
    assert seen == [datetime(1970, 1, 1), None, datetime(1970, 1, 1, 0, 1)]
    assert scalars.failures("described") == 2 and scalars.failures("other") == 0


def test_a_result_of_another_type_than_declared_is_a_failure() -> None:
    scalars = InterpretedScalars({"f": (lambda x: "many" if x else x, pa.int32())})
    assert scalars.project(pa.table({"x": [0, 1]}), {"y": "f(x) + 1"})["y"].to_pylist() == [1, None]
    assert scalars.failures("f") == 1


def test_a_function_registered_again_replaces_the_first() -> None:
    scalars = InterpretedScalars({"f": (lambda x: x, pa.int64())})
    table = pa.table({"x": [1]})
    assert scalars.project(table, {"y": "f(x)"})["y"].to_pylist() == [1]
    scalars.register("F", str, pa.string())
    assert scalars.project(table, {"y": "f(x)"})["y"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("pow(`x`)", "pow() takes 2 arguments, not 1"),
        ("coalesce()", "coalesce() takes 1 or more arguments, not 0"),
        ("`x` & 1 | 2", "needs parentheses"),
        ("CAST(`x` AS DATE)", "a cast from int64 to date32[day] is not supported without Spark"),
        ("`x` RLIKE '('", "the regular expression '('"),
        ("CAST(`x` AS TIMESTAMP_NTZ)", "a cast from int64 to timestamp[us] is not supported without Spark"),
        ("unix_date(`x`)", "a date was expected, not int64"),
        ("unix_micros('2020-01-01')", "a timestamp was expected, not string"),
        ("DATE '2020-01-01' + `x`", "the number of days must be an int, not int64"),
        ("`x` + INTERVAL '1' MONTH", "INTERVAL '1' MONTH is not supported without Spark"),
    ],
)
def test_a_wrong_call_is_an_error_before_any_row_is_read(sql: str, message: str) -> None:
    (error,) = InterpretedScalars().types({"x": pa.int64()}, [sql])
    assert isinstance(error, SQLError) and message in error.message


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_a_time_of_any_unit_is_computed_in_microseconds(unit: str, per_second: int) -> None:
    table = pa.table({"t": pa.array([2 * per_second, None], pa.timestamp(unit, "UTC"))})
    found = InterpretedScalars().project(table, {"same": "t", "later": "t + INTERVAL '1' SECOND"})
    assert found["same"].type == table["t"].type
    assert found["later"].type == pa.timestamp("us", "UTC")
    assert found["later"].cast(pa.int64()).to_pylist() == [3_000_000, None]


def test_a_date_that_python_does_not_have_is_null() -> None:
    table = pa.table({"day": pa.array([0, 2_932_897, None], pa.int32()).cast(pa.date32())})
    found = InterpretedScalars().project(table, {"year": "year(`day`)", "null": "`day` IS NULL"})
    assert found.to_pylist() == [{"year": 1970, "null": False}, *[{"year": None, "null": True}] * 2]
