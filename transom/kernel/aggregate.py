"""Ingest: rows of a batch -> partial aggregates of all queries at once, on Arrow columns.

It runs where the rows are: inside a Spark task, on the driver or in a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Mask
from transom.columns.bit_columns import bit_column
from transom.columns.groups import normalized
from transom.elements import Clock, WindowSpec
from transom.kernel.closed_views import split_by_view
from transom.kernel.fold import fold
from transom.kernel.grid_cells import fold_grid
from transom.kernel.match_matrix import fold_matrix
from transom.kernel.matrix_plan import box_count, matrix_plan, merged_axes
from transom.kernel.query_counts import (
    BatchAccounts,
    Cells,
    QueryCounts,
    QueryIndex,
    add_missed_sessions,
    batch_accounts,
    cells_of_shard,
    cells_of_sheets,
    count_cells,
    row_accounts,
)
from transom.kernel.rollups import families_by_roll_up, roll_up
from transom.kernel.row_matches import RowMatcher, RowMatches, count_matches, match_rows
from transom.kernel.row_partitions import RowPartitions
from transom.kernel.rows import FamilyTuples, RollUpCells, Rows, wanted_by_any
from transom.kernel.sessions import LateSessions, fold_sessions, late_sessions
from transom.kernel.shards import Shard, Shelf, gathered, rolled
from transom.kernel.sheets import combine_tables
from transom.kernel.stacked_sheets import Sheets, merged_sheets
from transom.kernel.store_runs import StoreInput, StoreRun, in_time, put_run, take
from transom.plan.axis import Axis
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.sql.query import Predicate, Scalar
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed, View
from transom.windows.delays import DelayCounts
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.partition_clocks import PartitionClocks

BITS_AT_ONCE = 1 << 24  # of late rows and groups of queries


@dataclass(frozen=True)
class Interest:
    """Queries that want the same rows, with all that decides which rows are late for them.

    `windows` are those of the queries, each with the id below which they were closed because the stream ended or
    fell idle, and `members` the names of the queries that have them.
    """

    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    key_columns: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]
    windows: tuple[tuple[WindowSpec, int | None], ...]
    members: tuple[tuple[str, ...], ...] = ()
    in_order: bool = False  # their windows close one after the other, for all groups at once
    retention: int = 0  # how long rows that come after a window closed still count for it

    def closed(self, closed: Mapping[Clock, Closed]) -> Closed:
        """The time in which rows are late for the queries."""
        return closed.get(self.clock, Closed()).delayed(self.retention)


@dataclass(frozen=True)
class BatchPlan:
    """What a task needs to know about a batch: small, and the same for every task.

    `columns` and `clocks` are the names of scalars and clocks in the projected batch; clocks and the
    `time` of the stream are int64. Rows with `floor < time <= limit` are aggregated.
    """

    families: tuple[Family, ...]
    interests: Sequence[Interest]  # in tasks, they are unpacked when they are first read
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
    index: QueryIndex = field(default_factory=QueryIndex)  # the standing queries
    position: str | None = None  # a column by which late and rejected rows are listed, if they are few
    carried: tuple[str, ...] = ()  # columns with which they are listed, where they can't be read again
    first_time: int = -(2**63)  # earlier times are no times
    late_sessions: Mapping[int, LateSessions] = field(default_factory=dict)  # by selection
    matcher: RowMatcher = field(default_factory=RowMatcher)  # the row queries
    partition: str | None = None  # the column with the source's partition of each row
    partitions: PartitionClocks | None = None  # before the batch, if the delays of rows are counted
    by_group: bool = False  # whether each partition closes the windows of its own group
    multiplicity: str | None = None  # the column with how many rows each row stands for, if not one

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The names of queries by group: queries of one group want the same rows and miss the same rows."""
        standing = [members for interest in self.interests for members in interest.members]
        return [*standing, *(names for one in self.store_inputs for _, names in one.readers)]

    @cached_property
    def group_count(self) -> int:
        """The number of groups."""
        if self.index.names:
            standing = int(self.index.groups.max()) + 1
        else:
            standing = sum(len(interest.windows) for interest in self.interests)
        return standing + sum(len(one.readers) for one in self.store_inputs)

    def writes_shards(self, family: Family, groups: int) -> bool:
        """Whether the cells of a family are written as shards, for executors to read; sessions never are."""
        if family.session_gap is not None:
            return False
        if int(family.ids[0]) in self.on_executors:
            return True
        return family.merged and self.most_groups is not None and groups > self.most_groups

    def with_late_sessions(self, outcome: Outcome, sheets: Mapping[str, pa.Table]) -> BatchPlan | None:
        """The plan that knows the batch's late rows of sessions, given its outcome without them; None: there are none.

        Only all rows of a batch together with the open sessions of the state decide which rows are late.
        """
        if not len(self.index.sessions):
            return None
        found = late_sessions(
            self.layouts, outcome.partials, sheets, self.index.session_boundaries(self.closed)
        )
        return replace(self, late_sessions=found) if found else None

    def home_of(self, group: int) -> int:
        """The selection of a group of queries with sessions."""
        return int(self.index.selections[np.flatnonzero(self.index.groups == group)[0]])

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that the batch fills, by id."""
        return {layout.id: layout for family in self.families for layout in family.layouts}

    @property
    def axes(self) -> dict[str, Axis]:
        """For each scalar, one axis with the thresholds of all families over it."""
        return merged_axes(self.families)

    @property
    def watermark(self) -> int:
        """The time before which everything is closed on the stream's own clock."""
        own = next(clock for clock, name in self.clocks.items() if name == self.time)
        until = self.closed.get(own, Closed()).watermark()
        return LOWEST if until is None else until

    def latest_closed(self, clock: Clock) -> int | None:
        """A time of a clock above which no row can be late; None if nothing is closed."""
        closed = self.closed.get(clock, Closed())
        stops = [closed.latest] if closed.latest is not None else []
        if not self.index.names or self.index.has_forced:
            stops += [
                windows.window_end(window, forced - 1)
                for interest in self.interests
                for window, forced in interest.windows
                if forced is not None and interest.clock == clock
            ]
        stops += [
            floor for one in self.store_inputs if one.store_set.clock == clock for floor, _ in one.readers
        ]
        return min(max(stops), HIGHEST) if stops else None


