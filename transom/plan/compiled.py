"""From a bound query to what the kernel runs: accumulators that its aggregates share, and pinned columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator
from transom.aggregates.functions import FUNCTIONS
from transom.sql.query import And, Call, Comparison, IsNull, Member, Not, Predicate, Query, Scalar


@dataclass(frozen=True)
class Slot:
    """An accumulator, what it accumulates, and which tuples it is shown (FILTER)."""

    accumulator: Accumulator
    argument: Scalar | None
    where: Predicate | None


@dataclass(frozen=True)
class CompiledQuery:
    """A query ready to run: `reads[i]` are the slots that its i-th aggregate is read off."""

    name: str
    query: Query
    slots: tuple[Slot, ...]
    reads: tuple[tuple[int, ...], ...]
    key_columns: Mapping[str, int]  # plain columns in GROUP BY, and their places
    pinned: Mapping[str, tuple[Any, ...]]  # plain columns that WHERE leaves only these values
    naive: bool = False  # keep every tuple, and rescan those of a window when it closes

    def state_schema(self) -> pa.Schema:
        """The columns of its partial aggregates: slice, keys, matching rows, accumulator states."""
        fields = [pa.field("slice", pa.int64())]
        fields += [pa.field(f"k{i}", key.scalar.type) for i, key in enumerate(self.query.keys)]
        fields.append(pa.field("rows", pa.int64()))
        for i, slot in enumerate(self.slots):
            fields += [pa.field(f"s{i}_{j}", kind) for j, kind in enumerate(slot.accumulator.types())]
        return pa.schema(fields)


def compile_query(name: str, query: Query, naive: bool = False) -> CompiledQuery:
    """Find the accumulators a query needs, each once."""
    slots: list[Slot] = []
    reads = []
    for call in query.calls:
        argument = call.args[0] if call.args else None
        needed = FUNCTIONS[call.function].accumulators(argument and argument.type, call.parameters)
        places = []
        for accumulator in needed:
            slot = Slot(accumulator, argument, _shown(call))
            if slot not in slots:
                slots.append(slot)
            places.append(slots.index(slot))
        reads.append(tuple(places))
    keys = {key.scalar.column: i for i, key in enumerate(query.keys) if key.scalar.column is not None}
    pinned: dict[str, tuple[Any, ...]] = {}
    for column, values in _pins(query.where):
        pinned[column] = tuple(value for value in values if value in pinned.get(column, values))
    return CompiledQuery(name, query, tuple(slots), tuple(reads), keys, pinned, naive)


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


def plain_value(value: Any) -> Any:
    """A value as patterns compare it: instants as microseconds, everything else as it is."""
    if isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us")).value
    return value
