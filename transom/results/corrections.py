"""Corrections: late rows of a batch change the results of closed windows, for queries with EMIT CORRECTIONS.

The slices of closed windows are still there, with the late rows. The windows and groups that the batch added to are
combined and lowered again, and compared with their newest results, which the state keeps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints, one_array
from transom.columns.groups import group, sorted_distinct
from transom.columns.table_columns import SLICE, group_columns
from transom.elements import Kind
from transom.errors import CostError
from transom.kernel.closed_views import split_by_view
from transom.kernel.sheets import rows_of
from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.planner import Planner
from transom.results.batch_input import BatchInput
from transom.results.close import Reader, combined_windows
from transom.results.lower import Reading, Scattered
from transom.results.query_boundary import boundary, boundary_before_it_joined, passed_boundary
from transom.results.readers import StreamReaders
from transom.results.reported_results import changelog, group_values, with_finals
from transom.results.result_rows import LoweredWindows, Moment, ResultBatch, Results, finish
from transom.sql.catalog import Scalars
from transom.state.state import State
from transom.windows import ids as windows
from transom.windows.intervals import LOWEST


@dataclass(frozen=True)
class LateCells:
    """Closed windows of a query that a batch added to, each with the group of the cell, and their groups' columns."""

    wids: Ints
    keys: Sequence[pa.Array]


def correcting_queries(queries: Sequence[CompiledQuery]) -> dict[str, list[CompiledQuery]]:
    """The queries with EMIT CORRECTIONS, by their stream."""
    correctors: dict[str, list[CompiledQuery]] = defaultdict(list)
    for query in queries:
        if query.is_standing and query.query.corrections is not None:
            correctors[query.query.stream].append(query)
    return dict(correctors)


def correct_results(
    before: State,
    after: State,
    batches: Sequence[BatchInput],
    correctors: Mapping[str, Sequence[CompiledQuery]],
    final: Results,
    scalars: Scalars,
    planner: Planner,
    made: int,
) -> tuple[State, list[ResultBatch]]:
    """The state with the newest results of closed windows, and the corrections and retractions of a batch.

    `before` and `after` are the states at the batch's begin and end, and `final` has its final results.
    """
    reported, changes = dict(after.reported), list[ResultBatch]()
    limit = planner.strategy.limits.correctable_results
    for batch in batches:
        stream = batch.rules.clock.stream
        queries = [query for query in correctors.get(stream, ()) if query.name in after.queries]
        _refuse_executors(after, queries)
        for query in queries:
            if query.name in final:
                passed = passed_boundary(query, before.stream(stream))
                known = reported.get(query.name)
                reported[query.name] = with_finals(query, known, final[query.name], passed)
        late = {query.name: cells for query in queries if (cells := _late_cells(before, query, batch))}
        if late:
            readers = planner.derived(stream, StreamReaders, batch.queries, after.queries, after.selections)
            lowered = list(_Corrections(after, readers).lower(queries, late, batch.partial))
            results = finish(lowered, Moment(after.batch_id, Kind.CORRECTION, made), scalars)
            by_query = _groups_of(lowered)
            for query in queries:
                if query.name in by_query:
                    known, found = reported.get(query.name), results.get(query.name)
                    moment = after.batch_id, made
                    newest, table = changelog(query, known, found, by_query[query.name], *moment)
                    reported[query.name] = newest
                    if table.num_rows:
                        changes.append(ResultBatch([query.name], np.array([0, len(table)]), table))
        for query in queries:
            _check_limit(query, reported.get(query.name), limit)
    return replace(_without_passed(after, correctors), reported=reported), changes


def _without_passed(state: State, correctors: Mapping[str, Sequence[CompiledQuery]]) -> State:
    """The state without what was closed when queries joined, once no late row can correct windows from then."""
    changed = {}
    for query in (query for queries in correctors.values() for query in queries):
        own = state.queries.get(query.name)
        if own is None or own.closed_before is None:
            continue
        closed = state.stream(query.query.stream).clock(query.clock).closed
        passed, latest = closed.delayed(query.query.retention).watermark(), own.closed_before.latest
        if latest is None or (passed is not None and passed >= latest):
            changed[query.name] = replace(own, closed_before=None)
    return replace(state, queries={**state.queries, **changed}) if changed else state


def _refuse_executors(state: State, queries: Sequence[CompiledQuery]) -> None:
    """Refuse to correct results over groups whose slices are on the executors."""
    for query in queries:
        if any(state.selections[home].on_executors for home in state.queries[query.name].homes):
            raise CostError(executors_refusal(query.name))


def executors_refusal(name: str) -> str:
    """Why a query whose groups are on the executors can't have EMIT CORRECTIONS."""
    return (
        f"{name} has EMIT CORRECTIONS, and the slices of its groups are on the executors, where closed "
        "windows can't be corrected: group by fewer columns, use a shorter WITHIN, or raise the setting "
        "driver_rows"
    )


def _check_limit(query: CompiledQuery, reported: pa.Table | None, limit: int) -> None:
    if reported is not None and reported.num_rows > limit:
        raise CostError(
            f"{query.name} keeps {reported.num_rows:,} results for corrections, and the limit is {limit:,}: group by "
            "fewer columns, use a shorter WITHIN, or raise the setting correctable_results"
        )


