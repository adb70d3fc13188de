"""Results that depend on earlier windows: values of earlier windows (LAG), and windows without rows (EMIT EMPTY).

Windows of such queries close in order, and for all groups at once. What is needed of closed windows is remembered by
group: the aggregates that LAG reads, and the last window with rows. All queries whose groups and remembered values
have the same types are processed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import ROWS, aggregate_column, group_columns
from transom.errors import CostError
from transom.plan.compiled_query import CompiledQuery, Shape
from transom.plan.limits import Limits
from transom.results.batch_input import BatchInput
from transom.results.close import Boundary, specs_of
from transom.results.lower import times_on_clock
from transom.results.past_rows import EMPTY, RESULT, START, PastRows
from transom.results.query_boundary import boundary
from transom.results.result_rows import LoweredWindows, WindowFacts, window_facts
from transom.sql.item_columns import lag_column
from transom.state.past_windows import PastWindows
from transom.state.state import State
from transom.windows import ids as windows
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import LOWEST, IntervalSet


class Followers:
    """The queries of a stream whose results depend on earlier windows, as arrays."""

    def __init__(self, queries: Sequence[CompiledQuery]):
        self.queries = [query for query in queries if query.reads_earlier_windows]
        self.names = pa.array([query.name for query in self.queries], pa.string())
        self.numbers = {query.name: number for number, query in enumerate(self.queries)}
        self.specs: WindowSpecs = specs_of(self.queries)
        self.most = np.array([query.query.most_empty for query in self.queries], np.int64)
        depths = [max((lag.windows for lag in query.query.lags), default=0) for query in self.queries]
        self.deepest = np.array(depths, np.int64)

    def __bool__(self) -> bool:
        return bool(self.queries)

    @cached_property
    def kinds(self) -> dict[str, Ints]:
        """The queries by the types of what is remembered of their windows."""
        kinds: dict[str, list[int]] = {}
        for number, query in enumerate(self.queries):
            kinds.setdefault(memory_kind(query), []).append(number)
        return {kind: np.array(numbers) for kind, numbers in kinds.items()}

    @cached_property
    def shapes(self) -> dict[Shape, Ints]:
        """The queries by the shape of their results."""
        shapes: dict[Shape, list[int]] = {}
        for number, query in enumerate(self.queries):
            shapes.setdefault(query.shape, []).append(number)
        return {shape: np.array(numbers) for shape, numbers in shapes.items()}

    def closed_below(self, state: State) -> Ints:
        """The id below which the windows of each query are closed in a state."""
        until = np.full(len(self.queries), LOWEST)
        alike: dict[object, list[int]] = {}
        for number, query in enumerate(self.queries):
            closed = state.stream(query.query.stream).clock(query.clock).closed
            alike.setdefault(number if closed.varies else query.clock, []).append(number)
        for numbers in alike.values():
            first = self.queries[numbers[0]]
            general = boundary(first, state.stream(first.query.stream), state.queries[first.name]).view
            until[numbers] = Boundary(general, IntervalSet()).until(self.specs[numbers])
        forced = [state.queries[query.name].forced for query in self.queries]
        return np.maximum(until, np.array([LOWEST if wid is None else wid for wid in forced], np.int64))


def memory_kind(query: CompiledQuery) -> str:
    """The types of what is remembered of a query's windows: its groups, and the values that LAG reads."""
    bound = query.query
    keys, values = (key.scalar.type for key in bound.keys), (bound.calls[call].type for call in lagged(query))
    return f"{', '.join(map(str, keys))} -> {', '.join(map(str, values))}"


def lagged(query: CompiledQuery) -> list[int]:
    """The aggregates that LAG reads, each once."""
    return list(dict.fromkeys(lag.call for lag in query.query.lags if lag.call is not None))


def follow_windows(
    before: State,
    after: State,
    batch: BatchInput,
    followers: Followers,
    closed: Sequence[LoweredWindows],
    limits: Limits,
) -> tuple[list[LoweredWindows], PastWindows]:
    """The closed windows of queries that follow windows, with empty windows and values of earlier ones.

    `closed` are the windows with rows. Also returns what is remembered after them.
    """
    return _Batch(before, after, batch, followers, limits).run(closed)


