"""Vector forms give what row forms give, to the last bit, for every function, operator and type."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.interpreter.hostile_values import FUNCTIONS, OPERATORS, expressions, hostile_table
from transom.sql.interpreter.expressions import BUILDERS
from transom.sql.interpreter.function_table import FUNCTIONS as ALL_FUNCTIONS
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.values import column_values

SCALARS = InterpretedScalars()
CASES = {**FUNCTIONS, **{f"operator {node.__name__}": texts for node, texts in OPERATORS.items()}}
SEED = 7
MANY = hostile_table(200, SEED)
SHAPES = {
    "whole": MANY,
    "without nulls": hostile_table(100, SEED + 1, null_share=0.0),
    "only nulls": hostile_table(3, SEED + 2, null_share=1.0),
    "sliced": MANY.slice(13, 57),
    "chunked": pa.concat_tables([MANY.slice(5, 9), MANY.slice(0, 0), MANY.slice(90, 30)]),
    "one row": MANY.slice(3, 1),
    "empty": MANY.slice(0, 0),
    "no chunks": MANY.schema.empty_table(),
}


def identical(left: Any, right: Any) -> bool:
    """Whether two values are the same to the last bit; every NaN is the same."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(identical(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)


def differences(table: pa.Table, texts: list[str]) -> list[str]:
    named = {str(at): text for at, text in enumerate(texts)}
    vectors, rows = SCALARS.project(table, named), SCALARS.project_by_row(table, named)
    assert vectors.schema == rows.schema
    found = []
    for name, text in named.items():
        vectors[name].validate(full=True)
        pairs = zip(column_values(vectors[name]), column_values(rows[name]), strict=True)
        at, pair = next(((at, pair) for at, pair in enumerate(pairs) if not identical(*pair)), (0, None))
        if pair is not None:
            used = [name for name in table.column_names if f"`{name}`" in text]
            values = {name: column_values(table[name].slice(at, 1))[0] for name in used}
            found.append(f"{text} of {values} is {pair[0]!r} by vectors and {pair[1]!r} by rows")
    return found


def test_every_function_and_operator_has_a_case() -> None:
    assert set(FUNCTIONS) == set(ALL_FUNCTIONS)
    assert set(OPERATORS) == set(BUILDERS)


@pytest.mark.parametrize("name", CASES)
def test_vectors_and_rows_agree(name: str) -> None:
    texts = expressions(CASES[name])
    for shape, table in SHAPES.items():
        found = differences(table, texts)
        assert not found, "\n".join([f"{shape}, seed {SEED}:", *found[:20]])
