"""The engine: a program declares streams and tables, registers queries, runs batches, and reads results."""

from __future__ import annotations

import functools
import logging
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

import pyarrow as pa

from transom.aggregates.python_aggregates import PythonAlgebra, register_python_aggregate
from transom.alerts.events import ActiveAlert
from transom.api.parameters import with_parameters
from transom.api.records import SummaryStatus
from transom.backends.base import Backend
from transom.backends.choose import choose_backend
from transom.durations import parse_duration
from transom.elements import Prod, Punctuation
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.gc_pause import collect_after_growth, pause_garbage_collection
from transom.ingest.file_log import FileLog
from transom.ingest.source_description import SourceDescription
from transom.ingest.sources import SAMPLED_ROWS, FeedSource, visible
from transom.ingest.streams import StreamInfo, stream_info
from transom.plan.compiled_query import compile_query
from transom.plan.decisions import DecisionRecord
from transom.plan.explain.text_parts import counted
from transom.plan.limits import Limits
from transom.plan.passes import PASSES, Pass
from transom.plan.planner import Planner
from transom.runtime.alert_handles import AlertHandle, Alerting
from transom.runtime.backfill_start import backfill_starts
from transom.runtime.batch_report import BatchReport
from transom.runtime.batch_traces import BatchTraces
from transom.runtime.checkpoint_status import CheckpointStatus, checkpoint_status
from transom.runtime.delivery import Delivery
from transom.runtime.explain import explain_queries, explain_text
from transom.runtime.handles import EngineParts, Feed, QueryHandle
from transom.runtime.journal import Journal
from transom.runtime.lookups import Lookups
from transom.runtime.loop import BatchLoop
from transom.runtime.names import check_declared_name
from transom.runtime.notebook import SHOWN_QUERIES, html_table, titled
from transom.runtime.options import overload_rule, sharing_strategy
from transom.runtime.plan_decisions import all_decisions
from transom.runtime.preference_handle import PreferenceHandle, refuse_statement
from transom.runtime.prods import ProdAnswers, punctuation_of
from transom.runtime.progress import Progress, log_batch, progress_of
from transom.runtime.quality import guarded_quality
from transom.runtime.query_binder import QueryBinder
from transom.runtime.query_changes import QueryChanges
from transom.runtime.replay import Replay, ReplayOptions, replay_source
from transom.runtime.runner import Runner
from transom.runtime.stream_declaration import StreamDeclaration, prod_stream
from transom.runtime.summaries import run_summary_statement
from transom.runtime.summary_status import summary_reports
from transom.runtime.table_versions import TableVersions
from transom.runtime.views import ViewInfo, add_view, run_view_statement, view_infos
from transom.runtime.watermark_options import MOST_CLOCKS, WATERMARK_DEFAULTS, WatermarkOptions
from transom.sql.bound_query import BoundQuery
from transom.sql.catalog import Catalog
from transom.sql.clauses.query_parser import has_preference
from transom.sql.clauses.view import CreateViewStatement, is_view_statement
from transom.storage.file_store import Store

log = logging.getLogger("transom")


