"""On-demand answers: a query's stores -> its result for the window that ends now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.table import aggregate_function
from transom.columns.grouping import group
from transom.errors import SettingError, near_miss
from transom.ondemand.midpoint import middle
from transom.ondemand.store_specs import QueryStores, StoreRead, store_key, stores_read_by
from transom.ondemand.structures.runs import GroupAnswers
from transom.plan.compiled import CompiledQuery, typed_value
from transom.results.presentation import LoweredWindows, Moment, Results, finish, result_schema
from transom.sql.catalog import Scalars
from transom.sql.query import Call, Query, free_name
from transom.state.state import State
from transom.windows.arrivals import Arrivals
from transom.windows.intervals import LOWEST, IntervalSet

Numbers = NDArray[np.int64]
StoreReader = Callable[[str, StoreRead, int], GroupAnswers]  # a store's name, how to read it, and since when
GroupPattern = tuple[tuple[int, tuple[Any, ...]], ...]  # by place of a group column, the values it may have
Where = Mapping[str, Any] | None
_UNTOLD = ("kind", "rows", "latency")  # of results that are reported, not looked up
_SIDES = ("low", "high")


@dataclass(frozen=True)
class Lookup:
    """A query and the window `[start, end)` that it is looked up for; `where` is a pattern on the groups.

    The window ends at the newest row, or `later`.
    """

    query: CompiledQuery
    start: int
    end: int
    where: GroupPattern = ()
    later: bool = False

    @classmethod
    def over(cls, query: CompiledQuery, length: int, end: int, *rest: Any) -> Lookup:
        """A lookup for a window of some length, as far as there is time."""
        return cls(query, max(LOWEST, end - length), end, *rest)

    @cached_property
    def query_stores(self) -> QueryStores:
        return stores_read_by(self.query)

    @cached_property
    def stores(self) -> dict[str, StoreRead]:
        """The stores that it reads, by their names."""
        query_stores = self.query_stores
        reads = (StoreRead(query_stores.newest, query_stores.newest.structure), *query_stores.reads)
        return {store_key(self.query.selection, one.spec): one for one in reads}

    def is_complete(self, state: State) -> bool:
        """Whether the stores have seen everything of the window."""
        stream, clock = state.stream(self.query.query.stream), self.query.clock
        lacking = stream.clock(clock).arrivals.shed | stream.held(clock)
        lost = lacking.meets(np.array([self.start]), np.array([self.end]))[0]
        return not lost and all(state.stores[key].is_complete(self.start, self.end) for key in self.stores)


@dataclass(frozen=True)
class Answer:
    """What was found, before the SELECT list is applied.

    The columns are `k0`.., `a0`.., `window_start`, `window_end` and `rows`; and those of a timegram's
    intervals, `a0_low`, `a0_high`..
    """

    lookup: Lookup
    table: pa.Table

    @property
    def lowered(self) -> LoweredWindows:
        """The answer as windows are that closed."""
        which = np.zeros(self.table.num_rows, np.int64)
        return LoweredWindows([self.lookup.query], which, self.table, [IntervalSet()], [True], [Arrivals()])


def look_up(lookup: Lookup, read: StoreReader) -> Answer:
    """Look a query up in its stores."""
    query_stores, bound, selection = lookup.query_stores, lookup.query.query, lookup.query.selection
    newest = StoreRead(query_stores.newest, query_stores.newest.structure)
    base = read(store_key(selection, newest.spec), newest, lookup.start)
    chosen = _matching(lookup, base) if base.count else np.zeros(0, np.int64)
    if not len(chosen):
        return Answer(lookup, answer_schema(bound).empty_table())
    found = [read(store_key(selection, one.spec), one, lookup.start) for one in query_stores.reads]
    places = [group_positions(base, one)[chosen] for one in found]
    columns = {f"k{i}": key.take(pa.array(chosen)) for i, key in enumerate(base.keys)}
    if query_stores.has_bounds:
        for i, (call, one, at) in enumerate(zip(bound.calls, found, places, strict=True)):
            low, high = _bounds(call, one, at)
            columns[f"a{i}"] = middle(low, high, call.type)
            columns |= {f"a{i}_low": low, f"a{i}_high": high}
    else:
        states = [
            _states(slot.accumulator, one, at)
            for slot, one, at in zip(lookup.query.slots, found, places, strict=True)
        ]
        calls = zip(bound.calls, lookup.query.functions, lookup.query.reads, strict=True)
        for i, (call, function, slots) in enumerate(calls):
            read_off = [states[slot] for slot in slots]
            columns[f"a{i}"] = function.lower(read_off, call.type, call.parameters)
    for name, time in (("window_start", lookup.start), ("window_end", lookup.end)):
        columns[name] = pa.array(np.full(len(chosen), time)).cast(bound.clock_type)
    columns["rows"] = pa.nulls(len(chosen), pa.int64())
    return Answer(lookup, pa.table(columns))


def answer_schema(query: Query) -> pa.Schema:
    """The columns of a query's answers."""
    fields = [(f"k{i}", key.scalar.type) for i, key in enumerate(query.keys)]
    for i, call in enumerate(query.calls):
        fields.append((f"a{i}", call.type))
        if query.demand is not None and query.demand.structure == "timegram":
            fields += [(f"a{i}_{side}", bound_type(call.type)) for side in _SIDES]
    fields += [(name, query.clock_type) for name in ("window_start", "window_end")]
    return pa.schema([*fields, ("rows", pa.int64())])


