"""The readers of a stream's sheets as arrays: all that depends on queries and selections, and not on a batch.

A reader is a query that reads a selection. Sheets with groups of the same types form a stack: one step closes
and lowers the windows of all its readers. With a hundred small sheets, or ten thousand queries, a step for each
costs more than the windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, columns_in_moments
from transom.aggregates.table import AggregateFunction
from transom.columns.arrays import Ints, Mask
from transom.columns.table_columns import ROWS, aggregate_column, group_columns
from transom.elements import Clock
from transom.kernel.sheet_stack import stack_shape
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.layout import Layout, layout_in_use
from transom.plan.slot_sources import readable_slots, source_slot
from transom.results.close import specs_of
from transom.results.result_rows import computed_texts
from transom.sql.query import Call
from transom.state.state import QueryState, SelectionState
from transom.windows import ids as windows
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import LOWEST, IntervalSet

Asking = Sequence[tuple[CompiledQuery, int]]  # queries, each with a selection that it reads
StateParts = tuple[int, ...]  # of an accumulator's state
SlotStates = tuple[tuple[Accumulator, StateParts], ...]  # what the slots of a query are read from


def readers_by_sheet(
    queries: Sequence[CompiledQuery],
    query_states: Mapping[str, QueryState],
    selections: Mapping[int, SelectionState],
) -> tuple[dict[str, list[tuple[CompiledQuery, int]]], dict[str, Layout]]:
    """The queries and the selections that they read on the driver, by sheet, and the sheets' layouts."""
    readers: dict[str, list[tuple[CompiledQuery, int]]] = defaultdict(list)
    for query in queries:
        for home in query_states[query.name].homes:
            selection = selections[home]
            if not selection.on_executors:
                readers[selection.sheet].append((query, home))
    return readers, {
        sheet: layout_in_use(sheet) or _layout(asking, selections) for sheet, asking in readers.items()
    }


def _layout(asking: Asking, selections: Mapping[int, SelectionState]) -> Layout:
    """The layout of a sheet, from all queries that read one of its selections."""
    first, home = asking[0]
    slots = readable_slots(query for query, own in asking if own == home)
    return Layout.of(first, [slots[key] for key in selections[home].slots])


@dataclass(frozen=True, eq=False)
class ReaderGroup:
    """Readers whose windows are lowered together: the same SELECT list over states of the same types."""

    queries: Sequence[CompiledQuery]
    states: Ints  # a row for each reader: the columns of states that its slots are read from
    calls: tuple[int, ...]  # the place of each call of an aggregate in `StackLowering.calls`


@dataclass(frozen=True, eq=False)
class ResultForm:
    """Groups whose windows are finished together: `first` to `stop`. They may call different aggregates of one type.

    A batch with few windows has some of each group. What a table costs is then far more than its rows.
    """

    first: int
    stop: int
    queries: Sequence[CompiledQuery]
    names: np.ndarray
    column_names: Sequence[str]  # of lowered windows


@dataclass(frozen=True, eq=False)
class LoweredCall:
    """A call of an aggregate over states of some types: all windows of all queries with it are lowered at once."""

    function: AggregateFunction
    call: Call
    states: tuple[
        tuple[int, StateParts], ...
    ]  # of the slots that it reads: the accumulator's number, and parts


