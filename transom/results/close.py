"""Close windows: from shared slices to the partial aggregates of each closed window and group.

A sheet is sorted by selection, group and time, so that a window of a query is a run of rows in each of
its selection's lanes. One sweep combines the runs of all windows that close with a batch. Windows that were
closed by patterns, or in many pieces, are closed row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import CountRows
from transom.aggregates.numeric import expand_runs
from transom.aggregates.run_tree import RunTree
from transom.columns.arrays import Ints, Mask, one_array, stacked, stacked_column
from transom.columns.groups import group, sorted_distinct
from transom.columns.table_columns import ROWS, SELECTION, SLICE, STOP
from transom.kernel.closed_views import split_by_view
from transom.kernel.sheet_stack import SheetStack
from transom.kernel.sheets import regroup
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.windows import ids as windows
from transom.windows.closed_time import View
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.sessions import passed_results

MAX_CLOSED_PIECES = 32  # of closed time, before and after a batch, up to which all readers are closed at once


@dataclass(frozen=True)
class Boundary:
    """What is closed for a query, at one moment."""

    view: View
    forced: IntervalSet

    def wids(self, query: CompiledQuery, closed: IntervalSet) -> IntervalSet:
        """The ids of the windows that lie in closed time; of sessions, those that none can have any more."""
        if query.gap is not None:
            return passed_results(closed) | self.forced
        return windows.closed_wids(query.query.window, closed) | self.forced

    @property
    def is_simple(self) -> bool:
        """Whether all groups see the same, and all that is closed is what lies before one moment."""
        parts = self.view.general, self.forced
        return self.view.uniform and all(
            not part or (len(part) == 1 and part.pairs[0][0] <= LOWEST) for part in parts
        )

    def until(self, specs: WindowSpecs) -> Ints:
        """The ids below which windows are closed; only for a simple boundary."""
        stop = self.view.general.pairs[0][1] if self.view.general else LOWEST
        if LOWEST < stop < HIGHEST:
            ids = windows.wid_from(specs, np.array(stop))
        else:
            ids = np.full(len(specs), stop)
        return np.maximum(ids, self.forced.pairs[-1][1]) if self.forced else ids

    def pieces(self, specs: WindowSpecs) -> list[tuple[Ints, Ints]]:
        """The runs of ids, from and to, that each piece of closed time closes; some may be empty."""
        ranges_of_wids = []
        for start, stop in self.view.general:
            firsts = np.full(len(specs), LOWEST)
            if start > LOWEST:
                firsts = windows.first_starting(specs, np.array(start))
            ranges_of_wids.append((firsts, windows.wid_from(specs, np.array(min(stop, HIGHEST)))))
        return ranges_of_wids


@dataclass(frozen=True)
class Reader:
    """A query that reads a selection of a sheet, and what is closed for it before and after a batch.

    Slices of windows outside of `passed` are kept for corrections; None: those that are closed are not needed.
    """

    query: CompiledQuery
    home: int
    before: Boundary
    after: Boundary
    passed: Boundary | None = None


@dataclass(frozen=True)
class ClosedWindows:
    """Windows that closed: `table` has `reader`, `wid`, keys, rows and states; and the slices to keep."""

    table: pa.Table
    kept: Mask
    steps: int  # slices that were combined: the final aggregations


@dataclass(frozen=True)
class AlikeReaders:
    """Readers, by their numbers, with the same closed time before and after a batch.

    Windows below `forced`, before and after, are closed as well; for each reader. `passed` is as for a reader.
    """

    numbers: Ints
    before: Boundary
    after: Boundary
    forced: tuple[Ints, Ints] | None = None
    passed: Boundary | None = None


@dataclass(frozen=True)
class SheetReaders:
    """A sheet, and the queries whose windows are to be closed."""

    layout: Layout
    sheet: pa.Table
    readers: Sequence[Reader]


def close(layout: Layout, sheet: pa.Table, readers: Sequence[Reader]) -> ClosedWindows:
    """The windows of some readers that became closed, and which slices of the sheet are still needed."""
    return close_sheets([SheetReaders(layout, sheet, readers)])[0]


def close_sheets(parts: Sequence[SheetReaders]) -> list[ClosedWindows]:
    """What closes on each of several sheets; sheets with groups of the same types are swept together."""
    stacks: dict[tuple[bool, tuple[pa.DataType, ...]], list[int]] = {}
    for i, part in enumerate(parts):
        stacks.setdefault((part.layout.merged, part.layout.keys), []).append(i)
    closed: dict[int, ClosedWindows] = {}
    for places in stacks.values():
        closed |= zip(places, _close_stack([parts[i] for i in places]), strict=True)
    return [closed[i] for i in range(len(parts))]


@dataclass(frozen=True, eq=False)
class StackWindows:
    """Windows that closed on a stack of sheets: each is a run of its rows, `begin` to `end`; in the order of these."""

    stack: SheetStack
    readers: Ints
    wids: Ints
    begin: Ints
    end: Ints

    @property
    def steps(self) -> int:
        """How many slices are combined: the final aggregations."""
        return int((self.end - self.begin).sum())

    def of(self, chosen: Mask) -> StackWindows:
        """Some of the windows."""
        columns = (column[chosen] for column in (self.readers, self.wids, self.begin, self.end))
        return StackWindows(self.stack, *columns)

    def of_sheet(self, place: int, layout: Layout, first_reader: int = 0) -> pa.Table:
        """The windows of one sheet, combined; its readers are counted from the first."""
        start, stop = self.stack.offsets[place : place + 2].tolist()
        low, high = np.searchsorted(self.begin, [start, stop]).tolist()
        runs = self.begin[low:high] - start, self.end[low:high] - start
        readers = self.readers[low:high] - first_reader
        return _summed(layout, self.stack.table(place), readers, self.wids[low:high], *runs)


def close_stack(
    stack: SheetStack, homes: Ints, specs: WindowSpecs, alike: Sequence[AlikeReaders]
) -> tuple[StackWindows, Mask] | None:
    """The windows of all readers of a stack that became closed, and which slices are still needed.

    None if some readers have to be closed one by one.
    """
    simple, others = _simply_closed(alike, specs)
    if others or not simple.size or not stack.shape.layout.merged:
        return None
    columns = stack.offsets, stack.selections, stack.starts, stack.stops, stack.groups
    found = StackedSlices(*columns).runs(homes, specs, simple)
    return None if found is None else (StackWindows(stack, *found[0]), found[1])


def _close_stack(parts: Sequence[SheetReaders]) -> Iterator[ClosedWindows]:
    work = StackedSlices.of(parts[0].layout.key_names, [part.sheet for part in parts])
    readers = [reader for part in parts for reader in part.readers]
    specs = specs_of([reader.query for reader in readers])
    simple, others = _simply_closed(_alike_readers(readers), specs)
    homes = np.array([reader.home for reader in readers], np.int64)
    found = work.runs(homes, specs, simple) if simple.size and parts[0].layout.merged else None
    if found is None:
        others = range(len(readers))
        found = np.empty((4, 0), np.int64), np.zeros(work.bounds[-1], bool)
    (readers_of, wids, begin, end), is_needed = found
    cuts = np.searchsorted(begin, work.offsets)
    by_sheet: dict[int, list[int]] = {}
    of_readers = np.repeat(np.arange(len(parts)), [len(part.readers) for part in parts])
    for i in others:
        by_sheet.setdefault(int(of_readers[i]), []).append(i)
    first_reader = 0
    for place, part in enumerate(parts):
        start, stop = work.offsets[place : place + 2].tolist()
        low, high = cuts[place : place + 2].tolist()
        needed, steps, tables = is_needed[start:stop], int((end[low:high] - begin[low:high]).sum()), []
        if low < high:
            begins, ends = begin[low:high] - start, end[low:high] - start
            own = readers_of[low:high] - first_reader
            tables.append(_summed(part.layout, part.sheet, own, wids[low:high], begins, ends))
        if place in by_sheet:
            single = _Sheet(part.layout, part.sheet)
            for i in by_sheet[place]:
                table, also_needed, more = single.one(i - first_reader, readers[i])
                needed = needed | also_needed
                steps += more
                if table is not None and table.num_rows:
                    tables.append(table)
        first_reader += len(part.readers)
        empty = part.layout.closed_schema.empty_table
        table = (
            tables[0]
            if len(tables) == 1
            else pa.concat_tables(tables).combine_chunks()
            if tables
            else empty()
        )
        yield ClosedWindows(table, needed, steps)


def _alike_readers(readers: Sequence[Reader]) -> list[AlikeReaders]:
    """Readers by their closed time: most have the same, as one object."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for i, reader in enumerate(readers):
        alike.setdefault((id(reader.before), id(reader.after), id(reader.passed)), []).append(i)
    firsts = ((numbers, readers[numbers[0]]) for numbers in alike.values())
    return [
        AlikeReaders(np.array(numbers), first.before, first.after, passed=first.passed)
        for numbers, first in firsts
    ]


