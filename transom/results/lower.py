"""Lower windows: from the partial aggregates of closed windows to the columns that SELECT lists read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States
from transom.aggregates.numeric import reduce_runs
from transom.aggregates.run_tree import RunTree
from transom.columns.arrays import Ints, Mask, count_offsets, joined_array, one_array
from transom.columns.groups import group, sorted_distinct
from transom.columns.table_columns import ROWS, SESSION_START, aggregate_column
from transom.kernel.sheets import regroup
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout, source_columns
from transom.results.close import Reader, StackWindows, specs_of
from transom.results.key_rows import KeyWindows
from transom.results.readers import StackReaders, readers_by_sheet
from transom.results.result_rows import LoweredWindows, WindowFacts
from transom.results.shard_work import ShardWork
from transom.state.accounts import Accounts
from transom.state.state import QueryState, SelectionState, StreamState
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.arrivals import UNKNOWN, Arrivals
from transom.windows.intervals import IntervalSet

Places = tuple[tuple[str, ...], ...]  # the columns of a query's slots in a sheet


def lower_by_shape(
    layout: Layout,
    closed: pa.Table,
    asking: Sequence[CompiledQuery],
    places: Mapping[int, Places] | Sequence[Places],
    unseen: Callable[[str], IntervalSet],
    arrivals: Callable[[CompiledQuery], Arrivals],
    late: Callable[[Sequence[str]], Sequence[int]],
    partial: frozenset[str],
) -> Iterator[LoweredWindows]:
    """A sheet's closed windows by the shape of their queries; `places` are the columns of each query's slots."""
    for queries, members_of_rows, chosen, own in _by_shape(closed["reader"].to_numpy(), asking, places):
        # A sheet has the states of all queries: only those that these queries read are copied.
        read = [name for names in own for name in names]
        at = pa.array(chosen)
        rows = {
            name: one_array(closed[name]).take(at)
            for name in dict.fromkeys(("wid", *layout.key_names, ROWS, *read))
        }
        times = window_times(queries, members_of_rows, rows["wid"].to_numpy())
        if layout.gap is not None:
            times = closed[SESSION_START].to_numpy()[chosen], times[1]
        table = _lowered(layout, rows, queries[0], times, own)
        names = [query.name for query in queries]
        came = {clock: arrivals(query) for clock, query in {id(each.clock): each for each in queries}.items()}
        yield LoweredWindows(
            queries,
            members_of_rows,
            table,
            [unseen(name) for name in names],
            [name in partial for name in names],
            [came[id(query.clock)] for query in queries],
            late(names),
            times,
            gap=layout.gap,
        )


def lower_key_windows(
    closed: KeyWindows,
    asking: Sequence[CompiledQuery],
    places: Mapping[int, Places],
    unseen: Callable[[str], IntervalSet],
    late: Callable[[Sequence[str]], Sequence[int]],
    partial: frozenset[str],
) -> Iterator[LoweredWindows]:
    """Windows of the rows of a key, by the shape of their queries."""
    arrivals = Arrivals()
    for queries, members_of_rows, chosen, own in _by_shape(closed.readers, asking, places):
        # The last slot counts the rows that satisfy WHERE; windows without any have no result.
        matched = closed.states(own[-1], chosen)[own[-1][0]]
        has_rows = matched.to_numpy() > 0
        chosen, members_of_rows = chosen[has_rows], members_of_rows[has_rows]
        if not len(chosen):
            continue
        rows = closed.states([name for names in own for name in names], chosen) | closed.groups(chosen)
        rows[ROWS] = matched.filter(pa.array(has_rows))
        times = window_times(queries, members_of_rows, closed.wids[chosen])
        names = [query.name for query in queries]
        yield LoweredWindows(
            queries,
            members_of_rows,
            _lowered(closed.layout, rows, queries[0], times, own),
            [unseen(name) for name in names],
            [name in partial for name in names],
            [arrivals] * len(names),
            late(names),
            times,
        )


def _by_shape(
    readers: Ints, asking: Sequence[CompiledQuery], places: Mapping[int, Places] | Sequence[Places]
) -> Iterator[tuple[list[CompiledQuery], Ints, Ints, Places]]:
    """Windows, given by their readers: queries of one shape and places, the query of each window, and the windows."""
    numbers, which = np.unique(readers, return_inverse=True)
    present = numbers.tolist()
    alike: dict[object, list[int]] = {}
    for i, number in enumerate(present):
        alike.setdefault((asking[number].shape, places[number]), []).append(i)
    shapes = np.empty(len(present), np.int64)
    for shape, members in enumerate(alike.values()):
        shapes[members] = shape
    order = np.lexsort((which, shapes[which]))  # all rows of a shape together, query by query
    bounds = np.searchsorted(shapes[which[order]], np.arange(len(alike) + 1)).tolist()
    for members, start, stop in zip(alike.values(), bounds[:-1], bounds[1:], strict=True):
        chosen = order[start:stop]
        queries = [asking[present[i]] for i in members]
        yield queries, np.searchsorted(members, which[chosen]), chosen, places[present[members[0]]]


def lower_stack(
    stack: StackReaders,
    closed: StackWindows,
    facts_of: Callable[[Ints, tuple[Ints, Ints]], WindowFacts],
) -> Iterator[LoweredWindows]:
    """The windows that closed on a stack of sheets, by the SELECT lists of their queries.

    `facts_of` are the facts about windows, given their readers and extents.
    """
    lowering = stack.lowering
    groups_of = lowering.group_of[closed.readers]
    order = np.lexsort((closed.readers, groups_of))  # all rows of a group together, query by query
    readers, bounds = (
        closed.readers[order],
        np.searchsorted(groups_of[order], np.arange(len(lowering.groups) + 1)),
    )
    members, specs = lowering.member_of[readers], stack.specs[readers]
    ends = windows.window_end(specs, closed.wids[order])
    times = windows.window_start(specs, closed.wids[order]), ends
    facts, on_clock = facts_of(readers, times), [pa.array(numbers) for numbers in times]
    heads = pa.array(closed.begin[order])
    keys = [key.take(heads) for key in closed.stack.keys]
    rows = pa.array(reduce_runs(np.add, closed.stack.rows, (closed.begin, closed.end))[order])
    spans = {
        number: (start, stop)
        for number, (start, stop) in enumerate(pairwise(bounds.tolist()))
        if start < stop
    }
    values = _lowered_calls(stack, closed, {n: (order[a:b], members[a:b]) for n, (a, b) in spans.items()})
    places = lowering.place_of[readers]
    for form in lowering.forms:
        start, stop = int(bounds[form.first]), int(bounds[form.stop])
        if start == stop:
            continue
        bound, size = form.queries[0].query, stop - start
        present = [number for number in range(form.first, form.stop) if number in spans]
        columns = [key.slice(start, size) for key in keys]
        columns += [joined_array([values[number, i] for number in present]) for i in range(len(bound.calls))]
        columns += [times_on_clock(part.slice(start, size), bound.clock_type) for part in on_clock]
        columns.append(rows.slice(start, size))
        table = pa.Table.from_arrays(columns, names=form.column_names)
        extents = times[0][start:stop], times[1][start:stop]
        yield LoweredWindows(
            form.queries,
            places[start:stop],
            table,
            times=extents,
            facts=facts.part(start, stop),
            names=form.names,
        )


def _lowered_calls(
    stack: StackReaders, closed: StackWindows, chosen: Mapping[int, tuple[Ints, Ints]]
) -> dict[tuple[int, int], pa.Array]:
    """The values of aggregates by group and place; `chosen` are the windows of each group and their members."""
    lowering = stack.lowering
    states, shifts = _combined_states(stack, closed)
    uses: dict[int, list[tuple[int, int, Ints]]] = defaultdict(list)
    for number, (rows, members) in chosen.items():
        group = lowering.groups[number]
        at = rows[:, None] + shifts[group.states[members]]
        for i, (number_of_call, slots) in enumerate(zip(group.calls, group.queries[0].reads, strict=True)):
            uses[number_of_call].append((number, i, at[:, slots]))
    values: dict[tuple[int, int], pa.Array] = {}
    for place, parts in uses.items():
        lowered_call = lowering.calls[place]
        at = parts[0][2] if len(parts) == 1 else np.concatenate([rows for _, _, rows in parts])
        found = []
        for (accumulator, columns), rows in zip(lowered_call.states, at.T, strict=True):
            taken = pa.array(np.ascontiguousarray(rows))
            found.append([states[accumulator][column].take(taken) for column in columns])
        call, function = lowered_call.call, lowered_call.function
        lowered, start = function.lower(found, call.type, call.parameters), 0
        for number, i, rows in parts:
            values[number, i] = lowered.slice(start, len(rows))
            start += len(rows)
    return values


def _combined_states(stack: StackReaders, closed: StackWindows) -> tuple[dict[int, States], Ints]:
    """The states of windows: for each accumulator those of all columns that it made, one after the other.

    Also, for each column that readers read, what to add to the number of a window for its place among these.
    """
    lowering, slices = stack.lowering, closed.stack
    cuts = np.searchsorted(closed.begin, slices.offsets)
    sheet_of = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))  # of windows
    by_pattern: dict[int, tuple[RunTree, Ints]] = {}
    shifts, states = np.zeros(len(lowering.kinds), np.int64), dict[int, States]()
    for number in range(len(lowering.accumulators)):
        parts, first = [], 0
        for place, reads in lowering.columns[number].items():
            column = stack.shape.columns[place]
            if column.pattern not in by_pattern:
                by_pattern[column.pattern] = _windows_within(closed, column.holds, cuts, sheet_of)
            runs, own_shifts = by_pattern[column.pattern]
            shifts[reads] = first + own_shifts[lowering.sheets[reads]]
            if len(runs.starts):
                parts.append(slices.states[place].over(runs))
                first += len(runs.starts)
        if parts:
            states[number] = [joined_array(each) for each in zip(*parts, strict=True)]
    return states, shifts


def _windows_within(closed: StackWindows, holds: Mask, cuts: Ints, sheet_of: Ints) -> tuple[RunTree, Ints]:
    """The windows of the sheets that hold a column, as runs of it; and their numbers less those of all, by sheet."""
    has_column = holds[sheet_of]
    before = closed.stack.places(holds)[sheet_of[has_column]]
    runs = RunTree(closed.begin[has_column] - before, closed.end[has_column] - before)
    return runs, count_offsets(np.where(holds, np.diff(cuts), 0))[:-1] - cuts[:-1]


def times_on_clock(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times of windows in the type of their clock."""
    is_instant = pa.types.is_timestamp(kind) and kind.unit == "us"
    return numbers.view(kind) if is_instant else numbers.cast(kind)