class StackReaders:
    """The readers of sheets whose groups have the same types, sheet by sheet."""

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        asking: Mapping[str, Asking],
        query_states: Mapping[str, QueryState],
        selections: Mapping[int, SelectionState],
    ):
        self.layouts, self.asking = dict(layouts), {sheet: asking[sheet] for sheet in layouts}
        self.shape = stack_shape(list(layouts.values()))
        self.is_merged = self.shape.layout.merged
        self._query_states, self._selections = query_states, selections
        pairs = [pair for sheet in layouts for pair in asking[sheet]]
        self.queries = [query for query, _ in pairs]
        self.homes = np.array([home for _, home in pairs], np.int64)
        self.sheets = np.repeat(np.arange(len(layouts)), [len(asking[sheet]) for sheet in layouts])
        self.specs: WindowSpecs = specs_of(self.queries)
        own = [query_states[query.name] for query in self.queries]
        self.is_scattered: Mask = np.array([len(each.homes) > 1 for each in own], bool)

    @cached_property
    def forced(self) -> Ints:
        """The window of each reader below which all were closed because the stream ended or fell idle."""
        return self.forced_in(self._query_states)

    def forced_in(self, query_states: Mapping[str, QueryState]) -> Ints:
        """The same with other states of the queries."""
        if query_states is self._query_states and "forced" in vars(self):
            return self.forced
        forced = [query_states[query.name].forced for query in self.queries]
        if set(forced) <= {None}:
            return np.full(len(forced), LOWEST, np.int64)
        return np.array([LOWEST if wid is None else wid for wid in forced], np.int64)

    @cached_property
    def growing(self) -> Mapping[str, Ints]:
        """The sheets with readers of cumulative windows, and all readers of these sheets."""
        if self.specs.is_cumulative is False:
            return {}
        places = np.unique(self.sheets[np.broadcast_to(self.specs.is_cumulative, self.sheets.shape)])
        names = list(self.layouts)
        merged = (place for place in places.tolist() if self.layouts[names[place]].merged)
        return {names[place]: np.flatnonzero(self.sheets == place) for place in merged}

    @cached_property
    def unshared_slices(self) -> Ints:
        """How many slices a window would be made of if each query had slices of its own."""
        slices: Ints = windows.paired_slices(self.specs)
        return slices

    @cached_property
    def clocks(self) -> tuple[Sequence[CompiledQuery], Ints]:
        """A query on each clock that occurs, and the clock of each reader as a place in this list.

        Queries whose windows close in order, or that correct results, count as having clocks of their own.
        """
        places: dict[tuple[int, bool, int], int] = {}
        keys = [
            (id(query.clock), query.reads_earlier_windows, query.query.retention) for query in self.queries
        ]
        of = [places.setdefault(key, len(places)) for key in keys]
        firsts = dict(zip(reversed(keys), reversed(self.queries), strict=True))
        return [firsts[clock] for clock in places], np.array(of, np.int64)

    @cached_property
    def unseen(self) -> list[tuple[IntervalSet, Mask]]:
        """The times of rows that readers missed, each set once, and which readers missed these."""
        kinds: dict[IntervalSet, list[int]] = {}
        known: dict[int, IntervalSet] = {}
        for number, query in enumerate(self.queries):
            times = self._query_states[query.name].unseen
            if times:
                kinds.setdefault(known.setdefault(id(times), times), []).append(number)
        sets = []
        for times, members in kinds.items():
            has_it = np.zeros(len(self.queries), bool)
            has_it[members] = True
            sets.append((times, has_it))
        return sets

    @cached_property
    def names(self) -> np.ndarray:
        """The name of each reader's query."""
        names = np.empty(len(self.queries), object)
        names[:] = [query.name for query in self.queries]
        return names

    # --- lowering ---

    @cached_property
    def lowering(self) -> StackLowering:
        """How the windows of the readers are lowered."""
        return StackLowering(self, self._selections)


class StackLowering:
    """Which columns of states the readers of a stack read, and what all of them compute from these.

    What readers read is numbered: `accumulators[kinds[c]]` made the states `c`, which are of sheet `sheets[c]`.
    """

    def __init__(self, stack: StackReaders, selections: Mapping[int, SelectionState]):
        self.accumulators: list[Accumulator] = []
        self._columns: dict[tuple[int, int, int], int] = {}
        self._numbers: dict[Accumulator, int] = {}
        self._kinds: dict[SlotStates, int] = {}
        self._read: dict[object, tuple[int, tuple[int, ...]]] = {}
        self.calls: list[LoweredCall] = []
        self._calls: dict[object, int] = {}
        members: dict[object, list[int]] = {}
        states: list[tuple[int, ...]] = []
        for number, (query, home) in enumerate(zip(stack.queries, stack.homes.tolist(), strict=True)):
            kind, columns = self._reads(query, selections[home].slots, int(stack.sheets[number]))
            members.setdefault((query.shape, kind), []).append(number)
            states.append(columns)
        kinds = list(self._kinds)
        forms: dict[object, list[tuple[int, list[int]]]] = {}
        for (_, kind), numbers in members.items():  # type: ignore[misc]
            forms.setdefault(_form(stack.queries[numbers[0]]), []).append((kind, numbers))
        self.groups: list[ReaderGroup] = []
        self.forms: list[ResultForm] = []
        self.group_of = np.empty(len(stack.queries), np.int64)
        self.member_of = np.empty(len(stack.queries), np.int64)  # the place of each reader in its group
        self.place_of = np.empty(len(stack.queries), np.int64)  # and in its form
        for groups in forms.values():
            first = len(self.groups)
            for kind, numbers in groups:
                self.group_of[numbers] = len(self.groups)
                self.member_of[numbers] = np.arange(len(numbers))
                queries = [stack.queries[number] for number in numbers]
                own = np.array([states[number] for number in numbers], np.int64).reshape(len(numbers), -1)
                self.groups.append(ReaderGroup(queries, own, self._calls_of(queries[0], kinds[kind])))
            every = [number for _, numbers in groups for number in numbers]
            self.place_of[every] = np.arange(len(every))
            queries = [stack.queries[number] for number in every]
            names = _lowered_names(queries[0])
            self.forms.append(ResultForm(first, len(self.groups), queries, stack.names[every], names))
        self.kinds, self.sheets, places = np.array(list(self._columns), np.int64).reshape(-1, 3).T
        shape = stack.shape
        pairs = zip(self.sheets.tolist(), places.tolist(), strict=True)
        read = np.array([shape.columns_of[sheet][place] for sheet, place in pairs], np.int64)
        # For each accumulator the columns of the stack that are read, and what is read of each.
        self.columns: list[dict[int, Ints]] = [{} for _ in self.accumulators]
        for column, kind in dict.fromkeys(zip(read.tolist(), self.kinds.tolist(), strict=True)):
            self.columns[kind][column] = np.flatnonzero(read == column)

    def _reads(self, query: CompiledQuery, kept: tuple[str, ...], sheet: int) -> tuple[int, tuple[int, ...]]:
        """What a query's slots are read from, numbered, and the columns: the same for all queries with equal slots."""
        key = query.slot_ids, kept, sheet
        if key not in self._read:
            places = {slot_id: place for place, slot_id in enumerate(kept)}
            sources = [_source(slot, places) for slot in query.slots]
            states = tuple((accumulator, parts) for accumulator, parts, _ in sources)
            columns = tuple(self._column(accumulator, sheet, place) for accumulator, _, place in sources)
            self._read[key] = self._kinds.setdefault(states, len(self._kinds)), columns
        return self._read[key]

    def _column(self, accumulator: Accumulator, sheet: int, place: int) -> int:
        number = self._numbers.setdefault(accumulator, len(self.accumulators))
        if number == len(self.accumulators):
            self.accumulators.append(accumulator)
        return self._columns.setdefault((number, sheet, place), len(self._columns))

    def _calls_of(self, query: CompiledQuery, states: SlotStates) -> tuple[int, ...]:
        """The calls of a query; queries with equal calls over equal states have them in common."""
        numbers = []
        for call, function, slots in zip(query.query.calls, query.functions, query.reads, strict=True):
            own = tuple(states[slot] for slot in slots)
            key = call.function, call.type, call.parameters, own
            number = self._calls.setdefault(key, len(self.calls))
            if number == len(self.calls):
                read = tuple((self._numbers[accumulator], parts) for accumulator, parts in own)
                self.calls.append(LoweredCall(function, call, read))
            numbers.append(number)
        return tuple(numbers)


