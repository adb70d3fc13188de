"""The oracle's own evaluation of Spark SQL's scalar expressions."""

from __future__ import annotations

import math
import re
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.interpreter.scalar_cases import CASES, COLUMNS
from transom.errors import SQLError
from transom.oracle import PythonScalars
from transom.sql.interpreter.values import rows_of, table_of

NAMES, ARGUMENTS = [case[0] for case in CASES], [case[1:] for case in CASES]


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself and the last digit of a double let go."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12)
    return bool(left == right) and type(left) is type(right)


def test_the_names_of_the_cases_are_all_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("sql", "row", "type", "value"), ARGUMENTS, ids=NAMES)
def test_an_expression_has_its_type_and_value(sql: str, row: dict, type: pa.DataType, value: Any) -> None:
    scalars = PythonScalars()
    assert scalars.types(COLUMNS, [sql]) == [type]
    projected = scalars.project(table_of([row], COLUMNS), {"x": sql})
    assert projected.schema.field("x").type == type
    found = rows_of(projected)[0]["x"]
    assert same(found, value), f"{found!r} instead of {value!r}"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("`prise` + 1", "unknown column prise; did you mean price?"),
        ("reverse(`name`)", "the oracle does not evaluate reverse"),
        ("no_such(`name`)", "the oracle does not evaluate no_such"),
        ("`price` +", "not an expression"),
        ("`price` AND true", "a condition was expected"),
        ("`name`.`x`", "string has no field x"),
        ("`price` IN (SELECT 1)", "IN with a list of values only"),
        ("CAST(`price` AS BINARY)", "can't cast to BINARY"),
        ("greatest(`price`, `name`)", "no common type"),
    ],
)
def test_what_is_not_supported_is_an_error_that_says_so(sql: str, message: str) -> None:
    columns = {"price": pa.float64(), "name": pa.string()}
    good, error = PythonScalars().types(columns, ["`price`", sql])
    assert good == pa.float64()
    assert isinstance(error, SQLError) and message in error.message
    with pytest.raises(SQLError, match=re.escape(message)):
        PythonScalars().project(table_of([], columns), {"x": sql})
