"""The first half of a batch on Spark: project, number, judge the future, run the kernel, set rows apart."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from transom.backends.projection import micros, project
from transom.backends.spark.broadcast_plan import Shipper
from transom.backends.spark.files import CORRUPT
from transom.backends.spark.scalars import collect_small
from transom.backends.spark.session import ansi_off
from transom.backends.spark.tables import Tables
from transom.elements import Clock, ClockKind
from transom.kernel.aggregate import BatchPlan, Outcome, late_rows, merge, put_away, run
from transom.kernel.shards import Shelf
from transom.ondemand.store_specs import StoreSet, store_sets
from transom.ondemand.stores import store_inputs
from transom.plan.compiled import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.planner import SharedPlan, askers
from transom.results.advance import clocks_of
from transom.runtime.batch_tasks import aggregate_task, late_task
from transom.runtime.sources import HIDDEN, TIME_TEXT
from transom.sql.query import Join
from transom.state.state import State, StreamState
from transom.windows.horizon import horizon_limit
from transom.windows.profile import Profile
from transom.windows.stream_rules import StreamRules

ROW_NUMBER, ROW_ID = "__row_number__", "__row_id__"


@dataclass(frozen=True)
class Batch:
    """A data batch: its rows, and what was known when it began."""

    df: DataFrame
    columns: Mapping[str, pa.DataType]  # of the stream, those that queries can name
    rules: StreamRules
    queries: Sequence[CompiledQuery]
    state: State
    shared: SharedPlan  # of the queries
    now: int
    versions: Mapping[str, int]  # of the static tables
    near: bool = False  # few rows, already on the driver: no job is worth its start
    shelf: Shelf | None = None  # for cells of far selections
    most_groups: int | None = None  # families with more go far
    limit: int | None = None  # of its times, if that is known
    is_judged: bool = False  # whether it is
    looking: Sequence[CompiledQuery] = ()  # on-demand queries
    store_sets: Sequence[StoreSet] = ()  # what they need kept

    @property
    def everyone(self) -> list[CompiledQuery]:
        """The queries that read its rows, standing or on demand."""
        return [*self.queries, *self.looking]

    def looked_at_by(self, looking: Sequence[CompiledQuery]) -> Batch:
        """The batch with other on-demand queries."""
        return replace(self, looking=looking, store_sets=store_sets(looking))

    @property
    def before(self) -> StreamState:
        return self.state.stream(self.rules.clock.stream)


@dataclass
class Processed:
    """What came of the rows, and the rows that were set apart."""

    outcome: Outcome
    limit: int | None
    late: DataFrame | pa.Table | None = None
    rejected: DataFrame | None = None


@dataclass(frozen=True)
class _Branch:
    """Queries that share a pass over the rows: without a join that repeats rows, or with the same ones."""

    queries: tuple[CompiledQuery, ...]
    joins: tuple[Join, ...]
    df: DataFrame
    plan: BatchPlan
    scalars: Mapping[str, str] = field(default_factory=dict)


class BatchRun:
    """One data batch on its way through Spark; what it set apart can be read until it is left."""

    def __init__(self, batch: Batch, tables: Tables, shipper: Shipper):
        self.batch, self.tables, self.shipper = batch, tables, shipper
        self.clocks = clocks_of(batch.queries, batch.rules, batch.store_sets)
        self.time = self.micros(batch.rules.clock)
        if CORRUPT in batch.df.columns:
            self.time = f"CASE WHEN `{CORRUPT}` IS NULL THEN {self.time} END"

        self._cached: DataFrame | None = None
        self._once: dict[tuple[str, tuple[str, ...]], bool] = {}  # by join, and the joins beside it

    def __enter__(self) -> BatchRun:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._cached is not None:
            self._cached.unpersist()

    def process(self) -> Processed:
        """Aggregate the rows that are accepted, and find those that are late or rejected."""
        repeated, df = self._repeating(), self.batch.df
        if any(repeated):
            # The branches must agree on which row is which, so that the rows are read once.
            df = self._cached = df.withColumn(ROW_ID, F.monotonically_increasing_id()).persist()
        limit, exact = self._first_limit(df)
        df = self._numbered(df, limit)
        branches = [self._branch(queries, df, limit, any(repeated)) for queries in repeated.values()]
        outcomes = [self._run(branch, branch.plan) for branch in branches]
        if not exact and outcomes[0].ahead:
            limit, outcomes = self._followed(branches, outcomes, limit)
        outcome = _accounted(outcomes, self.batch.shared.layouts)
        done = Processed(outcome, limit)
        if outcome.late:
            done.late = self._late(branches, outcomes, limit)
        if outcome.timeless or outcome.ahead:
            done.rejected = self._rejected(df, limit)
        return done

    # --- the future ---

    def _first_limit(self, df: DataFrame) -> tuple[int | None, bool]:
        """The limit of this batch's times, and whether it is certain.

        Where the stream was is known after its first batch. Then rows within the horizon of that are
        aggregated at once, and only if some lie beyond it is the whole batch's profile consulted.
        """
        rules, high = self.batch.rules, self.batch.before.clock(self.batch.rules.clock).high
        if self.batch.is_judged or rules.horizon is None:
            return self.batch.limit, True
        if high is not None and not any(clock.kind is ClockKind.ROWS for clock in self.clocks):
            return self._not_after_now(high + rules.horizon), False
        return self.judged(df)[0], True

    def judged(self, df: DataFrame) -> tuple[int | None, Profile]:
        """The limit of this batch's times, for certain, and where its rows lie."""
        rules, high = self.batch.rules, self.batch.before.clock(self.batch.rules.clock).high
        cut = None if high is None or rules.horizon is None else high + rules.horizon
        plan = BatchPlan((), (), {}, {}, "t0", limit=cut, horizon=rules.horizon)
        profile = self._run(_Branch((), (), df, plan, {"t0": self.time}), plan).profile
        return self._not_after_now(horizon_limit(profile, high, rules.horizon)), profile

    def _not_after_now(self, limit: int | None) -> int | None:
        rules = self.batch.rules
        if not rules.live or rules.horizon is None or limit is None:
            return limit
        return min(limit, self.batch.now + rules.horizon)

    def _followed(
        self, branches: Sequence[_Branch], outcomes: Sequence[Outcome], limit: int | None
    ) -> tuple[int | None, list[Outcome]]:
        """Rows beyond the horizon that belong to the stream after all are aggregated in addition."""
        high = self.batch.before.clock(self.batch.rules.clock).high
        found = horizon_limit(outcomes[0].profile, high, self.batch.rules.horizon)
        further = self._not_after_now(found)
        if further is None or limit is None or further <= limit:
            return limit, list(outcomes)
        both = []
        for branch, outcome in zip(branches, outcomes, strict=True):
            more = self._run(branch, replace(branch.plan, limit=further, floor=limit))
            merged = merge([outcome, more], self.batch.shared.layouts)
            merged.rows, merged.timeless, merged.ahead = outcome.rows, outcome.timeless, more.ahead
            merged.profile = outcome.profile
            both.append(merged)
        return further, both

    # --- the rows' way to the kernel ---

    def micros(self, clock: Clock) -> str:
        if clock.kind is ClockKind.ROWS:
            return f"`{ROW_NUMBER}`"
        return micros(f"`{clock.attribute}`", self.batch.columns[clock.attribute])

    def accepted(self, limit: int | None) -> str:
        within = "" if limit is None else f" AND ({self.time}) <= {limit}"
        return f"(({self.time}) IS NOT NULL{within})"

    def order(self, df: DataFrame) -> list[str]:
        """What rows are sorted by: their time, ties by their other columns."""
        order = [f"({self.time})"]
        for name in self.batch.columns:
            kind = df.schema[name].dataType
            order.append(
                f"to_json(struct(`{name}`))" if isinstance(kind, MapType | VariantType) else f"`{name}`"
            )
        return order

    def _numbered(self, df: DataFrame, limit: int | None) -> DataFrame:
        """With accepted rows numbered by time, ties by their other columns: partitioning has no say."""
        if not any(clock.kind is ClockKind.ROWS for clock in self.clocks):
            return df
        base, accepted = self.batch.before.totals.accepted, self.accepted(limit)
        number = f"row_number() OVER (PARTITION BY {accepted} ORDER BY {', '.join(self.order(df))})"
        with ansi_off(df.sparkSession):
            return df.withColumn(
                ROW_NUMBER, F.expr(f"CASE WHEN {accepted} THEN CAST({base - 1} AS BIGINT) + {number} END")
            )

    def _repeating(self) -> dict[tuple[str, ...], list[CompiledQuery]]:
        """The queries by the joins of theirs that repeat rows; first those (perhaps none) that have none."""
        found: dict[tuple[str, ...], list[CompiledQuery]] = {(): []}
        for query in self.batch.everyone:
            joins = query.query.joins
            ids = tuple(join.id for join in joins)
            for join in joins:
                if (join.id, ids) not in self._once:
                    self._once[join.id, ids] = self._matches_once(join, joins)
            repeating = tuple(id for id in ids if not self._once[id, ids])
            found.setdefault(repeating, []).append(query)
        return found

    def _matches_once(self, join: Join, joins: Sequence[Join]) -> bool:
        """Whether a row finds at most one row of the table: its keys are unique, and compared as they are.

        A comparison that first casts a key (an integer with a text) may find several for one.
        """
        version = self.batch.versions[join.table]
        known = {f"`{name}`": kind for name, kind in self.batch.columns.items()}
        for one in joins:
            columns = self.tables.columns(one.table, self.batch.versions[one.table])
            known |= {f"`{one.id}.{name}`": kind for name, kind in columns.items()}
        for key in join.keys:
            own = f"`{join.id}.{key}`"
            others = re.findall(rf"{re.escape(own)} = (`[^`]+`)(?= AND |$)", join.on)
            if not any(known.get(other) == known[own] for other in others):
                return False
        return self.tables.is_unique(join.table, version, join.keys)

    def _branch(
        self, queries: Sequence[CompiledQuery], df: DataFrame, limit: int | None, with_id: bool
    ) -> _Branch:
        names: dict[str, str] = {}
        for query in queries:
            for scalar in query.query.scalars():
                names.setdefault(scalar.sql, f"c{len(names)}")
        clocks = {clock: f"t{i}" for i, clock in enumerate(self.clocks)}
        scalars = {name: sql for sql, name in names.items()}
        scalars |= {name: self.micros(clock) for clock, name in clocks.items()}
        time = clocks[self.batch.rules.clock]
        scalars[time] = self.time
        if with_id:
            scalars[ROW_ID] = f"`{ROW_ID}`"
        mine = {query.name for query in queries}
        shared = self.batch.shared
        families, asking = shared.families, shared.askers
        if len(mine) < len(self.batch.everyone):
            families = tuple(family for family in families if family.members[0].queries[0] in mine)
            asking = askers(self.batch.state, [query for query in queries if query.query.demand is None])
        gathered = [one for one in self.batch.store_sets if one.queries[0] in mine]
        plan = BatchPlan(
            families,
            asking,
            names,
            clocks,
            time,
            {clock: self.batch.before.clock(clock).closed for clock in clocks},
            limit,
            horizon=self.batch.rules.horizon,
            row_id=ROW_ID if with_id else None,
            far=self.batch.state.far,
            most_groups=self.batch.most_groups,
            store_inputs=store_inputs(self.batch.state, self.batch.before, gathered),
        )
        joins: dict[str, Join] = {}
        for join in (join for query in queries for join in query.query.joins):
            known = joins.get(join.id, join)
            if join.id not in joins or not set(join.columns) <= set(known.columns):
                columns = tuple(dict.fromkeys((*known.columns, *join.columns)))
                joins[join.id] = replace(known, columns=columns)
        return _Branch(tuple(queries), tuple(joins.values()), df, plan, scalars)

    def _projected(self, branch: _Branch, df: DataFrame, keep: Sequence[str] = ()) -> DataFrame:
        frames = {
            join.table: self.tables.frame(join.table, self.batch.versions[join.table])
            for join in branch.joins
        }
        return project(df, branch.scalars, branch.joins, frames, keep=keep, now=self.batch.now)

    def _run(self, branch: _Branch, plan: BatchPlan) -> Outcome:
        projected = self._projected(branch, branch.df)
        if self.batch.near:
            outcome = run(collect_small(projected), plan)
            return outcome if self.batch.shelf is None else put_away(outcome, self.batch.shelf)
        packed = projected.mapInArrow(
            aggregate_task(self.shipper.ship(plan), self.batch.shelf), "outcome binary"
        ).toArrow()
        outcomes = (pickle.loads(one) for one in packed["outcome"].to_pylist())
        return merge(outcomes, self.batch.shared.layouts)

    # --- rows set apart ---

    def _late(
        self, branches: Sequence[_Branch], outcomes: Sequence[Outcome], limit: int | None
    ) -> DataFrame | pa.Table:
        keep = list(self.batch.columns)
        if len(branches) > 1:
            asked, counted = _row_sets(outcomes)
            ids = pa.array(np.setdiff1d(asked, counted)).to_pylist()
            return branches[0].df.filter(F.col(ROW_ID).isin(ids)).select(*(f"`{name}`" for name in keep))
        branch = replace(branches[0], plan=replace(branches[0].plan, limit=limit))
        bound = self._latest_closed(branch.plan)
        candidates = branch.df
        if bound is not None:
            with ansi_off(candidates.sparkSession):
                candidates = candidates.filter(f"({self.time}) < {bound}")
        projected = self._projected(branch, candidates, keep)
        if self.batch.near:
            table = collect_small(projected)
            return table.filter(pa.array(late_rows(table, branch.plan))).select(keep)
        schema = candidates.select(*(f"`{name}`" for name in keep)).schema
        return projected.mapInArrow(late_task(self.shipper.ship(branch.plan), keep), schema)

    def _latest_closed(self, plan: BatchPlan) -> int | None:
        """A time above which no row can be late, if all windows follow the stream's own time."""
        own = self.batch.rules.clock
        return plan.latest_closed(own) if self.clocks == [own] else None

    def _rejected(self, df: DataFrame, limit: int | None) -> DataFrame:
        hidden = [name for name in HIDDEN if name in df.columns]
        unparsable = f"WHEN `{CORRUPT}` IS NOT NULL THEN 'not parsable' " if CORRUPT in df.columns else ""
        unreadable = (
            f"WHEN `{TIME_TEXT}` IS NOT NULL AND ({self.time}) IS NULL THEN 'no time: not a timestamp' "
        )
        reason = (
            f"CASE {unparsable}{unreadable if TIME_TEXT in df.columns else ''}"
            f"WHEN ({self.time}) IS NULL THEN 'no time: null' "
            "ELSE 'ahead of the stream by more than the horizon' END"
        )
        with ansi_off(df.sparkSession):
            chosen = df.filter(f"NOT {self.accepted(limit)}")
            columns = [F.col(f"`{name}`") for name in (*self.batch.columns, *hidden)]
            return chosen.select(*columns, F.expr(reason).alias("reason"))


def _accounted(outcomes: Sequence[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """One outcome of all branches, in which a row is counted once however often joins repeated it."""
    main = outcomes[0]
    if len(outcomes) == 1:
        return main
    total = merge(outcomes, layouts)
    asked, counted = _row_sets(outcomes)
    total.rows, total.timeless, total.ahead = main.rows, main.timeless, main.ahead
    total.profile, total.clocks, total.flags = main.profile, main.clocks, None
    total.counted, total.late = len(counted), len(np.setdiff1d(asked, counted))
    total.unasked = main.rows - main.timeless - main.ahead - len(asked)
    return total


def _row_sets(outcomes: Sequence[Outcome]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the rows that were asked for, and of those that were counted, in any branch."""
    flags = pa.concat_tables([outcome.flags for outcome in outcomes if outcome.flags is not None])
    rows, counted = flags["row"].to_numpy(), flags["counted"].to_numpy()
    return np.unique(rows), np.unique(rows[counted])
