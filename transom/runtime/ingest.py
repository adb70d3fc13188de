"""The first half of a data batch: what fails in one query suspends that query, not the batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transom.backends.projection import micros
from transom.backends.spark.broadcast_plan import Shipper
from transom.backends.spark.scalars import short_message
from transom.backends.spark.tables import Tables
from transom.backends.spark.types import to_frame
from transom.backends.spark.udf import failures
from transom.durations import format_instant
from transom.elements import ClockKind
from transom.errors import BatchError
from transom.kernel.aggregate import Outcome
from transom.overload.bursts import Parted, top_of
from transom.overload.sideline import Sideline
from transom.plan.compiled import CompiledQuery
from transom.plan.passes.admission import release_suspended
from transom.plan.planner import Planner
from transom.promising.batch_tuples import Arrival
from transom.promising.execution import Promising
from transom.results.stream_progress import BatchInput
from transom.runtime.executor_state import Far
from transom.runtime.file_store import Store
from transom.runtime.ingest_batch import Batch, BatchRun
from transom.runtime.outputs import Outputs
from transom.runtime.registry import Registry
from transom.runtime.sources import ResultSource
from transom.runtime.streams import Carried, Stream, believable, carried_control
from transom.runtime.suspension import suspend, suspend_failing
from transom.runtime.write_ahead_log import BatchIntent
from transom.sql.binding.cascades import relation_of
from transom.state.state import State

log = logging.getLogger("transom")

NEAR_ROWS = 10_000  # pushed batches up to this size are aggregated on the driver, where they are


@dataclass(frozen=True)
class FirstDone:
    """What the first half of a batch came to: punctuations and prods that its rows carried, what came of the
    others, what was put off, and what is new to the stream's summaries."""

    carried: list[Carried]
    outcome: Outcome
    parted: Parted
    arrivals: Mapping[str, Arrival]


