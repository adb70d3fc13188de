"""What became of a batch's rows for each query: rows in cells, rows between windows, and late rows by window.

A query misses a row in every window that was closed before the row's batch. Cells are counted where they were
made: all rows of a slice lie in the same windows of a query, so that no row is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.table_columns import FRAGMENT, ROWS, SELECTION, SLICE, groups_in
from transom.elements import Clock
from transom.kernel.closed_views import split_by_view
from transom.kernel.shards import Shard
from transom.kernel.stacked_sheets import Sheets
from transom.windows import ids as windows
from transom.windows.closed_time import Closed, View
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet

FATES = ("rows", "counted", "unwanted", "late", "rejected")  # all rows, and what can become of one


def _no_flags() -> Mask:
    return np.zeros(0, bool)


def _no_numbers() -> Ints:
    return np.zeros(0, np.int64)


def _no_runs() -> Ints:
    return np.zeros((4, 0), np.int64)


@dataclass(frozen=True)
class QueryIndex:
    """The standing queries of a batch as arrays: the selection that each adds to, its windows, and its group.

    Windows with an id below `forced` were closed because the stream ended or fell idle. Queries of one group
    want the same rows and have the same windows: `groups` is the place of each query's group.
    """

    names: tuple[str, ...] = ()
    selections: Ints = field(default_factory=_no_numbers)
    specs: WindowSpecs = field(default_factory=lambda: WindowSpecs.of([]))
    forced: Ints = field(default_factory=_no_numbers)
    groups: Ints = field(default_factory=_no_numbers)
    clocks: tuple[Clock, ...] = ()
    key_columns: tuple[Mapping[str, int], ...] = ()
    pinned: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    in_order: Mask = field(default_factory=_no_flags)  # whose windows close one after the other
    sessions: Ints = field(default_factory=_no_numbers)  # the places of queries with sessions
    retentions: tuple[int, ...] = ()  # how long rows that come after a window closed still count for it

    @cached_property
    def has_forced(self) -> bool:
        """Whether some windows were closed because the stream ended or fell idle."""
        return bool((self.forced > LOWEST).any())

    @cached_property
    def homes(self) -> Ints:
        """The ids of all selections, in order."""
        return np.unique(self.selections)

    @cached_property
    def home_places(self) -> Ints:
        """The place of each query's selection among `homes`."""
        return np.searchsorted(self.homes, self.selections)

    @cached_property
    def by_home(self) -> tuple[Ints, Ints]:
        """The queries in the order of their selections, and where each selection's begin."""
        order = np.argsort(self.home_places, kind="stable")
        return order, np.searchsorted(self.home_places[order], np.arange(len(self.homes) + 1))

    @cached_property
    def by_clock(self) -> dict[tuple[Clock, int], Ints]:
        """The queries of each clock and retention."""
        retains = any(self.retentions)
        if not retains and len(set(map(id, self.clocks))) == 1:  # as a rule: a clock is slow to hash
            return {(self.clocks[0], 0): np.arange(len(self.clocks))}
        found: dict[tuple[Clock, int], list[int]] = {}
        for place, clock in enumerate(self.clocks):
            found.setdefault((clock, self.retentions[place] if retains else 0), []).append(place)
        return {kind: np.array(places) for kind, places in found.items()}

    def session_boundaries(self, closed: Mapping[Clock, Closed]) -> dict[int, tuple[View, IntervalSet]]:
        """By selection of sessions: closed time, and the ids that were closed because the stream ended.

        All queries of such a selection have the same.
        """
        boundaries: dict[int, tuple[View, IntervalSet]] = {}
        homes, firsts = np.unique(self.selections[self.sessions], return_index=True)
        for home, place in zip(homes.tolist(), self.sessions[firsts].tolist(), strict=True):
            forced = int(self.forced[place])
            ids = IntervalSet.of((LOWEST, forced)) if forced > LOWEST else IntervalSet()
            boundaries[home] = self.view(place, closed.get(self.clocks[place], Closed())), ids
        return boundaries

    def view(self, place: int, closed: Closed) -> View:
        """Closed time as the query at a place sees it."""
        return closed.view(self.key_columns[place], self.pinned[place], bool(self.in_order[place]))


