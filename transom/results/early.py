"""Prods: what is known of open windows, read and left as it is.

A prod is a punctuation that nobody believes: it asks for the windows that would close if it were one. They
are read from the same slices by the same sweep, and nothing is purged: slices keep what they have until their
windows close, so a prod can neither lose nor double what a final result is made of (rule R1 of the thesis,
section 3.1, is about operators that hand increments on; here none does).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from transom.elements import Prod
from transom.plan.compiled import CompiledQuery
from transom.plan.passes.admission import ground
from transom.results.close import Boundary, Reader, close
from transom.results.presentation import Lowered, Moment, Results
from transom.results.read_slices import Reading, Scattered
from transom.results.shard_work import FarWork, sifted
from transom.state.state import State, StreamState
from transom.windows import ids as windows
from transom.windows.closed import Closed, View
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet, union

EVERYTHING = IntervalSet.of((LOWEST, HIGHEST))


@dataclass(frozen=True)
class Ask:
    """What one query is asked for: windows by their ids, and windows of groups that match prods' patterns."""

    query: CompiledQuery
    wids: IntervalSet = IntervalSet()
    patterned: tuple[Prod, ...] = ()


@dataclass
class Swept:
    """What prods came to: windows as they are now, and what is to be read where shards are."""

    open: list[Lowered] = field(default_factory=list)
    far: list[FarWork] = field(default_factory=list)

    def finished(self, effects: Finisher, moment: Moment) -> Results:
        """The results of what is near."""
        return effects.finish(self.open, moment) if self.open else Results()


class Finisher(Protocol):
    """Applies SELECT lists."""

    def finish(self, windows: Sequence[Lowered], moment: Moment) -> Results: ...


def asks_of(prods: Iterable[Prod], queries: Sequence[CompiledQuery]) -> dict[str, Ask]:
    """What prods ask of queries: those on a query's clock, or on none in particular."""
    by_stream: dict[str, list[tuple[Prod, frozenset[str] | None]]] = defaultdict(list)
    for prod in prods:
        names = None if prod.queries is None else frozenset(prod.queries)
        by_stream[prod.clock.stream].append((prod, names))
    found: dict[str, Ask] = {}
    for query in queries if by_stream else ():
        own = [
            prod
            for prod, names in by_stream.get(query.query.stream, ())
            if (names is None or query.name in names)
            and (prod.until is None or prod.clock == query.query.clock)
        ]
        if own:
            wids = union(prodded(query, prod) for prod in own if not prod.where)
            found[query.name] = Ask(query, wids, tuple(prod for prod in own if prod.where))
    return found


def prodded(query: CompiledQuery, prod: Prod) -> IntervalSet:
    """The windows that a prod asks a query for, by their ids; whether they hold anything or not."""
    if prod.until is None:
        return EVERYTHING
    spec = query.query.window
    last = (prod.until - spec.phase) // spec.slide - 1
    return IntervalSet.of((last if prod.exactly else LOWEST, last + 1))


def sweep(
    state: State, asks: Sequence[Ask], living: Iterable[CompiledQuery], partial: frozenset[str]
) -> Swept:
    """Read open windows of a state; `living` are all queries, which share slices with those asked."""
    asked = {home for ask in asks if ask.query.name in state.queries for home in _homes(state, ask.query)}
    sharing = [query for query in living if not asked.isdisjoint(_homes(state, query))] if asked else []
    return _Sweep(state, sharing).run(asks, partial)


def _homes(state: State, query: CompiledQuery) -> tuple[int, ...]:
    own = state.queries.get(query.name)
    return () if own is None else own.homes


