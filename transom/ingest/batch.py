"""The ingest of one data batch: project its rows, number them, aggregate them, and find late and rejected ones."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa

from transom.backends.base import Backend, Frame, PositionedFrame, RecordBatches, ShippedPlan, TableJoin, Task
from transom.backends.expressions import at_clock, micros, quoted, text_literal
from transom.backends.hidden_columns import CORRUPT, HIDDEN, TIME_TEXT
from transom.columns.record_batches import in_large_tables
from transom.durations import format_duration
from transom.elements import Clock, ClockKind
from transom.ingest.late_rows import MISSED_BY, joined_bits, late_task, with_missed
from transom.ingest.row_readers import RowReaders
from transom.ingest.tables import StaticTables
from transom.kernel.aggregate import (
    BatchPlan,
    Outcome,
    accounts_of,
    aggregate_rows,
    count_partials,
    merge,
    write_shards,
)
from transom.kernel.query_counts import QueryCounts
from transom.kernel.row_matches import RowMatcher
from transom.kernel.shards import Shelf
from transom.ondemand.store_specs import StoreSet
from transom.ondemand.stores import store_inputs
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.plan.planner import SharedPlan
from transom.plan.query_interests import interests_of, query_index
from transom.results.batch_input import clocks_of
from transom.sql.query import PAIR_COUNT, Join
from transom.state.state import State, StreamState
from transom.windows.batch_profile import Profile
from transom.windows.horizon import horizon_limit
from transom.windows.partition_clocks import PartitionClocks
from transom.windows.stream_rules import StreamRules

ROW_NUMBER, ROW_ID, POSITION = "__row_number__", "__row_id__", "__position__"
PARTITION = "__partition__"  # the partition of the source that a row came from
MULTIPLICITY = "__multiplicity__"  # how many pairs a row of combined pairs stands for
CARRIED = "__carried__"  # before the names of columns that late and rejected rows are listed with
OUTCOME = pa.schema([("outcome", pa.binary())])
CELLS_AT_ONCE = 1 << 20  # of selections on the executors that a task holds in memory


@dataclass(frozen=True)
class DataBatch:
    """A data batch: its rows, and what is known when it begins."""

    frame: Frame
    columns: Mapping[str, pa.DataType]  # of the stream, those that queries can name
    rules: StreamRules
    queries: Sequence[CompiledQuery]  # the standing queries
    state: State
    shared: SharedPlan  # of the standing queries
    clock: int  # what current_timestamp() means in the batch
    versions: Mapping[str, int]  # of the static tables
    on_driver: bool = False  # few rows that are on the driver already: no job is worth its start
    shelf: Shelf | None = None  # where executors put cells of selections whose state they keep
    most_groups: int | None = None  # families with more groups leave the driver
    time_limit: int | None = None  # times above it are rejected, if the horizon was applied already
    is_judged: bool = False  # whether the horizon was applied
    on_demand: Sequence[CompiledQuery] = ()
    store_sets: Sequence[StoreSet] = ()  # what the on-demand queries need kept
    limits: Limits = field(default_factory=Limits)
    row_queries: Sequence[CompiledQuery] = ()  # those without a window
    matcher: RowMatcher = field(default_factory=RowMatcher)  # of all row queries
    reading: RowReaders | None = None  # of the queries of every kind; None: it is made
    partitions: PartitionClocks | None = None  # before the batch, if the delays of its rows are counted

    def with_rows(self, frame: Frame) -> DataBatch:
        """The batch with other rows, which are aggregated on the driver if they are there and few."""
        return replace(self, frame=frame, on_driver=self.is_on_driver(frame))

    def is_on_driver(self, frame: Frame | None) -> bool:
        """Whether rows are on the driver, and few enough to be worked on there."""
        rows = None if frame is None else frame.driver_rows
        return rows is not None and rows <= self.limits.pushed_rows

    @property
    def before(self) -> StreamState:
        """The stream's state before the batch."""
        return self.state.stream(self.rules.clock.stream)


@dataclass
class Ingested:
    """The partial aggregates of a batch's rows, and its late and rejected rows.

    Rows with times above `time_limit` are rejected. It is None if there are none: then conditions on the rows are the
    same in each batch, and are compiled once.
    """

    outcome: Outcome
    time_limit: int | None
    late: Frame | None = None  # with the column `MISSED_BY`
    rejected: Frame | None = None
    late_groups: Sequence[Sequence[str]] = ()  # the queries of each bit of `MISSED_BY`


