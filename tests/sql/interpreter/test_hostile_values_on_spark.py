"""Every function and operator over values at the limits of their types: the interpreter and Spark give the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.interpreter.hostile_values import FUNCTIONS, OPERATORS, TYPES, expressions, hostile_table
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import column_values

pytestmark = [pytest.mark.spark, pytest.mark.comparison]

SCALARS = InterpretedScalars()
ROWS, SEED = 60, 3
MOST_COLUMNS = 90  # of one projection: beyond a hundred Spark does not generate code
MOST_OF_TEMPLATE = 33  # of the hundred pairs of columns that some operators have
CASES = {**FUNCTIONS, **{f"operator {node.__name__}": texts for node, texts in OPERATORS.items()}}

RAISES = {  # Spark raises an error for decimals of more than 34 digits, or can't send the type to Python
    "abs(`w`)", "abs(`v`)", "negative(`w`)", "negative(`v`)", "-`w`", "-`v`", "round(`v`, -1)", "round(`v`, -3)",
    "array()", "map()",
}  # fmt: skip
OTHER_DIGITS = 9.223372036854775e18  # Java before 19 shows it with a digit more


@pytest.fixture(scope="module")
def table() -> pa.Table:
    drawn = hostile_table(ROWS, SEED)
    place = drawn.column_names.index("d")
    plain = [None if value == OTHER_DIGITS else value for value in drawn["d"].to_pylist()]
    drawn = drawn.set_column(place, "d", pa.array(plain, pa.float64()))
    return drawn.append_column("number", pa.array(range(ROWS), pa.int32()))


@pytest.fixture
def frame(spark_without_ansi: Any, table: pa.Table, tmp_path: Path) -> Iterator[Any]:
    stored = spark_without_ansi.createDataFrame(table).coalesce(1)
    columns = [
        "CAST(`n` AS TIMESTAMP_NTZ) AS `n`" if name == "n" else f"`{name}`" for name in (*TYPES, "number")
    ]
    stored.selectExpr(*columns).write.parquet(str(tmp_path / "rows"))
    yield spark_without_ansi.read.parquet(str(tmp_path / "rows"))


def same(left: Any, right: Any, is_exact: bool) -> bool:
    """Whether two values are equal: NaN equals NaN, and some functions may differ in the last digit."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or (not is_exact and math.isclose(left, right, rel_tol=1e-12))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(same(a, b, is_exact) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], is_exact) for key in left)
    return type(left) is type(right) and bool(left == right)


def nullable(type: pa.DataType) -> pa.DataType:
    """The type of a struct without what it says about nulls."""
    return pa.struct([pa.field(each.name, each.type) for each in type]) if pa.types.is_struct(type) else type


def test_spark_gives_every_expression_the_same_type_and_values(frame: Any, table: pa.Table) -> None:
    texts = [text for templates in CASES.values() for text in expressions(templates, MOST_OF_TEMPLATE)]
    texts = [text for text in dict.fromkeys(texts) if text not in RAISES]
    wrong: list[str] = []
    for start in range(0, len(texts), MOST_COLUMNS):
        named = {f"c{at}": text for at, text in enumerate(texts[start : start + MOST_COLUMNS])}
        wrong += differences(frame, table, named)
    assert not wrong, "\n".join(wrong)


def differences(frame: Any, table: pa.Table, named: dict[str, str]) -> list[str]:
    """How Spark's types and values differ from the interpreter's."""
    selected = ["number", *(f"{text} AS {name}" for name, text in named.items())]
    theirs = frame.selectExpr(*selected).toArrow().sort_by("number")
    ours = SCALARS.project(table, named)
    found = []
    for name, text in named.items():
        kinds = [nullable(each.schema.field(name).type) for each in (theirs, ours)]
        if kinds[0] != kinds[1]:
            found.append(f"{text} is {kinds[0]} in Spark, not {kinds[1]}")
            continue
        compiled = SCALARS.compiled(dict(zip(table.column_names, table.schema.types, strict=True)), text)
        assert compiled is not None
        pairs = list(zip(column_values(theirs[name]), column_values(ours[name]), strict=True))
        at = next((at for at, pair in enumerate(pairs) if not same(*pair, compiled.is_exact)), None)
        if at is not None:
            used = [column for column in table.column_names if f"`{column}`" in text]
            values = {column: column_values(table[column].slice(at, 1))[0] for column in used}
            found.append(f"{text} of {values} is {pairs[at][0]!r} in Spark, not {pairs[at][1]!r}")
    return found
