"""The records of EXPLAIN. The names of their fields are the keys of its JSON.

Lengths and instants are in the unit of their clock, microseconds for time; fields beside them have the texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from transom.plan.explain.promising import PreferencePlan, SummaryPlan
from transom.plan.explain.row_queries import RowQueriesPlan, RowQueryPlan
from transom.plan.subject import Subject


@dataclass(frozen=True)
class SlotReader:
    """An aggregate of a query that reads a slot."""

    query: str
    aggregate: str


@dataclass(frozen=True)
class KeptSlot:
    """An accumulator that each slice and group keeps, and the aggregates that read it."""

    slot: str
    readers: tuple[SlotReader, ...]


@dataclass(frozen=True)
class Window:
    """A query's windows."""

    text: str
    range: int
    slide: int
    phase: int


@dataclass(frozen=True)
class QueryPlan:
    """A query of a selection: one that `pending` joins with the next batch.

    `reads` are selections that it left and that still hold slices of its windows. `unseen` are the times of tuples
    that came before it joined: it does not answer for windows that contain one. None: not determined yet.
    """

    name: str
    window: Window
    aggregates: tuple[str, ...]
    having: str | None
    pending: bool
    reads: tuple[int, ...]
    unseen: tuple[tuple[int, int], ...] | None
    early: str | None = None  # when windows are reported before they close
    read_by: tuple[str, ...] = ()  # queries that read its results
    overload: str | None = None  # which rows it prefers when there is not time for all
    past: str | None = None  # what is remembered of past windows, for LAG and EMIT EMPTY
    corrections: str | None = None  # how long closed windows are kept for late rows, and what is kept


@dataclass(frozen=True)
class Slicing:
    """Where the slices of a selection end: how many edges `per` so long, and the next ones."""

    edges: int
    per: str
    per_length: int
    lengths: tuple[str, ...]  # of the slices between the next edges
    next_edges: tuple[int, ...]
    next_edges_text: tuple[str, ...]
    gap: str | None = None  # of sessions, which have no edges
    by_key: bool = False  # whether these are the last rows of each key, which have no edges either


@dataclass(frozen=True)
class Holding:
    """What a selection holds now, on the `driver` or in shards on the `executors`.

    Shards hold rows of several selections, so that `rows` is None for them.
    """

    place: str
    slices: int
    rows: int | None


@dataclass(frozen=True)
class SelectionPlan:
    """The tuples that some queries read. `residual` is its predicate without the part that is common to its family.

    A selection that is `unshared` does not share slices, although others read the same tuples. `keeps` is None if
    every tuple is kept.
    """

    id: int
    where: str | None
    residual: str | None
    unshared: bool
    windows: int
    slicing: Slicing
    keeps: tuple[KeptSlot, ...] | None
    holds: Holding
    queries: tuple[QueryPlan, ...]


@dataclass(frozen=True)
class FamilyPlan:
    """Selections whose predicates are evaluated together.

    A `range` family searches the `scalar`, whose values `constants` cut into `fragments`; a `grid` family searches
    several scalars, and its selections are `boxes` of them; a `signature` family evaluates all
    `conjuncts`, and its fragments are the signatures that occur; a `gaps` family
    has sessions over the same tuples that differ in their gaps; an `alone` family is one selection.
    Its groups may be `rolled_up` from finer groups that it shares with other families, its `kin`.
    """

    id: int
    kind: str
    scalar: str | None
    constants: int
    fragments: int | None
    boxes: int | None
    conjuncts: int
    agrees: tuple[str, ...]
    clock: str
    group_by: tuple[str, ...]
    joins: tuple[str, ...]
    rolled_up: tuple[str, ...] | None
    kin: tuple[int, ...]
    queries: int
    selections: tuple[SelectionPlan, ...]


@dataclass(frozen=True)
class StoreReader:
    """An aggregate of on-demand queries that reads a store, and `by` which structure."""

    aggregate: str
    by: str
    queries: tuple[str, ...]


@dataclass(frozen=True)
class StorePlan:
    """A store of an attribute, for all lookups over the same tuples and groups.

    It holds `entries` of so many `bytes`, in `runs` (on the executors: files); it has received `tuples` in all.
    `groups` is the least number of groups, or of a timegram's buckets; on the executors they are not counted.
    Windows from `complete_since` on are answered from all their rows; None: from any time on, or, if it `pending`,
    not determined yet. `kept_since` is the time before which entries may have been evicted.
    """

    id: int
    kind: str  # groups, staircase, values or timegram
    keeps: str
    readers: tuple[StoreReader, ...]
    place: str
    entries: int
    bytes: int
    runs: int
    groups: int | None
    tuples: int
    pending: bool
    kept_since: int | None
    complete_since: int | None
    complete_since_text: str | None


