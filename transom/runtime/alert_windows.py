"""What alerts read of a batch: reports of windows from result rows, and which windows are closed for a group."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import pyarrow as pa

from transom.alerts.evaluation import RuleInput, WindowTimes, group_key
from transom.alerts.machine import WindowReport
from transom.api.value_text import value_to_text
from transom.columns.readable_values import readable_table
from transom.elements import AlertRule, ClockKind, Kind
from transom.plan.compiled_query import CompiledQuery
from transom.results.close import Boundary
from transom.results.condition_columns import DECISION
from transom.results.query_boundary import boundary
from transom.sql.query import Query, free_name
from transom.state.state import State
from transom.texts import cut_text
from transom.windows import ids as windows
from transom.windows.closed_time import View
from transom.windows.intervals import LOWEST, IntervalSet

# Characters of a value in an event. Group values are not cut: they tell groups apart.
LONGEST_EVENT_VALUE = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANNOUNCED, _WITHDRAWN = "early", "withdrawn"  # decisions of a query WITH CONFIDENCE


def plain_json_value(value: Any) -> Any:
    """A value of a result as JSON has it; a type that JSON lacks is a text.

    >>> plain_json_value(1.5), plain_json_value(float("nan")), plain_json_value(datetime(2013, 1, 1, tzinfo=UTC))
    (1.5, 'NaN', '2013-01-01T00:00:00Z')
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list():
            return [plain_json_value(each) for each in value]
        case dict():
            return {str(name): plain_json_value(each) for name, each in value.items()}
        case _:
            return value_to_text(value)


def event_value(value: Any) -> Any:
    """A value of a result as events have it: what is too long is cut, a list or a struct as its text.

    >>> event_value([1, 2]), len(event_value("x" * 5000)), event_value(list(range(1000)))[:9]
    ([1, 2], 1000, '[0, 1, 2,')
    """
    plain = plain_json_value(value)
    if isinstance(plain, str):
        return cut_text(plain, LONGEST_EVENT_VALUE)
    if (
        isinstance(plain, list | dict)
        and len(text := json.dumps(plain, ensure_ascii=False)) > LONGEST_EVENT_VALUE
    ):
        return cut_text(text, LONGEST_EVENT_VALUE)
    return plain


def text_value(value: Any) -> str:
    """A value in the text of an annotation, and as matchers of silences compare it."""
    return "" if value is None else value_to_text(value)


def times_of_windows(query: Query) -> WindowTimes:
    """Where the windows of a query start and end, and how their times are written."""
    spec = query.window
    written = instant_text if query.clock.kind is ClockKind.TIME else int
    return WindowTimes(partial(windows.window_start, spec), partial(windows.window_end, spec), written)


def instant_text(microseconds: int) -> str:
    """A point in time as ISO text in UTC.

    >>> instant_text(60_500_000)
    '1970-01-01T00:01:00.500000Z'
    """
    try:
        return value_to_text(_EPOCH + timedelta(microseconds=microseconds))
    except OverflowError:
        return f"{microseconds} microseconds"


def reports_of(query: Query, table: pa.Table) -> dict[str, list[WindowReport]]:
    """The reports in the result rows of a query, by group.

    A final row says that HAVING holds. An early row counts only if it has a decision: the engine may announce
    before the window closes that HAVING will hold. Corrections of a final row do not count: the alert went on.
    """
    table = readable_table(table)
    names = table.column_names
    keys, values = _columns(query)
    taken = {name for name, _ in query.selected}
    kinds = table[free_name("kind", taken)].to_pylist()
    decided = free_name(DECISION, taken)
    decisions = table[decided].to_pylist() if decided in names else [None] * len(table)
    wids = _wids(query, table.column(1))
    selected = table.select([*dict.fromkeys((*keys.values(), *values))]).to_pylist()
    reports: dict[str, list[WindowReport]] = {}
    for row, wid, kind, decision in zip(selected, wids, kinds, decisions, strict=True):
        is_early = kind == Kind.EARLY.value
        if is_early and decision not in (_ANNOUNCED, _WITHDRAWN):
            continue
        if not is_early and kind != Kind.FINAL.value:
            continue
        group = group_key({name: plain_json_value(row[column]) for name, column in keys.items()})
        shown = {name: event_value(row[name]) for name in values}
        report = WindowReport(wid, shown, decision != _WITHDRAWN, is_early)
        reports.setdefault(group, []).append(report)
    return reports


def _columns(query: Query) -> tuple[dict[str, str], list[str]]:
    """The group columns by name, and the names of the other columns."""
    keys: dict[int, str] = {}
    for item in query.items:
        if item.is_key:
            keys.setdefault(item.key_place, item.name)
    return (
        {name: name for _, name in sorted(keys.items())},
        [item.name for item in query.items if not item.is_key],
    )


def _wids(query: Query, ends: pa.ChunkedArray) -> list[int]:
    """The ids of windows by their ends."""
    if pa.types.is_date(ends.type):
        ends = ends.cast(pa.timestamp("us"))
    # The first window that ends after the microsecond before.
    numbers = ends.cast(pa.int64()).to_numpy() - 1
    wids: list[int] = windows.wid_from(query.window, numbers).tolist()
    return wids


def closed_by_group(query: CompiledQuery, state: State) -> Callable[[str], int]:
    """A function from a group to the id below which its windows are closed."""
    query_state = state.queries.get(query.name)
    if query_state is None:
        return lambda group: LOWEST
    closed = boundary(query, state.stream(query.query.stream), query_state)
    if closed.view.uniform:
        below = _prefix(closed.wids(query, closed.view.of({})))
        return lambda group: below
    names = list(_columns(query.query)[0])
    view = _with_json_values(closed.view)

    @cache
    def closed_below(group: str) -> int:
        values = json.loads(group)
        places = {place: values[name] for place, name in enumerate(names)}
        return _prefix(Boundary(view, closed.forced).wids(query, view.of(places)))

    return closed_below


def _prefix(wids: IntervalSet) -> int:
    """The id below which all windows are closed."""
    first = next(iter(wids), None)
    return first[1] if first is not None and first[0] <= LOWEST else LOWEST


def _with_json_values(view: View) -> View:
    """The view with the values of patterns and clocks as JSON has them: groups of alerts are stored so."""
    patterned = {
        columns: {
            frozenset((name, plain_json_value(value)) for name, value in pattern): times
            for pattern, times in ranges.items()
        }
        for columns, ranges in view.patterned.items()
    }
    pinned = {name: tuple(map(plain_json_value, values)) for name, values in view.pinned.items()}
    groups = view.groups
    if groups is not None and pa.types.is_date(groups.values.type):
        groups = replace(groups, values=groups.values.cast(pa.string()))
    return View(view.general, patterned, view.keys, pinned, groups)


class RuleInputs:
    """What a batch brings to the alerts on each query, which is read once for all of them."""

    def __init__(self, state: State, results: Mapping[str, pa.Table]):
        self.state, self.results = state, results
        self._read: dict[str, tuple[WindowTimes, dict[str, list[WindowReport]], Callable[[str], int]]] = {}

    def of(self, rule: AlertRule, query: CompiledQuery, identity: str, ended: str | None) -> RuleInput:
        """What it brings to an alert on a query."""
        read = self._read.get(query.name)
        if read is None:
            results = self.results.get(query.name)
            reports = {} if results is None else dict(sorted(reports_of(query.query, results).items()))
            read = times_of_windows(query.query), reports, closed_by_group(query, self.state)
            self._read[query.name] = read
        return RuleInput(rule, identity, *read, ended)
