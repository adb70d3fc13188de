"""Lower windows: from the partial aggregates of closed windows to the columns that SELECT lists read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.groups import group, sorted_distinct
from transom.columns.table_columns import ROWS, aggregate_column
from transom.kernel.sheets import one_array, regroup
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout, layout_in_use, source_columns
from transom.plan.slot_sources import readable_slots
from transom.results.close import Reader, specs_of
from transom.results.result_rows import LoweredWindows
from transom.results.shard_work import ShardWork
from transom.state.accounts import Accounts
from transom.state.state import QueryState, SelectionState, StreamState
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.arrivals import Arrivals
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
    numbers, which = np.unique(closed["reader"].to_numpy(), return_inverse=True)
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
        members_of_rows = np.searchsorted(members, which[chosen])
        queries = [asking[present[i]] for i in members]
        # A sheet has the states of all queries: only those that these queries read are copied.
        read = [name for names in places[present[members[0]]] for name in names]
        at = pa.array(chosen)
        rows = {
            name: one_array(closed[name]).take(at)
            for name in dict.fromkeys(("wid", *layout.key_names, ROWS, *read))
        }
        times = window_times(queries, members_of_rows, rows["wid"].to_numpy())
        table = _lowered(layout, rows, queries[0], times, places[present[members[0]]])
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
        )


def window_times(queries: Sequence[CompiledQuery], which: Ints, wids: Ints) -> tuple[Ints, Ints]:
    """Where windows start and end: window `wids[i]` is one of query `which[i]`."""
    specs = specs_of(queries)[which]
    ends = windows.window_end(specs, wids)
    return windows.start_of(specs, ends), ends


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
        on_clock = pa.array(numbers)
        is_instant = pa.types.is_timestamp(bound.clock_type) and bound.clock_type.unit == "us"
        columns[name] = on_clock.view(bound.clock_type) if is_instant else on_clock.cast(bound.clock_type)
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
        readers: dict[str, list[tuple[CompiledQuery, int]]] = defaultdict(list)
        for query in queries:
            for home in self.queries[query.name].homes:
                selection = self.selections[home]
                if not selection.on_executors:
                    readers[selection.sheet].append((query, home))
        return readers, {
            sheet: layout_in_use(sheet) or self._layout(asking) for sheet, asking in readers.items()
        }

    def _layout(self, asking: Sequence[tuple[CompiledQuery, int]]) -> Layout:
        """The layout of a sheet, from all queries that read one of its selections."""
        first, home = asking[0]
        slots = readable_slots(query for query, own in asking if own == home)
        return Layout.of(first, [slots[key] for key in self.selections[home].slots])

    def lowered(
        self,
        layout: Layout,
        table: pa.Table,
        readers: Sequence[Reader],
        partial: frozenset[str],
        scattered: Scattered,
    ) -> Iterator[LoweredWindows]:
        """Windows read from a sheet; those of queries with slices on other sheets, too, go to `scattered`."""
        closing = sorted_distinct(table["reader"].to_numpy()).tolist()
        places = self._places(readers, closing)
        several = [i for i in places if len(self.queries[readers[i].query.name].homes) > 1]
        if several:
            whose = table["reader"].to_numpy()
            for i in several:
                mine = table.filter(pa.array(whose == i))
                if mine.num_rows:
                    scattered[readers[i].query.name].append((layout, mine, places[i]))
            table = table.filter(pa.array(~np.isin(whose, several)))
        if table.num_rows:
            asking = [reader.query for reader in readers]
            yield from lower_by_shape(
                layout, table, asking, places, self.unseen, self.arrivals, self.accounts.late, partial
            )

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

    def _places(self, readers: Sequence[Reader], closing: Sequence[int]) -> dict[int, Places]:
        """The columns of readers' slots: one object for readers of equal slots in equal selections."""
        places: dict[int, Places] = {}
        layouts: dict[tuple[str, ...], int] = {}  # slots that selections keep, numbered
        numbers: dict[int, int] = {}  # of the slots of each selection
        slots: list[dict[str, int]] = []
        shared_places: dict[tuple[tuple[str, ...], int], Places] = {}
        for i in closing:
            query, home = readers[i].query, readers[i].home
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
