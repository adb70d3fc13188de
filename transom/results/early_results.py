"""Prods: open windows are read, and nothing changes.

A prod requests for the windows that would close if it were a punctuation. They are read from the same slices by
the same sweep as closing windows, and nothing is purged: slices stay until their windows close, so a prod can
neither lose nor double a row of a final result (rule R1 of the thesis, section 3.1, concerns operators that
pass increments on; here none does).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.elements import Prod
from transom.plan.compiled_query import CompiledQuery
from transom.plan.passes.placement import placement_group
from transom.results.across_windows import Followers, with_lags
from transom.results.close import Boundary, Reader, SheetReaders, close_sheets
from transom.results.key_rows import requested_windows
from transom.results.lower import Reading, Scattered
from transom.results.result_rows import LoweredWindows, Moment, Results, finish
from transom.results.sessions import requested_sessions
from transom.results.shard_work import ShardWork, shard_needs
from transom.sql.catalog import Scalars
from transom.state.state import State, StreamState
from transom.windows import ids as windows
from transom.windows.arrivals import Arrivals
from transom.windows.closed_time import Closed, View
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet, union

EVERYTHING = IntervalSet.of((LOWEST, HIGHEST))


@dataclass(frozen=True)
class WindowRequest:
    """The windows wanted of one query: by their ids, and by prods' patterns on groups."""

    query: CompiledQuery
    wids: IntervalSet = IntervalSet()
    patterned: tuple[Prod, ...] = ()


@dataclass
class OpenWindows:
    """Open windows as they are now: those on the driver, and the work for the executors."""

    windows: list[LoweredWindows] = field(default_factory=list)
    shard_work: list[ShardWork] = field(default_factory=list)

    def finished(self, scalars: Scalars, moment: Moment) -> Results:
        """The results of the windows on the driver."""
        return finish(self.windows, moment, scalars) if self.windows else Results()


def window_requests(prods: Iterable[Prod], queries: Sequence[CompiledQuery]) -> dict[str, WindowRequest]:
    """The windows that prods want of each query; a prod without a time is for every clock."""
    by_stream: dict[str, list[tuple[Prod, frozenset[str] | None]]] = defaultdict(list)
    for prod in prods:
        names = None if prod.queries is None else frozenset(prod.queries)
        by_stream[prod.clock.stream].append((prod, names))
    requests: dict[str, WindowRequest] = {}
    for query in queries if by_stream else ():
        prods_of_query = [
            prod
            for prod, names in by_stream.get(query.query.stream, ())
            if (names is None or query.name in names)
            and (prod.until is None or prod.clock == query.query.clock)
        ]
        if prods_of_query:
            wids = union(prodded(query, prod) for prod in prods_of_query if not prod.where)
            requests[query.name] = WindowRequest(
                query, wids, tuple(prod for prod in prods_of_query if prod.where)
            )
    return requests


def prodded(query: CompiledQuery, prod: Prod) -> IntervalSet:
    """The ids of the windows that a prod wants of a query, empty windows included."""
    if prod.until is None:
        return EVERYTHING
    spec = query.query.window
    last = windows.last_ended(spec, prod.until)
    return IntervalSet.of((last if prod.exactly else LOWEST, last + 1))


def read_open_windows(
    state: State, requests: Sequence[WindowRequest], living: Iterable[CompiledQuery], partial: frozenset[str]
) -> OpenWindows:
    """Read open windows of a state; `living` are all queries, some of which share slices with the wanted."""
    wanted_homes = {
        home
        for request in requests
        if request.query.name in state.queries
        for home in _homes(state, request.query)
    }
    sharing = (
        [query for query in living if not wanted_homes.isdisjoint(_homes(state, query))]
        if wanted_homes
        else []
    )
    return _Sweep(state, sharing).run(requests, partial)


def _homes(state: State, query: CompiledQuery) -> tuple[int, ...]:
    own = state.queries.get(query.name)
    return () if own is None else own.homes


