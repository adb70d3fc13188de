"""A stream after a batch: how far its clocks have come, what is closed, every row accounted for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from transom.elements import Clock, ClockKind, Punctuation
from transom.kernel.aggregate import Outcome
from transom.ondemand.store_specs import StoreSet
from transom.overload.chunks import (
    NO_BURST,
    BurstOutcome,
    chunk_ranges,
    chunk_rows,
    closed_except_held,
    held_times,
    highest_time,
)
from transom.overload.resumption import credit_after
from transom.plan.compiled import CompiledQuery
from transom.state.state import MOST_OCCUPIED, ClockState, StreamState, Totals, Work
from transom.windows.closed import Closed
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.profile import Profile
from transom.windows.stream_rules import StreamRules


@dataclass(frozen=True)
class Origin:
    """What a stream that is made of another query's results knows from the stream that this one reads.

    `now` is how far time has come there, `arrived` where rows came that results here may stem from,
    `missed` where results lie that nobody will see who joins now (None if the next batch must tell), and
    `shed` where results may lack rows that were dropped.
    """

    now: int | None
    arrived: IntervalSet
    missed: IntervalSet | None
    shed: IntervalSet = IntervalSet()


@dataclass(frozen=True)
class BatchInput:
    """What a batch brings to its stream."""

    rules: StreamRules
    queries: Sequence[CompiledQuery]  # all that read the stream
    outcome: Outcome = field(default_factory=Outcome)
    punctuations: Sequence[Punctuation] = ()
    ended: bool = False  # the stream ended or fell idle: close every window that holds rows
    partial: frozenset[str] = frozenset()  # queries that also want windows seen only in part
    clock: int = 0  # the engine's, when the rows arrived
    origin: Origin | None = None  # of a stream of results
    burst: BurstOutcome = NO_BURST  # rows sidelined, resumed, or shed
    store_sets: Sequence[StoreSet] = ()  # of the on-demand queries that read the stream

    @property
    def new_rows(self) -> int:
        """Processed rows that were not aside before."""
        return self.outcome.rows - chunk_rows(self.burst.resumed)


def advance_stream(stream: StreamState, batch: BatchInput, followed: Collection[Clock]) -> StreamState:
    """A stream after a batch; `followed` are the clocks that the batch carries."""
    outcome, totals = batch.outcome, stream.totals + _counts(batch)
    said = {clock: _said(own) for clock, own in stream.clocks.items()} if stream.sidelined else stream.clocks
    clocks = {
        clock: own if clock in followed or not outcome.rows else replace(own, occupied=None)
        for clock, own in said.items()
    }
    for clock in followed:
        known, was = said.get(clock) or stream.clock(clock), stream.clock(clock).closed
        clocks[clock] = _advance_clock(known, was, clock, batch, totals)
    for clock in dict.fromkeys(one.clock for one in batch.punctuations):
        known = clocks.get(clock) or stream.clock(clock)
        ranges = ((one.until, one.since, one.where) for one in batch.punctuations if one.clock == clock)
        clocks[clock] = replace(known, closed=known.closed.close_all(ranges))
    aside = stream.sidelined
    if aside or batch.burst.sidelined:
        aside = (*(chunk for chunk in aside if chunk not in batch.burst.resumed), *batch.burst.sidelined)
        clocks = {
            clock: _held(own, stream.clock(clock).closed, held_times(aside, clock))
            for clock, own in clocks.items()
        }
    if batch.burst.shed:
        clocks = {clock: _shed(own, chunk_ranges(batch.burst.shed, clock)) for clock, own in clocks.items()}
    if batch.origin is not None and batch.origin.shed:
        clocks[batch.rules.clock] = _shed(clocks[batch.rules.clock], batch.origin.shed)
    work = stream.work + Work(partials=outcome.lifted, unshared_partials=outcome.unshared)
    return StreamState(clocks, totals, work, aside, _credit(stream, batch, bool(aside)))


def _counts(batch: BatchInput) -> Totals:
    """What became of the rows that came with a batch, and of those that had been aside."""
    outcome, burst = batch.outcome, batch.burst
    aside, shed = chunk_rows(burst.sidelined), chunk_rows(burst.shed)
    return Totals(
        batch.new_rows + aside + shed,
        outcome.counted,
        outcome.unwanted,
        outcome.late,
        outcome.timeless + outcome.ahead,
        aside - chunk_rows(burst.resumed),
        shed,
    )


def _credit(stream: StreamState, batch: BatchInput, are_left: bool) -> int:
    share = batch.rules.overload.share if batch.rules.overload is not None else 1
    taken = chunk_rows(batch.burst.resumed)
    return credit_after(stream.credit, bool(stream.sidelined) and are_left, batch.new_rows, taken, share)


def _said(known: ClockState) -> ClockState:
    """A clock as it would be if no rows were aside."""
    return known if known.promised is None else replace(known, closed=known.promised, promised=None)


def _held(said: ClockState, before: Closed, held: IntervalSet) -> ClockState:
    """A clock on which all is closed that was said to be, but for times of which rows are aside."""
    return (
        replace(said, closed=closed_except_held(before, said.closed, held), promised=said.closed)
        if held
        else said
    )


def _shed(known: ClockState, lost: IntervalSet) -> ClockState:
    shed = (known.arrivals.shed | lost).coarsened(MOST_OCCUPIED)
    return replace(known, arrivals=replace(known.arrivals, shed=shed))


def _advance_clock(
    known: ClockState, was: Closed, clock: Clock, batch: BatchInput, totals: Totals
) -> ClockState:
    """A clock after a batch: `known` as it was said to be, `was` is what was closed of it."""
    profile = batch.outcome.clocks.get(clock, Profile())
    beside = highest_time((*batch.burst.sidelined, *batch.burst.shed), clock)
    high = max((top for top in (known.high, profile.top, beside) if top is not None), default=None)
    newest = max((top for top in (known.newest, profile.top) if top is not None), default=None)
    slack = batch.rules.slack_of(clock)
    closed: Closed = known.closed
    if clock.kind is ClockKind.ROWS:
        closed = closed.close(totals.accepted) if totals.accepted else closed
    elif high is not None and slack is not None:
        closed = closed.close(high - slack)
    occupied = known.occupied if known.occupied is not None else missed_times(clock, batch)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED)
    arrivals = known.arrivals
    came = profile.occupied() if batch.origin is None else batch.origin.arrived
    came |= chunk_ranges(batch.burst.sidelined, clock)
    if came:
        arrivals = arrivals.with_rows(came, batch.clock, _oldest(clock, was, batch))
    return replace(known, high=high, closed=closed, occupied=occupied, arrivals=arrivals, newest=newest)


def _oldest(clock: Clock, closed: Closed, batch: BatchInput) -> int | None:
    """The start of the longest window that was open before the batch."""
    watermark = closed.watermark()
    if watermark is None:
        return None
    longest = max((q.query.window.range for q in batch.queries if q.query.clock == clock), default=0)
    return watermark - longest


def missed_times(clock: Clock, batch: BatchInput) -> IntervalSet | None:
    """Where rows may lie that came while nobody followed a clock: with disorder of at most the slack,
    none of them lies further up than the first rows seen now plus the slack.

    Rows that had been aside say nothing of how far the stream had come: then the last rows tell, and if
    there were no others, nothing does.
    """
    runs, slack = batch.outcome.clocks.get(clock, Profile()).runs, batch.rules.slack_of(clock)
    if not runs:
        return None
    first = runs[-1][1] if batch.burst.resumed else runs[0][0]
    is_told = slack is not None and batch.new_rows > batch.outcome.timeless + batch.outcome.ahead
    return IntervalSet.of((LOWEST, first + slack + 1 if is_told and slack is not None else HIGHEST))
