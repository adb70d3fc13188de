"""Add what a batch brought to shared slices, and read the windows that close."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.table_columns import SELECTION, STOP
from transom.elements import Clock
from transom.gc_pause import pause_garbage_collection
from transom.kernel.shards import Shelf, spilled
from transom.kernel.sheets import combine, without
from transom.ondemand.store_specs import StoreSet
from transom.ondemand.stores import fill_stores
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Observed
from transom.plan.layout import Layout
from transom.plan.passes.admission import slices_held
from transom.plan.passes.families import kept_apart
from transom.plan.passes.placement import placement_group
from transom.plan.planner import Planner
from transom.results.close import Boundary, Reader, close, specs_of, windows_open
from transom.results.lower import Reading, Scattered
from transom.results.result_rows import LoweredWindows
from transom.results.shard_work import ShardWork, shard_needs
from transom.results.stream_end import groups_held, last_open, last_slices
from transom.results.stream_progress import BatchInput, account_rows, advance_stream, missed_times
from transom.state.state import QueryState, SelectionState, State, StreamState, Work
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.intervals import LOWEST
from transom.windows.stream_rules import StreamRules


@dataclass(frozen=True)
class AppliedBatch:
    """The state after a batch and the windows that closed, before their SELECT lists are applied."""

    state: State
    closed: Sequence[LoweredWindows]
    finals: int
    shard_work: Sequence[ShardWork] = ()  # windows over shards: the executors compute them


@pause_garbage_collection()
def apply_batch(
    state: State,
    batches: Sequence[BatchInput],
    shelf: Shelf | None = None,
    planner: Planner | None = None,
    batches_on: int = 1,
) -> AppliedBatch:
    """Add what a batch brought to each of its streams, and close windows; SELECT lists are not applied yet.

    `batches_on` is 0 for streams that are made of other queries' results in the same batch.
    """
    work = _Work(state, shelf, planner or Planner())
    closed: list[LoweredWindows] = []
    for batch in batches:
        closed += work.advance(batch)
    after = replace(
        state,
        batch_id=state.batch_id + batches_on,
        streams=work.streams,
        queries=work.queries,
        selections=work.selections,
        sheets=work.sheets,
        shards=tuple(work.shards),
        stores=work.stores,
        accounts=work.accounts,
        partitions=state.partitions if shelf is None else shelf.partitions if work.has_files else 0,
    )
    return AppliedBatch(after, closed, work.all_finals, work.shard_work)


def with_rows(state: State, batch: BatchInput) -> State:
    """The state with a batch's rows added: to read open windows from, not to keep."""
    work = _Work(state, None, Planner())
    work.add_partials(batch)
    return replace(state, sheets=work.sheets, selections=work.selections)


def boundary(query: CompiledQuery, stream: StreamState, query_state: QueryState) -> Boundary:
    """The boundary of a query: which windows are closed for its groups."""
    closed = stream.clock(query.query.clock).closed
    return Boundary(closed.view(query.key_columns, query.pinned), query_state.forced_wids())


def open_windows(state: State, queries: Iterable[CompiledQuery], stream: StreamState) -> int:
    """How many windows of some queries hold rows and are not closed, counted once for all groups."""
    counted: dict[object, int] = {}
    total = 0
    for query in queries:
        query_state = state.queries.get(query.name)
        if query_state is None:
            continue
        key = query_state.homes, query.query.window, query_state.forced
        if key not in counted:
            held = np.unique(np.concatenate([slices_held(state, home)[0] for home in query_state.homes]))
            counted[key] = windows_open(query, held, boundary(query, stream, query_state))
        total += counted[key]
    return total


def clocks_of(
    queries: Iterable[CompiledQuery], rules: StreamRules, store_sets: Iterable[StoreSet] = ()
) -> list[Clock]:
    """The clocks that a stream's batch carries: the stream's own and those of its queries' windows."""
    once = {id(query.clock): query.clock for query in queries}
    return list(dict.fromkeys([rules.clock, *once.values(), *(one.clock for one in store_sets)]))