class _Sweep(Reading):
    """Reads a state, and changes nothing of it."""

    def __init__(self, state: State, sharing: Sequence[CompiledQuery]):
        self.state = state
        self.sharing, self.streams, self.queries = sharing, state.streams, state.queries
        self.selections, self.sheets, self.shards = state.selections, state.sheets, state.shards
        self.accounts = state.accounts
        self._boundary: dict[tuple[int, IntervalSet, int], Boundary] = {}

    def run(self, requests: Sequence[WindowRequest], partial: frozenset[str]) -> OpenWindows:
        opened = OpenWindows()
        bounds: dict[str, list[tuple[Boundary, Boundary]]] = {}
        for request in requests:
            if request.query.name in self.queries:
                bounds[request.query.name] = list(self._boundaries(request))
        queries = [request.query for request in requests if request.query.name in bounds]
        for turn in range(max(map(len, bounds.values()), default=0)):
            in_turn = [query for query in queries if turn < len(bounds[query.name])]
            sides = {query.name: bounds[query.name][turn] for query in in_turn}
            opened.windows += self._with_lags(self._on_driver(in_turn, sides, partial))
            opened.shard_work += self._on_executors(in_turn, sides, partial)
        return opened

    def _with_lags(self, opened: Iterable[LoweredWindows]) -> Iterator[LoweredWindows]:
        """Windows with values of earlier ones, where queries read these."""
        for lowered in opened:
            if lowered.queries[0].query.lags:
                yield from with_lags(self.state, Followers(lowered.queries), [lowered])
            else:
                yield lowered

    def _boundaries(self, request: WindowRequest) -> Iterator[tuple[Boundary, Boundary]]:
        """Pairs of boundaries with the wanted windows between them, each window once."""
        query = request.query
        own = self.queries[query.name]
        closed = self._closed(query)
        view = closed.view(query.closing_columns, query.pinned, query.reads_earlier_windows)
        forced = own.forced_wids()
        for first, after in request.wids:
            # Earlier windows are hidden, so that the wanted ones are a run of windows, as when they close.
            yield self._upto(view, forced, first), self._upto(view, forced, after)
        reported = forced | request.wids
        passed = [prod for prod in request.patterned if not prod.exactly]
        if passed:
            yield Boundary(view, reported), self._with(query, passed, reported)
        exact: dict[int, list[Prod]] = defaultdict(list)
        for prod in request.patterned:
            if prod.exactly:
                exact[prodded(query, prod).pairs[-1][0]].append(prod)
        for last in sorted(exact):  # an earlier prod does not concern the windows of a later one
            hidden = reported | IntervalSet.of((LOWEST, last))
            yield self._with(query, passed, hidden), self._with(query, [*passed, *exact[last]], hidden)
            passed = [*passed, *exact[last]]

    def _upto(self, view: View, forced: IntervalSet, after: int) -> Boundary:
        """All windows up to one: the same object for all queries that see the same."""
        key = id(view), forced, after
        if key not in self._boundary:
            self._boundary[key] = Boundary(view, forced | IntervalSet.of((LOWEST, after)))
        return self._boundary[key]

    def unseen(self, name: str) -> IntervalSet:
        """The times of rows that a query missed; all times while that is not determined."""
        own = self.queries[name].unseen
        return EVERYTHING if own is None else own

    def arrivals(self, query: CompiledQuery) -> Arrivals:
        """When rows arrived on a query's clock; an open window lacks the rows that are sidelined."""
        known, stream = super().arrivals(query), self.streams.get(query.query.stream)
        held = IntervalSet() if stream is None else stream.held(query.query.clock)
        return replace(known, shed=known.shed | held) if held else known

    def _closed(self, query: CompiledQuery) -> Closed:
        """What is closed on a query's clock; its stream may not have had a batch yet.

        Sessions on sheets are open, although their extents may be closed: prods alone decide which are read.
        """
        if not query.query.window.is_shared_by_groups:
            return Closed()
        return self.streams.get(query.query.stream, StreamState()).clock(query.query.clock).closed

    def _with(self, query: CompiledQuery, prods: Sequence[Prod], forced: IntervalSet) -> Boundary:
        closed = self._closed(query)
        ranges = [(_time(prod), None, prod.where) for prod in prods]
        view = closed.close_all(ranges).view(query.closing_columns, query.pinned, query.reads_earlier_windows)
        return Boundary(view, forced)

    def _on_driver(
        self,
        queries: Sequence[CompiledQuery],
        sides: Mapping[str, tuple[Boundary, Boundary]],
        partial: frozenset[str],
    ) -> Iterator[LoweredWindows]:
        readers, layouts = self.readers(self.sharing)
        scattered: Scattered = defaultdict(list)
        parts = []
        for key, layout in layouts.items():
            asked = [(query, home) for query, home in readers[key] if query.name in sides]
            if key in self.sheets and asked:
                own = [Reader(query, home, *sides[query.name]) for query, home in asked]
                if layout.keyed:
                    windows = requested_windows(layout, self.sheets[key], own)
                    yield from self.lowered_of_keys(windows, own, partial)
                    continue
                if layout.gap is not None:
                    requested = requested_sessions(layout, self.sheets[key], own)
                    if requested.num_rows:
                        yield from self.lowered(layout, requested, own, partial, scattered)
                    continue
                parts.append(SheetReaders(layout, self.sheets[key], own))
        for part, done in zip(parts, close_sheets(parts), strict=True):
            if done.table.num_rows:
                yield from self.lowered(part.layout, done.table, part.readers, partial, scattered)
        for query in queries:
            if query.name in scattered:
                yield from self.combined(query, scattered[query.name], partial)

    def _on_executors(
        self,
        queries: Sequence[CompiledQuery],
        sides: Mapping[str, tuple[Boundary, Boundary]],
        partial: frozenset[str],
    ) -> Iterator[ShardWork]:
        alike: dict[object, list[Reader]] = defaultdict(list)
        for query in queries:
            for home in self.queries[query.name].homes:
                if self.selections[home].on_executors:
                    alike[placement_group(query)].append(Reader(query, home, *sides[query.name]))
        for readers in alike.values():
            homes = {reader.home for reader in readers}
            mine = [ref for ref in self.shards if not homes.isdisjoint(ref.held)]
            found = shard_needs(mine, readers)
            if found.closing:
                yield self.shard_work_for([readers[i] for i in found.closing], found.read, partial)


def _time(prod: Prod) -> int:
    return HIGHEST if prod.until is None else prod.until