def _simply_closed(alike: Sequence[AlikeReaders], specs: WindowSpecs) -> tuple[Ints, Sequence[int]]:
    """Readers whose windows closed in few runs of ids for all groups: which, from, to, and the first needed id.

    And the others.
    """
    runs, others = [np.empty((4, 0), np.int64)], list[int]()
    for one in alike:
        numbers, before, after, passed = one.numbers, one.before, one.after, one.passed
        own = specs if len(numbers) == len(specs) else specs[numbers]
        if before.is_simple and after.is_simple and (passed is None or passed.is_simple):
            until = before.until(own), after.until(own)
            if one.forced is not None:
                until = np.maximum(until[0], one.forced[0]), np.maximum(until[1], one.forced[1])
            needed = until[1] if passed is None else passed.until(own)
            runs.append(np.stack([numbers, *until, needed]))
        elif one.forced is None and passed is None and _in_pieces(before, after):
            runs += [np.stack([numbers, low, high, high]) for low, high in _gaps(before, after, own)]
        else:
            others += numbers.tolist()
    return runs[1] if len(runs) == 2 else np.concatenate(runs, axis=1), others


def _in_pieces(before: Boundary, after: Boundary) -> bool:
    """Whether closed time has few holes, as for sidelined rows, and only grew."""
    has_grown = not before.view.general - after.view.general
    is_alike = before.view.uniform and after.view.uniform and not before.forced and not after.forced
    return is_alike and has_grown and len(before.view.general) + len(after.view.general) <= MAX_CLOSED_PIECES


