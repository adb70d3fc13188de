"""Ingest: rows of a batch -> partial aggregates of all queries at once, on Arrow columns.

It runs where the rows are: inside a Spark task, on the driver or in a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.elements import Clock, WindowSpec
from transom.kernel.closed_views import split_by_view
from transom.kernel.fold import fold
from transom.kernel.rollups import families_by_roll_up, roll_up
from transom.kernel.rows import Rows
from transom.kernel.shards import Shard, Shelf, gathered, rolled
from transom.kernel.sheets import combine
from transom.kernel.store_runs import StoreInput, StoreRun, in_time, put_run, take
from transom.kernel.tuples import FamilyTuples, RollUpCells, wanted_by
from transom.plan.axis import Axis
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.sql.query import Predicate, Scalar
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed, View
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

Mask = NDArray[np.bool_]

# A signature family is too fragmented if a fragment has fewer tuples than this, on average over many.
TUPLES_PER_SIGNATURE = 2
MANY = 1024


@dataclass(frozen=True)
class Interest:
    """Queries that want the same rows, with all that decides which rows are late for them.

    `windows` are the windows of the queries, each with the id below which prods closed windows for all groups.
    """

    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    key_columns: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]
    windows: tuple[tuple[WindowSpec, int | None], ...]


@dataclass(frozen=True)
class BatchPlan:
    """What a task needs to know about a batch: small, and the same for every task.

    `columns` and `clocks` are the names of scalars and clocks in the projected batch; clocks and the
    `time` of the stream are int64. Rows with `floor < time <= limit` are aggregated.
    """

    families: tuple[Family, ...]
    interests: tuple[Interest, ...]
    columns: Mapping[str, str]
    clocks: Mapping[Clock, str]
    time: str
    closed: Mapping[Clock, Closed] = field(default_factory=dict)
    limit: int | None = None
    floor: int | None = None
    horizon: int | None = None
    row_id: str | None = None  # a column that identifies rows, when a batch is read in several branches
    on_executors: frozenset[int] = frozenset()  # selections whose cells are written as shards, not folded
    most_groups: int | None = None  # families with more groups than this are written as shards in any case
    store_inputs: tuple[StoreInput, ...] = ()  # the stores of on-demand queries
    limits: Limits = field(default_factory=Limits)

    def writes_shards(self, family: Family, groups: int) -> bool:
        """Whether the cells of a family are written as shards, for executors to read."""
        if int(family.ids[0]) in self.on_executors:
            return True
        return family.merged and self.most_groups is not None and groups > self.most_groups

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that the batch fills, by id."""
        return {layout.id: layout for family in self.families for layout in family.layouts}

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """For each scalar, one axis with the thresholds of all families over it."""
        by_scalar: dict[str, list[Axis]] = {}
        for family in self.families:
            if family.axis is not None:
                by_scalar.setdefault(family.axis.scalar.sql, []).append(family.axis)
        return {sql: Axis.merged(axes) for sql, axes in by_scalar.items()}

    def latest_closed(self, clock: Clock) -> int | None:
        """A time of a clock above which no row can be late; None if nothing is closed."""
        closed = self.closed.get(clock, Closed())
        stops = [stop for _, stop in closed.general]
        stops += [stop for _, ranges in closed.patterned for _, stop in ranges]
        stops += [
            windows.window_end(window, forced - 1)
            for interest in self.interests
            for window, forced in interest.windows
            if forced is not None and interest.clock == clock
        ]
        stops += [
            store_input.floor for store_input in self.store_inputs if store_input.store_set.clock == clock
        ]
        return min(max(stops), HIGHEST) if stops else None


@dataclass
class Outcome:
    """The partial aggregates and counts of one task, or of all tasks of a batch."""

    partials: dict[str, pa.Table] = field(default_factory=dict)  # by the id of their layout
    shards: list[tuple[Family, Shard]] = field(default_factory=list)  # not written yet
    refs: list[ShardRef] = field(default_factory=list)  # of shards that are written
    rows: int = 0
    timeless: int = 0  # rejected: they have no time
    ahead: int = 0  # rejected: they are beyond the limit
    counted: int = 0
    late: int = 0
    unwanted: int = 0
    lifted: int = 0  # tuples added to a cell, in all families
    unshared: int = 0  # the same if each query had slices of its own
    too_fragmented: frozenset[int] = frozenset()  # selections of signature families with too many fragments
    profile: Profile = field(default_factory=Profile)  # of the stream's time, over all rows that have one
    clocks: dict[Clock, Profile] = field(default_factory=dict)  # of accepted rows
    flags: pa.Table | None = None  # row_id, counted: of wanted rows, only when the plan has a row_id
    runs: list[StoreRun] = field(default_factory=list)  # for stores of on-demand queries
    executor_runs: list[StoreRun] = field(default_factory=list)  # for stores on executors, not written yet
    run_refs: list[tuple[str, ShardRef, int]] = field(default_factory=list)  # written: store, file, tuples