def _form(query: CompiledQuery) -> object:
    """What queries have in common whose results are the same columns of windows.

    HAVING, LIMIT, expressions over aggregates and earlier windows belong to the queries of one shape.
    """
    bound = query.query
    is_plain = bound.kept is None and bound.top is None and not query.reads_earlier_windows
    if not is_plain or computed_texts(bound):
        return query.shape
    keys, calls = tuple(key.scalar.type for key in bound.keys), tuple(call.type for call in bound.calls)
    return bound.items, keys, calls, bound.clock_type, bound.emit is None, bound.corrections is None


def _lowered_names(query: CompiledQuery) -> list[str]:
    """The columns of lowered windows."""
    bound = query.query
    aggregates = map(aggregate_column, range(len(bound.calls)))
    return [*group_columns(len(bound.keys)), *aggregates, "window_start", "window_end", ROWS]


def _source(slot: Slot, places: Mapping[str, int]) -> tuple[Accumulator, StateParts, int]:
    """The accumulator whose state a slot is read from, the parts of the state, and its place on the sheet."""
    source = source_slot(slot, places)
    assert source is not None
    if source.id == slot.id:
        parts: Sequence[int] | None = range(len(source.accumulator.types()))
    else:
        parts = columns_in_moments(slot.accumulator)
    assert parts is not None
    return source.accumulator, tuple(parts), places[source.id]


class StreamReaders:
    """All readers of a stream on the driver, in stacks."""

    def __init__(
        self,
        queries: Sequence[CompiledQuery],
        query_states: Mapping[str, QueryState],
        selections: Mapping[int, SelectionState],
    ):
        self.asking, self.layouts = readers_by_sheet(queries, query_states, selections)
        # The clocks that queries follow, with the range of the longest window on each.
        clocks, longest = dict[int, Clock](), dict[int, int]()  # by id: a clock is slow to hash
        for query in queries:
            clock, range = query.clock, query.query.window.range + query.query.retention
            clocks[id(clock)] = clock
            longest[id(clock)] = max(range, longest.get(id(clock), 0))
        self.clocks = {clock: longest[id(clock)] for clock in clocks.values()}
        # Queries of which only a batch with rows tells what they missed.
        self.undetermined = [query for query in queries if query_states[query.name].unseen is None]
        self.session_layouts = {
            sheet: layout for sheet, layout in self.layouts.items() if layout.gap is not None
        }
        # All readers of a selection of sessions see the same: a query for each.
        self.session_firsts = {
            sheet: [
                (query, home) for home, query in {home: query for query, home in self.asking[sheet]}.items()
            ]
            for sheet in self.session_layouts
        }
        self.key_layouts = {sheet: layout for sheet, layout in self.layouts.items() if layout.keyed}
        alike: dict[tuple[bool, tuple[pa.DataType, ...]], dict[str, Layout]] = {}
        for sheet, layout in self.layouts.items():
            if layout.gap is None and not layout.keyed:
                alike.setdefault((layout.merged, layout.keys), {})[sheet] = layout
        self.stacks = [
            StackReaders(layouts, self.asking, query_states, selections) for layouts in alike.values()
        ]
        # The sheets that the state keeps as tables, not in stacks.
        self.unstacked = [
            sheet
            for sheet, layout in self.layouts.items()
            if layout.gap is not None or layout.keyed or not layout.merged
        ]
