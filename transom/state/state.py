"""All that an engine remembers between two batches. Values are never changed in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transom.elements import Clock, ClockKind
from transom.estimates import Estimator
from transom.ondemand.structures.tiers import RunTiers
from transom.overload.chunks import SidelinedChunk, held_times
from transom.state.promising import PromisingState
from transom.storage.shard_refs import ShardRef
from transom.windows.arrivals import Arrivals
from transom.windows.closed import Closed
from transom.windows.intervals import LOWEST, IntervalSet

# How finely it is remembered where in time rows were accepted, to tell a joining query what it missed.
MOST_OCCUPIED = 4096


@dataclass(frozen=True)
class ClockState:
    """How far a clock has come: its highest accepted value, what is closed, where rows came and when.

    Where they were is not known (None) while no query follows the clock. `promised` is what would be closed
    if no rows were aside; None while none are. `newest` is the highest value of rows that were processed,
    where `high` is also of those that are aside or were shed.
    """

    high: int | None = None
    closed: Closed = Closed()
    occupied: IntervalSet | None = IntervalSet()
    arrivals: Arrivals = field(default_factory=Arrivals)
    promised: Closed | None = None
    newest: int | None = None


@dataclass(frozen=True)
class Totals:
    """Every row of a stream, accounted for; those `aside` are still to be processed."""

    rows: int = 0
    counted: int = 0
    unwanted: int = 0
    late: int = 0
    rejected: int = 0
    sidelined: int = 0
    shed: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def accepted(self) -> int:
        """Rows that were processed and had a usable time."""
        return self.rows - self.rejected - self.sidelined - self.shed


@dataclass(frozen=True)
class Work:
    """What was done for a stream's queries, and what it would have been had none of them shared anything.

    Partial aggregations are tuples added to a cell; final ones are slices added to a window.
    """

    partials: int = 0
    finals: int = 0
    unshared_partials: int = 0
    unshared_finals: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def __sub__(self, other: Work) -> Work:
        return Work(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class StreamState:
    """A stream's clocks and counts, the rows that are aside, oldest first, and the new rows since any were
    taken in."""

    clocks: Mapping[Clock, ClockState] = field(default_factory=dict)
    totals: Totals = Totals()
    work: Work = Work()
    sidelined: tuple[SidelinedChunk, ...] = ()
    credit: int = 0

    def held(self, clock: Clock) -> IntervalSet:
        """The times that stay open because rows of theirs are aside."""
        return held_times(self.sidelined, clock)

    def clock(self, clock: Clock) -> ClockState:
        """A clock's state; one that nobody followed yet has only missed what was accepted so far."""
        known = self.clocks.get(clock)
        return known or ClockState(occupied=None if self.totals.accepted else IntervalSet())


@dataclass(frozen=True)
class QueryState:
    """Where a query's slices are, and what it can't answer for.

    It adds to the first of its `homes` (numbers of selections) and reads all of them. Windows that meet
    `unseen` held rows before the query joined; None until the first batch tells. Windows with an id below
    `forced` were closed because the stream ended or fell idle.
    """

    homes: tuple[int, ...]
    unseen: IntervalSet | None = IntervalSet()
    forced: int | None = None

    def forced_wids(self) -> IntervalSet:
        return IntervalSet() if self.forced is None else IntervalSet.of((LOWEST, self.forced))


@dataclass(frozen=True)
class ProdderState:
    """How far a query has prodded itself.

    `position` is where its clock was when marks were last looked at, `prodded` what the engine's clock read
    when all open windows were last reported, and `fresh` whether rows have come since. `point` is the part
    of the slide at which it was told to report windows, instead of those that it names itself.
    """

    position: int | None = None
    prodded: int | None = None
    fresh: bool = False
    point: float | None = None


@dataclass(frozen=True)
class SelectionState:
    """A selection's place: the sheet that holds its slices and the slots that it keeps there, by their names.

    Of the time before `floor` slices may have been let go. A `far` one has too many groups for a sheet:
    its slices are in shards.
    """

    name: str
    sheet: str
    slots: tuple[str, ...]
    floor: int = LOWEST
    on_executors: bool = False
    alone_until: int = 0  # the batch until which it joins no signature family: the last one did not pay off
    group_types: tuple[str, ...] = ()  # the ids of the types of its group columns


@dataclass(frozen=True)
class StoreState:
    """A store of on-demand queries: what it keeps, and how many tuples it was ever given.

    Tuples before `floor` may have been let go. Rows within `unseen` came before the store was opened; None
    until the first batch tells. A `far` one has too many groups for the driver: its runs are in files.
    """

    kept: RunTiers = field(default_factory=RunTiers)
    floor: int = LOWEST
    unseen: IntervalSet | None = IntervalSet()
    tuples: int = 0
    on_executors: bool = False
    refs: tuple[ShardRef, ...] = ()

    def is_complete(self, start: int, end: int) -> bool:
        """Whether every tuple from `start` to `end` that was accepted is here."""
        if self.unseen is None or start < self.floor:
            return False
        return not self.unseen.meets(np.array([start]), np.array([end]))[0]


@dataclass(frozen=True)
class State:
    """The state after a batch. Sheets hold the slices of selections, sorted by selection, group and time.

    Shards hold those of far selections, their groups dealt out to so many `partitions`. `numbered` is the
    highest number that a selection ever had: a file may outlive the selections that it is about.
    """

    batch_id: int = 0
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    selections: Mapping[int, SelectionState] = field(default_factory=dict)
    sheets: Mapping[str, pa.Table] = field(default_factory=dict)
    shards: tuple[ShardRef, ...] = ()
    partitions: int = 0
    last_selection: int = 0
    prodders: Mapping[str, ProdderState] = field(default_factory=dict)  # of queries that EMIT EARLY
    estimators: Mapping[str, Estimator] = field(default_factory=dict)  # of the same
    stores: Mapping[str, StoreState] = field(default_factory=dict)  # of on-demand queries, by their names
    promising: PromisingState = field(default_factory=PromisingState)

    @property
    def refs(self) -> tuple[ShardRef, ...]:
        """All that is kept in files: shards, the runs of far stores, and tuples of summaries."""
        stored = (ref for store in self.stores.values() for ref in store.refs)
        return (*self.shards, *stored, *self.promising.refs)

    @property
    def on_executors(self) -> frozenset[int]:
        """The selections whose slices are in shards."""
        return frozenset(home for home, own in self.selections.items() if own.on_executors)

    def stream(self, name: str) -> StreamState:
        return self.streams.get(name, StreamState())

    def missed(self, clock: Clock) -> IntervalSet | None:
        """Where rows lie that a query has missed which joins now; None if the next batch must tell."""
        stream = self.stream(clock.stream)
        if clock.kind is ClockKind.ROWS:
            return IntervalSet.of((0, stream.totals.accepted))
        return stream.clock(clock).occupied
