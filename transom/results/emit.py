"""Emit: from a state and the partial aggregates of a batch to the next state and the batch's results.

The other part of a batch, ingest (rows to partial aggregates), is `transom.kernel` and runs wherever the rows
are. Emit is a pure function that runs once a batch: it closes windows, feeds the results of queries to the
queries that read them, answers prods, and compares early results with the final ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from transom.columns.table_columns import ROWS
from transom.elements import Kind, Prod
from transom.estimates import Quality
from transom.estimates.feedback import (
    BatchFeedback,
    Observation,
    learn_from_batch,
    with_observations,
)
from transom.kernel.aggregate import Outcome
from transom.kernel.shards import Shelf
from transom.plan.compiled_query import CompiledQuery
from transom.plan.planner import Planner
from transom.results.across_windows import Followers, follow_windows, with_lags
from transom.results.advance import AppliedBatch, apply_batch, with_rows
from transom.results.batch_input import BatchInput
from transom.results.cascade import cascade_order, derived_batch, derived_rules, passed_on, result_rows
from transom.results.condition_columns import without_condition
from transom.results.corrections import correct_results, correcting_queries
from transom.results.derived_input import DerivedInput
from transom.results.early_results import EVERYTHING, OpenWindows, WindowRequest, read_open_windows
from transom.results.join_clock import JoinedBatch, join_state, joins_of, pair_batch
from transom.results.preference_input import PreferenceInput, prods_of_results
from transom.results.prodder import due_windows
from transom.results.query_boundary import boundary
from transom.results.result_rows import LoweredWindows, Moment, ResultBatch, Results, Stored, finish
from transom.results.row_results import row_results
from transom.results.shard_work import ShardWork, split_work
from transom.sql.catalog import Scalars
from transom.state.state import State
from transom.windows.intervals import LOWEST

Cascade = Sequence[tuple[CompiledQuery, Sequence[CompiledQuery]]]


@dataclass(frozen=True)
class BatchOutput:
    """The state after a batch, its results, and how many slices were combined into them."""

    state: State
    results: Results
    finals: int = 0


class EmitBackend(ABC):
    """What emit needs from a backend: `scalars` evaluate SELECT lists."""

    scalars: Scalars

    @abstractmethod
    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        """Store the results of windows over shards; also return how many slices were combined."""

    @abstractmethod
    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        """The results of windows over shards, not stored."""

    @abstractmethod
    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        """Aggregate the rows of a stream of results; the partial aggregates stay on the driver."""


@dataclass(frozen=True)
class EmitContext:
    """What a batch carries besides rows: prods, its clock, the time now, and how early results are judged."""

    prods: Sequence[Prod] = ()
    clock: int = 0
    made: int = 0
    qualities: Mapping[str, Quality] = field(default_factory=dict)
    observations: Sequence[Observation] = ()  # what prods between batches reported since the last batch
    streams: Collection[str] = ()  # all that are declared: queries of their names are not read by others
    planner: Planner = field(default_factory=Planner)
    joined: Mapping[str, JoinedBatch] = field(
        default_factory=dict
    )  # by the stream of pairs, what the batch adds to joins


def emit(
    state: State,
    batches: Sequence[BatchInput],
    living: Sequence[CompiledQuery],
    context: EmitContext,
    shelf: Shelf | None,
    backend: EmitBackend,
    derived: Sequence[DerivedInput] = (),
    preferences: Sequence[PreferenceInput] = (),
) -> BatchOutput:
    """Close windows, answer prods and learn from early results; control takes effect at the batch's end.

    `derived` is what the batch adds to derived streams, `preferences` to the results of queries WITH PREFERENCE.
    """
    return _Emit(state, living, context, backend).run(batches, shelf, derived, preferences)


def standing_queries(queries: Sequence[CompiledQuery]) -> dict[str, CompiledQuery]:
    """The queries whose results are pushed, by name."""
    return {query.name: query for query in queries if query.is_standing}


def streams_read(queries: Sequence[CompiledQuery]) -> frozenset[str]:
    """The streams that queries read."""
    return frozenset(query.query.stream for query in queries)


class _Emit:
    def __init__(
        self, state: State, living: Sequence[CompiledQuery], context: EmitContext, backend: EmitBackend
    ):
        self.before, self.context, self.backend = state, context, backend
        self.everyone = living
        self.queries = context.planner.derived("", standing_queries, living)
        self.living = list(self.queries.values())
        self.final: list[Results] = []
        self.stored: dict[str, Stored] = {}
        self.finals = 0
        self.flows: list[BatchInput] = []  # what the batch brought to streams of results and of pairs

    def run(
        self,
        batches: Sequence[BatchInput],
        shelf: Shelf | None,
        derived: Sequence[DerivedInput],
        preferences: Sequence[PreferenceInput],
    ) -> BatchOutput:
        concerned = {batch.rules.clock.stream: batch for batch in batches}
        declared = {*concerned, *self.context.streams}
        cascade = self._cascade(self.living, declared)
        state = self._closed(self.before, batches, shelf, batches_on=1)
        state = self._with_pairs(state, concerned)
        derived_batches = [given.completed(self.before, state) for given in derived]
        if derived_batches:
            state = self._closed(state, derived_batches, None, batches_on=0)
            concerned |= {batch.rules.clock.stream: batch for batch in derived_batches}
            batches = [*batches, *derived_batches]
        state = self._with_preferences(state, preferences, concerned)
        for inner, outers in self._cascade(self.everyone, declared):
            if inner.query.stream in concerned and inner.name in state.queries:
                batch, state = self._flow(inner, outers, concerned[inner.query.stream], state)
                concerned[inner.name] = batch
        prods = passed_on(prods_of_results(self.context.prods, preferences), cascade)
        due = due_windows(state, list(concerned.values()), prods, self.context.clock)
        partial = frozenset[str]().union(*(batch.partial for batch in batches))
        moment = Moment(state.batch_id, Kind.EARLY, self.context.made)
        requests = [*due.reported, *due.observed, *due.looked]
        snapshot = with_early_results(state, requests, cascade, self.living, partial, self.backend, moment)
        reported = read_open_windows(snapshot, due.reported, self.living, partial)
        observed = read_open_windows(snapshot, due.observed, self.living, partial)
        looked = read_open_windows(snapshot, due.looked, self.living, partial)
        stored, _ = self.backend.read_shards(split_work(reported.shard_work).plain, moment)
        self._keep(stored)
        early, seen, looks = (
            _all_results(self.backend, snapshot, opened, moment) for opened in (reported, observed, looked)
        )
        final = Results([part for results in self.final for part in results.batches])
        feedback = BatchFeedback(
            final,
            early,
            seen,
            looks,
            due.now,
            due.before,
            self._closed_below(due.now, state),
        )
        known = with_observations(state.estimators, self.context.observations, self.queries)
        estimators, shown = learn_from_batch(
            known, feedback, self.queries, self.context.made, self.context.qualities
        )
        after = replace(state, prodders=due.prodders, estimators=estimators)
        found = self._row_results(
            [*batches, *self.flows], Moment(state.batch_id, Kind.FINAL, self.context.made)
        )
        after, corrections = self._corrected(after, batches, final)
        found += corrections
        return BatchOutput(after, Results([*shown.batches, *found], self.stored), self.finals)

    def _corrected(
        self, state: State, batches: Sequence[BatchInput], final: Results
    ) -> tuple[State, list[ResultBatch]]:
        """The state with the newest results of closed windows, and how the batch's late rows changed them."""
        correctors = self.context.planner.derived("", correcting_queries, self.everyone)
        if not correctors:
            return state, []
        scalars, planner = self.backend.scalars, self.context.planner
        return correct_results(
            self.before, state, batches, correctors, final, scalars, planner, self.context.made
        )

    def _row_results(self, batches: Sequence[BatchInput], moment: Moment) -> list[ResultBatch]:
        """The results of row queries: rows, pairs of joins and results of other queries that satisfy them."""
        matches = [part for batch in batches for part in batch.outcome.matches]
        if not matches:
            return []
        return row_results(matches, {query.name: query for query in self.everyone}, moment)

    def _cascade(
        self, queries: Sequence[CompiledQuery], declared: Collection[str]
    ) -> list[tuple[CompiledQuery, list[CompiledQuery]]]:
        """The queries whose results others read; mostly there are none."""
        read = self.context.planner.derived("", streams_read, self.everyone)
        return [] if read <= set(declared) else cascade_order(queries, declared)

    def _closed(
        self, state: State, batches: Sequence[BatchInput], shelf: Shelf | None, batches_on: int
    ) -> State:
        done = apply_batch(state, batches, shelf, self.context.planner, batches_on)
        moment = Moment(done.state.batch_id, Kind.FINAL, self.context.made)
        work = split_work(done.shard_work)
        stored, steps = self.backend.read_shards(work.plain, moment)
        self._keep(stored)
        self.finals += done.finals + steps
        fetched = fetch_windows(self.backend, work.following, moment)
        closed, after = self._followed(state, done, batches, fetched)
        self.final.append(finish(closed, moment, self.backend.scalars))
        self.final.append(driver_finished(self.backend, work.to_driver, moment))
        return after

    def _followed(
        self,
        before: State,
        done: AppliedBatch,
        batches: Sequence[BatchInput],
        fetched: Sequence[LoweredWindows],
    ) -> tuple[list[LoweredWindows], State]:
        """All closed windows, with those of queries whose results depend on earlier windows, and the state."""
        following = [*(one for one in done.closed if one.queries[0].reads_earlier_windows), *fetched]
        closed = [one for one in done.closed if not one.queries[0].reads_earlier_windows]
        state, planner = done.state, self.context.planner
        for batch in batches:
            stream = batch.rules.clock.stream
            followers = planner.derived(stream, Followers, batch.queries)
            if followers:
                own = [one for one in following if one.queries[0].query.stream == stream]
                limits = planner.strategy.limits
                windows, past = follow_windows(before, state, batch, followers, own, limits)
                closed += windows
                state = replace(state, past=past)
        return closed, state

    def _keep(self, stored: Mapping[str, Stored]) -> None:
        for name, more in stored.items():
            self.stored[name] = self.stored[name].and_also(more) if name in self.stored else more

    def _flow(
        self, inner: CompiledQuery, outers: Sequence[CompiledQuery], batch: BatchInput, state: State
    ) -> tuple[BatchInput, State]:
        """Feed the final results of one query to the queries that read them."""
        standing = [outer for outer in outers if outer.is_standing]
        derived = derived_batch(inner, standing, batch, self.before, state)
        on_demand = [outer for outer in outers if outer.is_on_demand]
        store_sets = self.context.planner.store_sets(inner.name, on_demand)
        derived = replace(derived, store_sets=store_sets)
        tables = [
            without_condition(inner.query, results[inner.name])
            for results in self.final
            if inner.name in results
        ]
        if inner.name in self.stored:
            tables.append(self.stored[inner.name].read())
        if tables:
            rows = result_rows(inner, pa.concat_tables(tables))
            derived = replace(derived, outcome=self.backend.aggregate(derived, rows, state))
            self.flows.append(derived)
        return derived, self._closed(state, [derived], None, batches_on=0)

    def _with_pairs(self, state: State, concerned: dict[str, BatchInput]) -> State:
        """Add the pairs of joins to the streams that they are, and forget joins that no query reads any more."""
        joins = self.context.planner.derived("", joins_of, self.everyone)
        for join in joins.values():
            if not any(side.stream in concerned for side in join.sides):
                continue
            joined = self.context.joined.get(join.id)
            if joined is None:
                joined = JoinedBatch(Outcome(), join_state(join, self.before))
            readers = [query for query in self.living if query.query.stream == join.id]
            aggregate = partial(self._aggregated, state)
            batch, kept = pair_batch(join, readers, concerned, joined, self.before, state, aggregate)
            state = self._closed(state, [batch], None, batches_on=0)
            state = replace(state, joins={**state.joins, join.id: kept})
            concerned[join.id] = batch
            self.flows.append(batch)
        gone = state.joins.keys() - joins.keys()
        if not gone:
            return state
        joins_left = {name: join for name, join in state.joins.items() if name not in gone}
        return replace(
            state,
            joins=joins_left,
            streams={name: stream for name, stream in state.streams.items() if name not in gone},
        )

    def _with_preferences(
        self, state: State, preferences: Sequence[PreferenceInput], concerned: dict[str, BatchInput]
    ) -> State:
        """Feed the results of queries WITH PREFERENCE to the queries that read them."""
        for given in preferences:
            readers = [query for query in self.living if query.query.stream == given.name]
            on_demand = [
                query for query in self.everyone if query.is_on_demand and query.query.stream == given.name
            ]
            store_sets = self.context.planner.store_sets(given.name, on_demand)
            aggregate = partial(self._aggregated, state)
            now = self.context.clock
            batch = given.batch(readers, store_sets, concerned, self.before, state, aggregate, now)
            if batch is not None:
                state = self._closed(state, [batch], None, batches_on=0)
                concerned[given.name] = batch
                self.flows.append(batch)
        return state

    def _aggregated(self, state: State, batch: BatchInput, rows: pa.Table) -> Outcome:
        return self.backend.aggregate(batch, rows, state)

    def _closed_below(self, names: Iterable[str], state: State) -> dict[str, int]:
        """The ids below which the windows of queries are closed for all groups."""
        closed_below = {}
        for name in names:
            query, query_state = self.queries[name], state.queries[name]
            if not query.query.window.is_shared_by_groups:
                continue  # nothing is learned from their windows
            closed = boundary(query, state.stream(query.query.stream), query_state)
            first = next(iter(closed.wids(query, closed.view.general)), None)
            if first is not None and first[0] <= LOWEST:
                closed_below[name] = first[1]
        return closed_below