@dataclass(frozen=True)
class LateRows:
    """Rows that some query missed: their numbers or positions, the groups of queries that missed each, as bits, and
    the rows themselves, if they are carried."""

    at: NDArray[np.int64]
    missed_by: pa.Array
    rows: pa.Table | None = None


@dataclass
class Outcome:
    """The partial aggregates and counts of one task, or of all tasks of a batch."""

    partials: Mapping[str, pa.Table] = field(default_factory=dict)  # by the id of their layout
    cells: Cells | None = None  # of all partials without their groups, where they are at hand
    shards: list[tuple[Family, Shard]] = field(default_factory=list)  # not written yet
    refs: list[ShardRef] = field(default_factory=list)  # of shards that are written
    rows: int = 0
    timeless: int = 0  # rejected: they have no time
    ahead: int = 0  # rejected: they are beyond the limit
    counted: int = 0  # in time for every query that wants them
    late: int = 0  # some query missed them
    unwanted: int = 0
    lifted: int = 0  # tuples added to a cell, in all families
    unshared: int = 0  # the same if each query had slices of its own
    too_fragmented: frozenset[int] = frozenset()  # selections of signature families with too many fragments
    profile: Profile = field(default_factory=Profile)  # of the stream's time, over all rows that have one
    clocks: dict[Clock, Profile] = field(default_factory=dict)  # of accepted rows
    flags: pa.Table | None = None  # row_id, late: of wanted rows, only when the plan has a row_id
    counts: QueryCounts = field(default_factory=QueryCounts)  # by query
    accounts: BatchAccounts = field(default_factory=BatchAccounts)  # what became of the rows, by query
    late_rows: LateRows | None = None  # by position; None if some are not listed
    rejected_rows: NDArray[np.int64] | None = None  # by position; None if some are not listed
    carried_rejected: pa.Table | None = None  # the rejected rows themselves; None if some are not carried
    runs: list[StoreRun] = field(default_factory=list)  # for stores of on-demand queries
    executor_runs: list[StoreRun] = field(default_factory=list)  # for stores on executors, not written yet
    run_refs: list[tuple[str, ShardRef, int]] = field(default_factory=list)  # written: store, file, tuples
    matches: list[RowMatches] = field(default_factory=list)  # rows that satisfy row queries
    partition_tops: dict[str, int] = field(default_factory=dict)  # the newest time of each source partition
    delays: DelayCounts | None = None  # of the rows of partitions that had brought rows before


