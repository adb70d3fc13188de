"""Retained batches that are run again for one query, over a state of its own.

What was closed before and after each batch is read from the log, so that a row is late if it was late for a query
that had always been there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.backends.base import Backend
from transom.backends.expressions import at_clock
from transom.columns.table_columns import ROWS
from transom.ingest.batch import DataBatch, IngestRun
from transom.ingest.derived_rows import columns_read
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.kernel.aggregate import Outcome
from transom.kernel.query_counts import BatchAccounts
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.families import Selection
from transom.plan.planner import Planner
from transom.plan.strategy import Place, Strategy
from transom.results.batch_input import BatchInput
from transom.results.emit import EmitBackend, EmitContext, emit
from transom.results.result_rows import Moment, ResultBatch, Stored
from transom.results.shard_work import ShardWork
from transom.sql.catalog import Scalars
from transom.state.retained_rows import RetainedBatch
from transom.state.state import ClockState, State
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed
from transom.windows.ids import wid_from, window_end
from transom.windows.intervals import IntervalSet
from transom.windows.stream_rules import StreamRules

JOINED_ROWS = 20_000  # most rows that are replayed at once: live batches wait for them


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


@dataclass(frozen=True)
class ReplaySlices:
    """Slices that take the place of the rows of a file.

    They stand for `row_count` rows, with times from `low` to `high`. `rows` are those of `batches`: all others of the
    file that are in no slice.
    """

    slices: pa.Table
    row_count: int
    low: int | None
    high: int | None
    batches: Sequence[RetainedBatch]
    rows: pa.Table | None


class BatchReplay:
    """Runs retained batches for one query, and collects the results of windows that close.

    In `missed` are the times whose windows are not reported. Only finals and their corrections are made, and none of
    them is decided early. `versions` are those of the static tables that rows are joined with. They may change
    meanwhile: earlier ones are not kept.
    """

    def __init__(
        self,
        query: CompiledQuery,
        stream: Stream,
        backend: Backend,
        tables: StaticTables,
        strategy: Strategy,
        missed: IntervalSet,
        versions: Mapping[str, int],
    ):
        self.stream, self.backend, self.tables, self.versions = stream, backend, tables, versions
        self.query = replace(query, query=replace(query.query, emit=None, early_decision=None))
        self.rules: StreamRules = replace(
            stream.rules, horizon=None, overload=None, max_ahead=None, live=False, partition=None
        )
        self.planner = Planner(replace(strategy, place=Place.DRIVER))
        self.results: list[ResultBatch] = []
        self.result_rows = 0
        self.has_begun = False
        self.reads_clock = any(at_clock(text, 0) != text for text in query.query.scalar_texts)
        joining = Membership({self.query.name: self.query}, [self.query])
        self.state = self.planner.begin(State(), joining)
        own = replace(self.state.queries[self.query.name], unseen=missed)
        own = own.for_window(query.query.window.shortest)
        self.state = replace(self.state, queries={self.query.name: own})

    @cached_property
    def columns(self) -> list[str]:
        """The columns of the stream that the query reads, and its time."""
        query = self.query.query
        texts = [*query.scalar_texts, *(join.on for join in query.joins)]
        for join in query.joins:
            texts += [*(bound.sql for bound in join.bounds), *(join.apart or ())]
        clock = self.rules.clock.attribute
        return list(dict.fromkeys([*columns_read(self.stream.columns, texts), clock]))

    @cached_property
    def selection(self) -> Selection:
        """The selection of the query, which has the slices."""
        (own,) = self.planner.plan(self.state, [self.query]).selections
        return own

    def slices_of(self, rows: pa.Table) -> pa.Table:
        """The slices that rows add up to, none of which is late; nothing is remembered of them."""
        batch = RetainedBatch(0, 0, rows.num_rows, Closed(), Closed())
        layout = self.selection.layout
        return self._aggregated(batch, rows).partials.get(layout.id, layout.empty)

    def has_slices_from(self, time: int | None) -> bool:
        """Whether windows with rows since a time are open, also after the stream fell idle."""
        forced = self.state.queries[self.query.name].forced
        return forced is None or time is None or int(wid_from(self.query.query.window, time)) >= forced

    def add(self, sliced: ReplaySlices) -> None:
        """Add the slices of a file before its batches are run: all their rows are in time for their windows."""
        first = sliced.batches[0]
        self._catch_up(first)
        counted = pc.sum(sliced.slices[ROWS]).as_py() or 0
        fates = [[sliced.row_count], [counted], [sliced.row_count - counted], [0], [0]]
        span = Profile()
        if sliced.low is not None and sliced.high is not None:
            span = Profile(((sliced.low, sliced.high, sliced.row_count),))
        outcome = Outcome(
            partials={self.selection.layout.id: sliced.slices},
            rows=sliced.row_count,
            counted=counted,
            unwanted=sliced.row_count - counted,
            profile=span,
            clocks={self.rules.clock: span},
            accounts=BatchAccounts((self.query.name,), np.array(fates, np.int64)),
        )
        self._emit(BatchInput(self.rules, [self.query], outcome, clock=first.clock, closed=first.before))

    def _catch_up(self, batch: RetainedBatch) -> None:
        """Close what was closed before a batch."""
        if not self.has_begun:
            self._close_at_once(batch.before)
        elif self.state.stream(self.stream.name).clock(self.rules.clock).closed != batch.before:
            self.close(batch.before, batch.clock)

    def run(self, batch: RetainedBatch, rows: pa.Table | None) -> None:
        """Run a batch as it was run then, for the query alone."""
        self._catch_up(batch)
        outcome = Outcome()
        if rows is not None:
            outcome = self._aggregated(batch, rows)
        if batch.shed:
            self._shed(batch.shed)
        queries = [self.query]
        self._emit(
            BatchInput(self.rules, queries, outcome, ended=batch.ended, clock=batch.clock, closed=batch.after)
        )

    def close(self, closed: Closed, clock: int) -> None:
        """Close windows without a batch."""
        self._emit(BatchInput(self.rules, [self.query], clock=clock, closed=closed))

    def _close_at_once(self, closed: Closed) -> None:
        """Begin with what was closed before the first batch."""
        self.has_begun = True
        stream = self.state.stream(self.stream.name)
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
        columns = {name: self.stream.columns[name] for name in self.columns}
        typed = pa.table({name: _column(rows, name, kind) for name, kind in columns.items()})
        data = DataBatch(
            self.backend.frame(typed),
            columns,
            self.rules,
            [self.query],
            self.state,
            self.planner.plan(self.state, [self.query]),
            batch.clock,
            self.versions,
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
        output = emit(self.state, [batch], [self.query], context, None, _DriverOnly(self.backend.scalars))
        self.state = output.state
        self.results += output.results.batches
        self.result_rows += sum(batch.table.num_rows for batch in output.results.batches)

    def joined(
        self, batches: Sequence[RetainedBatch], table: pa.Table | None, most_rows: int | None = None
    ) -> Iterator[tuple[RetainedBatch, int, pa.Table | None]]:
        """Batches with their rows; neighbours that may be run together are one, with how many they are.

        A larger batch is in parts. They begin with what was closed before it, and only the last one closes something:
        the same rows are late.
        """
        most_rows = JOINED_ROWS if most_rows is None else most_rows
        for batch, count, rows in self._joined(batches, table, most_rows):
            if rows is None or not self._has_parts or rows.num_rows <= most_rows:
                yield batch, count, rows
                continue
            last = (rows.num_rows - 1) // most_rows * most_rows
            for start in range(0, last, most_rows):
                opened = replace(batch, rows=most_rows, after=batch.before, ended=False, shed=IntervalSet())
                yield opened, 0, rows.slice(start, most_rows)
            yield replace(batch, rows=rows.num_rows - last), count, rows.slice(last)

    @property
    def _has_parts(self) -> bool:
        """Whether a batch may be run in parts: sessions, and corrections, are those of whole batches."""
        query = self.query.query
        return not query.window.is_session and not query.retention

    def _joined(
        self, batches: Sequence[RetainedBatch], table: pa.Table | None, most_rows: int
    ) -> Iterator[tuple[RetainedBatch, int, pa.Table | None]]:
        start = 0
        run: list[RetainedBatch] = []
        for batch in batches:
            if run and (
                self.reads_clock
                or not _may_join(run, batch, most_rows)
                or not self._is_in_time(batch, run[-1])
            ):
                yield _joined(run), len(run), _rows_of(table, start, run)
                start, run = start + sum(one.rows for one in run), []
            run.append(batch)
        if run:
            yield _joined(run), len(run), _rows_of(table, start, run)

    def _is_in_time(self, batch: RetainedBatch, last: RetainedBatch) -> bool:
        """Whether no row of a batch is late for a window that was closed after the batch before."""
        closed, window = last.after.watermark(), self.query.query.window
        forced = self.state.queries[self.query.name].forced
        if batch.low is None:
            return True
        if self.query.query.retention and forced is not None and int(wid_from(window, batch.low)) < forced:
            # Each batch with rows of windows that closed when the stream fell idle corrects them.
            return False
        if closed is None or batch.low >= closed:
            return True
        return not window.is_session and int(window_end(window, wid_from(window, batch.low))) > closed


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of retained rows; null if the stream did not have it then."""
    return rows[name].cast(kind) if name in rows.column_names else pa.nulls(rows.num_rows, kind)


def _may_join(run: Sequence[RetainedBatch], batch: RetainedBatch, most_rows: int) -> bool:
    """Whether a batch may be replayed together with those before it, if all its rows are in time.

    The rows that are in time are the same then, and no window that closed before the batch gets a row of it.
    """
    last = run[-1]
    if last.ended or last.shed or batch.ended or batch.shed or batch.before != last.after:
        return False
    if not run[0].before.is_prefix or not last.after.is_prefix or not batch.after.is_prefix:
        return False
    return sum(one.rows for one in run) + batch.rows <= most_rows


def _joined(run: Sequence[RetainedBatch]) -> RetainedBatch:
    """Batches as one."""
    rows = sum(batch.rows for batch in run)
    return replace(run[-1], rows=rows, before=run[0].before)


def _rows_of(table: pa.Table | None, start: int, run: Sequence[RetainedBatch]) -> pa.Table | None:
    rows = sum(batch.rows for batch in run)
    return None if table is None or not rows else table.slice(start, rows)