def with_lags(
    state: State, followers: Followers, opened: Sequence[LoweredWindows]
) -> Iterator[LoweredWindows]:
    """Open windows with values of earlier windows: null while the earlier window is not closed."""
    until = followers.closed_below(state)
    for lowered in opened:
        query = lowered.queries[0]
        if not query.query.lags:
            yield lowered
            continue
        part = _rows_of(followers, lowered)
        kind = memory_kind(query)
        past = state.past.tables.get(kind)
        rows = (
            part if past is None else PastRows.concatenated([PastRows.of_table(past, followers.names), part])
        )
        at = np.arange(len(rows) - len(part), len(rows))
        # The open windows themselves are no earlier results.
        kinds = rows.kinds.copy()
        kinds[at] = START
        yield _lagged_windows(lowered, replace(rows, kinds=kinds), at, until)


@dataclass(frozen=True)
class _Part:
    """Closed windows of one shape, and their places among the rows of past windows."""

    windows: LoweredWindows
    rows: Ints


class _Batch:
    """The windows that close with a batch."""

    def __init__(self, before: State, after: State, batch: BatchInput, followers: Followers, limits: Limits):
        self.before, self.after, self.batch = before, after, batch
        self.followers, self.limits = followers, limits
        self.since, self.until = followers.closed_below(before), followers.closed_below(after)
        self.tables, self.starts = dict(after.past.tables), dict(after.past.starts)

    def run(self, closed: Sequence[LoweredWindows]) -> tuple[list[LoweredWindows], PastWindows]:
        done: list[LoweredWindows] = []
        by_kind: dict[str, list[LoweredWindows]] = {}
        for lowered in _wanted(closed):
            by_kind.setdefault(memory_kind(lowered.queries[0]), []).append(lowered)
        for kind, numbers in self.followers.kinds.items():
            begun = self._begun(numbers)
            has_closed = self.until[numbers] > self.since[numbers]
            if kind in by_kind or len(begun) or (has_closed & (self.followers.most[numbers] > 0)).any():
                done += self._close(kind, begun, by_kind.get(kind, []))
        return done, PastWindows(self.tables, self.starts)

    def _begun(self, numbers: Ints) -> Ints:
        """The queries without groups that begin with this batch: its first row is in the first window to report."""
        begun = []
        for number in numbers.tolist():
            query = self.followers.queries[number]
            if query.query.empty is None or query.name in self.starts:
                continue
            profile = self.batch.outcome.clocks.get(query.clock)
            if profile is not None and profile.runs:
                self.starts[query.name] = windows.wid_from(query.query.window, profile.runs[0][0])
                begun += [] if query.query.keys else [number]
        return np.array(begun, np.int64)

    def _close(self, kind: str, begun: Ints, closed: Sequence[LoweredWindows]) -> Iterator[LoweredWindows]:
        followers = self.followers
        parts = [_rows_of(followers, lowered) for lowered in closed]
        if kind in self.tables:
            parts.insert(0, PastRows.of_table(self.tables[kind], followers.names))
        if len(begun):
            first = followers.queries[int(begun[0])].query
            values = [
                pa.nulls(len(begun), first.calls[call].type)
                for call in lagged(followers.queries[int(begun[0])])
            ]
            starts = np.array([self.starts[followers.queries[number].name] for number in begun.tolist()])
            parts.append(PastRows(begun, starts - 1, np.full(len(begun), START), [], values))
        if not parts:
            return
        rows = PastRows.concatenated(parts)
        first_closed = len(parts[0]) if kind in self.tables else 0
        shapes: dict[Shape, list[_Part]] = {}
        for lowered in closed:
            at = np.arange(first_closed, first_closed + len(lowered.which))
            shapes.setdefault(lowered.queries[0].shape, []).append(_Part(lowered, at))
            first_closed += len(lowered.which)
        at, wids = rows.empty(followers.most, self.since, self.until)
        self._check(
            np.bincount(rows.queries[at], minlength=len(followers.queries)), "empty windows in a batch"
        )
        if len(at):
            rows = self._with_empty(rows, at, wids, shapes)
        for of_shape in shapes.values():
            joined = _joined(of_shape)
            yield _lagged_windows(joined.windows, rows, joined.rows, self.until)
        left = rows.take(np.flatnonzero(rows.still_needed(followers.most, followers.deepest, self.until)))
        self._check(
            np.bincount(left.queries, minlength=len(followers.queries)), "past windows and groups to remember"
        )
        others = self._of_other_streams(kind)
        self.tables.pop(kind, None)
        tables = [*others, left.table(followers.names)] if len(left) else others
        if tables:
            self.tables[kind] = pa.concat_tables(tables)

    def _of_other_streams(self, kind: str) -> list[pa.Table]:
        """What is remembered for queries of other streams, without queries that have left."""
        if kind not in self.tables:
            return []
        table, own = self.tables[kind], set(self.followers.names.to_pylist())
        names = table["query"].unique().to_pylist()
        others = [name for name in names if name not in own and name in self.after.queries]
        return [table.filter(pc.is_in(table["query"], pa.array(others, pa.string())))] if others else []

    def _check(self, counts: Ints, what: str) -> None:
        """Refuse more rows of one query than the limit."""
        most = self.limits.past_windows
        if len(counts) and counts.max() > most:
            name = self.followers.queries[int(counts.argmax())].name
            raise CostError(
                f"{name} has {int(counts.max()):,} {what}, and the limit is {most:,}: group by fewer columns, use "
                "fewer windows in EMIT EMPTY FOR or LAG, or raise the setting past_windows"
            )

    def _with_empty(self, rows: PastRows, at: Ints, wids: Ints, shapes: dict[Shape, list[_Part]]) -> PastRows:
        """Add windows without rows, each of the group of a row, to the rows and to the parts of their shapes."""
        added, place = [rows], len(rows)
        numbers = rows.queries[at]
        for shape, members in self.followers.shapes.items():
            chosen = np.flatnonzero(np.isin(numbers, members))
            if not len(chosen):
                continue
            keys = [column.take(pa.array(at[chosen])) for column in rows.keys]
            for lowered in _wanted([self._empty(members, numbers[chosen], wids[chosen], keys)]):
                part = replace(_rows_of(self.followers, lowered), kinds=np.full(len(lowered.which), EMPTY))
                added.append(part)
                shapes.setdefault(shape, []).append(_Part(lowered, np.arange(place, place + len(part))))
                place += len(part)
        return PastRows.concatenated(added)

    def _empty(self, members: Ints, numbers: Ints, wids: Ints, keys: Sequence[pa.Array]) -> LoweredWindows:
        """Windows without rows of queries of one shape: aggregates have the values that they have for no rows."""
        order = np.lexsort((wids, numbers))
        numbers, wids = numbers[order], wids[order]
        queries = [self.followers.queries[number] for number in members.tolist()]
        specs, bound = self.followers.specs[numbers], queries[0].query
        times = windows.window_start(specs, wids), windows.window_end(specs, wids)
        at = pa.array(order)
        columns = dict(zip(group_columns(len(keys)), (column.take(at) for column in keys), strict=True))
        nothing = pa.array(np.zeros(len(wids), np.int64))
        columns |= {aggregate_column(i): value.take(nothing) for i, value in enumerate(no_rows(queries[0]))}
        for name, numbers_of in zip(("window_start", "window_end"), times, strict=True):
            columns[name] = times_on_clock(pa.array(numbers_of), bound.clock_type)
        columns[ROWS] = nothing
        names = [query.name for query in queries]
        own = [self.after.queries[name].unseen for name in names]
        return LoweredWindows(
            queries,
            np.searchsorted(members, numbers),
            pa.table(columns),
            [IntervalSet() if unseen is None else unseen for unseen in own],
            [name in self.batch.partial for name in names],
            [self.after.stream(query.query.stream).clock(query.clock).arrivals for query in queries],
            self.after.accounts.late(names),
            times,
        )


