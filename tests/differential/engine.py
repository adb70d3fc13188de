"""The engine without Spark, for random cases: rows projected by the oracle, split as tasks would be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tests.differential.cases import COLUMNS, BatchCase, Case
from tests.results.in_process import advance
from transom import oracle
from transom.columns.bit_columns import bit_matrix
from transom.elements import Clock, ClockKind
from transom.kernel.aggregate import (
    BatchPlan,
    Outcome,
    accounts_of,
    aggregate_rows,
    count_partials,
    late_rows,
    merge,
    write_shards,
)
from transom.kernel.shards import Shelf
from transom.ondemand.store_specs import StoreSet
from transom.ondemand.stores import store_inputs
from transom.overload.chunks import BurstOutcome
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.plan.strategy import Strategy
from transom.results.batch_input import BatchInput, clocks_of
from transom.sql import Catalog, Query, Relation, bind
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.state import snapshot
from transom.state.commit_record import CommitRecord
from transom.state.state import State
from transom.storage.shard_refs import ShardRef
from transom.windows.horizon import horizon_limit
from transom.windows.stream_rules import StreamRules

SCALARS = InterpretedScalars()
CATALOG = Catalog({"s": Relation("s", COLUMNS, "ts")})
TIME = Clock("s", "ts", ClockKind.TIME)
Row = dict[str, Any]


def bound(texts: dict[str, str]) -> dict[str, Query]:
    """The case's queries; none of them is wrong."""
    found = bind(texts, CATALOG, SCALARS)
    for query in found.values():
        assert isinstance(query, Query), f"{query}"
    return found  # type: ignore[return-value]


