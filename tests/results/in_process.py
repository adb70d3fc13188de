"""A batch in this process, without Spark: for experiments, and for thousands of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.elements import ClockKind, Prod
from transom.errors import SettingError
from transom.kernel.aggregate import (
    BatchPlan,
    Outcome,
    accounts_of,
    aggregate_rows,
    count_partials,
    merge,
)
from transom.kernel.shards import Shelf, fetched
from transom.ondemand.store_specs import StoreSet, store_scalars
from transom.ondemand.stores import store_inputs
from transom.plan.compiled_query import CompiledQuery
from transom.plan.planner import Planner
from transom.results.batch_input import BatchInput, clocks_of
from transom.results.emit import BatchOutput, EmitBackend, EmitContext, emit
from transom.results.result_rows import LoweredWindows, Moment, Results, Stored, finish, result_batch
from transom.results.shard_windows import close_shards
from transom.results.shard_work import ShardWork
from transom.results.top_rows import top_of_parts
from transom.sql.catalog import Scalars
from transom.state.state import State
from transom.windows.stream_rules import StreamRules


def advance(
    state: State,
    batches: Sequence[BatchInput],
    scalars: Scalars,
    shelf: Shelf | None = None,
    *,
    clock: int = 0,
    prods: Sequence[Prod] = (),
    living: Sequence[CompiledQuery] | None = None,
    planner: Planner | None = None,
) -> BatchOutput:
    """Emit a batch in this process; `living` are all queries, if some read the results of others."""
    queries = [query for batch in batches for query in batch.queries] if living is None else living
    planner = planner or Planner()
    context = EmitContext(prods, clock, clock, planner=planner)
    return emit(state, batches, queries, context, shelf, InProcess(scalars, shelf, planner))


def folded(
    rows: pa.Table,
    queries: Sequence[CompiledQuery],
    rules: StreamRules,
    state: State,
    planner: Planner,
    scalars: Scalars,
    store_sets: Sequence[StoreSet] = (),
) -> Outcome:
    """Ingest a batch in this process: rows to partial aggregates, for the queries of their stream."""
    shared = planner.plan(state, queries)
    wanted = (*(scalar for query in queries for scalar in query.query.scalars()), *store_scalars(store_sets))
    names = {sql: f"c{i}" for i, sql in enumerate(dict.fromkeys(scalar.sql for scalar in wanted))}
    clocks = {clock: f"t{i}" for i, clock in enumerate(clocks_of(queries, rules, store_sets))}
    if any(clock.kind is ClockKind.ROWS for clock in clocks) or any(q.query.joins for q in queries):
        raise SettingError("joins and ROWS windows need the whole engine")
    columns = {}
    if names:
        projected = scalars.project(rows, {name: sql for sql, name in names.items()})
        columns = dict(zip(projected.column_names, projected.columns, strict=True))
    columns |= {name: rows[clock.attribute].cast(pa.int64()) for clock, name in clocks.items()}
    stream = state.stream(rules.clock.stream)
    closed = {clock: stream.clock(clock).closed for clock in clocks}
    plan = BatchPlan(
        shared.families,
        shared.interests,
        names,
        clocks,
        clocks[rules.clock],
        closed,
        store_inputs=store_inputs(state, stream, store_sets),
        index=shared.index,
    )
    outcome = count_partials(merge([aggregate_rows(pa.table(columns), plan)], shared.layouts), plan)
    outcome.accounts = accounts_of(outcome, plan)
    return outcome


@dataclass
class InProcess(EmitBackend):
    """Everything here and now, in this process."""

    scalars: Scalars
    shelf: Shelf | None
    planner: Planner

    def read_shards(self, works: Sequence[ShardWork], moment: Moment) -> tuple[Mapping[str, Stored], int]:
        found, steps = list[LoweredWindows](), 0
        for work in works:
            assert self.shelf is not None
            for partition in range(self.shelf.partitions):
                for one, more in close_shards(fetched(self.shelf.store, work.refs, partition), work):
                    found.append(one)
                    steps += more
        return {name: InMemory(table) for name, table in finish(found, moment, self.scalars).items()}, steps

    def fetch_shards(self, works: Sequence[ShardWork], moment: Moment) -> Mapping[str, pa.Table]:
        queries = {reader.query.name: reader.query.query for work in works for reader in work.readers}
        parts: dict[str, list[pa.Table]] = {}
        for work in works:
            assert self.shelf is not None
            for partition in range(self.shelf.partitions):
                for one, _ in close_shards(fetched(self.shelf.store, work.refs, partition), work):
                    texts = {text: text for text in one.texts}
                    computed = self.scalars.project(one.table, texts) if texts else one.table
                    columns = {text: computed[text] for text in texts}
                    for name, table in Results([result_batch(one, columns, moment)]).items():
                        parts.setdefault(name, []).append(table)
        return {name: top_of_parts(queries[name], pa.concat_tables(own)) for name, own in parts.items()}

    def aggregate(self, batch: BatchInput, rows: pa.Table, state: State) -> Outcome:
        return folded(rows, batch.queries, batch.rules, state, self.planner, self.scalars, batch.store_sets)


@dataclass(frozen=True)
class InMemory:
    """Results that are kept nowhere else."""

    table: pa.Table

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def read(self) -> pa.Table:
        return self.table

    def and_also(self, more: InMemory) -> InMemory:
        return InMemory(pa.concat_tables([self.table, more.table]))
