"""What on-demand queries need kept: stores of an attribute's tuples, each read by every query that can be.

A query reads one store for each attribute, and one that tells which groups have tuples at all. Queries that
ask for the same tuples and groups share them, whatever their windows: the longest says how far they go back.
Paper: Aggregate Sharing, sections 3.2.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, CountRows, Extreme
from transom.columns.types import is_number
from transom.elements import Clock, Demand
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.timegram import BUCKETS, TimeGram
from transom.ondemand.structures.values import RawTuples, ValueStructure
from transom.plan.compiled import CompiledQuery
from transom.plan.predicate_text import predicate_text
from transom.sql.query import And, IsNull, Not, Predicate, Scalar
from transom.sql.query import scalars_of as predicate_scalars

NEWEST = Staircase(Extreme(pa.int64(), "max"))  # over the times themselves: one entry a group


@dataclass(frozen=True)
class StoreSpec:
    """A store: which values of which tuples (FILTER) it keeps, and how; `timed` ones keep the times."""

    attribute: Scalar | None
    shown: Predicate | None
    structure: Structure
    keeps_times: bool = False

    @cached_property
    def text(self) -> str:
        """What it keeps, in words that tell it from others over the same tuples."""
        what = "times" if self.keeps_times else "rows" if self.attribute is None else self.attribute.sql
        shown = "" if self.shown is None else f" where {predicate_text(self.shown)}"
        return f"{structure_name(self.structure)} of {what}{shown}"


@dataclass(frozen=True)
class StoreRead:
    """How one aggregate's accumulator, or its interval, is read: from which store, and with which recipe."""

    spec: StoreSpec
    structure: Structure


@dataclass(frozen=True)
class QueryStores:
    """What a query is looked up in: the store of its groups, and one glance a slot, or a call of a timegram.

    With `is_shared`, extremes are found by OrderedSharing over the stores' tuples.
    """

    newest: StoreSpec
    reads: tuple[StoreRead, ...]
    has_bounds: bool = False
    uses_ordered_sharing: bool = False

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        return tuple({spec.text: spec for spec in (self.newest, *(one.spec for one in self.reads))}.values())


def structure_name(structure: Structure) -> str:
    """What a store is called: recipes that keep the same have the same name."""
    match structure:
        case Staircase(Extreme(function=function)):
            return f"{function} staircase"
        case TimeGram():
            return repr(structure)
    return "values"


def stores_read_by(query: CompiledQuery) -> QueryStores:
    """What must be kept so that a query can be looked up."""
    demand = query.query.demand or Demand()
    newest = StoreSpec(None, None, NEWEST, keeps_times=True)
    if demand.structure == "timegram":
        return QueryStores(newest, tuple(_bounded(query, demand)), has_bounds=True)
    is_plain = query.naive or demand.structure != "exact"
    found = []
    for slot in query.slots:
        structure = RawTuples(slot.accumulator) if is_plain else exact_structure(slot.accumulator)
        argument = None if isinstance(slot.accumulator, CountRows) else slot.argument
        found.append(
            StoreRead(StoreSpec(argument, slot.where, _store(slot.accumulator, structure)), structure)
        )
    return QueryStores(
        newest, tuple(found), uses_ordered_sharing=demand.structure == "ordered_sharing" and not query.naive
    )


def _store(accumulator: Accumulator, structure: Structure) -> Structure:
    """How the store under a recipe is kept; all that keep values are alike."""
    return RawTuples(accumulator) if isinstance(structure, ValueStructure) else structure


def _bounded(query: CompiledQuery, demand: Demand) -> Iterable[StoreRead]:
    for call, slots in zip(query.query.calls, query.reads, strict=True):
        argument, shown = (call.args[0] if call.args else None), query.slots[slots[0]].where
        if argument is not None and not is_number(argument.type):  # then only its tuples are counted
            parts = () if shown is None else shown.parts if isinstance(shown, And) else (shown,)
            counted = Not(IsNull(argument))
            argument, shown = None, And((counted, *parts)) if parts else counted
        kind = None if argument is None else argument.type
        buckets = demand.buckets or BUCKETS
        structure = TimeGram(kind, buckets, demand.between, demand.bounds, demand.within, demand.slice)
        yield StoreRead(StoreSpec(argument, shown, structure), structure)


@dataclass(frozen=True)
class StoreSet:
    """The stores over the same tuples and groups, that of the groups first, by their names.

    `lengths` are those of the windows that each store is read for.
    """

    selection: str
    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    stores: Mapping[str, StoreSpec]
    lengths: Mapping[str, frozenset[int]]
    queries: tuple[str, ...]

    @cached_property
    def reach(self) -> Mapping[str, int]:
        """How far back each store goes."""
        return {key: max(lengths) for key, lengths in self.lengths.items()}

    @property
    def range(self) -> int:
        """How far back any of them goes."""
        return max(self.reach.values())


def scalars_of(store_sets: Iterable[StoreSet]) -> Iterator[Scalar]:
    """Every scalar that must be computed for a row, repeats included."""
    for store_set in store_sets:
        for part in store_set.conjuncts:
            yield from predicate_scalars(part)
        yield from store_set.keys
        for spec in store_set.stores.values():
            yield from predicate_scalars(spec.shown)
            if spec.attribute is not None:
                yield spec.attribute


def store_key(selection: str, spec: StoreSpec) -> str:
    """The name of a store over a selection's tuples."""
    return f"{selection} | {spec.text}"


def store_sets(queries: Sequence[CompiledQuery]) -> tuple[StoreSet, ...]:
    """What some on-demand queries need kept, together."""
    alike: dict[str, list[CompiledQuery]] = {}
    for query in queries:
        alike.setdefault(query.selection, []).append(query)
    found = []
    for selection, members in alike.items():
        first = members[0]
        kinds: dict[object, tuple[CompiledQuery, set[int]]] = {}
        for query in members:
            kind = query.query.demand, query.slot_keys, query.reads
            kinds.setdefault(kind, (query, set()))[1].add(query.query.window.range)
        specs: dict[str, StoreSpec] = {}
        lengths: dict[str, set[int]] = {}
        for query, own in kinds.values():
            for spec in stores_read_by(query).specs:
                specs.setdefault(key := store_key(selection, spec), spec)
                lengths.setdefault(key, set()).update(own)
        found.append(
            StoreSet(
                selection,
                first.query.clock,
                first.conjuncts,
                tuple(key.scalar for key in first.query.keys),
                specs,
                {key: frozenset(own) for key, own in lengths.items()},
                tuple(query.name for query in members),
            )
        )
    return tuple(found)
