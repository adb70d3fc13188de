"""Answers a lookup: from a query's stores to its result for the window that ends now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.table import aggregate_function
from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.columns.table_columns import aggregate_column, bound_column, group_column, group_columns
from transom.errors import SettingError, near_miss
from transom.ondemand.finer_stores import FinerStores
from transom.ondemand.midpoint import midpoints
from transom.ondemand.store_specs import QueryStores, StoreRead, store_id, stores_read_by
from transom.ondemand.structures.group_index import match_pattern
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern
from transom.plan.compiled_query import CompiledQuery, typed_value
from transom.results.result_rows import LoweredWindows, Moment, Results, finish, result_schema
from transom.sql.catalog import Scalars
from transom.sql.query import Call, Query, free_name
from transom.state.state import State
from transom.windows.arrivals import Arrivals
from transom.windows.ids import trailing_start
from transom.windows.intervals import IntervalSet

ReadStore = Callable[[str, StoreRead, int], GroupAnswers]  # (store name, how to read it, since)
GroupFilter = Mapping[str, Any] | None
_EMIT_COLUMNS = ("kind", "rows", "late", "latency")  # only results that are emitted have these
_SIDES = ("low", "high")


@dataclass(frozen=True)
class Lookup:
    """A query and the window `[start, end)` to answer; `where` is a pattern on the groups.

    The window ends just after the newest row, or `later` than that. The stores are those of the query's own
    groups, or of `finer` ones.
    """

    query: CompiledQuery
    start: int
    end: int
    where: GroupPattern = ()
    later: bool = False
    finer: FinerStores | None = None

    @classmethod
    def over(cls, query: CompiledQuery, length: int, end: int, *rest: Any) -> Lookup:
        """A lookup for a window of some length, cut off at the lowest representable time."""
        return cls(query, trailing_start(length, end), end, *rest)

    @cached_property
    def query_stores(self) -> QueryStores:
        """The stores that the query reads."""
        return stores_read_by(self.query)

    @cached_property
    def stores(self) -> dict[str, StoreRead]:
        """How the lookup reads its stores, by their names."""
        query_stores = self.query_stores
        reads = (query_stores.groups_read, *query_stores.reads)
        return {self.store_id(read): read for read in reads}

    def store_id(self, read: StoreRead) -> str:
        """The name of a store that the lookup reads."""
        return store_id(self.query.selection if self.finer is None else self.finer.selection, read.spec)

    @cached_property
    def pattern(self) -> GroupPattern:
        """The pattern on the groups of the stores."""
        return self.where if self.finer is None else self.finer.pattern(self.where)

    def is_complete(self, state: State) -> bool:
        """Whether the stores have seen all rows of the window."""
        stream, clock = state.stream(self.query.query.stream), self.query.clock
        missing = stream.clock(clock).arrivals.shed | stream.held(clock)
        is_missing = missing.meets(np.array([self.start]), np.array([self.end]))[0]
        return not is_missing and self.is_in_stores(state)

    def is_in_stores(self, state: State) -> bool:
        """Whether the stores have seen all rows of the window that were accepted."""
        return all(state.stores[key].is_complete(self.start, self.end) for key in self.stores)


@dataclass(frozen=True)
class Answer:
    """A lookup's answer before the SELECT list is applied.

    The columns are `k0`.., `a0`.., `window_start`, `window_end` and `rows`; a TimeGram adds the intervals,
    `a0_low`, `a0_high`..
    """

    lookup: Lookup
    table: pa.Table

    @property
    def lowered(self) -> LoweredWindows:
        """The answer in the form of a closed window."""
        which = np.zeros(self.table.num_rows, np.int64)
        return LoweredWindows([self.lookup.query], which, self.table, [IntervalSet()], [True], [Arrivals()])


def look_up(lookup: Lookup, read: ReadStore) -> Answer:
    """Answer a lookup from its stores, which `read` reads."""
    return answer_from(lookup, lambda one: regrouped_read(lookup, read, one))


def regrouped_read(lookup: Lookup, read: ReadStore, store_read: StoreRead) -> GroupAnswers:
    """What a lookup reads from one store, for the groups of its query."""
    found = read(lookup.store_id(store_read), store_read, lookup.start)
    return found if lookup.finer is None else lookup.finer.regrouped(found, store_read.structure)


def answer_from(lookup: Lookup, read: Callable[[StoreRead], GroupAnswers]) -> Answer:
    """Answer a lookup from what `read` returns for each store, for the groups of the query."""
    query_stores, bound = lookup.query_stores, lookup.query.query
    groups = read(query_stores.groups_read)
    chosen = _matching(lookup, groups) if groups.count else np.zeros(0, np.int64)
    if not len(chosen):
        return Answer(lookup, answer_schema(bound).empty_table())
    answers = [read(one) for one in query_stores.reads]
    positions = [group_positions(groups, one)[chosen] for one in answers]
    columns = {group_column(i): key.take(pa.array(chosen)) for i, key in enumerate(groups.keys)}
    if query_stores.has_bounds:
        for i, (call, answer, at) in enumerate(zip(bound.calls, answers, positions, strict=True)):
            low, high = _bounds(call, answer, at)
            columns[aggregate_column(i)] = midpoints(low, high, call.type)
            columns |= {bound_column(i, "low"): low, bound_column(i, "high"): high}
    else:
        states = [
            _states(slot.accumulator, answer, at)
            for slot, answer, at in zip(lookup.query.slots, answers, positions, strict=True)
        ]
        calls = zip(bound.calls, lookup.query.functions, lookup.query.reads, strict=True)
        for i, (call, function, slots) in enumerate(calls):
            call_states = [states[slot] for slot in slots]
            columns[aggregate_column(i)] = function.lower(call_states, call.type, call.parameters)
    for name, time in (("window_start", lookup.start), ("window_end", lookup.end)):
        columns[name] = pa.array(np.full(len(chosen), time)).cast(bound.clock_type)
    columns["rows"] = pa.nulls(len(chosen), pa.int64())
    return Answer(lookup, pa.table(columns))


def answer_schema(query: Query) -> pa.Schema:
    """The columns of a query's answers."""
    fields = [(group_column(i), key.scalar.type) for i, key in enumerate(query.keys)]
    for i, call in enumerate(query.calls):
        fields.append((aggregate_column(i), call.type))
        if query.has_bounds:
            fields += [(bound_column(i, side), bound_type(call.type)) for side in _SIDES]
    fields += [(name, query.clock_type) for name in ("window_start", "window_end")]
    return pa.schema([*fields, ("rows", pa.int64())])