class MemoryShards:
    """Shards kept in memory, as bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, table: pa.Table) -> int:
        assert name not in self.files
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self.files[name] = bytes(sink.getvalue())
        return len(self.files[name])

    def get(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(self.files[name]).read_all()

    def keep(self, refs: Iterable[ShardRef]) -> None:
        """Forget all others."""
        kept = {name for ref in refs for name in ref.files}
        assert kept <= self.files.keys()
        self.files = {name: data for name, data in self.files.items() if name in kept}


class PureEngine:
    """The engine without Spark: rows projected by the oracle's scalars, split as tasks would be.

    Results are kept by the case's keys; inside, queries go by their names.
    """

    def __init__(
        self,
        case: Case,
        queries: dict[str, Query],
        strategy: Strategy | None = None,
        naive: bool = False,
        executor_rows: int | None = None,
    ):
        self.case, self.naive = case, naive
        self.shards, self.executor_rows = MemoryShards(), executor_rows
        strategy = strategy or Strategy()
        limits = strategy.limits
        if executor_rows is not None:
            limits = replace(limits, driver_rows=executor_rows)
        self.planner = Planner(replace(strategy, limits=limits))
        self.compiled: dict[str, CompiledQuery] = {}
        self.rules = StreamRules(TIME, case.slack, {}, case.horizon)
        self.state = State()
        self.living: dict[str, CompiledQuery] = {}
        self.keys: dict[str, str] = {}  # of those that live, by name
        self.results: dict[str, list[Row]] = {}
        self.early: dict[str, list[Row]] = {}
        self.late: list[tuple[int, Any, tuple[str, ...]]] = []
        for key, query in queries.items():
            self.learn(key, query)

    def learn(self, key: str, query: Query) -> None:
        """Make a query known that some batch will register."""
        self.compiled[key] = compile_query(self.case.name(key), query, self.naive)
        self.results[key], self.early[key] = [], []

    def batch(self, batch: BatchCase) -> None:
        self._join_and_leave(batch)
        limit = self._limit(table_of(batch.rows))
        batch, burst = self.part(batch, limit)
        outcome = self._outcome(batch, limit)
        given = BatchInput(
            self.rules,
            list(self.standing.values()),
            outcome,
            batch.punctuations,
            batch.ended,
            self.partial,
            burst=burst,
            store_sets=self.store_sets,
        )
        output = advance(self.state, [given], SCALARS, self.shelf, prods=batch.prods, planner=self.planner)
        self.shards.keep(output.state.refs)
        for name, table in output.results.items():
            for row in presented(table):
                kind = row.get("transom_kind", row["kind"])  # some queries have a column of that name
                (self.early if kind == "early" else self.results)[self.keys[name]].append(row)
        self.state = output.state

    def part(self, batch: BatchCase, limit: int | None) -> tuple[BatchCase, BurstOutcome]:
        """What is processed of a batch, and what is not."""
        return batch, BurstOutcome()

    def restart(self) -> None:
        """What a process does that dies and comes back between two batches."""
        record = CommitRecord("local", sources={"kept": 1})
        self.state, restored = snapshot.loads(snapshot.dumps(self.state, record))
        self.planner = Planner(self.planner.strategy)
        assert restored == record

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.shards, f"batch {self.state.batch_id}", 3)

    @property
    def standing(self) -> dict[str, CompiledQuery]:
        """The queries that live and are not looked up, by name."""
        return {name: query for name, query in self.living.items() if query.is_standing}

    @property
    def store_sets(self) -> tuple[StoreSet, ...]:
        """What the others need kept."""
        looking = [query for query in self.living.values() if query.is_on_demand]
        return self.planner.store_sets("s", looking)

    @property
    def partial(self) -> frozenset[str]:
        """The names of those that also want windows seen in part."""
        return frozenset(name for name, key in self.keys.items() if key in self.case.partial)

    def _join_and_leave(self, batch: BatchCase) -> None:
        names = [self.case.name(key) for key in batch.leaving]
        for name in names:
            del self.living[name], self.keys[name]
        newcomers = [self.compiled[key] for key in batch.joining]
        self.living |= {query.name: query for query in newcomers}
        self.keys |= {self.case.name(key): key for key in batch.joining}
        joining = [query for query in newcomers if query.is_standing]
        membership = Membership(self.standing, joining, names, self.partial, self.store_sets)
        self.state = self.planner.begin(self.state, membership, list(self.standing.values()))

    def _limit(self, table: pa.Table) -> int | None:
        high = self.state.stream("s").clock(TIME).high
        cut = None if high is None or self.case.horizon is None else high + self.case.horizon
        probe = pa.table({"t0": table["ts"].cast(pa.int64())})
        profile = aggregate_rows(
            probe, BatchPlan((), (), {}, {}, "t0", limit=cut, horizon=self.case.horizon)
        ).profile
        return horizon_limit(profile, high, self.case.horizon)

    def _outcome(self, batch: BatchCase, limit: int | None) -> Outcome:
        queries = list(self.standing.values())
        stream, table = self.state.stream("s"), table_of(batch.rows)
        sqls = dict.fromkeys(scalar.sql for query in self.living.values() for scalar in query.query.scalars())
        names = {sql: f"c{i}" for i, sql in enumerate(sqls)}
        followed = clocks_of(queries, self.rules, self.store_sets)
        clocks = {clock: f"t{i}" for i, clock in enumerate(followed)}
        projected = SCALARS.project(table, {name: sql for sql, name in names.items()}) if names else None
        columns = (
            {} if projected is None else dict(zip(projected.column_names, projected.columns, strict=True))
        )
        for clock, name in clocks.items():
            columns[name] = self._clock(clock, table, batch, limit)
        shared = self.planner.plan(self.state, queries)
        plan = BatchPlan(
            shared.families,
            shared.interests,
            names,
            clocks,
            clocks[TIME],
            {clock: stream.clock(clock).closed for clock in clocks},
            limit,
            horizon=self.case.horizon,
            on_executors=self.state.on_executors,
            most_groups=self.executor_rows,
            store_inputs=store_inputs(self.state, stream, self.store_sets),
            index=shared.index,
            limits=self.planner.strategy.limits,
        )
        rows = pa.table(columns)
        outcome = self._aggregated(rows, plan, batch.splits, self.shelf)
        known = plan.with_late_sessions(outcome, self.state.sheets)
        if known is not None:
            plan, again = known, Shelf(self.shards, f"batch {self.state.batch_id} again", 3)
            outcome = self._aggregated(rows, plan, batch.splits, again)
        outcome.accounts = accounts_of(outcome, plan)
        chosen = late_rows(rows, plan)
        assert outcome.late == len(chosen.at)
        missed_by = bit_matrix(chosen.missed_by, len(plan.groups))
        for number, missed in zip(chosen.at.tolist(), missed_by, strict=True):
            names = [name for group in np.flatnonzero(missed) for name in plan.groups[group]]
            queries = tuple(sorted(self.keys[name] for name in names))
            self.late.append((self.state.batch_id, key(batch.rows[number]), queries))
        return outcome

    def _aggregated(self, rows: pa.Table, plan: BatchPlan, splits: int, shelf: Shelf) -> Outcome:
        by_family = replace(plan, limits=replace(plan.limits, matrix_cells=0))  # as if there were many rows
        tasks = (
            aggregate_rows(rows.take(share), (plan, by_family)[(self.state.batch_id + number) % 2])
            for number, share in enumerate(shares(rows.num_rows, splits))
        )
        outcome = merge((write_shards(done, shelf) for done in tasks), plan.layouts)
        return count_partials(outcome, plan)

    def _clock(self, clock: Clock, table: pa.Table, batch: BatchCase, limit: int | None) -> pa.Array:
        if clock.kind is not ClockKind.ROWS:
            return table[clock.attribute].cast(pa.int64())
        accepted = [
            i
            for i, row in enumerate(batch.rows)
            if row["ts"] is not None and (limit is None or row["ts"] <= limit)
        ]
        ordered = oracle.batches.in_order([{**batch.rows[i], "#": i} for i in accepted], "ts", list(COLUMNS))
        numbers: list[int | None] = [None] * len(batch.rows)
        for number, row in enumerate(ordered):
            numbers[row["#"]] = self.state.stream("s").totals.accepted + number
        return pa.array(numbers, pa.int64())


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {name: pa.array([r[name] for r in rows], kind, from_pandas=False) for name, kind in COLUMNS.items()}
    )


def shares(rows: int, splits: int) -> list[pa.Array]:
    """Row numbers dealt out to tasks."""
    return [pa.array(range(start, rows, splits), pa.int64()) for start in range(splits)]


def presented(table: pa.Table) -> list[Row]:
    """Result rows with times as microseconds."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = (
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        ).to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def key(row: Row) -> tuple[Any, ...]:
    return tuple(repr(row[name]) for name in COLUMNS)