def no_rows(query: CompiledQuery) -> list[pa.Array]:
    """The values of a query's aggregates for no rows, each as an array of one."""
    values = []
    for call, function, slots in zip(query.query.calls, query.functions, query.reads, strict=True):
        states = []
        for slot in slots:
            accumulator = query.slots[slot].accumulator
            identity = zip(accumulator.identity(), accumulator.types(), strict=True)
            states.append([pa.array([state], kind) for state, kind in identity])
        values.append(function.lower(states, call.type, call.parameters))
    return values


def _wanted(closed: Sequence[LoweredWindows]) -> Iterator[LoweredWindows]:
    """The windows that are results, with what is known about them."""
    for lowered, facts in zip(closed, window_facts(closed), strict=True):
        is_wanted = facts.is_seen | facts.is_partial
        if is_wanted.any():
            yield _taken(replace(lowered, facts=facts), np.flatnonzero(is_wanted))


def _taken(lowered: LoweredWindows, rows: Ints) -> LoweredWindows:
    """Some of the windows of a shape; what is known about them is given."""
    assert lowered.facts is not None
    starts, ends = lowered.extents()
    return replace(
        lowered,
        which=lowered.which[rows],
        table=lowered.table.take(pa.array(rows)),
        times=(starts[rows], ends[rows]),
        facts=WindowFacts(*(column[rows] for column in vars(lowered.facts).values())),
    )


