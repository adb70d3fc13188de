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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.backends.base import Backend
from transom.elements import Adopt
from transom.errors import CostError, DeadlineError, StateError
from transom.estimates.batch_decisions import MISSED
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.plan.compiled_query import CompiledQuery
from transom.plan.strategy import Strategy
from transom.results.condition_columns import DECISION
from transom.results.reported_results import reported_schema
from transom.results.result_rows import ResultBatch, result_schema
from transom.runtime.batch_replay import BatchReplay
from transom.runtime.declarations import Declared
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import RegisteredQuery
from transom.runtime.row_history import RowHistory
from transom.runtime.sealed_slices import SealedSlices
from transom.sql.query import Query, free_name
from transom.state.retained_rows import RetainedBatch, RetainedFile, RetainedRows
from transom.state.state import State
from transom.windows.intervals import LOWEST, IntervalSet

log = logging.getLogger("transom")


@dataclass(frozen=True)
class BackfillProgress:
    """How far retained rows were replayed for a query: since which time, and so many of all batches and rows.

    `since` is None if all retained rows are replayed. Sealed slices stood for `sliced_rows` of the rows.
    """

    since: int | None
    batches: int
    all_batches: int
    rows: int
    all_rows: int
    sliced_rows: int = 0

    @property
    def share(self) -> float:
        """The part of the rows that was replayed."""
        return self.rows / self.all_rows if self.all_rows else 0.0


class Backfill:
    """The replay of retained batches for one query, a batch at a time, each within a limit of time."""

    def __init__(
        self,
        query: CompiledQuery,
        stream: Stream,
        since: int,
        history: RowHistory,
        backend: Backend,
        tables: StaticTables,
        strategy: Strategy,
        slices: SealedSlices,
        versions: Mapping[str, int],
        time_limit: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self.stream, self.since, self.history, self.slices = stream, since, history, slices
        self.time_limit, self.most_results = time_limit, strategy.limits.backfill_results
        self.query = query
        missed = self._retained().missed | IntervalSet.of((LOWEST, since))
        self.replay = BatchReplay(query, stream, backend, tables, strategy, missed, versions)
        self.replayed, self.rows = 0, 0  # batches and rows
        self.sliced_rows = 0  # of the rows, those that sealed slices stood for
        self.first: int | None = None  # the first batch that was replayed
        self.last = 0  # the last one
        self._loaded: Iterator[tuple[RetainedBatch, int, pa.Table | None]] = iter(())

    def _retained(self) -> RetainedRows:
        return self.history.retained(self.stream.rules.clock)

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
            None if self.since == LOWEST else self.since,
            self.replayed,
            max(self.replayed, batches),
            self.rows,
            max(self.rows, rows),
            self.sliced_rows,
        )

    def step(self) -> bool:
        """Replay the next batch, or some that have the same effect together; False if there is none."""
        for batch, batches, rows in self._loaded:
            with self.time_limit():
                self.replay.run(batch, rows)
            self._check_results()
            self.first = batch.batch_id if self.first is None else self.first
            self.last, self.rows = batch.batch_id, self.rows + batch.rows
            self.replayed += batches
            return True
        file = self._next_file()
        if file is None:
            return False
        with self.time_limit():
            self._loaded = self._batches(file)
        self._check_results()
        return self.step()

    def _check_results(self) -> None:
        """Refuse to keep more results than the limit until the query takes part: they are in memory."""
        if self.replay.result_rows > self.most_results:
            raise CostError(
                f"its past has more than {self.most_results:,} results, which wait in memory until it takes part: ask "
                "for a shorter past, use a longer SLIDE or fewer groups, or raise the setting backfill_results"
            )

    def _batches(self, file: RetainedFile) -> Iterator[tuple[RetainedBatch, int, pa.Table | None]]:
        """The batches of a file that were not replayed yet; neighbours that may be replayed together are one."""
        sliced = self.slices.for_replay(file, self.replay) if file.first > self.last else None
        if sliced is not None:
            self.replay.add(sliced)
            self.rows, self.sliced_rows = self.rows + sliced.row_count, self.sliced_rows + sliced.row_count
            self.replayed += file.batches - len(sliced.batches)
            return self.replay.joined(sliced.batches, sliced.rows)
        batches, table = self.history.read(file, self.replay.columns)
        start = sum(batch.rows for batch in batches if batch.batch_id <= self.last)
        rest = [batch for batch in batches if batch.batch_id > self.last]
        return self.replay.joined(rest, None if table is None else table.slice(start))

    def state_of(self, name: str) -> State:
        """The state that the replayed batches made, of the query under its present name."""
        state, schema = self.replay.state, reported_schema(self.query)
        reported = state.reported.get(self.query.name)
        return replace(
            state,
            queries={name: state.queries[self.query.name]},
            accounts=state.accounts.renamed(self.query.name, name),
            past=state.past.renamed(self.query.name, name),
            reported={} if reported is None else {name: _with_columns(reported, schema, {})},
        )

    def results_in(self, name: str, batch_id: int, made: int) -> list[ResultBatch]:
        """The results of windows that closed before the query took part in batches, as results of a batch."""
        return [
            _in_batch(results, self.query.query, name, batch_id, made)
            for results in self.replay.results
            if results.table.num_rows
        ]


