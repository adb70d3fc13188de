"""The first half of a batch: rows -> partial aggregates, for every query at once, on Arrow columns.

It runs where the rows are, inside a Spark task or in a test, and knows neither of the two.
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
from transom.kernel.rollups import kinships, rolled_up
from transom.kernel.rows import Rows
from transom.kernel.shards import Shard, Shelf, gathered, rolled
from transom.kernel.sheets import combine
from transom.kernel.store_runs import StoreInput, StoreRun, in_time, put_run, take
from transom.kernel.tuples import Cells, Tuples, matching
from transom.plan.axis import Axis
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.sql.query import Predicate, Scalar
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.closed import Closed, View
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.profile import Profile

Mask = NDArray[np.bool_]

# A signature family must put at least so many tuples into a fragment, judged when there are many.
TUPLES_PER_SIGNATURE = 2
MANY = 1024


@dataclass(frozen=True)
class Interest:
    """What queries that want the same rows have in common: enough to judge which rows are late for them.

    `windows` are those of the queries, each with the id below which prods closed windows for all groups.
    """

    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    key_columns: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]
    windows: tuple[tuple[WindowSpec, int | None], ...]


@dataclass(frozen=True)
class BatchPlan:
    """All that a task needs to know about a batch: small, and the same for every task.

    `columns` and `clocks` say under which name the projected batch carries a scalar or a clock; clocks
    and the stream's own `time` are int64. Rows with `floor < time <= limit` are aggregated.
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
    row_id: str | None = None  # a column that tells rows apart, when a batch is read in several branches
    far: frozenset[int] = frozenset()  # selections whose cells are not folded but put away as shards
    most_groups: int | None = None  # families with more groups than this are put away in any case
    store_inputs: tuple[StoreInput, ...] = ()  # the stores of on-demand queries

    def is_far(self, family: Family, groups: int) -> bool:
        """Whether a family's cells are put away."""
        if int(family.ids[0]) in self.far:
            return True
        return family.merged and self.most_groups is not None and groups > self.most_groups

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that it fills, by their keys."""
        return {layout.id: layout for family in self.families for layout in family.layouts}

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """By scalar, the axis on which all families are told that have one there."""
        found: dict[str, list[Axis]] = {}
        for family in self.families:
            if family.axis is not None:
                found.setdefault(family.axis.scalar.sql, []).append(family.axis)
        return {sql: Axis.merged(axes) for sql, axes in found.items()}

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
    """What a task, or all tasks of a batch together, made of its rows."""

    partials: dict[str, pa.Table] = field(default_factory=dict)  # by the key of their layout
    shards: list[tuple[Family, Shard]] = field(default_factory=list)  # until they are put away
    refs: list[ShardRef] = field(default_factory=list)  # of those put away
    rows: int = 0
    timeless: int = 0  # no time: rejected
    ahead: int = 0  # beyond the limit: rejected
    counted: int = 0
    late: int = 0
    unwanted: int = 0
    lifted: int = 0  # tuples added to a cell, in all families
    unshared: int = 0  # what that would have been for each query alone
    unpaid: frozenset[int] = frozenset()  # selections of signature families with too many fragments
    profile: Profile = field(default_factory=Profile)  # of the stream's time, all rows that have one
    clocks: dict[Clock, Profile] = field(default_factory=dict)  # of accepted rows
    flags: pa.Table | None = None  # row_id, asked, counted: only when the plan names a row_id
    runs: list[StoreRun] = field(default_factory=list)  # for stores of on-demand queries
    far_runs: list[StoreRun] = field(default_factory=list)  # until they are put away
    run_refs: list[tuple[str, ShardRef, int]] = field(default_factory=list)  # put away: store, file, tuples


def run(table: pa.Table, plan: BatchPlan) -> Outcome:
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
    asked = _aggregate(rows, plan, accepted, outcome)
    for store_input in plan.store_inputs:
        runs, matched = take(rows, store_input, plan.clocks[store_input.store_set.clock], accepted)
        groups = runs[0].run.groups if runs else 0
        is_far = store_input.far or (plan.most_groups is not None and groups > plan.most_groups)
        (outcome.far_runs if is_far else outcome.runs).extend(runs)
        asked |= matched
    counted = asked & ~_late(rows, plan, accepted)
    outcome.counted, outcome.unwanted = int(counted.sum()), int((accepted & ~asked).sum())
    outcome.late = int(asked.sum()) - outcome.counted
    if plan.row_id is not None:
        chosen = np.flatnonzero(asked)
        ids = rows.table[plan.row_id].combine_chunks().take(pa.array(chosen))
        outcome.flags = pa.table({"row": ids, "counted": counted[chosen]})
    return outcome


def _aggregate(rows: Rows, plan: BatchPlan, accepted: Mask, outcome: Outcome) -> Mask:
    """Fold the rows into every family's slices; which of them somebody asked for."""
    asked = np.zeros(len(accepted), bool)
    begun: dict[int, _Begun] = {}  # by rows or cells that several families begin with
    found: dict[Layout, list[pa.Table]] = {}
    for family, at, tuples in _tuples(rows, plan, accepted):
        if plan.is_far(family, tuples.group_count):
            outcome.shards.append((family, gathered(family, tuples)))
        else:
            for layout, table in fold(family, tuples):
                found.setdefault(layout, []).append(table)
        owners = tuples.fragments.ranges.owners
        matched = tuples.fragments.among(np.ones(len(owners), bool), len(tuples))
        if family.signed and tuples.fragments.count * TUPLES_PER_SIGNATURE > len(tuples) >= MANY:
            outcome.unpaid |= frozenset(family.ids.tolist())
        outcome.unshared += int(tuples.in_ranges() @ family.queries[owners])
        known = begun.setdefault(id(at), _Begun(at, tuples.cells, len(tuples)))
        known.matched |= matched
        if tuples.cells is None:
            outcome.lifted += int(matched.sum())
        known.asked |= matched if family.gaps is None else _inside(family, tuples)
    for known in begun.values():
        if known.cells is not None:
            outcome.lifted += int(known.cells.rows[known.matched].sum())
        asked[known.rows_asked] = True
    outcome.partials = {layout.id: combine(layout, tables) for layout, tables in found.items()}
    return asked