def _rows_of(followers: Followers, lowered: LoweredWindows) -> PastRows:
    """Closed windows as rows of past windows."""
    numbers = np.array([followers.numbers[query.name] for query in lowered.queries], np.int64)[lowered.which]
    table, first = lowered.table, lowered.queries[0]
    wids = windows.last_ended(followers.specs[numbers], lowered.extents()[1])
    keys = [one_array(table[name]) for name in group_columns(len(first.query.keys))]
    values = [one_array(table[aggregate_column(call)]) for call in lagged(first)]
    return PastRows(numbers, wids, np.full(len(numbers), RESULT), keys, values)


def _joined(parts: Sequence[_Part]) -> _Part:
    """The windows of one shape in one table, query by query and in the order of windows."""
    queries: dict[str, CompiledQuery] = {}
    for part in parts:
        queries |= {query.name: query for query in part.windows.queries}
    places = {name: place for place, name in enumerate(queries)}
    which = np.concatenate(
        [
            np.array([places[query.name] for query in part.windows.queries])[part.windows.which]
            for part in parts
        ]
    )
    starts, ends = (np.concatenate([part.windows.extents()[side] for part in parts]) for side in (0, 1))
    table = pa.concat_tables([part.windows.table for part in parts]).combine_chunks()
    facts = WindowFacts.concatenated([part.windows.facts for part in parts if part.windows.facts is not None])
    joined = LoweredWindows(list(queries.values()), which, table, times=(starts, ends), facts=facts)
    order = np.lexsort((ends, which))
    return _Part(_taken(joined, order), np.concatenate([part.rows for part in parts])[order])


def _lagged_windows(lowered: LoweredWindows, rows: PastRows, at: Ints, until: Ints) -> LoweredWindows:
    """Windows with the values of earlier windows as further columns; `at` are their places among the rows."""
    query, table = lowered.queries[0], lowered.table
    places = {call: place for place, call in enumerate(lagged(query))}
    for number, lag in enumerate(query.query.lags):
        wids = rows.wids[at] - lag.windows
        found = rows.find(rows.lanes[at], wids)
        if lag.call is None:
            column = pa.array(found >= 0, mask=wids >= until[rows.queries[at]])
        else:
            column = rows.values[places[lag.call]].take(pa.array(found, mask=found < 0))
        table = table.append_column(lag_column(number), column)
    return replace(lowered, table=table)
