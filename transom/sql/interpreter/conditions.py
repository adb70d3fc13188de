"""Comparisons, three-valued logic and conditional expressions of Spark SQL on typed expressions."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from transom.errors import SQLError
from transom.sql.interpreter import types
from transom.sql.interpreter.condition_vectors import (
    chosen,
    conjunction_vector,
    disjunction_vector,
    extreme_vector,
    is_true,
    membership,
    null_safe_equality,
    vector_comparison,
)
from transom.sql.interpreter.typed_expression import (
    Row,
    TypedExpression,
    combined,
    converted,
    literal,
    strict,
)
from transom.sql.interpreter.types import BOOL, NULL
from transom.sql.interpreter.values import ORDER_TESTS, order, order_nulls
from transom.sql.interpreter.vectors import Vector, VectorTable, any_mask


def comparison(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`left operator right` for = != < <= > >= and the null-safe <=>."""
    type = types.compared(left.type, right.type)
    left, right = converted(left, type), converted(right, type)
    if operator == "<=>":
        return null_safe(left, right)
    test = ORDER_TESTS[operator]
    vector = vector_comparison(operator, type)
    return strict(BOOL, lambda a, b: test(order(a, b)), left, right, vector=vector)


def null_safe(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`left <=> right` of one type: null equals null."""
    equal = comparison("=", left, right)
    return combined(
        BOOL,
        lambda row: order_nulls(left.of(row), right.of(row)) == 0,
        [equal],
        lambda table: null_safe_equality(table.value(equal), table.value(left), table.value(right)),
    )


def boolean(arg: TypedExpression) -> TypedExpression:
    """The argument itself, if it is a truth value."""
    if arg.type not in (BOOL, NULL):
        raise SQLError(f"a condition was expected, not {arg.type}")
    return arg


def all_of(*parts: TypedExpression) -> TypedExpression:
    """Kleene's AND."""

    def of(row: Row) -> bool | None:
        outcome: bool | None = True
        for part in parts:
            if (value := part.of(row)) is False:
                return False
            outcome = None if value is None else outcome
        return outcome

    return combined(BOOL, of, parts, lambda table: conjunction_vector([table.value(part) for part in parts]))


def inverse(part: TypedExpression) -> TypedExpression:
    """Kleene's NOT."""
    return strict(BOOL, lambda value: not value, boolean(part), vector=np.logical_not)


def any_of(*parts: TypedExpression) -> TypedExpression:
    """Kleene's OR."""
    of = inverse(all_of(*map(inverse, parts))).of
    return combined(BOOL, of, parts, lambda table: disjunction_vector([table.value(part) for part in parts]))


def member(arg: TypedExpression, values: Sequence[TypedExpression]) -> TypedExpression:
    """`arg IN (values)`: an OR of equalities, over one common type."""
    type = types.common_type([arg.type, *(value.type for value in values)], text=True)
    shared = types.compared(type, type)
    arg, candidates = converted(arg, shared), [converted(value, shared) for value in values]

    def of(row: Row) -> bool | None:
        if (sought := arg.of(row)) is None:  # evaluated once, however long the list is
            return None
        has_null = False
        for candidate in candidates:
            if (value := candidate.of(row)) is None:
                has_null = True
            elif order(sought, value) == 0:
                return True
        return None if has_null else False

    constants = [candidate.constant for candidate in candidates if candidate.constant is not None]
    has_null = any(value.type == NULL for value in values)
    if len(constants) + sum(value.type == NULL for value in values) == len(values):
        vector = membership(shared, constants, has_null)
        if vector is not None:
            return combined(BOOL, of, [arg], lambda table: vector(table.value(arg)))
    equalities = [comparison("=", arg, candidate) for candidate in candidates]
    return combined(
        BOOL, of, equalities, lambda table: disjunction_vector([table.value(each) for each in equalities])
    )


# --- choices ---------------------------------------------------------------------------------


def case(
    branches: Sequence[tuple[TypedExpression, TypedExpression]], otherwise: TypedExpression
) -> TypedExpression:
    """The value of the first branch whose condition is true."""
    type = types.common_type([*(value.type for _, value in branches), otherwise.type], text=True)
    pairs = [(boolean(condition), converted(value, type)) for condition, value in branches]
    last = converted(otherwise, type)

    def of_table(table: VectorTable) -> Vector:
        conditions = [table.value(condition) for condition, _ in pairs]
        values = [table.value(value) for _, value in pairs]
        found = chosen(type, table, [is_true(each) for each in conditions], [*values, table.value(last)])
        return Vector(found.values, found.nulls, any_mask(each.by_row for each in (found, *conditions)))

    return combined(
        type,
        lambda row: next((v for c, v in pairs if c.of(row) is True), last).of(row),
        [*(part for pair in pairs for part in pair), last],
        of_table,
    )


def coalesce(args: Sequence[TypedExpression]) -> TypedExpression:
    """The first that is not null."""
    type = types.common_type([arg.type for arg in args], text=True)
    casts = [converted(arg, type) for arg in args]

    def of_table(table: VectorTable) -> Vector:
        values = [table.value(arg) for arg in casts]
        present = [np.ones(1, np.bool_) if each.nulls is None else ~each.nulls for each in values[:-1]]
        return chosen(type, table, present, values)

    return combined(
        type, lambda row: next((v for arg in casts if (v := arg.of(row)) is not None), None), casts, of_table
    )


def extreme(sign: int, args: Sequence[TypedExpression]) -> TypedExpression:
    """`greatest` (sign 1) and `least` (sign -1), which skip nulls."""
    type = types.common_type([arg.type for arg in args])
    casts = [converted(arg, type) for arg in args]

    def of(row: Row) -> Any:
        best = None
        for value in (arg.of(row) for arg in casts):
            if value is not None and (best is None or sign * order(value, best) > 0):
                best = value
        return best

    is_better = vector_comparison(">" if sign > 0 else "<", type)
    if is_better is None:
        return TypedExpression(type, of)
    return combined(
        type,
        of,
        casts,
        lambda table: extreme_vector(is_better, type, table, [table.value(arg) for arg in casts]),
    )


def null_if(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`nullif(x, y)`: null where they are equal, else x."""
    return case([(comparison("=", left, right), literal(None, NULL))], left)


def is_null(arg: TypedExpression) -> TypedExpression:
    """`x IS NULL`."""

    def of_table(table: VectorTable) -> Vector:
        value = table.value(arg)
        return Vector(np.zeros(1, np.bool_) if value.nulls is None else value.nulls, None, value.by_row)

    return combined(BOOL, lambda row: arg.of(row) is None, [arg], of_table)


def is_truth(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`x IS NULL`, `x IS TRUE`, `x IS FALSE`."""
    return is_null(left) if right.type == NULL else comparison("<=>", boolean(left), right)


def between(value: TypedExpression, low: TypedExpression, high: TypedExpression) -> TypedExpression:
    """`x BETWEEN low AND high` is two comparisons."""
    return all_of(comparison(">=", value, low), comparison("<=", value, high))