def _times(rows: Rows, plan: BatchPlan) -> tuple[NDArray[np.int64], Mask]:
    """The stream's time of each row, and which rows have one."""
    times, has_time = rows.numbers(plan.time)
    return times, has_time & (times >= plan.first_time)


def _positions(rows: Rows, plan: BatchPlan) -> NDArray[np.int64] | None:
    """The positions of rows; None if they have none."""
    if plan.position is None:
        return None
    positions, is_valid = rows.numbers(plan.position)
    return positions if is_valid.all() else None


def aggregate_rows(table: pa.Table, plan: BatchPlan) -> Outcome:
    """Aggregate some rows of a batch."""
    rows = Rows(table, plan.columns, plan.axes, plan.multiplicity)
    outcome = Outcome(rows=rows.count(np.ones(table.num_rows, bool)))
    times, has_time = _times(rows, plan)
    outcome.timeless = int(len(times) - has_time.sum())
    outcome.profile = Profile.of(times[has_time], plan.horizon, plan.limit)
    ahead = has_time & (times > plan.limit) if plan.limit is not None else np.zeros(len(times), bool)
    outcome.ahead = int(ahead.sum())
    accepted = has_time & ~ahead
    positions = _positions(rows, plan)
    rejected = outcome.timeless + outcome.ahead
    if rejected <= plan.limits.listed_rows:
        outcome.rejected_rows = None if positions is None else positions[~accepted]
        outcome.carried_rejected = _carried(table, plan, np.flatnonzero(~accepted))
    if plan.floor is not None:
        accepted &= times > plan.floor
    if plan.partition is not None:
        partitions = RowPartitions.of(table[plan.partition])
        outcome.partition_tops = partitions.tops(times, accepted)
        if plan.partitions is not None:
            outcome.delays = partitions.delays(
                plan.partitions, times, accepted, plan.watermark, plan.by_group
            )
    for clock, name in plan.clocks.items():
        numbers, valid = rows.numbers(name)
        outcome.clocks[clock] = Profile.of(numbers[valid & accepted])
    outcome.counts = QueryCounts.of(plan.index, plan.group_count, len(plan.store_inputs))
    wanted = _aggregate(rows, plan, accepted, outcome)
    for place, store_input in enumerate(plan.store_inputs):
        runs, matched = take(rows, store_input, plan.clocks[store_input.store_set.clock], accepted)
        groups = runs[0].run.groups if runs else 0
        is_large = plan.most_groups is not None and groups > plan.most_groups
        (outcome.executor_runs if store_input.on_executors or is_large else outcome.runs).extend(runs)
        outcome.counts.store_matched[place] = rows.count(matched)
        wanted |= matched
    if plan.matcher:
        matches, matched = match_rows(rows, plan.matcher, plan.columns, plan.time, accepted)
        outcome.matches = [matches] if matches.names else []
        wanted |= matched
    late = np.zeros(len(accepted), bool)
    at = _old_rows(rows, plan, accepted)
    is_listing = positions is not None or bool(plan.carried)
    lists_late = is_listing and len(at) * plan.group_count <= BITS_AT_ONCE
    bits = np.zeros((plan.group_count, len(at) if lists_late else 0), bool)
    if len(at):
        is_late = np.zeros(len(at), bool)
        old = rows.take(at)
        for group, missed in _missed_rows(old, plan):
            outcome.counts.late[group] = old.count(missed)
            is_late |= missed
            if len(plan.index.sessions):
                add_missed_sessions(outcome.counts, plan.index, group, old.numbers, plan.clocks, missed)
            if lists_late:
                bits[group] = missed
        late[at] = is_late
        if lists_late and np.count_nonzero(is_late) <= plan.limits.listed_rows:
            chosen = at[is_late]
            listed = chosen if positions is None else positions[chosen]
            missed_by = bit_column(bits[:, is_late].T)
            outcome.late_rows = LateRows(listed, missed_by, _carried(table, plan, chosen))
    outcome.late, outcome.unwanted = rows.count(late), rows.count(accepted & ~wanted)
    outcome.counted = rows.count(wanted) - outcome.late
    if plan.row_id is not None:
        chosen = np.flatnonzero(wanted)
        ids = rows.table[plan.row_id].combine_chunks().take(pa.array(chosen))
        outcome.flags = pa.table({"row": ids, "late": late[chosen]})
    return outcome


