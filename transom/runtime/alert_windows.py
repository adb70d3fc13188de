"""What alerts read of a batch: reports of windows from result rows, and which windows are closed for a group."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.alerts.evaluation import RuleInput, WindowTimes
from transom.alerts.group_reports import GroupReports
from transom.alerts.machine import WindowReport
from transom.api.value_text import value_to_text
from transom.columns.arrays import Ints, one_array
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
_JSON = json.JSONEncoder(ensure_ascii=False)  # writes groups as `group_key` does
_ESCAPED = r'["\\\x00-\x1f]'  # what JSON escapes in a text
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


def reports_of(query: Query, table: pa.Table) -> GroupReports:
    """The reports in the result rows of a query, by group.

    A final row says that HAVING holds. An early row counts only if it has a decision: the engine may announce
    before the window closes that HAVING will hold. Corrections of a final row do not count: the alert went on.
    """
    keys, values = _columns(query)
    taken = {name for name, _ in query.selected}
    kinds = table[free_name("kind", taken)].cast(pa.string())
    counts, is_early = pc.equal(kinds, Kind.FINAL.value), pc.equal(kinds, Kind.EARLY.value)
    decided = free_name(DECISION, taken)
    decisions = pa.nulls(len(table), pa.string())
    if decided in table.column_names:
        decisions = table[decided].cast(pa.string())
        has_decision = pc.is_in(decisions, value_set=pa.array([_ANNOUNCED, _WITHDRAWN]))
        counts = pc.or_(counts, pc.and_(is_early, has_decision))
    chosen = pa.array(np.flatnonzero(np.asarray(counts)))
    table = table.take(chosen)
    is_early, is_withdrawn = (
        np.asarray(pc.fill_null(marks, False).take(chosen))
        for marks in (is_early, pc.equal(decisions, _WITHDRAWN))
    )
    wids, shown = _wids(query, table.column(1)), table.select([*dict.fromkeys(values)])

    def make(rows: Ints) -> list[WindowReport]:
        some = readable_table(shown.take(pa.array(rows)))
        columns = [map(event_value, column.to_pylist()) for column in some.columns]
        dicts = [dict(zip(some.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(
            map(
                WindowReport,
                wids[rows].tolist(),
                dicts or [{}] * len(rows),
                (~is_withdrawn[rows]).tolist(),
                is_early[rows].tolist(),
            )
        )

    groups = readable_table(table.select([*dict.fromkeys(keys.values())]))
    texts = group_texts({name: one_array(groups[column]) for name, column in keys.items()}, len(table))
    return GroupReports(texts, wids, is_early, make)


def group_texts(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    r"""The group of each row as JSON, as `group_key` makes it of one.

    >>> group_texts({"site": pa.array([1, None]), "name": pa.array(["a", 'b"'])}, 2).to_pylist()
    ['{"site": 1, "name": "a"}', '{"site": null, "name": "b\\""}']
    """
    parts: list[str | pa.Array] = []
    for name, column in columns.items():
        parts += [f"{', ' if parts else '{'}{_JSON.encode(name)}: ", _json_texts(column)]
    if not parts:
        return pa.array(["{}"] * rows, pa.large_string())
    return _joined(*parts, "}")


def _joined(*parts: str | pa.Array) -> pa.Array:
    """Texts one after the other, row by row; those that are the same for all rows are given once."""
    texts = [pa.scalar(each, pa.large_string()) if isinstance(each, str) else each for each in (*parts, "")]
    return pc.binary_join_element_wise(*texts)


def _json_texts(column: pa.Array) -> pa.Array:
    """The values of a column as JSON, each different value made once."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string()).cast(pa.large_string()).fill_null("null")
    if pa.types.is_nested(kind):
        texts = [_JSON.encode(plain_json_value(value)) for value in column.to_pylist()]
        return pa.array(texts, pa.large_string())
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return _joined('"', column.cast(pa.large_string()), '"').fill_null("null")
    # Values that are equal may have different texts: 0.0 and -0.0.
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}.get(kind)
    encoded = (column if bits is None else column.view(bits)).dictionary_encode()
    values = encoded.dictionary if bits is None else encoded.dictionary.view(kind)
    texts = [_JSON.encode(plain_json_value(value)) for value in values.to_pylist()]
    return pa.array(texts, pa.large_string()).take(encoded.indices).fill_null("null")


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


def _wids(query: Query, ends: pa.ChunkedArray) -> Ints:
    """The ids of windows by their ends."""
    if pa.types.is_date(ends.type):
        ends = ends.cast(pa.timestamp("us"))
    # The first window that ends after the microsecond before.
    numbers = ends.cast(pa.int64()).to_numpy() - 1
    return windows.wid_from(query.window, numbers)


def closed_by_group(query: CompiledQuery, state: State) -> tuple[Callable[[str], int], int | None]:
    """A function from a group to the id below which its windows are closed; and that id if all groups have the same."""
    query_state = state.queries.get(query.name)
    if query_state is None:
        return lambda group: LOWEST, LOWEST
    closed = boundary(query, state.stream(query.query.stream), query_state)
    if closed.view.uniform:
        below = _prefix(closed.wids(query, closed.view.of({})))
        return lambda group: below, below
    names = list(_columns(query.query)[0])
    view = _with_json_values(closed.view)

    @cache
    def closed_below(group: str) -> int:
        values = json.loads(group)
        places = {place: values[name] for place, name in enumerate(names)}
        return _prefix(Boundary(view, closed.forced).wids(query, view.of(places)))

    return closed_below, None


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
        self._read: dict[str, tuple[WindowTimes, GroupReports, Callable[[str], int], int | None]] = {}

    def of(self, rule: AlertRule, query: CompiledQuery, identity: str, ended: str | None) -> RuleInput:
        """What it brings to an alert on a query."""
        read = self._read.get(query.name)
        if read is None:
            results = self.results.get(query.name)
            reports = GroupReports.none() if results is None else reports_of(query.query, results)
            read = times_of_windows(query.query), reports, *closed_by_group(query, self.state)
            self._read[query.name] = read
        return RuleInput(rule, identity, *read, ended)
