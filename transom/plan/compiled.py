"""From a bound query to what the kernel runs: accumulators that its aggregates share, and pinned columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Moments, columns_in_moments
from transom.aggregates.table import AggregateFunction, aggregate_function
from transom.durations import parse_instant
from transom.elements import Clock, Using
from transom.plan.predicate_text import predicate_text
from transom.sql.query import (
    And,
    Call,
    Comparison,
    IsNull,
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
    """An accumulator, what it accumulates, and which tuples it is shown (FILTER)."""

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
    def server(self) -> Slot | None:
        """A slot that it could be read off: the moments of the same values."""
        if self.argument is None or columns_in_moments(self.accumulator) is None:
            return None
        return Slot(Moments(), self.argument, self.where)


class Shape:
    """The shape of a SELECT list: equal shapes are one object, which is quickly compared."""


_shapes: WeakValueDictionary[object, Shape] = WeakValueDictionary()
_clocks: WeakValueDictionary[Clock, Clock] = WeakValueDictionary()


@dataclass(frozen=True)
class CompiledQuery:
    """A query ready to run: `functions[i]` is the function of its i-th aggregate, read off the slots `reads[i]`.

    Not all of its slots need be kept: some are served by others.
    """

    name: str
    query: Query
    functions: tuple[AggregateFunction, ...]
    slots: tuple[Slot, ...]
    reads: tuple[tuple[int, ...], ...]
    key_columns: Mapping[str, int]  # plain columns in GROUP BY, and their places
    pinned: Mapping[str, tuple[Any, ...]]  # plain columns that WHERE leaves only these values
    naive: bool = False  # keep every tuple, and rescan those of a window when it closes

    @property
    def is_on_demand(self) -> bool:
        """Whether the query is looked up and reports nothing by itself."""
        return self.query.is_on_demand

    @property
    def is_standing(self) -> bool:
        """Whether the results of the query's windows are pushed."""
        return self.query.is_standing

    @property
    def using(self) -> Using:
        """The structure in which it is looked up."""
        return self.query.using if isinstance(self.query, OnDemandQuery) else Using()

    @cached_property
    def clock(self) -> Clock:
        """What its windows follow: equal clocks of queries are one object, which is quickly compared."""
        return _clocks.setdefault(self.query.clock, self.query.clock)

    @cached_property
    def spec(self) -> tuple[int, int, int]:
        """Range, slide and phase of its windows."""
        window = self.query.window
        return window.range, window.slide, window.phase

    @cached_property
    def slot_ids(self) -> tuple[str, ...]:
        """The ids of the query's slots."""
        return tuple(slot.id for slot in self.slots)

    @cached_property
    def serves(self) -> bool:
        """Whether it keeps what other queries could read, too."""
        return any(slot.accumulator == Moments() for slot in self.slots)

    @cached_property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """The parts of WHERE that must all be true."""
        where = self.query.where
        return () if where is None else where.parts if isinstance(where, And) else (where,)

    @cached_property
    def selection(self) -> str:
        """Which tuples it asks for and how they are grouped, as a name: queries that agree share slices."""
        bound = self.query
        parts = [f"{bound.stream} by {bound.clock.attribute or 'rows'}"]
        parts += [f"join {join.table} on {join.on}" for join in sorted(bound.joins, key=lambda join: join.id)]
        if bound.where is not None:
            parts.append(f"where {' AND '.join(sorted(map(predicate_text, self.conjuncts)))}")
        if bound.keys:
            parts.append(f"group by {', '.join(key.scalar.sql for key in bound.keys)}")
        return " ".join(parts)

    @cached_property
    def shape(self) -> Shape:
        """What two queries have in common whose results can be finished together."""
        bound = self.query
        calls = tuple((call.function, call.type, call.parameters) for call in bound.calls)
        keys = tuple(key.scalar.type for key in bound.keys)
        compared = None if bound.kept is None else frozenset(one.sql for one in scalars_of(bound.kept))
        parts = calls, self.reads, bound.items, compared, keys, bound.clock_type, bound.emit is None
        return _shapes.setdefault(parts, Shape())


def compile_query(name: str, query: Query, naive: bool = False) -> CompiledQuery:
    """Find the accumulators a query needs, each once."""
    slots: list[Slot] = []
    reads = []
    for call in query.calls:
        argument = call.args[0] if call.args else None
        places = []
        for accumulator in _needed(call):
            slot = Slot(accumulator, argument, _shown(call))
            if slot not in slots:
                slots.append(slot)
            places.append(slots.index(slot))
        reads.append(tuple(places))
    keys = {key.scalar.column: i for i, key in enumerate(query.keys) if key.scalar.column is not None}
    pinned: dict[str, tuple[Any, ...]] = {}
    for column, values in _pins(query.where):
        pinned[column] = tuple(value for value in values if value in pinned.get(column, values))
    functions = tuple(aggregate_function(call.function) for call in query.calls)
    return CompiledQuery(name, query, functions, tuple(slots), tuple(reads), keys, pinned, naive)


def _needed(call: Call) -> tuple[Accumulator, ...]:
    input = call.args[0].type if call.args else None
    return aggregate_function(call.function).accumulators(input, call.parameters)


def _shown(call: Call) -> Predicate | None:
    """Which tuples an aggregate is shown: count(a, b) counts a where b is not null, too."""
    parts: list[Predicate] = [Not(IsNull(scalar)) for scalar in call.args[1:]]
    if call.where is not None:
        parts.append(call.where)
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _pins(predicate: Predicate | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    match predicate:
        case And(parts):
            for part in parts:
                yield from _pins(part)
        case Comparison(Scalar(column=str(column)), "=", value):
            yield column, (plain_value(value),)
        case Member(Scalar(column=str(column)), values):
            yield column, tuple(map(plain_value, values))


def typed_value(value: Any, kind: pa.DataType) -> Any:
    """A value in a column's type; what stands for a time, a date or a decimal, as in JSON, is read as such.

    >>> typed_value("2013-01-01", pa.date32()), typed_value(12.5, pa.decimal128(10, 2))
    (datetime.date(2013, 1, 1), Decimal('12.50'))
    """
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        return pa.scalar(parse_instant(value), pa.int64()).cast(pa.timestamp("us")).cast(kind).as_py()
    is_text = isinstance(value, str) and (pa.types.is_date(kind) or pa.types.is_decimal(kind))
    if is_text or (isinstance(value, float | int) and pa.types.is_decimal(kind)):
        return pa.scalar(str(value)).cast(kind).as_py()
    return pa.scalar(value, kind).as_py()


def plain_value(value: Any) -> Any:
    """A value as patterns compare it: instants as microseconds, everything else as it is."""
    if isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us")).value
    return value
