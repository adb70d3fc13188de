"""The same table of expressions on Spark itself: what the oracle is held to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.sql.interpreter.scalar_cases import CASES, COLUMNS
from tests.sql.interpreter.test_expressions import same
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import table_of, table_rows

pytestmark = pytest.mark.spark


def test_spark_gives_every_expression_the_same_type_and_value_on_every_row(spark_without_ansi: Any) -> None:
    rows = [dict(number=i, **case[2]) for i, case in enumerate(CASES)]
    table = table_of(rows, {"number": pa.int32(), **COLUMNS})
    expressions = {"number": "number"} | {f"c{i}": case[1] for i, case in enumerate(CASES)}
    ours = InterpretedScalars().project(table, expressions)
    selected = [f"{sql} AS {name}" for name, sql in expressions.items()]
    theirs = spark_without_ansi.createDataFrame(table).selectExpr(*selected).toArrow().sort_by("number")

    differences = [
        f"{name}: {sql} is {theirs.schema.field(column).type} in Spark, not {ours.schema.field(column).type}"
        for (name, sql, *_), column in zip(CASES, ours.column_names[1:], strict=True)
        if theirs.schema.field(column).type != ours.schema.field(column).type
    ]
    for mine, spark_s, row in zip(table_rows(ours), table_rows(theirs), rows, strict=True):
        differences += [
            f"{sql} of {row} is {spark_s[f'c{i}']!r} in Spark, not {mine[f'c{i}']!r}"
            for i, (_, sql, *_) in enumerate(CASES)
            if not same(spark_s[f"c{i}"], mine[f"c{i}"])
        ]
    assert not differences, "\n".join(differences)
