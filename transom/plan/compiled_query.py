"""Compiled queries: the accumulators that the aggregates of a bound query share, and its pinned columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import (
    Accumulator,
    CountRows,
    Extreme,
    Moments,
    Sum,
    columns_in_moments,
)
from transom.aggregates.table import AggregateFunction, aggregate_function
from transom.columns.table_columns import aggregate_column, group_column
from transom.durations import parse_instant
from transom.elements import Clock, Using
from transom.plan.conjunction import Conjunction
from transom.plan.predicate_text import predicate_text
from transom.sql.query import (
    And,
    Call,
    Comparison,
    IsNull,
    Item,
    Member,
    Not,
    OnDemandQuery,
    Predicate,
    Query,
    Scalar,
    scalars_of,
)


@dataclass(frozen=True)
class Slot:
    """An accumulator with its argument and the tuples that it takes (FILTER)."""

    accumulator: Accumulator
    argument: Scalar | None
    where: Predicate | None

    @cached_property
    def id(self) -> str:
        """The id in checkpoints: equal slots of different queries are kept once."""
        argument = "*" if self.argument is None else self.argument.sql
        where = "" if self.where is None else f" where {predicate_text(self.where)}"
        return f"{self.accumulator.id} of {argument}{where}"

    @cached_property
    def substitute(self) -> Slot | None:
        """A slot that holds the same and more: the moments of the same values."""
        if self.argument is None or columns_in_moments(self.accumulator) is None:
            return None
        return Slot(Moments(), self.argument, self.where)


@dataclass(frozen=True)
class Aggregates:
    """The aggregates of a SELECT list: the i-th is `functions[i]` over the states of the slots `reads[i]`."""

    functions: tuple[AggregateFunction, ...]
    slots: tuple[Slot, ...]
    reads: tuple[tuple[int, ...], ...]

    @cached_property
    def slot_ids(self) -> tuple[str, ...]:
        """The ids of the slots."""
        return tuple(slot.id for slot in self.slots)


class Shape:
    """The shape of a SELECT list. Equal shapes are one object, so that they compare fast."""


_shapes: WeakValueDictionary[object, Shape] = WeakValueDictionary()
_clocks: WeakValueDictionary[Clock, Clock] = WeakValueDictionary()


@dataclass(frozen=True)
class CompiledQuery:
    """A query ready to run.

    A selection need not keep all slots of its aggregates: some can be read from others.
    """

    name: str
    query: Query
    aggregates: Aggregates
    where: Conjunction
    key_columns: Mapping[str, int]  # the plain columns in GROUP BY, each with its place
    pinned: Mapping[str, tuple[Any, ...]]  # the plain columns that WHERE restricts to some values
    naive: bool = False  # keeps every tuple, and rescans those of a window when it closes

    @property
    def bound(self) -> Query:
        """The query with its names and types resolved."""
        return self.query

    @cached_property
    def is_on_demand(self) -> bool:
        """Whether the query emits no results, and lookups answer it."""
        return self.query.is_on_demand

    @cached_property
    def is_standing(self) -> bool:
        """Whether the results of the query's windows are pushed."""
        return self.query.is_standing

    @cached_property
    def is_row_query(self) -> bool:
        """Whether the query has no window, and each row that satisfies it is a result."""
        return self.query.is_row_query

    @property
    def using(self) -> Using:
        """The structure in which it is looked up."""
        return self.query.using if isinstance(self.query, OnDemandQuery) else Using()

    @cached_property
    def clock(self) -> Clock:
        """The clock of its windows. Equal clocks are one object, so that they compare fast."""
        return _clocks.setdefault(self.query.clock, self.query.clock)

    @cached_property
    def gap(self) -> int | None:
        """The gap of its sessions; None if it has other windows."""
        window = self.query.window
        return window.range if window.is_session else None

    @property
    def is_keyed(self) -> bool:
        """Whether its windows are those of the rows of each key.

        All rows of a key have a number, whether they satisfy WHERE or not. So WHERE is a condition of its slots, and
        its last slot counts the rows that satisfy it.
        """
        return self.query.window.is_keyed

    @property
    def is_combined(self) -> bool:
        """Whether it reads combined pairs."""
        return self.query.stream_join is not None and self.query.stream_join.is_combined

    @property
    def functions(self) -> tuple[AggregateFunction, ...]:
        """The functions of its aggregates."""
        return self.aggregates.functions

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The accumulators of its aggregates, each once."""
        return self.aggregates.slots

    @property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The places of the slots that each aggregate reads."""
        return self.aggregates.reads

    @property
    def slot_ids(self) -> tuple[str, ...]:
        """The ids of its slots."""
        return self.aggregates.slot_ids

    @cached_property
    def closing_columns(self) -> Mapping[str, int]:
        """The group columns by which windows close group by group: none if all groups of a window close at once."""
        return {} if self.needs_all_groups else self.key_columns

    @cached_property
    def needs_all_groups(self) -> bool:
        """Whether the results of a window are made of all its groups at once: LIMIT, LAG and EMIT EMPTY need that."""
        return self.query.top is not None or self.reads_earlier_windows

    @cached_property
    def reads_earlier_windows(self) -> bool:
        """Whether the results of a window depend on the windows before it: its windows close in order."""
        return self.query.reads_earlier_windows

    def prepare(self) -> CompiledQuery:
        """Derive what planning needs of this query alone, so that the batch that it joins with need not."""
        _ = self.interest_key, self.shape, self.query.scalar_texts, self.where.rest_of
        return self

    def without_select_list(self) -> CompiledQuery:
        """The query whose results are the groups and aggregates themselves."""
        keys, calls = self.query.keys, self.query.calls
        columns = {group_column(place): key.scalar.type for place, key in enumerate(keys)}
        columns |= {aggregate_column(place): call.type for place, call in enumerate(calls)}
        items = tuple(Item(name, f"`{name}`", kind) for name, kind in columns.items())
        bare = replace(self.query, items=items, having=None, kept=None, top=None)
        bare = replace(bare, lags=(), emit=None, empty=None, corrections=None, early_decision=None)
        return replace(self, query=bare)

    @cached_property
    def has_moments(self) -> bool:
        """Whether it keeps moments, from which other queries can read sums and counts."""
        return any(slot.accumulator == Moments() for slot in self.slots)

    @property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """The conditions that WHERE combines with AND."""
        return self.where.parts

    @property
    def conjunct_texts(self) -> tuple[str, ...]:
        """The texts of the conjuncts."""
        return self.where.texts

    @cached_property
    def selection(self) -> str:
        """The id in checkpoints of its tuples and groups: queries with the same selection share slices."""
        bound = self.query
        parts = [f"{bound.stream} by {bound.clock.attribute or 'rows'}"]
        parts += [f"in sessions of {self.gap}"] if self.gap is not None else []
        parts += ["in windows of keys"] if self.is_keyed else []
        parts += [f"join {join.table} on {join.on}" for join in sorted(bound.joins, key=lambda join: join.id)]
        if bound.where is not None and not self.is_keyed:
            parts.append(f"where {' AND '.join(sorted(self.conjunct_texts))}")
        if bound.keys:
            parts.append(f"group by {', '.join(key.scalar.sql for key in bound.keys)}")
        return " ".join(parts)

    @cached_property
    def interest_key(self) -> tuple[object, ...]:
        """What queries have in common that want the same rows, and for which the same rows are late."""
        return self.selection, self.needs_all_groups, self.reads_earlier_windows, self.query.retention

    @cached_property
    def shape(self) -> Shape:
        """The shape of its results: queries of the same shape are finished together."""
        bound = self.query
        calls = tuple((call.function, call.type, call.parameters) for call in bound.calls)
        keys = tuple(key.scalar.type for key in bound.keys)
        compared = None if bound.kept is None else frozenset(one.sql for one in scalars_of(bound.kept))
        order = None if bound.top is None else bound.top.order
        decided = None if bound.early_decision is None else bound.early_decision.scalars
        across = bound.lags, bound.empty is None
        parts = (
            calls,
            self.reads,
            bound.items,
            compared,
            order,
            keys,
            bound.clock_type,
            bound.emit is None,
            bound.corrections is None,
            decided,
            across,
        )
        return _shapes.setdefault(parts, Shape())