def _carried(table: pa.Table, plan: BatchPlan, at: NDArray[np.int64]) -> pa.Table | None:
    """Some rows as they came; None if the table does not carry its rows."""
    return table.select(plan.carried).take(pa.array(at)) if plan.carried else None


def count_partials(outcome: Outcome, plan: BatchPlan) -> Outcome:
    """The merged outcome of all tasks, with the cells of its partial aggregates counted by query."""
    for home, late in plan.late_sessions.items():
        outcome.counts.missed[plan.index.selections == home] += int(late.rows.sum())
    if outcome.cells is not None and not any(closed.varies for closed in plan.closed.values()):
        count_cells(outcome.cells, plan.index, plan.closed, outcome.counts)
        return outcome
    for cells in cells_of_sheets(outcome.partials, plan.index, plan.closed):
        count_cells(cells, plan.index, plan.closed, outcome.counts)
    return outcome


def accounts_of(outcome: Outcome, plan: BatchPlan) -> BatchAccounts:
    """What became of a batch's rows for each query."""
    stores = [[names for _, names in one.readers] for one in plan.store_inputs]
    rejected = outcome.timeless + outcome.ahead
    windows = batch_accounts(outcome.counts, plan.index, stores, outcome.rows, rejected)
    return (
        windows + row_accounts(plan.matcher.names, count_matches(outcome.matches), outcome.rows, rejected)
        if plan.matcher
        else windows
    )


def _aggregate(rows: Rows, plan: BatchPlan, accepted: Mask, outcome: Outcome) -> Mask:
    """Fold the rows into the slices of every family, and return which rows some query wants."""
    few, many = _by_size(plan, len(accepted))
    wanted = (
        _aggregate_by_family(rows, plan, many, accepted, outcome) if many else np.zeros(len(accepted), bool)
    )
    if few:
        wanted |= _aggregate_by_matrix(rows, plan, few, accepted, outcome)
    return wanted


def _by_size(plan: BatchPlan, rows: int) -> tuple[tuple[Family, ...], tuple[Family, ...]]:
    """The families that add few rows to few selections, which are folded together, and the others."""
    size = 1 << rows.bit_length()  # batches of about the same size have the same families
    few: list[Family] = []
    many: list[Family] = []
    for family in plan.families:
        is_together = (
            rows
            and size * box_count(family) <= plan.limits.matrix_cells
            and family.merged
            and family.session_gap is None
            and not plan.writes_shards(family, rows if family.keys else 1)
            and not (family.signed and size >= plan.limits.signature_tuples)  # it is judged by its fragments
        )
        (few if is_together else many).append(family)
    return tuple(few), tuple(many)


