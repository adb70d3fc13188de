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
from transom.elements import Clock, Demand
from transom.ondemand.structures.exact import Raw, exact
from transom.ondemand.structures.runs import Recipe
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.timegram import BUCKETS, TimeGram
from transom.ondemand.structures.values import Values
from transom.plan.compiled import CompiledQuery
from transom.plan.predicate_text import predicate_text
from transom.sql.query import And, IsNull, Not, Predicate, Scalar
from transom.sql.query import scalars_of as predicate_scalars

NEWEST = Staircase(Extreme(pa.int64(), "max"))  # over the times themselves: one entry a group


@dataclass(frozen=True)
class Want:
    """A store: which values of which tuples (FILTER) it keeps, and how; `timed` ones keep the times."""

    attribute: Scalar | None
    shown: Predicate | None
    recipe: Recipe
    timed: bool = False

    @cached_property
    def text(self) -> str:
        """What it keeps, in words that tell it from others over the same tuples."""
        what = "times" if self.timed else "rows" if self.attribute is None else self.attribute.sql
        shown = "" if self.shown is None else f" where {predicate_text(self.shown)}"
        return f"{kept_as(self.recipe)} of {what}{shown}"


@dataclass(frozen=True)
class Glance:
    """How one aggregate's accumulator, or its interval, is read: from which store, and with which recipe."""

    want: Want
    recipe: Recipe


@dataclass(frozen=True)
class Needs:
    """What a query is looked up in: the store of its groups, and one glance a slot, or a call of a timegram.

    With `is_shared`, extremes are found by OrderedSharing over the stores' tuples.
    """

    newest: Want
    glances: tuple[Glance, ...]
    has_bounds: bool = False
    is_shared: bool = False

    @property
    def wants(self) -> tuple[Want, ...]:
        return tuple(
            {want.text: want for want in (self.newest, *(one.want for one in self.glances))}.values()
        )


def kept_as(recipe: Recipe) -> str:
    """What a store is called: recipes that keep the same have the same name."""
    match recipe:
        case Staircase(Extreme(function=function)):
            return f"{function} staircase"
        case TimeGram():
            return repr(recipe)
    return "values"


def needs_of(query: CompiledQuery) -> Needs:
    """What must be kept so that a query can be looked up."""
    demand = query.query.demand or Demand()
    newest = Want(None, None, NEWEST, timed=True)
    if demand.structure == "timegram":
        return Needs(newest, tuple(_bounded(query, demand)), has_bounds=True)
    is_plain = query.naive or demand.structure != "exact"
    found = []
    for slot in query.slots:
        recipe = Raw(slot.accumulator) if is_plain else exact(slot.accumulator)
        argument = None if isinstance(slot.accumulator, CountRows) else slot.argument
        found.append(Glance(Want(argument, slot.where, _store(slot.accumulator, recipe)), recipe))
    return Needs(newest, tuple(found), is_shared=demand.structure == "ordered_sharing" and not query.naive)


def _store(accumulator: Accumulator, recipe: Recipe) -> Recipe:
    """How the store under a recipe is kept; all that keep values are alike."""
    return Raw(accumulator) if isinstance(recipe, Values) else recipe


def _bounded(query: CompiledQuery, demand: Demand) -> Iterable[Glance]:
    for call, slots in zip(query.query.calls, query.reads, strict=True):
        argument, shown = (call.args[0] if call.args else None), query.slots[slots[0]].where
        if argument is not None and not _is_number(argument.type):  # then only its tuples are counted
            parts = () if shown is None else shown.parts if isinstance(shown, And) else (shown,)
            counted = Not(IsNull(argument))
            argument, shown = None, And((counted, *parts)) if parts else counted
        kind = None if argument is None else argument.type
        buckets = demand.buckets or BUCKETS
        recipe = TimeGram(kind, buckets, demand.between, demand.bounds, demand.within, demand.slice)
        yield Glance(Want(argument, shown, recipe), recipe)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


@dataclass(frozen=True)
class Gathering:
    """The stores over the same tuples and groups, that of the groups first, by their names.

    `lengths` are those of the windows that each store is read for.
    """

    selection: str
    clock: Clock
    conjuncts: tuple[Predicate, ...]
    keys: tuple[Scalar, ...]
    stores: Mapping[str, Want]
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


def scalars_of(gatherings: Iterable[Gathering]) -> Iterator[Scalar]:
    """Every scalar that must be computed for a row, repeats included."""
    for gathering in gatherings:
        for part in gathering.conjuncts:
            yield from predicate_scalars(part)
        yield from gathering.keys
        for want in gathering.stores.values():
            yield from predicate_scalars(want.shown)
            if want.attribute is not None:
                yield want.attribute


def store_key(selection: str, want: Want) -> str:
    """The name of a store over a selection's tuples."""
    return f"{selection} | {want.text}"


def gatherings(queries: Sequence[CompiledQuery]) -> tuple[Gathering, ...]:
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
        wants: dict[str, Want] = {}
        lengths: dict[str, set[int]] = {}
        for query, own in kinds.values():
            for want in needs_of(query).wants:
                wants.setdefault(key := store_key(selection, want), want)
                lengths.setdefault(key, set()).update(own)
        found.append(
            Gathering(
                selection,
                first.query.clock,
                first.conjuncts,
                tuple(key.scalar for key in first.query.keys),
                wants,
                {key: frozenset(own) for key, own in lengths.items()},
                tuple(query.name for query in members),
            )
        )
    return tuple(found)
