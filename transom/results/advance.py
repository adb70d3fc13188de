"""Apply a batch to a state: clocks advance, partial aggregates join shared slices, and windows close."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.table_columns import SELECTION, STOP
from transom.elements import Clock, ClockKind
from transom.gc_pause import pause_garbage_collection
from transom.kernel.shards import Shelf, spilled
from transom.kernel.sheet_stack import combine_stacks
from transom.kernel.sheets import combine_sheets
from transom.kernel.stacked_sheets import Sheets
from transom.ondemand.stores import fill_stores
from transom.overload.chunks import chunk_ranges, chunk_rows, closed_except_held, held_times, highest_time
from transom.overload.resumption import credit_after
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Observed
from transom.plan.layout import Layout
from transom.plan.passes.families import kept_apart
from transom.plan.passes.placement import placement_group
from transom.plan.planner import Planner
from transom.results.across_windows import Followers
from transom.results.batch_input import BatchInput
from transom.results.close import (
    AlikeReaders,
    Boundary,
    ClosedWindows,
    Reader,
    SheetReaders,
    StackWindows,
    close_sheets,
    close_stack,
    specs_of,
)
from transom.results.key_rows import ended_windows, with_numbers
from transom.results.lower import Reading, Scattered, lower_stack
from transom.results.merge_slices import closed_until, with_moved_slices
from transom.results.query_boundary import boundary, last_slices, last_window, passed_boundary
from transom.results.readers import StackReaders, StreamReaders
from transom.results.result_rows import LoweredWindows
from transom.results.sessions import final_sessions, last_session, sessions_of
from transom.results.shard_work import ShardWork, shard_needs
from transom.state.accounts import Accounts
from transom.state.state import (
    MOST_OCCUPIED,
    ClockState,
    QueryState,
    SelectionState,
    State,
    StreamState,
    Totals,
    Work,
)
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

log = logging.getLogger("transom")

NOT_FORCED = QueryState(())


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
        floors=work.floors,
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


class _Work(Reading):
    """A batch being applied to a state; it changes copies."""

    streams: dict[str, StreamState]
    queries: Mapping[str, QueryState]
    selections: Mapping[int, SelectionState]
    floors: Mapping[int, int]
    sheets: Sheets
    shards: list[ShardRef]

    def __init__(self, state: State, shelf: Shelf | None, planner: Planner):
        self.before, self.shelf, self.planner = state, shelf, planner
        self.streams, self.queries = dict(state.streams), state.queries
        self.selections, self.floors, self.sheets = state.selections, state.floors, Sheets.of(state.sheets)
        self.shards, self.shard_work = list(state.shards), list[ShardWork]()
        self.stores, self.accounts = state.stores, state.accounts
        self.finals = self.unshared_finals = self.all_finals = 0
        self._boundaries: dict[tuple[int, Clock, bool, int | None], Boundary] = {}

    @property
    def has_files(self) -> bool:
        """Whether any state is in files."""
        return bool(self.shards) or any(store.refs for store in self.stores.values())

    def advance(self, batch: BatchInput) -> Iterator[LoweredWindows]:
        name = batch.rules.clock.stream
        before = self.before.stream(name)
        readers = self._readers(batch.queries)
        clocks = {batch.rules.clock: 0, **readers.clocks}
        for store_set in batch.store_sets:
            clocks.setdefault(store_set.clock, 0)
        after = self.streams[name] = _advance_stream(before, batch, clocks)
        self.accounts = _account_rows(self.accounts, batch)
        if batch.store_sets:
            self.stores = fill_stores(self.stores, batch, batch.store_sets, after, self.shelf, self.planner)
        layouts = self.add_partials(batch)
        limits = self.planner.strategy.limits
        if fragmented := batch.outcome.too_fragmented & self.selections.keys():
            apart = {
                home: kept_apart(self.selections[home], self.before.batch_id, limits) for home in fragmented
            }
            self.selections = {**self.selections, **apart}
        self._drop_late_sessions(batch, before)
        scattered: Scattered = defaultdict(list)
        lasts: Mapping[int, Ints] = {}
        if batch.ended:
            lasts = last_slices([self.sheets[key] for key in layouts if key in self.sheets], self.shards)
        has_ended = batch.ended and (bool(lasts) or bool(self._followers(batch.queries)))
        changed = {
            query.name: self._advanced_query(query, batch, lasts, before)
            for query in (batch.queries if has_ended else readers.undetermined)
        }
        if changed:
            self.queries = {**self.queries, **changed}
        for stack in self._readers(batch.queries).stacks:
            if not stack.layouts.keys().isdisjoint(self.sheets):
                yield from self._close_stack(stack, batch, before, after, scattered)
        for query in batch.queries if scattered else ():
            if query.name in scattered:
                yield from self.combined(query, scattered[query.name], batch.partial)
        yield from self._close_sessions(batch, before, after)
        yield from self._end_windows_of_keys(batch, before, after)
        self._close_on_executors(batch, before, after)
        done = Work(finals=self.finals, unshared_finals=self.unshared_finals)
        self.streams[name] = replace(after, work=after.work + done)
        self.finals, self.all_finals, self.unshared_finals = 0, self.all_finals + self.finals, 0

    def _readers(self, queries: Sequence[CompiledQuery]) -> StreamReaders:
        """Who reads what on the driver."""
        if not queries:
            return StreamReaders((), {}, {})
        stream = queries[0].query.stream
        return self.planner.derived(stream, StreamReaders, queries, self.queries, self.selections)

    def _followers(self, queries: Sequence[CompiledQuery]) -> Followers:
        """The queries whose results depend on earlier windows."""
        if not queries:
            return Followers(())
        return self.planner.derived(queries[0].query.stream, Followers, queries)

    def add_partials(self, batch: BatchInput) -> Mapping[str, Layout]:
        """Add what the batch brought and move what is too large to the executors; the layouts of the sheets."""
        readers = self._readers(batch.queries)
        layouts, partials = readers.layouts, Sheets.of(batch.outcome.partials)
        for stack in readers.stacks:
            brought = partials.parts_in(stack.shape) if stack.is_merged else []
            if brought:
                parts, others = self.sheets.parts_in(stack.shape), self.sheets.without(stack.shape.sheets)
                self.sheets = others.with_stack(combine_stacks(stack.shape, [*parts, *brought]))
        self._add_tables({key: partials[key] for key in readers.unstacked if key in partials}, batch, layouts)
        self.shards += batch.outcome.refs
        moving = self._moving(batch)
        if not moving:
            return layouts
        moved = (query for query in batch.queries if placement_group(query) in moving)
        homes = dict.fromkeys(home for query in moved for home in self.queries[query.name].homes)
        there = {home: replace(self.selections[home], on_executors=True) for home in homes}
        self.selections = {**self.selections, **there}
        assert self.shelf is not None
        slots = {home: own.slots for home, own in self.selections.items() if own.on_executors}
        spilling = [key for key in layouts if key in self.sheets]
        for key in spilling:
            self.shards += [self.shelf.put(shard) for shard in spilled(self.sheets[key], slots)]
        self.sheets = self.sheets.without_selections(dict.fromkeys(spilling, tuple(slots)))
        return self._readers(batch.queries).layouts

    def _add_tables(
        self, brought: Mapping[str, pa.Table], batch: BatchInput, layouts: Mapping[str, Layout]
    ) -> None:
        """Add what the batch brought to sheets that are not in stacks."""
        parts = {
            key: [*([self.sheets[key]] if key in self.sheets else []), new]
            for key, new in brought.items()
            if new.num_rows
        }
        combined = combine_sheets(layouts, parts)
        first_new = self.before.stream(batch.rules.clock.stream).totals.accepted
        for key in parts:
            if layouts[key].keyed:
                combined[key] = with_numbers(layouts[key], combined[key], first_new)
        self.sheets = self.sheets.with_tables(combined)

    def _moving(self, batch: BatchInput) -> frozenset[object]:
        """The groups whose selections move to the executors, as the planner decides from the batch's rows."""
        if self.shelf is None:
            return frozenset()
        observed = Observed(batch.outcome.partials, self.sheets, batch.outcome.refs)
        return self.planner.place(self.before, batch.queries, observed)

    def _with_boundaries(
        self, asking: Iterable[tuple[CompiledQuery, int]], before: StreamState, after: StreamState
    ) -> list[Reader]:
        """Readers with what is closed for them before and after; equal boundaries are one object."""
        with_boundaries, sides_by_key = (
            [],
            dict[tuple[int, bool, int, int | None, int | None], tuple[Boundary, Boundary, Boundary | None]](),
        )
        for query, home in asking:
            was, query_state = self.before.queries[query.name], self.queries[query.name]
            retention = query.query.retention
            key = id(query.clock), query.reads_earlier_windows, retention, was.forced, query_state.forced
            sides = sides_by_key.get(key)
            if sides is None:
                # Corrections are read when the batch is applied: what was needed before it is kept.
                passed = passed_boundary(query, before)
                sides = self._boundary(query, before, was), self._boundary(query, after, query_state), passed
                if not any(stream.clock(query.clock).closed.varies for stream in (before, after)):
                    sides_by_key[key] = sides
            with_boundaries.append(Reader(query, home, *sides))
        return with_boundaries

    def _boundary(self, query: CompiledQuery, stream: StreamState, query_state: QueryState) -> Boundary:
        """What is closed for a query: one object for all queries with the same closed time."""
        if stream.clock(query.query.clock).closed.varies:  # then not all of them do
            return boundary(query, stream, query_state)
        key = id(stream), query.query.clock, query.reads_earlier_windows, query_state.forced
        shared = self._boundaries.get(key)
        if shared is None:
            shared = self._boundaries[key] = boundary(query, stream, query_state)
        return shared

    def _advanced_query(
        self, query: CompiledQuery, batch: BatchInput, lasts: Mapping[int, np.ndarray], before: StreamState
    ) -> QueryState:
        query_state = self.queries[query.name]
        unseen, forced = query_state.unseen, query_state.forced
        if unseen is None:
            unseen = batch.missed_times(query.query.clock) if batch.origin is None else batch.origin.missed
        store = None if self.shelf is None else self.shelf.store
        for home in query_state.homes if lasts and not query.is_keyed else ():
            if home not in lasts:
                continue
            was = self._boundary(query, before, self.before.queries[query.name])
            if query.gap is not None:
                last = last_session(self.sheets[self.selections[home].sheet], home, query.gap)
            else:
                last = last_window(self, query, was, home, lasts[home], store)
            if last is not None:
                forced = max(last + 1, LOWEST if forced is None else forced)
        if batch.ended and query.query.empty is not None:
            forced = self._forced_empty(query, batch, forced)
        if unseen is query_state.unseen and forced == query_state.forced:
            return query_state
        return replace(query_state, unseen=unseen, forced=forced).for_window(query.query.window.shortest)

    def _forced_empty(self, query: CompiledQuery, batch: BatchInput, forced: int | None) -> int | None:
        """The same for empty windows: the last one that holds a row of the stream, of whatever group."""
        profile, newest = batch.outcome.clocks.get(query.clock), None
        if query.name in self.before.past.starts or (profile is not None and profile.runs):
            newest = self.streams[query.query.stream].clock(query.clock).newest
        if newest is None:
            return forced
        last = windows.wid_to(query.query.window, newest)
        return max(last + 1, LOWEST if forced is None else forced)

    def _session_sheets(
        self, batch: BatchInput, before: StreamState, after: StreamState
    ) -> Iterator[tuple[str, Layout, pa.Table, list[Reader]]]:
        """The sheets of sessions, each with a reader of every selection."""
        readers = self._readers(batch.queries)
        for key, layout in readers.session_layouts.items():
            if key in self.sheets:
                firsts = self._with_boundaries(readers.session_firsts[key], before, after)
                yield key, layout, self.sheets[key], firsts

    def _drop_late_sessions(self, batch: BatchInput, before: StreamState) -> None:
        """Drop what late rows added: sessions that were final before the batch."""
        for key, layout, sheet, firsts in list(self._session_sheets(batch, before, before)):
            is_late = final_sessions(layout, sheet, firsts)
            self._trim(key, ~is_late)

    def _close_sessions(
        self, batch: BatchInput, before: StreamState, after: StreamState
    ) -> Iterator[LoweredWindows]:
        """Close the sessions that no row can extend any more."""
        asking = self._readers(batch.queries).asking
        for key, layout, sheet, firsts in list(self._session_sheets(batch, before, after)):
            is_final = final_sessions(layout, sheet, firsts)
            if is_final.any():
                homes = set(one_array(sheet[SELECTION]).to_numpy()[is_final].tolist())
                closing = [pair for pair in asking[key] if pair[1] in homes]
                readers = self._with_boundaries(closing, before, after)
                self._trim(key, ~is_final)
                closed = sessions_of(layout, sheet, is_final, readers)
                self.finals += closed.num_rows
                self.unshared_finals += closed.num_rows
                yield from self.lowered(layout, closed, readers, batch.partial, defaultdict(list))

    def _end_windows_of_keys(
        self, batch: BatchInput, before: StreamState, after: StreamState
    ) -> Iterator[LoweredWindows]:
        """The windows of the rows of a key that the batch's rows ended."""
        readers = self._readers(batch.queries)
        for key, layout in readers.key_layouts.items():
            if key not in self.sheets or key not in batch.outcome.partials:
                continue
            sheet, own = self.sheets[key], self._with_boundaries(readers.asking[key], before, after)
            ended, is_needed = ended_windows(layout, sheet, own, before.totals.accepted)
            self._trim(key, is_needed)
            self.finals += len(ended)
            self.unshared_finals += len(ended)
            yield from self.lowered_of_keys(ended, own, batch.partial)

    def _close_stack(
        self,
        stack: StackReaders,
        batch: BatchInput,
        before: StreamState,
        after: StreamState,
        scattered: Scattered,
    ) -> Iterator[LoweredWindows]:
        """Close the windows of all readers of a stack; where that can't be done in one step, sheet by sheet."""
        alike = self._alike(stack, before, after) if stack.is_merged else None
        found = None
        if alike is not None:
            held, others = self.sheets.taken(stack.shape)
            found = close_stack(held, stack.homes, stack.specs, alike)
        if found is None:
            yield from self._close_sheets(stack, batch, before, after, scattered)
            return
        closed, is_needed = found
        if not is_needed.all():
            self._raise_floors_of(held.selections, held.stops, is_needed)
            held = held.where(is_needed)
        self.sheets = others.with_stack(held)
        if alike is not None and stack.growing:
            self._merge_slices(stack, alike)
        self.finals += closed.steps
        self.unshared_finals += int(stack.unshared_slices[closed.readers].sum())
        is_scattered = stack.is_scattered[closed.readers]
        if is_scattered.any():
            self._scatter(stack, closed.of(is_scattered), scattered)
            closed = closed.of(~is_scattered)
        if len(closed.readers):
            yield from lower_stack(
                stack, closed, lambda readers, times: self.facts(stack, readers, times, batch.partial)
            )

    def _merge_slices(self, stack: StackReaders, alike: Sequence[AlikeReaders]) -> None:
        """Merge closed slices of cumulative windows."""
        closed = closed_until(alike, stack.specs)
        for sheet, readers in stack.growing.items() if closed is not None else ():
            if closed is None or sheet not in self.sheets:
                continue
            wids, times = (numbers[readers] for numbers in closed)
            homes, specs = stack.homes[readers], stack.specs[readers]
            moved = with_moved_slices(self.sheets[sheet], homes, specs, wids, times)
            if moved is not None:
                merged = combine_sheets({sheet: stack.layouts[sheet]}, {sheet: [moved]})
                self.sheets = self.sheets.with_tables(merged)

    def _scatter(self, stack: StackReaders, closed: StackWindows, scattered: Scattered) -> None:
        """Note the windows of queries that have slices on other sheets, too."""
        firsts = np.searchsorted(stack.sheets, np.arange(len(stack.layouts))).tolist()
        for place, (key, layout) in enumerate(stack.layouts.items()):
            table = closed.of_sheet(place, layout, firsts[place])
            if table.num_rows:
                self.scatter(layout, table, stack.asking[key], scattered)

    def _alike(
        self, stack: StackReaders, before: StreamState, after: StreamState
    ) -> list[AlikeReaders] | None:
        """Readers by what is closed for them before and after; None if that differs from query to query."""
        alike, (firsts, clock_of) = [], stack.clocks
        was_forced, is_forced = stack.forced_in(self.before.queries), stack.forced
        has_forced = bool((is_forced > LOWEST).any())
        for place, query in enumerate(firsts):
            if any(stream.clock(query.clock).closed.varies for stream in (before, after)):
                return None
            numbers = np.flatnonzero(clock_of == place)
            was, now = (self._boundary(query, stream, NOT_FORCED) for stream in (before, after))
            forced = (was_forced[numbers], is_forced[numbers]) if has_forced else None
            alike.append(AlikeReaders(numbers, was, now, forced, passed_boundary(query, before)))
        return alike

    def _close_sheets(
        self,
        stack: StackReaders,
        batch: BatchInput,
        before: StreamState,
        after: StreamState,
        scattered: Scattered,
    ) -> Iterator[LoweredWindows]:
        parts = {
            key: SheetReaders(
                layout, self.sheets[key], self._with_boundaries(stack.asking[key], before, after)
            )
            for key, layout in stack.layouts.items()
            if key in self.sheets
        }
        for (key, part), closed in zip(parts.items(), close_sheets(list(parts.values())), strict=True):
            yield from self._closed(key, part, closed, batch, scattered)

    def _closed(
        self, key: str, part: SheetReaders, done: ClosedWindows, batch: BatchInput, scattered: Scattered
    ) -> Iterator[LoweredWindows]:
        self.finals += done.steps
        self._trim(key, done.kept)
        if done.table.num_rows:
            closing, counts = np.unique(done.table["reader"].to_numpy(), return_counts=True)
            specs = specs_of([part.readers[i].query for i in closing.tolist()])
            alone = windows.paired_slices(specs)  # what slices of its own would have cost each
            self.unshared_finals += int(counts @ alone)
            yield from self.lowered(part.layout, done.table, part.readers, batch.partial, scattered)

    def _close_on_executors(self, batch: BatchInput, before: StreamState, after: StreamState) -> None:
        """Find the executors' work for closed windows, and drop the shards that no window needs."""
        if not self.shards:
            return
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
            self._raise_floors(needs.floors)
            if needs.closing:
                self.shard_work.append(
                    self.shard_work_for([readers[i] for i in needs.closing], needs.read, batch.partial)
                )

    def _trim(self, sheet: str, is_needed: Mask) -> None:
        """Evict slices of a sheet that no open window needs, and note since when each selection has all slices."""
        if is_needed.all():
            return
        table = self.sheets[sheet]
        homes, stops = (one_array(table[name]).to_numpy() for name in (SELECTION, STOP))
        self._raise_floors_of(homes, stops, is_needed)
        if is_needed.any():
            self.sheets = self.sheets.with_tables({sheet: table.filter(pa.array(is_needed)).combine_chunks()})
        else:
            self.sheets = self.sheets.without([sheet])

    def _raise_floors_of(self, homes: Ints, stops: Ints, is_needed: Mask) -> None:
        """Note since when selections have all slices: some of these are not needed any more."""
        gone = np.flatnonzero(~is_needed)
        evicted, place = np.unique(homes[gone], return_inverse=True)
        floors = np.full(len(evicted), LOWEST)
        np.maximum.at(floors, place, stops[gone])
        self._raise_floors(dict(zip(evicted.tolist(), floors.tolist(), strict=True)))

    def _raise_floors(self, floors: Mapping[int, int]) -> None:
        known = self.floors
        raised = {
            home: floor
            for home, floor in floors.items()
            if floor > known.get(home, LOWEST) and home in self.selections
        }
        self.floors = {**known, **raised}