def _aggregate_by_matrix(
    rows: Rows, plan: BatchPlan, families: tuple[Family, ...], accepted: Mask, outcome: Outcome
) -> Mask:
    """Fold the rows into the slices of some families together, and return which rows some query wants."""
    matrix = matrix_plan(families, plan.families)
    folded = fold_matrix(rows, matrix, plan.clocks, accepted)
    outcome.unshared += int(folded.matched @ matrix.queries)
    outcome.lifted += folded.lifted
    outcome.counts.add_matched(plan.index, matrix.ids, folded.matched)
    if not outcome.partials:
        homes = np.searchsorted(plan.index.homes, folded.selections)
        outcome.cells = Cells(homes, folded.starts, folded.rows)
    outcome.partials = merged_sheets(plan.layouts, [outcome.partials, folded.sheets])
    return folded.wanted


def _aggregate_by_family(
    rows: Rows, plan: BatchPlan, families: Sequence[Family], accepted: Mask, outcome: Outcome
) -> Mask:
    """Fold the rows into the slices of some families one by one, and return which rows some query wants."""
    wanted = np.zeros(len(accepted), bool)
    inputs: dict[int, _SharedInput] = {}  # by the id of their rows
    layouts: dict[str, Layout] = {}
    tables: dict[str, list[pa.Table]] = {}  # by the id of their layout
    for family, at, tuples in _tuples(rows, plan, families, accepted):
        if plan.writes_shards(family, tuples.group_count):
            shard = gathered(family, tuples)
            outcome.shards.append((family, shard))
            count_cells(cells_of_shard(shard, plan.index), plan.index, plan.closed, outcome.counts)
        elif family.grid is None:
            folded = fold if family.session_gap is None else fold_sessions
            for layout, table in folded(family, tuples, plan.limits):
                layouts[layout.id] = layout
                tables.setdefault(layout.id, []).append(table)
        if family.grid is None:
            owners, in_ranges = tuples.fragments.ranges.owners, tuples.in_ranges()
            matched = tuples.fragments.among(None, len(tuples))
        else:
            grid_fold = fold_grid(family, tuples, plan.limits)
            for layout, table in grid_fold.tables:
                layouts[layout.id] = layout
                tables.setdefault(layout.id, []).append(table)
            owners, in_ranges, matched = np.arange(len(family)), grid_fold.rows, grid_fold.wanted
        if family.signed and plan.limits.is_too_fragmented(tuples.fragments.count, len(tuples)):
            outcome.too_fragmented |= frozenset(family.ids.tolist())
        outcome.unshared += int(in_ranges @ family.queries[owners])
        outcome.counts.add_matched(plan.index, family.ids[owners], in_ranges)
        shared = inputs.setdefault(id(at), _SharedInput(at, tuples.cells, len(tuples)))
        shared.matched |= matched
        if tuples.cells is None:
            outcome.lifted += int(matched.sum())
        shared.wanted |= matched if family.gaps is None else _in_windows(family, tuples)
    for shared in inputs.values():
        if shared.cells is not None:
            outcome.lifted += int(shared.cells.rows[shared.matched].sum())
        wanted[shared.wanted_rows] = True
    outcome.partials = Sheets(stacks=list(combine_tables(layouts, tables)))
    return wanted


def _tuples(
    rows: Rows, plan: BatchPlan, families_to_fold: Sequence[Family], accepted: Mask
) -> Iterator[tuple[Family, NDArray[np.int64], FamilyTuples]]:
    """The tuples or cells of each family, with their rows; families without any are left out."""
    for together in families_by_roll_up(families_to_fold):
        clock = plan.clocks[together[0].clock]
        for families, cells in roll_up(rows, together, clock, accepted, plan.limits):
            for family in families:
                if cells is not None:
                    yield family, cells.at, rows.of_cells(family, cells)
                    continue
                at, tuples = rows.tuples(family, clock, accepted)
                if not len(at):
                    continue
                if family.grid is None or not plan.writes_shards(family, tuples.group_count):
                    yield family, at, tuples
                    continue
                for part in family.parts(plan.limits.signature_members):  # shards need fragments
                    yield part.without_grid, at, tuples.with_fragments(part)


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
    in_some, by_windows = np.zeros(len(tuples), bool), dict[tuple[WindowSpec, ...], list[int]]()
    for i, specs in enumerate(family.gaps or ()):
        by_windows.setdefault(specs, []).append(i)
    for specs, members in by_windows.items():
        inside = np.zeros(len(tuples), bool)
        for spec in specs:
            inside |= windows.in_some_window(spec, tuples.times)
        if not in_some[inside].all():
            in_some |= inside & wanted_by_any(family, tuples, members)
    return in_some


