"""The windows of a row, and when a window is closed: no more rows can come for it."""

from __future__ import annotations

from itertools import product
from typing import Any, Iterator, Sequence

from transom.elements import Prod, Punctuation, WindowSpec
from transom.oracle.calendar_windows import calendar_windows, last_end
from transom.sql.interpreter.values import microseconds, sameness
from transom.sql.query import And, Comparison, Member, Predicate, Query

WindowBounds = tuple[int, int]  # start, end
BEGINNING = -(2**80)  # before all times


def windows_of(value: int, spec: WindowSpec) -> list[WindowBounds]:
    """Every window [end - range, end), end = phase modulo slide, with start <= value < end.

    Cumulative windows start at phase modulo range; each is a slide longer than the one before.

    >>> windows_of(211, WindowSpec.ending(range=60, slide=20))
    [(160, 220), (180, 240), (200, 260)]
    """
    if spec.calendar is not None:
        return calendar_windows(value, spec)
    if spec.is_cumulative:
        start = value - (value - spec.phase) % spec.range
        ends = range(start + spec.slide, start + spec.range + 1, spec.slide)
        return [(start, end) for end in ends if end > value]
    first = value + 1 + (spec.phase - (value + 1)) % spec.slide
    return [(end - spec.range, end) for end in range(first, value + spec.range + 1, spec.slide)]


def covered(window: WindowBounds, ranges: Sequence[tuple[int | None, int]]) -> bool:
    """Whether a window lies within the union of ranges [since, until), since None being the beginning."""
    reached, end = window
    for since, until in sorted(ranges, key=lambda each: (each[0] is not None, each[0])):
        if since is None or since <= reached:
            reached = max(reached, until)
    return reached >= end


def pinned(predicate: Predicate | None) -> Iterator[tuple[str, list[Any]]]:
    """The columns that WHERE ties to constants, by a conjunct `column = x` or `column IN (x, ...)`."""
    match predicate:
        case And(parts):
            for part in parts:
                yield from pinned(part)
        case Comparison(scalar, "=", value) if scalar.column is not None:
            yield scalar.column, [value]
        case Member(scalar, values) if scalar.column is not None:
            yield scalar.column, list(values)


def is_in_order(query: Query) -> bool:
    """Whether the windows of a query close one after the other, for all groups: LAG and EMIT EMPTY need that."""
    return bool(query.lags) or query.empty is not None


def is_closed(
    query: Query, window: WindowBounds, group: Sequence[Any], closings: Sequence[Punctuation]
) -> bool:
    """Whether no more rows can come for this window and group of a query.

    The rows of a group are known to have certain values in certain columns: its plain GROUP BY columns
    and what WHERE pins. For each combination of them the window must be covered by the punctuations
    whose pattern such a row is sure to match.
    """
    row_values: dict[str, list[Any]] = {}
    for column, values in pinned(query.where):
        earlier = row_values.get(column, values)
        row_values[column] = [v for v in values if sameness(v) in map(sameness, earlier)]
    for key, value in zip(query.keys, group, strict=True):
        at_once = query.top is not None or is_in_order(query)  # LIMIT needs all groups of a window
        if key.scalar.column is not None and not at_once:
            row_values[key.scalar.column] = [value]
    applying = [each for each in closings if all(column in row_values for column, _ in each.where)]
    columns = sorted({column for each in applying for column, _ in each.where})
    for combination in product(*(row_values[column] for column in columns)):
        row = {column: sameness(value) for column, value in zip(columns, combination, strict=True)}
        matching = [each for each in applying
                    if all(row[column] == sameness(microseconds(v)) for column, v in each.where)]  # fmt: skip
        # Nothing before the window may be open either where windows close in order.
        extent = (BEGINNING, window[1]) if is_in_order(query) else window
        if not covered(extent, [(each.since, each.until) for each in matching]):
            return False
    return True


def _last_end(until: int, spec: WindowSpec) -> int:
    """The end of the last window that ends at or before a time."""
    return until - (until - spec.phase) % spec.slide if spec.calendar is None else last_end(until, spec)


def is_prodded(
    query: Query,
    window: WindowBounds,
    group: Sequence[Any],
    prods: Sequence[Prod],
    closings: Sequence[Punctuation],
) -> bool:
    """Whether prods ask for this window and group: it ends by their time, and those with patterns would close it
    if they were punctuations."""
    upto: list[Punctuation] = []
    for prod in prods:
        if prod.until is not None and prod.clock != query.clock:
            continue
        until = window[1] if prod.until is None else prod.until
        if prod.exactly and window[1] != _last_end(until, query.window):
            continue
        as_punctuation = Punctuation(query.clock, until, where=prod.where)
        if not prod.where:
            if window[1] <= until:
                return True
        elif not prod.exactly:
            upto.append(as_punctuation)
        elif is_closed(query, window, group, [as_punctuation]):
            return True
    return bool(upto) and is_closed(query, window, group, [*upto, *closings])
