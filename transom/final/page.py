"""A page as a pure function: what was known, what its rows came to, what was said -> what is known now.

The first half, rows to partials, is `partial.kernel` and runs wherever the rows are; this is the
second, which runs once a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.algorithms import windows
from transom.algorithms.intervals import HIGHEST, LOWEST, IntervalSet
from transom.algorithms.profile import Profile
from transom.control.closed import Closed
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Kind, Punctuation
from transom.final.closing import Boundary, close, lower
from transom.final.results import Lowered, finish
from transom.partial.kernel import Outcome, combine
from transom.plan.compiled import CompiledQuery
from transom.sql.catalog import Scalars
from transom.state.state import MOST_OCCUPIED, ClockState, QueryState, State, StreamState, Totals


@dataclass(frozen=True)
class PageInput:
    """What a page brings to its stream."""

    rules: StreamRules
    queries: Sequence[CompiledQuery]  # all that read the stream
    outcome: Outcome = field(default_factory=Outcome)
    punctuations: Sequence[Punctuation] = ()
    ended: bool = False  # the stream ended or fell idle: close every window that holds rows
    partial: frozenset[str] = frozenset()  # queries that also want windows seen only in part


@dataclass(frozen=True)
class PageOutput:
    """The state after a page, and its results by query."""

    state: State
    results: Mapping[str, pa.Table]


def advance(state: State, pages: Sequence[PageInput], scalars: Scalars) -> PageOutput:
    """Process the second half of a page: what it brings to each of the streams that it concerns."""
    number = state.page + 1
    streams, queries = dict(state.streams), dict(state.queries)
    closed = []
    for page in pages:
        name = page.rules.clock.stream
        before = state.stream(name)
        after = streams[name] = _advance_stream(before, page)
        for query in page.queries:
            found, own = _advance_query(query, queries[query.name], before, after, page)
            queries[query.name] = own
            if found is not None:
                unseen = own.unseen or IntervalSet()
                closed.append(Lowered(query, lower(query, found), unseen, query.name in page.partial))
    return PageOutput(State(number, streams, queries), finish(closed, number, Kind.FINAL, scalars))


def boundary(query: CompiledQuery, stream: StreamState, own: QueryState) -> Boundary:
    """What is closed for a query."""
    closed = stream.clock(query.query.clock).closed
    return Boundary(closed.view(query.key_columns, query.pinned), own.forced_wids())


def clocks_of(queries: Sequence[CompiledQuery], rules: StreamRules) -> list[Clock]:
    """The clocks that a stream's page must carry: its own and those that its queries' windows follow."""
    return list(dict.fromkeys([rules.clock, *(query.query.clock for query in queries)]))


def _advance_stream(stream: StreamState, page: PageInput) -> StreamState:
    outcome = page.outcome
    totals = stream.totals + Totals(
        outcome.rows, outcome.counted, outcome.unasked, outcome.late, outcome.timeless + outcome.ahead
    )
    followed = clocks_of(page.queries, page.rules)
    clocks = {
        clock: own if clock in followed or not outcome.rows else replace(own, occupied=None)
        for clock, own in stream.clocks.items()
    }
    for clock in followed:
        clocks[clock] = _advance_clock(stream.clock(clock), clock, page, totals)
    for clock in dict.fromkeys(said.clock for said in page.punctuations):
        known = clocks.get(clock) or stream.clock(clock)
        ranges = ((said.until, said.since, said.where) for said in page.punctuations if said.clock == clock)
        clocks[clock] = replace(known, closed=known.closed.close_all(ranges))
    return StreamState(clocks, totals)


def _advance_clock(known: ClockState, clock: Clock, page: PageInput, totals: Totals) -> ClockState:
    profile = page.outcome.clocks.get(clock, Profile())
    tops = [top for top in (known.high, profile.top) if top is not None]
    high = max(tops, default=None)
    slack = page.rules.slack_of(clock)
    closed: Closed = known.closed
    if clock.kind is ClockKind.ROWS:
        closed = closed.close(totals.accepted) if totals.accepted else closed
    elif high is not None and slack is not None:
        closed = closed.close(high - slack)
    occupied = known.occupied if known.occupied is not None else _missed(clock, page)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED)
    return ClockState(high, closed, occupied)


def _advance_query(
    query: CompiledQuery, own: QueryState, before: StreamState, after: StreamState, page: PageInput
) -> tuple[pa.Table | None, QueryState]:
    earlier = boundary(query, before, own)
    brought = page.outcome.partials.get(query.name)
    slices = own.slices if brought is None or not brought.num_rows else combine(query, [own.slices, brought])
    unseen = own.unseen
    if unseen is None:
        unseen = _missed(query.query.clock, page)
    forced = own.forced
    if page.ended and slices.num_rows:
        last = windows.wid_to(query.query.window, slices["slice"].to_numpy()).max()
        forced = max(int(last) + 1, LOWEST if forced is None else forced)
    own = QueryState(slices, unseen, forced)
    found, kept = close(query, slices, earlier, boundary(query, after, own))
    return found, replace(own, slices=kept)


def _missed(clock: Clock, page: PageInput) -> IntervalSet | None:
    """Where rows may lie that came while nobody followed a clock: with disorder of at most the slack,
    none of them lies further up than the first rows seen now plus the slack."""
    runs = page.outcome.clocks.get(clock, Profile()).runs
    if not runs:
        return None
    slack = page.rules.slack_of(clock)
    return IntervalSet.of((LOWEST, HIGHEST if slack is None else runs[0][0] + slack + 1))
