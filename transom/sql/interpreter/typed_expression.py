"""An expression with its type, and the two ways to make one from others: a null-strict call and a cast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping

import pyarrow as pa

from transom.sql.interpreter.casts import cast, check_cast
from transom.sql.interpreter.types import DOUBLE, is_int

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TypedExpression:
    """An expression with its type: `of` computes it from a row. `constant` is a literal's value."""

    type: pa.DataType
    of: Callable[[Row], Any]
    constant: Any = None


def literal(value: Any, type: pa.DataType) -> TypedExpression:
    """A constant."""
    return TypedExpression(type, lambda row: value, value)


def strict(type: pa.DataType, function: Callable[..., Any], *args: TypedExpression) -> TypedExpression:
    """A function of values that is null when any argument is null."""
    if len(args) == 1:
        only = args[0].of
        return TypedExpression(type, lambda row: None if (value := only(row)) is None else function(value))

    if len(args) == 2:
        left, right = args[0].of, args[1].of

        def of_two(row: Row) -> Any:
            if (first := left(row)) is None or (second := right(row)) is None:
                return None
            return function(first, second)

        return TypedExpression(type, of_two)

    def of(row: Row) -> Any:
        values = [arg.of(row) for arg in args]
        return None if any(value is None for value in values) else function(*values)

    return TypedExpression(type, of)


def converted(arg: TypedExpression, type: pa.DataType) -> TypedExpression:
    """An expression cast to a type."""
    if arg.type == type:
        return arg
    check_cast(arg.type, type)
    if arg.constant is not None:
        return literal(cast(arg.constant, arg.type, type), type)
    if is_int(arg.type) and type == DOUBLE:  # the most frequent cast, without the dispatch of the others
        return strict(type, float, arg)
    return TypedExpression(type, lambda row: cast(arg.of(row), arg.type, type))