class _Work(Reading):
    """A batch being applied to a state; it changes copies."""

    streams: dict[str, StreamState]
    queries: dict[str, QueryState]
    selections: dict[int, SelectionState]
    shards: list[ShardRef]

    def __init__(self, state: State, shelf: Shelf | None, planner: Planner):
        self.before, self.shelf, self.planner = state, shelf, planner
        self.streams, self.queries = dict(state.streams), dict(state.queries)
        self.selections, self.sheets = dict(state.selections), dict(state.sheets)
        self.shards, self.shard_work = list(state.shards), list[ShardWork]()
        self.stores, self.accounts = state.stores, state.accounts
        self.finals = self.unshared_finals = self.all_finals = 0
        self._boundaries: dict[tuple[int, Clock, int | None], Boundary] = {}

    @property
    def has_files(self) -> bool:
        """Whether any state is in files."""
        return bool(self.shards) or any(store.refs for store in self.stores.values())

    def advance(self, batch: BatchInput) -> Iterator[LoweredWindows]:
        name = batch.rules.clock.stream
        before = self.before.stream(name)
        clocks = clocks_of(batch.queries, batch.rules, batch.store_sets)
        after = self.streams[name] = advance_stream(before, batch, clocks)
        self.accounts = account_rows(self.accounts, batch)
        if batch.store_sets:
            self.stores = fill_stores(self.stores, batch, batch.store_sets, after, self.shelf, self.planner)
        readers, layouts = self.add_partials(batch)
        limits = self.planner.strategy.limits
        for home in batch.outcome.too_fragmented & self.selections.keys():
            self.selections[home] = kept_apart(self.selections[home], self.before.batch_id, limits)
        scattered: Scattered = defaultdict(list)
        sheets = [self.sheets[key] for key in layouts if key in self.sheets]
        lasts = last_slices(sheets, self.shards) if batch.ended else {}
        for query in batch.queries:
            if lasts or self.queries[query.name].unseen is None:
                self._advance_query(query, batch, lasts, before)
        for key, layout in layouts.items():
            if key in self.sheets:
                yield from self._close(
                    key, layout, self._with_boundaries(readers[key], before, after), batch, scattered
                )
        for query in batch.queries:
            if query.name in scattered:
                yield from self.combined(query, scattered[query.name], batch.partial)
        self._close_on_executors(batch, before, after)
        done = Work(finals=self.finals, unshared_finals=self.unshared_finals)
        self.streams[name] = replace(after, work=after.work + done)
        self.finals, self.all_finals, self.unshared_finals = 0, self.all_finals + self.finals, 0

    def add_partials(
        self, batch: BatchInput
    ) -> tuple[dict[str, list[tuple[CompiledQuery, int]]], dict[str, Layout]]:
        """Add what the batch brought and move what is too large to the executors; who reads what on the driver."""
        readers, layouts = self.readers(batch.queries)
        for key, layout in layouts.items():
            brought = batch.outcome.partials.get(key)
            if brought is not None and brought.num_rows:
                known = self.sheets.get(key)
                self.sheets[key] = combine(layout, [t for t in (known, brought) if t is not None])
        self.shards += batch.outcome.refs
        moving = self._moving(batch)
        if not moving:
            return readers, layouts
        for query in batch.queries:
            for home in self.queries[query.name].homes if placement_group(query) in moving else ():
                self.selections[home] = replace(self.selections[home], on_executors=True)
        assert self.shelf is not None
        for key in layouts:
            if key in self.sheets:
                slots = {home: own.slots for home, own in self.selections.items() if own.on_executors}
                self.shards += [self.shelf.put(shard) for shard in spilled(self.sheets[key], slots)]
                self.sheets[key] = without(self.sheets[key], slots)
                if not self.sheets[key].num_rows:
                    del self.sheets[key]
        return self.readers(batch.queries)

    def _moving(self, batch: BatchInput) -> frozenset[object]:
        """The groups whose selections move to the executors, as the planner decides from the batch's rows."""
        if self.shelf is None:
            return frozenset()
        partials = batch.outcome.partials
        held = {key: self.sheets[key] for key in partials if key in self.sheets}
        observed = Observed(partials, held, batch.outcome.refs)
        return self.planner.place(self.before, batch.queries, observed)

    def _with_boundaries(
        self, asking: Iterable[tuple[CompiledQuery, int]], before: StreamState, after: StreamState
    ) -> list[Reader]:
        """Readers with what is closed for them before and after; equal boundaries are one object."""
        with_boundaries, sides_by_key = (
            [],
            dict[tuple[int, int | None, int | None], tuple[Boundary, Boundary]](),
        )
        for query, home in asking:
            was, query_state = self.before.queries[query.name], self.queries[query.name]
            key = id(query.clock), was.forced, query_state.forced
            sides = sides_by_key.get(key)
            if sides is None:
                sides = self._boundary(query, before, was), self._boundary(query, after, query_state)
                if not any(stream.clock(query.clock).closed.patterned for stream in (before, after)):
                    sides_by_key[key] = sides
            with_boundaries.append(Reader(query, home, *sides))
        return with_boundaries

    def _boundary(self, query: CompiledQuery, stream: StreamState, query_state: QueryState) -> Boundary:
        """What is closed for a query: one object for all queries with the same closed time."""
        if stream.clock(query.query.clock).closed.patterned:  # then not all of them do
            return boundary(query, stream, query_state)
        key = id(stream), query.query.clock, query_state.forced
        shared = self._boundaries.get(key)
        if shared is None:
            shared = self._boundaries[key] = boundary(query, stream, query_state)
        return shared

    def _advance_query(
        self, query: CompiledQuery, batch: BatchInput, lasts: Mapping[int, np.ndarray], before: StreamState
    ) -> None:
        query_state = self.queries[query.name]
        unseen, forced = query_state.unseen, query_state.forced
        if unseen is None:
            unseen = missed_times(query.query.clock, batch) if batch.origin is None else batch.origin.missed
        for home in query_state.homes if lasts else ():
            last = self._last_window(query, home, lasts[home], before) if home in lasts else None
            if last is not None:
                forced = max(last + 1, LOWEST if forced is None else forced)
        if unseen is not query_state.unseen or forced != query_state.forced:
            self.queries[query.name] = replace(query_state, unseen=unseen, forced=forced)

    def _last_window(
        self, query: CompiledQuery, home: int, starts: np.ndarray, before: StreamState
    ) -> int | None:
        """The last window of a query that holds tuples, when a stream ends; `starts` is its last slice."""
        spec, was = query.query.window, self._boundary(query, before, self.before.queries[query.name])
        if was.view.columns:
            # Rows that were late for their group are kept, too, and must not close a window of other groups.
            store = None if self.shelf is None else self.shelf.store
            return last_open(query, was, groups_held(self, home, store))
        if windows.has_gaps(spec):  # the last slice may lie between windows
            starts, _ = slices_held(self, home)
            starts = starts[windows.in_some_window(spec, starts)]
        return int(windows.wid_to(spec, starts).max()) if len(starts) else None

    def _close(
        self, key: str, layout: Layout, readers: Sequence[Reader], batch: BatchInput, scattered: Scattered
    ) -> Iterator[LoweredWindows]:
        sheet = self.sheets[key]
        done = close(layout, sheet, readers)
        self.finals += done.steps
        self._trim(key, sheet, done.kept)
        if done.table.num_rows:
            closing, counts = np.unique(done.table["reader"].to_numpy(), return_counts=True)
            specs = specs_of([readers[i].query for i in closing.tolist()])
            alone = windows.paired_slices(specs)  # what slices of its own would have cost each
            self.unshared_finals += int(counts @ alone)
            yield from self.lowered(layout, done.table, readers, batch.partial, scattered)

    def _close_on_executors(self, batch: BatchInput, before: StreamState, after: StreamState) -> None:
        """Find the executors' work for closed windows, and drop the shards that no window needs."""
        there = {home for home, own in self.selections.items() if own.on_executors}
        alike: dict[object, list[tuple[CompiledQuery, int]]] = defaultdict(list)
        for query in batch.queries if there else ():
            for home in self.queries[query.name].homes:
                if home in there:
                    alike[placement_group(query)].append((query, home))
        for asking in alike.values():
            readers = self._with_boundaries(asking, before, after)
            homes = {reader.home for reader in readers}
            mine = [ref for ref in self.shards if not homes.isdisjoint(ref.held)]
            others = [ref for ref in self.shards if homes.isdisjoint(ref.held)]
            needs = shard_needs(mine, readers)
            self.shards = [*others, *needs.kept]
            for home, floor in needs.floors.items():
                self._raise_floor(home, floor)
            if needs.closing:
                self.shard_work.append(
                    self.shard_work_for([readers[i] for i in needs.closing], needs.read, batch.partial)
                )

    def _trim(self, key: str, sheet: pa.Table, is_needed: np.ndarray) -> None:
        """Evict slices that no open window needs, and note since when each selection has all slices."""
        if is_needed.all():
            return
        gone = np.flatnonzero(~is_needed)
        homes, place = np.unique(sheet[SELECTION].to_numpy()[gone], return_inverse=True)
        floors = np.full(len(homes), LOWEST)
        np.maximum.at(floors, place, sheet[STOP].to_numpy()[gone])
        for home, floor in zip(homes.tolist(), floors.tolist(), strict=True):
            self._raise_floor(home, floor)
        if is_needed.any():
            self.sheets[key] = sheet.filter(pa.array(is_needed)).combine_chunks()
        else:
            del self.sheets[key]

    def _raise_floor(self, home: int, floor: int) -> None:
        own: SelectionState | None = self.selections.get(home)
        if own is not None and floor > own.floor:
            # `replace` takes twice as long, and with every batch there is one for every query.
            self.selections[home] = SelectionState(**{**vars(own), "floor": floor})
