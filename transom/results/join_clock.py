"""The clock of a join of two streams, and what a batch of one of them adds to the stream of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.elements import Clock, Punctuation
from transom.kernel.aggregate import Outcome
from transom.plan.compiled_query import CompiledQuery
from transom.results.batch_input import BatchInput, Origin
from transom.sql.query import JOIN_TIME, JoinForm, JoinSide, StreamJoin
from transom.state.state import State
from transom.state.stream_joins import TIME, JoinState, kept_name
from transom.windows.intervals import LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules

# Conditions by which rows are filtered before a join; with more, the filter costs more than it saves.
MOST_FILTERS = 16


@dataclass(frozen=True)
class JoinedBatch:
    """What a batch adds to a join: aggregated pairs, rows to keep, and the times of pairs that came too late.

    `pairs` are pairs that are not aggregated yet: those of a join that also returns rows without a partner, which are
    known when the join's clock has advanced.
    """

    outcome: Outcome
    kept: JoinState
    lost: IntervalSet = IntervalSet()
    pairs: pa.Table | None = None


def pair_rules(join: StreamJoin) -> StreamRules:
    """The rules of a stream of pairs: its clock follows those of both streams, so it has no slack."""
    return StreamRules(join.clock, slack=None)


def pair_times(join: StreamJoin, place: int, times: Ints) -> tuple[Ints, Ints]:
    """The earliest and the latest time that pairs of rows of a side can have."""
    low, high = join.reach(place)
    return times + low, times + high


def pair_schema(join: StreamJoin) -> pa.Schema:
    """The columns of a pair."""
    return pa.schema(list(join.pair_columns.items()))


def lone_rows(join: StreamJoin, place: int, rows: pa.Table) -> pa.Table:
    """Rows of one stream as results of a join: the columns of the other stream are null, the time is their own."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for number, side in enumerate(join.sides):
        for name, kind in side.columns:
            own = kept_name(name)
            is_known = number == place and own in rows.column_names
            columns[f"{side.prefix}.{name}"] = rows[own] if is_known else pa.nulls(rows.num_rows, kind)
    columns[JOIN_TIME] = pa.array(rows[TIME].to_numpy()).cast(join.time_type)
    return pa.table(columns, schema=pair_schema(join))


def _unmatched(
    join: StreamJoin, kept: JoinState, since: int | None, until: int | None
) -> tuple[pa.Table, JoinState]:
    """The rows without a partner that can't find one any more, and the join without them if there is no `until`.

    `since` and `until` are the join's clock before and after the batch; None: both streams have ended. Then a row
    that is returned is removed, so that it can't be in a pair when the streams go on. A row that may have a partner
    which came before the join began is not returned: the join can't know.
    """
    made, removed = [pair_schema(join).empty_table()], []
    for place in (0, 1):
        reach, masks = join.reach(place)[1], []
        for run in kept.runs[place]:
            is_lone = np.zeros(len(run), bool) if run.matched is None else ~run.matched
            if (unseen := kept.unseen[1 - place]) is not None:
                is_lone &= join.partner_times(place, run.times)[0] > unseen
            if since is not None:
                is_lone &= run.times >= since - reach
            if until is not None:
                is_lone &= run.times < until - reach
            masks.append(is_lone)
            if is_lone.any():
                made.append(lone_rows(join, place, run.table.filter(pa.array(is_lone))))
        removed.append(masks)
    return pa.concat_tables(made), kept if until is not None else kept.without(removed)


def joins_of(queries: Sequence[CompiledQuery]) -> dict[str, StreamJoin]:
    """The joins of two streams that queries read, by the streams of their pairs."""
    joins = (query.query.stream_join for query in queries)
    return merged_joins([join for join in joins if join is not None])


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
            values = None
            if known.values is not None and join.values is not None:
                values = tuple(dict.fromkeys((*known.values, *join.values)))
            keys = tuple(dict.fromkeys((*known.combined_keys, *join.combined_keys)))
            merged[join.id] = replace(known, first=first, second=second, values=values, combined_keys=keys)
    return merged


def _either(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The conditions of which a useful row satisfies at least one; None: there are none, or too many."""
    if one is None or other is None:
        return None
    return found if len(found := one | other) <= MOST_FILTERS else None


def clock_before(join: StreamJoin, state: State) -> int | None:
    """The clock of a join: pairs with earlier times are not produced any more.

    Windows close when it has passed them by as long as rows wait for a partner.
    """
    mark = state.stream(join.id).clock(join.clock).closed.watermark()
    return None if mark is None else mark + join.wait


def join_state(join: StreamJoin, state: State) -> JoinState:
    """What a join keeps; of a join that begins now, up to which times there may be rows that it has not seen."""
    return state.joins.get(join.id) or JoinState(unseen=_highs(join, state))


def _highs(join: StreamJoin, state: State) -> tuple[int | None, int | None]:
    first, second = (state.stream(side.stream).clock(_clock(join, side)).high for side in join.sides)
    return first, second


def missed_pairs(join: StreamJoin, state: State) -> IntervalSet:
    """The times that pairs with a row from before can have: a query that joins now does not get all of these."""
    highs = _highs(join, state)
    lasts = [high + join.reach(place)[1] for place, high in enumerate(highs) if high is not None]
    return IntervalSet.of((LOWEST, max(lasts) + 1)) if lasts else IntervalSet()


def pair_batch(
    join: StreamJoin,
    readers: Sequence[CompiledQuery],
    concerned: Mapping[str, BatchInput],
    joined: JoinedBatch,
    before: State,
    after: State,
    aggregate: Callable[[BatchInput, pa.Table], Outcome],
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
    was_closed = clock_before(join, after)
    closed = [mark for mark in [was_closed] if mark is not None]
    if None not in marks:
        closed.append(min(mark for mark in marks if mark is not None))
    mark = max(closed, default=None)
    ends = have_ended and any(one is not None and one.ended for one in inputs)
    if join.form is not JoinForm.INNER:
        rows = [joined.pairs] if joined.pairs is not None else []
        if join.form is not JoinForm.SEMI and (ends or mark is not None):
            lone, kept = _unmatched(join, kept, was_closed, None if ends else mark)
            rows.append(lone)
        if any(table.num_rows for table in rows):
            outcome = aggregate(BatchInput(pair_rules(join), readers), pa.concat_tables(rows))
    came = outcome.clocks.get(join.clock)
    given = next(one for one in inputs if one is not None)
    batch = BatchInput(
        pair_rules(join),
        readers,
        outcome,
        [] if mark is None else [Punctuation(join.clock, mark - join.wait)],
        ends,
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
    return batch, kept if mark is None else kept.since([mark - join.reach(place)[1] for place in (0, 1)])


def _clock(join: StreamJoin, side: JoinSide) -> Clock:
    return Clock(side.stream, side.time, join.kind)