# --- the stream: its clocks and its counts ---


def _advance_stream(stream: StreamState, batch: BatchInput, followed: Mapping[Clock, int]) -> StreamState:
    """A stream after a batch; `followed` are the clocks that the batch carries, with their longest windows."""
    outcome, totals = batch.outcome, stream.totals + _counts(batch)
    promised = (
        {clock: state_of_clock.without_sidelined() for clock, state_of_clock in stream.clocks.items()}
        if stream.sidelined
        else stream.clocks
    )
    clocks = {
        clock: state_of_clock
        if clock in followed or not outcome.rows
        else replace(state_of_clock, occupied=None)
        for clock, state_of_clock in promised.items()
    }
    for clock, longest in followed.items():
        clock_state, was = promised.get(clock) or stream.clock(clock), stream.clock(clock).closed
        watermark = was.watermark()
        oldest = None if watermark is None else watermark - longest
        clocks[clock] = _advance_clock(clock_state, oldest, clock, batch, totals)
    for clock in dict.fromkeys(punctuation.clock for punctuation in batch.punctuations):
        clock_state = clocks.get(clock) or stream.clock(clock)
        ranges = (
            (punctuation.until, punctuation.since, punctuation.where)
            for punctuation in batch.punctuations
            if punctuation.clock == clock
        )
        clocks[clock] = replace(clock_state, closed=clock_state.closed.close_all(ranges))
    sidelined = stream.sidelined
    if sidelined or batch.burst.sidelined:
        sidelined = (
            *(chunk for chunk in sidelined if chunk not in batch.burst.resumed),
            *batch.burst.sidelined,
        )
        clocks = {
            clock: _held(state_of_clock, stream.clock(clock).closed, held_times(sidelined, clock))
            for clock, state_of_clock in clocks.items()
        }
    if batch.burst.shed:
        clocks = {
            clock: state_of_clock.with_shed(chunk_ranges(batch.burst.shed, clock))
            for clock, state_of_clock in clocks.items()
        }
    if batch.origin is not None and batch.origin.shed:
        clocks[batch.rules.clock] = clocks[batch.rules.clock].with_shed(batch.origin.shed)
    if batch.closed is not None:
        clocks[batch.rules.clock] = replace(clocks[batch.rules.clock], closed=batch.closed)
    work = stream.work + Work(partials=outcome.lifted, unshared_partials=outcome.unshared)
    return StreamState(clocks, totals, work, sidelined, _credit(stream, batch, bool(sidelined)))


