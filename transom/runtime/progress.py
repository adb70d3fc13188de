"""The progress of an engine after its last committed batch: as an object, as text and as a mapping."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from html import escape
from operator import add
from typing import Any

from transom.api.records import SummaryStatus
from transom.backends.file_problems import Problem
from transom.durations import format_instant
from transom.elements import ClockKind
from transom.estimates import Accuracy
from transom.ingest.streams import Stream
from transom.ondemand.cache import LookupTotals, StoreUsage
from transom.plan.explain import WorkDone, held_by_selection, keeps_text, work_done, work_text
from transom.plan.explain.promising_text import coverage_text
from transom.plan.explain.text_parts import counted, queries_text, readable
from transom.plan.families import family_kind
from transom.results.query_boundary import open_windows
from transom.runtime.batch_report import BatchReport
from transom.runtime.inline_charts import parts_bar
from transom.runtime.loop import BatchLoop
from transom.runtime.notebook import html_table, titled
from transom.runtime.registry import Registry
from transom.runtime.summary_status import PreferenceProgress, queries_of, summary_infos
from transom.runtime.watermark_progress import WatermarkProgress, watermark_progress
from transom.state.promising import Coverage
from transom.state.state import State, StoreState, Work

log = logging.getLogger("transom")

NO_WORK = work_done(Work())
_PROBLEM_TEXTS = {
    Problem.UNREADABLE: "unreadable files",
    Problem.MISSING_COLUMN: "missing columns",
    Problem.NEW_COLUMN: "new columns",
    Problem.REWRITTEN: "rewritten files",
}
_ROW_FATES = ("counted", "unwanted", "late", "rejected", "sidelined", "shed")
MOST_SHOWN = 3  # ranges of time held open, and queries with late rows


@dataclass(frozen=True)
class Sharing:
    """How queries share work: their selections, families by kind, and how many aggregations were done.

    `most_queries` is the size of the largest selection, `slices` how many are kept of all selections.
    """

    queries: int = 0
    selections: int = 0
    most_queries: int = 0
    families: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0
    work: WorkDone = NO_WORK
    last_batch: WorkDone = NO_WORK

    @property
    def queries_per_selection(self) -> float:
        return self.queries / self.selections if self.selections else 0.0

    def __str__(self) -> str:
        families = ", ".join(f"{count:,} {kind}" for kind, count in self.families.items()) or "none yet"
        return (
            f"selections {self.selections:,} (queries in each {self.queries_per_selection:.1f}, at most "
            f"{self.most_queries:,}), families: {families}, slices {self.slices:,}; {work_text(self.work)}"
        )

    def __add__(self, other: Sharing) -> Sharing:
        return Sharing(
            self.queries + other.queries,
            self.selections + other.selections,
            max(self.most_queries, other.most_queries),
            dict(Counter(self.families) + Counter(other.families)),
            self.slices + other.slices,
            _summed(self.work, other.work),
            _summed(self.last_batch, other.last_batch),
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "queries_per_selection": self.queries_per_selection}


def _summed(*parts: WorkDone) -> WorkDone:
    names = Work.__dataclass_fields__
    return work_done(Work(*(sum(getattr(part, name) for part in parts) for name in names)))


@dataclass(frozen=True)
class RetainedProgress:
    """The rows that a stream retains, their size in bytes, and for how many of them there are sealed slices.

    `missed_deadlines` is how often the making of slices took too long since the engine started; it is tried again.
    """

    rows: int = 0
    bytes: int = 0
    sliced_rows: int = 0
    missed_deadlines: int = 0


@dataclass(frozen=True)
class StreamProgress:
    """A stream: every row accounted for, how far its time has come, and how its queries share."""

    rows: int
    counted: int
    unwanted: int
    late: int
    rejected: int
    high: int | None  # the highest accepted time
    watermark: int | None  # everything before is closed
    open_windows: int
    is_time: bool
    sharing: Sharing = Sharing()
    sidelined: int = 0  # rows that wait to be processed
    shed: int = 0  # rows dropped
    sidelined_since: int | None = None  # the clock of the engine when the oldest of these rows came
    held: tuple[tuple[int, int], ...] = ()  # ranges of time that sidelined rows hold open
    file_problems: Mapping[str, int] = field(default_factory=dict)  # how many, by kind
    clocks: WatermarkProgress = field(
        default_factory=WatermarkProgress
    )  # of its partitions or groups, and its learned slack
    retained: RetainedProgress = RetainedProgress()

    def __str__(self) -> str:
        shown = [
            f"{name} {getattr(self, name):,}" for name in ("rows", "counted", "unwanted", "late", "rejected")
        ]
        shown.append(f"watermark {_watermark_text(self)}")
        if slack := self.clocks.text(self.is_time):
            shown.append(slack)
        shown.append(f"open windows {self.open_windows:,}")
        if self.sidelined and self.sidelined_since is not None:
            held = ", ".join(
                f"{self._shown(start)} to {self._shown(stop)}" for start, stop in self.held[:MOST_SHOWN]
            )
            more = f" and {len(self.held) - MOST_SHOWN} more" if len(self.held) > MOST_SHOWN else ""
            since = format_instant(self.sidelined_since)
            shown.append(f"sidelined {self.sidelined:,} since {since}, held {held}{more}")
        if self.shed:
            shown.append(f"shed {self.shed:,}")
        if self.retained.rows:
            shown.append(
                f"retained {self.retained.rows:,}, of them in sealed slices {self.retained.sliced_rows:,}"
            )
        if self.retained.missed_deadlines:
            shown.append(f"deadlines missed by sealed slices {self.retained.missed_deadlines:,}")
        shown += [f"{_PROBLEM_TEXTS[Problem(kind)]} {count:,}" for kind, count in self.file_problems.items()]
        return ", ".join(shown)

    def _shown(self, time: int) -> str:
        return format_instant(time) if self.is_time else str(time)

    def as_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "sharing": self.sharing.as_dict(),
            "file_problems": dict(self.file_problems),
            "clocks": self.clocks.as_dict(),
            "retained": vars(self.retained),
        }


def _retained(loop: BatchLoop, stream: str) -> RetainedProgress:
    """What a stream retains."""
    listed = loop.history.rows.committed.get(stream)
    if listed is None:
        return RetainedProgress()
    rows, size = sum(file.rows for file in listed.files), sum(file.bytes for file in listed.files)
    history = loop.history
    missed = history.slice_work.missed_deadlines[stream]
    return RetainedProgress(rows, size, history.slices.rows(stream), missed)


def _watermark_text(stream: StreamProgress) -> str:
    return "none" if stream.watermark is None else stream._shown(stream.watermark)


@dataclass(frozen=True)
class StoreProgress:
    """A store of on-demand queries: what it was given, how often it was read, and what it holds.

    `updates` are tuples. `hits` are lookups that took no scan of the window's tuples: with OrderedSharing
    those without recalculation, with `USING naive` none.
    """

    stream: str
    keeps: str
    on_executors: bool
    updates: int
    lookups: int
    hits: int
    entries: int
    bytes: int
    lists_groups: bool = False  # whether it lists the groups of a query, which a lookup reads first


@dataclass(frozen=True)
class OnDemand:
    """The on-demand queries, and the stores that they share."""

    queries: int = 0
    stores: Mapping[str, StoreProgress] = field(default_factory=dict)
    totals: LookupTotals = field(default_factory=LookupTotals)  # also of stores that are gone

    @property
    def lookups(self) -> int:
        """Lookups that were answered: each first reads the store of its groups."""
        return sum(store.lookups for store in self.stores.values() if store.lists_groups)

    @property
    def reads(self) -> int:
        """How often the stores of attributes were read: a lookup may read several."""
        return sum(store.lookups for store in self._attributes())

    @property
    def hits(self) -> int:
        """How many of the reads took no scan."""
        return sum(store.hits for store in self._attributes())

    @property
    def updates(self) -> int:
        """Tuples that were added to stores of attributes: one to each that asks for it."""
        return sum(store.updates for store in self._attributes())

    @property
    def entries(self) -> int:
        return sum(store.entries for store in self.stores.values())

    @property
    def bytes(self) -> int:
        return sum(store.bytes for store in self.stores.values())

    def _attributes(self) -> Iterator[StoreProgress]:
        return (store for store in self.stores.values() if not store.lists_groups)

    def __str__(self) -> str:
        return (
            f"on demand: {queries_text(self.queries)} over {counted(len(self.stores), 'store')}, "
            f"entries {self.entries:,}, bytes {self.bytes:,}; updates {self.updates:,}, "
            f"lookups {self.lookups:,}, {self.hits:,} of {self.reads:,} reads without recalculation"
        )

    def as_dict(self) -> dict[str, Any]:
        totals = ("lookups", "reads", "hits", "updates", "entries", "bytes")
        stores = {key: asdict(store) for key, store in self.stores.items()}
        return {"queries": self.queries, "stores": stores, **{name: getattr(self, name) for name in totals}}


@dataclass(frozen=True)
class PromisingProgress:
    """The summaries, and the queries with a preference that they guide."""

    summaries: Mapping[str, SummaryStatus] = field(default_factory=dict)
    queries: Mapping[str, PreferenceProgress] = field(default_factory=dict)

    @property
    def tuples(self) -> int:
        """Tuples that are kept, of all summaries."""
        return sum(summary.tuples for summary in self.summaries.values())

    @property
    def bytes(self) -> int:
        """What the summaries of cells take, without the tuples."""
        return sum(summary.bytes for summary in self.summaries.values())

    @property
    def late(self) -> int:
        """Tuples that were older than all that was kept."""
        return sum(summary.late for summary in self.summaries.values())

    @property
    def probes(self) -> int:
        return sum(query.probes for query in self.queries.values())

    @property
    def produced(self) -> int:
        return sum(query.produced for query in self.queries.values())

    @property
    def skipped(self) -> float:
        """Estimated tuples that were skipped, for good or until there is time."""
        return sum(query.skipped for query in self.queries.values())

    @property
    def share(self) -> float:
        """The share of the estimated output of all queries that was produced."""
        return Coverage(self.probes, self.produced, self.skipped).share

    def __str__(self) -> str:
        summaries = counted(len(self.summaries), "summary", "summaries")
        kept = f"{counted(self.tuples, 'tuple')} in {summaries}, {self.bytes:,} bytes of counts"
        late = f", {self.late:,} late" if self.late else ""
        done = coverage_text(self.probes, self.produced, self.skipped, self.share)
        return f"promising tuples: {queries_text(len(self.queries))} over {kept}{late}; {done}"

    def as_dict(self) -> dict[str, Any]:
        totals = ("tuples", "bytes", "late", "probes", "produced", "skipped", "share")
        return {
            "summaries": {name: asdict(summary) for name, summary in self.summaries.items()},
            "queries": {name: asdict(query) for name, query in self.queries.items()},
            **{name: getattr(self, name) for name in totals},
        }


@dataclass(frozen=True)
class Progress:
    """The engine after its last committed batch.

    `spent` is where the seconds of that batch went: planning, ingest, emit, delivery and commit.
    """

    batch_id: int
    batch_seconds: float
    state_bytes: int  # on the driver
    executor_rows: int  # with the executors: cells of slices, and entries of stores
    executor_bytes: int
    queries: int
    suspended: Mapping[str, str]
    streams: Mapping[str, StreamProgress]
    spent: Mapping[str, float] = field(default_factory=dict)
    early: Mapping[str, Accuracy] = field(default_factory=dict)  # of queries that say EMIT EARLY
    on_demand: OnDemand = field(default_factory=OnDemand)
    promising: PromisingProgress = field(default_factory=PromisingProgress)
    late: Mapping[str, int] = field(
        default_factory=dict
    )  # the rows that queries missed, of those that missed any
    unaccounted: int = 0  # rows that the counts of some query failed to explain: must stay 0

    @property
    def sharing(self) -> Sharing:
        """How the queries of all streams share, together."""
        return reduce(add, (stream.sharing for stream in self.streams.values()), Sharing())

    def __str__(self) -> str:
        spent = ", ".join(f"{name.replace('_', ' ')} {seconds:.3f}" for name, seconds in self.spent.items())
        first = (
            f"batch {self.batch_id}, {self.batch_seconds:.3f} s{f' ({spent})' if spent else ''}, "
            f"{queries_text(self.queries)} ({len(self.suspended)} suspended), "
            f"state {self.state_bytes:,} bytes"
        )
        if self.executor_rows:
            first += f", with the executors {self.executor_rows:,} rows, {self.executor_bytes:,} bytes"
        lines = [first]
        for name, stream in self.streams.items():
            lines.append(f"  {name}: {stream}")
            if stream.sharing.queries:
                lines.append(f"    {stream.sharing}")
        lines += [f"  {name} missed {late:,} rows: they came too late" for name, late in self._most_late()]
        if self.unaccounted:
            lines.append(
                f"  {self.unaccounted:,} rows are not accounted for: the counts of queries are wrong"
            )
        lines += [f"  early results of {name}: {accuracy}" for name, accuracy in self.early.items()]
        if self.on_demand.queries:
            lines.append(f"  {self.on_demand}")
        if self.promising.summaries:
            lines.append(f"  {self.promising}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The progress in a notebook: where the time of the last batch went, and the fate of each stream's rows."""
        streams = [
            (name, f"{stream.rows:,}", _watermark_text(stream), f"{stream.open_windows:,}")
            for name, stream in self.streams.items()
        ]
        fates = [
            f"<p>rows of {escape(name)}</p>"
            + parts_bar({fate: getattr(stream, fate) for fate in _ROW_FATES}, f"rows of {name}")
            for name, stream in self.streams.items()
            if stream.rows
        ]
        return titled(
            f"batch {self.batch_id}: {self.batch_seconds:.3f} s, {queries_text(self.queries)}, "
            f"{len(self.suspended):,} suspended, state {self.state_bytes:,} bytes",
            parts_bar(
                {name.replace("_", " "): round(seconds, 6) for name, seconds in self.spent.items()},
                "seconds of the last batch",
            ),
            html_table(["stream", "rows", "watermark", "open windows"], streams),
            *fates,
        )

    def _most_late(self) -> list[tuple[str, int]]:
        """The queries that missed most rows."""
        return sorted(self.late.items(), key=lambda one: -one[1])[:MOST_SHOWN]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for machines; instants are numbers."""
        plain = {
            **vars(self),
            "suspended": dict(self.suspended),
            "spent": dict(self.spent),
            "late": dict(self.late),
            "streams": {name: stream.as_dict() for name, stream in self.streams.items()},
            "early": {name: asdict(accuracy) for name, accuracy in self.early.items()},
            "on_demand": self.on_demand.as_dict(),
            "promising": self.promising.as_dict(),
        }
        return plain | {"sharing": self.sharing.as_dict()}


def progress_of(loop: BatchLoop) -> Progress:
    """The progress of a batch loop."""
    # Each is replaced whole: no need to wait.
    state, registry, report = loop.state, loop.directory.registry, loop.report
    slices = {home: holding.slices for home, holding in held_by_selection(state).items()}
    streams = {}
    for name, stream in loop.declared.queried().items():
        stream_state, clock = state.stream(name), stream.rules.clock
        clock_state = stream_state.clock(clock)
        reading = registry.reading(name)
        last = report.work.get(name, Work()) if report is not None else Work()
        streams[name] = StreamProgress(
            stream_state.totals.rows,
            stream_state.totals.counted,
            stream_state.totals.unwanted,
            stream_state.totals.late,
            stream_state.totals.rejected,
            clock_state.high,
            clock_state.closed.watermark(),
            open_windows(state, reading, stream_state),
            clock.kind is ClockKind.TIME,
            _sharing(loop, name, state, [query.name for query in reading], slices, last),
            stream_state.totals.sidelined,
            stream_state.totals.shed,
            stream_state.sidelined[0].since if stream_state.sidelined else None,
            stream_state.held(clock).pairs,
            _file_problems(stream),
            watermark_progress(stream, loop.clock()),
            _retained(loop, name),
        )
    names = state.accounts.names
    return Progress(
        state.batch_id,
        report.seconds if report is not None else 0.0,
        loop.state_bytes
        + sum(store.tiers.nbytes for store in state.stores.values())
        + sum(run.tuples.table.nbytes for run in state.promising.runs),
        sum(ref.rows for ref in state.refs),
        sum(ref.bytes for ref in state.refs),
        len(registry.entries),
        {entry.name: entry.suspended for entry in registry if entry.suspended is not None},
        streams,
        report.spent if report is not None else {},
        {name: learned.accuracy() for name, learned in state.estimators.items()},
        _on_demand(loop, state, registry),
        PromisingProgress(summary_infos(state.promising, registry), queries_of(state.promising, registry)),
        {name: late for name, late in zip(names, state.accounts.late(names), strict=True) if late},
        state.accounts.unaccounted,
    )


def _file_problems(stream: Stream) -> dict[str, int]:
    log = stream.source.file_log
    return {} if log is None else {kind.value: log.counts[kind] for kind in Problem if log.counts[kind]}


def _on_demand(loop: BatchLoop, state: State, registry: Registry) -> OnDemand:
    queries = registry.on_demand()
    usages, stores = loop.lookup_cache.usage() if queries else {}, {}
    streams = dict.fromkeys(query.query.stream for query in queries)
    for store_set in (
        one for name in streams for one in loop.planner.store_sets(name, registry.looking(name))
    ):
        for key, spec in store_set.stores.items():
            store, usage = state.stores.get(key, StoreState()), usages.get(key, StoreUsage())
            keeps = readable(keeps_text(store_set, spec))
            stores[readable(f"{store_set.selection} | {keeps}")] = StoreProgress(
                store_set.clock.stream,
                keeps,
                store.on_executors,
                store.tuples,
                usage.lookups,
                usage.hits,
                store.tiers.entries + sum(ref.rows for ref in store.refs),
                store.tiers.nbytes + sum(ref.bytes for ref in store.refs),
                spec.keeps_times,
            )
    return OnDemand(len(queries), stores, loop.lookup_cache.totals())


def _sharing(
    loop: BatchLoop, stream: str, state: State, queries: Iterable[str], slices: Mapping[int, int], last: Work
) -> Sharing:
    query_states = [state.queries[name] for name in queries if name in state.queries]
    sizes = Counter(query.homes[0] for query in query_states)
    read = {home for query in query_states for home in query.homes}
    planned = loop.planner.families(stream) if query_states else ()
    return Sharing(
        len(query_states),
        len(sizes),
        max(sizes.values(), default=0),
        dict(Counter(map(family_kind, planned))),
        sum(slices.get(home, 0) for home in read),
        work_done(state.stream(stream).work),
        work_done(last),
    )


def log_batch(loop: BatchLoop, report: BatchReport) -> None:
    """Log what a batch did and how the engine is."""
    if log.isEnabledFor(logging.INFO):
        outcome, rejected = report.outcome, report.outcome.timeless + report.outcome.ahead
        log.info(
            f"{report.stream or 'control'}: {outcome.rows} rows, {outcome.late} late, "
            f"{rejected} rejected, {report.results.rows} results; {progress_of(loop)}"
        )
