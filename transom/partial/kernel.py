"""The first half of a page: rows -> partial aggregates, for every query at once, on Arrow columns.

It runs where the rows are, inside a Spark task or in a test, and knows neither of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.algorithms import windows
from transom.algorithms.intervals import HIGHEST, IntervalSet
from transom.algorithms.profile import Profile
from transom.control.closed import Closed, View
from transom.elements import Clock, WindowSpec
from transom.partial.fold import fold, matching
from transom.partial.rows import Rows
from transom.partial.sheets import combine
from transom.partial.views import split_by_view
from transom.plan.families import Family
from transom.plan.layout import Layout
from transom.sql.query import Predicate, Scalar

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Asker:
    """Queries that ask for the same rows in the same windows: what is needed to tell who is late for them."""

    clock: Clock
    window: WindowSpec
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    key_columns: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]
    forced: IntervalSet  # windows closed for all groups


@dataclass(frozen=True)
class PagePlan:
    """All that a task needs to know about a page: small, and the same for every task.

    `columns` and `clocks` say under which name the projected page carries a scalar or a clock; clocks
    and the stream's own `time` are int64. Rows with `floor < time <= limit` are aggregated.
    """

    families: tuple[Family, ...]
    askers: tuple[Asker, ...]
    columns: Mapping[str, str]
    clocks: Mapping[Clock, str]
    time: str
    closed: Mapping[Clock, Closed] = field(default_factory=dict)
    limit: int | None = None
    floor: int | None = None
    horizon: int | None = None
    row_id: str | None = None  # a column that tells rows apart, when a page is read in several branches

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that it fills, by their keys."""
        return {member.layout.key: member.layout for family in self.families for member in family.members}

    def latest_closed(self, clock: Clock) -> int | None:
        """A time of a clock above which no row can be late; None if nothing is closed."""
        closed = self.closed.get(clock, Closed())
        stops = [stop for _, stop in closed.general]
        stops += [stop for _, ranges in closed.patterned for _, stop in ranges]
        for asker in self.askers:
            if asker.clock == clock and asker.forced:
                last = asker.forced.pairs[-1][1] - 1
                stops.append(asker.window.phase + (last + 1) * asker.window.slide)
        return min(max(stops), HIGHEST) if stops else None


@dataclass
class Outcome:
    """What a task, or all tasks of a page together, made of its rows."""

    partials: dict[str, pa.Table] = field(default_factory=dict)  # by the key of their layout
    rows: int = 0
    timeless: int = 0  # no time: rejected
    ahead: int = 0  # beyond the limit: rejected
    counted: int = 0
    late: int = 0
    unasked: int = 0
    profile: Profile = field(default_factory=Profile)  # of the stream's time, all rows that have one
    clocks: dict[Clock, Profile] = field(default_factory=dict)  # of accepted rows
    flags: pa.Table | None = None  # row_id, asked, counted: only when the plan names a row_id


def run(table: pa.Table, plan: PagePlan) -> Outcome:
    """Aggregate some rows of a page."""
    rows = Rows(table, plan.columns)
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
    counted = asked & ~_late(rows, plan, accepted)
    outcome.counted, outcome.unasked = int(counted.sum()), int((accepted & ~asked).sum())
    outcome.late = int(asked.sum()) - outcome.counted
    if plan.row_id is not None:
        chosen = np.flatnonzero(asked)
        ids = rows.table[plan.row_id].combine_chunks().take(pa.array(chosen))
        outcome.flags = pa.table({"row": ids, "counted": counted[chosen]})
    return outcome


def _aggregate(rows: Rows, plan: PagePlan, accepted: Mask, outcome: Outcome) -> Mask:
    """Fold the rows into every family's slices; which of them somebody asked for."""
    asked = np.zeros(len(accepted), bool)
    found: dict[Layout, list[pa.Table]] = {}
    for family in plan.families:
        at, tuples = rows.tuples(family, plan.clocks[family.clock], accepted)
        if not len(at):
            continue
        for layout, table in fold(family, tuples):
            found.setdefault(layout, []).append(table)
        if not family.has_gaps:
            everyone = np.ones(len(tuples.fragments.ranges.owners), bool)
            asked[at[tuples.fragments.among(everyone, len(at))]] = True
            continue
        for i, member in enumerate(family.members):
            inside = np.zeros(len(at), bool)
            for spec in member.windows:
                inside |= windows.in_some_window(spec, tuples.times)
            asked[at[inside & matching(tuples, i)]] = True
    outcome.partials = {layout.key: combine(layout, tables) for layout, tables in found.items()}
    return asked


