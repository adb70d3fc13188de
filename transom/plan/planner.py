"""The plan of a batch: which families its rows are folded into, made anew as queries join and leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_not
from threading import Lock
from typing import Any

from transom.gc_pause import uncollected
from transom.kernel.aggregate import Asker
from transom.ondemand.store_specs import StoreSet, store_sets
from transom.plan.compiled import CompiledQuery
from transom.plan.families import Family, Selection, families
from transom.plan.layout import Layout
from transom.plan.passes.admission import Known, selections
from transom.plan.predicate_text import predicate_text
from transom.plan.strategy import Strategy
from transom.sql.query import Predicate
from transom.state.state import State

NONE: dict[str, Any] = {}


@dataclass(frozen=True)
class SharedPlan:
    """A stream's queries, as they are computed together."""

    selections: tuple[Selection, ...]
    families: tuple[Family, ...]
    askers: tuple[Asker, ...]

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that it fills, by their keys."""
        return {selection.layout.id: selection.layout for selection in self.selections}


@dataclass
class Planner:
    """Plans batches; families in which nothing changed are those of the batch before."""

    strategy: Strategy = field(default_factory=Strategy)
    _streams: dict[str, _Planned] = field(default_factory=dict)
    _gathered: dict[str, tuple[list[CompiledQuery], tuple[StoreSet, ...]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def families(self, stream: str) -> list[Family]:
        """The families of a stream's last planned batch."""
        known = self._streams.get(stream)
        return [] if known is None else list(known.families.values())

    def store_sets(self, stream: str, queries: Sequence[CompiledQuery]) -> tuple[StoreSet, ...]:
        """What the on-demand queries of a stream need kept; found anew when one comes or goes."""
        with self._lock:
            known = self._gathered.get(stream)
            if known is None or not _same(queries, known[0]):
                known = self._gathered[stream] = list(queries), store_sets(queries)
            return known[1]

    def gathered(self, queries: Sequence[CompiledQuery]) -> list[StoreSet]:
        """The same of on-demand queries of all streams."""
        streams: dict[str, list[CompiledQuery]] = {}
        for query in queries:
            streams.setdefault(query.query.stream, []).append(query)
        return [one for stream, own in streams.items() for one in self.store_sets(stream, own)]

    def plan(self, state: State, queries: Sequence[CompiledQuery]) -> SharedPlan:
        """The plan for the queries of one stream."""
        with self._lock:  # prods plan too, beside the batches
            return self._plan(state, queries)

    @uncollected()
    def _plan(self, state: State, queries: Sequence[CompiledQuery]) -> SharedPlan:
        if not queries:
            return SharedPlan((), (), ())
        known = self._streams.setdefault(queries[0].query.stream, _Planned())
        own = [state.queries[query.name] for query in queries]
        forced = [one.forced for one in own]
        homes = [one.homes[0] for one in own]
        kept = [state.selections[home] for home in homes]
        slots = [one.slots for one in kept]
        members = list(queries)
        if _same(members, known.members) and homes == known.homes and slots == known.slots:
            found = known.order
        else:
            found = selections(state, queries, known.selections)
            known.homes, known.slots = homes, slots
        apart = frozenset(
            home
            for home, one in zip(homes, kept, strict=True)
            if one.alone_until and one.alone_until > state.batch_id
        )
        if not _same(found, known.order) or apart != known.apart:
            strategy = self.strategy
            known.families = families(
                found,
                strategy.fragments,
                strategy.paned,
                known.families,
                known.intern,
                apart,
                strategy.rolls_up,
                strategy.limits.signature_members,
            )
            known.order, known.apart = found, apart
            known.selections = {one.id: known.selections[one.id] for one in found}
            if len(known.intern) > 64 * len(found) + 1024:  # mostly of queries that left long ago
                known.selections, known.order, known.intern, known.homes = {}, [], {}, []
        elif forced == known.forced and _same(members, known.members) and known.plan is not None:
            return known.plan
        if forced != known.forced or not _same(members, known.members):
            known.forced, known.members, known.askers = forced, members, askers(state, queries)
        known.plan = SharedPlan(tuple(found), tuple(known.families.values()), known.askers)
        return known.plan


def _same(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two lists hold the very same objects."""
    return len(ones) == len(others) and not any(map(is_not, ones, others))


@dataclass
class _Planned:
    """What was planned for a stream before: a batch at which nobody joins or leaves plans nothing."""

    selections: Known = field(default_factory=dict)
    order: list[Selection] = field(default_factory=list)
    families: dict[object, Family] = field(default_factory=dict)
    intern: dict[object, int] = field(default_factory=dict)
    apart: frozenset[int] = frozenset()
    members: list[CompiledQuery] = field(default_factory=list)
    homes: list[int] = field(default_factory=list)  # of the members
    slots: list[tuple[str, ...]] = field(default_factory=list)  # that their homes keep
    forced: list[int | None] = field(default_factory=list)
    askers: tuple[Asker, ...] = ()
    plan: SharedPlan | None = None


def askers(state: State, queries: Sequence[CompiledQuery]) -> tuple[Asker, ...]:
    """Who asks for rows: queries that ask for the same ones are one, and equal conditions one object."""
    alike: dict[str, list[CompiledQuery]] = {}
    for query in queries:
        alike.setdefault(query.selection, []).append(query)
    known: dict[str, Predicate] = {}
    found = []
    for members in alike.values():
        first = members[0]
        windows = dict.fromkeys((q.query.window, state.queries[q.name].forced) for q in members)
        found.append(
            Asker(
                first.query.clock,
                tuple(known.setdefault(predicate_text(part), part) for part in first.conjuncts),
                tuple(key.scalar for key in first.query.keys),
                first.key_columns or NONE,
                first.pinned or NONE,
                tuple(windows),
            )
        )
    return tuple(found)