@dataclass(frozen=True)
class Answered:
    """An aggregate of an on-demand query: `by` which structure, and from which stores."""

    aggregate: str
    by: str
    stores: tuple[int, ...]


@dataclass(frozen=True)
class LookupPlan:
    """An on-demand query: the longest window that it is looked up for, and what answers it."""

    name: str
    window: str
    range: int
    structure: str
    answers: tuple[Answered, ...]
    having: str | None
    pending: bool


@dataclass(frozen=True)
class StoreSetPlan:
    """The stores over the same tuples and groups, and the on-demand queries that share them.

    `longest` is the longest window of these: older tuples are evicted.
    """

    id: int
    where: str | None
    clock: str
    group_by: tuple[str, ...]
    joins: tuple[str, ...]
    longest: str
    range: int
    stores: tuple[StorePlan, ...]
    queries: tuple[LookupPlan, ...]


@dataclass(frozen=True)
class WorkDone:
    """Aggregations done so far, and those that queries which share nothing would have needed."""

    partials: int
    finals: int
    unshared_partials: int
    unshared_finals: int
    ratio: float | None  # unshared to shared, partial and final together


@dataclass(frozen=True)
class Projected:
    """A scalar expression that is computed once a row, and how often queries use it.

    `by_spark` says why Spark evaluates it for rows on the driver; None if compiled code does. `by_worker` says that
    it calls Python functions of the program, which a worker process does.
    """

    sql: str
    uses: int
    by_spark: str | None = None
    by_worker: bool = False


@dataclass(frozen=True)
class JoinedTable:
    """A static table that the stream is joined with."""

    id: str
    table: str
    on: str


@dataclass(frozen=True)
class Shards:
    """The files of all selections on the executors."""

    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class ChoicePlan:
    """What the planner chose about a query, selection, family or store, and why."""

    about: Subject
    chosen: str
    reason: str


@dataclass(frozen=True)
class PassPlan:
    """What one pass of the planner decided about a stream."""

    name: str
    choices: tuple[ChoicePlan, ...]


@dataclass(frozen=True)
class StreamJoinPlan:
    """A join of two streams: its condition, and what is kept of each stream on the driver."""

    streams: tuple[str, str]
    keys: tuple[str, ...]
    bound: str  # how much later the rows of the second stream are
    columns: tuple[tuple[str, ...], tuple[str, ...]]  # that queries read, beside the keys
    rows: tuple[int, int]
    filters: tuple[str | None, str | None]  # which rows are kept; null: all
    late: tuple[int, int]  # rows that came too late for some of their pairs
    bytes: int
    form: str = "inner"  # or outer, semi, anti
    preserved: tuple[bool, bool] = (False, False)  # streams whose rows are results by themselves
    wait: str | None = None  # how long windows wait for rows that may find a partner
    is_combined: bool = False  # whether counts and sums are computed without the pairs
    conditions: tuple[str, ...] = ()  # of ON, beside keys and bound, if they decide which rows have a partner


@dataclass(frozen=True)
class StreamPlan:
    """A stream: its rules, what is computed for every row, and the families of its queries."""

    name: str
    time: str
    slack: str | None
    horizon: str | None
    idle: str | None
    queries: int
    suspended: Mapping[str, str]
    project: tuple[Projected, ...]
    joins: tuple[JoinedTable, ...]
    work: WorkDone
    families: tuple[FamilyPlan, ...]
    overload: str | None = None  # what becomes of rows beyond a batch's budget
    sidelined: str | None = None  # how many rows are, since when, and which times wait for them
    results_of: str | None = None  # the query whose results it is made of
    on_demand: int = 0  # queries that are looked up; `queries` are the others
    store_sets: tuple[StoreSetPlan, ...] = ()
    with_preference: int = 0  # queries with a preference that read it
    decisions: tuple[PassPlan, ...] = ()  # of the planner's passes, in their order
    pairs: StreamJoinPlan | None = None  # the join whose pairs are its rows
    derived_from: str | None = None  # how its rows are derived from those of declared streams
    rows: RowQueriesPlan | None = None  # the queries without a window
    # The streams of the query WITH PREFERENCE whose results it is made of.
    preferred_from: tuple[str, ...] = ()

    @property
    def plans(self) -> Sequence[QueryPlan | LookupPlan | RowQueryPlan]:
        """All its queries."""
        pushed = [query for _, selection in self.selections() for query in selection.queries]
        looked_up = (query for store_set in self.store_sets for query in store_set.queries)
        return [*pushed, *looked_up, *self.row_queries]

    @property
    def row_queries(self) -> Sequence[RowQueryPlan]:
        """Its queries without a window."""
        return () if self.rows is None else self.rows.queries

    def selections(self) -> Iterator[tuple[FamilyPlan, SelectionPlan]]:
        for family in self.families:
            for selection in family.selections:
                yield family, selection


