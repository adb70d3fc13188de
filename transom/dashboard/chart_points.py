"""From results to what is drawn: of each group and window the newest early result, and the final one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from transom.api.records import ColumnInfo
from transom.dashboard.formatting import cell

Key = tuple[str, ...]  # a group: its columns as text
ALL: Key = ()
SHOWN = 6  # groups, unless others are chosen
_NUMERIC = ("int", "double", "float", "decimal", "long", "short", "byte")


@dataclass(frozen=True)
class Layout:
    """Where a query's columns are; two may share a name, so they go by place."""

    window: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    estimates: Mapping[int, Mapping[str, int]]  # of a value: low, high and projected
    system: Mapping[str, int]
    names: tuple[str, ...]
    numeric: tuple[int, ...]  # values that can be drawn


@dataclass(frozen=True)
class Reading:
    """A value of one result, and what is known about it."""

    value: float | None
    projected: float | None = None
    low: float | None = None
    high: float | None = None
    rows: int | None = None
    made: int | None = None
    latency: float | None = None
    complete: bool = True
    page: int | None = None

    @property
    def best(self) -> float | None:
        """What is drawn: the projected value if there is one."""
        return self.value if self.projected is None else self.projected


@dataclass(frozen=True)
class Mark:
    """A window of a group: what was told of it before it closed, and then."""

    start: int
    end: int
    early: Reading | None = None
    final: Reading | None = None

    @property
    def is_open(self) -> bool:
        return self.final is None

    @property
    def readings(self) -> list[Reading]:
        """What is known of it."""
        return [reading for reading in (self.early, self.final) if reading is not None]


@dataclass(frozen=True)
class Drawn:
    """What a chart shows of a query's results."""

    groups: Mapping[str, Sequence[Mark]]  # by label, windows in order
    is_time: bool = True
    value: str = ""

    @property
    def early(self) -> int:
        """Windows of groups of which no more than an early result is known."""
        return sum(mark.is_open for marks in self.groups.values() for mark in marks)

    @property
    def final(self) -> int:
        return sum(not mark.is_open for marks in self.groups.values() for mark in marks)


@dataclass(frozen=True)
class Choice:
    """What is chosen to be seen: a value by its place, groups (none: the top ones), how many windows."""

    value: int | None = None
    groups: tuple[Key, ...] = field(default=())
    windows: int = 60


def layout_of(columns: Sequence[ColumnInfo]) -> Layout:
    """Where the columns are, by what they are to the query."""
    roles: dict[str, list[int]] = {}
    for at, column in enumerate(columns):
        roles.setdefault(column.role, []).append(at)
    values = roles.get("value", [])
    by_name = {columns[at].name: at for at in values}
    estimates: dict[int, dict[str, int]] = {at: {} for at in values}
    for at in roles.get("estimate", []):
        of = by_name.get(columns[at].of or "")
        if of is not None:
            estimates[of][columns[at].name.rsplit("_", 1)[-1]] = at
    return Layout(
        tuple(roles.get("window", [])),
        tuple(roles.get("key", [])),
        tuple(values),
        estimates,
        {columns[at].name.removeprefix("transom_"): at for at in roles.get("system", [])},
        tuple(column.name for column in columns),
        tuple(at for at in values if is_numeric(columns[at].type)),
    )


def is_numeric(kind: str) -> bool:
    """Whether a type, in SQL's words, is of numbers.

    >>> is_numeric("bigint"), is_numeric("decimal(10,2)"), is_numeric("string"), is_numeric("interval day")
    (True, True, False, False)
    """
    kind = kind.casefold()
    return not kind.startswith("interval") and any(word in kind for word in _NUMERIC)


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values; instants as microseconds."""
    if kinds.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return column.to_pylist()


def keys_of(table: pa.Table, layout: Layout) -> list[Key]:
    """The group of each row."""
    if not layout.keys:
        return [ALL] * table.num_rows
    columns = [[cell(value) for value in table.column(at).to_pylist()] for at in layout.keys]
    return list(zip(*columns, strict=True))


def label(key: Key) -> str:
    """A group as one text."""
    return " · ".join(key) if key else "all rows"


def collect(table: pa.Table, layout: Layout, value: int) -> dict[Key, dict[int, Mark]]:
    """Of each group, by the end of the window, the newest early result and the final one."""
    found: dict[Key, dict[int, Mark]] = {}
    if len(layout.window) < 2 or not table.num_rows:
        return found
    read = {name: plain_values(table.column(at)) for name, at in layout.system.items()}
    sides = {side: plain_values(table.column(at)) for side, at in layout.estimates.get(value, {}).items()}
    values = table.column(value).to_pylist()
    starts, ends = (plain_values(table.column(at)) for at in layout.window[:2])
    for row, key in enumerate(keys_of(table, layout)):
        known = {name: column[row] for name, column in read.items()}
        estimates = {side: column[row] for side, column in sides.items()}
        reading = Reading(
            None if values[row] is None else float(values[row]),
            **estimates,
            rows=known.get("rows"),
            made=known.get("made"),
            latency=known.get("latency"),
            complete=known.get("complete", True),
            page=known.get("page"),
        )
        marks = found.setdefault(key, {})
        mark = marks.get(ends[row], Mark(starts[row], ends[row]))
        if known.get("kind", "final") == "early":
            newer = mark.early is None or (mark.early.made or 0) <= (reading.made or 0)
            marks[ends[row]] = replace(mark, early=reading) if newer else mark
        else:
            marks[ends[row]] = replace(mark, final=reading)
    return found


def top_groups(found: Mapping[Key, Mapping[int, Mark]], count: int = SHOWN) -> list[Key]:
    """The groups with the greatest newest values, in the order of their names."""

    def newest(key: Key) -> float:
        mark = found[key][max(found[key])]
        reading = mark.final or mark.early
        best = None if reading is None else reading.best
        return float("-inf") if best is None or best != best else best

    return sorted(sorted(found, key=newest, reverse=True)[:count])


def draw(table: pa.Table, columns: Sequence[ColumnInfo], choice: Choice) -> tuple[Drawn, list[Key]]:
    """What to draw of results, and all groups that there are."""
    layout = layout_of(columns)
    if not layout.numeric:
        return Drawn({}), sorted(set(keys_of(table, layout)))
    value = choice.value if choice.value in layout.numeric else layout.numeric[0]
    found = collect(table, layout, value)
    chosen = [key for key in choice.groups if key in found] or top_groups(found)
    ends = sorted({end for key in chosen for end in found[key]})[-choice.windows :]
    since = ends[0] if ends else 0
    groups = {label(key): [found[key][end] for end in sorted(found[key]) if end >= since] for key in chosen}
    is_time = bool(layout.window) and kinds.is_timestamp(table.schema.types[layout.window[0]])
    return Drawn(groups, is_time, layout.names[value]), sorted(found)
