"""Aggregates of queries WITH PREFERENCE: a few functions over the selected tuples, each alone in its item."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
from sqlglot import exp

from transom.aggregates.table import (
    AggregateFunction,
    aggregate_function,
    aggregate_functions,
    called_function,
    listed,
)
from transom.errors import near_miss
from transom.sql.binding.aggregate_calls import read_call, result_type
from transom.sql.preference_query import Figure
from transom.sql.query import Scalar
from transom.sql.syntax.parsed_query import Parsed


def preference_functions() -> list[AggregateFunction]:
    """The aggregates that a query WITH PREFERENCE can call."""
    return [function for function in aggregate_functions() if function.with_preference]


def is_aggregate(node: exp.Expr, functions: Collection[str]) -> bool:
    """Whether a node is a call of an aggregate; a registered function of the same name takes precedence."""
    if isinstance(node, exp.Filter):
        return True
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return called_function(name) is not None and name not in functions


def bound_figure(
    parsed: Parsed, name: str, node: exp.Expr, scalar: Callable[[exp.Expr], Scalar | None]
) -> Figure:
    """The aggregate of a call; its type is a placeholder until the type of its argument is resolved."""
    if isinstance(node, exp.Filter):
        parsed.fail("FILTER is not supported WITH PREFERENCE; put the condition in WHERE", node)
    function, argument = _read(parsed, node)
    if argument is None:
        return Figure(name, function, None, pa.int64())
    bound = scalar(argument)
    if bound is None:
        return Figure(name, function, None, pa.null())
    kind = result_type(function, [bound.type], ())
    if isinstance(kind, str):
        parsed.fail(kind, argument)
    return Figure(name, function, bound, kind)


def _read(parsed: Parsed, node: exp.Expr) -> tuple[str, exp.Expr | None]:
    """The function, and its argument if it has one."""
    written = node.name.lower()
    draft = read_call(parsed, node)
    called = aggregate_function(draft.function)
    if called.exact_form is not None:
        if draft.parameters[0] != called.exact_form.parameter:
            parsed.fail(called.exact_form.rule, node)
        return called.exact_form.function, draft.args[0]
    if not called.with_preference:
        functions = preference_functions()
        hint = near_miss(written, [function.sql_name for function in functions])
        message = f"the aggregates of a query WITH PREFERENCE are {listed(functions)}, not {written}{hint}"
        parsed.fail(message, node)
    if not draft.args:
        return draft.function, None
    if len(draft.args) > 1:
        parsed.fail(f"{written} takes 1 argument WITH PREFERENCE, found {len(draft.args)}", node)
    return draft.function, draft.args[0]