def _counts(batch: BatchInput) -> Totals:
    """What became of the new rows of a batch, and of its resumed rows."""
    outcome, burst = batch.outcome, batch.burst
    sidelined, shed = chunk_rows(burst.sidelined), chunk_rows(burst.shed)
    return Totals(
        batch.new_rows + sidelined + shed,
        outcome.counted,
        outcome.unwanted,
        outcome.late,
        outcome.timeless + outcome.ahead,
        sidelined - chunk_rows(burst.resumed),
        shed,
    )


def _account_rows(accounts: Accounts, batch: BatchInput) -> Accounts:
    """The accounts of queries after a batch: of all that read its rows."""
    own, burst = batch.outcome.accounts, batch.burst
    if not own.names:
        return accounts
    numbers = map(chunk_rows, (burst.sidelined, burst.shed, burst.resumed))
    found = accounts.plus(own.names, own.counts, own.windows, *numbers)
    if found.unaccounted > accounts.unaccounted:
        rows, stream = found.unaccounted - accounts.unaccounted, batch.rules.clock.stream
        log.error("%d rows of %s are not accounted for: the counts of its queries are wrong", rows, stream)
    return found


def _credit(stream: StreamState, batch: BatchInput, are_left: bool) -> int:
    share = batch.rules.overload.share if batch.rules.overload is not None else 1
    taken = chunk_rows(batch.burst.resumed)
    return credit_after(stream.credit, bool(stream.sidelined) and are_left, batch.new_rows, taken, share)