def window_times(queries: Sequence[CompiledQuery], which: Ints, wids: Ints) -> tuple[Ints, Ints]:
    """Where windows start and end: window `wids[i]` is one of query `which[i]`."""
    specs = specs_of(queries)[which]
    return windows.window_start(specs, wids), windows.window_end(specs, wids)


def lower_windows(
    layout: Layout, closed: pa.Table, queries: Sequence[CompiledQuery], which: Ints, places: Places
) -> pa.Table:
    """The columns that a SELECT list reads: `k0`.., `a0`.., `window_start`, `window_end`; and `rows`."""
    rows = {name: one_array(closed[name]) for name in closed.column_names}
    times = window_times(queries, which, rows["wid"].to_numpy())
    return _lowered(layout, rows, queries[0], times, places)


def _lowered(
    layout: Layout,
    rows: Mapping[str, pa.Array],
    query: CompiledQuery,
    times: tuple[Ints, Ints],
    places: Places,
) -> pa.Table:
    bound, columns = query.query, {name: rows[name] for name in layout.key_names}
    for i, (call, function, slots) in enumerate(zip(bound.calls, query.functions, query.reads, strict=True)):
        states = [[rows[name] for name in places[slot]] for slot in slots]
        columns[aggregate_column(i)] = function.lower(states, call.type, call.parameters)
    for name, numbers in zip(("window_start", "window_end"), times, strict=True):
        columns[name] = times_on_clock(pa.array(numbers), bound.clock_type)
    columns[ROWS] = rows[ROWS]
    return pa.table(columns)


