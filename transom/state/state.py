"""The state of an engine between two batches. States are immutable: a batch makes a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from transom.alerts.alerts_state import AlertsState
from transom.elements import Clock, ClockKind
from transom.estimates import Estimator
from transom.ondemand.structures.tiers import RunTiers
from transom.overload.chunks import SidelinedChunk, held_times
from transom.state.accounts import Accounts
from transom.state.past_windows import PastWindows
from transom.state.promising import PromisingState
from transom.state.stream_joins import JoinState
from transom.storage.shard_refs import ShardRef
from transom.windows.arrivals import Arrivals
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

# The most intervals that record at which times rows were accepted: a joining query has missed those.
MOST_OCCUPIED = 4096


@dataclass(frozen=True)
class ClockState:
    """The progress of a clock: its highest value, what is closed, at which times rows lie and when they came.

    `occupied` are the times of the accepted rows; None while no query follows the clock. `promised` is what
    would be closed without sidelined rows; None while there are none. `high` is the highest value of all
    rows, sidelined and shed ones included; `newest` is that of the processed rows.
    """

    high: int | None = None
    closed: Closed = Closed()
    occupied: IntervalSet | None = IntervalSet()
    arrivals: Arrivals = field(default_factory=Arrivals)
    promised: Closed | None = None
    newest: int | None = None

    def without_sidelined(self) -> ClockState:
        """The clock as it would be without sidelined rows."""
        return self if self.promised is None else replace(self, closed=self.promised, promised=None)

    def with_shed(self, lost: IntervalSet) -> ClockState:
        """The clock after rows of these times were shed."""
        shed = (self.arrivals.shed | lost).coarsened(MOST_OCCUPIED)
        return replace(self, arrivals=replace(self.arrivals, shed=shed))


@dataclass(frozen=True)
class Totals:
    """Every row of a stream, accounted for; `sidelined` rows wait to be processed."""

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
        """The rows that were processed and have a valid time."""
        return self.rows - self.rejected - self.sidelined - self.shed


@dataclass(frozen=True)
class Work:
    """The aggregations for a stream's queries, and how many there would be without sharing.

    A partial aggregation adds a tuple to a cell; a final one adds a slice to a window.
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
    """A stream: its clocks and counts, and its sidelined rows, oldest first.

    `credit` is how many new rows were processed since sidelined rows were resumed.
    """

    clocks: Mapping[Clock, ClockState] = field(default_factory=dict)
    totals: Totals = Totals()
    work: Work = Work()
    sidelined: tuple[SidelinedChunk, ...] = ()
    credit: int = 0

    def held(self, clock: Clock) -> IntervalSet:
        """The times that stay open because sidelined rows lie there."""
        return held_times(self.sidelined, clock)

    def clock(self, clock: Clock) -> ClockState:
        """The state of a clock; of a clock that no query has followed, the times of the rows are unknown."""
        state = self.clocks.get(clock)
        return state or ClockState(occupied=None if self.totals.accepted else IntervalSet())


@dataclass(frozen=True)
class QueryState:
    """The selections that a query reads, and the windows that it can't answer.

    A query adds to the first of its `homes` (ids of selections) and reads all of them. Rows lay in `unseen`
    before the query joined, so that windows that meet it are incomplete; None until the first batch. Windows
    with an id below `forced` were closed because the stream ended or fell idle. `closed_before` is what was closed
    when a query with EMIT CORRECTIONS joined: it gave no final results of these windows, and corrects none of them.
    """

    homes: tuple[int, ...]
    unseen: IntervalSet | None = IntervalSet()
    forced: int | None = None
    closed_before: Closed | None = None

    def for_window(self, shortest: int) -> QueryState:
        """The state with as few unseen intervals as tell windows apart that are no shorter: there are many queries."""
        unseen = self.unseen and self.unseen.without_gaps(shorter_than=shortest)
        return self if unseen is self.unseen else replace(self, unseen=unseen)

    def forced_wids(self) -> IntervalSet:
        """The ids of the windows that were closed because the stream ended or fell idle."""
        return IntervalSet() if self.forced is None else IntervalSet.of((LOWEST, self.forced))