def compile_query(name: str, query: Query, naive: bool = False) -> CompiledQuery:
    """Compile a query."""
    is_keyed = query.window.is_keyed
    keys = {key.scalar.column: i for i, key in enumerate(query.keys) if key.scalar.column is not None}
    pinned: dict[str, tuple[Any, ...]] = {}
    for column, values in () if is_keyed else _pins(query.where):
        pinned[column] = tuple(value for value in values if value in pinned.get(column, values))
    naive = naive and query.window.is_shared_by_groups  # others have one form of state
    conjunction = Conjunction.of(None if is_keyed else query.where)
    return CompiledQuery(name, query, _aggregates(query), conjunction, keys, pinned, naive)


MOST_SHARED_AGGREGATES = 4_096  # most programs have many queries and few SELECT lists
# By the id of the calls, which an entry keeps alive, so that no other object gets the id. Engines and threads share it:
# aggregates never change, and two threads that make the same ones at once only make one of them in vain.
_shared_aggregates: dict[int, tuple[tuple[Call, ...], Aggregates]] = {}


def _aggregates(query: Query) -> Aggregates:
    """The aggregates of a query: one object for all queries whose calls are the very same object."""
    functions = tuple([aggregate_function(call.function) for call in query.calls])
    if query.window.is_keyed or (query.stream_join is not None and query.stream_join.is_combined):
        return _own_aggregates(query, functions)
    calls, aggregates = _shared_aggregates.get(id(query.calls), (None, None))
    if aggregates is None or calls is not query.calls or aggregates.functions != functions:
        if len(_shared_aggregates) >= MOST_SHARED_AGGREGATES:
            _shared_aggregates.clear()
        aggregates = _own_aggregates(query, functions)
        _shared_aggregates[id(query.calls)] = query.calls, aggregates
    return aggregates


