"""Chart data from results: for each group and window, the newest early value and the final value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.records import ColumnInfo
from transom.dashboard.display_text import format_cell
from transom.server.chart_hints import ChartHints, ValueHint

GroupKey = tuple[str, ...]  # the text of each group column
ALL_ROWS: GroupKey = ()
TOP_GROUPS = 6  # groups drawn when the user selects none
_NUMERIC = ("int", "double", "float", "decimal", "long", "short", "byte")


@dataclass(frozen=True)
class ResultColumns:
    """The positions of a query's result columns by role; by position because two columns may share a name."""

    window: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    estimates: Mapping[int, Mapping[str, int]]  # for each value: its low, high and projected columns
    system: Mapping[str, int]
    names: tuple[str, ...]
    numeric: tuple[int, ...]  # values that a chart can draw


@dataclass(frozen=True)
class WindowValue:
    """The value of one result row, with its estimate and its origin."""

    value: float | None
    projected: float | None = None
    low: float | None = None
    high: float | None = None
    rows: int | None = None
    made: int | None = None
    latency: float | None = None
    complete: bool = True
    batch: int | None = None

    @property
    def best(self) -> float | None:
        """The value to draw: the projected value if there is one."""
        return self.value if self.projected is None else self.projected


@dataclass(frozen=True)
class WindowPoint:
    """One window of one group: its newest early value and, once the window is closed, its final value."""

    start: int
    end: int
    early: WindowValue | None = None
    final: WindowValue | None = None

    @property
    def is_open(self) -> bool:
        return self.final is None

    @property
    def values(self) -> list[WindowValue]:
        """The early and the final value, as far as they exist."""
        return [value for value in (self.early, self.final) if value is not None]


@dataclass(frozen=True)
class ChartData:
    """What a chart shows of a query's results."""

    groups: Mapping[str, Sequence[WindowPoint]]  # by label; windows in order
    is_time: bool = True
    value: str = ""
    hint: ValueHint = field(default_factory=ValueHint)
    slides: Mapping[str, int | None] = field(default_factory=dict)  # by label; None: windows are irregular
    is_relative: bool = False  # draw each group in percent of its greatest value

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last end of a window."""
        ends = [point.end for points in self.groups.values() for point in points]
        return (min(ends), max(ends)) if ends else None

    @property
    def early(self) -> int:
        """How many points have only an early value."""
        return sum(point.is_open for points in self.groups.values() for point in points)

    @property
    def final(self) -> int:
        """How many points have a final value."""
        return sum(not point.is_open for points in self.groups.values() for point in points)


@dataclass(frozen=True)
class ChartSelection:
    """What the user selected to see: a value column, groups (none: the top groups), and which windows.

    `windows` is how many of the newest. `span` is how far they reach back from the newest, in the unit of the
    stream's time; `since` and `until` are times between which they end. What is None does not limit them.
    """

    value: int | None = None
    groups: tuple[GroupKey, ...] = field(default=())
    windows: int | None = 60
    span: int | None = None
    since: int | None = None
    until: int | None = None

    def ends(self, ends: Iterable[int]) -> tuple[int, int] | None:
        """The first and the last of some ends of windows that are selected."""
        chosen = sorted(
            end
            for end in set(ends)
            if (self.since is None or end >= self.since) and (self.until is None or end <= self.until)
        )
        if chosen and self.span is not None:
            chosen = [end for end in chosen if end >= chosen[-1] - self.span]
        if self.windows is not None:
            chosen = chosen[-self.windows :]
        return (chosen[0], chosen[-1]) if chosen else None


def result_columns(columns: Sequence[ColumnInfo]) -> ResultColumns:
    """Sort a query's columns by their role."""
    roles: dict[str, list[int]] = {}
    for at, column in enumerate(columns):
        roles.setdefault(column.role, []).append(at)
    values = roles.get("value", [])
    by_name = {columns[at].name: at for at in values}
    estimates: dict[int, dict[str, int]] = {at: {} for at in values}
    for at in roles.get("estimate", []):
        value = by_name.get(columns[at].of or "")
        if value is not None:
            estimates[value][columns[at].name.rsplit("_", 1)[-1]] = at
    return ResultColumns(
        tuple(roles.get("window", [])),
        (*roles.get("time", []), *roles.get("key", [])),
        tuple(values),
        estimates,
        {columns[at].name.removeprefix("transom_"): at for at in roles.get("system", [])},
        tuple(column.name for column in columns),
        tuple(at for at in values if is_numeric_type(columns[at].type)),
    )