def _in_batch(results: ResultBatch, query: Query, name: str, batch_id: int, made: int) -> ResultBatch:
    """Results of one replayed query, under another name, as those of a batch.

    They had no latency, estimates of their values were not made, and HAVING was not decided early.
    """
    table, rows, schema = results.table, results.table.num_rows, result_schema(query)
    items = [item.name for item in query.items]
    values: dict[str, int | str | None] = {"batch": batch_id, "made": made, "latency": None}
    if query.early_decision is not None:
        values[DECISION] = MISSED
    named = {free_name(name, items): value for name, value in values.items()}
    return ResultBatch([name], np.array([0, rows], np.int64), _with_columns(table, schema, named))


def _with_columns(table: pa.Table, schema: pa.Schema, values: Mapping[str, int | str | None]) -> pa.Table:
    """A table with the columns of a schema: some with one value, and null where it has no such column."""
    columns = []
    for field in schema:
        if field.name in values or field.name not in table.column_names:
            value = pa.scalar(values.get(field.name))
            columns.append(pa.repeat(value, table.num_rows).cast(field.type))
        else:
            columns.append(table[field.name])
    return pa.table(columns, schema=schema)


class Backfills:
    """The backfills of an engine, which share the time between live batches."""

    def __init__(
        self,
        directory: QueryDirectory,
        declared: Declared,
        history: RowHistory,
        backend: Backend,
        strategy: Strategy,
        slices: SealedSlices,
        time_limit: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        self.directory, self.declared, self.history, self.slices = directory, declared, history, slices
        self.backend, self.strategy, self.time_limit = backend, strategy, time_limit
        self.credit = 0.0  # seconds that may be spent before the next live batch
        self._running: dict[str, Backfill] = {}  # by identity of the query
        self._late: set[str] = set()  # identities of queries whose replay missed the deadline once
        self._problems: dict[
            str, str
        ] = {}  # by identity: why a backfill failed, until its query is suspended

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
                query,
                stream,
                since,
                self.history,
                self.backend,
                self.declared.tables,
                self.strategy,
                self.slices,
                self.declared.versions,
                self.time_limit,
            )
        return running

    def progress(self, entry: RegisteredQuery) -> BackfillProgress | None:
        """How far the backfill of a query has come; None if it has none."""
        if entry.backfill is None:
            return None
        running = self._running.get(entry.identity)
        if running is not None:
            return running.progress()
        return BackfillProgress(None if entry.backfill == LOWEST else entry.backfill, 0, 0, 0, 0)

    def caught_up(self, entry: RegisteredQuery) -> Backfill:
        """The backfill of a query, with all committed batches replayed."""
        if (problem := self._problems.get(entry.identity)) is not None:
            raise StateError(problem)
        while self._step(entry):
            pass
        return self.of(entry)

    def _step(self, entry: RegisteredQuery) -> bool:
        """Replay the next batch for a query; False if there is none.

        A replay that misses the deadline begins again, once: the machine may have been busy.
        """
        try:
            return self.of(entry).step()
        except DeadlineError:
            if entry.identity in self._late:
                raise
            self._late.add(entry.identity)
            del self._running[entry.identity]
            return True

    def spend(self, seconds: float) -> bool:
        """Replay batches for so long, at least one; whether there was something to replay.

        A query that has caught up, or whose replay failed, waits for the next batch to adopt it.
        """
        adopting = {(e.name, e.joined) for e in self.directory.waiting.control if isinstance(e, Adopt)}
        queue = [entry for entry in self.waiting() if (entry.name, entry.since) not in adopting]
        began = time.perf_counter()
        for entry in queue:
            try:
                while self._step(entry):
                    if time.perf_counter() - began >= seconds:
                        return True
                self.directory.push([Adopt(entry.name, entry.since)])
            except Exception as error:
                self.directory.push([Adopt(entry.name, entry.since, self.failed(entry, error))])
        return bool(queue)

    def failed(self, entry: RegisteredQuery, error: Exception) -> str:
        """Give up a backfill; the reason for which its query is suspended."""
        self._running.pop(entry.identity, None)
        problem = self._problems.get(entry.identity)
        if problem is None:
            problem = f"its backfill failed: {self.backend.error_text(error)}"
            self._problems[entry.identity] = problem
            log.warning("query %s is suspended: %s", entry.name, problem)
        return problem

    def after_batch(self, seconds: float) -> None:
        """Replay batches after a live batch that took so long, for as long as the limits allow."""
        waiting = {entry.identity for entry in self.waiting()}
        self._running = {identity: each for identity, each in self._running.items() if identity in waiting}
        self._late &= waiting
        self._problems = {identity: each for identity, each in self._problems.items() if identity in waiting}
        if not waiting:
            self.credit = 0.0
            return
        share = self.strategy.limits.backfill_share
        self.credit = min(self.credit + share * seconds, share * max(seconds, 1.0))
        if self.credit > 0:
            began = time.perf_counter()
            self.spend(self.credit)
            self.credit -= time.perf_counter() - began