class _Sweep(Reading):
    """Reads a state, and changes nothing of it."""

    def __init__(self, state: State, sharing: Sequence[CompiledQuery]):
        self.sharing, self.streams, self.queries = sharing, state.streams, state.queries
        self.selections, self.sheets, self.shards = state.selections, state.sheets, state.shards
        self._boundary: dict[tuple[int, IntervalSet, int], Boundary] = {}

    def run(self, asks: Sequence[Ask], partial: frozenset[str]) -> Swept:
        found = Swept()
        bounds: dict[str, list[tuple[Boundary, Boundary]]] = {}
        for ask in asks:
            if ask.query.name in self.queries:
                bounds[ask.query.name] = list(self._boundaries(ask))
        queries = [ask.query for ask in asks if ask.query.name in bounds]
        for turn in range(max(map(len, bounds.values()), default=0)):
            own = [query for query in queries if turn < len(bounds[query.name])]
            sides = {query.name: bounds[query.name][turn] for query in own}
            found.open += self._near(own, sides, partial)
            found.far += self._far(own, sides, partial)
        return found

    def _boundaries(self, ask: Ask) -> Iterator[tuple[Boundary, Boundary]]:
        """Pairs of boundaries between which lie the windows that are asked for, none of them twice."""
        query = ask.query
        own = self.queries[query.name]
        closed = self._closed(query)
        view, forced = closed.view(query.key_columns, query.pinned), own.forced_wids()
        for first, after in ask.wids:
            # What lies before is hidden, so that what is asked for is a run of windows, as when they close.
            yield self._upto(view, forced, first), self._upto(view, forced, after)
        known = forced | ask.wids
        passed = [prod for prod in ask.patterned if not prod.exactly]
        if passed:
            yield Boundary(view, known), self._with(query, passed, known)
        exact: dict[int, list[Prod]] = defaultdict(list)
        for prod in ask.patterned:
            if prod.exactly:
                exact[prodded(query, prod).pairs[-1][0]].append(prod)
        for last in sorted(exact):  # none of the others says anything about windows that a later one asks for
            hidden = known | IntervalSet.of((LOWEST, last))
            yield self._with(query, passed, hidden), self._with(query, [*passed, *exact[last]], hidden)
            passed = [*passed, *exact[last]]

    def _upto(self, view: View, forced: IntervalSet, after: int) -> Boundary:
        """All windows up to one: the same object for all queries that see the same."""
        key = id(view), forced, after
        if key not in self._boundary:
            self._boundary[key] = Boundary(view, forced | IntervalSet.of((LOWEST, after)))
        return self._boundary[key]

    def unseen(self, name: str) -> IntervalSet:
        """Where rows lie that a query has missed; everywhere while that is not known."""
        own = self.queries[name].unseen
        return EVERYTHING if own is None else own

    def _closed(self, query: CompiledQuery) -> Closed:
        """What is closed on a query's clock; no batch may have brought anything to its stream yet."""
        return self.streams.get(query.query.stream, StreamState()).clock(query.query.clock).closed

    def _with(self, query: CompiledQuery, prods: Sequence[Prod], forced: IntervalSet) -> Boundary:
        closed = self._closed(query)
        ranges = [(_time(prod), None, prod.where) for prod in prods]
        return Boundary(closed.close_all(ranges).view(query.key_columns, query.pinned), forced)

    def _near(
        self,
        queries: Sequence[CompiledQuery],
        sides: Mapping[str, tuple[Boundary, Boundary]],
        partial: frozenset[str],
    ) -> Iterator[Lowered]:
        readers, layouts = self.readers(self.sharing)
        scattered: Scattered = defaultdict(list)
        for key, layout in layouts.items():
            asked = [(query, home) for query, home in readers[key] if query.name in sides]
            if key not in self.sheets or not asked:
                continue
            own = [Reader(query, home, *sides[query.name]) for query, home in asked]
            done = close(layout, self.sheets[key], own)
            if done.table.num_rows:
                yield from self.lowered(layout, done.table, own, partial, scattered)
        for query in queries:
            if query.name in scattered:
                yield from self.gathered(query, scattered[query.name], partial)

    def _far(
        self,
        queries: Sequence[CompiledQuery],
        sides: Mapping[str, tuple[Boundary, Boundary]],
        partial: frozenset[str],
    ) -> Iterator[FarWork]:
        alike: dict[object, list[Reader]] = defaultdict(list)
        for query in queries:
            for home in self.queries[query.name].homes:
                if self.selections[home].far:
                    alike[ground(query)].append(Reader(query, home, *sides[query.name]))
        for readers in alike.values():
            homes = {reader.home for reader in readers}
            mine = [ref for ref in self.shards if not homes.isdisjoint(ref.held)]
            found = sifted(mine, readers)
            if found.closing:
                yield self.far_work([readers[i] for i in found.closing], found.asked, partial)


def _time(prod: Prod) -> int:
    return HIGHEST if prod.until is None else prod.until


def wids_of(query: CompiledQuery, results: pa.Table) -> np.ndarray:
    """The ids of the windows that results are of."""
    spec = query.query.window
    ends = results.column(1).cast(pa.int64()).to_numpy()
    return windows.wid_from(spec, ends) - 1
