"""Aggregates of queries WITH PREFERENCE: a few, each alone, over the tuples that are selected."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
from sqlglot import exp

from transom.errors import near_miss
from transom.sql.binding.aggregate_calls import is_number, read_call, result_type
from transom.sql.functions import AGGREGATES
from transom.sql.preferred_query import Figure
from transom.sql.query import Scalar
from transom.sql.syntax.dialect import Parsed

FIGURES = ("count", "sum", "avg", "min", "max", "median")
_MEDIANS = ("approx_percentile", "percentile_approx")


def is_aggregate(node: exp.Expr, functions: Collection[str]) -> bool:
    """Whether a node is a call of an aggregate; the program's own functions go first."""
    if isinstance(node, exp.Filter):
        return True
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return (name in AGGREGATES or name == "median") and name not in functions


def bound_figure(
    parsed: Parsed, name: str, node: exp.Expr, scalar: Callable[[exp.Expr], Scalar | None]
) -> Figure:
    """The aggregate that a call asks for; its type means nothing while that of its argument is not known."""
    if isinstance(node, exp.Filter):
        parsed.fail("FILTER is not supported WITH PREFERENCE; put the condition in WHERE", node)
    function, argument = _read(parsed, node)
    if argument is None:
        return Figure(name, "count", None, pa.int64())
    known = scalar(argument)
    if known is None:
        return Figure(name, function, None, pa.null())
    if function == "median":
        kind = pa.float64() if is_number(known.type) else f"median needs a number, and this is {known.type}"
    else:
        kind = result_type(function, [known.type], ())
    if isinstance(kind, str):
        parsed.fail(kind, argument)
    return Figure(name, function, known, kind)


def _read(parsed: Parsed, node: exp.Expr) -> tuple[str, exp.Expr | None]:
    """The function, and its argument if it has one."""
    written = node.name.lower()
    if written == "median":
        if len(node.expressions) != 1 or isinstance(node.expressions[0], (exp.Star, exp.Distinct)):
            parsed.fail("median takes 1 argument", node)
        return "median", node.expressions[0]
    draft = read_call(parsed, node)
    if written in _MEDIANS:
        if draft.parameters[0] != 0.5:
            parsed.fail("of percentiles only the median is supported WITH PREFERENCE: 0.5", node)
        return "median", draft.args[0]
    if draft.function == "count_rows":
        return "count", None
    if draft.function not in FIGURES:
        listed = f"{', '.join(FIGURES[:-1])} and {FIGURES[-1]}"
        hint = near_miss(written, FIGURES)
        parsed.fail(f"the aggregates of a query WITH PREFERENCE are {listed}, not {written}{hint}", node)
    if len(draft.args) > 1:
        parsed.fail(f"{written} takes 1 argument WITH PREFERENCE, found {len(draft.args)}", node)
    return draft.function, draft.args[0]