@dataclass(frozen=True)
class ProdderState:
    """The progress of a query's own prods (EMIT EARLY).

    `position` is the value of its clock when marks were last checked, `prodded` the engine's clock when all
    open windows were last reported, and `fresh` says whether rows arrived since. `point` is the part of the
    slide that a user has tuned the query to; None for those of its text.
    """

    position: int | None = None
    prodded: int | None = None
    fresh: bool = False
    point: float | None = None


@dataclass(frozen=True)
class SelectionState:
    """Where the slices of a selection are: the id of the sheet, and the ids of the slots that it keeps.

    A selection with too many groups for a sheet is `on_executors`: its slices are in shards.
    """

    name: str
    sheet: str
    slots: tuple[str, ...]
    on_executors: bool = False
    alone_until: int = 0  # the batch until which it joins no signature family: the last one did not pay off
    group_types: tuple[str, ...] = ()  # the ids of the types of its group columns


@dataclass(frozen=True)
class StoreState:
    """A store of on-demand queries: its runs, and how many `tuples` were ever added.

    Tuples before `floor` may have been evicted. Rows lay in `unseen` before the store was opened; None until
    the first batch. A store with too many groups for the driver is `on_executors`: its runs are in files.
    """

    tiers: RunTiers = field(default_factory=RunTiers)
    floor: int = LOWEST
    unseen: IntervalSet | None = IntervalSet()
    tuples: int = 0
    on_executors: bool = False
    refs: tuple[ShardRef, ...] = ()

    def is_complete(self, start: int, end: int) -> bool:
        """Whether the store has every accepted tuple from `start` to `end`."""
        if self.unseen is None or start < self.floor:
            return False
        return not self.unseen.meets(np.array([start]), np.array([end]))[0]


@dataclass(frozen=True)
class State:
    """The state after a batch. Sheets hold the slices of selections, sorted by selection, group and time.

    Shards hold the slices of selections on the executors; their groups are partitioned by hash into
    `partitions`. `last_selection` is the highest id that a selection ever had: ids are not used again,
    because a file may outlive its selections. Slices of a selection before its floor may have been evicted;
    a selection without a floor has all.

    A batch that changes no query and no selection leaves `queries` and `selections` the very same objects: what
    was derived from them still holds. That is why floors, which rise with nearly every batch, are beside them.
    """

    batch_id: int = 0
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    selections: Mapping[int, SelectionState] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)  # by selection
    sheets: Mapping[str, pa.Table] = field(default_factory=dict)
    shards: tuple[ShardRef, ...] = ()
    partitions: int = 0
    last_selection: int = 0
    young_after: int = 0  # selections with higher ids are young: their families are planned apart
    prodders: Mapping[str, ProdderState] = field(default_factory=dict)  # of queries that EMIT EARLY
    estimators: Mapping[str, Estimator] = field(default_factory=dict)  # of queries that EMIT EARLY
    stores: Mapping[str, StoreState] = field(default_factory=dict)  # of on-demand queries, by their names
    promising: PromisingState = field(default_factory=PromisingState)
    accounts: Accounts = field(default_factory=Accounts)  # of queries: what became of every row
    joins: Mapping[str, JoinState] = field(
        default_factory=dict
    )  # of two streams, by the stream of their pairs
    past: PastWindows = field(default_factory=PastWindows)  # of queries with LAG or EMIT EMPTY
    alerts: AlertsState = field(default_factory=AlertsState)
    reported: Mapping[str, pa.Table] = field(
        default_factory=dict
    )  # of queries with EMIT CORRECTIONS: the newest results of closed windows

    @property
    def refs(self) -> tuple[ShardRef, ...]:
        """The files of the state: shards, runs of stores, and tuples of summaries."""
        runs = (ref for store in self.stores.values() for ref in store.refs)
        return (*self.shards, *runs, *self.promising.refs)

    @property
    def on_executors(self) -> frozenset[int]:
        """The selections whose slices are in shards."""
        return frozenset(home for home, own in self.selections.items() if own.on_executors)

    def stream(self, name: str) -> StreamState:
        """The state of a stream, empty before its first batch."""
        return self.streams.get(name, StreamState())

    def missed(self, clock: Clock) -> IntervalSet | None:
        """The times of the rows that a query which joins now has missed; None if only the next batch shows."""
        stream = self.stream(clock.stream)
        if clock.kind is ClockKind.ROWS:
            return IntervalSet.of((0, stream.totals.accepted))
        return stream.clock(clock).occupied