@dataclass(frozen=True)
class _Branch:
    """Queries that share a pass over the rows: without a join that repeats rows, or with the same ones."""

    queries: tuple[CompiledQuery, ...]
    joins: tuple[Join, ...]
    frame: Frame
    plan: BatchPlan
    scalars: Mapping[str, str] = field(default_factory=dict)


class IngestRun:
    """The ingest of one batch; its late and rejected rows can be read until the run is left."""

    def __init__(self, batch: DataBatch, tables: StaticTables, backend: Backend):
        self.batch, self.tables, self.backend = batch, tables, backend
        reading = batch.reading
        if reading is None:
            reading = RowReaders.of(batch.queries, batch.on_demand, batch.row_queries)
        self.readers = reading
        self.clocks = clocks_of(batch.queries, batch.rules, batch.store_sets)
        self.time = self.micros(batch.rules.clock)
        if CORRUPT in batch.frame.columns:
            self.time = f"CASE WHEN `{CORRUPT}` IS NULL THEN {self.time} END"
        self._held = ExitStack()
        self._positioned: PositionedFrame | None = None  # the rows, if single ones can be read
        self._carried: list[str] = []  # the columns that late and rejected rows are listed with
        self._unique_joins: dict[tuple[str, tuple[str, ...]], bool] = {}  # by join, and the joins beside it

    def __enter__(self) -> IngestRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def process(self) -> Ingested:
        """Aggregate the accepted rows, and find those that are late or rejected."""
        branches_by_joins, frame = self._by_repeating_joins(), self.batch.frame
        has_branches = any(branches_by_joins)
        if has_branches:  # the branches must agree on which row is which, so the rows are read once
            frame = self._held.enter_context(frame.with_row_ids(ROW_ID))
        else:
            self._positioned = frame.with_positions(POSITION)
            if self._positioned is not None:
                frame = self._positioned.frame
            elif self._expects_late_rows:
                self._carried = list(frame.columns)
        limit, is_exact = self._first_limit(frame)
        frame = self._numbered(frame, limit)
        branches = [
            self._branch(readers, frame, limit, has_branches) for readers in branches_by_joins.values()
        ]
        outcomes = [self._aggregate(branch, branch.plan) for branch in branches]
        if not is_exact and self._high is None:
            limit, outcomes = self._of_first_batch(branches, outcomes)
        elif not is_exact and outcomes[0].ahead:
            limit, outcomes = self._with_rows_after_a_gap(branches, outcomes, limit)
        branches, outcomes = self._with_late_sessions(branches, outcomes, limit)
        outcome = _combined(outcomes, self.batch.shared.layouts)
        plans = (branch.plan for branch in branches)
        outcome.accounts = reduce(add, map(accounts_of, outcomes, plans))
        ingested = Ingested(outcome, limit if outcome.ahead else None)
        if outcome.late:
            ingested.late = self._late(branches, outcomes, limit)
            ingested.late_groups = [names for branch in branches for names in branch.plan.groups]
        if outcome.timeless or outcome.ahead:
            ingested.rejected = self._rejected(self._listed_rejected(outcome) or frame, limit)
        return ingested

    @property
    def _expects_late_rows(self) -> bool:
        """Whether tasks shall return late and rejected rows at once: earlier batches had some.

        To find them again would take a second job. To hand all columns to the tasks costs less than that, but more
        than the columns that queries read.
        """
        totals = self.batch.before.totals
        return not self.batch.on_driver and totals.late + totals.rejected > 0

    # --- the horizon ---

    def _first_limit(self, frame: Frame) -> tuple[int | None, bool]:
        """The highest time that the batch may have, and whether that is certain.

        After a stream's first batch it is known how far the stream has come. Rows within the horizon of that
        are aggregated at once. The profile of the whole batch is consulted only if some rows lie beyond it. The
        rows of the first batch are all aggregated at once, because they rarely lie apart.
        """
        rules = self.batch.rules
        if self.batch.is_judged:
            return self.batch.time_limit, True
        if rules.horizon is None:
            return self._not_after_clock(None), True
        if any(clock.kind is ClockKind.ROWS for clock in self.clocks):
            limit, profile = self.judge_times(frame)
            return limit if profile.top is not None and profile.top > limit else None, True
        return self._not_after_clock(None if self._high is None else self._high + rules.horizon), False

    @property
    def _high(self) -> int | None:
        """How far the stream had come before the batch."""
        return self.batch.before.clock(self.batch.rules.clock).high

    def judge_times(self, frame: Frame) -> tuple[int, Profile]:
        """The highest time that the batch may have, for certain, and where in time its rows lie."""
        rules, high = self.batch.rules, self._high
        cut = None if high is None or rules.horizon is None else high + rules.horizon
        plan = BatchPlan(
            (), (), {}, {}, "t0", limit=cut, horizon=rules.horizon, first_time=rules.usable_times[0]
        )
        profile = self._aggregate(_Branch((), (), frame, plan, {"t0": self.time}), plan).profile
        return self._with_margin(horizon_limit(profile, high, rules.horizon)), profile

    def _with_margin(self, limit: int | None) -> int:
        """The highest time that rows may have when they are read again.

        No row of the batch lies within the horizon above the limit, so that the margin changes nothing; but a row whose
        time is `current_timestamp()` is later each time that Spark evaluates it.
        """
        horizon = self.batch.rules.horizon
        return self._not_after_clock(None if limit is None or horizon is None else limit + horizon)

    def _not_after_clock(self, limit: int | None) -> int:
        rules = self.batch.rules
        bounds = (limit, rules.usable_times[1], rules.latest_time(self.batch.clock))
        return min(bound for bound in bounds if bound is not None)

    def _of_first_batch(
        self, branches: Sequence[_Branch], outcomes: Sequence[Outcome]
    ) -> tuple[int | None, list[Outcome]]:
        """Apply the horizon to a stream's first batch: aggregate it again if a row lies beyond."""
        profile, rules = outcomes[0].profile, self.batch.rules
        limit = self._with_margin(horizon_limit(profile, None, rules.horizon))
        top = outcomes[0].clocks.get(rules.clock, Profile()).top
        if top is None or top <= limit:
            return limit, list(outcomes)
        return limit, [self._aggregate(branch, replace(branch.plan, limit=limit)) for branch in branches]

    def _with_rows_after_a_gap(
        self, branches: Sequence[_Branch], outcomes: Sequence[Outcome], limit: int | None
    ) -> tuple[int | None, list[Outcome]]:
        """Aggregate rows beyond the horizon too, if the stream itself jumped ahead."""
        rules = self.batch.rules
        new_limit = self._not_after_clock(horizon_limit(outcomes[0].profile, self._high, rules.horizon))
        if new_limit is None or limit is None or new_limit <= limit:
            return limit, list(outcomes)
        combined = []
        for branch, outcome in zip(branches, outcomes, strict=True):
            more = self._aggregate(branch, replace(branch.plan, limit=new_limit, floor=limit))
            merged = merge([outcome, more], self.batch.shared.layouts)
            merged.rows, merged.timeless, merged.ahead = outcome.rows, outcome.timeless, more.ahead
            merged.rejected_rows, merged.carried_rejected = more.rejected_rows, more.carried_rejected
            merged.profile = outcome.profile
            combined.append(merged)
        return new_limit, combined

    def _with_late_sessions(
        self, branches: list[_Branch], outcomes: list[Outcome], limit: int | None
    ) -> tuple[list[_Branch], list[Outcome]]:
        """Aggregate the batch again if rows are late for sessions: only the rows of all tasks together show that."""
        sheets = self.batch.state.sheets
        plans = [
            branch.plan.with_late_sessions(outcome, sheets)
            for branch, outcome in zip(branches, outcomes, strict=True)
        ]
        if not any(plans):
            return branches, outcomes
        known = [
            replace(branch, plan=replace(plan or branch.plan, limit=limit))
            for branch, plan in zip(branches, plans, strict=True)
        ]
        return known, [self._aggregate(branch, branch.plan) for branch in known]

    # --- from rows to the kernel ---

    def micros(self, clock: Clock) -> str:
        """A clock's value as an expression over the rows."""
        if clock.kind is ClockKind.ROWS:
            return f"`{ROW_NUMBER}`"
        return micros(quoted(clock.attribute), self.batch.columns[clock.attribute])

    def is_accepted(self, limit: int | None) -> str:
        """A condition that is true for rows with a usable time."""
        first, last = self.batch.rules.usable_times
        last = last if limit is None else min(last, limit)
        return f"(({self.time}) IS NOT NULL AND ({self.time}) BETWEEN {first} AND {last})"

    def order(self, frame: Frame) -> list[str]:
        """What rows are sorted by: their time, ties by their other columns."""
        return [f"({self.time})", *(frame.order_of(name) for name in self.batch.columns)]

    def at_clock(self, scalars: Mapping[str, str]) -> dict[str, str]:
        """Expressions in which the current time is the batch's."""
        return {name: at_clock(text, self.batch.clock) for name, text in scalars.items()}

    def _numbered(self, frame: Frame, limit: int | None) -> Frame:
        """The accepted rows with their numbers; partitioning has no influence on them."""
        if not any(clock.kind is ClockKind.ROWS for clock in self.clocks):
            return frame
        first = self.batch.before.totals.accepted
        return frame.number(ROW_NUMBER, self.order(frame), self.is_accepted(limit), first)

    def _by_repeating_joins(self) -> dict[tuple[str, ...], RowReaders]:
        """The queries by their joins that repeat rows; first those (perhaps none) without such a join."""
        queries_by_joins: dict[tuple[str, ...], list[CompiledQuery]] = {(): []}
        if not self.readers.joins:
            return {(): self.readers}
        for joins, queries in self.readers.by_joins:
            ids = tuple(join.id for join in joins)
            for join in joins:
                if (join.id, ids) not in self._unique_joins:
                    self._unique_joins[join.id, ids] = self._matches_once(join, joins)
            repeating = tuple(id for id in ids if not self._unique_joins[id, ids])
            queries_by_joins.setdefault(repeating, []).extend(queries)
        if len(queries_by_joins) == 1:
            return {(): self.readers}
        return {joins: RowReaders(tuple(queries)) for joins, queries in queries_by_joins.items()}

    def _matches_once(self, join: Join, joins: Sequence[Join]) -> bool:
        """Whether a row matches at most one row of the table: its keys are unique, and compared as they are.

        A comparison that first casts a key (an integer with a text) may match several.
        """
        if join.is_membership:
            return True
        version = self.batch.versions[join.table]
        types = {quoted(name): type for name, type in self.batch.columns.items()}
        for other_join in joins:
            columns = self.tables.columns(other_join.table, self.batch.versions[other_join.table])
            types |= {f"`{other_join.id}.{name}`": type for name, type in columns.items()}
        for key in join.keys:
            column = f"`{join.id}.{key}`"
            others = re.findall(rf"{re.escape(column)} = (`[^`]+`)(?= AND |$)", join.on)
            if not any(types.get(other_join) == types[column] for other_join in others):
                return False
        return self.tables.is_unique(join.table, version, join.keys)

    def _branch(self, readers: RowReaders, frame: Frame, limit: int | None, with_ids: bool) -> _Branch:
        names = readers.columns
        clocks = {clock: f"t{i}" for i, clock in enumerate(self.clocks)}
        scalars = {name: sql for sql, name in names.items()}
        scalars |= {name: self.micros(clock) for clock, name in clocks.items()}
        time = clocks[self.batch.rules.clock]
        scalars[time] = self.time
        if with_ids:
            scalars[ROW_ID] = f"`{ROW_ID}`"
        if self._positioned is not None:
            scalars[POSITION] = f"`{POSITION}`"
        if self.batch.rules.partition is not None:
            scalars[PARTITION] = self.batch.rules.partition
        if readers.is_combined:
            scalars[MULTIPLICITY] = quoted(PAIR_COUNT)
        scalars |= {f"{CARRIED}{name}": quoted(name) for name in self._carried}
        in_branch = readers.names
        shared = self.batch.shared
        families, interests, index = shared.families, shared.interests, shared.index
        matcher = self.batch.matcher
        if len(in_branch) < len(self.readers.names):
            standing = [query for query in readers.queries if query.is_standing]
            families = tuple(family for family in families if family.members[0].queries[0] in in_branch)
            interests = interests_of(self.batch.state, standing)
            index = query_index(self.batch.state, standing, interests)
            matcher = RowMatcher.of([query for query in readers.queries if query.is_row_query])
        gathered = [one for one in self.batch.store_sets if one.queries[0] in in_branch]
        plan = BatchPlan(
            families,
            interests,
            names,
            clocks,
            time,
            {clock: self.batch.before.clock(clock).closed for clock in clocks},
            limit,
            first_time=self.batch.rules.usable_times[0],
            horizon=self.batch.rules.horizon,
            row_id=ROW_ID if with_ids else None,
            on_executors=self.batch.state.on_executors,
            most_groups=self.batch.most_groups,
            store_inputs=store_inputs(self.batch.state, self.batch.before, gathered),
            index=index,
            position=None if self._positioned is None else POSITION,
            carried=tuple(f"{CARRIED}{name}" for name in self._carried),
            limits=self.batch.limits,
            matcher=matcher,
            partition=None if self.batch.rules.partition is None else PARTITION,
            partitions=self.batch.partitions,
            by_group=self.batch.rules.group is not None,
            multiplicity=MULTIPLICITY if readers.is_combined else None,
        )
        return _Branch(tuple(readers.queries), readers.joins, frame, plan, scalars)

    def _projected(self, branch: _Branch, frame: Frame, keep: Sequence[str] = ()) -> Frame:
        return frame.project(self.at_clock(branch.scalars), keep, self.table_joins(branch.joins))

    def table_joins(self, joins: Iterable[Join]) -> list[TableJoin]:
        """Joins with static tables in the versions that the batch sees."""
        versions = self.batch.versions
        return [TableJoin(join, self.tables.frame(join.table, versions[join.table])) for join in joins]

    def _aggregate(self, branch: _Branch, plan: BatchPlan) -> Outcome:
        """Run the kernel over a branch's rows: on the driver if they are few, else by tasks."""
        projected = self._projected(branch, branch.frame)
        if self.batch.on_driver:
            outcome = count_partials(aggregate_rows(projected.to_table(few=True), plan), plan)
            return outcome if self.batch.shelf is None else write_shards(outcome, self.batch.shelf)
        packed = projected.map(aggregate_task(self.backend.ship(plan), self.batch.shelf), OUTCOME).to_table()
        outcomes = (pickle.loads(outcome) for outcome in packed["outcome"].to_pylist())
        return count_partials(merge(outcomes, self.batch.shared.layouts), plan)

    # --- late and rejected rows ---

    def _late(self, branches: Sequence[_Branch], outcomes: Sequence[Outcome], limit: int | None) -> Frame:
        """The late rows, with the groups of queries that missed each as bits."""
        own = [replace(branch, plan=replace(branch.plan, limit=limit)) for branch in branches]
        columns, listed = list(self.batch.columns), outcomes[0].late_rows
        if self._positioned is not None and listed is not None:
            rows = self._positioned.rows_at(listed.at)
            if rows is not None:
                return self.backend.frame(rows.select(columns).append_column(MISSED_BY, listed.missed_by))
        if listed is not None and listed.rows is not None:
            rows = self._as_they_came(listed.rows).select(columns)
            return self.backend.frame(rows.append_column(MISSED_BY, listed.missed_by))
        if len(own) == 1:
            return self._missed(own[0], columns)
        ids = ", ".join(f"{id}L" for id in _row_sets(outcomes)[1].tolist())
        keep = [*self.batch.columns, ROW_ID]
        rows = branches[0].frame.filter(f"`{ROW_ID}` IN ({ids})").project({}, keep).to_table()
        missed = [
            (len(branch.plan.groups), self._missed(branch, [ROW_ID]).to_table(), ROW_ID) for branch in own
        ]
        bits = joined_bits(rows[ROW_ID].to_numpy(), missed)
        return self.backend.frame(rows.drop_columns([ROW_ID]).append_column(MISSED_BY, bits))

    def _missed(self, branch: _Branch, keep: list[str]) -> Frame:
        """The rows that some query of a branch missed: some columns, and the groups of queries."""
        bound = self._latest_closed(branch.plan)
        candidates = branch.frame
        if bound is not None:
            candidates = candidates.filter(f"({self.time}) < {bound}")
        uncomputed = [name for name in keep if name not in branch.scalars]  # a branch computes its row ids
        projected = self._projected(branch, candidates, uncomputed)
        if self.batch.on_driver:
            return self.backend.frame(with_missed(projected.to_table(few=True), branch.plan, keep))
        columns = candidates.columns
        schema = pa.schema([*((name, columns[name]) for name in keep), (MISSED_BY, pa.binary())])
        return projected.map(late_task(self.backend.ship(branch.plan), keep), schema)

    def _latest_closed(self, plan: BatchPlan) -> int | None:
        """A time above which no row can be late, if all windows follow the stream's own time."""
        clock = self.batch.rules.clock
        return plan.latest_closed(clock) if self.clocks == [clock] else None

    def _listed_rejected(self, outcome: Outcome) -> Frame | None:
        """The rejected rows, if the kernel has listed them."""
        if outcome.carried_rejected is not None:
            return self.backend.frame(self._as_they_came(outcome.carried_rejected))
        if self._positioned is None or outcome.rejected_rows is None:
            return None
        rows = self._positioned.rows_at(outcome.rejected_rows)
        return None if rows is None else self.backend.frame(rows)

    def _as_they_came(self, carried: pa.Table) -> pa.Table:
        """Rows that tasks have carried, under their own names."""
        return carried.rename_columns(self._carried)

    def _rejected(self, frame: Frame, limit: int | None) -> Frame:
        hidden = [name for name in HIDDEN if name in frame.columns]
        unparsable = f"WHEN `{CORRUPT}` IS NOT NULL THEN 'not parsable' " if CORRUPT in hidden else ""
        unreadable = (
            f"WHEN `{TIME_TEXT}` IS NOT NULL AND ({self.time}) IS NULL THEN 'no time: not a timestamp' "
        )
        reason = (
            f"CAST(CASE {unparsable}{unreadable if TIME_TEXT in hidden else ''}"
            f"WHEN ({self.time}) IS NULL THEN 'no time: null' {self._ahead_of_clock()}{self._unusable()}"
            "ELSE 'ahead of the stream by more than the horizon' END AS STRING)"
        )
        rejected = frame.filter(f"NOT {self.is_accepted(limit)}")
        return rejected.project({"reason": reason}, [*self.batch.columns, *hidden])

    def _ahead_of_clock(self) -> str:
        """The reason of rows that are too far ahead of the engine's clock, as a branch of a CASE."""
        ahead = self.batch.rules.max_ahead
        if ahead is None:
            return ""
        reason = f"ahead of the engine's clock by more than {format_duration(ahead)} (max_ahead)"
        return f"WHEN ({self.time}) > {self.batch.clock + ahead} THEN {text_literal(reason)} "

    def _unusable(self) -> str:
        """The reason of rows whose time is no time at all, as a branch of a CASE."""
        first, last = self.batch.rules.usable_times
        is_time = self.batch.rules.clock.kind is ClockKind.TIME
        reason = "not of the years 1 to 9999" if is_time else "too large a number"
        return f"WHEN ({self.time}) NOT BETWEEN {first} AND {last} THEN 'no time: {reason}' "


