"""The plan of a page: which families its rows are folded into, made anew as queries join and leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_not

from transom.final.members import Known, Strategy, selections
from transom.partial.kernel import Asker
from transom.plan.compiled import CompiledQuery
from transom.plan.families import Family, Selection, families
from transom.plan.layout import Layout
from transom.state.state import State


@dataclass(frozen=True)
class SharedPlan:
    """A stream's queries, as they are computed together."""

    selections: tuple[Selection, ...]
    families: tuple[Family, ...]
    askers: tuple[Asker, ...]

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the sheets that it fills, by their keys."""
        return {selection.layout.key: selection.layout for selection in self.selections}


@dataclass
class Planner:
    """Plans pages; families in which nothing changed are those of the page before."""

    strategy: Strategy = field(default_factory=Strategy)
    _streams: dict[str, _Planned] = field(default_factory=dict)

    def plan(self, state: State, queries: Sequence[CompiledQuery]) -> SharedPlan:
        """The plan for the queries of one stream."""
        if not queries:
            return SharedPlan((), (), ())
        known = self._streams.setdefault(queries[0].query.stream, _Planned())
        found = selections(state, queries, known.selections)
        if len(found) != len(known.order) or any(map(is_not, found, known.order)):
            strategy = self.strategy
            known.families = families(found, strategy.fragments, strategy.paned, known.families, known.intern)
            known.order = found
            known.selections = {one.id: known.selections[one.id] for one in found}
        forced = [state.queries[query.name].forced for query in queries]
        members = list(queries)
        if (
            forced != known.forced
            or len(members) != len(known.members)
            or any(map(is_not, members, known.members))
        ):
            known.forced, known.members, known.askers = forced, members, askers(state, queries)
        return SharedPlan(tuple(found), tuple(known.families.values()), known.askers)


@dataclass
class _Planned:
    """What was planned for a stream's page before, so that a page at which nobody joins or leaves plans nothing."""

    selections: Known = field(default_factory=dict)
    order: list[Selection] = field(default_factory=list)
    families: dict[object, Family] = field(default_factory=dict)
    intern: dict[object, int] = field(default_factory=dict)
    members: list[CompiledQuery] = field(default_factory=list)
    forced: list[int | None] = field(default_factory=list)
    askers: tuple[Asker, ...] = ()


def askers(state: State, queries: Sequence[CompiledQuery]) -> tuple[Asker, ...]:
    """Who asks for rows: queries that ask for the same rows in the same windows are one."""
    found = {}
    for query in queries:
        own = state.queries[query.name]
        known = query.selection, query.query.window, own.forced
        if known not in found:
            found[known] = Asker(
                query.query.clock,
                query.query.window,
                query.conjuncts,
                tuple(key.scalar for key in query.query.keys),
                query.key_columns,
                query.pinned,
                own.forced_wids(),
            )
    return tuple(found.values())