def _tuples(
    rows: Rows, plan: BatchPlan, accepted: Mask
) -> Iterator[tuple[Family, NDArray[np.int64], Tuples]]:
    """What each family is made of, tuples or cells, with their rows; families without any are left out."""
    for together in kinships(plan.families):
        clock = plan.clocks[together[0].clock]
        for families, cells in rolled_up(rows, together, clock, accepted):
            for family in families:
                if cells is not None:
                    yield family, cells.at, rows.of_cells(family, cells)
                    continue
                at, tuples = rows.tuples(family, clock, accepted)
                if len(at):
                    yield family, at, tuples


class _Begun:
    """Tuples or cells that families begin with: which of them some family adds, and which are asked for."""

    def __init__(self, at: NDArray[np.int64], cells: Cells | None, size: int):
        self.at, self.cells = at, cells
        self.matched, self.asked = np.zeros(size, bool), np.zeros(size, bool)

    @property
    def rows_asked(self) -> NDArray[np.int64]:
        if self.cells is None:
            return self.at[self.asked]
        return self.cells.added[self.asked[self.cells.codes]]


def _inside(family: Family, tuples: Tuples) -> Mask:
    """Which tuples lie in a window of a member that asks for them, where windows don't cover all of time."""
    found = np.zeros(len(tuples), bool)
    for i, specs in enumerate(family.gaps or ()):
        inside = np.zeros(len(tuples), bool)
        for spec in specs:
            inside |= windows.in_some_window(spec, tuples.times)
        found |= inside & matching(tuples, i)
    return found


