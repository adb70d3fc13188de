"""Which on-demand queries a structure can answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from sqlglot import exp

from transom.aggregates.table import (
    AggregateFunction,
    AnswerInterval,
    aggregate_function,
    aggregate_functions,
    listed,
)
from transom.columns.types import is_number
from transom.elements import Using
from transom.sql.binding.select import SelectBinder
from transom.sql.item_columns import is_aggregate_reference, is_key_reference
from transom.sql.query import Call
from transom.sql.syntax.parsed_query import Parsed

_ANSWERS: dict[str, Callable[[AggregateFunction], bool]] = {
    "ordered_sharing": lambda function: function.is_extreme,
    "timegram": lambda function: function.interval is not None,
}
INTERVAL_SUFFIXES = ("_low", "_high")  # what the bounds of an interval are called, after its item


def check_structure(parsed: Parsed, selection: SelectBinder, using: Using, calls: Sequence[Call]) -> None:
    """Raise an error if the query's structure can't answer it."""
    is_answered = _ANSWERS.get(using.structure)
    if is_answered is None:
        return
    answers = f"{using.structure} answers {listed(list(filter(is_answered, aggregate_functions())))}"
    if not calls:
        parsed.fail(f"{answers}, and this query has no aggregate", parsed.select.expressions[0])
    for call, draft in zip(calls, selection.drafts, strict=True):
        if not is_answered(aggregate_function(call.function)):
            parsed.fail(f"{answers}, not {draft.node.name.lower()}", draft.node)
    if using.structure == "timegram":
        _check_timegram(parsed, selection, using, calls)


def _check_timegram(parsed: Parsed, selection: SelectBinder, using: Using, calls: Sequence[Call]) -> None:
    for call, draft in zip(calls, selection.drafts, strict=True):
        counts = aggregate_function(call.function).interval is AnswerInterval.COUNT
        if not counts and not is_number(call.args[0].type):
            kind = call.args[0].type
            parsed.fail(f"a timegram needs a numeric column, and this is {kind}", draft.args[0])
        if using.within is not None and using.slice is not None:
            _check_sliced_width(parsed, call, draft.node)
    if selection.having is not None:
        _refuse_interval(parsed, selection.having, "HAVING can't compare one")
    if selection.limit is not None:
        _refuse_interval(parsed, parsed.select.args["order"], "ORDER BY can't compare them")
    items = selection.result_items()
    taken = {name.casefold() for name, _, _ in items}
    for name, sql, node in items:
        if not (is_key_reference(sql) or is_aggregate_reference(sql)):
            _refuse_interval(parsed, node, "select aggregates and group columns as they are")
        for end in INTERVAL_SUFFIXES if is_aggregate_reference(sql) else ():
            if f"{name}{end}".casefold() in taken:
                message = f"the bounds of {name} are called {name}_low and {name}_high; give it another alias"
                parsed.fail(message, node)


def _check_sliced_width(parsed: Parsed, call: Call, node: exp.Expr) -> None:
    """Refuse WITHIN for an aggregate whose interval slices widen.

    A window may begin inside of a slice, and then it has some unknown part of the slice's tuples. The last of
    them is certainly in the window, so the intervals of MIN and MAX stay as wide as a bucket.
    """
    if not aggregate_function(call.function).is_extreme:
        parsed.fail(
            "with SLICE, the width of this interval has no limit, and WITHIN sets one: leave out SLICE, "
            "or write timegram(64, SLICE ...) without WITHIN",
            node,
        )


def _refuse_interval(parsed: Parsed, node: exp.Expr, why: str) -> NoReturn:
    parsed.fail(f"a timegram answers with intervals: {why}", node)
