"""The first half of a page: rows -> partial aggregates, for every query at once, on Arrow columns.

It runs where the rows are, inside a Spark task or in a test, and knows neither of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.accumulators import CountRows, lifted
from transom.algorithms import windows
from transom.algorithms.grouping import Encoded, each_alone, encoded, group, normalized
from transom.algorithms.intervals import IntervalSet
from transom.algorithms.profile import Profile
from transom.control.closed import Closed, View
from transom.elements import Clock
from transom.partial.predicates import Columns, evaluate
from transom.plan.compiled import CompiledQuery, plain_value
from transom.sql.query import Predicate, Scalar

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PagePlan:
    """All that a task needs to know about a page: small, and the same for every task.

    `columns` and `clocks` say under which name the projected page carries a scalar or a clock; clocks
    and the stream's own `time` are int64. Rows with `floor < time <= limit` are aggregated.
    """

    queries: tuple[CompiledQuery, ...]
    columns: Mapping[str, str]
    clocks: Mapping[Clock, str]
    time: str
    closed: Mapping[Clock, Closed] = field(default_factory=dict)
    limit: int | None = None
    floor: int | None = None
    horizon: int | None = None
    forced: Mapping[str, IntervalSet] = field(default_factory=dict)  # by query: windows closed for all groups
    row_id: str | None = None  # a column that tells rows apart, when a page is read in several branches

    def view(self, query: CompiledQuery) -> View:
        """What was closed for the query before the page."""
        closed = self.closed.get(query.query.clock, Closed())
        return closed.view(query.key_columns, query.pinned)


@dataclass
class Outcome:
    """What a task, or all tasks of a page together, made of its rows."""

    partials: dict[str, pa.Table] = field(default_factory=dict)
    rows: int = 0
    timeless: int = 0  # no time: rejected
    ahead: int = 0  # beyond the limit: rejected
    counted: int = 0
    late: int = 0
    unasked: int = 0
    profile: Profile = field(default_factory=Profile)  # of the stream's time, all rows that have one
    clocks: dict[Clock, Profile] = field(default_factory=dict)  # of accepted rows
    flags: pa.Table | None = None  # row_id, asked, counted: only when the plan names a row_id


def run(table: pa.Table, plan: PagePlan) -> Outcome:
    """Aggregate some rows of a page."""
    page = _Rows(table, plan)
    outcome = Outcome(rows=table.num_rows)
    times, has_time = page.numbers(plan.time)
    outcome.timeless = int(len(times) - has_time.sum())
    outcome.profile = Profile.of(times[has_time], plan.horizon, plan.limit)
    ahead = has_time & (times > plan.limit) if plan.limit is not None else np.zeros(len(times), bool)
    outcome.ahead = int(ahead.sum())
    accepted = has_time & ~ahead
    if plan.floor is not None:
        accepted &= times > plan.floor
    for clock, name in plan.clocks.items():
        numbers, valid = page.numbers(name)
        outcome.clocks[clock] = Profile.of(numbers[valid & accepted])
    asked, counted = np.zeros(len(times), bool), np.zeros(len(times), bool)
    for query, wanted, late in page.verdicts(accepted):
        asked |= wanted
        counted |= wanted & ~late
        outcome.partials[query.name] = page.aggregate(query, wanted & ~late)
    outcome.counted, outcome.unasked = int(counted.sum()), int((accepted & ~asked).sum())
    outcome.late = int((asked & ~counted).sum())
    if plan.row_id is not None:
        chosen = np.flatnonzero(asked)
        ids = page.table[plan.row_id].combine_chunks().take(pa.array(chosen))
        outcome.flags = pa.table({"row": ids, "counted": counted[chosen]})
    return outcome


def late_rows(table: pa.Table, plan: PagePlan) -> Mask:
    """Which rows were asked for by some query and are late for every one that asked."""
    page = _Rows(table, plan)
    times, has_time = page.numbers(plan.time)
    accepted = has_time if plan.limit is None else has_time & (times <= plan.limit)
    asked, counted = np.zeros(len(times), bool), np.zeros(len(times), bool)
    for _, wanted, late in page.verdicts(accepted):
        asked |= wanted
        counted |= wanted & ~late
    return asked & ~counted


def merge(outcomes: Iterable[Outcome], queries: Iterable[CompiledQuery]) -> Outcome:
    """One outcome of all tasks of a page."""
    parts = list(outcomes)
    total = Outcome(profile=Profile.merged(part.profile for part in parts))
    for count in ("rows", "timeless", "ahead", "counted", "late", "unasked"):
        setattr(total, count, sum(getattr(part, count) for part in parts))
    for clock in {clock for part in parts for clock in part.clocks}:
        total.clocks[clock] = Profile.merged(part.clocks[clock] for part in parts if clock in part.clocks)
    for query in queries:
        tables = [part.partials[query.name] for part in parts if query.name in part.partials]
        total.partials[query.name] = combine(query, tables)
    flags = [part.flags for part in parts if part.flags is not None]
    total.flags = pa.concat_tables(flags) if flags else None
    return total


def combine(query: CompiledQuery, tables: Iterable[pa.Table]) -> pa.Table:
    """Partials of several origins, with one row for each slice and group."""
    schema = query.state_schema()
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return schema.empty_table()
    if len(filled) == 1:
        return filled[0]
    table = pa.concat_tables(filled).combine_chunks()
    if query.naive:
        return table
    keys = [one_array(table["slice"]).to_numpy()] + [
        one_array(table[f"k{i}"]) for i in range(len(query.query.keys))
    ]
    groups = group(keys, table.num_rows)
    return regroup(query, table, groups.codes, groups.firsts, ["slice"])


def regroup(
    query: CompiledQuery,
    table: pa.Table,
    codes: NDArray[np.int64],
    firsts: NDArray[np.int64],
    leading: list[str],
) -> pa.Table:
    """The rows of a table of partials combined by code; keys and leading columns are those of `firsts`."""
    groups = len(firsts)
    kept = leading + [f"k{i}" for i in range(len(query.query.keys))]
    columns = {name: one_array(table[name]).take(pa.array(firsts)) for name in kept}
    columns["rows"] = CountRows().combine([one_array(table["rows"])], codes, groups)[0]
    for i, slot in enumerate(query.slots):
        names = [f"s{i}_{j}" for j in range(len(slot.accumulator.types()))]
        states = slot.accumulator.combine([one_array(table[name]) for name in names], codes, groups)
        columns.update(zip(names, states, strict=True))
    return pa.table(columns)


def split_by_view(
    views: Sequence[View], keys: list[pa.Array], rows: int
) -> Iterable[tuple[NDArray[np.int64], list[IntervalSet]]]:
    """The rows in parts, each with what is closed for its groups in every view."""
    places = sorted({place for view in views for place in view.columns})
    if not places:
        yield np.arange(rows), [view.of({}) for view in views]
        return
    groups = group([keys[place] for place in places], rows)
    values = [keys[place].take(pa.array(groups.firsts)).to_pylist() for place in places]
    order = np.argsort(groups.codes, kind="stable")
    bounds = np.searchsorted(groups.codes[order], np.arange(groups.count + 1))
    for g in range(groups.count):
        cell = {place: plain_value(values[i][g]) for i, place in enumerate(places)}
        yield order[bounds[g] : bounds[g + 1]], [view.of(cell) for view in views]


class _Rows:
    """Rows of a page, with what is evaluated on them kept while they are at hand."""

    def __init__(self, table: pa.Table, plan: PagePlan):
        self.table, self.plan = table.combine_chunks(), plan
        self._codes: dict[str, Encoded] = {}
        self._masks: dict[Predicate, Mask] = {}
        self._numbers: dict[str, tuple[NDArray[np.int64], Mask]] = {}

    def column(self, scalar: Scalar) -> pa.Array:
        return one_array(self.table[self.plan.columns[scalar.sql]])

    def codes(self, scalar: Scalar) -> Encoded:
        """A key column's codes, found once for all queries that group by it."""
        if scalar.sql not in self._codes:
            self._codes[scalar.sql] = encoded(self.column(scalar))
        return self._codes[scalar.sql]

    def numbers(self, name: str) -> tuple[NDArray[np.int64], Mask]:
        """An int64 column as numbers (0 where null) and where it is not null."""
        if name not in self._numbers:
            array = one_array(self.table[name])
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            numbers = array.fill_null(0) if array.null_count else array
            self._numbers[name] = numbers.to_numpy(zero_copy_only=False), valid
        return self._numbers[name]

    def truth(self, predicate: Predicate | None) -> Mask:
        """Where a predicate is true, not false and not null."""
        if predicate is None:
            return np.ones(self.table.num_rows, bool)
        if predicate not in self._masks:
            columns: Columns = self.column
            truth = evaluate(predicate, columns)
            self._masks[predicate] = truth.fill_null(False).to_numpy(zero_copy_only=False)
        return self._masks[predicate]

    def verdicts(self, accepted: Mask) -> Iterator[tuple[CompiledQuery, Mask, Mask]]:
        """Each query, which of the accepted rows it asks for, and for which of them it comes too late."""
        for query in self.plan.queries:
            yield query, *self.judge(query, accepted)

    def judge(self, query: CompiledQuery, accepted: Mask) -> tuple[Mask, Mask]:
        """Which rows a query asks for, and for which of them it comes too late."""
        spec = query.query.window
        times, valid = self.numbers(self.plan.clocks[query.query.clock])
        wanted = accepted & valid & self.truth(query.query.where) & windows.in_some_window(spec, times)
        late = np.zeros(len(times), bool)
        view, forced = self.plan.view(query), self.plan.forced.get(query.name, IntervalSet())
        at = np.flatnonzero(wanted)
        if not (view.general or view.patterned or forced) or not len(at):
            return wanted, late
        firsts, lasts = windows.wid_from(spec, times[at]), windows.wid_to(spec, times[at])
        keys = (
            [] if view.uniform else [self.column(key.scalar).take(pa.array(at)) for key in query.query.keys]
        )
        for rows, (closed,) in split_by_view([view], keys, len(at)):
            wids = windows.closed_wids(spec, closed) | forced
            late[at[rows]] = wids.covers(firsts[rows], lasts[rows])
        return wanted, late

    def aggregate(self, query: CompiledQuery, chosen: Mask) -> pa.Table:
        """The chosen rows' partial aggregates by slice and group."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return query.state_schema().empty_table()
        at = pa.array(rows)
        times, _ = self.numbers(self.plan.clocks[query.query.clock])
        spec, chosen_times = query.query.window, times[rows]
        if query.naive:
            groups, slices = each_alone(len(rows)), chosen_times
        else:
            codes = [self.codes(key.scalar).take(rows) for key in query.query.keys]
            groups = group([windows.slice_number(spec, chosen_times), *codes], len(rows))
            slices = windows.slice_start(spec, chosen_times[groups.firsts])
        firsts = pa.array(rows[groups.firsts])
        columns = [
            pa.array(slices),
            *(normalized(self.column(key.scalar).take(firsts)) for key in query.query.keys),
        ]
        columns += CountRows().lift(at, groups.codes, groups.count)
        for slot in query.slots:
            values = at if slot.argument is None else self.column(slot.argument).take(at)
            mask = None if slot.where is None else self.truth(slot.where)[rows]
            columns += lifted(slot.accumulator, values, mask, groups.codes, groups.count)
        return pa.Table.from_arrays(columns, schema=query.state_schema())


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
