"""Which expressions over aggregates never fall, or never rise, while rows of a window arrive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from transom.sql.item_columns import is_aggregate_reference
from transom.sql.query import And, Call, Comparison, Predicate, Query, Scalar

RISING = frozenset({"count_rows", "count", "count_distinct", "max"})
FALLING = frozenset({"min"})
_MAGNITUDE = re.compile(r"abs\([^()]*\)", re.IGNORECASE)


def rises(query: Query) -> Callable[[str], int]:
    """By the text of an expression, 1 if it never falls, -1 if it never rises, and 0 if neither is known."""
    written = query.over_pairs

    def of(sql: str) -> int:
        if not is_aggregate_reference(sql):
            return 0
        call = written.calls[int(sql.strip("`")[1:])]
        if call.function in RISING or (call.function == "sum" and _adds_no_negatives(call, written.where)):
            return 1
        return -1 if call.function in FALLING else 0

    return of


def _adds_no_negatives(call: Call, where: Predicate | None) -> bool:
    """Whether the values that SUM adds up are at least 0: by their type, their text, or a condition on them."""
    argument = call.args[0]
    if pa.types.is_unsigned_integer(argument.type) or _MAGNITUDE.fullmatch(argument.sql):
        return True
    if argument.sql.replace(".", "", 1).isdigit():
        return True
    conditions = [*_conjuncts(where), *_conjuncts(call.where)]
    return any(_says_not_negative(condition, argument) for condition in conditions)


def _conjuncts(predicate: Predicate | None) -> Iterator[Predicate]:
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from _conjuncts(part)
    elif predicate is not None:
        yield predicate


def _says_not_negative(condition: Predicate, argument: Scalar) -> bool:
    if not isinstance(condition, Comparison) or condition.scalar.sql != argument.sql:
        return False
    return condition.op in (">", ">=", "=") and condition.value >= 0