def _all_results(backend: EmitBackend, state: State, opened: OpenWindows, moment: Moment) -> Results:
    """The results of open windows that are on the driver, or that it needs."""
    near = opened.finished(backend.scalars, moment)
    if not opened.shard_work:
        return near
    return Results([*near.batches, *driver_results(backend, state, opened.shard_work, moment).batches])


def driver_results(backend: EmitBackend, state: State, works: Sequence[ShardWork], moment: Moment) -> Results:
    """Early results over groups on the executors that the driver needs or finishes: with EMIT EARLY, LIMIT or LAG."""
    work = split_work(works)
    opened = fetch_windows(backend, work.following, moment)
    followers = Followers([query for lowered in opened for query in lowered.queries])
    earlier = finish(list(with_lags(state, followers, opened)), moment, backend.scalars)
    return Results([*earlier.batches, *driver_finished(backend, work.to_driver, moment).batches])


def fetch_windows(backend: EmitBackend, works: Sequence[ShardWork], moment: Moment) -> list[LoweredWindows]:
    """Windows over groups on the executors, with their aggregates, before their SELECT lists are applied."""
    opened = []
    for work in works:
        bare = tuple(replace(reader, query=reader.query.without_select_list()) for reader in work.readers)
        tables = backend.fetch_shards([replace(work, readers=bare)], moment)
        for i, reader in enumerate(work.readers):
            table = tables.get(reader.query.name)
            if table is None or not len(table):
                continue
            columns = [name for name in reader.query.query.item_columns if not name.startswith("l")]
            opened.append(
                LoweredWindows(
                    [reader.query],
                    np.zeros(len(table), np.int64),
                    table.select([*columns, ROWS]).combine_chunks(),
                    [work.unseen[i]],
                    [reader.query.name in work.partial],
                    [work.arrivals[i]],
                    [work.late[i]],
                )
            )
    return opened


