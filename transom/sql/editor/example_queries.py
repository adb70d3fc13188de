"""Example queries over a stream that make sense for its rows.

Statistics of a sample decide which columns to group by, to aggregate and to rank: no column of ids is a group, and no
number that only names something is averaged. Without a sample, names and types decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from transom.columns.column_statistics import ColumnStatistics
from transom.sql.editor.completion import KnownRelation
from transom.sql.editor.scanned_text import quote_identifier

_ID_NAMES = re.compile(
    r"(?:^|_)(?:id|ids|uuid|guid|key|hash|token|no|nr|num|number|seq|code|zip|index)$|Id$|ID$"
)
_MOST_GROUPS = 60  # of a column to group by
_FEWEST_VALUES = 6  # of a number to aggregate, if its values are integers
_ROWS_PER_WINDOW = 50  # that a window should have
_WINDOWS = (  # length, slide, seconds
    ("10 seconds", "1 second", 10),
    ("1 minute", "10 seconds", 60),
    ("10 minutes", "1 minute", 600),
    ("1 hour", "10 minutes", 3_600),
    ("1 day", "1 hour", 86_400),
)


@dataclass(frozen=True)
class ExampleQuery:
    """An example query for the editor."""

    title: str
    sql: str


@dataclass(frozen=True)
class StreamSample:
    """A stream as the examples see it."""

    stream: KnownRelation
    statistics: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def columns(self) -> Iterator[tuple[str, pa.DataType, ColumnStatistics | None]]:
        """The columns but the time, with their statistics if rows were seen."""
        for name, kind in self.stream.columns.items():
            found = self.statistics.get(name)
            if name != self.stream.time and not (
                found is not None and found.rows == found.nulls and found.rows
            ):
                yield name, kind, found if found is not None and found.rows else None


def example_queries(sample: StreamSample, tables: Sequence[KnownRelation] = ()) -> list[ExampleQuery]:
    """Example queries over a stream, the simplest first."""
    stream = sample.stream
    source, window = quote_identifier(stream.name), _window(sample)
    length, slide = window
    tumbling, sliding = f"[RANGE {length} SLIDE {length}]", f"[RANGE {length} SLIDE {slide}]"
    group, measure, entity = grouping_column(sample), measure_column(sample), entity_column(sample)
    examples = [ExampleQuery(f"Count {stream.name}", f"SELECT count(*) AS n\nFROM {source} {sliding}")]
    value = quote_identifier(measure) if measure else ""
    if group is not None:
        key = quote_identifier(group)
        what, title = (f"avg({value}) AS mean, ", f"Average {measure}") if measure else ("", "Count")
        examples.append(
            ExampleQuery(
                f"{title} by {group}",
                f"SELECT {key}, {what}count(*) AS n\nFROM {source} {sliding}\nGROUP BY {key}",
            )
        )
    if entity is not None:
        key = quote_identifier(entity)
        examples.append(
            ExampleQuery(
                f"Top 10 by {entity}",
                f"SELECT {key}, count(*) AS n\nFROM {source} {tumbling}\nGROUP BY {key}\nORDER BY n DESC\nLIMIT 10",
            )
        )
    if measure is not None:
        examples += [
            ExampleQuery(
                f"Total {measure}, with early results",
                f"SELECT sum({value}) AS total\nFROM {source} {tumbling}\nEMIT EARLY AT 75% OF SLIDE",
            ),
            ExampleQuery(
                f"90th percentile of {measure}",
                f"SELECT approx_percentile({value}, 0.9) AS p90, count(*) AS n\nFROM {source} {sliding}",
            ),
            ExampleQuery(
                f"Highest {measure}, on demand",
                f"SELECT max({value}) AS top, count(*) AS n\nFROM {source} [RANGE {length}]",
            ),
        ]
    condition = _condition(sample, group)
    if condition is not None:
        words, sql = condition
        examples.append(
            ExampleQuery(
                f"Count where {words}", f"SELECT count(*) AS n\nFROM {source} {sliding}\nWHERE {sql}"
            )
        )
    return examples + list(_joins(sample, tables, sliding))


def grouping_column(sample: StreamSample) -> str | None:
    """The column that a dashboard would group by: few values, each of them often."""
    best: tuple[float, str] | None = None
    for name, kind, found in sample.columns():
        is_text, is_flag = (
            pa.types.is_string(kind) or pa.types.is_large_string(kind),
            pa.types.is_boolean(kind),
        )
        if not (is_text or is_flag or pa.types.is_integer(kind)):
            continue
        cost = 0.0 if is_text else 1.0 if is_flag else 2.0
        if found is not None and found.distinct is not None:
            if not 1 < found.distinct <= _MOST_GROUPS or found.repeats < 2:
                continue
            cost += abs(found.distinct - 8) / 20
        elif pa.types.is_integer(kind) and not is_flag:
            continue
        cost += 5 * bool(_ID_NAMES.search(name))
        if best is None or cost < best[0]:
            best = cost, name
    return None if best is None or best[0] >= 5 else best[1]


def measure_column(sample: StreamSample) -> str | None:
    """The number that a dashboard would add up or average: a quantity, and not the number of something."""
    best: tuple[float, str] | None = None
    for name, kind, found in sample.columns():
        is_whole = pa.types.is_integer(kind)
        if not (is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)) or _ID_NAMES.search(
            name
        ):
            continue
        cost = 1.0 if is_whole else 0.0
        if found is not None and found.distinct is not None:
            values = found.rows - found.nulls
            if found.distinct == 1 or (is_whole and found.distinct < _FEWEST_VALUES):
                continue
            cost += 2.0 * (is_whole and found.distinct == values and values > 20)  # a number for each row
            cost += found.nulls / found.rows
        if best is None or cost < best[0]:
            best = cost, name
    return None if best is None else best[1]


def entity_column(sample: StreamSample) -> str | None:
    """A column of things that rows belong to, such as users: many values that come again."""
    best: tuple[float, str] | None = None
    for name, kind, found in sample.columns():
        if (
            found is None
            or found.distinct is None
            or not (pa.types.is_string(kind) or pa.types.is_integer(kind))
        ):
            continue
        if found.distinct <= 12 or found.repeats < 1.3:
            continue
        if pa.types.is_integer(kind) and not _ID_NAMES.search(name):
            continue
        if best is None or -found.distinct < best[0]:
            best = -found.distinct, name
    return None if best is None else best[1]


def _condition(sample: StreamSample, group: str | None) -> tuple[str, str] | None:
    """A condition that many rows satisfy, in words and in SQL."""
    for name, kind, found in sample.columns():
        if found is None or not found.common or (name != group and group is not None):
            continue
        value, key = found.common[0][0], quote_identifier(name)
        if isinstance(value, str) and len(value) <= 40 and "\\" not in value and "\n" not in value:
            text = value.replace("'", "''")
            return f"{name} is {value}", f"{key} = '{text}'"
        if isinstance(value, bool) and pa.types.is_boolean(kind):
            return f"{name} is {str(value).lower()}", key if value else f"NOT {key}"
    return None


def _joins(sample: StreamSample, tables: Sequence[KnownRelation], window: str) -> Iterator[ExampleQuery]:
    """A join with the first table that has a column of the same name and type as the stream."""
    columns = {name.casefold(): (name, kind) for name, kind, _ in sample.columns()}
    for table in tables:
        shared = [
            name
            for name, kind in table.columns.items()
            if columns.get(name.casefold(), ("", None))[1] == kind
        ]
        others = [
            name
            for name, kind in table.columns.items()
            if name.casefold() not in columns and (pa.types.is_string(kind) or pa.types.is_boolean(kind))
        ]
        if shared and others:
            key, by = quote_identifier(shared[0]), f"t.{quote_identifier(others[0])}"
            source, joined = quote_identifier(sample.stream.name), quote_identifier(table.name)
            yield ExampleQuery(
                f"Count by {others[0]} of {table.name}",
                f"SELECT {by}, count(*) AS n\nFROM {source} s {window}\n"
                f"JOIN {joined} t ON s.{quote_identifier(columns[shared[0].casefold()][0])} = t.{key}\nGROUP BY {by}",
            )
            return


def _window(sample: StreamSample) -> tuple[str, str]:
    """The length and the slide of a window with some dozens of rows."""
    stream = sample.stream
    kind = stream.columns.get(stream.time or "", pa.null())
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return "100", "10"
    found = sample.statistics.get(stream.time or "")
    if found is None or not isinstance(found.least, datetime) or not isinstance(found.greatest, datetime):
        return _WINDOWS[2][:2]
    seconds = (found.greatest - found.least).total_seconds()
    needed = seconds / max(found.rows - found.nulls, 1) * _ROWS_PER_WINDOW
    fitting = [each for each in _WINDOWS if each[2] >= needed]
    return (fitting[0] if fitting else _WINDOWS[-1])[:2]