def late_rows(table: pa.Table, plan: BatchPlan) -> Mask:
    """Which rows were asked for by some query and are late for every one that asked."""
    rows = Rows(table, plan.columns)
    times, has_time = rows.numbers(plan.time)
    return _late(rows, plan, has_time if plan.limit is None else has_time & (times <= plan.limit))


def _late(rows: Rows, plan: BatchPlan, accepted: Mask) -> Mask:
    """Which of the accepted rows are late for all who ask for them, of whom there are some.

    Only rows at times of which something is closed can be: the queries are asked about those alone.
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
        late[at] = _judged(rows.taken(at), plan)
    return late


def _judged(rows: Rows, plan: BatchPlan) -> Mask:
    size = rows.table.num_rows
    asked, counted = np.zeros(size, bool), np.zeros(size, bool)
    for store_input in plan.store_inputs:
        matched, timely = in_time(
            rows, store_input, plan.clocks[store_input.store_set.clock], np.ones(size, bool)
        )
        asked, counted = asked | matched, counted | timely
    passed: dict[tuple[Clock, WindowSpec], Mask] = {}
    for interest in plan.interests:
        times, valid = rows.numbers(plan.clocks[interest.clock])
        matched = valid & rows.all_true(interest.conjuncts)
        if not matched.any():
            continue
        view = plan.closed.get(interest.clock, Closed()).view(interest.key_columns, interest.pinned)
        for window, forced in interest.windows:
            wanted = matched
            if windows.has_gaps(window):
                wanted = matched & windows.in_some_window(window, times)
            asked |= wanted
            if not (wanted & ~counted).any():
                continue
            if view.uniform and forced is None:
                known = interest.clock, window
                if known not in passed:
                    passed[known] = _passed(window, view, IntervalSet(), times, ())
                counted |= wanted & ~passed[known]
                continue
            at = np.flatnonzero(wanted)
            keys = [] if view.uniform else [rows.column(key).take(pa.array(at)) for key in interest.keys]
            closed = IntervalSet() if forced is None else IntervalSet.of((LOWEST, forced))
            counted[at[~_passed(window, view, closed, times[at], keys)]] = True
    return asked & ~counted


def _passed(
    window: WindowSpec, view: View, forced: IntervalSet, times: NDArray[np.int64], keys: Sequence[pa.Array]
) -> Mask:
    """Which times have all their windows closed."""
    firsts, lasts = windows.wid_from(window, times), windows.wid_to(window, times)
    late = np.zeros(len(times), bool)
    for rows, (closed,) in split_by_view([view], list(keys), len(times)):
        late[rows] = (windows.closed_wids(window, closed) | forced).covers(firsts[rows], lasts[rows])
    return late


def merge(outcomes: Iterable[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """One outcome of all tasks of a batch."""
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
    for runs in ("runs", "far_runs", "run_refs"):
        setattr(total, runs, [one for part in parts for one in getattr(part, runs)])
    total.unpaid = frozenset[int]().union(*(part.unpaid for part in parts))
    flags = [part.flags for part in parts if part.flags is not None]
    total.flags = pa.concat_tables(flags) if flags else None
    return total


def write_shards(outcome: Outcome, shelf: Shelf) -> Outcome:
    """Write the shards of an outcome to files, one shard for each family, and keep references to them."""
    found: dict[int, list[tuple[Family, Shard]]] = {}
    for family, shard in outcome.shards:
        found.setdefault(id(family), []).append((family, shard))
    for own in found.values():
        family, whole = own[0][0], own[0][1] if len(own) == 1 else None
        if whole is None:
            homes = family.ids.tolist()
            whole = rolled((shard for _, shard in own), family.slots, homes, None)
        if whole is not None and whole.table.num_rows:
            outcome.refs.append(shelf.put(whole))
    for brought in outcome.far_runs:
        outcome.run_refs.append((brought.store, put_run(shelf, brought.run), brought.tuples))
    outcome.shards, outcome.far_runs = [], []
    return outcome
