"""The ingest of data batches: rows are read, and become partial aggregates.

A query whose function fails in several batches in a row is suspended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.backends.base import Backend, Frame
from transom.backends.expressions import micros, quoted, text_literal
from transom.backends.file_problems import UnreadableFiles
from transom.durations import format_instant
from transom.elements import ClockKind
from transom.gc_pause import allow_garbage_collection
from transom.ingest.batch import DataBatch, Ingested, IngestRun
from transom.ingest.derived_rows import derived_rows, row_texts
from transom.ingest.row_readers import RowReaders
from transom.ingest.sources import ResultSource
from transom.ingest.stream_clocks import clocks_after, learns_delays
from transom.ingest.stream_joins import JoinLimitError, arrive, join_rows
from transom.ingest.streams import Carried, Stream, believable, carried_control
from transom.ingest.tables import StaticTables
from transom.kernel.aggregate import Outcome
from transom.kernel.row_matches import RowMatcher, count_matches
from transom.overload.chunks import NO_BURST, BurstOutcome, highest_time
from transom.overload.sideline import Sideline, SplitBatch
from transom.plan.passes.admission import release_suspended
from transom.plan.planner import Planner
from transom.promising.batch_tuples import BatchArrival
from transom.promising.execution import Promising
from transom.results.batch_input import BatchInput
from transom.results.join_clock import JoinedBatch, clock_before, join_state, pair_rules
from transom.runtime.begun_batch import BegunBatch
from transom.runtime.executor_state import ExecutorState
from transom.runtime.outputs import Outputs
from transom.runtime.registry import Registry
from transom.runtime.row_history import RowHistory
from transom.sql.binding.cascades import relation_of
from transom.sql.query import JoinForm
from transom.state.batch_intent import BatchIntent
from transom.state.state import State
from transom.windows.partition_clocks import PartitionClocks

log = logging.getLogger("transom")


@dataclass(frozen=True)
class IngestedBatch:
    """What came of a batch's rows: the punctuations and prods among them, partial aggregates, the rows that
    were sidelined or shed, the new tuples of summaries, and the new pairs of joins."""

    carried: list[Carried]
    outcome: Outcome = field(default_factory=Outcome)
    burst: BurstOutcome = NO_BURST
    arrivals: Mapping[str, BatchArrival] = field(default_factory=dict)
    joined: Mapping[str, JoinedBatch] = field(default_factory=dict)  # by the stream of pairs
    derived: Mapping[str, Outcome] = field(default_factory=dict)  # by derived stream, of the batch's rows
    clocks: PartitionClocks | None = None  # of the stream's partitions, if the batch brought rows of some


class BatchRows:
    """The rows of a batch. A streaming source brings them (`given`); other sources read them by reference."""

    def __init__(self, begun: BegunBatch, stream: Stream | None, given: Frame | None):
        self._begun, self._given = begun, given
        self._stream = stream if given is None and begun.intent.reference else None
        self._frame = given
        self._is_searched = False  # whether the batch's files were searched for unreadable ones

    def frame(self) -> Frame | None:
        """The rows, or None if the batch brings none."""
        while self._frame is None and self._stream is not None:
            try:
                rows = self._stream.source.read(self._begun.intent.reference)
                self._frame = self._stream.with_time(rows)
            except Exception as error:
                if not self.leave_out_unreadable(error):
                    raise
        return self._frame

    def leave_out_unreadable(self, error: Exception) -> bool:
        """Leave out the files that made an attempt fail, if there are any; the decision is written ahead."""
        if self._stream is None or (self._is_searched and not isinstance(error, UnreadableFiles)):
            return False
        self._is_searched = True
        reference = self._stream.source.without_unreadable(self._begun.intent.reference, error)
        if reference is None:
            return False
        self._begun.read_from(reference)
        self._frame = None
        return True


class Ingest:
    """Turns the rows of a batch into partial aggregates, and routes late and rejected rows to their outputs.

    Batches of at most `Limits.pushed_rows` rows that are on the driver are aggregated there.
    """

    def __init__(
        self,
        backend: Backend,
        tables: StaticTables,
        outputs: Outputs,
        executors: ExecutorState,
        planner: Planner,
        max_failures: int,
        promising: Promising,
        sideline: Sideline,
        history: RowHistory,
    ):
        self.history = history
        self.backend, self.tables, self.outputs, self.executors = backend, tables, outputs, executors
        self.planner, self.max_failures, self.promising = planner, max_failures, promising
        self.sideline = sideline

    def process(
        self,
        intent: BatchIntent,
        stream: Stream,
        frame: Frame | None,
        registry: Registry,
        state: State,
        derived_streams: Sequence[Stream] = (),
    ) -> IngestedBatch:
        """Ingest a batch. A batch without rows of its own consists of rows that were sidelined before.

        `derived_streams` are the derived streams of the batch's rows that queries read.
        """
        carried: list[Carried] = []
        if frame is None:
            frame = self.sideline.rows(intent, stream, state)
        else:
            carried, frame = carried_control(stream, frame)
        batch = self._batch(intent, stream, frame, registry, state)
        if intent.takes_new_rows_only:
            split = SplitBatch(batch)
        else:
            split = self.sideline.split(intent, stream, batch)
        batch = split.batch
        # Many rows take long, and users' functions may make cycles of objects for each.
        collecting = nullcontext() if batch.on_driver else allow_garbage_collection()
        with split.resources, collecting:
            self.executors.files.begin(intent.batch_id)
            outcome, arrivals, rows, derived = self._run(intent, stream, batch, registry, derived_streams)
        tuples = (arrival.file for arrival in arrivals.values() if arrival.file is not None)
        self.executors.files.tidy([*outcome.refs, *(ref for _, ref, _ in outcome.run_refs), *tuples])
        credible = self._credible(carried, batch, outcome, split.burst)
        joined = dict(self._joined(intent, rows, registry, state))
        for each in (outcome, *derived.values(), *(one.outcome for one in joined.values())):
            self._limit_matches(each, registry)
        clocks = clocks_after(stream, intent, outcome)
        return IngestedBatch(credible, outcome, split.burst, arrivals, joined, derived, clocks)

    def _joined(
        self,
        intent: BatchIntent,
        rows: Mapping[str, Mapping[int, pa.Table]],
        registry: Registry,
        state: State,
    ) -> Iterator[tuple[str, JoinedBatch]]:
        """The pairs that the rows of a batch make, aggregated; queries of a join beyond the limits are suspended."""
        for name, tables in rows.items():
            join, limits = registry.stream_joins()[name], self.planner.strategy.limits
            kept = join_state(join, state)
            try:
                arrival = arrive(join, tables, kept, clock_before(join, state), limits, self._holds)
            except JoinLimitError as error:
                readers = [*registry.reading(name), *registry.row_queries(name)]
                for query in readers:
                    log.warning("query %s is suspended: %s", query.name, error)
                registry.suspend({query.name: str(error) for query in readers})
                continue
            if join.form is not JoinForm.INNER:
                yield name, JoinedBatch(Outcome(), arrival.state, arrival.lost, arrival.pairs)
                continue
            stream = Stream(name, join.pair_columns, pair_rules(join), ResultSource())
            outcome = self._aggregated(intent, stream, arrival.pairs, registry, state)
            yield name, JoinedBatch(outcome, arrival.state, arrival.lost)

    def _holds(self, rows: pa.Table, condition: str) -> NDArray[np.bool_]:
        """The pairs that satisfy a condition of ON."""
        frame = self.backend.frame(rows).project({"holds": f"coalesce({condition}, false)"})
        return frame.to_table(few=True)["holds"].to_numpy()

    def _limit_matches(self, outcome: Outcome, registry: Registry) -> None:
        """Suspend row queries that too many rows satisfy, and leave these rows out."""
        limit = self.planner.strategy.limits.row_results
        reasons = {
            name: f"{rows:,} rows of a batch satisfy it, and the limit is {limit:,}: select fewer rows, or raise the "
            "setting row_results"
            for name, rows in count_matches(outcome.matches).items()
            if rows > limit
        }
        for name, reason in reasons.items():
            log.warning("query %s is suspended: %s", name, reason)
        if reasons:
            registry.suspend(reasons)
            outcome.matches = [part.without(reasons) for part in outcome.matches]

    def _credible(
        self, carried: list[Carried], batch: DataBatch, outcome: Outcome, burst: BurstOutcome
    ) -> list[Carried]:
        """The carried control without punctuations that are too far ahead of the stream or of the clock."""
        clock = batch.rules.clock
        beside = highest_time((*burst.sidelined, *burst.shed), clock)
        seen = outcome.clocks[clock].top if clock in outcome.clocks else None
        tops = [top for top in (batch.before.clock(clock).high, seen, beside) if top is not None]
        credible = believable(carried, batch.rules, max(tops, default=None), batch.clock)
        if len(credible) < len(carried):
            dropped = len(carried) - len(credible)
            log.warning(
                "%d punctuations of %s are too far ahead of it, or of the clock", dropped, clock.stream
            )
        return credible

    def ingest_results(
        self, intent: BatchIntent, given: BatchInput, rows: pa.Table, registry: Registry, state: State
    ) -> Outcome:
        """Aggregate results of a query, or of a join, as rows of the stream that other queries read."""
        inner = given.rules.clock.stream
        join, preferred = registry.stream_joins().get(inner), registry.read_preferences().get(inner)
        if join is not None:
            columns = join.pair_columns
        else:
            query = registry.query(inner) if preferred is None else preferred
            columns = dict(relation_of(inner, query).columns)
        stream = Stream(inner, columns, given.rules, ResultSource())
        # Deferred results may come when windows are closed. Another query of the name may have other columns.
        late_under = None if preferred is None else registry[inner].identity
        outcome = self._aggregated(intent, stream, rows, registry, state, late_under)
        self._limit_matches(outcome, registry)
        return outcome

    def _aggregated(
        self,
        intent: BatchIntent,
        stream: Stream,
        rows: pa.Table,
        registry: Registry,
        state: State,
        late_under: str | None = None,
    ) -> Outcome:
        """Aggregate rows that the engine itself produced; late ones are written under a name, or only counted."""
        frame = self.backend.frame(rows)
        batch = self._batch(replace(intent, stream=stream.name), stream, frame, registry, state)
        # The outcome stays on the driver.
        batch = replace(batch, on_driver=True, shelf=None, most_groups=None)
        with IngestRun(batch, self.tables, self.backend) as run:
            ingested = run.process()
            if late_under is not None:
                self._write_late(intent, batch, ingested, registry, late_under)
            return ingested.outcome

    def _batch(
        self, intent: BatchIntent, stream: Stream, frame: Frame, registry: Registry, state: State
    ) -> DataBatch:
        limits = self.planner.strategy.limits
        queries, on_demand = registry.reading(stream.name), registry.looking(stream.name)
        row_queries = registry.row_queries(stream.name)
        matcher = RowMatcher()
        if row_queries:
            matcher = self.planner.derived(stream.name, RowMatcher.of, row_queries)
        state = release_suspended(state, registry.compiled())
        return DataBatch(
            frame,
            stream.columns,
            stream.rules,
            queries,
            state,
            self.planner.plan(state, queries),
            intent.clock,
            intent.tables,
            shelf=self.executors.shelf(state),
            most_groups=self.executors.most_groups,
            on_demand=on_demand,
            store_sets=self.planner.store_sets(stream.name, on_demand),
            limits=limits,
            row_queries=row_queries,
            matcher=matcher,
            reading=self.planner.derived(stream.name, RowReaders.of, queries, on_demand, row_queries),
            partitions=stream.partitions if learns_delays(stream, intent.sidelined) else None,
        ).with_rows(frame)

    def _run(
        self,
        intent: BatchIntent,
        declared: Stream,
        batch: DataBatch,
        registry: Registry,
        derived_streams: Sequence[Stream],
    ) -> tuple[Outcome, dict[str, BatchArrival], dict[str, dict[int, pa.Table]], dict[str, Outcome]]:
        stream = batch.rules.clock.stream
        with IngestRun(batch, self.tables, self.backend) as run:
            ingested = run.process()
            self._write_late(intent, batch, ingested, registry)
            if declared.retain is not None:
                self._retain(intent, batch, ingested, run)
            derived: dict[str, Outcome] = {}
            if derived_streams:
                accepted = batch.frame.filter(run.is_accepted(ingested.time_limit))
                derived = {
                    each.name: self._derived(intent, each, batch, accepted, registry)
                    for each in derived_streams
                }
            rejected = ingested.rejected
            on_driver = batch.is_on_driver(rejected)
            self.outputs.rows.write("rejected", stream, intent.batch_id, rejected, on_driver)
            arrivals = self.promising.arrive(run, ingested.time_limit, intent, registry.preference_queries())
            rows = join_rows(run, ingested.time_limit, list(registry.stream_joins().values()))
            return ingested.outcome, arrivals, rows, derived

    def _retain(self, intent: BatchIntent, batch: DataBatch, ingested: Ingested, run: IngestRun) -> None:
        """Retain the accepted rows of a batch."""
        outcome, rows = ingested.outcome, batch.frame
        has_rejected = bool(outcome.timeless or outcome.ahead)
        if outcome.rows == outcome.timeless + outcome.ahead:
            return
        if has_rejected:
            rows = rows.filter(run.is_accepted(ingested.time_limit))
        stream, is_here = batch.rules.clock.stream, batch.is_on_driver(batch.frame)
        self.history.take(stream, intent.batch_id, rows, batch.columns, is_here)

    def _write_late(
        self,
        intent: BatchIntent,
        batch: DataBatch,
        ingested: Ingested,
        registry: Registry,
        under: str | None = None,
    ) -> None:
        stream = under or batch.rules.clock.stream
        late = None if ingested.late is None else with_reason(ingested.late, batch)
        self.outputs.rows.write("late", stream, intent.batch_id, late, batch.is_on_driver(late))
        if late is not None:
            entries = [[registry[name] for name in names] for names in ingested.late_groups]
            groups = [[(entry.stored_name, entry.since) for entry in group] for group in entries]
            self.outputs.rows.write_late_queries(stream, groups)

    def _derived(
        self, intent: BatchIntent, stream: Stream, batch: DataBatch, accepted: Frame, registry: Registry
    ) -> Outcome:
        """Aggregate the rows of a derived stream that accepted rows yield; the outcome stays on the driver."""
        assert stream.derived is not None
        derived, source = stream.derived, batch.rules.clock.stream

        def made(texts: Sequence[str] | None) -> DataBatch:
            rows = derived_rows(derived, source, accepted, batch.columns, intent.clock, texts)
            own = self._batch(replace(intent, stream=stream.name), stream, rows, registry, batch.state)
            return replace(own, shelf=None, most_groups=None)

        readers = [*registry.reading(stream.name), *registry.looking(stream.name)]
        own = made(row_texts([query.query for query in readers], stream.rules.clock))
        with IngestRun(own, self.tables, self.backend) as run:
            ingested = run.process()
            if ingested.late is None or not derived.is_exploded:
                self._write_late(intent, own, ingested, registry)
                return ingested.outcome
        # Late rows are listed with all columns.
        whole = made(None)
        with IngestRun(whole, self.tables, self.backend) as run:
            ingested = run.process()
            self._write_late(intent, whole, ingested, registry)
            return ingested.outcome

    # --- failing functions ---

    def failures(self, registry: Registry) -> dict[str, int]:
        """How many calls of each user-defined function of the queries have failed so far."""
        used = {name for functions in registry.functions().values() for name in functions}
        return {name: self.backend.function_failures(name) for name in used}

    def count_failures(self, registry: Registry, before: Mapping[str, int]) -> None:
        """Suspend the queries whose functions failed in too many batches in a row."""
        after = self.failures(registry)
        for query, functions in registry.functions().items():
            has_failed = any(after[name] > before.get(name, 0) for name in functions)
            failing = registry[query].failing + 1 if has_failed else 0
            if failing >= self.max_failures:
                reason = f"its function failed in {failing} batches in a row"
                registry.suspend({query: reason})
                log.warning("query %s is suspended: %s", query, reason)
            elif failing != registry[query].failing:
                registry.update(query, failing=failing)


def with_reason(rows: Frame, batch: DataBatch) -> Frame:
    """Late rows with the reason why they are late."""
    clock = batch.rules.clock
    mark = batch.before.clock(clock).closed.watermark()
    shown = format_instant(mark or 0) if clock.kind is ClockKind.TIME else str(mark)
    behind = text_literal(_reason(f"closed: watermark {shown}", batch))
    closed = text_literal(_reason("closed by a punctuation, or because the stream was idle or ended", batch))
    time = micros(quoted(clock.attribute), batch.columns[clock.attribute])
    reason = closed if mark is None else f"CASE WHEN ({time}) < {mark} THEN {behind} ELSE {closed} END"
    return rows.extend({"reason": f"CAST({reason} AS STRING)"})


def _reason(closed: str, batch: DataBatch) -> str:
    """Why a row is late: a window is closed, or it is too old for the stores of on-demand queries."""
    windows = f"a window that it belongs to is {closed}"
    stores = "it is older than all rows kept for lookups"
    reasons = [windows] * bool(batch.queries or not batch.on_demand) + [stores] * bool(batch.on_demand)
    return ", or ".join(reasons)
