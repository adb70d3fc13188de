"""Which stores an on-demand query reads, and what a set of shared stores holds.

A query reads one store per attribute, and one store of the groups that have tuples in the window.
Queries over the same tuples and groups share stores even if their windows differ: the longest window decides how
far back a store reaches. Paper: Aggregate Sharing in Stream Databases, sections 3.2.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, Extreme
from transom.columns.type_ids import type_id
from transom.columns.types import is_number
from transom.elements import Clock, Using
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.timegram import TIMEGRAM_BUCKETS, TimeGram
from transom.ondemand.structures.value_structures import RawTuples, ValueStructure
from transom.plan.compiled_query import CompiledQuery
from transom.plan.predicate_text import predicate_text
from transom.sql.query import And, IsNull, Not, Predicate, Scalar, scalars_of

NEWEST_TIMES = Staircase(Extreme(pa.int64(), "max"))  # over the tuples' times: one entry per group


@dataclass(frozen=True)
class StoreSpec:
    """A store's content: the `attribute` of the tuples that match `where` (the FILTER), in a `structure`.

    A store with `keeps_times` keeps the times of tuples. One without an attribute counts tuples.
    """

    attribute: Scalar | None
    where: Predicate | None
    structure: Structure
    keeps_times: bool = False

    @cached_property
    def id(self) -> str:
        """The id in checkpoints, among the stores over the same tuples."""
        kind = "" if self.attribute is None else f" {type_id(self.attribute.type)}"
        return f"{self.structure.id} of {self._what}{kind}{self._where}"

    @property
    def text(self) -> str:
        """The store's content as text for users."""
        return f"{structure_name(self.structure)} of {self._what}{self._where}"

    @property
    def _what(self) -> str:
        return "times" if self.keeps_times else "rows" if self.attribute is None else self.attribute.sql

    @property
    def _where(self) -> str:
        return "" if self.where is None else f" where {predicate_text(self.where)}"


@dataclass(frozen=True)
class StoreRead:
    """The store and the structure from which a lookup reads one accumulator or one interval."""

    spec: StoreSpec
    structure: Structure


@dataclass(frozen=True)
class QueryStores:
    """The stores that a lookup of a query reads.

    `groups` is the store of the groups that have tuples in the window. There is one read per slot, or
    with `has_bounds` (a TimeGram) one per aggregate call. With `uses_ordered_sharing`, OrderedSharing finds
    MIN and MAX in the stores' tuples.
    """

    groups: StoreSpec
    reads: tuple[StoreRead, ...]
    has_bounds: bool = False
    uses_ordered_sharing: bool = False

    @property
    def groups_read(self) -> StoreRead:
        """How a lookup reads the groups."""
        return StoreRead(self.groups, self.groups.structure)

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        """The distinct stores."""
        return tuple({spec.id: spec for spec in (self.groups, *(read.spec for read in self.reads))}.values())


def structure_name(structure: Structure) -> str:
    """The name of a store's structure, for users."""
    match structure:
        case Staircase():
            return f"{'max' if structure.is_greatest else 'min'} staircase"
        case TimeGram():
            return "timegram"
    return "values"


def stores_read_by(query: CompiledQuery) -> QueryStores:
    """The stores that an on-demand query needs."""
    using = query.using
    groups = StoreSpec(None, None, NEWEST_TIMES, keeps_times=True)
    if using.structure == "timegram":
        return QueryStores(groups, tuple(_timegram_reads(query, using)), has_bounds=True)
    scans = query.naive or using.structure != "exact"
    reads = []
    for slot in query.slots:
        structure = RawTuples(slot.accumulator) if scans else exact_structure(slot.accumulator)
        argument = slot.argument if slot.accumulator.traits.reads_values else None
        spec = StoreSpec(argument, slot.where, _stored_structure(slot.accumulator, structure))
        reads.append(StoreRead(spec, structure))
    uses_ordered_sharing = using.structure == "ordered_sharing" and not query.naive
    return QueryStores(groups, tuple(reads), uses_ordered_sharing=uses_ordered_sharing)


def _stored_structure(accumulator: Accumulator, structure: Structure) -> Structure:
    """The structure of the store that a structure reads; structures over plain values share one store."""
    return RawTuples(accumulator) if isinstance(structure, ValueStructure) else structure


def _timegram_reads(query: CompiledQuery, using: Using) -> Iterable[StoreRead]:
    for call, slots in zip(query.query.calls, query.reads, strict=True):
        argument, where = (call.args[0] if call.args else None), query.slots[slots[0]].where
        if argument is not None and not is_number(argument.type):  # only COUNT takes such an argument
            parts = () if where is None else where.parts if isinstance(where, And) else (where,)
            not_null = Not(IsNull(argument))
            argument, where = None, And((not_null, *parts)) if parts else not_null
        type = None if argument is None else argument.type
        buckets = using.buckets or TIMEGRAM_BUCKETS
        structure = TimeGram(type, buckets, using.between, using.bounds, using.within, using.slice)
        yield StoreRead(StoreSpec(argument, where, structure), structure)


@dataclass(frozen=True)
class StoreSet:
    """The stores over one selection of tuples and groups, and the on-demand queries that share them.

    `stores` maps names to specs, the store of the groups first. `lengths` are the lengths of the windows
    that each store is read for.
    """

    selection: str
    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    stores: Mapping[str, StoreSpec]
    lengths: Mapping[str, frozenset[int]]
    queries: tuple[str, ...]
    by_length: Mapping[int, tuple[str, ...]]  # the queries by the lengths of their windows

    @cached_property
    def reach(self) -> Mapping[str, int]:
        """How far back each store reaches: the length of its longest window."""
        return {key: max(lengths) for key, lengths in self.lengths.items()}

    @property
    def range(self) -> int:
        """The length of the longest window."""
        return max(self.reach.values())


def store_scalars(store_sets: Iterable[StoreSet]) -> Iterator[Scalar]:
    """Every scalar that the stores need computed for a row, with repeats."""
    for store_set in store_sets:
        for part in store_set.conjuncts:
            yield from scalars_of(part)
        yield from store_set.keys
        for spec in store_set.stores.values():
            yield from scalars_of(spec.where)
            if spec.attribute is not None:
                yield spec.attribute


def store_id(selection: str, spec: StoreSpec) -> str:
    """The id in checkpoints of a store over a selection's tuples."""
    return f"{selection} | {spec.id}"
