"""Checks of EMIT EMPTY, and of conditions that only windows without rows can fulfil."""

from __future__ import annotations

from collections.abc import Sequence

from transom.elements import EmptyWindows
from transom.sql.binding.select import SelectBinder
from transom.sql.item_columns import aggregate_reference
from transom.sql.query import And, Call, Comparison, Member, Or, Predicate
from transom.sql.syntax.parsed_query import Parsed


def check_empty_windows(
    parsed: Parsed,
    selection: SelectBinder,
    empty: EmptyWindows | None,
    calls: Sequence[Call],
    having: Predicate | None,
) -> None:
    """Refuse EMIT EMPTY for less than a window, and without it a HAVING that holds for no window with rows."""
    if selection.windowing.on_demand:
        if selection.lags.bound(selection.windowing):
            parsed.fail("LAG needs SLIDE: a query without it is looked up, and has one window only")
        return
    if not selection.windowing.spec.is_shared_by_groups:
        if empty is not None:
            parsed.fail("EMIT EMPTY needs windows that all groups share: these have rows in any case")
        if selection.lags.bound(selection.windowing):
            parsed.fail("LAG needs windows that all groups share, of RANGE and SLIDE")
    spec = selection.windowing.spec
    if spec.is_cumulative and spec.calendar is not None:
        # Their ids leave room for the longest day: the window before one can't be told by its id.
        for word, is_used in (
            ("EMIT EMPTY", empty is not None),
            ("LAG", selection.lags.bound(selection.windowing)),
        ):
            if is_used:
                parsed.fail(
                    f"{word} can't follow windows that grow in a time zone; leave out UP TO or IN TIME ZONE"
                )
    if empty is not None:
        if empty.length is not None and selection.windowing.spec.calendar is not None:
            parsed.fail(
                "windows of a calendar differ in length; write EMIT EMPTY FOR with a number of WINDOWS"
            )
        if not empty.most(selection.windowing.spec.slide):
            parsed.fail("EMIT EMPTY FOR is shorter than SLIDE: no empty window would be reported")
        return
    counts = {aggregate_reference(i) for i, call in enumerate(calls) if _counts_rows(call)}
    if having is not None and _needs_no_rows(having, counts):
        parsed.fail(
            "this HAVING holds for windows without rows only, and these have no results; add EMIT EMPTY at the end of "
            "the query to get them",
            selection.having,
        )


def _counts_rows(call: Call) -> bool:
    """Whether an aggregate is at least 1 in every window and group with rows: count(*) without FILTER."""
    return call.function == "count_rows" and call.where is None


def _needs_no_rows(predicate: Predicate, counts: set[str]) -> bool:
    """Whether a condition is false wherever the counts are at least 1."""
    match predicate:
        case And(parts):
            return any(_needs_no_rows(part, counts) for part in parts)
        case Or(parts):
            return all(_needs_no_rows(part, counts) for part in parts)
        case Comparison(scalar, op, value) if scalar.sql in counts and isinstance(value, (int, float)):
            return (op in ("=", "<=>", "<=") and value < 1) or (op == "<" and value <= 1)
        case Member(scalar, values) if scalar.sql in counts:
            return all(isinstance(value, (int, float)) and value < 1 for value in values)
    return False
