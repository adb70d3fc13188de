"""A declared stream, and the punctuations and prods that its rows carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from transom.backends.base import Frame
from transom.backends.expressions import micros, quoted
from transom.columns.readable_values import readable_table
from transom.elements import Clock, Prod, Punctuation
from transom.ingest.event_time import EventTime
from transom.ingest.sources import Source, SourceStatus, with_time
from transom.plan.compiled_query import pattern_value
from transom.sql.derived_stream import DerivedStream
from transom.windows.partition_clocks import PartitionClocks
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
    derived: DerivedStream | None = None  # its rows are derived from those of other streams
    last_data: int = 0  # the loop's clock when it last brought rows
    idle_closed: bool = True  # nothing has come since its windows were closed
    event_time: EventTime | None = None  # if its time is an expression
    partitions: PartitionClocks = field(
        default_factory=PartitionClocks
    )  # up to the last committed batch, if its rules have them
    resumed: int = 0  # the loop's clock when the partitions were read from a checkpoint
    unsupported: Mapping[str, str] = field(
        default_factory=dict
    )  # columns that were left out, with their types
    retain: int | None = None  # for how long of its time accepted rows are retained; None: they are not

    def with_time(self, frame: Frame) -> Frame:
        """Its rows with a time column that holds times; rows that are prods of another stream may have none."""
        if self.event_time is not None:
            own = self.event_time
            return frame if own.column in frame.columns else frame.extend({own.column: own.sql})
        time = self.rules.clock.attribute if self.prods is None else self.prods.until
        return frame if time is None else with_time(frame, time, self.source.time_format)


@dataclass(frozen=True)
class StreamInfo:
    """A stream's declaration, and the status of its source."""

    name: str
    columns: Mapping[str, pa.DataType]
    rules: StreamRules
    finished: bool  # whether its source has nothing more to give
    now: int | None  # how far the source's own time has come, in microseconds
    source: SourceStatus = field(default_factory=lambda: SourceStatus("rows"))
    derived_from: tuple[str, ...] = ()  # the streams that its rows are made of; none if it was declared


def stream_info(stream: Stream, clock: int) -> StreamInfo:
    """What there is to know of a stream when the engine's clock is so far."""
    source, derived = stream.source, stream.derived
    return StreamInfo(
        stream.name,
        dict(stream.columns),
        stream.rules,
        source.finished,
        source.now(clock),
        source.status(),
        () if derived is None else tuple(derived.streams),
    )


def carried_control(stream: Stream, frame: Frame) -> tuple[list[Carried], Frame]:
    """The punctuations and prods among a batch's rows, and its other rows."""
    carried: list[Carried] = []
    for kind, marker in stream.markers.items():
        marked, frame = _split(stream, marker, frame, timed=kind is Punctuation)
        for until, pattern in marked:
            if kind is Punctuation:
                carried.append(Punctuation(stream.rules.clock, until, None, pattern))
            else:
                carried.append(Prod(stream.rules.clock, until, where=pattern))
    return carried, frame


def _split(
    stream: Stream, marker: str, frame: Frame, timed: bool
) -> tuple[list[tuple[int, tuple[tuple[str, Any], ...]]], Frame]:
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
    marked = frame.filter(is_one).project({"until": until} | {f"is {name}": quoted(name) for name in columns})
    rest = frame.filter(f"NOT coalesce({is_one}, false)")
    return [(row["until"], _pattern(row)) for row in _believable_rows(marked.to_table())], rest


def rows_as_prods(stream: Stream, frame: Frame) -> list[Prod]:
    """The prods that a batch's rows become, of a stream of prods."""
    rule = stream.prods
    assert rule is not None
    kind = stream.columns.get(rule.until or "")
    until = "CAST(NULL AS BIGINT)" if kind is None else micros(f"`{rule.until}`", kind)
    columns = {f"is {alias}": quoted(name) for alias, name in rule.where.items()}
    rows = frame.aggregate({"until": until} | columns, {})  # each prod once
    return [
        Prod(rule.clock, row["until"], rule.exactly and row["until"] is not None, _pattern(row))
        for row in _believable_rows(rows.to_table())
    ]


def believable(control: list[Carried], rules: StreamRules, high: int | None, clock: int) -> list[Carried]:
    """The elements that are no further ahead than a row may be: a garbled punctuation must not close everything."""
    beyond_stream = None if rules.horizon is None or high is None else high + rules.horizon
    bounds = (beyond_stream, rules.latest_time(clock))
    limit = min((bound for bound in bounds if bound is not None), default=None)
    if limit is None:
        return control
    return [one for one in control if isinstance(one, Prod) or one.until <= limit]


def _believable_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows without those with a time that Python has not: as null, it would match everything."""
    shown = readable_table(table)
    lost = (
        pc.xor(old.is_null(), new.is_null()) for old, new in zip(table.columns, shown.columns, strict=True)
    )
    usable = pc.invert(reduce(pc.or_, lost))
    return shown.filter(usable).to_pylist()


def _pattern(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A pattern of a row's columns, in which null is `*`."""
    found = [
        (name.removeprefix("is "), pattern_value(value)) for name, value in row.items() if name != "until"
    ]
    return tuple((name, value) for name, value in found if value is not None)