def bound_type(kind: pa.DataType) -> pa.DataType:
    """The type of the ends of an interval around a value of some type."""
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _matching(lookup: Lookup, groups: GroupAnswers) -> Ints:
    """The positions of the groups that match the lookup's pattern, ordered by key."""
    chosen = np.flatnonzero(match_pattern(groups.keys, groups.count, lookup.where))
    if not groups.keys or any(pa.types.is_nested(key.type) for key in groups.keys):
        return chosen
    names = group_columns(len(groups.keys))
    table = pa.table([key.take(pa.array(chosen)) for key in groups.keys], names=names)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return chosen[order.to_numpy()]


def group_pattern(query: CompiledQuery, where: GroupFilter, zone: str = "UTC") -> GroupPattern:
    """A pattern on groups: maps columns of a query's results or of its stream to a value or a list of values.

    Times without an offset are in the zone.
    """
    if where is not None and not isinstance(where, Mapping):
        raise SettingError(f"where is a mapping from columns to values, not {where!r}")
    bound = query.query
    places = {column.casefold(): place for column, place in query.key_columns.items()}
    places |= {key.name.casefold(): place for place, key in enumerate(bound.keys)}
    places |= {item.name.casefold(): int(item.sql[2:-1]) for item in bound.items if item.is_key}
    pattern = []
    for name, given in (where or {}).items():
        place = places.get(str(name).casefold())
        if place is None:
            names = [item.name for item in bound.items if item.is_key]
            raise SettingError(f"the query does not group by {name}{near_miss(str(name), names)}")
        values = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
        type = bound.keys[place].scalar.type
        try:
            pattern.append((place, tuple(typed_value(value, type, zone) for value in values)))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SettingError(f"{name} can't be {given!r}: {error}") from error
    return tuple(pattern)


def group_positions(base: GroupAnswers, other: GroupAnswers) -> Ints:
    """The position of each group of one answer in another; -1 where it is missing.

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


def _column_at(answers: GroupAnswers, name: str, kind: pa.DataType, places: Ints) -> pa.Array:
    """A column of answers at the given group positions; null at position -1."""
    if not answers.count:
        return pa.nulls(len(places), kind)
    return answers.columns[name].take(pa.array(places, mask=places < 0)).cast(kind)


def _states(accumulator: Accumulator, answers: GroupAnswers, places: Ints) -> States:
    """A slot's states for each group; the identity where there is none."""
    states = []
    for i, (nothing, kind) in enumerate(zip(accumulator.identity(), accumulator.types(), strict=True)):
        column = _column_at(answers, f"s{i}", kind, places)
        states.append(column if nothing is None else column.fill_null(nothing))
    return states


def _bounds(call: Call, answers: GroupAnswers, places: Ints) -> tuple[pa.Array, pa.Array]:
    """The interval of an aggregate for each group; null where it has no values, but 0 for a count."""
    function, type = aggregate_function(call.function), bound_type(call.type)
    low, high = (_column_at(answers, f"{function.interval}_{side}", type, places) for side in _SIDES)
    if function.empty is None:
        return low, high
    return low.fill_null(function.empty), high.fill_null(function.empty)


# --- the result table ---


def lookup_schema(query: Query) -> pa.Schema:
    """The columns of a lookup's result: those of an emitted result without `kind`, `rows`, `late` and `latency`.

    A TimeGram adds the ends of the intervals.
    """
    schema = result_schema(query)
    taken = {item.name for item in query.items}
    left_out = {free_name(name, taken) for name in _EMIT_COLUMNS}
    fields = [field for field in schema if field.name not in left_out]
    at = 2 + len(query.items)
    return pa.schema([*fields[:at], *_bound_fields(query), *fields[at:]])


def _bound_fields(query: Query) -> list[pa.Field]:
    if not query.has_bounds:
        return []
    taken = {item.name for item in query.items}
    bound_fields = []
    for item in query.items:
        if not item.is_key:
            kind = bound_type(item.type)
            bound_fields += [pa.field(free_name(f"{item.name}_{side}", taken), kind) for side in _SIDES]
    return bound_fields


def lookup_result(answer: Answer, state: State, scalars: Scalars, made: int = 0) -> pa.Table:
    """The result of a lookup: the SELECT list, and whether the stores have seen all rows of the window."""
    results = finish([answer.lowered], Moment(state.batch_id, made=made), scalars)
    return _result_table(answer, results, answer.lookup.is_complete(state))


def _result_table(answer: Answer, results: Results, is_complete: bool) -> pa.Table:
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
