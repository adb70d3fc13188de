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
    """Where a query's slices are, and what it can't answer for.

    It adds to the first of its `homes` (numbers of selections) and reads all of them. Windows that meet
    `unseen` held rows before the query joined; None until the first page tells. Windows with an id below
    `forced` were closed because the stream ended or fell idle.
    """

    homes: tuple[int, ...]
    unseen: IntervalSet | None = IntervalSet()
    forced: int | None = None

    def forced_wids(self) -> IntervalSet:
        return IntervalSet() if self.forced is None else IntervalSet.of((LOWEST, self.forced))


@dataclass(frozen=True)
class SelectionState:
    """A selection's place: the sheet that holds its slices and the slots that it keeps there, by their names.

    Of the time before `floor` slices may have been let go.
    """

    name: str
    sheet: str
    slots: tuple[str, ...]
    floor: int = LOWEST


@dataclass(frozen=True)
class State:
    """The state after a page. Sheets hold the slices of selections, sorted by selection, group and time."""

    page: int = 0
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    selections: Mapping[int, SelectionState] = field(default_factory=dict)
    sheets: Mapping[str, pa.Table] = field(default_factory=dict)

    def stream(self, name: str) -> StreamState:
        return self.streams.get(name, StreamState())

    def missed(self, clock: Clock) -> IntervalSet | None:
        """Where rows lie that a query has missed which joins now; None if the next page must tell."""
        stream = self.stream(clock.stream)
        if clock.kind is ClockKind.ROWS:
            return IntervalSet.of((0, stream.totals.accepted))
        return stream.clock(clock).occupied
