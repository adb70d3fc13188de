"""A declared stream, and the punctuations and prods that its rows carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from transom.backends.projection import micros
from transom.backends.spark.session import ansi_off
from transom.backends.spark.types import to_table
from transom.elements import Clock, Prod, Punctuation
from transom.plan.compiled import plain_value
from transom.runtime.sources import Source, with_time
from transom.windows.stream_rules import StreamRules

Carried = Punctuation | Prod


@dataclass(frozen=True)
class ProdRows:
    """How rows become prods of a stream: their time, if they have one, and the columns of their pattern."""

    clock: Clock
    until: str | None = None
    exactly: bool = False
    where: Mapping[str, str] = field(default_factory=dict)  # by the stream's column, the rows'


@dataclass
class Stream:
    """A declared stream."""

    name: str
    columns: Mapping[str, pa.DataType]
    rules: StreamRules
    source: Source
    # Conditions that are true for rows that are punctuations or prods.
    markers: Mapping[type[Punctuation | Prod], str] = field(default_factory=dict)
    prods: ProdRows | None = None  # its rows are prods of another stream
    last_data: int = 0  # the loop's clock when it last brought rows
    idle_closed: bool = True  # nothing has come since its windows were closed

    def timed(self, df: DataFrame) -> DataFrame:
        """Its rows with a time that is a time; those that are prods of another stream may have none."""
        time = self.rules.clock.attribute if self.prods is None else self.prods.until
        return df if time is None else with_time(df, time, self.source.time_format)


@dataclass(frozen=True)
class StreamInfo:
    """A stream as it was declared, and how its source fares."""

    name: str
    columns: Mapping[str, pa.DataType]
    rules: StreamRules
    finished: bool  # whether its source has nothing more to give
    now: int | None  # how far the source's own time has come, in microseconds


def stream_info(stream: Stream, clock: int) -> StreamInfo:
    """What there is to know of a stream when the engine's clock is so far."""
    source = stream.source
    return StreamInfo(stream.name, dict(stream.columns), stream.rules, source.finished, source.now(clock))


def carried_control(stream: Stream, df: DataFrame) -> tuple[list[Carried], DataFrame]:
    """The punctuations and prods that a batch's rows are, and its other rows."""
    found: list[Carried] = []
    for kind, marker in stream.markers.items():
        marked, df = _split(stream, marker, df, timed=kind is Punctuation)
        for until, pattern in marked:
            if kind is Punctuation:
                found.append(Punctuation(stream.rules.clock, until, None, pattern))
            else:
                found.append(Prod(stream.rules.clock, until, where=pattern))
    return found, df


def _split(
    stream: Stream, marker: str, df: DataFrame, timed: bool
) -> tuple[list[tuple[int, tuple[tuple[str, Any], ...]]], DataFrame]:
    """The rows that a condition marks, as a time and a pattern in which null is `*`; and the others."""
    named = {
        column.name.casefold() for column in sqlglot.parse_one(marker, read="spark").find_all(exp.Column)
    }
    clock = stream.rules.clock
    until = micros(f"`{clock.attribute}`", stream.columns[clock.attribute])
    columns = [
        name
        for name, kind in stream.columns.items()
        if name.casefold() not in named and name != clock.attribute and not pa.types.is_nested(kind)
    ]
    is_one = f"({marker}) AND ({until}) IS NOT NULL" if timed else marker
    with ansi_off(df.sparkSession):
        marked = df.filter(is_one).select(
            F.expr(until).alias("until"), *(F.col(f"`{name}`").alias(f"is {name}") for name in columns)
        )
        rest = df.filter(f"NOT coalesce({is_one}, false)")
    return [(row["until"], _pattern(row)) for row in to_table(marked).to_pylist()], rest


def rows_as_prods(stream: Stream, df: DataFrame) -> list[Prod]:
    """The prods that a batch's rows become, of a stream of prods."""
    rule = stream.prods
    assert rule is not None
    columns = [F.col(f"`{name}`").alias(f"is {alias}") for alias, name in rule.where.items()]
    kind = stream.columns.get(rule.until or "")
    until = "CAST(NULL AS BIGINT)" if kind is None else micros(f"`{rule.until}`", kind)
    with ansi_off(df.sparkSession):
        rows = df.select(F.expr(until).alias("until"), *columns).distinct()
    return [
        Prod(rule.clock, row["until"], rule.exactly and row["until"] is not None, _pattern(row))
        for row in to_table(rows).to_pylist()
    ]


def believable(control: list[Carried], rules: StreamRules, high: int | None) -> list[Carried]:
    """What is no further ahead of the stream than a row may be: a garbled punctuation must not close
    everything."""
    if rules.horizon is None or high is None:
        return control
    limit = high + rules.horizon
    return [one for one in control if isinstance(one, Prod) or one.until <= limit]


def _pattern(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A pattern of a row's columns, in which null is `*`."""
    found = [(name.removeprefix("is "), plain_value(value)) for name, value in row.items() if name != "until"]
    return tuple((name, value) for name, value in found if value is not None)