def combine_parts(
    query: CompiledQuery, parts: Sequence[tuple[Layout, pa.Table, Places]]
) -> tuple[Layout, pa.Table]:
    """The closed windows of one query whose slices lie on several sheets, combined into one table."""
    layout = Layout.of(query, query.slots)
    tables = []
    for own, table, places in parts:
        columns = {name: table[name] for name in ("reader", "wid", *own.key_names, ROWS)}
        for i, names in enumerate(places):
            columns |= {new: table[old] for new, old in zip(layout.columns(i), names, strict=True)}
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables).combine_chunks()
    keys = [one_array(table[name]) for name in layout.key_names]
    groups = group([one_array(table["wid"]).to_numpy(), *keys], table.num_rows)
    return layout, regroup(layout, table, groups.codes, groups.firsts, ["reader", "wid"])


def slot_columns(query: CompiledQuery, slots: Mapping[str, int]) -> Places:
    """The columns of a query's slots in a sheet, given the places of the slots that its selection keeps."""
    return tuple(source_columns(slot, slots) for slot in query.slots)


# Windows of queries with slices on several sheets, by query: to be combined before they are lowered.
Scattered = dict[str, list[tuple[Layout, pa.Table, Places]]]


class Reading:
    """Which query reads what of a state: sheets on the driver, shards on the executors."""

    streams: Mapping[str, StreamState]
    queries: Mapping[str, QueryState]
    selections: Mapping[int, SelectionState]
    shards: Sequence[ShardRef]
    accounts: Accounts

    def readers(
        self, queries: Sequence[CompiledQuery]
    ) -> tuple[dict[str, list[tuple[CompiledQuery, int]]], dict[str, Layout]]:
        """The queries and the selections that they read, by sheet, and the sheets' layouts."""
        return readers_by_sheet(queries, self.queries, self.selections)

    def facts(
        self, stack: StackReaders, readers: Ints, times: tuple[Ints, Ints], partial: frozenset[str]
    ) -> WindowFacts:
        """What is known about windows of the readers of a stack: the clock and the gaps are those of few objects."""
        starts, ends = times
        is_seen, is_whole = np.ones(len(readers), bool), np.ones(len(readers), bool)
        arrived = np.full(len(readers), UNKNOWN)
        for missed, has_it in stack.unseen:
            mine: Any = slice(None) if has_it.all() else has_it[readers]
            is_seen[mine] &= ~missed.meets(starts[mine], ends[mine])
        firsts, clock_of = stack.clocks
        for place, query in enumerate(firsts):
            mine = slice(None) if len(firsts) == 1 else clock_of[readers] == place
            arrivals = self.arrivals(query)
            arrived[mine] = arrivals.first(starts[mine], ends[mine])
            if arrivals.shed:
                is_whole[mine] = ~arrivals.shed.meets(starts[mine], ends[mine])
        late = self.accounts.late(stack.names.tolist()) if self.accounts.has_late else []
        is_partial = np.array([name in partial for name in stack.names] if partial else [False])
        return WindowFacts(
            is_seen,
            is_whole,
            arrived,
            np.array(late, np.int64)[readers] if any(late) else np.zeros(len(readers), np.int64),
            is_partial[readers if partial else np.zeros(len(readers), np.int64)],
        )

    def lowered(
        self,
        layout: Layout,
        table: pa.Table,
        readers: Sequence[Reader],
        partial: frozenset[str],
        scattered: Scattered,
    ) -> Iterator[LoweredWindows]:
        """Windows read from a sheet; those of queries with slices on other sheets, too, go to `scattered`."""
        whose, asking = table["reader"].to_numpy(), [(reader.query, reader.home) for reader in readers]
        closing = sorted_distinct(whose).tolist()
        several = [i for i in closing if len(self.queries[readers[i].query.name].homes) > 1]
        if several:
            of_several = np.isin(whose, several)
            self.scatter(layout, table.filter(pa.array(of_several)), asking, scattered)
            table = table.filter(pa.array(~of_several))
        if table.num_rows:
            places = self._places(asking, closing)
            queries = [query for query, _ in asking]
            yield from lower_by_shape(
                layout, table, queries, places, self.unseen, self.arrivals, self.accounts.late, partial
            )

    def lowered_of_keys(
        self, windows: KeyWindows, readers: Sequence[Reader], partial: frozenset[str]
    ) -> Iterator[LoweredWindows]:
        """Windows of the rows of a key. Each query has all its rows on one sheet."""
        asking = [(reader.query, reader.home) for reader in readers]
        places = self._places(asking, sorted_distinct(windows.readers).tolist())
        queries = [query for query, _ in asking]
        yield from lower_key_windows(windows, queries, places, self.unseen, self.accounts.late, partial)

    def scatter(
        self,
        layout: Layout,
        table: pa.Table,
        asking: Sequence[tuple[CompiledQuery, int]],
        scattered: Scattered,
    ) -> None:
        """Note windows of queries that have slices on other sheets, too, to combine them with those."""
        whose = table["reader"].to_numpy()
        for i, places in self._places(asking, sorted_distinct(whose).tolist()).items():
            mine = table.filter(pa.array(whose == i))
            scattered[asking[i][0].name].append((layout, mine, places))

    def combined(
        self,
        query: CompiledQuery,
        parts: Sequence[tuple[Layout, pa.Table, Places]],
        partial: frozenset[str],
    ) -> Iterator[LoweredWindows]:
        """The scattered windows of one query, combined."""
        layout, table = combine_parts(query, parts)
        table = table.set_column(0, "reader", pa.array(np.zeros(table.num_rows, np.int64)))
        places = [tuple(tuple(layout.columns(i)) for i in range(len(query.slots)))]
        yield from lower_by_shape(
            layout, table, [query], places, self.unseen, self.arrivals, self.accounts.late, partial
        )

    def shard_work_for(
        self, closing: Sequence[Reader], refs: tuple[ShardRef, ...], partial: frozenset[str]
    ) -> ShardWork:
        """The work of the executors for some readers."""
        once = {reader.query.name: reader for reader in closing}
        homes = tuple(self.queries[name].homes for name in once)
        alike = zip(once.values(), homes, strict=True)
        readers = tuple(Reader(one.query, own[0], one.before, one.after) for one, own in alike)
        arrivals = tuple(self.arrivals(one.query) for one in readers)
        late = tuple(self.accounts.late(list(once)))
        return ShardWork(readers, homes, refs, tuple(map(self.unseen, once)), partial, arrivals, late)

    def unseen(self, name: str) -> IntervalSet:
        """The times of rows that a query missed."""
        found = self.queries[name].unseen
        return IntervalSet() if found is None else found

    def arrivals(self, query: CompiledQuery) -> Arrivals:
        """When rows arrived on a query's clock."""
        return self.streams.get(query.query.stream, StreamState()).clock(query.query.clock).arrivals

    def _places(
        self, asking: Sequence[tuple[CompiledQuery, int]], closing: Sequence[int]
    ) -> dict[int, Places]:
        """The columns of readers' slots: one object for readers of equal slots in equal selections."""
        places: dict[int, Places] = {}
        layouts: dict[tuple[str, ...], int] = {}  # slots that selections keep, numbered
        numbers: dict[int, int] = {}  # of the slots of each selection
        slots: list[dict[str, int]] = []
        shared_places: dict[tuple[tuple[str, ...], int], Places] = {}
        for i in closing:
            query, home = asking[i]
            if home not in numbers:
                kept = self.selections[home].slots
                numbers[home] = layouts.setdefault(kept, len(slots))
                if numbers[home] == len(slots):
                    slots.append({key: place for place, key in enumerate(kept)})
            alike = query.slot_ids, numbers[home]
            if alike not in shared_places:
                shared_places[alike] = slot_columns(query, slots[numbers[home]])
            places[i] = shared_places[alike]
        return places