def late_rows(table: pa.Table, plan: BatchPlan) -> LateRows:
    """The rows that some query missed: a window of the query that they belong to was closed before."""
    rows = Rows(table, plan.columns)
    times, has_time = _times(rows, plan)
    at = _old_rows(rows, plan, has_time if plan.limit is None else has_time & (times <= plan.limit))
    chosen, bits = [at[:0]], [pa.array([], pa.binary())]
    size = max(1, BITS_AT_ONCE // max(plan.group_count, 1))
    for start in range(0, len(at), size):
        some = at[start : start + size]
        missed = np.zeros((plan.group_count, len(some)), bool)
        for group, mask in _missed_rows(rows.take(some), plan):
            missed[group] = mask
        is_late = missed.any(axis=0)
        chosen.append(some[is_late])
        bits.append(bit_column(missed[:, is_late].T))
    return LateRows(np.concatenate(chosen), pa.concat_arrays(bits))


def _old_rows(rows: Rows, plan: BatchPlan, accepted: Mask) -> NDArray[np.int64]:
    """The rows in closed time: only these can be late, so that only these are compared with the queries."""
    old = np.zeros(len(accepted), bool)
    for clock, name in plan.clocks.items():
        until = plan.latest_closed(clock)
        if until is not None:
            times, valid = rows.numbers(name)
            old |= accepted & valid & (times < until) & (times > LOWEST)
    return np.flatnonzero(old)


def _missed_rows(rows: Rows, plan: BatchPlan) -> Iterator[tuple[int, Mask]]:
    """For each group of queries that missed any rows: its place, and which rows."""
    usable: dict[Clock, tuple[NDArray[np.int64], Mask]] = {}
    for clock, name in plan.clocks.items():
        times, valid = rows.numbers(name)
        usable[clock] = times, valid & (times > LOWEST) & (times < HIGHEST)
    closed_masks: dict[tuple[Clock, WindowSpec, bool, int], Mask | None] = {}  # None: no row
    place = 0
    for interest in plan.interests:
        first, place = place, place + len(interest.windows)
        closed, (times, valid) = interest.closed(plan.closed), usable[interest.clock]
        view = closed.view(interest.key_columns, interest.pinned, interest.in_order)
        pinned_apart = interest.in_order and closed.varies
        matched: Mask | None = None
        for group, (window, forced) in enumerate(interest.windows, first):
            missed: Mask | None = None
            if window.is_session:
                if plan.late_sessions and (late := plan.late_sessions.get(plan.home_of(group))) is not None:
                    missed = valid & rows.all_true(interest.conjuncts)
                    missed[missed] = late.holding(
                        times[missed],
                        [normalized(rows.column(key)).filter(pa.array(missed)) for key in interest.keys],
                    )
                    if missed.any():
                        yield group, missed
                continue
            is_alike = view.uniform and forced is None and not pinned_apart
            if is_alike:
                key = interest.clock, window, interest.in_order, interest.retention
                if key not in closed_masks:
                    mask = _in_closed_windows(window, view, IntervalSet(), times, ())
                    closed_masks[key] = mask if mask.any() else None
                missed = closed_masks[key]
                if missed is None:
                    continue
            if matched is None:
                matched = valid & rows.all_true(interest.conjuncts)
            if is_alike and missed is not None:
                missed = matched & missed
            else:
                at = np.flatnonzero(matched)
                keys = [] if view.uniform else [rows.column(key).take(pa.array(at)) for key in interest.keys]
                before = IntervalSet() if forced is None else IntervalSet.of((LOWEST, forced))
                missed = np.zeros(len(matched), bool)
                missed[at] = _in_closed_windows(window, view, before, times[at], keys)
            if missed.any():
                yield group, missed
    for store_input in plan.store_inputs:
        clock = store_input.store_set.clock
        matched, _ = in_time(rows, store_input, plan.clocks[clock], np.ones(rows.table.num_rows, bool))
        for group, (floor, _) in enumerate(store_input.readers, place):
            missed = matched & (usable[clock][0] < floor)
            if missed.any():
                yield group, missed
        place += len(store_input.readers)


def _in_closed_windows(
    window: WindowSpec, view: View, forced: IntervalSet, times: NDArray[np.int64], keys: Sequence[pa.Array]
) -> Mask:
    """Which times have a window that is closed."""
    firsts, lasts = windows.wid_from(window, times), windows.wid_to(window, times)
    missed = np.zeros(len(times), bool)
    until = view.until(keys, len(times))
    if until is not None:
        below = np.maximum(windows.closed_below(window, until), forced.pairs[-1][1] if forced else LOWEST)
        return (firsts < below) & (firsts <= lasts)
    for rows, (closed,) in split_by_view([view], list(keys), len(times)):
        missed[rows] = (windows.closed_wids(window, closed) | forced).meets(firsts[rows], lasts[rows] + 1)
    return missed & (firsts <= lasts)


def merge(outcomes: Iterable[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """Merge the outcomes of all tasks of a batch."""
    parts = list(outcomes)
    total = Outcome(profile=Profile.merged(part.profile for part in parts))
    for count in ("rows", "timeless", "ahead", "counted", "late", "unwanted", "lifted", "unshared"):
        setattr(total, count, sum(getattr(part, count) for part in parts))
    for clock in {clock for part in parts for clock in part.clocks}:
        total.clocks[clock] = Profile.merged(part.clocks[clock] for part in parts if clock in part.clocks)
    total.partials = merged_sheets(layouts, [part.partials for part in parts])
    total.shards = [shard for part in parts for shard in part.shards]
    total.refs = [ref for part in parts for ref in part.refs]
    for runs in ("runs", "executor_runs", "run_refs", "matches"):
        setattr(total, runs, [one for part in parts for one in getattr(part, runs)])
    for part in parts:
        for name, top in part.partition_tops.items():
            total.partition_tops[name] = max(top, total.partition_tops.get(name, top))
    counted = [part.delays for part in parts if part.delays is not None]
    total.delays = reduce(add, counted) if counted else None
    total.too_fragmented = frozenset[int]().union(*(part.too_fragmented for part in parts))
    total.counts = reduce(add, (part.counts for part in parts)) if parts else QueryCounts()
    flags = [part.flags for part in parts if part.flags is not None]
    total.flags = pa.concat_tables(flags) if flags else None
    late = [part.late_rows for part in parts if part.late]
    listed = [rows for rows in late if rows is not None]
    if listed and len(listed) == len(late):
        missed_by = pa.concat_arrays([rows.missed_by for rows in listed])
        carried = [rows.rows for rows in listed if rows.rows is not None]
        at = np.concatenate([rows.at for rows in listed])
        total.late_rows = LateRows(at, missed_by, pa.concat_tables(carried) if carried else None)
    rejected = [part.rejected_rows for part in parts if part.rows]
    if rejected and all(rows is not None for rows in rejected):
        total.rejected_rows = np.concatenate([rows for rows in rejected if rows is not None])
    carried_rejected = [part.carried_rejected for part in parts if part.rows]
    if carried_rejected and all(rows is not None for rows in carried_rejected):
        total.carried_rejected = pa.concat_tables([rows for rows in carried_rejected if rows is not None])
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