class Engine:
    """Runs standing window-aggregate queries over streams.

    `backend` is where it computes: on Spark, or (local) in this process alone, without a JVM. `spark` is a
    session to run in (none given: a local one is started), `checkpoint` a directory from
    which an engine continues as if it had never stopped (none given: a temporary one). `clock` tells the
    time in microseconds; tests set it. `retention` is for how long results can be read back: a number
    of batches or a duration; None keeps them all. `strategy` is how windows are computed: from paired
    slices, or naively by rescanning the rows of each window. `state` is where slices are kept: on the
    driver, on the executors, or (auto) wherever their number says. `limits` are the numbers by which the
    planner decides; they change costs, not answers. `passes` are those of the planner, in their order: a
    program adds its own behind `transom.plan.passes.PASSES`. `sync` is whether a batch waits until its files are
    on disk: without it a batch is faster, and a power failure (but no killed process) can damage the last ones.
    `batch_deadline` is the time that a batch, a prod or a lookup may take before it is cancelled, and the query
    that is the cause is suspended; None: any. `traces` is whether each batch is a span of OpenTelemetry (True), or
    the tracer provider for these spans.
    """

    def __init__(
        self,
        spark: Any = None,
        checkpoint: str | None = None,
        *,
        backend: str | Backend = "spark",
        clock: Callable[[], int] | None = None,
        retention: int | str | None = None,
        strategy: str = "auto",
        fragments: str = "families",
        state: str = "auto",
        limits: Limits | None = None,
        passes: Sequence[Pass] = PASSES,
        poll: str | int = "200 ms",
        max_failures: int = 3,
        sync: bool = True,
        batch_deadline: str | int | None = None,
        traces: Any = False,
    ):
        planner = Planner(sharing_strategy(strategy, fragments, state, limits), passes)
        self._backend = choose_backend(backend, spark, limits)
        store = Store(checkpoint, sync) if checkpoint is not None else Store.temporary()
        if checkpoint is None:
            weakref.finalize(self, Store(store.uri).delete)
            if not self._backend.shares_disk:
                log.warning("no checkpoint: the executors must be able to read and write %s", store.uri)
        clock = clock or (lambda: time.time_ns() // 1000)
        self._loop = BatchLoop(self._backend, store, clock, max_failures, planner, strategy == "naive")
        if batch_deadline is not None:
            self._loop.deadline = parse_duration(batch_deadline) / 1e6
        self._loop.followers.append(functools.partial(log_batch, self._loop))
        self._traces = BatchTraces.of(traces, self._backend.name) if traces else None
        if self._traces is not None:
            self._loop.followers.append(self._traces.committed)
            self._loop.failure_followers.append(self._traces.failed)
        self._runner = Runner(self._loop, parse_duration(poll) / 1e6)
        in_batches = isinstance(retention, int)
        kept = parse_duration(retention) if isinstance(retention, str) else retention
        self._delivery = Delivery(self._loop, kept, in_batches)
        prods = ProdAnswers(self._loop, self._delivery)
        self._binder = QueryBinder(self._loop)
        changes = QueryChanges(self._loop, self._binder.bind_text, self._runner.wake)
        self._parts = EngineParts(
            self._loop, self._delivery, prods, Lookups(self._loop), changes, self._runner.wake
        )
        self._tables = TableVersions(self._loop)
        self.alerting = Alerting(self._loop, lambda name: self.query(name).bound, self._runner.wake)

    @property
    def spark(self) -> Any:
        """The Spark session that the engine runs in; only the Spark backend has one."""
        session = self._backend.session
        if session is None:
            raise StateError(f"the {self._backend.name} backend has no Spark session")
        return session

    def __repr__(self) -> str:
        declared = [name for name, stream in self._loop.declared.queried().items() if stream.derived is None]
        streams = ", ".join(declared) or "no streams"
        return f"<engine ({self._backend.name}) with {counted(len(self.queries()), 'query', 'queries')} over {streams}>"

    def _repr_html_(self) -> str:
        """The engine in a notebook: its streams and its queries."""
        streams = [
            (name, ", ".join(f"{column} {kind}" for column, kind in stream.columns.items()))
            for name, stream in self._loop.declared.queried().items()
        ]
        queries = [(name, query.text, query.suspended or "") for name, query in self.queries().items()]
        more = (
            f"<p>and {len(queries) - SHOWN_QUERIES:,} more queries</p>"
            if len(queries) > SHOWN_QUERIES
            else ""
        )
        return titled(
            f"engine ({self._backend.name}): {counted(len(queries), 'query', 'queries')}",
            html_table(["stream", "columns"], streams),
            html_table(["query", "SQL", "suspended"], queries[:SHOWN_QUERIES]) + more,
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # --- declarations ---

    def stream(
        self,
        name: str,
        source: Any = None,
        *,
        time: str,
        time_unit: str | None = None,
        slack: Any = "default",
        horizon: Any = "default",
        live: bool = False,
        max_ahead: Any = "default",
        idle: Any = None,
        punctuation: str | None = None,
        prod: str | None = None,
        overload: str | None = None,
        budget: int | str | None = None,
        share: int = 3,
        partition: str | None = "default",
        partition_idle: Any = "1 minute",
        watermark_by: str | None = None,
        watermark_clocks: int = MOST_CLOCKS,
        slack_start: Any = "default",
        slack_min: Any = None,
        slack_max: Any = None,
        retain: Any = None,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        decode: str | Mapping[str, Any] | None = None,
        select: str | None = None,
        files_per_batch: int = 1,
    ) -> None:
        """Declare a stream: a streaming DataFrame, a batch DataFrame (a finite stream), a path of
        json, csv or parquet files, or (without a source) a format of Spark such as kafka with its options.

        `time` is the column of its event time, or an expression such as `event.ts` or `to_timestamp(text)`; with a
        `time_unit` (s, ms, us), whole numbers of that unit since 1970. `slack` is the disorder to wait for (by
        default nothing; None: windows close by punctuations alone; a mapping gives other columns a slack of
        their own), `horizon` how far a row may be ahead of the stream before it is rejected, `live` whether it
        may also not be that far ahead of the clock, `max_ahead` how far it may be ahead of the clock in any case
        (by default 1 day; None: any distance), `idle` the time without data after which windows close,
        `punctuation` a condition that marks rows as punctuations, `prod` one that marks rows as prods.

        `overload` says what becomes of rows beyond a batch's `budget` (a number of rows, or a time such as
        "2 s"): "sideline" stores the trailing rows of bursts and resumes one of them for every `share`
        new rows, or when none come; "shed" drops them.

        `partition` is an expression over a row: the watermark follows the partition that is furthest behind, of those
        that brought a row within `partition_idle` (None: of all). By default these are the partitions of a topic of
        Kafka, and other sources have none. `watermark_by` is a column: each of its values has a clock of its own, and
        windows of queries that group by it close group by group. `watermark_clocks` is the most clocks of either kind.

        A `slack` such as "99.9%" is learned: so large that this share of the rows is in time. It begins with
        `slack_start` (1 minute), and stays from `slack_min` to `slack_max`.

        `retain` is for how long of the stream's time its accepted rows are kept under the checkpoint, such as "7 days",
        so that queries that are registered later can ask for the past (`since`).

        `format`, `schema` and `options` are Spark's; `${env:NAME}` and `${file:PATH}` in an option stand for secrets.
        `decode` (json, csv, avro, protobuf, or a mapping) says how the column `value` becomes columns, and `select`
        is an SQL view over the rows: `SELECT ... FROM name WHERE ...`. `files_per_batch` is about a path of files.
        """
        described = SourceDescription(name, source, format, schema, options, decode, select, files_per_batch)
        rows_source = described.open_stream(self._backend)
        rule = overload_rule(overload, budget, share)
        watermark = WatermarkOptions(
            partition, partition_idle, watermark_by, watermark_clocks, slack_start, slack_min, slack_max
        )
        self._declare(
            StreamDeclaration(
                name,
                rows_source,
                time,
                time_unit=time_unit,
                slack=slack,
                horizon=horizon,
                live=live,
                idle=idle,
                overload=rule,
                max_ahead=max_ahead,
                markers={Punctuation: punctuation, Prod: prod},
                left_out=self._backend.unsupported_columns(source),
                watermark=watermark,
                retain=retain,
            )
        )

    def feed(
        self,
        name: str,
        schema: str,
        *,
        time: str,
        time_unit: str | None = None,
        slack: Any = "default",
        horizon: Any = "default",
        live: bool = False,
        max_ahead: Any = "default",
        idle: Any = None,
        punctuation: str | None = None,
        prod: str | None = None,
        overload: str | None = None,
        budget: int | str | None = None,
        share: int = 3,
        partition: str | None = None,
        partition_idle: Any = "1 minute",
        watermark_by: str | None = None,
        watermark_clocks: int = MOST_CLOCKS,
        slack_start: Any = "default",
        slack_min: Any = None,
        slack_max: Any = None,
        retain: Any = None,
    ) -> Feed:
        """Declare a stream that this program pushes into; options as of `stream`."""
        source = FeedSource(self._backend, self._loop.store, name, self._backend.parse_schema(schema))
        rule = overload_rule(overload, budget, share)
        watermark = WatermarkOptions(
            partition, partition_idle, watermark_by, watermark_clocks, slack_start, slack_min, slack_max
        )
        self._declare(
            StreamDeclaration(
                name,
                source,
                time,
                time_unit=time_unit,
                slack=slack,
                horizon=horizon,
                live=live,
                idle=idle,
                overload=rule,
                max_ahead=max_ahead,
                markers={Punctuation: punctuation, Prod: prod},
                watermark=watermark,
                retain=retain,
            )
        )
        return Feed(self._parts, name, source)

    def feeds(self) -> dict[str, Feed]:
        """The streams that a program pushes into, by name."""
        streams = self._loop.declared.streams.items()
        return {
            name: Feed(self._parts, name, stream.source)
            for name, stream in streams
            if isinstance(stream.source, FeedSource)
        }

    def push(self, stream: str, rows: pa.Table | Iterable[Any]) -> int:
        """Push rows into a stream that was declared with `feed`, as its `push` does; how many there were."""
        return self._feed(stream).push(rows)

    def _feed(self, name: str) -> Feed:
        feeds = self.feeds()
        if name in feeds:
            return feeds[name]
        if name in self._loop.declared.streams:
            raise SettingError(
                f"{name} reads its rows from a source: only a stream that is declared as a feed is pushed"
            )
        raise SettingError(f"there is no feed named {name}{near_miss(name, feeds)}")

    def replay(self, name: str, source: Any, *, time: str, **options: Unpack[ReplayOptions]) -> Replay:
        """Declare a recorded stream that comes again, by its times, `speed` times as fast as it came.

        The source is a path of files, a batch DataFrame or an Arrow table. Rows come at random up to
        `delay` late, or held back and all at once (`burst`). `drain` delivers the rest at once.
        """
        self._check_new(name)
        loop = self._loop
        replayed, settings = replay_source(self._backend, loop.store, name, source, time, loop.clock, options)
        self._declare(
            StreamDeclaration(
                name,
                replayed,
                time,
                slack=settings["slack"],
                horizon=settings["horizon"],
                idle=settings["idle"],
                overload=overload_rule(settings["overload"], settings["budget"], settings["share"]),
                max_ahead=settings["max_ahead"],
                markers={Punctuation: settings["punctuation"], Prod: settings["prod"]},
                watermark=WatermarkOptions(**{option: settings[option] for option in WATERMARK_DEFAULTS}),
                retain=settings["retain"],
            )
        )
        return Replay(name, replayed)

    def prods(
        self,
        name: str,
        source: Any = None,
        *,
        of: str,
        until: str | None = None,
        at: str | None = None,
        where: Mapping[str, str] | Iterable[str] = (),
        on: str | None = None,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        decode: str | Mapping[str, Any] | None = None,
        select: str | None = None,
    ) -> None:
        """Declare a stream whose rows become prods of the stream `of`.

        `until` or `at` is the column of a prod's time, `where` the columns of its pattern (a mapping gives
        them the names that they have in the prodded stream); null matches everything. The source is described as
        for `stream`.
        """
        if until is not None and at is not None:
            raise SettingError("a prod is for the windows up to a time (until) or for the one at a time (at)")
        if of not in self._loop.declared.queried():
            raise SettingError(f"there is no stream named {of}{near_miss(of, self._loop.declared.queried())}")
        target = self._loop.declared.streams[of]
        described = SourceDescription(name, source, format, schema, options, decode, select)
        prod_source = described.open_stream(self._backend)
        stream = prod_stream(name, prod_source, target, until, at, where, on)
        self._check_new(name)
        self._loop.declare(stream)

    def _declare(self, declaration: StreamDeclaration) -> None:
        self._check_new(declaration.name)
        self._loop.declare(declaration.checked(self._backend.scalars))

    def _check_new(self, name: str) -> None:
        if self._runner.running:
            raise StateError("streams are declared before the engine is started")
        check_declared_name(self._loop, name)

    def table(
        self,
        name: str,
        source: Any = None,
        *,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        select: str | None = None,
        refresh: str | int | None = None,
    ) -> None:
        """Declare a static table to join with, or give it a new version, which batches from now on see.

        The source is a batch DataFrame, a path of files, an Arrow table, a list of mappings, or (without a source) a
        format of Spark such as jdbc with its options. `select` is an SQL view over its rows, as for `stream`. With
        `refresh`, a running engine reads it again at this interval.
        """
        interval = None if refresh is None else parse_duration(refresh)
        if interval is not None and interval <= 0:
            raise SettingError(f"refresh must be a positive duration, not {refresh!r}")
        described = SourceDescription(name, source, format, schema, options, select=select)
        if name not in self._loop.declared.versions:
            check_declared_name(self._loop, name)
        self._tables.declare(described, None if interval is None else interval / 1e6)
        if self._runner.running:
            self._tables.start_refreshing()

    def refresh(self, name: str) -> bool:
        """Read a static table again, from the source that it was declared with; whether it has changed."""
        return self._tables.refresh(name)

    def udf(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Register a Python function for queries to call. Where it raises, it gives null, and the query
        that called it is suspended when that happens in several batches in a row."""
        self._backend.register_function(name, function, returns)
        self._loop.declared.functions.add(name.casefold())

    def aggregate(
        self,
        name: str,
        *,
        identity: Any,
        lift: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        lower: Callable[[Any], Any],
        state: str,
        returns: str,
        samples: Sequence[Any],
    ) -> None:
        """Register an aggregate for queries to call: `lift` makes a state of a value, `combine` one of two, and
        `lower` a result of a state; `identity` is the state of no values. `state` and `returns` are Spark types.
        The laws that sharing rests on are checked with the samples. A query whose aggregate raises is suspended."""
        types = self._backend.parse_schema(f"state {state}, returns {returns}")
        algebra = PythonAlgebra(
            name.lower(), types["state"], types["returns"], identity, lift, combine, lower
        )
        register_python_aggregate(algebra, samples)

    def quality(self, name: str, function: Callable[[Any, Any, float], float]) -> None:
        """Declare how good an early value is, for queries that say QUALITY and its name.

        The function is given the early value, the final one and the seconds between them, and says how good
        the early one was: 1 for as good as the final, 0 for worthless. Where it raises, nothing is judged.
        """
        if not re.fullmatch(r"[^\W\d]\w*", name):
            raise SettingError(f"not a name: {name!r}; use letters, digits and _")
        if not callable(function):
            raise SettingError(f"the quality {name} is {function!r}, expected a function")
        self._loop.declared.qualities[name.casefold()] = guarded_quality(name, function)

    # --- registration ---

    def register(
        self,
        sql: str,
        name: str | None = None,
        *,
        partial: bool = False,
        parameters: Mapping[str, Any] | None = None,
        since: Any = None,
    ) -> QueryHandle:
        """Register a query; it joins with the next batch.

        A query that joins a running stream reports from the first window of which it saw everything;
        `partial` asks for earlier windows too, marked as not complete. `parameters` are the values of `:name`
        in the text; the registered text has constants in their place. With `since` (a time, or "24 hours ago", counted
        back from the stream's newest row) the rows that the stream retains are replayed first: the query has the
        results of one that was there since then.
        """
        sql = with_parameters(sql, parameters)
        if name is None:
            name = self._loop.directory.free_name(sql)
        try:
            return self.register_all({name: sql}, partial=partial, since=since)[name]
        except SQLError as error:
            raise SQLError(
                error.message.removeprefix(f"{name}: "), error.text, error.start, error.end
            ) from None

    def register_all(
        self, queries: Mapping[str, str], *, partial: bool = False, since: Any = None
    ) -> dict[str, QueryHandle]:
        """Register many queries at once: all of them, or none if one is wrong."""
        loop = self._loop
        bound, preference_queries = self._binder.bind_new(queries, partial)
        starts = backfill_starts(loop, bound, preference_queries, since, partial, self._backend.time_zone)
        self._binder.warn_of_missing_budgets(bound)
        naive = loop.directory.registry.naive
        with pause_garbage_collection():
            compiled = {name: compile_query(name, query, naive).prepare() for name, query in bound.items()}
        joining = loop.directory.register(queries, bound, preference_queries, compiled, partial, starts)
        collect_after_growth(joining, len(loop.directory.texts))
        self._wake()
        return {
            name: PreferenceHandle(self._parts, name, text, preference_queries[name])
            if name in preference_queries
            else QueryHandle(self._parts, name, text, bound[name])
            for name, text in queries.items()
        }

    def check(self, sql: str, *, parameters: Mapping[str, Any] | None = None) -> BoundQuery:
        """The query that a text would be, if it were registered now; raises what is wrong with it."""
        if not isinstance(sql, str):
            raise SettingError(f"a query is a text, not {sql!r}")
        return self._binder.bind_text("", with_parameters(sql, parameters))

    def view(self, name: str, sql: str) -> None:
        """Create a view: a SELECT that filters and projects a stream or another view, for queries to read by its name.

        It is inlined into these queries. A view that is there already with the same text, perhaps from an
        earlier run, stays as it is.
        """
        add_view(self._loop, CreateViewStatement(name, sql.strip().rstrip(";").rstrip(), 0, 0))
        self._wake()

    def execute(self, statement: str) -> None:
        """Run CREATE VIEW, DROP VIEW, CREATE SUMMARY or DROP SUMMARY; it takes effect with the next batch.

        A view or a summary that is there already with the same text, perhaps from an earlier run, stays as it is.
        """
        if is_view_statement(statement):
            run_view_statement(self._loop, statement)
        else:
            run_summary_statement(self._loop, statement)
        self._wake()

    # --- control ---

    def punctuate(
        self,
        stream: str,
        until: Any,
        since: Any = None,
        where: Mapping[str, Any] | None = None,
        on: str | None = None,
    ) -> None:
        """No more rows with a time from `since` to `until` that match `where` will come.

        `on` names the column that the times are of, if it is not the stream's own time.
        """
        declared = self._loop.declared.stream(stream)
        punctuation = punctuation_of(declared, until, since, where, on, self._backend.time_zone)
        if isinstance(declared.source, FeedSource):
            declared.source.control(punctuation)
        else:
            self._loop.directory.push([punctuation])
        self._wake()

    def start(self) -> None:
        """Process batches in the background until stopped."""
        self._runner.start()
        self._tables.start_refreshing()

    def stop(self) -> None:
        """Stop; what is committed is kept, and a new engine on the same checkpoint continues from there."""
        self._tables.stop_refreshing()
        self._runner.stop()
        self.alerting.stop()
        self._backend.stop()
        if self._traces is not None:
            self._traces.stop()

    @property
    def overdue(self) -> float | None:
        """For how many seconds a batch has been running beyond its deadline, if it has."""
        return self._loop.overdue

    @property
    def running(self) -> bool:
        """Whether batches are processed in the background."""
        return self._runner.running

    @property
    def failure(self) -> BaseException | None:
        """What made it stop, if it failed."""
        return self._runner.failure

    @property
    def lost_backend(self) -> bool:
        """Whether it failed because its backend has ended: Spark's JVM."""
        failure = self.failure
        return failure is not None and self._backend.is_fatal(failure)

    @property
    def warning(self) -> str | None:
        """What keeps the current batch waiting, if something does: the process has no file descriptors left."""
        return self._runner.shortage.warning

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the engine is stopped, or for some seconds; raises what made it fail."""
        return self._runner.await_termination(timeout)

    def step(self, batches: int | None = None, *, empty: bool = False) -> int:
        """Process what was pushed and what waits, batch by batch, in this thread; how many batches that was.

        With `batches`, at most so many. With `empty`, a batch without rows is committed if there is no other.
        """
        return self._runner.step(batches, empty)

    def flush(self, stream: str) -> None:
        """Close every open window of a stream with the next batch, as if the stream ended there.

        Rows of these windows that come afterwards are late.
        """
        self._loop.ends.end([self._loop.declared.stream(stream).name])
        self._wake()

    def drain(self, close: bool | None = None) -> None:
        """Process all that is available, close every window of streams that end, and stop.

        Feeds, batch DataFrames and paths end here; Spark streams do not, unless `close` is True. With
        False, no window is closed.
        """
        self._runner.drain(close)

    def _wake(self) -> None:
        self._runner.wake()

    # --- queries and their results ---

    def query(self, name: str) -> QueryHandle:
        """A registered query, also one that came with the checkpoint."""
        return self._handle(name, self._loop.directory.text(name))

    def queries(self) -> dict[str, QueryHandle]:
        """All registered queries by name."""
        return {name: self._handle(name, text) for name, text in dict(self._loop.directory.texts).items()}

    def _handle(self, name: str, text: str) -> QueryHandle:
        kind = PreferenceHandle if has_preference(text) else QueryHandle
        return kind(self._parts, name, text)

    def prod(
        self,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: Iterable[str] | str | None = None,
        on: str | None = None,
    ) -> dict[str, pa.Table]:
        """Early results of open windows from the last committed batch, by query.

        `until` asks for the windows that end by then, `at` for the last of those only, neither for all that
        hold rows; `where` is a pattern on the groups. Of one stream (or the results of a query that others
        read) or of all, of some queries or of all.
        """
        names = [queries] if isinstance(queries, str) else queries
        chosen = None if names is None else tuple(self._prodded_query(name) for name in names)
        bound = None if chosen is None else (self.query(name).bound for name in chosen)
        prods = self._parts.prods
        return prods.prod(prods.streams(stream, bound), until, at, where, chosen, on)

    def _prodded_query(self, name: str) -> str:
        query = self.query(name)
        if query.has_preference:
            query.prod()  # raises the reason why it can't be prodded
        return query.name

    def lookup(
        self,
        sql: str,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer of a query that need not be registered, from the last committed batch.

        A query without SLIDE is answered from what registered queries keep: the same tuples and attributes, by the
        same or finer groups, with a window at least as long. Otherwise, and for queries with SLIDE and windows of the
        past, the rows that the stream retains are read. `at` (or AS OF in the text) and `where` are as in a query's
        `lookup`. The metadata `stores` of the table's schema names what answered.
        """
        sql = with_parameters(sql, parameters)
        refuse_statement(sql)
        return self._parts.lookups.text(sql, at, where)

    def late(self, stream: str) -> pa.Table:
        """The rows that some query missed: a window that they belong to was closed when they arrived.

        Each is listed once, with the reason, the names of the queries that missed it (missed_by) and the batch.
        """
        registry = self._loop.directory.registry
        renamed = {(e.origin, e.since): e.name for e in registry if e.origin is not None}
        return self._loop.outputs.rows.late(self._loop.declared.stream(stream), renamed=renamed)

    def rejected(self, stream: str) -> pa.Table:
        """The rows without a usable time, with the reason and the batch."""
        return self._loop.outputs.rows.rejected(self._loop.declared.stream(stream))

    def file_problems(self, stream: str) -> pa.Table:
        """What was wrong with the files of a stream, the newest last: files that can't be read and were left out,
        columns that are missing or new, and files that changed after they were read. Other streams have none."""
        log = self._loop.declared.stream(stream).source.file_log
        return FileLog().table() if log is None else log.table()

    def journal(self, limit: int = 64 << 20) -> Journal:
        """The results of all queries in the order in which they are made from now on, for readers with
        cursors. At most `limit` bytes of the newest are in memory; older ones are read from the checkpoint."""
        journal = Journal(self._loop, limit)
        self._parts.prods.journals.append(journal)
        return journal

    def follow(self, callback: Callable[[BatchReport], None]) -> Callable[[], None]:
        """Call back with every batch that is committed, in the engine's thread; returns a function that ends it."""
        followers = self._loop.followers
        followers.append(callback)
        return lambda: followers.remove(callback) if callback in followers else None

    def alert(self, name: str, query: str | QueryHandle, **terms: Any) -> AlertHandle:
        """Create an alert that fires while the HAVING of a query is true, for each of its groups.

        Terms are `for_windows`, `resolve_after`, `repeat_every`, `labels`, `annotations` and `sinks`, as those of
        `alerting.alert`. Silences and the sinks of alerts are in `alerting`.
        """
        query = query.name if isinstance(query, QueryHandle) else query
        return self.alerting.alert(name, query, **terms)

    def alerts(self) -> list[ActiveAlert]:
        """The groups of alerts that are firing or pending, those that fire first."""
        return self.alerting.active()

    def sink(self, format: str, path: str | None = None, **options: Any) -> None:
        """Write the results of all queries, in one schema, with any writer of the backend."""
        self._delivery.sink(None, format, path, options)

    # --- status ---

    def streams(self) -> dict[str, StreamInfo]:
        """The streams that queries can read, by name."""
        now = self._loop.clock()
        return {name: stream_info(stream, now) for name, stream in self._loop.declared.queried().items()}

    def catalog(self) -> Catalog:
        """The names that queries can use: streams, static tables, views and functions."""
        return self._loop.directory.catalog()

    def sample(self, stream: str, rows: int = SAMPLED_ROWS) -> pa.Table:
        """Some of the newest rows of a stream, to see what they are like; none if none are at hand."""
        declared = self._loop.declared.stream(stream)
        names = list(visible(declared.columns))
        frame = declared.source.sample()
        if frame is None:
            return pa.schema(list(declared.columns.items())).empty_table().select(names)
        return declared.with_time(frame).first(rows).select(names)

    def checkpoint(self) -> CheckpointStatus:
        """Where the checkpoint is, the last batch in it, and how large its parts are."""
        return checkpoint_status(self._loop)

    def summaries(self) -> dict[str, SummaryStatus]:
        """The summaries by name: what they keep, and in which structure."""
        self._loop.directory.bind()
        return summary_reports(self._loop)

    def views(self) -> dict[str, ViewInfo]:
        """The views by name: what they select, and which queries read them."""
        return view_infos(self._loop)

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """How the registered queries are computed together: as text, json or mermaid.

        Text and drawings show what matters; `verbose` shows all of it.
        """
        return explain_queries(self._loop, format, verbose)

    def explain_text(self, sql: str) -> str:
        """How a query would be computed if it was registered now, and with which queries it would share."""
        return explain_text(self._loop, sql)

    def decisions(self) -> list[DecisionRecord]:
        """What the planner decided about the queries of the last committed batch, and why, pass by pass."""
        return all_decisions(self._loop)

    def progress(self) -> Progress:
        """The engine after its last committed batch: rows, lateness, watermarks, windows, times, state."""
        return progress_of(self._loop)