@dataclass(frozen=True)
class ViewPlan:
    """A view, and the queries and views that it is inlined into."""

    name: str
    text: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """How the queries of an engine are computed, after its last batch."""

    batch_id: int
    strategy: str
    fragments: str
    state: str
    shards: Shards
    streams: tuple[StreamPlan, ...] = field(default_factory=tuple)
    summaries: tuple[SummaryPlan, ...] = ()
    preference_queries: tuple[PreferencePlan, ...] = ()
    views: tuple[ViewPlan, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False)

    def only(self, query: str) -> Explanation:
        """The plan of one query: its family with its selection alone, in which others may be too; of one on
        demand the stores that it reads, of one with a preference the summaries that lead it."""
        led = self.find_preference_query(query)
        if led is not None:
            names = {side.summary for side in led.sides}
            summaries = tuple(summary for summary in self.summaries if summary.name in names)
            streams = (
                stream for stream in self.streams if stream.name in {side.stream for side in led.sides}
            )
            bare = tuple(replace(stream, families=(), store_sets=(), rows=None) for stream in streams)
            return replace(self, streams=bare, summaries=summaries, preference_queries=(led,), views=())
        views = tuple(view for view in self.views if query in view.readers)
        return replace(self._window_query(query), summaries=(), preference_queries=(), views=views)

    def _window_query(self, query: str) -> Explanation:
        looked = self.find_lookup(query)
        if looked is not None:
            stream, store_set, lookup = looked
            read = {store for answer in lookup.answers for store in answer.stores}
            stores = tuple(store for store in store_set.stores if store.id in read or store.kind == "groups")
            alone = replace(store_set, stores=stores)
            return replace(self, streams=(replace(stream, families=(), store_sets=(alone,), rows=None),))
        row_query = self.find_row_query(query)
        if row_query is not None:
            stream, own_plan = row_query
            assert stream.rows is not None
            rows = replace(stream.rows, queries=(own_plan,))
            return replace(self, streams=(replace(stream, families=(), store_sets=(), rows=rows),))
        found = self.find(query)
        if found is None:
            return replace(self, streams=())
        stream, family, selection, _ = found
        own = replace(family, selections=(selection,))
        return replace(self, streams=(replace(stream, families=(own,), store_sets=(), rows=None),))

    def find(self, query: str) -> tuple[StreamPlan, FamilyPlan, SelectionPlan, QueryPlan] | None:
        """Where a query is."""
        for stream in self.streams:
            for family, selection in stream.selections():
                for own in selection.queries:
                    if own.name == query:
                        return stream, family, selection, own
        return None

    def find_preference_query(self, query: str) -> PreferencePlan | None:
        """A query with a preference."""
        return next((own for own in self.preference_queries if own.name == query), None)

    def find_row_query(self, query: str) -> tuple[StreamPlan, RowQueryPlan] | None:
        """Where a query without a window is."""
        for stream in self.streams:
            for own in stream.row_queries:
                if own.name == query:
                    return stream, own
        return None

    def find_lookup(self, query: str) -> tuple[StreamPlan, StoreSetPlan, LookupPlan] | None:
        """Where an on-demand query is."""
        for stream in self.streams:
            for store_set in stream.store_sets:
                for own in store_set.queries:
                    if own.name == query:
                        return stream, store_set, own
        return None


def _plain(value: Any) -> Any:
    """A value as JSON has it; `dataclasses.asdict` would take seconds for ten thousand queries."""
    if isinstance(value, Subject):
        return str(value)
    if is_dataclass(value):
        return {name: _plain(part) for name, part in vars(value).items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
