"""Comparisons, three-valued logic and conditional expressions of Spark SQL on typed expressions."""

from __future__ import annotations

from typing import Any, Sequence

from transom.errors import SQLError
from transom.sql.interpreter import types
from transom.sql.interpreter.typed_expression import Row, TypedExpression, converted, literal, strict
from transom.sql.interpreter.types import BOOL, NULL
from transom.sql.interpreter.values import ORDER_TESTS, order, order_nulls


def comparison(operator: str, left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`left operator right` for = != < <= > >= and the null-safe <=>."""
    type = types.compared(left.type, right.type)
    left, right = converted(left, type), converted(right, type)
    if operator == "<=>":
        return TypedExpression(BOOL, lambda row: order_nulls(left.of(row), right.of(row)) == 0)
    return strict(BOOL, lambda a, b: ORDER_TESTS[operator](order(a, b)), left, right)


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

    return TypedExpression(BOOL, of)


def inverse(part: TypedExpression) -> TypedExpression:
    """Kleene's NOT."""
    return strict(BOOL, lambda value: not value, boolean(part))


def any_of(*parts: TypedExpression) -> TypedExpression:
    """Kleene's OR."""
    return inverse(all_of(*map(inverse, parts)))


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

    return TypedExpression(BOOL, of)


# --- choices ---------------------------------------------------------------------------------


def case(
    branches: Sequence[tuple[TypedExpression, TypedExpression]], otherwise: TypedExpression
) -> TypedExpression:
    """The value of the first branch whose condition is true."""
    type = types.common_type([*(value.type for _, value in branches), otherwise.type], text=True)
    chosen = [(boolean(condition), converted(value, type)) for condition, value in branches]
    last = converted(otherwise, type)
    return TypedExpression(type, lambda row: next((v for c, v in chosen if c.of(row) is True), last).of(row))


def coalesce(args: Sequence[TypedExpression]) -> TypedExpression:
    """The first that is not null."""
    type = types.common_type([arg.type for arg in args], text=True)
    casts = [converted(arg, type) for arg in args]
    return TypedExpression(
        type, lambda row: next((v for arg in casts if (v := arg.of(row)) is not None), None)
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

    return TypedExpression(type, of)


def null_if(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`nullif(x, y)`: null where they are equal, else x."""
    return case([(comparison("=", left, right), literal(None, NULL))], left)


def is_null(arg: TypedExpression) -> TypedExpression:
    """`x IS NULL`."""
    return TypedExpression(BOOL, lambda row: arg.of(row) is None)


def is_truth(left: TypedExpression, right: TypedExpression) -> TypedExpression:
    """`x IS NULL`, `x IS TRUE`, `x IS FALSE`."""
    return is_null(left) if right.type == NULL else comparison("<=>", boolean(left), right)


def between(value: TypedExpression, low: TypedExpression, high: TypedExpression) -> TypedExpression:
    """`x BETWEEN low AND high` is two comparisons."""
    return all_of(comparison(">=", value, low), comparison("<=", value, high))