def is_numeric_type(sql_type: str) -> bool:
    """Whether an SQL type holds numbers.

    >>> [is_numeric_type(name) for name in ("bigint", "decimal(10,2)", "string", "interval day")]
    [True, True, False, False]
    """
    sql_type = sql_type.casefold()
    return not sql_type.startswith("interval") and any(word in sql_type for word in _NUMERIC)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Python objects, timestamps as microseconds."""
    if kinds.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.to_pylist()


def group_keys(table: pa.Table, columns: ResultColumns) -> list[GroupKey]:
    """The group of each row."""
    if not columns.keys:
        return [ALL_ROWS] * table.num_rows
    texts = [[format_cell(value) for value in table.column(at).to_pylist()] for at in columns.keys]
    return list(zip(*texts, strict=True))


def group_label(key: GroupKey) -> str:
    """A group's name in legends and lists."""
    return " · ".join(key) if key else "all rows"


def collect_points(
    table: pa.Table, columns: ResultColumns, value: int
) -> dict[GroupKey, dict[int, WindowPoint]]:
    """For each group, its windows by their end, with the newest early value and the final value."""
    groups: dict[GroupKey, dict[int, WindowPoint]] = {}
    if len(columns.window) < 2 or not table.num_rows:
        return groups
    system = {name: python_values(table.column(at)) for name, at in columns.system.items()}
    bounds = {side: python_values(table.column(at)) for side, at in columns.estimates.get(value, {}).items()}
    values = table.column(value).to_pylist()
    starts, ends = (python_values(table.column(at)) for at in columns.window[:2])
    for row, key in enumerate(group_keys(table, columns)):
        facts = {name: column[row] for name, column in system.items()}
        window_value = WindowValue(
            None if values[row] is None else float(values[row]),
            **{side: column[row] for side, column in bounds.items()},
            rows=facts.get("rows"),
            made=facts.get("made"),
            latency=facts.get("latency"),
            complete=facts.get("complete", True),
            batch=facts.get("batch"),
        )
        points = groups.setdefault(key, {})
        point = points.get(ends[row], WindowPoint(starts[row], ends[row]))
        kind = facts.get("kind", "final")
        if kind == "retraction":  # a correction of the same batch may follow
            points[ends[row]] = replace(point, final=None)
        elif kind == "early":
            is_newer = point.early is None or (point.early.made or 0) <= (window_value.made or 0)
            points[ends[row]] = replace(point, early=window_value) if is_newer else point
        else:
            points[ends[row]] = replace(point, final=window_value)
    return groups


def top_groups(
    groups: Mapping[GroupKey, Mapping[int, WindowPoint]], count: int = TOP_GROUPS
) -> list[GroupKey]:
    """The groups whose newest values are greatest, sorted by name."""

    def newest(key: GroupKey) -> float:
        point = groups[key][max(groups[key])]
        value = point.final or point.early
        best = None if value is None else value.best
        return float("-inf") if best is None or best != best else best

    return sorted(sorted(groups, key=newest, reverse=True)[:count])


def chart_data(
    table: pa.Table,
    columns: Sequence[ColumnInfo],
    selection: ChartSelection,
    hints: ChartHints | None = None,
) -> tuple[ChartData, list[GroupKey]]:
    """The selected part of the results as chart data, and the list of all groups."""
    roles = result_columns(columns)
    if not roles.numeric:
        return ChartData({}), sorted(set(group_keys(table, roles)))
    value = selection.value if selection.value in roles.numeric else roles.numeric[0]
    points = collect_points(table, roles, value)
    keys = [key for key in selection.groups if key in points] or top_groups(points)
    chosen = selection.ends(end for key in keys for end in points[key])
    groups = {
        group_label(key): [points[key][end] for end in sorted(points[key]) if chosen[0] <= end <= chosen[1]]
        for key in keys
        if chosen is not None
    }
    is_time = bool(roles.window) and kinds.is_timestamp(table.schema.types[roles.window[0]])
    known = hints or ChartHints()
    data = ChartData(
        groups,
        is_time,
        roles.names[value],
        known.values.get(roles.names[value], ValueHint()),
        dict.fromkeys(groups, known.slide),
    )
    return data, sorted(points)


def combined_chart(parts: Mapping[str, ChartData], is_relative: bool = False) -> ChartData:
    """The charts of several queries as one; labels have the query's name in front."""
    groups: dict[str, Sequence[WindowPoint]] = {}
    slides: dict[str, int | None] = {}
    for name, part in parts.items():
        for label, points in part.groups.items():
            shown = name if label == group_label(ALL_ROWS) else f"{name}: {label}"
            groups[shown], slides[shown] = points, part.slides.get(label)
    units = {part.hint.unit for part in parts.values()}
    names = dict.fromkeys(part.value for part in parts.values() if part.value)
    hint = ValueHint(
        "",
        units.pop() if len(units) == 1 else "",
        bool(parts) and all(part.hint.is_count for part in parts.values()),
    )
    is_time = all(part.is_time for part in parts.values())
    return ChartData(groups, is_time, ", ".join(names), hint, slides, is_relative)
