"""Checks of EMIT EMPTY and LAG, and of conditions that are true for empty windows only."""

from __future__ import annotations

from collections.abc import Sequence

from transom.elements import EmptyWindows, WindowSpec
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
    """Refuse LAG and EMIT EMPTY over windows that have none, and a HAVING that needs EMIT EMPTY without it."""
    windowing = selection.windowing
    has_lag = bool(selection.lags.bound(windowing))
    if windowing.on_demand:
        if has_lag:
            parsed.fail("LAG needs SLIDE: an on-demand query has only one window")
        return
    _check_windows(parsed, windowing.spec, empty is not None, has_lag)
    if empty is not None:
        if empty.length is not None and windowing.spec.calendar is not None:
            parsed.fail(
                "calendar windows differ in length; give a number of windows: EMIT EMPTY FOR 10 WINDOWS"
            )
        if not empty.most(windowing.spec.slide):
            parsed.fail("EMIT EMPTY FOR is shorter than SLIDE: no empty window would be reported")
        return
    counts = {aggregate_reference(i) for i, call in enumerate(calls) if _counts_rows(call)}
    if having is not None and _needs_no_rows(having, counts):
        parsed.fail(
            "this HAVING is true for empty windows only, and these have no results; add EMIT EMPTY at the end of "
            "the query",
            selection.having,
        )


def _check_windows(parsed: Parsed, spec: WindowSpec, has_empty: bool, has_lag: bool) -> None:
    """Refuse EMIT EMPTY and LAG over windows whose predecessor is not known."""
    if not spec.is_shared_by_groups:
        if has_empty:
            parsed.fail(
                "EMIT EMPTY needs RANGE and SLIDE: windows with SESSION or PARTITION BY are never empty"
            )
        if has_lag:
            parsed.fail(
                "LAG needs RANGE and SLIDE: windows with SESSION or PARTITION BY differ between groups"
            )
    if spec.is_cumulative and spec.calendar is not None and (has_empty or has_lag):
        # A shorter day leaves ids unused, so the id of a window does not give the id of the one before it.
        word = "EMIT EMPTY" if has_empty else "LAG"
        parsed.fail(
            f"{word} is not supported for cumulative windows in a time zone; leave out UP TO or IN TIME ZONE"
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
