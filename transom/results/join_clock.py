"""The clock of a join of two streams, and what a batch of one of them adds to the stream of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transom.columns.arrays import Ints
from transom.elements import Clock, Punctuation
from transom.kernel.aggregate import Outcome
from transom.plan.compiled_query import CompiledQuery
from transom.results.batch_input import BatchInput, Origin
from transom.sql.query import JoinSide, StreamJoin
from transom.state.state import State
from transom.state.stream_joins import JoinState
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules

MOST_FILTERS = (
    16  # conditions by which rows are filtered before a join; with more, the filter costs more than it saves
)


@dataclass(frozen=True)
class JoinedBatch:
    """What a batch adds to a join: aggregated pairs, rows to keep, and the times of pairs that came too late."""

    outcome: Outcome
    kept: JoinState
    lost: IntervalSet = IntervalSet()


def pair_rules(join: StreamJoin) -> StreamRules:
    """The rules of a stream of pairs: its clock follows those of both streams, so it has no slack."""
    return StreamRules(join.clock, slack=None)


def pair_times(join: StreamJoin, place: int, times: Ints) -> tuple[Ints, Ints]:
    """The earliest and the latest time that pairs of rows of a side can have."""
    low, high = _reach(join, place)
    return times + low, times + high


def _reach(join: StreamJoin, place: int) -> tuple[int, int]:
    """How much later than a row of a side its pairs are, at least and at most."""
    least, most = (join.low, join.high) if place == 0 else (-join.high, -join.low)
    return max(least, 0), max(most, 0)


def joins_of(queries: Sequence[CompiledQuery]) -> dict[str, StreamJoin]:
    """The joins of two streams that queries read, by the streams of their pairs."""
    joins = (query.query.stream_join for query in queries)
    return {join.id: join for join in joins if join is not None}


def merged_joins(joins: Sequence[StreamJoin]) -> dict[str, StreamJoin]:
    """The joins by the streams of their pairs, each with all columns that some query reads."""
    merged: dict[str, StreamJoin] = {}
    for join in joins:
        known = merged.setdefault(join.id, join)
        if known is not join:
            first, second = (
                replace(
                    one,
                    columns=tuple(dict.fromkeys((*one.columns, *other.columns))),
                    filters=_either(one.filters, other.filters),
                )
                for one, other in zip(known.sides, join.sides, strict=True)
            )
            merged[join.id] = replace(known, first=first, second=second)
    return merged


def _either(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The conditions of which a useful row satisfies at least one; None: there are none, or too many."""
    if one is None or other is None:
        return None
    return found if len(found := one | other) <= MOST_FILTERS else None


def clock_before(join: StreamJoin, state: State) -> int | None:
    """The clock of a join: pairs with earlier times are not produced any more."""
    return state.stream(join.id).clock(join.clock).closed.watermark()


def missed_pairs(join: StreamJoin, state: State) -> IntervalSet:
    """The times that pairs with a row from before can have: a query that joins now does not get all of these."""
    highs = (state.stream(side.stream).clock(_clock(join, side)).high for side in join.sides)
    lasts = [high + _reach(join, place)[1] for place, high in enumerate(highs) if high is not None]
    return IntervalSet.of((LOWEST, max(lasts) + 1)) if lasts else IntervalSet()


def pair_batch(
    join: StreamJoin,
    readers: Sequence[CompiledQuery],
    concerned: Mapping[str, BatchInput],
    joined: JoinedBatch,
    before: State,
    after: State,
) -> tuple[BatchInput, JoinState]:
    """What a batch adds to a stream of pairs, and what the join keeps after it.

    `before` and `after` are the states before the batch, and when it is applied to the joined streams.
    """
    kept, outcome = joined.kept, joined.outcome
    inputs = [concerned.get(side.stream) for side in join.sides]
    first, second = (
        was if given is None else given.ended or (was and not given.outcome.rows)
        for was, given in zip(kept.ended, inputs, strict=True)
    )
    have_ended = first and second
    # A stream that has ended, or is idle, does not hold the join's clock back.
    held_by = [
        side for side, ended in zip(join.sides, (first, second), strict=True) if have_ended or not ended
    ]
    clocks = [after.stream(side.stream).clock(_clock(join, side)) for side in held_by]
    marks = [clock.closed.watermark() for clock in clocks]
    highs = [clock.high for clock in clocks if clock.high is not None]
    closed = [mark for mark in [clock_before(join, after)] if mark is not None]
    if None not in marks:
        closed.append(min(mark for mark in marks if mark is not None))
    mark = max(closed, default=None)
    came = outcome.clocks.get(join.clock)
    given = next(one for one in inputs if one is not None)
    batch = BatchInput(
        pair_rules(join),
        readers,
        outcome,
        [] if mark is None else [Punctuation(join.clock, mark)],
        have_ended and any(one is not None and one.ended for one in inputs),
        given.partial,
        given.clock,
        Origin(
            min(highs) if len(highs) == len(clocks) else None,
            came.occupied() if came else IntervalSet(),
            missed_pairs(join, before),
            joined.lost,
        ),
    )
    kept = replace(kept, ended=(first, second))
    return batch, kept if mark is None else kept.since([mark - _reach(join, place)[1] for place in (0, 1)])


def _clock(join: StreamJoin, side: JoinSide) -> Clock:
    return Clock(side.stream, side.time, join.kind)
