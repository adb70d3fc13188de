"""The Prodder: a query that says EMIT EARLY prods itself (thesis, section 3.2, source c).

    SLIDE 20, AT 75% OF SLIDE          0         20        40        60
                            window     |         [---------|---------)
                            its mark                            ^ 55: once the stream has come so far

Each window has marks in its last slide. When the stream's time passes one, the window is looked at: the marks
that the query names are told, those of a grid serve to learn what can be expected of an early result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.algorithms.intervals import LOWEST, IntervalSet, union
from transom.algorithms.windows import wid_to
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Prod
from transom.final.early import EVERYTHING, Ask, asks_of, wids_of
from transom.final.streams import PageInput
from transom.plan.compiled import CompiledQuery
from transom.state.state import ProdderState, State, StreamState

GRID = tuple(step / 20 for step in range(1, 21))  # parts of the slide


@dataclass(frozen=True)
class Telling:
    """What is looked at when a page ends, and which of it is told: windows of each query by their ids."""

    asks: tuple[Ask, ...] = ()
    told: Mapping[str, IntervalSet] | None = None
    prodders: Mapping[str, ProdderState] | None = None

    def is_told(self, query: CompiledQuery, results: pa.Table) -> np.ndarray:
        """Which early results were asked for, and not only looked at."""
        ask = next(ask for ask in self.asks if ask.query.name == query.name)
        if ask.patterned:
            return np.ones(results.num_rows, bool)  # nothing is looked at besides
        wids = wids_of(query, results)
        return ((self.told or {}).get(query.name) or IntervalSet()).covers(wids, wids)


def look(state: State, pages: Sequence[PageInput], prods: Sequence[Prod], clock: int) -> Telling:
    """What to look at after a page."""
    prodders = dict(state.prodders)
    asks: dict[str, Ask] = {}
    told: dict[str, IntervalSet] = {}
    for page in pages:
        stream = state.stream(page.rules.clock.stream)
        asks |= asks_of(
            [prod for prod in prods if prod.clock.stream == page.rules.clock.stream], page.queries
        )
        for query in page.queries:
            if query.query.emit is None:
                continue
            own = prodders.get(query.name, ProdderState())
            own = replace(own, fresh=own.fresh or _brings_rows(page))
            now = page.origin.now if page.origin else now_of(query.query.clock, stream, page.rules, clock)
            wanted = crossed(query, own, now, points_of(query, state))
            if is_due(query, own, clock):
                wanted, own = EVERYTHING, replace(own, prodded=clock, fresh=False)
            known = asks.get(query.name, Ask(query))
            told[query.name] = known.wids | wanted
            seen = told[query.name]
            far = any(state.selections[home].far for home in state.queries[query.name].homes)
            if not far and not known.patterned:  # so many groups are not learned from; nor would it be known
                seen = seen | crossed(query, own, now, GRID)  # which of a window's groups were asked for
            if seen or known.patterned:
                asks[query.name] = replace(known, wids=seen)
            prodders[query.name] = replace(own, position=own.position if now is None else now)
    for name, ask in asks.items():
        told.setdefault(name, ask.wids)
    return Telling(tuple(asks.values()), told, prodders)


def _brings_rows(page: PageInput) -> bool:
    """Whether rows came, or of a stream of results, rows that they are made of."""
    return page.outcome.rows > 0 or (page.origin is not None and bool(page.origin.arrived))


def now_of(clock: Clock, stream: StreamState, rules: StreamRules, engine_clock: int) -> int | None:
    """How far a clock has come: by its rows, and for the time of a live stream by the engine's clock too."""
    if clock.kind is ClockKind.ROWS:
        return stream.totals.accepted
    high = stream.clock(clock).high
    if rules.live and clock == rules.clock and clock.kind is ClockKind.TIME and high is not None:
        return max(high, engine_clock)
    return high


def is_due(query: CompiledQuery, own: ProdderState, clock: int) -> bool:
    """Whether it is time to report all open windows again, and something has come since the last time."""
    emit = query.query.emit
    if emit is None or emit.every is None or not own.fresh:
        return False
    return own.prodded is None or clock - own.prodded >= emit.every


def points_of(query: CompiledQuery, state: State) -> tuple[float, ...]:
    """The parts of the slide at which a query's windows are told: its own, or the one that was learned."""
    emit = query.query.emit
    if emit is None or emit.accuracy is None:
        return () if emit is None else emit.at
    learned = state.learned.get(query.name)
    return (emit.between[1] if learned is None else learned.point,)


def crossed(query: CompiledQuery, own: ProdderState, now: int | None, points: Iterable[float]) -> IntervalSet:
    """The windows of which the clock passed a mark since they were last looked at."""
    if now is None:
        return IntervalSet()
    spec, found = query.query.window, []
    for point in points:
        ahead = spec.slide - round(point * spec.slide) - spec.phase  # from the mark to the window's end
        first = LOWEST if own.position is None else (own.position + ahead) // spec.slide
        found.append(IntervalSet.of((first, (now + ahead) // spec.slide)))
    return union(found)


def due_streams(
    state: State, queries: Sequence[CompiledQuery], rules: Mapping[str, StreamRules], clock: int
) -> list[str]:
    """The streams with queries that are to report by the engine's clock now, whether rows come or not."""
    if not state.prodders:
        return []
    named, found = {query.name: query for query in queries}, dict[str, None]()
    for query in queries:
        own = state.prodders.get(query.name)
        if query.query.emit is None or own is None:
            continue
        name = query.query.stream
        while name not in rules and name in named:
            name = named[name].query.stream
        if name in rules and (is_due(query, own, clock) or _passed(query, own, state, rules, clock)):
            found[name] = None
    return list(found)


def _passed(
    query: CompiledQuery, own: ProdderState, state: State, rules: Mapping[str, StreamRules], clock: int
) -> bool:
    """Whether a live stream's clock has passed a mark that its rows have not."""
    name = query.query.stream
    if name not in rules or not rules[name].live:
        return False
    stream, followed = state.stream(name), query.query.clock
    high = stream.clock(followed).high
    if high is None:
        return False
    now = now_of(followed, stream, rules[name], clock)
    last = int(wid_to(query.query.window, np.array([high]))[0])
    held = IntervalSet.of((LOWEST, last + 1))  # others are empty
    return bool(crossed(query, own, now, points_of(query, state)) & held)