def late_rows(table: pa.Table, plan: PagePlan) -> Mask:
    """Which rows were asked for by some query and are late for every one that asked."""
    rows = Rows(table, plan.columns)
    times, has_time = rows.numbers(plan.time)
    return _late(rows, plan, has_time if plan.limit is None else has_time & (times <= plan.limit))


def _late(rows: Rows, plan: PagePlan, accepted: Mask) -> Mask:
    """Which of the accepted rows are late for all who ask for them, of whom there are some.

    Only rows at times of which something is closed can be: the queries are asked about those alone.
    """
    old = np.zeros(len(accepted), bool)
    for clock, name in plan.clocks.items():
        until = plan.latest_closed(clock)
        if until is not None:
            times, valid = rows.numbers(name)
            old |= accepted & valid & (times < until)
    late = np.zeros(len(accepted), bool)
    at = np.flatnonzero(old)
    if len(at):
        late[at] = _judged(rows.taken(at), plan)
    return late


def _judged(rows: Rows, plan: PagePlan) -> Mask:
    size = rows.table.num_rows
    asked, counted = np.zeros(size, bool), np.zeros(size, bool)
    passed: dict[tuple[Clock, WindowSpec], Mask] = {}
    for asker in plan.askers:
        times, valid = rows.numbers(plan.clocks[asker.clock])
        wanted = valid & rows.all_true(asker.conjuncts)
        if asker.window.slide > asker.window.range:
            wanted = wanted & windows.in_some_window(asker.window, times)
        asked |= wanted
        if not (wanted & ~counted).any():
            continue
        view = plan.closed.get(asker.clock, Closed()).view(asker.key_columns, asker.pinned)
        if view.uniform and not asker.forced:
            known = asker.clock, asker.window
            if known not in passed:
                passed[known] = _passed(asker, view, times, (), np.arange(size))
            late = passed[known]
        else:
            at = np.flatnonzero(wanted)
            keys = [] if view.uniform else [rows.column(key).take(pa.array(at)) for key in asker.keys]
            late = np.zeros(size, bool)
            late[at] = _passed(asker, view, times[at], keys, at)
        counted |= wanted & ~late
    return asked & ~counted


def _passed(
    asker: Asker, view: View, times: NDArray[np.int64], keys: Sequence[pa.Array], at: NDArray[np.int64]
) -> Mask:
    """Which times have all their windows closed."""
    firsts, lasts = windows.wid_from(asker.window, times), windows.wid_to(asker.window, times)
    late = np.zeros(len(at), bool)
    for rows, (closed,) in split_by_view([view], list(keys), len(at)):
        wids = windows.closed_wids(asker.window, closed) | asker.forced
        late[rows] = wids.covers(firsts[rows], lasts[rows])
    return late


def merge(outcomes: Iterable[Outcome], layouts: Mapping[str, Layout]) -> Outcome:
    """One outcome of all tasks of a page."""
    parts = list(outcomes)
    total = Outcome(profile=Profile.merged(part.profile for part in parts))
    for count in ("rows", "timeless", "ahead", "counted", "late", "unasked"):
        setattr(total, count, sum(getattr(part, count) for part in parts))
    for clock in {clock for part in parts for clock in part.clocks}:
        total.clocks[clock] = Profile.merged(part.clocks[clock] for part in parts if clock in part.clocks)
    for key in dict.fromkeys(key for part in parts for key in part.partials):
        tables = [part.partials[key] for part in parts if key in part.partials]
        total.partials[key] = tables[0] if len(tables) == 1 else combine(layouts[key], tables)
    flags = [part.flags for part in parts if part.flags is not None]
    total.flags = pa.concat_tables(flags) if flags else None
    return total