def aggregate_rows(table: pa.Table, plan: BatchPlan) -> Outcome:
    """Aggregate some rows of a batch."""
    rows = Rows(table, plan.columns, plan.axes)
    outcome = Outcome(rows=table.num_rows)
    times, has_time = rows.numbers(plan.time)
    outcome.timeless = int(len(times) - has_time.sum())
    outcome.profile = Profile.of(times[has_time], plan.horizon, plan.limit)
    ahead = has_time & (times > plan.limit) if plan.limit is not None else np.zeros(len(times), bool)
    outcome.ahead = int(ahead.sum())
    accepted = has_time & ~ahead
    if plan.floor is not None:
        accepted &= times > plan.floor
    for clock, name in plan.clocks.items():
        numbers, valid = rows.numbers(name)
        outcome.clocks[clock] = Profile.of(numbers[valid & accepted])
    wanted = _aggregate(rows, plan, accepted, outcome)
    for store_input in plan.store_inputs:
        runs, matched = take(rows, store_input, plan.clocks[store_input.store_set.clock], accepted)
        groups = runs[0].run.groups if runs else 0
        is_large = plan.most_groups is not None and groups > plan.most_groups
        (outcome.executor_runs if store_input.on_executors or is_large else outcome.runs).extend(runs)
        wanted |= matched
    counted = wanted & ~_late(rows, plan, accepted)
    outcome.counted, outcome.unwanted = int(counted.sum()), int((accepted & ~wanted).sum())
    outcome.late = int(wanted.sum()) - outcome.counted
    if plan.row_id is not None:
        chosen = np.flatnonzero(wanted)
        ids = rows.table[plan.row_id].combine_chunks().take(pa.array(chosen))
        outcome.flags = pa.table({"row": ids, "counted": counted[chosen]})
    return outcome


def _aggregate(rows: Rows, plan: BatchPlan, accepted: Mask, outcome: Outcome) -> Mask:
    """Fold the rows into the slices of every family, and return which rows some query wants."""
    wanted = np.zeros(len(accepted), bool)
    inputs: dict[int, _SharedInput] = {}  # by the id of their rows
    by_layout: dict[Layout, list[pa.Table]] = {}
    for family, at, tuples in _tuples(rows, plan, accepted):
        if plan.writes_shards(family, tuples.group_count):
            outcome.shards.append((family, gathered(family, tuples)))
        else:
            for layout, table in fold(family, tuples, plan.limits):
                by_layout.setdefault(layout, []).append(table)
        owners = tuples.fragments.ranges.owners
        matched = tuples.fragments.among(np.ones(len(owners), bool), len(tuples))
        if family.signed and tuples.fragments.count * TUPLES_PER_SIGNATURE > len(tuples) >= MANY:
            outcome.too_fragmented |= frozenset(family.ids.tolist())
        outcome.unshared += int(tuples.in_ranges() @ family.queries[owners])
        shared = inputs.setdefault(id(at), _SharedInput(at, tuples.cells, len(tuples)))
        shared.matched |= matched
        if tuples.cells is None:
            outcome.lifted += int(matched.sum())
        shared.wanted |= matched if family.gaps is None else _in_windows(family, tuples)
    for shared in inputs.values():
        if shared.cells is not None:
            outcome.lifted += int(shared.cells.rows[shared.matched].sum())
        wanted[shared.wanted_rows] = True
    outcome.partials = {layout.id: combine(layout, tables) for layout, tables in by_layout.items()}
    return wanted


def _tuples(
    rows: Rows, plan: BatchPlan, accepted: Mask
) -> Iterator[tuple[Family, NDArray[np.int64], FamilyTuples]]:
    """The tuples or cells of each family, with their rows; families without any are left out."""
    for together in families_by_roll_up(plan.families):
        clock = plan.clocks[together[0].clock]
        for families, cells in roll_up(rows, together, clock, accepted, plan.limits):
            for family in families:
                if cells is not None:
                    yield family, cells.at, rows.of_cells(family, cells)
                    continue
                at, tuples = rows.tuples(family, clock, accepted)
                if len(at):
                    yield family, at, tuples


class _SharedInput:
    """Tuples or cells that several families read: which of them a family adds, and which a query wants."""

    def __init__(self, at: NDArray[np.int64], cells: RollUpCells | None, size: int):
        self.at, self.cells = at, cells
        self.matched, self.wanted = np.zeros(size, bool), np.zeros(size, bool)

    @property
    def wanted_rows(self) -> NDArray[np.int64]:
        if self.cells is None:
            return self.at[self.wanted]
        return self.cells.added[self.wanted[self.cells.codes]]


def _in_windows(family: Family, tuples: FamilyTuples) -> Mask:
    """Which tuples lie in a window of a member that wants them, for windows with gaps between them."""
    in_some = np.zeros(len(tuples), bool)
    for i, specs in enumerate(family.gaps or ()):
        inside = np.zeros(len(tuples), bool)
        for spec in specs:
            inside |= windows.in_some_window(spec, tuples.times)
        in_some |= inside & wanted_by(tuples, i)
    return in_some


def late_rows(table: pa.Table, plan: BatchPlan) -> Mask:
    """Which rows some query wants, and are late for every query that wants them."""
    rows = Rows(table, plan.columns)
    times, has_time = rows.numbers(plan.time)
    return _late(rows, plan, has_time if plan.limit is None else has_time & (times <= plan.limit))


