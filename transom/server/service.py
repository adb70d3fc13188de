"""A running engine as a service: what the API, the dashboard and the metrics use, without HTTP.

Every method may be called from any thread. Some wait for Spark (check, register, prod, lookup, late,
rejected, and results that are no longer in memory): a server calls them in threads of their own.

    Service
      EngineMonitor    starts and stops the engine, reports its state and progress
      StreamReports    the status of streams, late and rejected rows
      QueryCatalog     finds queries, describes them, reports their status
      QueryResults     reads results by cursor
      Previews         queries that run only while a user looks at them
      QueryAssistant   completion and example queries for those who write queries
      BatchHistory     rates, batch times and result counts
      ServedAlerts     alerts, silences and their sinks
      EarlierResults   results of batches before the service started
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from transom.api.errors import LimitError, NotFound
from transom.api.formats import ResultKind
from transom.api.records import (
    BatchInfo,
    CheckedQuery,
    CheckpointInfo,
    CheckpointPartInfo,
    CompletionAnswer,
    EditedQuery,
    EngineState,
    QueryDetail,
    QueryStatus,
    ServiceStatus,
    StreamColumns,
    StreamDetail,
    StreamStatus,
    SummaryStatus,
    TableStatus,
    ViewStatus,
)
from transom.api.result_chunk import ResultChunk
from transom.errors import FeedFullError, SettingError, StateError, near_miss
from transom.estimates import Accuracy
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed, QueryHandle
from transom.runtime.query_changes import checked_tags, checked_units
from transom.server.batch_history import BatchHistory
from transom.server.chart_hints import ChartHints
from transom.server.earlier_results import EarlierResults
from transom.server.engine_monitor import EngineMonitor
from transom.server.exports import of_kind
from transom.server.limits import ServiceLimits
from transom.server.previews import Previews, is_preview
from transom.server.pushed_rows import rows_of_body
from transom.server.query_assistant import QueryAssistant
from transom.server.query_catalog import QueryCatalog
from transom.server.query_description import description_of, sql_type
from transom.server.query_policy import refuse_costly
from transom.server.query_results import QueryResults
from transom.server.served_alerts import ServedAlerts
from transom.server.stream_reports import StreamReports
from transom.server.trends import Trend
from transom.sql.clauses.view import CreateViewStatement, read_view_statement
from transom.sql.editor.completion import KnownNames
from transom.sql.editor.example_queries import ExampleQuery
from transom.sql.editor.formatter import format_sql
from transom.sql.syntax.canonical import quote
from transom.state.promising import Coverage

LONGEST_NAME = 200
_BATCH_FIELDS = ("stream", "finished", "seconds", "spent", "rows", "late", "results")
FORBIDDEN_IN_NAMES = frozenset("/\\")  # names are segments of the API's paths


class Service:
    """An engine, the limits of its clients, and the operations that it offers them."""

    def __init__(self, engine: Engine, limits: ServiceLimits | None = None):
        self.engine, self.limits = engine, limits or ServiceLimits()
        self.history = BatchHistory(engine)
        self.monitor = EngineMonitor(engine, self.history)
        self.journal = engine.journal(self.limits.recent)
        self.earlier = EarlierResults(self.journal.loop.outputs, self.journal.end().batch_id)
        self.catalog = QueryCatalog(engine, self.history, self.earlier)
        self.previews = Previews(engine, self.limits.previews, self.catalog.forget)
        self.subscribers = 0  # readers that follow results; the event loop counts them
        self.assistant = QueryAssistant(engine, self.catalog)
        self.alerts = ServedAlerts(engine)
        self._streams = StreamReports(self.monitor)
        self._results = QueryResults(self.journal, self.catalog, self.earlier)
        self._bind_lock = threading.Lock()  # clients may send queries at once; they are bound one at a time

    # --- the engine ---

    def start(self) -> None:
        """Start the engine; drop previews that an earlier run left in the checkpoint."""
        self.previews.clear()
        self.earlier.start()
        self.monitor.start()

    def stop(self) -> None:
        """Drop previews and stop the engine after the current batch."""
        self.previews.clear()
        self.earlier.stop()
        self.monitor.stop()

    @property
    def state(self) -> EngineState:
        """The engine's state."""
        return self.monitor.state

    @property
    def failure(self) -> str | None:
        """Why the engine failed, or None."""
        return self.monitor.failure

    def status(self) -> ServiceStatus:
        """The state of the whole service."""
        return self.monitor.status(self.subscribers)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in the engine's thread after every batch and prod; returns a function that ends it."""
        return self.journal.listen(callback)

    # --- streams ---

    def streams(self) -> list[StreamStatus]:
        """The status of every stream."""
        return self._streams.statuses(self.queries())

    def stream(self, name: str) -> StreamDetail:
        """The status of one stream, how far its source was read, and what its queries missed."""
        return self._streams.detail(name, self.queries())

    def stream_columns(self, name: str) -> StreamColumns:
        """The columns of a stream, and what their values in a sample are like."""
        self._streams.check_name(name)
        return self.assistant.columns(name)

    def sample(self, stream: str, limit: int = 100) -> pa.Table:
        """Some of the newest rows of a stream; none if none are at hand."""
        self._streams.check_name(stream)
        rows = self.assistant.sample(stream)
        return rows.slice(max(rows.num_rows - self._row_limit(limit), 0))

    def tables(self) -> list[TableStatus]:
        """The static tables that queries can join."""
        return self.assistant.tables()

    # --- batches ---

    def batches(self, limit: int = 60) -> list[BatchInfo]:
        """The newest batches, the newest last: what they read and made, and what took the time."""
        return [
            BatchInfo(each.batch_id, *(getattr(each, name) for name in _BATCH_FIELDS))
            for each in self.history.batches(limit)
        ]

    def checkpoint(self) -> CheckpointInfo:
        """Where the checkpoint is, the last batch in it, and how large its parts are."""
        found = self.engine.checkpoint()
        parts = tuple(CheckpointPartInfo(part.name, part.files, part.bytes) for part in found.parts)
        size = sum(part.bytes for part in parts) if parts else None
        return CheckpointInfo(found.path, found.format, found.batch_id, size, parts)

    def push(self, stream: str, body: bytes, content_type: str) -> tuple[Feed, int, int]:
        """Push the rows of a request's body: the feed, how many rows, and a ticket for the feed's `committed`."""
        feed = self.engine.feeds().get(stream)
        if feed is None:
            self.stream(stream)  # raises if there is none
            raise SettingError(f"{stream} reads its rows from a source: declare it with push to push into it")
        limit = self.limits.pushed_rows
        if feed.waiting >= limit:  # before the body is parsed
            raise FeedFullError(f"{feed.waiting:,} rows wait to be processed: send more later")
        return feed, *feed.push_up_to(rows_of_body(body, content_type), limit)

    def late(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest late rows, each with the reason, the queries that missed it and the batch, the newest last."""
        return self._streams.late(stream, self._row_limit(limit))

    def late_windows(self, name: str) -> pa.Table:
        """The windows of a query that missed rows, and how many each missed; the newest windows last."""
        return self.catalog.handle(name).late()

    def late_rows(self, name: str, limit: int | None = None) -> pa.Table:
        """The newest rows that a query missed, each with the reason and the batch, the newest last."""
        rows = self.catalog.handle(name).late(rows=True)
        return rows.slice(max(rows.num_rows - self._row_limit(limit), 0))

    def rejected(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows without a usable time, each with the reason and the batch, the newest last."""
        return self._streams.rejected(stream, self._row_limit(limit))

    def file_problems(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest problems of a stream's files, the newest last."""
        return self._streams.file_problems(stream, self._row_limit(limit))

    # --- queries ---

    def queries(self) -> list[QueryStatus]:
        """The status of every query but previews, in the order of registration."""
        return [
            self.catalog.status(handle)
            for name, handle in self.engine.queries().items()
            if not is_preview(name)
        ]

    def query(self, name: str) -> QueryStatus:
        """The status of a query or a preview."""
        return self.catalog.status(self._handle(name))

    def query_detail(self, name: str) -> QueryDetail:
        """The same, with the planner's decisions about the query."""
        return self.catalog.detail(self._handle(name))

    def decision_counts(self) -> Counter[tuple[str, str]]:
        """How many decisions of the planner hold, by pass and kind."""
        return Counter((one.pass_name, one.kind) for one in self.engine.decisions())

    def text(self, name: str) -> str:
        """A query's text; it distinguishes the query from an earlier one of the same name."""
        return self._handle(name).text

    def check(self, sql: str) -> CheckedQuery:
        """Describe a query without registering it; raise the error that registering it would raise."""
        self._check_text(sql)
        with self._bind_lock:
            description = description_of(self.engine.check(sql))
            plan = self.engine.explain_text(sql)
        return CheckedQuery(
            kind=description.kind,
            streams=description.streams,
            window=description.window,
            columns=description.columns,
            early=description.early,
            plan=plan,
        )

    def complete(self, sql: str, cursor: int) -> CompletionAnswer:
        """What can be written at a place of a query's text, which may be unfinished."""
        self._check_length(sql)
        return self.assistant.complete(sql, cursor)

    def format(self, sql: str) -> str:
        """A query's text in the usual form."""
        self._check_length(sql)
        return format_sql(sql)

    def names(self) -> KnownNames:
        """The streams, tables, views, queries and functions that a query can name."""
        return self.assistant.names()

    def examples(self) -> list[ExampleQuery]:
        """Example queries over all streams, which fit their rows."""
        return self.assistant.examples()

    def register(
        self, sql: str, name: str | None = None, partial: bool = False, since: str | int | None = None
    ) -> QueryStatus:
        """Register a query; it joins with the next batch."""
        self._check_text(sql)
        if name is not None:
            check_name(name)
        with self._bind_lock:
            if len(self.engine.queries()) >= self.limits.queries:
                raise LimitError(f"there are {self.limits.queries:,} queries already: drop one first")
            return self.catalog.status(self.engine.register(sql, name, partial=partial, since=since))

    def register_all(
        self, queries: Mapping[str, str], partial: bool = False, since: str | int | None = None
    ) -> list[QueryStatus]:
        """Register many queries at once: all of them, or none if one is wrong."""
        for name, sql in queries.items():
            check_name(name)
            self._check_text(sql)
        with self._bind_lock:
            registered = self.engine.queries()
            if len({*registered, *queries}) > self.limits.queries:
                raise LimitError(
                    f"there are {len(registered):,} queries, and the limit is {self.limits.queries:,}"
                )
            handles = self.engine.register_all(queries, partial=partial, since=since)
            return [self.catalog.status(handle) for handle in handles.values()]

    def export(self, name: str, kind: ResultKind) -> pa.Table:
        """All results of a query that are retained, or the final or early ones among them.

        Final results of a query with EMIT CORRECTIONS are the corrected ones.
        """
        handle = self._handle(name)
        if kind is ResultKind.FINAL and handle.corrects:
            return handle.latest()
        return of_kind(handle.results(), kind)

    def drop(self, name: str) -> None:
        """Drop a query; it leaves with the next batch."""
        if is_preview(name):
            raise SettingError(f"{name} is a preview: end it instead")
        self._handle(name).drop()
        self.catalog.forget(name)

    def pause(self, name: str) -> None:
        """Let a query take no part in batches, from the next one on, until it is resumed."""
        self._refuse_preview(name)
        self._handle(name).pause()

    def resume(self, name: str) -> None:
        """Let a suspended or paused query take part in batches again, from the next one on."""
        self._handle(name).resume()

    def edit(self, name: str, sql: str, dry_run: bool = False) -> EditedQuery:
        """Give a query another text with the next batch; says what becomes of its open windows.

        With `dry_run` nothing changes.
        """
        self._refuse_preview(name)
        self._check_text(sql)
        with self._bind_lock:
            handle = self._handle(name)
            outcome = handle.edit(sql, dry_run=dry_run)
        return EditedQuery(
            self.catalog.status(handle),
            outcome.kept,
            outcome.changed,
            outcome.results_continue,
            outcome.message,
        )

    def change(
        self,
        name: str,
        to: str | None = None,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        paused: bool | None = None,
        units: Mapping[str, str] | None = None,
    ) -> QueryStatus:
        """Rename, describe, pause or resume a query with the next batch.

        What is None stays as it is.
        """
        self._refuse_preview(name)
        handle = self._handle(name)
        given_tags = None if tags is None else checked_tags(tags)
        if units:
            checked_units(units, handle.bound)
        if to is not None:
            check_name(to)
        if paused and handle.suspended is not None:
            raise StateError(f"the query {name} is suspended already: {handle.suspended}")
        if to is not None and to != name:  # first: what follows can't fail
            handle.rename(to)
        if paused is not None and paused != handle.paused:
            handle.pause() if paused else handle.resume()
        if description is not None or given_tags is not None or units is not None:
            handle.describe(description, given_tags, units)
        return self.catalog.status(handle)

    def follows(self, name: str, text: str) -> bool:
        """Whether a query is the one that had a text: it still has it, or an edit has left its columns as they were."""
        handle = self._handle(name)
        if handle.text == text:
            return True
        before = self.catalog.descriptions.get((name, text))
        if handle.edited is None or before is None:
            return False
        return before.schema == self.catalog.description(handle).schema

    def _refuse_preview(self, name: str) -> None:
        if is_preview(name):
            raise SettingError(f"{name} is a preview, which can't be changed")

    def explain(self, name: str | None = None, format: str = "text", verbose: bool = False) -> str:
        """The plan of one query or of all, as text, json or mermaid."""
        if name is None:
            return self.engine.explain(format, verbose)
        return self._handle(name).explain(format, verbose)

    def preview(self, sql: str) -> str:
        """Register a preview and return its name, which `results`, `prod`, `lookup` and `query` accept.

        A preview is in no list. It is dropped by `end_preview`, or when no client has used it for two
        minutes.
        """
        self._check_text(sql)
        with self._bind_lock:
            return self.previews.begin(sql)

    def end_preview(self, name: str) -> None:
        """Drop a preview."""
        self.previews.end(name)

    # --- results ---

    def results(self, name: str, cursor: str | None = None, limit: int | None = None) -> ResultChunk:
        """Results after a cursor, oldest first; without a cursor, from the first result.

        The words `start` and `end` are cursors too: before and after all results so far.
        """
        return self._results.read(self._handle(name), cursor, self._row_limit(limit))

    def in_memory(self, name: str, cursor: str) -> bool:
        """Whether the results after a cursor are in memory, so that reading them does not block."""
        return self._results.in_memory(self._handle(name), cursor)

    def recent(self, name: str, limit: int = 2_000) -> pa.Table:
        """The newest results, oldest first; some may be read back from the checkpoint."""
        return self._results.newest(self._handle(name), self._row_limit(limit))

    def trend(self, name: str, points: int = 40) -> Trend | None:
        """The first numeric value of the newest final results, if there is one; of one group, if there are groups."""
        return self._results.trend(self._handle(name), points)

    def chart_hints(self, name: str) -> ChartHints:
        """What a chart of a query needs to know beside its results."""
        handle = self._handle(name)
        return self.catalog.description(handle).hints.with_units(handle.units)

    def prod(
        self, name: str, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Early results of a query's open windows."""
        return self._handle(name).prod(until, at, where)

    def prod_all(
        self,
        queries: list[str] | None = None,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> dict[str, pa.Table]:
        """Early results of open windows of many queries, by name."""
        for name in queries or ():
            self._handle(name)
        results = self.engine.prod(stream, until, at, where, queries)
        return {name: table for name, table in results.items() if queries or not is_preview(name)}

    def lookup(
        self,
        name: str,
        range: str | int | None = None,
        rows: int | None = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer of an on-demand query, or of a past window of any query."""
        return self._handle(name).lookup(range, rows, at=at, where=where)

    def lookup_text(self, sql: str, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer of a query that is not registered."""
        self._check_text(sql)
        with self._bind_lock:
            return self.engine.lookup(sql, at=at, where=where)

    # --- early results and budgets ---

    def accuracy(self, name: str) -> Accuracy:
        """The accuracy of a query's early results."""
        return self._handle(name).accuracy()

    def tune(self, name: str, aggressiveness: float | None) -> None:
        """Emit early results when this share of the slide is left (0.25: after three quarters).

        None restores the setting of the query's text.
        """
        self._handle(name).tune(aggressiveness)

    def coverage(self, name: str) -> Coverage:
        """How a query with a preference has used its budget."""
        return self._handle(name).coverage()

    # --- summaries ---

    def summaries(self) -> dict[str, SummaryStatus]:
        """The status of every summary, by name."""
        return self.engine.summaries()

    def create_summary(self, sql: str) -> None:
        """Run CREATE SUMMARY."""
        self._check_text(sql)
        if not sql.lstrip().casefold().startswith("create"):
            raise SettingError("expected CREATE SUMMARY")
        self.engine.execute(sql)

    def drop_summary(self, name: str) -> None:
        """Drop a summary that no query reads."""
        names = self.engine.summaries()
        if name not in names:
            raise NotFound(f"there is no summary named {name}{near_miss(name, names)}")
        self.engine.execute(f"DROP SUMMARY {quote(name)}")

    # --- views ---

    def views(self) -> list[ViewStatus]:
        """The status of every view."""
        return [
            ViewStatus(
                view.name,
                view.text,
                view.stream,
                {column: sql_type(kind) for column, kind in view.columns.items()},
                view.readers,
            )
            for view in self.engine.views().values()
        ]

    def create_view(self, sql: str) -> str:
        """Run CREATE VIEW; the name of the view."""
        statement = read_view_statement(sql)
        if not isinstance(statement, CreateViewStatement):
            raise SettingError("expected CREATE VIEW")
        check_name(statement.name)
        self._check_text(statement.select)
        self.engine.execute(sql)
        return statement.name

    def drop_view(self, name: str) -> None:
        """Drop a view that nothing reads."""
        names = self.engine.views()
        if name not in names:
            raise NotFound(f"there is no view named {name}{near_miss(name, names)}")
        self.engine.execute(f"DROP VIEW {quote(name)}")

    # --- checks ---

    def _handle(self, name: str) -> QueryHandle:
        self.previews.touch(name)
        return self.catalog.handle(name)

    def _check_text(self, sql: str) -> None:
        self._check_length(sql)
        refuse_costly(sql)

    def _check_length(self, sql: str) -> None:
        if len(sql) > self.limits.sql:
            raise SettingError(f"the query has {len(sql):,} characters; the limit is {self.limits.sql:,}")

    def _row_limit(self, limit: int | None) -> int:
        if limit is not None and limit < 1:
            raise SettingError(f"a limit is at least 1, not {limit}")
        return min(limit or self.limits.rows, self.limits.rows)


def check_name(name: str) -> None:
    """Refuse a name that can't be a segment of a path, or that is reserved for previews."""
    is_plain = name.strip() == name and name.isprintable() and not FORBIDDEN_IN_NAMES & set(name)
    if not 0 < len(name) <= LONGEST_NAME or not is_plain or name in (".", ".."):
        raise SettingError(
            f"not a name: {name[:40]!r}; use up to {LONGEST_NAME} printable characters, without / and \\"
        )
    if is_preview(name):
        raise SettingError(f"names like {name} are reserved for previews")