def _late_cells(before: State, query: CompiledQuery, batch: BatchInput) -> LateCells | None:
    """The closed windows that a batch's cells belong to and that can still be corrected; None if there are none."""
    own, stream = before.queries.get(query.name), before.stream(query.query.stream)
    came = batch.outcome.clocks.get(query.clock)
    if own is None or came is None or not came.runs:
        return None
    spec, closed, passed = query.query.window, boundary(query, stream, own), passed_boundary(query, stream)
    assert passed is not None
    joined = boundary_before_it_joined(query, own)
    times = closed.view.anywhere
    until = times.pairs[-1][1] if times else LOWEST
    if own.forced is not None:
        until = max(until, int(windows.window_end(spec, own.forced - 1)))
    if came.runs[0][0] >= until:
        return None
    home = own.homes[0]
    sheet = Sheets.of(batch.outcome.partials).get(before.selections[home].sheet)
    cells = None if sheet is None else rows_of(sheet, home)
    if cells is None or not cells.num_rows:
        return None
    starts = one_array(cells[SLICE]).to_numpy()
    old = np.flatnonzero(starts < until)
    cells, starts = cells.take(pa.array(old)), starts[old]
    firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
    names = group_columns(len(query.query.keys))
    keys = [one_array(cells[name]) for name in names]
    wids, at = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    views = [closed.view, passed.view, joined.view]
    for rows, (was, gone, earlier) in split_by_view(views, keys, len(starts)):
        correctable = closed.wids(query, was) - passed.wids(query, gone) - joined.wids(query, earlier)
        for start, stop in correctable:
            wid, of = expand_runs(np.maximum(firsts[rows], start), np.minimum(lasts[rows], stop - 1) + 1)
            wids.append(wid)
            at.append(rows[of])
    found, places = np.concatenate(wids), pa.array(np.concatenate(at))
    return LateCells(found, [key.take(places) for key in keys]) if len(found) else None


class _Corrections(Reading):
    """Reads the closed windows of a state that a batch added to."""

    def __init__(self, state: State, readers: StreamReaders):
        self.state, self.stream_readers = state, readers
        self.streams, self.queries, self.selections = state.streams, state.queries, state.selections
        self.shards, self.accounts = state.shards, state.accounts

    def lower(
        self, queries: Sequence[CompiledQuery], late: Mapping[str, LateCells], partial: frozenset[str]
    ) -> Iterator[LoweredWindows]:
        """The windows with late rows; of queries with LIMIT all their groups."""
        scattered: Scattered = defaultdict(list)
        by_sheet: dict[str, list[tuple[CompiledQuery, int]]] = defaultdict(list)
        wanted = [query for query in queries if query.name in late]
        for query in wanted:
            for home in self.queries[query.name].homes:
                by_sheet[self.selections[home].sheet].append((query, home))
        for key, pairs in by_sheet.items():
            if key not in self.state.sheets:
                continue
            layout, sheet = self.stream_readers.layouts[key], self.state.sheets[key]
            readers = [self._reader(query, home) for query, home in pairs]
            parts = [
                _with_late_rows(layout, sheet, number, reader, late[reader.query.name])
                for number, reader in enumerate(readers)
            ]
            table = pa.concat_tables(parts).combine_chunks()
            if table.num_rows:
                yield from self.lowered(layout, table, readers, partial, scattered)
        for query in wanted:
            if query.name in scattered:
                yield from self.combined(query, scattered[query.name], partial)

    def _reader(self, query: CompiledQuery, home: int) -> Reader:
        closed = boundary(query, self.state.stream(query.query.stream), self.queries[query.name])
        return Reader(query, home, closed, closed)


def _with_late_rows(
    layout: Layout, sheet: pa.Table, number: int, reader: Reader, late: LateCells
) -> pa.Table:
    """The windows of a reader that a batch added to, combined from all their slices."""
    spec, table = reader.query.query.window, rows_of(sheet, reader.home)
    wids = sorted_distinct(late.wids)
    starts = one_array(table[SLICE]).to_numpy()
    low, high = int(windows.window_start(spec, wids[0])), int(windows.window_end(spec, wids[-1]))
    rows = np.flatnonzero((starts >= low) & (starts < high))
    by_group = reader.query.query.top is None
    codes_of_late, codes = np.zeros(len(late.wids), np.int64), np.zeros(len(rows), np.int64)
    if by_group and late.keys:
        places = pa.array(rows)
        both = [
            pa.concat_arrays([key, one_array(table[name]).take(places)])
            for key, name in zip(late.keys, layout.key_names, strict=True)
        ]
        of_both = group(both, len(late.wids) + len(rows)).codes
        codes_of_late, codes = of_both[: len(late.wids)], of_both[len(late.wids) :]
        has_late = np.isin(codes, codes_of_late)
        rows, codes = rows[has_late], codes[has_late]
    firsts, lasts = windows.wid_from(spec, starts[rows]), windows.wid_to(spec, starts[rows])
    at, of = expand_runs(np.searchsorted(wids, firsts), np.searchsorted(wids, lasts, side="right"))
    room = len(wids)
    is_late = np.isin(codes[of] * room + at, codes_of_late * room + np.searchsorted(wids, late.wids))
    return combined_windows(layout, table, number, rows[of[is_late]], wids[at[is_late]])


def _groups_of(lowered: Sequence[LoweredWindows]) -> dict[str, pa.Table]:
    """The ends and groups of windows before HAVING and LIMIT, by query."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for each in lowered:
        for number in sorted_distinct(each.which).tolist():
            query = each.queries[number]
            rows = each.table.filter(pa.array(each.which == number))
            parts[query.name].append(group_values(query, rows))
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}
