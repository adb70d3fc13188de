"""Read windows from shared slices: for a batch that closes them, or a prod that does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.columns.groups import sorted_distinct
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.slot_sources import readable_slots
from transom.results.close import Reader
from transom.results.lower import Places, combine_parts, lower_by_shape, slot_columns
from transom.results.result_rows import LoweredWindows
from transom.results.shard_work import ShardWork
from transom.state.accounts import Accounts
from transom.state.state import QueryState, SelectionState, StreamState
from transom.storage.shard_refs import ShardRef
from transom.windows.arrivals import Arrivals
from transom.windows.intervals import IntervalSet

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
        return readers, {sheet: self._layout(asking) for sheet, asking in readers.items()}

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