@dataclass
class QueryCounts:
    """The counts of some rows of a batch; counts of tasks add up.

    `matched` and `folded` are by selection: the rows that match, and those in the cells that were made of them.
    `between` (rows between windows) and `missed` (rows in cells, of which a window is closed) are by query, and
    `late` (the same, from the rows themselves) by group. `windows` has a column for each run of missed windows:
    the query, the first and the last window, and the rows that each of them missed.
    """

    matched: Ints = field(default_factory=_no_numbers)
    folded: Ints = field(default_factory=_no_numbers)
    between: Ints = field(default_factory=_no_numbers)
    missed: Ints = field(default_factory=_no_numbers)
    late: Ints = field(default_factory=_no_numbers)
    windows: Ints = field(default_factory=_no_runs)
    store_matched: Ints = field(default_factory=_no_numbers)  # by store input

    @classmethod
    def of(cls, index: QueryIndex, groups: int, stores: int) -> QueryCounts:
        """The counts of no rows."""
        homes, queries = len(index.homes), len(index.names)
        matched, folded, between, missed, late, store_matched = (
            np.zeros(size, np.int64) for size in (homes, homes, queries, queries, groups, stores)
        )
        return cls(matched, folded, between, missed, late, store_matched=store_matched)

    def __add__(self, other: QueryCounts) -> QueryCounts:
        return QueryCounts(
            self.matched + other.matched,
            self.folded + other.folded,
            self.between + other.between,
            self.missed + other.missed,
            self.late + other.late,
            np.concatenate([self.windows, other.windows], axis=1),
            self.store_matched + other.store_matched,
        )

    def add_matched(self, index: QueryIndex, selections: Ints, rows: Ints) -> None:
        """Add rows that match, given by selection."""
        if index.names:
            np.add.at(self.matched, np.searchsorted(index.homes, selections), rows)


@dataclass(frozen=True)
class BatchAccounts:
    """What became of a batch's rows for each query.

    `counts` has a row for each of `FATES` and a column for each query. `windows` has a column for each run of
    missed windows: the place of the query, the first and the last window, and the rows that each missed.
    """

    names: tuple[str, ...] = ()
    counts: Ints = field(default_factory=lambda: np.zeros((len(FATES), 0), np.int64))
    windows: Ints = field(default_factory=_no_runs)

    def __add__(self, other: BatchAccounts) -> BatchAccounts:
        """The accounts of other queries beside these."""
        shifted = other.windows + np.array([[len(self.names)], [0], [0], [0]])
        return BatchAccounts(
            (*self.names, *other.names),
            np.concatenate([self.counts, other.counts], axis=1),
            np.concatenate([self.windows, shifted], axis=1),
        )


def batch_accounts(
    counts: QueryCounts,
    index: QueryIndex,
    store_groups: Sequence[Sequence[Sequence[str]]],
    rows: int,
    rejected: int,
) -> BatchAccounts:
    """The accounts of a batch: of standing queries, and of on-demand queries by store input and group.

    What was counted comes from the cells, what was late from the rows, and what was unwanted from the matches:
    that they add up to the rows is checked when the accounts are added to those of earlier batches.
    """
    inputs = [place for place, groups in enumerate(store_groups) for names in groups for _ in names]
    groups = [names for own in store_groups for names in own]
    standing_groups = int(index.groups.max(initial=-1)) + 1
    if len(counts.matched) != len(index.homes):  # no task had any rows
        counts = QueryCounts.of(index, standing_groups + len(groups), len(store_groups))
    accepted, queries = rows - rejected, len(index.names)
    matched, late = counts.matched[index.home_places], counts.late[index.groups]
    counted = counts.folded[index.home_places] - counts.between - counts.missed
    unwanted = accepted - matched + counts.between
    standing = [np.full(queries, rows), counted, unwanted, late, np.full(queries, rejected)]
    matched = counts.store_matched[np.array(inputs, np.int64)]
    late = np.repeat(counts.late[standing_groups:], [len(names) for names in groups])
    queries = len(inputs)
    on_demand = [np.full(queries, rows), matched - late, accepted - matched, late, np.full(queries, rejected)]
    names = (*index.names, *(name for own in groups for name in own))
    found = np.concatenate([np.stack(standing), np.stack(on_demand)], axis=1)
    return BatchAccounts(names, found, counts.windows)


def row_accounts(names: Sequence[str], matched: Mapping[str, int], rows: int, rejected: int) -> BatchAccounts:
    """The accounts of row queries: a row that satisfies one is counted, and none is late."""
    counted = np.array([matched.get(name, 0) for name in names], np.int64)
    all_rows, none, beside = (np.full(len(names), number, np.int64) for number in (rows, 0, rejected))
    return BatchAccounts(tuple(names), np.stack([all_rows, counted, rows - rejected - counted, none, beside]))


@dataclass(frozen=True)
class Cells:
    """Cells of selections: the place of the selection, where the slice starts, the rows, the group columns."""

    homes: Ints
    starts: Ints
    rows: Ints
    keys: Sequence[pa.Array] = ()

    def take(self, at: Ints, with_keys: bool = False) -> Cells:
        keys = [key.take(pa.array(at)) for key in self.keys] if with_keys else ()
        return Cells(self.homes[at], self.starts[at], self.rows[at], keys)

    def without_groups(self) -> Cells:
        """The cells added up over their groups."""
        if len(self.homes) < 2:
            return Cells(self.homes, self.starts, self.rows)
        order = np.lexsort((self.starts, self.homes))
        homes, starts = self.homes[order], self.starts[order]
        firsts = np.flatnonzero(np.r_[True, (homes[1:] != homes[:-1]) | (starts[1:] != starts[:-1])])
        return Cells(homes[firsts], starts[firsts], np.add.reduceat(self.rows[order], firsts))


