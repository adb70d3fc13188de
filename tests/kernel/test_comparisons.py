"""Predicates over columns: SQL's three truths, Spark's order of NaN, constants compared by value."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest

from transom.kernel.predicates import compare, evaluate
from transom.oracle.aggregates import holds
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth

NAN, INF = math.nan, math.inf
OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]

# For each type the values of a column and the constants that the SQL front lets meet it.
TABLE: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.bool_(), [True, False], [True, False]),
    (pa.int8(), [-128, -1, 0, 1, 127], [0, 127, 128, -129, D("0.5"), 0.5, -0.0, 10**30]),
    (pa.int32(), [-(2**31), 0, 5, 2**31 - 1], [5, D("5.00"), D("5.5"), D("-5.5"), 2**31, 5.0, 4.5, 1e300]),
    (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1],
     [0, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, D("0.1"), D("-0.1"), D("1e40"), 0.5, -1.0]),
    (pa.float32(), [-INF, -1.5, -0.0, 0.0, 0.5, INF, NAN], [0.0, -0.0, 0.5, NAN, INF, -INF]),
    (pa.float64(), [-INF, -1.5, -0.0, 0.0, 0.1, 1e308, INF, NAN], [0.0, -0.0, 0.1, NAN, INF, -INF, 1e308]),
    (pa.decimal128(10, 2), [D("-1.10"), D("0.00"), D("1.10"), D("99999999.99")],
     [0, 1, D("1.1"), D("1.105"), D("-1.105"), D("1.10000"), D("99999999.99"), 10**8, -(10**30)]),
    (pa.decimal128(38, 0), [D("9" * 38), D("-" + "9" * 38), D(0)],
     [D("9" * 38), 10**38, -(10**38), D("0.5")]),
    (pa.decimal128(38, 38), [D("0." + "9" * 38), D(0)], [0, 1, D("0." + "9" * 38)]),
    (pa.string(), ["", "a", "A", "z", "é", "\uffff", "😀"], ["", "a", "é", "\uffff", "😀"]),
    (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
     [date(1970, 1, 1), date(1, 1, 1)]),
    (pa.timestamp("us", tz="UTC"), [-1, 0, 1_357_000_000_000_001], [0, 1_357_000_000_000_001, -5]),
    (pa.timestamp("us"), [-1, 0, 1_357_000_000_000_001], [0, 1_357_000_000_000_001, -5]),
]  # fmt: skip
PAIRS = [
    pytest.param(kind, values, constant, id=f"{kind} and {constant!r}")
    for kind, values, constants in TABLE
    for constant in constants
]


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([*values, None], kind, from_pandas=False)


def expected(predicate: Predicate, values: list[Any], kind: pa.DataType) -> list[bool | None]:
    """What the oracle says, value by value; a float column holds what its width can hold."""
    seen = values if not pa.types.is_floating(kind) else column(values, kind).to_pylist()[:-1]
    return [holds(predicate, {"x": value}) for value in [*seen, None]]


@pytest.mark.parametrize(("kind", "values", "constant"), PAIRS)
def test_every_operator_is_the_oracles(kind: pa.DataType, values: list[Any], constant: Any) -> None:
    scalar = Scalar("x", kind)
    for operator in OPERATORS:
        found = compare(column(values, kind), operator, constant)
        assert found.type == pa.bool_()
        assert found.to_pylist() == expected(Comparison(scalar, operator, constant), values, kind), operator


@pytest.mark.parametrize("null", [False, True])
def test_membership_is_the_oracles(null: bool) -> None:
    for kind, values, constants in TABLE:
        member = Member(Scalar("x", kind), tuple(constants[:3]), null)
        found = evaluate(member, lambda _, k=kind, v=values: column(v, k))
        assert found.to_pylist() == expected(member, values, kind), kind


T, F, N = Truth(Scalar("t", pa.bool_())), Truth(Scalar("f", pa.bool_())), Truth(Scalar("n", pa.bool_()))
TRUTHS = {"t": pa.array([True]), "f": pa.array([False]), "n": pa.array([None], pa.bool_())}


@pytest.mark.parametrize(
    ("predicate", "truth"),
    [
        (And((T, T)), True), (And((T, F)), False), (And((T, N)), None), (And((F, N)), False),
        (And((N, N)), None),
        (Or((T, N)), True), (Or((F, N)), None), (Or((F, F)), False), (Or((N, F, T)), True),
        (Not(T), False), (Not(F), True), (Not(N), None), (Not(And((F, N))), True),
        (IsNull(N.scalar), True), (IsNull(T.scalar), False), (Not(IsNull(N.scalar)), False),
    ],
)  # fmt: skip
def test_and_or_not_have_three_truths(predicate: Predicate, truth: bool | None) -> None:
    assert evaluate(predicate, lambda scalar: TRUTHS[scalar.sql]).to_pylist() == [truth]


def test_a_condition_that_is_a_bare_null_is_unknown() -> None:
    condition = And((Truth(Scalar("NULL", pa.bool_())), T))
    columns = {"t": pa.array([True, False]), "NULL": pa.nulls(2)}
    assert evaluate(condition, lambda scalar: columns[scalar.sql]).to_pylist() == [None, False]


def test_what_is_not_a_predicate_is_refused() -> None:
    with pytest.raises(TypeError, match="not a predicate"):
        evaluate("x > 5", lambda _: pa.array([1]))  # type: ignore[arg-type]
