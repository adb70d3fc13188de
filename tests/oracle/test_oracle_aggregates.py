"""Aggregates by the textbook, with Spark's nulls, NaN and decimals."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from transom.errors import SQLError
from transom.oracle.aggregates import aggregate, holds
from transom.sql.query import And, Call, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth

LONG, DOUBLE, NAN, INF = pa.int64(), pa.float64(), math.nan, math.inf
X, Y = Scalar("`x`", LONG, "x"), Scalar("`y`", LONG, "y")


def money(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


@pytest.mark.parametrize(
    ("function", "type", "values", "expected"),
    [
        ("count_rows", LONG, [1, None], 2),
        ("count", LONG, [1, None], 1),
        ("sum", LONG, [1, None, 2], 3),
        ("sum", LONG, [None], None),
        ("sum", LONG, [2**63 - 1, 1], -(2**63)),
        ("sum", DOUBLE, [1e300, 7.0, -1e300], 7.0),
        ("sum", DOUBLE, [0.1] * 10, 1.0),
        ("sum", DOUBLE, [INF, -INF], NAN),
        ("sum", DOUBLE, [1e308, 1e308], INF),
        ("sum", money(14, 2), [Decimal("0.10")] * 3, Decimal("0.30")),
        ("sum", money(3, 2), [Decimal("9.99")] * 2, None),
        ("avg", DOUBLE, [1, 2, None], 1.5),
        ("avg", DOUBLE, [], None),
        ("avg", money(8, 6), [Decimal("1.00"), Decimal("1.00"), Decimal("0.00")], Decimal("0.666667")),
        ("min", DOUBLE, [NAN, 1.0, None], 1.0),
        ("min", DOUBLE, [NAN], NAN),
        ("max", DOUBLE, [NAN, INF], NAN),
        ("max", pa.string(), ["a", "Z"], "a"),
        ("max", LONG, [None], None),
        ("var_pop", DOUBLE, [2, 4, 4, 4, 5, 5, 7, 9], 4.0),
        ("stddev_pop", DOUBLE, [2, 4, 4, 4, 5, 5, 7, 9], 2.0),
        ("var_samp", DOUBLE, [1, 3], 2.0),
        ("stddev_samp", DOUBLE, [1, 3], math.sqrt(2)),
        ("var_samp", DOUBLE, [5], None),
        ("var_pop", DOUBLE, [5], 0.0),
        ("stddev_samp", DOUBLE, [], None),
        ("var_pop", DOUBLE, [1.0, NAN], NAN),
        ("approx_count_distinct", LONG, [1, 1, None, 2], 2),
        ("approx_count_distinct", LONG, [NAN, NAN, 0.0, -0.0], 2),
        ("approx_count_distinct", LONG, [], 0),
    ],
)
def test_an_aggregate(function: str, type: pa.DataType, values: list[Any], expected: Any) -> None:
    found = aggregate(Call(function, (X,), type), [{"`x`": value} for value in values])
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 2), (0.0, 1), (1.0, 4), (0.51, 3), ((0.25, 0.75), [1, 3])]
)
def test_a_percentile_is_the_value_of_nearest_rank(fraction: Any, expected: Any) -> None:
    call = Call("approx_percentile", (X,), LONG, parameters=(fraction, 10_000))
    assert aggregate(call, [{"`x`": value} for value in (4, None, 1, 3, 2)]) == expected


def test_filter_keeps_what_is_true_and_count_of_two_needs_both() -> None:
    rows = [{"`x`": 1, "`y`": 1}, {"`x`": 2, "`y`": None}, {"`x`": 4, "`y`": 9}]
    assert aggregate(Call("sum", (X,), LONG, where=Comparison(Y, "<", 5)), rows) == 1
    assert aggregate(Call("count", (X, Y), LONG), rows) == 2
    assert aggregate(Call("count_rows", (), LONG, where=Not(Comparison(Y, "<", 5))), rows) == 1


def test_an_unknown_aggregate_is_refused() -> None:
    with pytest.raises(SQLError, match="no textbook implementation of the aggregate histogram"):
        aggregate(Call("histogram", (X,), LONG), [{"`x`": 1}])


UNKNOWN, TRUE, FALSE = Comparison(Y, "=", 1), IsNull(Y), Not(IsNull(Y))  # where y is null


@pytest.mark.parametrize(
    ("predicate", "truth"),
    [
        (None, True),
        (Comparison(X, "=", 3), True),
        (Comparison(X, "!=", Decimal("3.0")), False),
        (Comparison(X, ">=", 2.5), True),
        (Comparison(X, "<", NAN), True),
        (UNKNOWN, None),
        (Comparison(Y, "<=>", None), True),
        (Comparison(X, "<=>", None), False),
        (Comparison(X, "=", None), None),
        (Member(X, (1, 3)), True),
        (Member(X, (1, 2)), False),
        (Member(X, (1, 2), null=True), None),
        (Member(Y, (1, 2)), None),
        (Truth(Scalar("`b`", pa.bool_())), False),
        (And((TRUE, UNKNOWN)), None),
        (And((FALSE, UNKNOWN)), False),
        (Or((TRUE, UNKNOWN)), True),
        (Or((FALSE, UNKNOWN)), None),
        (Not(UNKNOWN), None),
    ],
)
def test_a_predicate_has_three_values(predicate: Predicate | None, truth: bool | None) -> None:
    assert holds(predicate, {"`x`": 3, "`y`": None, "`b`": False}) is truth
