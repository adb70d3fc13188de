"""Aggregate calls: their syntax, their arguments, and the types that Spark gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from sqlglot import exp

from transom.aggregates.table import (
    AggregateFunction,
    Parameter,
    aggregate_function,
    star_form,
    window_function,
)
from transom.sql.binding.constants import constant_of
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import Parsed


@dataclass(frozen=True)
class Draft:
    """An aggregate call before binding: arguments and FILTER are syntax trees."""

    function: str
    args: tuple[exp.Expr, ...]
    where: exp.Expr | None
    parameters: tuple[Any, ...]
    node: exp.Expr


def read_call(
    parsed: Parsed,
    node: exp.Expr,
    find: Callable[[str], AggregateFunction | None] = window_function,
) -> Draft:
    """Read an aggregate call, with its constant parameters taken out of the arguments.

    `find` returns the function of a name, or None if this kind of query has no such aggregate.
    """
    where = None
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    function = find(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    if function is None:
        parsed.fail("FILTER belongs to an aggregate", node)
    name, args = node.name.lower(), list(node.expressions)
    for arg in args:
        if isinstance(arg, exp.Distinct):
            parsed.fail(f"{name}(DISTINCT ...) is not supported; use approx_count_distinct", node)
    star = star_form(function)
    if (
        star is not None
        and len(args) == 1
        and (isinstance(args[0], exp.Star) or constant_of(args[0]) is not None)
    ):
        return Draft(star.name, (), where, (), node)
    _check_count(parsed, node, function)
    if not function.parameters:
        return Draft(function.name, tuple(args), where, (), node)
    parameters = tuple(
        parameter.default if arg is None else _parameter(parsed, arg, parameter)
        for parameter, arg in zip_longest(function.parameters, args[1:])
    )
    return Draft(function.name, (args[0],), where, parameters, node)


def _check_count(parsed: Parsed, node: exp.Expr, function: AggregateFunction) -> None:
    """Refuse a call with too few or too many arguments."""
    least, most, written = function.needed_arguments, function.most_arguments, len(node.expressions)
    if any(isinstance(arg, exp.Star) for arg in node.expressions):
        parsed.fail(f"{node.name.lower()}(*) is not supported; only count takes *", node)
    if written < least or (most is not None and written > most):
        wanted = (
            f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        )
        message = f"{node.name.lower()} takes {wanted} argument{'s' * (wanted != '1')}, found {written}"
        parsed.fail(message, node)


def _parameter(parsed: Parsed, node: exp.Expr, parameter: Parameter) -> Any:
    constant = _constant(node)
    value = None if constant is None else parameter.read(constant)
    if value is None:
        parsed.fail(parameter.rule, node)
    return value


def _constant(node: exp.Expr) -> Any:
    """A number, or the numbers of an array as a tuple; None if the argument is no constant."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "array":
        values = tuple(map(_number, node.expressions))
        return None if None in values else values
    return _number(node)


def _number(node: exp.Expr) -> int | float | Decimal | None:
    constant = constant_of(bare(node))
    value = constant.value if constant is not None else None
    return value if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else None


def result_type(
    function: str, types: Sequence[pa.DataType], parameters: tuple[Any, ...]
) -> pa.DataType | str:
    """The type of an aggregate by Spark's rules, or an error message about its argument."""
    kind = aggregate_function(function).result_type(types[0] if types else None, parameters)
    return f"{aggregate_function(function).sql_name} {kind}" if isinstance(kind, str) else kind