def aggregate_task(shipped: ShippedPlan, shelf: Shelf | None) -> Task:
    """A task that packs the outcome of its rows, and writes the cells that executors keep."""

    def task(batches: RecordBatches) -> RecordBatches:
        plan = shipped.plan()
        done: Outcome | None = None
        for table in in_large_tables(batches):
            outcome = aggregate_rows(table, plan)
            done = outcome if done is None else merge([done, outcome], plan.layouts)
            cells = sum(shard.table.num_rows for _, shard in done.shards)
            if (
                shelf is not None
                and cells + sum(one.run.entries for one in done.executor_runs) > CELLS_AT_ONCE
            ):
                done = write_shards(done, shelf)
        if done is not None:
            packed = pickle.dumps(done if shelf is None else write_shards(done, shelf))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], OUTCOME.names)

    return task


def _combined(outcomes: Sequence[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """One outcome of all branches, in which a row is counted once however often joins repeated it."""
    main = outcomes[0]
    if len(outcomes) == 1:
        return main
    # Branches have queries of their own: their counts are not added up.
    total = merge([replace(outcome, counts=QueryCounts()) for outcome in outcomes], layouts)
    wanted, late = _row_sets(outcomes)
    total.rows, total.timeless, total.ahead = main.rows, main.timeless, main.ahead
    total.profile, total.clocks, total.flags = main.profile, main.clocks, None
    total.delays = main.delays
    total.counted, total.late = len(wanted) - len(late), len(late)
    total.unwanted = main.rows - main.timeless - main.ahead - len(wanted)
    return total


def _row_sets(outcomes: Sequence[Outcome]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the rows that a query wanted, and of those that a query missed, in any branch."""
    flags = pa.concat_tables([outcome.flags for outcome in outcomes if outcome.flags is not None])
    rows, late = flags["row"].to_numpy(), flags["late"].to_numpy()
    return np.unique(rows), np.unique(rows[late])