def driver_finished(backend: EmitBackend, works: Sequence[ShardWork], moment: Moment) -> Results:
    """The results of queries over groups on the executors that the driver needs."""
    tables = backend.fetch_shards(works, moment).items() if works else ()
    return Results(
        [ResultBatch([name], np.array([0, len(table)]), table) for name, table in tables if len(table)]
    )


def with_early_results(
    state: State,
    requests: Sequence[WindowRequest],
    cascade: Cascade,
    living: Sequence[CompiledQuery],
    partial: frozenset[str],
    backend: EmitBackend,
    moment: Moment,
) -> State:
    """A temporary state for reading open windows of queries over queries.

    The open windows of the inner query count for the outer one, too: their early results are added to the
    outer query's slices in this state only.
    """
    named = {inner.name: inner for inner, _ in cascade}
    needed: set[str] = set()
    for request in requests:
        stream = request.query.query.stream
        while stream in named and stream not in needed:
            needed.add(stream)
            stream = named[stream].query.stream
    for inner, outers in cascade:
        if inner.name not in needed or inner.name not in state.queries:
            continue
        opened = read_open_windows(state, [WindowRequest(inner, EVERYTHING)], living, partial)
        tables = [
            *opened.finished(backend.scalars, moment).values(),
            *backend.fetch_shards(split_work(opened.shard_work).plain, moment).values(),
            *driver_results(backend, state, opened.shard_work, moment).values(),
        ]
        if tables:
            batch = BatchInput(derived_rules(inner), outers, partial=partial)
            whole = without_condition(inner.query, pa.concat_tables(tables))
            outcome = backend.aggregate(batch, result_rows(inner, whole), state)
            state = with_rows(state, replace(batch, outcome=outcome))
    return state