def cells_of_sheets(
    sheets: Mapping[str, pa.Table], index: QueryIndex, closed: Mapping[Clock, Closed]
) -> Iterator[Cells]:
    """The cells that a batch brings to sheets; all together, unless groups can differ in what is closed."""
    if any(times.varies for times in closed.values()):
        for sheet in sheets.values():
            selections, starts, rows = (
                one_array(sheet[name]).to_numpy() for name in (SELECTION, SLICE, ROWS)
            )
            keys = [one_array(sheet[name]) for name in groups_in(sheet.column_names)]
            yield Cells(np.searchsorted(index.homes, selections), starts, rows, keys)
    elif parts := list(Sheets.of(sheets).slices_of(sheets)):
        selections, starts, _, rows = map(np.concatenate, zip(*parts, strict=True))
        yield Cells(np.searchsorted(index.homes, selections), starts, rows)


def cells_of_shard(shard: Shard, index: QueryIndex) -> Cells:
    """The cells of a shard, once for each selection that wants their fragment."""
    fragments, starts, rows = (one_array(shard.table[name]).to_numpy() for name in (FRAGMENT, SLICE, ROWS))
    ranges, order = shard.head.ranges, np.argsort(fragments, kind="stable")
    in_order = fragments[order]
    at, which = expand_runs(np.searchsorted(in_order, ranges.starts), np.searchsorted(in_order, ranges.stops))
    at, homes = order[at], np.array(shard.head.homes, np.int64)[ranges.owners[which]]
    keys = [one_array(shard.table[name]).take(pa.array(at)) for name in shard.key_names]
    return Cells(np.searchsorted(index.homes, homes), starts[at], rows[at], keys)


def count_cells(cells: Cells, index: QueryIndex, closed: Mapping[Clock, Closed], counts: QueryCounts) -> None:
    """Add cells to counts: their rows, the rows between windows, and the windows that were closed before."""
    if not len(cells.homes) or not index.names:
        return
    counts.folded += np.bincount(cells.homes, cells.rows, len(index.homes)).astype(np.int64)
    with_gaps = windows.has_gaps(index.specs)
    if np.any(with_gaps):
        _count_between(cells, index, np.flatnonzero(with_gaps), counts)
    reach = _reach(index, closed)
    old = np.flatnonzero(cells.starts < reach[cells.homes])
    if not len(old):
        return
    added = cells.take(old).without_groups()
    for (clock, retention), places in index.by_clock.items():
        own = closed.get(clock, Closed()).delayed(retention)
        places = np.setdiff1d(places, index.sessions) if len(index.sessions) else places
        differing = []
        if own.varies:
            differing = [
                place
                for place in places.tolist()
                if index.in_order[place] or not index.view(place, own).uniform
            ]
        elif not own.is_prefix:
            differing = places[index.in_order[places]].tolist()
        alike = np.setdiff1d(places, differing) if differing else places
        _count_alike(added, index, alike, own.general, counts)
        for place in differing:
            mine = old[cells.homes[old] == index.home_places[place]]
            if len(mine):
                _count_by_group(cells.take(mine, with_keys=True), index, place, own, counts)


def _reach(index: QueryIndex, closed: Mapping[Clock, Closed]) -> Ints:
    """For each selection, a time from which on no window of its queries is closed."""
    reach = np.full(len(index.names), LOWEST)
    for (clock, retention), places in index.by_clock.items():
        latest = closed.get(clock, Closed()).delayed(retention).latest
        reach[places] = LOWEST if latest is None else latest
    is_forced = np.flatnonzero(index.forced > LOWEST)
    if len(is_forced):
        ends = windows.window_end(index.specs[is_forced], index.forced[is_forced] - 1)
        reach[is_forced] = np.maximum(reach[is_forced], ends)
    found = np.full(len(index.homes), LOWEST)
    np.maximum.at(found, index.home_places, reach)
    return found


def _pairs(cells: Cells, index: QueryIndex, places: Ints) -> tuple[Ints, Ints]:
    """Each cell with each of some queries that read its selection: cells and queries."""
    order, bounds = index.by_home
    at, cell = expand_runs(bounds[cells.homes], bounds[cells.homes + 1])
    queries = order[at]
    if len(places) < len(index.names):
        chosen = np.isin(queries, places)
        return cell[chosen], queries[chosen]
    return cell, queries


