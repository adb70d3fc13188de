"""A stream after a batch: the progress of its clocks, what is closed, and the account of its rows."""

from __future__ import annotations

import logging
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
from transom.plan.compiled_query import CompiledQuery
from transom.state.accounts import Accounts
from transom.state.state import MOST_OCCUPIED, ClockState, StreamState, Totals, Work
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules

log = logging.getLogger("transom")


@dataclass(frozen=True)
class Origin:
    """What a stream of results inherits from the stream that the inner query reads.

    `now` is the progress of time there, `arrived` the times of results that new rows may change, `missed` the
    times of results that a query that joins now does not get (None: not determined yet), and `shed` the times of
    results that may lack rows that were shed.
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
        """Processed rows that were not sidelined before."""
        return self.outcome.rows - chunk_rows(self.burst.resumed)


def advance_stream(stream: StreamState, batch: BatchInput, followed: Collection[Clock]) -> StreamState:
    """A stream after a batch; `followed` are the clocks that the batch carries."""
    outcome, totals = batch.outcome, stream.totals + _counts(batch)
    promised = (
        {clock: _without_sidelined(state_of_clock) for clock, state_of_clock in stream.clocks.items()}
        if stream.sidelined
        else stream.clocks
    )
    clocks = {
        clock: state_of_clock
        if clock in followed or not outcome.rows
        else replace(state_of_clock, occupied=None)
        for clock, state_of_clock in promised.items()
    }
    for clock in followed:
        clock_state, was = promised.get(clock) or stream.clock(clock), stream.clock(clock).closed
        clocks[clock] = _advance_clock(clock_state, was, clock, batch, totals)
    for clock in dict.fromkeys(punctuation.clock for punctuation in batch.punctuations):
        clock_state = clocks.get(clock) or stream.clock(clock)
        ranges = (
            (punctuation.until, punctuation.since, punctuation.where)
            for punctuation in batch.punctuations
            if punctuation.clock == clock
        )
        clocks[clock] = replace(clock_state, closed=clock_state.closed.close_all(ranges))
    sidelined = stream.sidelined
    if sidelined or batch.burst.sidelined:
        sidelined = (
            *(chunk for chunk in sidelined if chunk not in batch.burst.resumed),
            *batch.burst.sidelined,
        )
        clocks = {
            clock: _held(state_of_clock, stream.clock(clock).closed, held_times(sidelined, clock))
            for clock, state_of_clock in clocks.items()
        }
    if batch.burst.shed:
        clocks = {
            clock: _shed(state_of_clock, chunk_ranges(batch.burst.shed, clock))
            for clock, state_of_clock in clocks.items()
        }
    if batch.origin is not None and batch.origin.shed:
        clocks[batch.rules.clock] = _shed(clocks[batch.rules.clock], batch.origin.shed)
    work = stream.work + Work(partials=outcome.lifted, unshared_partials=outcome.unshared)
    return StreamState(clocks, totals, work, sidelined, _credit(stream, batch, bool(sidelined)))


def _counts(batch: BatchInput) -> Totals:
    """What became of the new rows of a batch, and of its resumed rows."""
    outcome, burst = batch.outcome, batch.burst
    sidelined, shed = chunk_rows(burst.sidelined), chunk_rows(burst.shed)
    return Totals(
        batch.new_rows + sidelined + shed,
        outcome.counted,
        outcome.unwanted,
        outcome.late,
        outcome.timeless + outcome.ahead,
        sidelined - chunk_rows(burst.resumed),
        shed,
    )


def account_rows(accounts: Accounts, batch: BatchInput) -> Accounts:
    """The accounts of queries after a batch: of all that read its rows."""
    own, burst = batch.outcome.accounts, batch.burst
    if not own.names:
        return accounts
    numbers = map(chunk_rows, (burst.sidelined, burst.shed, burst.resumed))
    found = accounts.plus(own.names, own.counts, own.windows, *numbers)
    if found.unaccounted > accounts.unaccounted:
        rows, stream = found.unaccounted - accounts.unaccounted, batch.rules.clock.stream
        log.error("%d rows of %s are not accounted for: the counts of its queries are wrong", rows, stream)
    return found


def _credit(stream: StreamState, batch: BatchInput, are_left: bool) -> int:
    share = batch.rules.overload.share if batch.rules.overload is not None else 1
    taken = chunk_rows(batch.burst.resumed)
    return credit_after(stream.credit, bool(stream.sidelined) and are_left, batch.new_rows, taken, share)


def _without_sidelined(clock_state: ClockState) -> ClockState:
    """A clock as it would be without sidelined rows."""
    return (
        clock_state
        if clock_state.promised is None
        else replace(clock_state, closed=clock_state.promised, promised=None)
    )


def _held(promised: ClockState, before: Closed, held: IntervalSet) -> ClockState:
    """A clock with the promised times closed, except the times of sidelined rows."""
    return (
        replace(promised, closed=closed_except_held(before, promised.closed, held), promised=promised.closed)
        if held
        else promised
    )


def _shed(clock_state: ClockState, lost: IntervalSet) -> ClockState:
    shed = (clock_state.arrivals.shed | lost).coarsened(MOST_OCCUPIED)
    return replace(clock_state, arrivals=replace(clock_state.arrivals, shed=shed))


def _advance_clock(
    clock_state: ClockState, was: Closed, clock: Clock, batch: BatchInput, totals: Totals
) -> ClockState:
    """A clock after a batch: `clock_state` is without sidelined rows, and `was` is what was closed before."""
    profile = batch.outcome.clocks.get(clock, Profile())
    beside = highest_time((*batch.burst.sidelined, *batch.burst.shed), clock)
    high = max((top for top in (clock_state.high, profile.top, beside) if top is not None), default=None)
    newest = max((top for top in (clock_state.newest, profile.top) if top is not None), default=None)
    slack = batch.rules.slack_of(clock)
    closed: Closed = clock_state.closed
    if clock.kind is ClockKind.ROWS:
        closed = closed.close(totals.accepted) if totals.accepted else closed
    elif high is not None and slack is not None:
        closed = closed.close(high - slack)
    occupied = clock_state.occupied if clock_state.occupied is not None else missed_times(clock, batch)
    if occupied is not None:
        occupied = (occupied | profile.occupied()).coarsened(MOST_OCCUPIED)
    arrivals = clock_state.arrivals
    came = profile.occupied() if batch.origin is None else batch.origin.arrived
    came |= chunk_ranges(batch.burst.sidelined, clock)
    if came:
        arrivals = arrivals.with_rows(came, batch.clock, _oldest(clock, was, batch))
    return replace(clock_state, high=high, closed=closed, occupied=occupied, arrivals=arrivals, newest=newest)


def _oldest(clock: Clock, closed: Closed, batch: BatchInput) -> int | None:
    """The start of the longest window that was open before the batch."""
    watermark = closed.watermark()
    if watermark is None:
        return None
    longest = max((q.query.window.range for q in batch.queries if q.query.clock == clock), default=0)
    return watermark - longest


def missed_times(clock: Clock, batch: BatchInput) -> IntervalSet | None:
    """The times of rows that may have come while no query followed a clock; None: not determined yet.

    With disorder of at most the slack, none of them is later than the first row of this batch plus the slack.
    Resumed rows do not show the progress of the stream: then the last row counts instead of the first, and
    without new rows every time may have been missed.
    """
    runs, slack = batch.outcome.clocks.get(clock, Profile()).runs, batch.rules.slack_of(clock)
    if not runs:
        return None
    first = runs[-1][1] if batch.burst.resumed else runs[0][0]
    is_bounded = slack is not None and batch.new_rows > batch.outcome.timeless + batch.outcome.ahead
    return IntervalSet.of((LOWEST, first + slack + 1 if is_bounded and slack is not None else HIGHEST))