def _late(rows: Rows, plan: BatchPlan, accepted: Mask) -> Mask:
    """Which accepted rows some query wants, and are late for every query that wants them.

    Only rows in closed time can be late, so that only these are compared with the queries.
    """
    old = np.zeros(len(accepted), bool)
    for clock, name in plan.clocks.items():
        until = plan.latest_closed(clock)
        if until is not None:
            times, valid = rows.numbers(name)
            old |= accepted & valid & (times < until) & (times > LOWEST)
    late = np.zeros(len(accepted), bool)
    at = np.flatnonzero(old)
    if len(at):
        late[at] = _late_for_all(rows.take(at), plan)
    return late


def _late_for_all(rows: Rows, plan: BatchPlan) -> Mask:
    """Which rows at least one query wants, and are late for every query that wants them."""
    size = rows.table.num_rows
    wanted, counted = np.zeros(size, bool), np.zeros(size, bool)
    for store_input in plan.store_inputs:
        matched, timely = in_time(
            rows, store_input, plan.clocks[store_input.store_set.clock], np.ones(size, bool)
        )
        wanted, counted = wanted | matched, counted | timely
    closed_masks: dict[tuple[Clock, WindowSpec], Mask] = {}
    for interest in plan.interests:
        times, valid = rows.numbers(plan.clocks[interest.clock])
        matched = valid & rows.all_true(interest.conjuncts)
        if not matched.any():
            continue
        view = plan.closed.get(interest.clock, Closed()).view(interest.key_columns, interest.pinned)
        for window, forced in interest.windows:
            inside = matched
            if windows.has_gaps(window):
                inside = matched & windows.in_some_window(window, times)
            wanted |= inside
            if not (inside & ~counted).any():
                continue
            if view.uniform and forced is None:
                key = interest.clock, window
                if key not in closed_masks:
                    closed_masks[key] = _in_closed_windows(window, view, IntervalSet(), times, ())
                counted |= inside & ~closed_masks[key]
                continue
            at = np.flatnonzero(inside)
            keys = [] if view.uniform else [rows.column(key).take(pa.array(at)) for key in interest.keys]
            closed = IntervalSet() if forced is None else IntervalSet.of((LOWEST, forced))
            counted[at[~_in_closed_windows(window, view, closed, times[at], keys)]] = True
    return wanted & ~counted


def _in_closed_windows(
    window: WindowSpec, view: View, forced: IntervalSet, times: NDArray[np.int64], keys: Sequence[pa.Array]
) -> Mask:
    """Which times have all their windows closed."""
    firsts, lasts = windows.wid_from(window, times), windows.wid_to(window, times)
    late = np.zeros(len(times), bool)
    for rows, (closed,) in split_by_view([view], list(keys), len(times)):
        late[rows] = (windows.closed_wids(window, closed) | forced).covers(firsts[rows], lasts[rows])
    return late


def merge(outcomes: Iterable[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """Merge the outcomes of all tasks of a batch."""
    parts = list(outcomes)
    total = Outcome(profile=Profile.merged(part.profile for part in parts))
    for count in ("rows", "timeless", "ahead", "counted", "late", "unwanted", "lifted", "unshared"):
        setattr(total, count, sum(getattr(part, count) for part in parts))
    for clock in {clock for part in parts for clock in part.clocks}:
        total.clocks[clock] = Profile.merged(part.clocks[clock] for part in parts if clock in part.clocks)
    for key in dict.fromkeys(key for part in parts for key in part.partials):
        tables = [part.partials[key] for part in parts if key in part.partials]
        total.partials[key] = tables[0] if len(tables) == 1 else combine(layouts[key], tables)
    total.shards = [shard for part in parts for shard in part.shards]
    total.refs = [ref for part in parts for ref in part.refs]
    for runs in ("runs", "executor_runs", "run_refs"):
        setattr(total, runs, [one for part in parts for one in getattr(part, runs)])
    total.too_fragmented = frozenset[int]().union(*(part.too_fragmented for part in parts))
    flags = [part.flags for part in parts if part.flags is not None]
    total.flags = pa.concat_tables(flags) if flags else None
    return total


def write_shards(outcome: Outcome, shelf: Shelf) -> Outcome:
    """Write the shards of an outcome to files, one shard for each family, and keep references to them."""
    by_family: dict[int, list[tuple[Family, Shard]]] = {}
    for family, shard in outcome.shards:
        by_family.setdefault(id(family), []).append((family, shard))
    for parts in by_family.values():
        family, whole = parts[0][0], parts[0][1] if len(parts) == 1 else None
        if whole is None:
            homes = family.ids.tolist()
            whole = rolled((shard for _, shard in parts), family.slots, homes, None)
        if whole is not None and whole.table.num_rows:
            outcome.refs.append(shelf.put(whole))
    for brought in outcome.executor_runs:
        outcome.run_refs.append((brought.store, put_run(shelf, brought.run), brought.tuples))
    outcome.shards, outcome.executor_runs = [], []
    return outcome