class FirstHalf:
    """Turns the rows of a batch into an outcome, and sets late and rejected rows apart."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        outputs: Outputs,
        far: Far,
        planner: Planner,
        store: Store,
        max_failures: int,
        promising: Promising,
    ):
        self.spark, self.tables, self.outputs, self.far = spark, tables, outputs, far
        self.planner, self.max_failures, self.promising = planner, max_failures, promising
        self.shipper = Shipper(spark)
        self.sideline = Sideline(spark, store, tables, self.shipper)

    def process(
        self, intent: BatchIntent, stream: Stream, df: DataFrame | None, registry: Registry, state: State
    ) -> FirstDone:
        """What came of a batch's rows. Without own ones, it consists of such that were put off before."""
        carried: list[Carried] = []
        if df is None:
            df = self.sideline.rows(intent, stream, state)
        else:
            carried, df = carried_control(stream, df)
        parting = self.sideline.part(intent, stream, self._batch(intent, stream, df, registry, state))
        batch = parting.batch
        with parting.resources:
            while True:
                self.far.begin(intent.batch_id)
                try:
                    outcome, arrivals = self._run(intent, batch, registry)
                    break
                except Exception as error:
                    if not self._suspend_culprits(batch, registry):
                        reason = short_message(error)
                        raise BatchError(
                            f"batch {intent.batch_id} of {stream.name} failed: {reason}"
                        ) from error
                    again = self._batch(intent, stream, batch.df, registry, state)
                    batch = replace(again, near=batch.near, limit=batch.limit, is_judged=batch.is_judged)
        tuples = (arrival.far for arrival in arrivals.values() if arrival.far is not None)
        self.far.tidy([*outcome.refs, *(ref for _, ref, _ in outcome.run_refs), *tuples])
        clock = stream.rules.clock
        beside = top_of((*parting.parted.aside, *parting.parted.shed), clock)
        seen = outcome.clocks[clock].top if clock in outcome.clocks else None
        tops = (batch.before.clock(clock).high, seen, beside)
        kept = believable(carried, stream.rules, max((top for top in tops if top is not None), default=None))
        if len(kept) < len(carried):
            log.warning("%d punctuations of %s are beyond its horizon", len(carried) - len(kept), stream.name)
        return FirstDone(kept, outcome, parting.parted, arrivals)

    def results(
        self, intent: BatchIntent, given: BatchInput, rows: pa.Table, registry: Registry, state: State
    ) -> Outcome:
        """What comes of the rows of a stream of results, for the queries that read it."""
        inner = given.rules.clock.stream
        columns = dict(relation_of(inner, registry.query(inner)).columns)
        stream = Stream(inner, columns, given.rules, ResultSource())
        frame = to_frame(self.spark, rows)
        own = replace(intent, stream=inner, reference={"rows": 0})  # however many: they are on the driver
        while True:
            batch_id = self._batch(own, stream, frame, registry, state)
            planned = replace(batch_id, shelf=None, most_groups=None)  # what it comes to stays on the driver
            try:
                with BatchRun(planned, self.tables, self.shipper) as run:
                    return run.process().outcome
            except Exception as error:
                if not self._suspend_culprits(planned, registry):
                    reason = short_message(error)
                    raise BatchError(f"batch {intent.batch_id} over {inner} failed: {reason}") from error

    def _batch(
        self, intent: BatchIntent, stream: Stream, df: DataFrame, registry: Registry, state: State
    ) -> Batch:
        queries, looking = registry.reading(stream.name), registry.looking(stream.name)
        state = release_suspended(state, registry.compiled())
        return Batch(
            df,
            stream.columns,
            stream.rules,
            queries,
            state,
            self.planner.plan(state, queries),
            intent.clock,
            intent.tables,
            near=intent.reference.get("rows", NEAR_ROWS + 1) <= NEAR_ROWS,
            shelf=self.far.shelf(state),
            most_groups=self.far.most_groups,
            looking=looking,
            store_sets=self.planner.store_sets(stream.name, looking),
        )

    def _run(
        self, intent: BatchIntent, batch: Batch, registry: Registry
    ) -> tuple[Outcome, dict[str, Arrival]]:
        stream = batch.rules.clock.stream
        with BatchRun(batch, self.tables, self.shipper) as run:
            done = run.process()
            self.outputs.set_apart("late", stream, intent.batch_id, with_reason(done.late, batch))
            self.outputs.set_apart("rejected", stream, intent.batch_id, done.rejected)
            return done.outcome, self.promising.arrive(run, done.limit, intent, registry)

    def _suspend_culprits(self, batch: Batch, registry: Registry) -> bool:
        """Find the queries whose own functions make a batch fail, and suspend them."""

        def alone(query: CompiledQuery) -> None:
            state = release_suspended(batch.state, {query.name: query})
            shared = Planner(self.planner.strategy).plan(state, [query])
            only = replace(batch, queries=[query], state=state, shared=shared, near=False).looked_at_by([])
            with BatchRun(only, self.tables, self.shipper) as run:
                run.process()

        def looked_up(query: CompiledQuery) -> None:
            nobody = Planner(self.planner.strategy).plan(batch.state, [])
            only = replace(batch, queries=[], shared=nobody, near=False).looked_at_by([query])
            with BatchRun(only, self.tables, self.shipper) as run:
                run.process()

        tried = {query.name: partial(alone, query) for query in batch.queries if query.query.functions}
        tried |= {query.name: partial(looked_up, query) for query in batch.looking if query.query.functions}

        def preferred(name: str) -> None:
            with BatchRun(batch, self.tables, self.shipper) as run:
                self.promising.attempt(run, name, registry)

        tried |= {
            name: partial(preferred, name) for name, query in registry.preferring().items() if query.functions
        }
        return suspend_failing(registry, tried)

    def failures(self, registry: Registry) -> dict[str, int]:
        """How often each user-defined function of the queries has failed so far."""
        used = {name for functions in registry.functions().values() for name in functions}
        return {name: failures(self.spark, name) for name in used}

    def count_failures(self, registry: Registry, before: Mapping[str, int]) -> None:
        """Suspend the queries whose functions failed in too many batches in a row."""
        after = self.failures(registry)
        for query, functions in registry.functions().items():
            has_failed = any(after[name] > before.get(name, 0) for name in functions)
            failing = registry[query].failing + 1 if has_failed else 0
            if failing >= self.max_failures:
                suspend(registry, query, f"its function failed in {failing} batches in a row")
            elif failing != registry[query].failing:
                registry.update(query, failing=failing)


def with_reason(rows: DataFrame | pa.Table | None, batch: Batch) -> DataFrame | pa.Table | None:
    """Late rows that say why they are: before the watermark, closed by something else, too old to be kept."""
    if rows is None:
        return None
    clock = batch.rules.clock
    mark = batch.before.clock(clock).closed.watermark()
    shown = format_instant(mark or 0) if clock.kind is ClockKind.TIME else str(mark)
    passed = _reason(f"closed: watermark {shown}", batch)
    said = _reason("closed by a punctuation, or as the stream fell idle or ended", batch)
    if isinstance(rows, DataFrame):
        time = F.expr(micros(f"`{clock.attribute}`", batch.columns[clock.attribute]))
        is_passed = F.lit(False) if mark is None else time < F.lit(mark)
        return rows.withColumn("reason", F.when(is_passed, F.lit(passed)).otherwise(F.lit(said)))
    times = rows[clock.attribute]
    times = times.cast(pa.timestamp("us", times.type.tz) if pa.types.is_timestamp(times.type) else pa.int64())
    before = [mark is not None and t < mark for t in times.cast(pa.int64()).to_pylist()]
    return rows.append_column("reason", pa.array([passed if b else said for b in before], pa.string()))


def _reason(closed: str, batch: Batch) -> str:
    """Why a row is late for all who ask: windows that are pushed were closed, lookups keep nothing so old."""
    pushed = f"every window that asked for it was {closed}"
    kept = "it is older than all that is kept for lookups"
    return " and ".join([pushed] * bool(batch.queries or not batch.looking) + [kept] * bool(batch.looking))
