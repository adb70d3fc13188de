"""Aggregate calls: their syntax, their arguments, and the types that Spark gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot import exp

from transom.aggregates.table import (
    AggregateFunction,
    Parameter,
    Spelling,
    aggregate_function,
    called_function,
    distinct_function,
    spelling_of,
    star_form,
)
from transom.sql.binding.constants import constant_of
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import Parsed

AROUND_CALLS = (exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


@dataclass(frozen=True)
class Draft:
    """An aggregate call before binding: arguments and FILTER are syntax trees."""

    function: str
    args: tuple[exp.Expr, ...]
    where: exp.Expr | None
    parameters: tuple[Any, ...]
    node: exp.Expr


@dataclass(frozen=True)
class _Written:
    """A call as it was written, without the clauses around it."""

    name: str
    args: list[exp.Expr]
    is_distinct: bool
    ignores_nulls: bool
    order: list[exp.Expr]  # of WITHIN GROUP
    where: exp.Expr | None
    node: exp.Expr  # the call


def call_of(node: exp.Expr) -> exp.Expr:
    """The call inside of FILTER, WITHIN GROUP and IGNORE NULLS."""
    while isinstance(node, (exp.Filter, *AROUND_CALLS)):
        node = node.this
    return node


def read_call(
    parsed: Parsed,
    node: exp.Expr,
    time: exp.Expr | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Draft:
    """Read an aggregate call, with its constant parameters taken out of the arguments.

    `time` is the column by which functions such as `first` order rows. `settings` are the values of parameters that
    are not written.
    """
    written = _written(parsed, node)
    if (spelling := spelling_of(written.name)) is not None:
        return _spelled(parsed, written, spelling)
    function = called_function(written.name)
    if function is None:
        parsed.fail("FILTER belongs to an aggregate", written.node)
    settings = settings or {}
    if function.by_time and not function.parameters and len(written.args) == 2:  # first(x, true)
        flag = constant_of(written.args[1])
        if flag is None or not isinstance(flag.value, bool):
            parsed.fail(f"the second argument of {written.name} is true or false", written.args[1])
        written = replace(written, args=written.args[:1], ignores_nulls=flag.value)
    if written.ignores_nulls and not function.by_time:
        parsed.fail(f"{written.name} does not take IGNORE NULLS", written.node)
    if written.is_distinct:
        return _distinct(parsed, written, function, settings)
    star, args = star_form(function), written.args
    is_star = len(args) == 1 and (isinstance(args[0], exp.Star) or constant_of(args[0]) is not None)
    if star is not None and is_star:
        return Draft(star.name, (), written.where, (), written.node)
    args, parameters = _parameters(parsed, written, function, settings)
    if function.packs:
        args = _packed(parsed, written, function, args, time)
    return Draft(function.name, tuple(args), written.where, parameters, written.node)


def _written(parsed: Parsed, node: exp.Expr) -> _Written:
    where, order, ignores_nulls = None, [], False
    while isinstance(node, (exp.Filter, *AROUND_CALLS)):
        if isinstance(node, exp.Filter):
            where = node.expression.this
        elif isinstance(node, exp.WithinGroup):
            order = list(node.expression.expressions)
        else:
            ignores_nulls = isinstance(node, exp.IgnoreNulls)
        node = node.this
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    args, is_distinct = list(node.expressions) if name else [], False
    if args and isinstance(args[0], exp.Distinct):
        args, is_distinct = [*args[0].expressions, *args[1:]], True
    if args and isinstance(args[0], exp.IgnoreNulls | exp.RespectNulls):
        ignores_nulls, args = isinstance(args[0], exp.IgnoreNulls), [args[0].this, *args[1:]]
    for arg in args:
        if isinstance(arg, exp.Order):
            parsed.fail(f"write {name}(...) WITHIN GROUP (ORDER BY ...)", arg)
    return _Written(name, args, is_distinct, ignores_nulls, order, where, node)


def _spelled(parsed: Parsed, written: _Written, spelling: Spelling) -> Draft:
    """The call that another name stands for."""
    if written.is_distinct or written.ignores_nulls or written.order:
        parsed.fail(f"{written.name} takes nothing but its arguments and FILTER", written.node)
    if len(written.args) != spelling.count or any(isinstance(arg, exp.Star) for arg in written.args):
        _fail_count(parsed, written, spelling.count, spelling.count)
    where = written.where
    if spelling.condition is not None:
        condition = written.args[spelling.condition]
        where = condition if where is None else _both(condition, where)
    args = tuple(written.args[place] for place in spelling.arguments)
    return Draft(spelling.function, args, where, (), written.node)


def _both(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.And(this=exp.Paren(this=_detached(left)), expression=exp.Paren(this=_detached(right)))


def _detached(node: exp.Expr) -> exp.Expr:
    """A copy for a tree of its own. Its constants have no place in the text, so that no template fills them in."""
    copy = node.copy()
    for literal in copy.find_all(exp.Literal):
        literal.meta.pop("start", None)
    return copy


def _distinct(
    parsed: Parsed, written: _Written, function: AggregateFunction, settings: Mapping[str, Any]
) -> Draft:
    """The call with DISTINCT: the function over each value once."""
    form = distinct_function(function)
    if any(isinstance(arg, exp.Star) for arg in written.args):
        message = (
            f"{written.name}(DISTINCT *) is not supported; name the columns: {written.name}(DISTINCT a, b)"
        )
        parsed.fail(message if function.takes_more else f"{written.name} does not take *", written.node)
    if form is None:
        parsed.fail(f"{written.name}(DISTINCT ...) is not supported", written.node)
    if function.takes_more and len(written.args) > 1:
        _check_count(parsed, written, function)
        copies = [_detached(arg) for arg in written.args]
        packed = _struct({f"c{at}": arg for at, arg in enumerate(copies)})
        return Draft(form.name, (packed, *map(_detached, written.args)), written.where, (), written.node)
    if written.order and function.by_time:  # the distinct values have no other order than their own
        ordered, is_descending = _group_order(parsed, written, function)
        if not written.args or bare(ordered) != bare(written.args[0]):
            message = f"with DISTINCT, WITHIN GROUP orders {written.name} by its argument"
            parsed.fail(message, ordered)
        settings = {**settings, "descending": is_descending}
        written = replace(written, order=[])
    args, parameters = _parameters(parsed, written, form, settings)
    return Draft(form.name, tuple(args), written.where, parameters, written.node)


def _packed(
    parsed: Parsed,
    written: _Written,
    function: AggregateFunction,
    args: list[exp.Expr],
    time: exp.Expr | None,
) -> list[exp.Expr]:
    """The arguments as one struct; those that must not be null follow it."""
    fields = dict(zip(function.packs, map(_detached, args), strict=True))
    if written.order:
        fields = {"t": _detached(written.order[0].this), **fields}
    elif function.by_time:
        if time is None:
            message = f"{written.name} orders rows by time, and the stream has no time column"
            parsed.fail(message, written.node)
        fields = {"t": time.copy(), **fields}
    needed = [_detached(args[0])] if written.ignores_nulls else []
    return [_struct(fields), *needed]


def _struct(fields: dict[str, exp.Expr]) -> exp.Expr:
    parts = [part for name, value in fields.items() for part in (exp.Literal.string(name), value)]
    return exp.Anonymous(this="named_struct", expressions=parts)


def _parameters(
    parsed: Parsed, written: _Written, function: AggregateFunction, settings: Mapping[str, Any]
) -> tuple[list[exp.Expr], tuple[Any, ...]]:
    """The arguments of a call, and its constants; WITHIN GROUP gives one argument and its direction."""
    if written.order:
        argument, is_descending = _group_order(parsed, written, function)
        settings = {**settings, "descending": is_descending}
        if not function.by_time:  # there it is the order of the argument
            written = replace(written, args=[argument, *written.args])
    elif written.name in function.within_group and written.name != "mode" and not function.by_time:
        message = f"write {written.name}(...) WITHIN GROUP (ORDER BY x)"
        parsed.fail(message, written.node)
    _check_count(parsed, written, function)
    count = max(1, len(function.packs))
    if not function.parameters:
        count = len(written.args)
    constants = zip_longest(function.parameters, written.args[count:])
    parameters = tuple(
        settings.get(str(parameter.setting), parameter.default)
        if arg is None
        else _parameter(parsed, arg, parameter)
        for parameter, arg in constants
    )
    return written.args[:count], parameters


def _group_order(parsed: Parsed, written: _Written, function: AggregateFunction) -> tuple[exp.Expr, bool]:
    """The expression of WITHIN GROUP (ORDER BY x), and whether it is DESC."""
    if written.name not in function.within_group:
        parsed.fail(f"{written.name} does not take WITHIN GROUP", written.node)
    if len(written.order) > 1:
        parsed.fail("WITHIN GROUP takes one expression", written.order[1])
    ordered = written.order[0]
    return ordered.this, bool(ordered.args.get("desc"))


def _check_count(parsed: Parsed, written: _Written, function: AggregateFunction) -> None:
    """Refuse a call with too few or too many arguments."""
    least, most, count = function.needed_arguments, function.most_arguments, len(written.args)
    if any(isinstance(arg, exp.Star) for arg in written.args):
        parsed.fail(f"{written.name}(*) is not supported; only count takes *", written.node)
    if count < least or (most is not None and count > most):
        _fail_count(parsed, written, least, most)


def _fail_count(parsed: Parsed, written: _Written, least: int, most: int | None) -> NoReturn:
    wanted = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
    plural = "s" * (wanted != "1")
    message = f"{written.name} takes {wanted} argument{plural}, found {len(written.args)}"
    parsed.fail(message, written.node)


def _parameter(parsed: Parsed, node: exp.Expr, parameter: Parameter) -> Any:
    constant = _constant(node)
    value = None if constant is None else parameter.read(constant)
    if value is None:
        parsed.fail(parameter.rule, node)
    return value


def _constant(node: exp.Expr) -> Any:
    """A constant, or the numbers of an array as a tuple; None if the argument is no constant."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "array":
        values = tuple(map(_number, node.expressions))
        return None if None in values else values
    constant = constant_of(bare(node))
    return None if constant is None or constant.kind is not None else constant.value


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