def _gaps(before: Boundary, after: Boundary, specs: WindowSpecs) -> Iterator[tuple[Ints, Ints]]:
    """The runs of ids that are closed after and not before, where each closed piece has only grown.

    First comes an empty run that says from where on windows may be open. Slices in closed windows between
    held times are kept until these are released, which costs less than to test every slice.
    """
    closed = after.pieces(specs)
    has_start = bool(after.view.general) and after.view.general.pairs[0][0] <= LOWEST
    base = closed[0][1] if has_start else np.full(len(specs), LOWEST)
    yield base, base
    for (start, stop), (low, high) in zip(after.view.general, closed, strict=True):
        earlier = zip(before.view.general, before.pieces(specs), strict=True)
        for first, upto in (ids for piece, ids in earlier if start <= piece[0] and piece[1] <= stop):
            was = first < upto
            is_new = was & (low < first)
            yield np.where(is_new, low, base), np.where(is_new, first, base)
            low = np.where(was, upto, low)
        is_new = low < high
        yield np.where(is_new, low, base), np.where(is_new, high, base)


def windows_open(query: CompiledQuery, starts: Ints, boundary: Boundary) -> int:
    """How many windows hold slices, which start there, and are not closed for all groups."""
    spec = query.query.window
    firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
    held = IntervalSet.of(*zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))
    closed = boundary.wids(query, boundary.view.general)
    return sum(stop - start for start, stop in held - closed)


def specs_of(queries: Sequence[CompiledQuery]) -> WindowSpecs:
    """The window specification of each query."""
    return WindowSpecs.of([query.query.window for query in queries])


def _summed(layout: Layout, table: pa.Table, readers: Ints, wids: Ints, begin: Ints, end: Ints) -> pa.Table:
    """The states of windows: runs of rows of a sheet."""
    at = pa.array(begin)
    columns = [pa.array(readers), pa.array(wids)]
    columns += [one_array(table[name]).take(at) for name in layout.key_names]
    runs = RunTree(begin, end)
    columns += runs.combine(CountRows(), [one_array(table[ROWS])])
    for i, accumulator in enumerate(layout.accumulators):
        states = [one_array(table[name]) for name in layout.columns(i)]
        columns += runs.combine(accumulator, states)
    return pa.Table.from_arrays(columns, schema=layout.closed_schema)