def _count_between(cells: Cells, index: QueryIndex, places: Ints, counts: QueryCounts) -> None:
    """Add the rows that lie between two windows of a query."""
    known = cells.take(np.flatnonzero(np.isin(cells.homes, index.home_places[places]))).without_groups()
    cell, queries = _pairs(known, index, places)
    outside = ~windows.in_some_window(index.specs[queries], known.starts[cell])
    counts.between += np.bincount(queries, known.rows[cell] * outside, len(index.names)).astype(np.int64)


def _count_alike(
    cells: Cells, index: QueryIndex, places: Ints, closed: IntervalSet, counts: QueryCounts
) -> None:
    """Add missed windows of queries for which the same time is closed in all groups."""
    cell, queries = _pairs(cells, index, places)
    specs, rows, forced = index.specs[queries], cells.rows[cell], index.forced[queries]
    firsts, lasts = windows.wid_from(specs, cells.starts[cell]), windows.wid_to(specs, cells.starts[cell])
    runs = [(np.full(len(queries), LOWEST), forced)] if (forced > LOWEST).any() else []
    for start, stop in closed:
        low = (
            forced if start <= LOWEST else np.maximum(windows.first_starting(specs, np.array(start)), forced)
        )
        high = np.full(len(queries), HIGHEST) if stop >= HIGHEST else windows.wid_from(specs, np.array(stop))
        runs.append((low, high))
    is_missed = np.zeros(len(queries), bool)
    for low, high in runs:
        low, high = np.maximum(firsts, low), np.minimum(lasts, high - 1)
        hit = np.flatnonzero(low <= high)
        is_missed[hit] = True
        _add_windows(counts, np.stack([queries[hit], low[hit], high[hit], rows[hit]]))
    counts.missed += np.bincount(queries, rows * is_missed, len(index.names)).astype(np.int64)


def _count_by_group(cells: Cells, index: QueryIndex, place: int, closed: Closed, counts: QueryCounts) -> None:
    """Add missed windows of one query for which groups differ in what is closed."""
    spec = index.specs.spec(place)
    firsts, lasts = windows.wid_from(spec, cells.starts), windows.wid_to(spec, cells.starts)
    forced = int(index.forced[place])
    before = IntervalSet.of((LOWEST, forced)) if forced > LOWEST else IntervalSet()
    until = index.view(place, closed).until(cells.keys, len(cells.homes))
    if until is not None:
        lasts = np.minimum(lasts, np.maximum(windows.closed_below(spec, until), forced) - 1)
        hit = np.flatnonzero(firsts <= lasts)
        _add_windows(counts, np.stack([np.full(len(hit), place), firsts[hit], lasts[hit], cells.rows[hit]]))
        counts.missed[place] += int(cells.rows[hit].sum())
        return
    for at, (times,) in split_by_view([index.view(place, closed)], list(cells.keys), len(cells.homes)):
        is_missed = np.zeros(len(at), bool)
        for start, stop in windows.closed_wids(spec, times) | before:
            low, high = np.maximum(firsts[at], start), np.minimum(lasts[at], stop - 1)
            hit = np.flatnonzero(low <= high)
            is_missed[hit] = True
            queries = np.full(len(hit), place)
            _add_windows(counts, np.stack([queries, low[hit], high[hit], cells.rows[at][hit]]))
        counts.missed[place] += int(cells.rows[at][is_missed].sum())


def add_missed_sessions(
    counts: QueryCounts,
    index: QueryIndex,
    group: int,
    numbers: Callable[[str], tuple[Ints, Mask]],
    clocks: Mapping[Clock, str],
    missed: Mask,
) -> None:
    """Add rows that a group of queries missed: the window of each is the session that it would have been alone."""
    places = index.sessions[index.groups[index.sessions] == group]
    if not len(places):
        return
    first = int(places[0])
    ids = numbers(clocks[index.clocks[first]])[0][missed] + index.specs.range[first] - 1
    runs = np.tile(np.stack([ids, ids, np.ones_like(ids)]), len(places))
    _add_windows(counts, np.concatenate([np.repeat(places, len(ids))[None], runs]))


def _add_windows(counts: QueryCounts, runs: Ints) -> None:
    """Add runs of missed windows; equal runs of a query become one."""
    if not runs.shape[1]:
        return
    order = np.lexsort(runs[2::-1])
    queries, firsts, lasts, rows = runs[:, order]
    is_new = (queries[1:] != queries[:-1]) | (firsts[1:] != firsts[:-1]) | (lasts[1:] != lasts[:-1])
    heads = np.flatnonzero(np.r_[True, is_new])
    merged = np.stack([queries[heads], firsts[heads], lasts[heads], np.add.reduceat(rows, heads)])
    counts.windows = np.concatenate([counts.windows, merged], axis=1)