def _own_aggregates(query: Query, functions: tuple[AggregateFunction, ...]) -> Aggregates:
    """The aggregates of a query: every accumulator that they need becomes one slot."""
    slots: list[Slot] = []
    reads = []
    for call in query.calls:
        places = []
        for slot in _slots_of(call, query):
            if slot not in slots:
                slots.append(slot)
            places.append(slots.index(slot))
        reads.append(tuple(places))
    if query.window.is_keyed:
        slots.append(Slot(CountRows(), None, query.where))
    return Aggregates(functions, tuple(slots), tuple(reads))


def _slots_of(call: Call, query: Query) -> Iterator[Slot]:
    """The slots of an aggregate."""
    if query.stream_join is not None and query.stream_join.is_combined:
        yield from _combined_slots(call)
        return
    argument = call.args[0] if call.args else None
    condition = _condition(call, query.where if query.window.is_keyed else None)
    for accumulator in _accumulators(call):
        yield Slot(accumulator, argument, condition)


def _combined_slots(call: Call) -> Iterator[Slot]:
    """The slots of an aggregate over combined pairs: counts and sums add up, extremes stay extremes."""
    for argument in call.args:
        accumulators = _accumulators(replace(call, args=(argument,)))
        is_extreme = all(isinstance(accumulator, Extreme) for accumulator in accumulators)
        yield Slot(accumulators[0] if is_extreme else Sum(argument.type), argument, None)


def _accumulators(call: Call) -> tuple[Accumulator, ...]:
    input = call.args[0].type if call.args else None
    return aggregate_function(call.function).accumulators(input, call.parameters)


def _condition(call: Call, where: Predicate | None) -> Predicate | None:
    """The condition for tuples that an aggregate takes: FILTER, and for count(a, b) that b is not null."""
    parts: list[Predicate] = [Not(IsNull(scalar)) for scalar in call.args[1:]]
    parts += [part for part in (call.where, where) if part is not None]
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _pins(predicate: Predicate | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    match predicate:
        case And(parts):
            for part in parts:
                yield from _pins(part)
        case Comparison(Scalar(column=str(column)), "=", value):
            yield column, (pattern_value(value),)
        case Member(Scalar(column=str(column)), values):
            yield column, tuple(map(pattern_value, values))


def typed_value(value: Any, kind: pa.DataType, zone: str = "UTC") -> Any:
    """A value in a column's type; times, dates and decimals may be written as text or as numbers, as in JSON.

    Text of a time without an offset is in the zone.

    >>> typed_value("2013-01-01", pa.date32()), typed_value(12.5, pa.decimal128(10, 2))
    (datetime.date(2013, 1, 1), Decimal('12.50'))
    """
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        instant = parse_instant(value, zone if kind.tz is not None else "UTC")
        return pa.scalar(instant, pa.int64()).cast(pa.timestamp("us")).cast(kind).as_py()
    is_text = isinstance(value, str) and (pa.types.is_date(kind) or pa.types.is_decimal(kind))
    if is_text or (isinstance(value, float | int) and pa.types.is_decimal(kind)):
        return pa.scalar(str(value)).cast(kind).as_py()
    if pa.types.is_integer(kind) and has_fraction(value):
        raise pa.ArrowInvalid("it is no whole number")  # Arrow would cut it off
    try:
        return pa.scalar(value, kind).as_py()
    except OverflowError:
        raise pa.ArrowInvalid(f"it is too large for {kind}") from None


def has_fraction(value: object) -> bool:
    """Whether a value is a number, and no whole one: Arrow and `int` would cut it off.

    >>> [has_fraction(value) for value in (1.5, Decimal("2.5"), float("inf"), 2.0, 2, "2.5")]
    [True, True, True, False, False, False]
    """
    if not isinstance(value, float | Decimal | np.floating):
        return False
    try:
        return value != int(value)
    except (ArithmeticError, ValueError):  # infinities, NaN
        return True


def pattern_value(value: Any) -> Any:
    """A value as patterns compare it: an instant as microseconds, any other value unchanged."""
    if isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us")).value
    return value