def bound_type(kind: pa.DataType) -> pa.DataType:
    """The type of the ends of an interval that holds a value of some type."""
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _matching(lookup: Lookup, base: GroupAnswers) -> Numbers:
    """The groups that a pattern asks for, in order."""
    chosen = np.ones(base.count, bool)
    for place, values in lookup.where:
        key = base.keys[place]
        mine = np.zeros(base.count, bool)
        for value in values:
            if value is None:
                same = pc.is_null(key)
            elif value != value:
                same = pc.is_nan(key)
            else:
                same = pc.equal(key, pa.scalar(value, key.type))
            mine |= same.fill_null(False).to_numpy(zero_copy_only=False)
        chosen &= mine
    found = np.flatnonzero(chosen)
    if not base.keys or any(pa.types.is_nested(key.type) for key in base.keys):
        return found
    names = [f"k{i}" for i in range(len(base.keys))]
    table = pa.table([key.take(pa.array(found)) for key in base.keys], names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return found[order.to_numpy()]


def group_pattern(query: CompiledQuery, where: Where) -> GroupPattern:
    """A pattern on groups: for columns of a query's results or of its stream, a value or a list of them."""
    if where is not None and not isinstance(where, Mapping):
        raise SettingError(f"where is a mapping from columns to values, not {where!r}")
    bound = query.query
    places = {column.casefold(): place for column, place in query.key_columns.items()}
    places |= {key.name.casefold(): place for place, key in enumerate(bound.keys)}
    places |= {item.name.casefold(): int(item.sql[2:-1]) for item in bound.items if item.is_key}
    found = []
    for name, given in (where or {}).items():
        place = places.get(str(name).casefold())
        if place is None:
            names = [item.name for item in bound.items if item.is_key]
            raise SettingError(f"the query does not group by {name}{near_miss(str(name), names)}")
        values = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
        kind = bound.keys[place].scalar.type
        try:
            found.append((place, tuple(typed_value(value, kind) for value in values)))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SettingError(f"{name} can't be {given!r}: {error}") from error
    return tuple(found)


def group_positions(base: GroupAnswers, other: GroupAnswers) -> Numbers:
    """Where each group of one finding is in another; -1 where it is not.

    >>> one, other = GroupAnswers((pa.array(["a", "b"]),), 2, {}), GroupAnswers((pa.array(["b"]),), 1, {})
    >>> group_positions(one, other).tolist()
    [-1, 0]
    """
    if not base.keys or not other.count:
        return np.full(base.count, 0 if other.count else -1)
    pairs = zip(base.keys, other.keys, strict=True)
    codes = group([pa.concat_arrays(pair) for pair in pairs], base.count + other.count).codes
    places = np.full(codes.max(initial=-1) + 1, -1)
    places[codes[base.count :]] = np.arange(other.count)
    return places[codes[: base.count]]


def _taken(found: GroupAnswers, name: str, kind: pa.DataType, places: Numbers) -> pa.Array:
    """A column that was found, for groups at some places; null where there is none."""
    if not found.count:
        return pa.nulls(len(places), kind)
    return found.columns[name].take(pa.array(places, mask=places < 0)).cast(kind)


def _states(accumulator: Accumulator, found: GroupAnswers, places: Numbers) -> States:
    """A slot's states for each group; the identity where it has none."""
    states = []
    for i, (nothing, kind) in enumerate(zip(accumulator.identity(), accumulator.types(), strict=True)):
        column = _taken(found, f"s{i}", kind, places)
        states.append(column if nothing is None else column.fill_null(nothing))
    return states


def _bounds(call: Call, found: GroupAnswers, places: Numbers) -> tuple[pa.Array, pa.Array]:
    """The interval of an aggregate for each group: null where it has no values, but for a count."""
    function, kind = aggregate_function(call.function), bound_type(call.type)
    low, high = (_taken(found, f"{function.interval}_{side}", kind, places) for side in _SIDES)
    return (
        (low, high)
        if function.empty is None
        else (low.fill_null(function.empty), high.fill_null(function.empty))
    )


# --- what a user sees ---


def lookup_schema(query: Query) -> pa.Schema:
    """The columns of a lookup's result: those of the results of other queries, as far as they make sense."""
    schema = result_schema(query)
    taken = {item.name for item in query.items}
    gone = {free_name(name, taken) for name in _UNTOLD}
    fields = [field for field in schema if field.name not in gone]
    at = 2 + len(query.items)
    return pa.schema([*fields[:at], *_bound_fields(query), *fields[at:]])


def _bound_fields(query: Query) -> list[pa.Field]:
    if query.demand is None or query.demand.structure != "timegram":
        return []
    taken = {item.name for item in query.items}
    found = []
    for item in query.items:
        if not item.is_key:
            kind = bound_type(item.type)
            found += [pa.field(free_name(f"{item.name}_{side}", taken), kind) for side in _SIDES]
    return found


def lookup_result(answer: Answer, state: State, scalars: Scalars, made: int = 0) -> pa.Table:
    """The result of a lookup: its SELECT list applied, and whether all of its window was seen."""
    results = finish([answer.lowered], Moment(state.batch_id, made=made), scalars)
    return _shown(answer, results, answer.lookup.is_complete(state))


def _shown(answer: Answer, results: Results, is_complete: bool) -> pa.Table:
    query = answer.lookup.query
    schema = lookup_schema(query.query)
    if query.name not in results:
        return schema.empty_table()
    found = results[query.name]
    columns = {name: found[name] for name in schema.names if name in found.column_names}
    taken = {item.name for item in query.query.items}
    columns[free_name("complete", taken)] = pa.repeat(pa.scalar(is_complete), found.num_rows)
    for item in query.query.items if answer.lookup.query_stores.has_bounds else ():
        for side in () if item.is_key else _SIDES:
            columns[free_name(f"{item.name}_{side}", taken)] = answer.table[f"{item.sql.strip('`')}_{side}"]
    return pa.table([columns[name] for name in schema.names], schema=schema)