class StackedSlices:
    """The slices of sheets with groups of the same types, one sheet below the other, while their windows are closed.

    Selections are numbered as they occur from top to bottom: each has slices on one sheet only. Slices of the same
    group have the same code.
    """

    def __init__(self, offsets: Ints, homes: Ints, starts: Ints, stops: Ints, groups: Ints | None):
        self.offsets, self.homes, self.starts, self.stops = offsets, homes, starts, stops
        changes = np.ones(len(homes), bool)
        np.not_equal(homes[1:], homes[:-1], out=changes[1:])
        self.selections = np.cumsum(changes) - 1
        self._homes = homes[changes]
        if groups is not None:
            changes[1:] |= groups[1:] != groups[:-1]
        self.bounds = np.append(np.flatnonzero(changes), len(homes))  # of lanes

    @classmethod
    def of(cls, key_names: Sequence[str], tables: Sequence[pa.Table]) -> StackedSlices:
        """The slices of sheets that are tables."""
        homes, starts, stops = (stacked(tables, name) for name in (SELECTION, SLICE, STOP))
        keys = [stacked_column(tables, name) for name in key_names]
        groups = group(keys, len(homes)).codes if keys and len(homes) else None
        return cls(np.cumsum([0, *(table.num_rows for table in tables)]), homes, starts, stops, groups)

    def _numbers_of(self, homes: Ints) -> Ints:
        """The numbers of selections; -1 for those without slices."""
        if not len(self._homes):
            return np.full(len(homes), -1)
        order = np.argsort(self._homes, kind="stable")
        places = np.minimum(np.searchsorted(self._homes, homes, sorter=order), len(order) - 1)
        numbers = order[places]
        return np.where(self._homes[numbers] == homes, numbers, -1)

    def runs(self, all_homes: Ints, all_specs: WindowSpecs, simple: Ints) -> tuple[Ints, Mask] | None:
        """Close runs of windows, all readers at once; None if there are too many windows for that.

        The reader, the id, and the first and last row of each window, in the order of their rows; and which
        slices are needed.
        """
        which, first_wids, after_wids, needed_wids = simple
        specs, homes = all_specs[which], self._numbers_of(all_homes)[which]
        heads = self.bounds[:-1]
        lane_homes = self.selections[heads]
        is_needed = self._needed(homes, specs, needed_wids)
        pair_lanes, pair = expand_runs(
            np.searchsorted(lane_homes, homes), np.searchsorted(lane_homes, homes, side="right")
        )
        paired = specs[pair]
        low = self.starts[heads[pair_lanes]]
        high = self.starts[self.bounds[pair_lanes + 1] - 1]
        lows = np.maximum(first_wids[pair], windows.wid_from(paired, low))
        highs = np.minimum(after_wids[pair] - 1, windows.wid_to(paired, high))
        total = int(np.maximum(highs - lows + 1, 0).sum())
        if total > 16 * len(self.starts) + (1 << 16):
            return None
        wids, of = expand_runs(lows, highs + 1)
        of_windows, of_lanes = paired[of], pair_lanes[of]
        begin = self._found(of_lanes, windows.window_start(of_windows, wids))
        end = self._found(of_lanes, windows.window_end(of_windows, wids))
        filled = begin < end
        order = np.flatnonzero(filled)[np.argsort(begin[filled], kind="stable")]
        readers_of = which[pair[of[order]]]
        return np.stack([readers_of, wids[order], begin[order], end[order]]), is_needed

    def _needed(self, homes: Ints, specs: WindowSpecs, needed_wids: Ints) -> Mask:
        """Which slices lie in a window that some reader still needs."""
        if not len(self._homes):
            return np.zeros(0, bool)
        since = np.full(len(self._homes) + 1, HIGHEST)  # the last is that of readers without slices
        np.minimum.at(since, homes, windows.open_start(specs, needed_wids))
        needed: Mask = self.stops > since[self.selections]
        if windows.has_gaps(specs).any():
            needed &= self._covered(homes, specs)
        return needed

    def _covered(self, homes: Ints, specs: WindowSpecs) -> Mask:
        """Which slices lie in any window of a reader: with gaps between windows, not all do."""
        covered = np.zeros(len(self.starts), bool)
        kinds = specs.kinds(homes)
        rows, of = expand_runs(
            np.searchsorted(self.selections, homes[kinds]),
            np.searchsorted(self.selections, homes[kinds], side="right"),
        )
        inside = windows.in_some_window(specs[kinds][of], self.starts[rows])
        covered[rows[inside]] = True
        return covered

    @cached_property
    def _ladder(self) -> tuple[Ints, Ints]:
        """All times at which slices start, and each row's lane and time as one rising number."""
        times = sorted_distinct(self.starts)
        lane_of = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        return times, lane_of * (len(times) + 1) + np.searchsorted(times, self.starts)

    def _found(self, of_lanes: Ints, times: Ints) -> Ints:
        """The first row of each lane whose slice does not start before a time."""
        starts, ladder = self._ladder
        return np.searchsorted(ladder, of_lanes * (len(starts) + 1) + np.searchsorted(starts, times))


