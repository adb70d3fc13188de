"""Functions of arrays that take lambdas: `exists(a, x -> x > 5)`, `filter`, `forall`, `transform` and `aggregate`.

A lambda's variable is a value of the row under a name that no column has. Lambdas have no vector form: they are
evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError
from transom.sql.interpreter import conditions
from transom.sql.interpreter.typed_expression import Row, TypedExpression
from transom.sql.interpreter.types import BOOL, INT

BodyBuilder = Callable[
    [exp.Expr, dict[str, pa.DataType]], TypedExpression
]  # an expression, with variables and their types
LAMBDA_FUNCTIONS = ("aggregate", "exists", "filter", "forall", "reduce", "transform")


def variable_key(name: str) -> str:
    """The name under which a row has a variable."""
    return f"{name.casefold()} ->"


def lambda_call(name: str, args: Sequence[exp.Expr], build: BodyBuilder) -> TypedExpression:
    """The expression of a call."""
    least, most = (3, 4) if name in ("aggregate", "reduce") else (2, 2)
    if not least <= len(args) <= most:
        wanted = f"{least} to {most}" if least < most else f"{least}"
        raise SQLError(f"{name}() takes {wanted} arguments, not {len(args)}")
    array = build(args[0], {})
    if not pa.types.is_list(array.type):
        raise SQLError(f"{name}() takes an array, not {array.type}")
    if name in ("aggregate", "reduce"):
        return _aggregate(name, array, args[1:], build)
    # Spark gives the element's index to a lambda with two variables.
    most_variables = 1 if name in ("exists", "forall") else 2
    keys, body = _lambda(name, args[1], [array.type.value_type, INT], 1, most_variables, build)
    values = _element_values(array, keys, body)
    if name == "transform":
        return TypedExpression(pa.list_(body.type), _of_array(array, lambda row: list(values(row))))
    if body.type != BOOL:
        body = conditions.boolean(body)
        values = _element_values(array, keys, body)
    if name == "filter":
        kept: Callable[[Row], Any] = lambda row: [  # noqa: E731
            element for element, holds in zip(array.of(row), values(row), strict=True) if holds
        ]
        return TypedExpression(array.type, _of_array(array, kept))
    return TypedExpression(BOOL, _of_array(array, lambda row: _decided(name == "exists", values(row))))


def _lambda(
    name: str, node: exp.Expr, types: Sequence[pa.DataType], least: int, most: int, build: BodyBuilder
) -> tuple[list[str], TypedExpression]:
    """The keys of a lambda's variables in a row, and its body."""
    if not isinstance(node, exp.Lambda):
        raise SQLError(f"{name}() takes a lambda, as in x -> x > 5")
    names = [variable.name for variable in node.expressions]
    if not least <= len(names) <= most:
        wanted = f"{least} or {most} variables" if least < most else f"{least} variable{'s' * (least > 1)}"
        raise SQLError(f"the lambda of {name}() takes {wanted}, not {len(names)}")
    variables = dict(zip((each.casefold() for each in names), types, strict=False))
    return [variable_key(each) for each in names], build(node.this, variables)


def _of_array(array: TypedExpression, compute: Callable[[Row], Any]) -> Callable[[Row], Any]:
    return lambda row: None if array.of(row) is None else compute(row)


def _element_values(
    array: TypedExpression, keys: Sequence[str], body: TypedExpression
) -> Callable[[Row], Iterator[Any]]:
    """The values of a lambda for the elements of a row's array."""

    def values(row: Row) -> Iterator[Any]:
        inner = dict(row)
        for place, element in enumerate(array.of(row)):
            inner.update(zip(keys, (element, place), strict=False))
            yield body.of(inner)

    return values


def _decided(wanted: bool, values: Iterator[Any]) -> bool | None:
    """Whether one value is true (exists), or none is false (forall); null if that is not known."""
    found = list(values)
    if wanted in found:
        return wanted
    return None if None in found else not wanted


def _aggregate(
    name: str, array: TypedExpression, args: Sequence[exp.Expr], build: BodyBuilder
) -> TypedExpression:
    """`aggregate(array, start, (acc, x) -> merged[, acc -> finished])`."""
    start = build(args[0], {})
    (acc, element), merged = _lambda(name, args[1], [start.type, array.type.value_type], 2, 2, build)
    if merged.type != start.type:
        raise SQLError(
            f"the lambda of {name}() must return the type of the start, {start.type}, not {merged.type}"
        )
    finish = _lambda(name, args[2], [start.type], 1, 1, build) if len(args) > 2 else None

    def of(row: Row) -> Any:
        inner, value = dict(row), start.of(row)
        for each in array.of(row):
            inner[acc], inner[element] = value, each
            value = merged.of(inner)
        if finish is None:
            return value
        (finished,), body = finish
        return body.of({**row, finished: value})

    return TypedExpression(start.type if finish is None else finish[1].type, _of_array(array, of))
