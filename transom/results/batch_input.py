"""What a batch brings to a stream: partial aggregates, punctuations, and rows sidelined, resumed or shed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from transom.elements import Clock, Punctuation
from transom.kernel.aggregate import Outcome
from transom.ondemand.store_specs import StoreSet
from transom.overload.chunks import NO_BURST, BurstOutcome, chunk_rows
from transom.plan.compiled_query import CompiledQuery
from transom.windows.batch_profile import Profile
from transom.windows.closed_time import Closed
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules
from transom.windows.watermark import Watermark


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
    watermark: Watermark | None = None  # if the stream has partitions
    closed: Closed | None = None  # of a replayed batch: what was closed after it, whatever its rows say

    @property
    def new_rows(self) -> int:
        """Processed rows that were not sidelined before."""
        return self.outcome.rows - chunk_rows(self.burst.resumed)

    def missed_times(self, clock: Clock) -> IntervalSet | None:
        """The times of rows that may have come while no query followed a clock; None: not determined yet.

        With disorder of at most the slack, none of them is later than the first row of this batch plus the slack.
        Resumed rows do not show the progress of the stream: then the last row counts instead of the first, and
        without new rows every time may have been missed.
        """
        runs, slack = self.outcome.clocks.get(clock, Profile()).runs, self.rules.greatest_slack(clock)
        if not runs:
            return None
        first = runs[-1][1] if self.burst.resumed else runs[0][0]
        is_bounded = slack is not None and self.new_rows > self.outcome.timeless + self.outcome.ahead
        return IntervalSet.of((LOWEST, first + slack + 1 if is_bounded and slack is not None else HIGHEST))


def clocks_of(
    queries: Iterable[CompiledQuery], rules: StreamRules, store_sets: Iterable[StoreSet] = ()
) -> list[Clock]:
    """The clocks that a stream's batch carries: the stream's own and those of its queries' windows."""
    once = {id(query.clock): query.clock for query in queries}
    return list(dict.fromkeys([rules.clock, *once.values(), *(one.clock for one in store_sets)]))