class _Sheet:
    """A sheet while its windows are closed, reader by reader."""

    def __init__(self, layout: Layout, table: pa.Table):
        self.layout, self.table = layout, table
        self.selections = one_array(table[SELECTION]).to_numpy()
        self.starts = one_array(table[SLICE]).to_numpy()

    def one(self, number: int, reader: Reader) -> tuple[pa.Table | None, Mask, int]:
        """Close one reader's windows, also where groups differ in what is closed."""
        is_needed = np.zeros(self.table.num_rows, bool)
        low, high = (int(at) for at in np.searchsorted(self.selections, [reader.home, reader.home + 1]))
        if low == high:
            return None, is_needed, 0
        spec, rows, wids = reader.query.query.window, [], []
        starts = self.starts[low:high]
        firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
        alike = self._by_time(reader, low, high)
        if alike is not None:
            was, now, gone = alike
            is_needed[low:high] = (lasts >= gone) & (firsts <= lasts)
            wid, of = expand_runs(np.maximum(firsts, was), np.minimum(lasts, now - 1) + 1)
            rows.append(low + of)
            wids.append(wid)
        by_group = self._by_group(reader, low, high) if alike is None else ()
        for chosen, closed_before, closed_after, passed in by_group:
            still = ~passed.covers(firsts[chosen], lasts[chosen])
            is_needed[low + chosen] = still & (firsts[chosen] <= lasts[chosen])
            for start, stop in closed_after - closed_before:
                wid, of = expand_runs(
                    np.maximum(firsts[chosen], start), np.minimum(lasts[chosen], stop - 1) + 1
                )
                rows.append(low + chosen[of])
                wids.append(wid)
        steps = sum(map(len, rows))
        if not steps:
            return None, is_needed, 0
        return self._regrouped(number, np.concatenate(rows), np.concatenate(wids)), is_needed, steps

    def _by_time(self, reader: Reader, low: int, high: int) -> tuple[Ints, Ints, Ints] | None:
        """For each slice, the id below which windows of its group were closed, before and after, and not needed.

        None: it has none.
        """
        query, below = reader.query, []
        if query.gap is not None:
            return None
        keys = [one_array(self.table[name].slice(low, high - low)) for name in self.layout.key_names]
        passed = reader.after if reader.passed is None else reader.passed
        for boundary in (reader.before, reader.after, passed):
            until = boundary.view.until(keys, high - low)
            forced = boundary.forced
            if until is None or (forced and (len(forced) > 1 or forced.pairs[0][0] > LOWEST)):
                return None
            ids = windows.closed_below(query.query.window, until)
            below.append(np.maximum(ids, forced.pairs[0][1]) if forced else ids)
        return below[0], below[1], below[2]

    def _by_group(
        self, reader: Reader, low: int, high: int
    ) -> Iterator[tuple[Ints, IntervalSet, IntervalSet, IntervalSet]]:
        """The slices in parts whose groups have the same closed windows, before and after, and not needed ones."""
        keys = [one_array(self.table[name].slice(low, high - low)) for name in self.layout.key_names]
        passed = reader.after if reader.passed is None else reader.passed
        boundaries = (reader.before, reader.after, passed)
        for rows, closed in split_by_view([each.view for each in boundaries], keys, high - low):
            earlier, later, gone = (
                each.wids(reader.query, times) for each, times in zip(boundaries, closed, strict=True)
            )
            yield rows, earlier, later, gone

    def _regrouped(self, number: int, rows: Ints, wids: Ints) -> pa.Table:
        return combined_windows(self.layout, self.table, number, rows, wids)


def combined_windows(layout: Layout, sheet: pa.Table, number: int, rows: Ints, wids: Ints) -> pa.Table:
    """The windows of a reader: slices, each with a window that holds it, combined by window and group."""
    table = sheet.take(pa.array(rows)).append_column("wid", pa.array(wids)).combine_chunks()
    keys = [one_array(table[name]) for name in layout.key_names]
    groups = group([wids, *keys], len(rows))
    found = regroup(layout, table, groups.codes, groups.firsts, ["wid"])
    readers = pa.array(np.full(groups.count, number))
    return found.add_column(0, "reader", readers).cast(layout.closed_schema)
