"""All that an engine remembers between two pages. Values are never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from transom.algorithms.intervals import LOWEST, IntervalSet
from transom.control.closed import Closed
from transom.elements import Clock, ClockKind

# How finely it is remembered where in time rows were accepted, to tell a joining query what it missed.
MOST_OCCUPIED = 4096


@dataclass(frozen=True)
class ClockState:
    """How far a clock has come: its highest accepted value, what is closed, where rows were accepted.

    Where they were is not known (None) while no query follows the clock.
    """

    high: int | None = None
    closed: Closed = Closed()
    occupied: IntervalSet | None = IntervalSet()


@dataclass(frozen=True)
class Totals:
    """Every row of a stream, accounted for."""

    rows: int = 0
    counted: int = 0
    unasked: int = 0
    late: int = 0
    rejected: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def accepted(self) -> int:
        return self.rows - self.rejected


@dataclass(frozen=True)
class StreamState:
    """A stream's clocks and counts."""

    clocks: Mapping[Clock, ClockState] = field(default_factory=dict)
    totals: Totals = Totals()

    def clock(self, clock: Clock) -> ClockState:
        """A clock's state; one that nobody followed yet has only missed what was accepted so far."""
        unknown = None if self.totals.accepted else IntervalSet()
        return self.clocks.get(clock, ClockState(occupied=unknown))


@dataclass(frozen=True)
class QueryState:
    """A query's partial aggregates, and what it can't answer for.

    Windows that meet `unseen` held rows before the query joined; None until the first page tells.
    Windows with an id below `forced` were closed because the stream ended or fell idle.
    """

    slices: pa.Table
    unseen: IntervalSet | None = IntervalSet()
    forced: int | None = None

    def forced_wids(self) -> IntervalSet:
        return IntervalSet() if self.forced is None else IntervalSet.of((LOWEST, self.forced))


@dataclass(frozen=True)
class State:
    """The state after a page."""

    page: int = 0
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)

    def stream(self, name: str) -> StreamState:
        return self.streams.get(name, StreamState())

    def newcomer(self, clock: Clock, empty: pa.Table) -> QueryState:
        """The state of a query that joins now: it has missed what was accepted so far."""
        stream = self.stream(clock.stream)
        if clock.kind is ClockKind.ROWS:
            return QueryState(empty, IntervalSet.of((0, stream.totals.accepted)))
        return QueryState(empty, stream.clock(clock).occupied)
