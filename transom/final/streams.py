"""A stream after a page: how far its clocks have come, what is closed, every row accounted for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from transom.algorithms.intervals import HIGHEST, LOWEST, IntervalSet
from transom.algorithms.profile import Profile
from transom.control.closed import Closed
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Punctuation
from transom.partial.kernel import Outcome
from transom.plan.compiled import CompiledQuery
from transom.state.state import MOST_OCCUPIED, ClockState, StreamState, Totals, Work


@dataclass(frozen=True)
class Origin:
    """What a stream that is made of another query's results knows from the stream that this one reads.

    `now` is how far time has come there, `arrived` where rows came that results here may stem from, and
    `missed` where results lie that nobody will see who joins now; None if the next page must tell.
    """

    now: int | None
    arrived: IntervalSet
    missed: IntervalSet | None


@dataclass(frozen=True)
class PageInput:
    """What a page brings to its stream."""

    rules: StreamRules
    queries: Sequence[CompiledQuery]  # all that read the stream
    outcome: Outcome = field(default_factory=Outcome)
    punctuations: Sequence[Punctuation] = ()
    ended: bool = False  # the stream ended or fell idle: close every window that holds rows
    partial: frozenset[str] = frozenset()  # queries that also want windows seen only in part
    clock: int = 0  # the engine's, when the rows arrived
    origin: Origin | None = None  # of a stream of results


def advance_stream(stream: StreamState, page: PageInput, followed: Collection[Clock]) -> StreamState:
    """A stream after a page; `followed` are the clocks that the page carries."""
    outcome = page.outcome
    totals = stream.totals + Totals(
        outcome.rows, outcome.counted, outcome.unasked, outcome.late, outcome.timeless + outcome.ahead
    )
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
    work = stream.work + Work(partials=outcome.lifted, unshared_partials=outcome.unshared)
    return StreamState(clocks, totals, work)


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
    occupied = known.occupied if known.occupied is not None else missed(clock, page)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED)
    arrivals = known.arrivals
    came = profile.occupied() if page.origin is None else page.origin.arrived
    if came:
        arrivals = arrivals.with_rows(came, page.clock, _oldest(clock, known.closed, page))
    return ClockState(high, closed, occupied, arrivals)


def _oldest(clock: Clock, closed: Closed, page: PageInput) -> int | None:
    """The start of the longest window that was open before the page."""
    watermark = closed.watermark()
    if watermark is None:
        return None
    longest = max((q.query.window.range for q in page.queries if q.query.clock == clock), default=0)
    return watermark - longest


def missed(clock: Clock, page: PageInput) -> IntervalSet | None:
    """Where rows may lie that came while nobody followed a clock: with disorder of at most the slack,
    none of them lies further up than the first rows seen now plus the slack."""
    runs = page.outcome.clocks.get(clock, Profile()).runs
    if not runs:
        return None
    slack = page.rules.slack_of(clock)
    return IntervalSet.of((LOWEST, HIGHEST if slack is None else runs[0][0] + slack + 1))
