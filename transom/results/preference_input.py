"""The results of a query WITH PREFERENCE as the stream that other queries read.

Such a stream follows the streams that the query reads: its watermark is the earliest of theirs. The time of a result is
that of its latest tuple, which is never earlier than the tuple that completes it. So a result whose last tuple was in
time is in time as well, if it is produced with the batch of that tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import one_array
from transom.elements import Clock, ClockKind, Prod, Punctuation, Summary
from transom.kernel.aggregate import Outcome
from transom.ondemand.store_specs import StoreSet
from transom.plan.compiled_query import CompiledQuery
from transom.results.batch_input import BatchInput, Origin
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import result_time_column
from transom.state.state import State
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules


@dataclass(frozen=True)
class NewResults:
    """The results that a batch adds to the stream, and the times of results that it deferred or skipped."""

    rows: pa.Table | None = None
    lacking: IntervalSet = IntervalSet()


@dataclass(frozen=True)
class PreferenceInput:
    """A query whose results others read, the clocks of its streams, and what a batch adds to its results.

    A result is at most `reach` later than each of its tuples. The query `joins` with this batch if it found nothing
    before.
    """

    name: str
    query: PreferenceQuery
    inputs: tuple[Clock, ...]
    reach: int
    joins: bool = False
    ended: bool = False
    new: NewResults | None = None

    def batch(
        self,
        readers: Sequence[CompiledQuery],
        store_sets: Sequence[StoreSet],
        concerned: Mapping[str, BatchInput],
        before: State,
        after: State,
        aggregate: Callable[[BatchInput, pa.Table], Outcome],
        now: int,
    ) -> BatchInput | None:
        """What a batch adds to the stream; None if it concerns neither the query's streams nor its results.

        `before` and `after` are the states before the batch, and when it is applied to the query's streams. `now` is
        the engine's clock.
        """
        given = next((concerned[clock.stream] for clock in self.inputs if clock.stream in concerned), None)
        if given is None and self.new is None:
            return None
        clock = preference_clock(self.name, self.query)
        batch = BatchInput(
            preference_rules(self.name, self.query),
            readers,
            partial=frozenset() if given is None else given.partial,
            clock=now,
            ended=self.ended,
            store_sets=store_sets,
        )
        outcome = Outcome()
        if self.new is not None and self.new.rows is not None and self.new.rows.num_rows:
            outcome = aggregate(batch, self._as_of(self.new.rows, before))
        marks = [after.stream(each.stream).clock(each).closed.watermark() for each in self.inputs]
        marks += self._undecided(after)
        known = [mark for mark in marks if mark is not None]
        came = outcome.clocks.get(clock)
        missed, lacking = self._missed(before), self._shed(after)
        if self.new is not None:
            lacking |= self.new.lacking
        if self.joins:
            lacking |= missed
        arrived = came.occupied() if came is not None else IntervalSet()
        origin = Origin(self._now(after), arrived, missed, lacking)
        punctuations = [Punctuation(clock, min(known))] if len(known) == len(marks) else []
        return replace(batch, outcome=outcome, punctuations=punctuations, origin=origin)

    def _undecided(self, state: State) -> list[int | None]:
        """For each side that an outer join preserves, the earliest time of a tuple that may still be returned alone."""
        outer, sides = self.query.outer, self.query.sides
        late = [state.promising.summaries[side.summary].late_before for side in sides]
        return [
            self.query.decided_before(side, late[1 - side])
            for side in range(len(sides))
            if outer is not None and outer.preserved[side]
        ]

    def _as_of(self, rows: pa.Table, before: State) -> pa.Table:
        """Aggregates as of their batch: they are not earlier than what was closed before it."""
        clock = preference_clock(self.name, self.query)
        mark = before.stream(self.name).clock(clock).closed.watermark()
        if not self.query.figures or mark is None:
            return rows
        times = one_array(rows[clock.attribute]).cast(pa.int64()).to_numpy()
        column = pa.array(np.maximum(times, mark)).cast(rows.schema.field(clock.attribute).type)
        return rows.set_column(rows.schema.get_field_index(clock.attribute), clock.attribute, column)

    def _now(self, state: State) -> int | None:
        """How far the streams have come: the one that is furthest behind."""
        highs = [state.stream(clock.stream).clock(clock).high for clock in self.inputs]
        known = [high for high in highs if high is not None]
        return min(known) if len(known) == len(highs) else None

    def _shed(self, state: State) -> IntervalSet:
        """The times that results with a row that was shed can have."""
        shed = [state.stream(clock.stream).clock(clock).arrivals.shed for clock in self.inputs]
        return IntervalSet.of(*((start, stop + self.reach) for times in shed for start, stop in times))

    def _missed(self, state: State) -> IntervalSet:
        """The times that results with a tuple from before can have."""
        highs = [state.stream(clock.stream).clock(clock).high for clock in self.inputs]
        known = [high for high in highs if high is not None]
        return IntervalSet.of((LOWEST, max(known) + self.reach + 1)) if known else IntervalSet()


def result_reach(query: PreferenceQuery, summaries: Mapping[str, Summary]) -> int:
    """How much later than one of its tuples a result can be."""
    if len(query.sides) == 1 or query.figures:
        return 0
    window = query.preference.window
    return max(summaries[side.summary].reach for side in query.sides) if window is None else window


def preference_clock(name: str, query: PreferenceQuery) -> Clock:
    """The clock of the results of a query WITH PREFERENCE."""
    return Clock(name, result_time_column(query), ClockKind.TIME)


def preference_rules(name: str, query: PreferenceQuery) -> StreamRules:
    """The rules of the stream of results: its clock follows those of the query's streams, so it has no slack."""
    return StreamRules(preference_clock(name, query), slack=None)


def prods_of_results(prods: Sequence[Prod], inputs: Sequence[PreferenceInput]) -> list[Prod]:
    """Prods of streams, and those of the results of queries that read them; a pattern is on the stream's columns."""
    return [
        *prods,
        *(
            replace(prod, clock=preference_clock(each.name, each.query))
            for each in inputs
            for prod in prods
            if prod.clock in each.inputs and not prod.where
        ),
    ]
