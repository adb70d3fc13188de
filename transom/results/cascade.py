"""Queries over queries: the results of one are the rows of a stream that others read.

A result's time is its window's end less one. Final results are added to the outer query's slices and stay there.
Early results are added to a copy that is read once, so that later early results replace them. So every operator
accumulates without a special mode (thesis, the end of section 3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from transom.elements import Clock, ClockKind, Prod, Punctuation
from transom.plan.compiled_query import CompiledQuery
from transom.results.batch_input import BatchInput, Origin
from transom.results.close import Boundary
from transom.results.prodder import now_of
from transom.results.query_boundary import boundary
from transom.sql.binding.cascades import relation_of
from transom.sql.item_columns import key_reference
from transom.state.state import State, StreamState
from transom.windows import ids as windows
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet
from transom.windows.stream_rules import StreamRules


def cascade_order(
    queries: Sequence[CompiledQuery], declared: Collection[str]
) -> list[tuple[CompiledQuery, list[CompiledQuery]]]:
    """The queries whose results others read, each with its readers, the innermost first.

    A declared stream hides a query of the same name.
    """
    named = {query.name: query for query in queries if query.name not in declared}
    readers: dict[str, list[CompiledQuery]] = {}
    for query in queries:
        if query.query.stream in named:
            readers.setdefault(query.query.stream, []).append(query)

    def depth(name: str) -> int:
        inner = named[name].query.stream
        return 1 + depth(inner) if inner in named else 0

    return [(named[name], readers[name]) for name in sorted(readers, key=depth)]


def derived_clock(inner: CompiledQuery) -> Clock:
    """The clock of a stream of results."""
    bound = inner.query
    kind = ClockKind.TIME if bound.clock.kind is ClockKind.TIME else ClockKind.INTEGER
    time = relation_of(inner.name, bound).time
    assert time is not None
    return Clock(inner.name, time, kind)


def derived_rules(inner: CompiledQuery) -> StreamRules:
    """The rules of a stream of results: its windows close when inner windows close, so it has no slack."""
    return StreamRules(derived_clock(inner), slack=None)


def result_rows(inner: CompiledQuery, results: pa.Table) -> pa.Table:
    """Results as rows of a stream."""
    relation = relation_of(inner.name, inner.query)
    start, end, time, *rest = relation.columns
    ends = results.column(1)
    times = windows.result_time(ends.cast(pa.int64()).to_numpy())
    before = pa.array(times).cast(relation.columns[time])
    columns = {start: results.column(0), end: ends, time: before} | {name: results[name] for name in rest}
    return pa.table(columns)


def derived_batch(
    inner: CompiledQuery, outers: Sequence[CompiledQuery], batch: BatchInput, before: State, after: State
) -> BatchInput:
    """What a batch brings to a stream of results, without the rows."""
    punctuations = closings(
        inner, boundary(inner, after.stream(inner.query.stream), after.queries[inner.name])
    )
    came = batch.outcome.clocks.get(inner.query.clock)
    occupied = batch.origin.arrived if batch.origin else came.occupied() if came else IntervalSet()
    reach = inner.query.window.range
    arrived = IntervalSet.of(*((start, stop + reach) for start, stop in occupied))
    stream = after.stream(inner.query.stream)
    now = batch.origin.now if batch.origin else now_of(inner.query.clock, stream, batch.rules, batch.clock)
    return BatchInput(
        derived_rules(inner),
        outers,
        punctuations=punctuations,
        ended=batch.ended,
        partial=batch.partial,
        clock=batch.clock,
        origin=Origin(now, arrived, missed_results(inner, before, after), _lacking(inner, stream, after)),
    )


def _lacking(inner: CompiledQuery, stream: StreamState, after: State) -> IntervalSet:
    """The times of results of windows that lost rows to an overload, or missed rows that came too late."""
    lost, spec = stream.clock(inner.query.clock).arrivals.shed, inner.query.window
    if inner.gap is not None and lost:  # a session that lost rows may end at any later time
        return IntervalSet.of((lost.pairs[0][0], HIGHEST))
    starts, stops = lost.arrays()
    firsts = windows.result_time(windows.window_end(spec, windows.wid_from(spec, starts)))
    lasts = windows.window_end(spec, windows.wid_to(spec, stops - 1))
    shed = IntervalSet.of(*zip(firsts.tolist(), lasts.tolist(), strict=True))
    runs = after.accounts.missed_windows(inner.name)
    if not len(runs):
        return shed
    firsts = windows.result_time(windows.window_end(spec, runs[:, 0]))
    lasts = windows.window_end(spec, runs[:, 1])
    return shed | IntervalSet.of(*zip(firsts.tolist(), lasts.tolist(), strict=True))


def missed_results(inner: CompiledQuery, before: State, after: State) -> IntervalSet | None:
    """The times of results that were emitted before a batch, or that the inner query can't emit."""
    own = after.queries[inner.name]
    if own.unseen is None:
        return None
    gone = [windows.wids_meeting(inner.query.window, *pair) for pair in own.unseen]
    was = before.queries.get(inner.name)
    if was is not None:
        known = boundary(inner, before.stream(inner.query.stream), was)
        gone += known.wids(inner, known.view.anywhere)
    return IntervalSet.of(
        *(windows.result_times(inner.query.window, pair) for pair in gone if pair[0] < pair[1])
    )


def closings(inner: CompiledQuery, closed: Boundary) -> list[Punctuation]:
    """The punctuations that closed inner windows are for the stream of their results."""
    clock, view = derived_clock(inner), closed.view
    punctuations = []
    for pair in closed.wids(inner, view.general if view.columns else view.of({})):
        punctuations.append(
            _punctuation(clock, windows.times_up_to_next_result(inner.query.window, pair), ())
        )
    shown = _shown(inner)
    for columns, pattern, ranges in view.patterns():
        if not columns <= shown.keys():
            continue  # a column that WHERE pins: such results wait until the time is closed for all groups
        where = tuple(sorted((shown[column], value) for column, value in pattern))
        for pair in closed.wids(inner, view.general | ranges):
            punctuations.append(
                _punctuation(clock, windows.times_up_to_next_result(inner.query.window, pair), where)
            )
    return punctuations


def _punctuation(clock: Clock, times: tuple[int, int], where: tuple[tuple[str, object], ...]) -> Punctuation:
    return Punctuation(clock, times[1], None if times[0] <= LOWEST else times[0], where)


def passed_on(
    prods: Sequence[Prod], cascade: Sequence[tuple[CompiledQuery, Sequence[CompiledQuery]]]
) -> list[Prod]:
    """Prods of a stream, and the corresponding prods of the streams of results that it feeds."""
    all_prods = list(prods)
    for inner, _ in cascade:
        bound, shown = inner.query, _shown(inner)
        for prod in list(all_prods):
            timely = prod.until is None or prod.clock == bound.clock
            if prod.clock.stream != bound.stream or not timely:
                continue
            if all(column in shown for column, _ in prod.where):
                where = tuple((shown[column], value) for column, value in prod.where)
                all_prods.append(replace(prod, clock=derived_clock(inner), where=where))
    return all_prods


def _shown(inner: CompiledQuery) -> dict[str, str]:
    """The columns of a stream that a query groups by, and their names in its results."""
    names = {key_reference(place): column for column, place in inner.key_columns.items()}
    return {names[item.sql]: item.name for item in inner.query.items if item.sql in names}