def _held(promised: ClockState, before: Closed, held: IntervalSet) -> ClockState:
    """A clock with the promised times closed, except the times of sidelined rows."""
    return (
        replace(promised, closed=closed_except_held(before, promised.closed, held), promised=promised.closed)
        if held
        else promised
    )


def _advance_clock(
    clock_state: ClockState, oldest: int | None, clock: Clock, batch: BatchInput, totals: Totals
) -> ClockState:
    """A clock after a batch: `clock_state` is without sidelined rows.

    `oldest` is the start of the longest window that was open before the batch.
    """
    profile = batch.outcome.clocks.get(clock, Profile())
    beside = highest_time((*batch.burst.sidelined, *batch.burst.shed), clock)
    high = max((top for top in (clock_state.high, profile.top, beside) if top is not None), default=None)
    newest = max((top for top in (clock_state.newest, profile.top) if top is not None), default=None)
    slack = batch.rules.slack_of(clock)
    closed: Closed = clock_state.closed
    if clock.kind is ClockKind.ROWS:
        closed = closed.close(totals.accepted) if totals.accepted else closed
    else:
        watermark = batch.watermark
        if watermark is not None and clock == batch.rules.clock:
            closed = watermark.closing(closed)
        elif high is not None and slack is not None:
            if watermark is not None and batch.rules.shares_slack(clock):
                slack = watermark.slack
            closed = closed.close(high - slack)
    occupied = clock_state.occupied if clock_state.occupied is not None else batch.missed_times(clock)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED, slack=MOST_OCCUPIED // 4)
    arrivals = clock_state.arrivals
    came = profile.occupied() if batch.origin is None else batch.origin.arrived
    came |= chunk_ranges(batch.burst.sidelined, clock)
    if came:
        arrivals = arrivals.with_rows(came, batch.clock, oldest)
    return replace(clock_state, high=high, closed=closed, occupied=occupied, arrivals=arrivals, newest=newest)
