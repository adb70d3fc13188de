"""Backfills: retained rows are replayed for a query that asks for the past, until it has caught up.

A backfill runs the batches that the log of a stream retains, in their order, over a state that holds the new query
alone. What was closed before and after each batch is read from the log, so that a row is late if it was late for a
query that had always been there. When the last committed batch is replayed, the next batch adopts the state, and
the results of windows that closed meanwhile are results of that batch. Nothing of this is stored before: a process
that dies begins the replay again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.backends.base import Backend
from transom.backends.expressions import at_clock
from transom.elements import Adopt
from transom.errors import StateError
from transom.ingest.batch import DataBatch, IngestRun
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.kernel.aggregate import Outcome
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.plan.strategy import Place, Strategy
from transom.results.batch_input import BatchInput
from transom.results.emit import EmitBackend, EmitContext, emit
from transom.results.result_rows import Moment, ResultBatch, Stored
from transom.results.shard_work import ShardWork
from transom.runtime.declarations import Declared
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import RegisteredQuery
from transom.runtime.row_history import RowHistory
from transom.sql.catalog import Scalars
from transom.state.retained_rows import RetainedBatch, RetainedFile, RetainedRows
from transom.state.state import ClockState, State, StreamState
from transom.windows.closed_time import Closed
from transom.windows.ids import wid_from, window_end
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules

log = logging.getLogger("transom")

JOINED_ROWS = 20_000  # most rows of batches that are replayed together: live batches wait for them


@dataclass(frozen=True)
class BackfillProgress:
    """How far retained rows were replayed for a query: since which time, and so many of all batches and rows."""

    since: int
    batches: int
    all_batches: int
    rows: int
    all_rows: int

    @property
    def share(self) -> float:
        """The part of the rows that was replayed."""
        return self.rows / self.all_rows if self.all_rows else 0.0


@dataclass
class _DriverOnly(EmitBackend):
    """What emit needs while batches are replayed: all state is on the driver, and no query reads another."""

    scalars: Scalars

    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        return {}, 0

    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        return {}

    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        raise AssertionError("a replayed query reads no results")


class Backfill:
    """The replay of retained batches for one query, a batch at a time."""

    def __init__(
        self,
        query: CompiledQuery,
        stream: Stream,
        since: int,
        history: RowHistory,
        backend: Backend,
        tables: StaticTables,
        strategy: Strategy,
    ):
        self.stream, self.since, self.history, self.backend, self.tables = (
            stream,
            since,
            history,
            backend,
            tables,
        )
        self.query = replace(query, query=replace(query.query, emit=None))  # only finals are replayed
        self.rules: StreamRules = replace(
            stream.rules, horizon=None, overload=None, max_ahead=None, live=False, partition=None
        )
        self.planner = Planner(replace(strategy, place=Place.DRIVER))
        self.results: list[ResultBatch] = []
        self.replayed, self.rows = 0, 0  # batches and rows
        self.first: int | None = None  # the first batch that was replayed
        self.last = 0  # the last one
        self._loaded: Iterator[tuple[RetainedBatch, int, pa.Table | None]] = iter(())
        texts = query.query.scalar_texts
        self._reads_clock = any(at_clock(text, 0) != text for text in texts)
        joining = Membership({self.query.name: self.query}, [self.query])
        self.state = self.planner.begin(State(), joining)
        own = self.state.queries[self.query.name]
        unseen = self._retained().missed | IntervalSet.of((LOWEST, since))
        own = replace(own, unseen=unseen).for_window(query.query.window.range)
        self.state = replace(self.state, queries={self.query.name: own})

    def _retained(self) -> RetainedRows:
        return self.history.committed.get(self.stream.name, RetainedRows())

    def _next_file(self) -> RetainedFile | None:
        """The next file with batches to replay."""
        files = self._retained().files
        return next((file for file in files if file.last > self.last and self._counts(file)), None)

    def _counts(self, file: RetainedFile) -> bool:
        """Whether a file is replayed: it has rows since the wanted time, or a file before it has."""
        if self.first is not None:
            return file.last >= self.first
        return file.high is not None and file.high >= self.since

    def progress(self) -> BackfillProgress:
        """How far the replay has come."""
        files = [file for file in self._retained().files if self._counts(file)]
        batches, rows = sum(file.batches for file in files), sum(file.rows for file in files)
        return BackfillProgress(
            self.since, self.replayed, max(self.replayed, batches), self.rows, max(self.rows, rows)
        )

    def step(self) -> bool:
        """Replay the next batch, or some that have the same effect together; False if there is none."""
        for batch, batches, rows in self._loaded:
            self._replay(batch, rows)
            self.replayed += batches
            return True
        file = self._next_file()
        if file is None:
            return False
        self._loaded = self._batches(file)
        return self.step()

    def _batches(self, file: RetainedFile) -> Iterator[tuple[RetainedBatch, int, pa.Table | None]]:
        """The batches of a file that were not replayed yet; neighbours that may be replayed together are one."""
        batches, table = self.history.read(file)
        start = sum(batch.rows for batch in batches if batch.batch_id <= self.last)
        run: list[RetainedBatch] = []
        for batch in [batch for batch in batches if batch.batch_id > self.last]:
            if run and (
                self._reads_clock or not _may_join(run, batch) or not self._is_in_time(batch, run[-1])
            ):
                yield _joined(run), len(run), _rows_of(table, start, run)
                start, run = start + sum(one.rows for one in run), []
            run.append(batch)
        if run:
            yield _joined(run), len(run), _rows_of(table, start, run)

    def _is_in_time(self, batch: RetainedBatch, last: RetainedBatch) -> bool:
        """Whether no row of a batch is late for a window that was closed after the batch before."""
        closed, window = last.after.watermark(), self.query.query.window
        if batch.low is None or closed is None or batch.low >= closed:
            return True
        return not window.is_session and int(window_end(window, wid_from(window, batch.low))) > closed

    def _replay(self, batch: RetainedBatch, rows: pa.Table | None) -> None:
        """Run a batch as it was run then, for the new query alone."""
        stream = self.state.stream(self.stream.name)
        if self.first is None:
            self.first = batch.batch_id
            self._close_at_once(stream, batch.before)
        elif stream.clock(self.rules.clock).closed != batch.before:
            self._emit(BatchInput(self.rules, [self.query], clock=batch.clock, closed=batch.before))
        outcome = Outcome()
        if rows is not None:
            outcome = self._aggregated(batch, rows)
        if batch.shed:
            self._shed(batch.shed)
        given = BatchInput(
            self.rules, [self.query], outcome, ended=batch.ended, clock=batch.clock, closed=batch.after
        )
        self._emit(given)
        self.last, self.rows = batch.batch_id, self.rows + batch.rows

    def _close_at_once(self, stream: StreamState, closed: Closed) -> None:
        """Begin with what was closed before the first batch."""
        clocks = {self.rules.clock: ClockState(closed=closed)}
        self.state = replace(
            self.state,
            streams={**self.state.streams, self.stream.name: replace(stream, clocks=clocks)},
        )

    def _shed(self, times: IntervalSet) -> None:
        stream = self.state.stream(self.stream.name)
        clock = self.rules.clock
        clocks = {**stream.clocks, clock: stream.clock(clock).with_shed(times)}
        self.state = replace(
            self.state, streams={**self.state.streams, self.stream.name: replace(stream, clocks=clocks)}
        )

    def _aggregated(self, batch: RetainedBatch, rows: pa.Table) -> Outcome:
        columns = self.stream.columns
        typed = pa.table({name: rows[name].cast(kind) for name, kind in columns.items()})
        data = DataBatch(
            self.backend.frame(typed),
            columns,
            self.rules,
            [self.query],
            self.state,
            self.planner.plan(self.state, [self.query]),
            batch.clock,
            {},
            on_driver=True,
            is_judged=True,
            limits=self.planner.strategy.limits,
        )
        with IngestRun(data, self.tables, self.backend) as run:
            return run.process().outcome

    def _emit(self, batch: BatchInput) -> None:
        context = EmitContext(
            clock=batch.clock, made=batch.clock, streams=(self.stream.name,), planner=self.planner
        )
        effects = _DriverOnly(self.backend.scalars)
        output = emit(self.state, [batch], [self.query], context, None, effects)
        self.state = output.state
        self.results += output.results.batches

    def state_of(self, name: str) -> State:
        """The state that the replayed batches made, of the query under its present name."""
        if name == self.query.name:
            return self.state
        queries = {name: self.state.queries[self.query.name]}
        return replace(
            self.state, queries=queries, accounts=self.state.accounts.renamed(self.query.name, name)
        )

    def results_in(self, name: str, batch_id: int, made: int) -> list[ResultBatch]:
        """The results of windows that closed before the query took part in batches, as results of a batch."""
        return [
            _in_batch(results, name, batch_id, made) for results in self.results if results.table.num_rows
        ]


def _may_join(run: Sequence[RetainedBatch], batch: RetainedBatch) -> bool:
    """Whether a batch may be replayed together with those before it, if all its rows are in time.

    The rows that are in time are the same then, and no window that closed before the batch gets a row of it.
    """
    last = run[-1]
    if last.ended or last.shed or batch.ended or batch.shed or batch.before != last.after:
        return False
    if not run[0].before.is_prefix or not last.after.is_prefix or not batch.after.is_prefix:
        return False
    return sum(one.rows for one in run) + batch.rows <= JOINED_ROWS


def _joined(run: Sequence[RetainedBatch]) -> RetainedBatch:
    """Batches as one."""
    rows = sum(batch.rows for batch in run)
    return replace(run[-1], rows=rows, before=run[0].before)


def _rows_of(table: pa.Table | None, start: int, run: Sequence[RetainedBatch]) -> pa.Table | None:
    rows = sum(batch.rows for batch in run)
    return None if table is None or not rows else table.slice(start, rows)


def _in_batch(results: ResultBatch, name: str, batch_id: int, made: int) -> ResultBatch:
    """Results of one replayed query, under another name, as those of a batch; they had no latency."""
    table = results.table
    values = {"batch": batch_id, "made": made, "latency": None}
    for column, value in values.items():
        place = table.schema.get_field_index(column)
        field = table.schema.field(place)
        scalar = (
            pa.scalar(value, pa.int64()).cast(field.type)
            if value is not None
            else pa.scalar(None, field.type)
        )
        table = table.set_column(place, field, pa.repeat(scalar, table.num_rows))
    return ResultBatch([name], np.array([0, table.num_rows], np.int64), table)


class Backfills:
    """The backfills of an engine, which share the time between live batches."""

    def __init__(
        self,
        directory: QueryDirectory,
        declared: Declared,
        history: RowHistory,
        backend: Backend,
        strategy: Strategy,
    ):
        self.directory, self.declared, self.history = directory, declared, history
        self.backend, self.strategy = backend, strategy
        self.credit = 0.0  # seconds that may be spent before the next live batch
        self._running: dict[str, Backfill] = {}  # by identity of the query

    def waiting(self) -> list[RegisteredQuery]:
        """The queries that retained rows are replayed for, oldest first."""
        registry = self.directory.registry
        return [registry[name] for name in registry.backfills() if registry[name].is_active]

    def pins(self) -> dict[str, int]:
        """By stream, the time from which on its rows are still to be replayed."""
        pins: dict[str, int] = {}
        registry = self.directory.registry
        for name, since in registry.backfills().items():
            executable = registry[name].executable
            if isinstance(executable, CompiledQuery):
                stream = executable.query.stream
                pins[stream] = min(since, pins.get(stream, since))
        return pins

    def of(self, entry: RegisteredQuery) -> Backfill:
        """The backfill of a query, begun if it was not yet."""
        running = self._running.get(entry.identity)
        if running is None:
            query, since = entry.executable, entry.backfill
            if not isinstance(query, CompiledQuery) or since is None:
                raise StateError(f"the query {entry.name} can't be read any more")
            stream = self.declared.streams.get(query.query.stream)
            if stream is None or stream.retain is None:
                raise StateError(
                    f"the stream {query.query.stream} does not retain rows any more: declare it with retain"
                )
            running = self._running[entry.identity] = Backfill(
                query, stream, since, self.history, self.backend, self.declared.tables, self.strategy
            )
        return running

    def progress(self, entry: RegisteredQuery) -> BackfillProgress | None:
        """How far the backfill of a query has come; None if it has none."""
        if entry.backfill is None:
            return None
        running = self._running.get(entry.identity)
        if running is not None:
            return running.progress()
        return BackfillProgress(entry.backfill, 0, 0, 0, 0)

    def caught_up(self, entry: RegisteredQuery) -> Backfill:
        """The backfill of a query, with all committed batches replayed."""
        backfill = self.of(entry)
        while backfill.step():
            pass
        return backfill

    def spend(self, seconds: float) -> bool:
        """Replay batches for so long, at least one; whether there was something to replay.

        A query that has caught up, or whose replay failed, waits for the next batch to adopt it.
        """
        adopting = {(e.name, e.joined) for e in self.directory.waiting.control if isinstance(e, Adopt)}
        queue = [entry for entry in self.waiting() if (entry.name, entry.since) not in adopting]
        began = time.perf_counter()
        for entry in queue:
            try:
                backfill = self.of(entry)
                while backfill.step():
                    if time.perf_counter() - began >= seconds:
                        return True
                self.directory.push([Adopt(entry.name, entry.since)])
            except Exception as error:
                self.directory.push([Adopt(entry.name, entry.since, self.failed(entry, error))])
        return bool(queue)

    def failed(self, entry: RegisteredQuery, error: Exception) -> str:
        """Give up a backfill; the reason for which its query is suspended."""
        self._running.pop(entry.identity, None)
        problem = f"its backfill failed: {self.backend.error_text(error)}"
        log.warning("query %s is suspended: %s", entry.name, problem)
        return problem

    def after_batch(self, seconds: float) -> None:
        """Replay batches after a live batch that took so long, for as long as the limits allow."""
        waiting = {entry.identity for entry in self.waiting()}
        self._running = {identity: each for identity, each in self._running.items() if identity in waiting}
        if not waiting:
            self.credit = 0.0
            return
        share = self.strategy.limits.backfill_share
        self.credit = min(self.credit + share * seconds, share * max(seconds, 1.0))
        if self.credit > 0:
            began = time.perf_counter()
            self.spend(self.credit)
            self.credit -= time.perf_counter() - began
