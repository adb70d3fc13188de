"""From lowered windows to result rows: SELECT items, HAVING, system columns.

Queries that write the same SELECT list over the same types are finished together, in one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.readable_values import readable_column
from transom.columns.table_columns import groups_in
from transom.elements import Kind
from transom.kernel.predicates import evaluate
from transom.plan.compiled_query import CompiledQuery
from transom.results.condition_columns import DECISION, with_condition
from transom.results.top_rows import order_columns, top_rows
from transom.sql.catalog import Scalars
from transom.sql.query import Query, Scalar, free_name, scalars_of
from transom.windows import ids as windows
from transom.windows.arrivals import UNKNOWN, Arrivals
from transom.windows.ids import WindowSpecs
from transom.windows.intervals import IntervalSet
from transom.windows.sessions import extent_of_interest

_REFERENCE = re.compile(r"`(k\d+|a\d+|l\d+|window_start|window_end)`")
_IN_TEXT = re.compile(rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|{_REFERENCE.pattern}""", re.DOTALL)
_INSTANT = pa.timestamp("us", tz="UTC")
ESTIMATES = ("projected", "low", "high")
FEW_CELLS = 200_000  # up to here it is cheaper to evaluate all shapes in one table, though mostly null


@dataclass(frozen=True)
class Moment:
    """The batch, the kind and the time of results that are made together."""

    batch_id: int
    kind: Kind = Kind.FINAL
    made: int = 0


@dataclass(frozen=True)
class WindowFacts:
    """What is known about each of some windows, besides its states."""

    is_seen: NDArray[np.bool_]  # its query was there for all of its rows
    is_whole: NDArray[np.bool_]  # none of its rows was shed
    arrived: NDArray[np.int64]  # when its first row arrived
    late: NDArray[np.int64]  # the rows that its query missed so far
    is_partial: NDArray[np.bool_]  # its query also wants windows that it saw only in part

    def part(self, start: int, stop: int) -> WindowFacts:
        """The facts about some of the windows."""
        return WindowFacts(*(column[start:stop] for column in vars(self).values()))

    @classmethod
    def concatenated(cls, parts: Sequence[WindowFacts]) -> WindowFacts:
        """The facts about several lists of windows."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))


@dataclass(frozen=True)
class LoweredWindows:
    """Windows of queries of one shape before their SELECT list is applied: row i belongs to query `which[i]`.

    Facts about the windows are given, or follow from what is known about the queries.
    """

    queries: Sequence[CompiledQuery]
    which: NDArray[np.int64]
    table: pa.Table
    unseen: Sequence[IntervalSet] = ()  # of each query
    partial: Sequence[bool] = ()  # whether windows seen only in part are asked for, of each query
    arrivals: Sequence[Arrivals] = ()  # when rows came on each query's clock
    late: Sequence[int] = ()  # the rows that each query missed so far
    # Where windows start and end, if computed.
    times: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    facts: WindowFacts | None = None
    gap: int | None = None  # of sessions
    names: NDArray[Any] | None = None  # of the queries

    def names_of(self, queries: NDArray[np.int64]) -> list[str]:
        """The names of some of the queries."""
        if self.names is not None:
            names: list[str] = self.names[queries].tolist()
            return names
        return [self.queries[i].name for i in queries.tolist()]

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions that a backend must evaluate."""
        return computed_texts(self.queries[0].query)

    def extents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the windows start and end, on their clocks."""
        if self.times is not None:
            return self.times
        specs = WindowSpecs.of([query.query.window for query in self.queries])[self.which]
        ends = self.table["window_end"].cast(pa.int64()).to_numpy()
        return windows.start_of(specs, ends), ends

    def extents_of_interest(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The times whose rows would belong to the windows; of a session, rows before and after its extent as well."""
        starts, ends = self.extents()
        return (starts, ends) if self.gap is None else extent_of_interest(starts, ends, self.gap)


@dataclass(frozen=True)
class SystemColumns:
    """What all results have besides their items, for windows of several shapes, shape by shape.

    `is_wanted` are the windows that were seen from their start, or whose query wants them all the same.
    """

    columns: Sequence[pa.Array]  # kind, complete, late, batch, made, latency
    is_wanted: NDArray[np.bool_]

    @classmethod
    def of(cls, closed: Sequence[LoweredWindows], moment: Moment) -> SystemColumns:
        """The system columns of all windows in one step."""
        facts = WindowFacts.concatenated(window_facts(closed))
        rows = len(facts.arrived)
        columns = [
            pa.repeat(pa.scalar(moment.kind.value), rows),
            pa.array(facts.is_seen & facts.is_whole),
            pa.array(facts.late),
            pa.array(np.full(rows, moment.batch_id, np.int64)),
            pa.array(np.full(rows, moment.made, np.int64)).view(_INSTANT),
            pa.array((moment.made - facts.arrived) / 1e6, mask=facts.arrived == UNKNOWN),
        ]
        return cls(columns, facts.is_seen | facts.is_partial)

    def part(self, start: int, rows: int) -> SystemColumns:
        """The columns of some windows."""
        return SystemColumns(
            [column.slice(start, rows) for column in self.columns], self.is_wanted[start : start + rows]
        )


def window_facts(closed: Sequence[LoweredWindows]) -> list[WindowFacts]:
    """The facts about the windows of each shape."""
    without = [lowered for lowered in closed if lowered.facts is None]
    found = iter(_facts_of_queries(without)) if without else iter(())
    return [next(found) if lowered.facts is None else lowered.facts for lowered in closed]


def _facts_of_queries(closed: Sequence[LoweredWindows]) -> Iterator[WindowFacts]:
    """Facts that follow from the queries, in one step: most have the same clock and missed nothing."""
    firsts = np.cumsum([0, *(len(lowered.queries) for lowered in closed)])
    which = _concatenated([lowered.which + first for lowered, first in zip(closed, firsts, strict=False)])
    extents = [lowered.extents() for lowered in closed]
    starts, ends = (_concatenated([extent[side] for extent in extents]) for side in (0, 1))
    unknown = Arrivals()
    arrivals = [own for lowered in closed for own in (lowered.arrivals or [unknown] * len(lowered.queries))]
    arrived = np.full(len(which), UNKNOWN)
    for own, mine in _alike(arrivals, which):
        arrived[mine] = own.first(starts[mine], ends[mine])
    interest = [lowered.extents_of_interest() for lowered in closed]
    starts, ends = (_concatenated([extent[side] for extent in interest]) for side in (0, 1))
    late = [rows for lowered in closed for rows in (lowered.late or [0] * len(lowered.queries))]
    is_partial = np.array([wanted for lowered in closed for wanted in lowered.partial], bool)
    facts = WindowFacts(
        _clear_of([times for lowered in closed for times in lowered.unseen], which, starts, ends),
        _clear_of([own.shed for own in arrivals], which, starts, ends),
        arrived,
        np.array(late, np.int64)[which] if any(late) else np.zeros(len(which), np.int64),
        is_partial[which],
    )
    bounds = np.cumsum([0, *(len(lowered.which) for lowered in closed)]).tolist()
    return (facts.part(start, stop) for start, stop in pairwise(bounds))


def _concatenated(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def _alike(owners: Sequence[Any], which: NDArray[np.int64]) -> Iterator[tuple[Any, Any]]:
    """What queries have, each object once, with the rows of these queries; empty ones are left out."""
    kinds: dict[int, list[int]] = {}
    for i, own in enumerate(owners):
        if own:
            kinds.setdefault(id(own), []).append(i)
    for members in kinds.values():
        mine: Any = slice(None)
        if len(members) < len(owners):
            has_it = np.zeros(len(owners), bool)
            has_it[members] = True
            mine = has_it[which]
        yield owners[members[0]], mine


def _clear_of(
    sets: Sequence[IntervalSet],
    which: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which windows do not meet a set of times; there is one set for each query."""
    is_clear = np.ones(len(which), bool)
    for times, mine in _alike(sets, which):
        is_clear[mine] = ~times.meets(starts[mine], ends[mine])
    return is_clear


@dataclass(frozen=True)
class ResultBatch:
    """Results of queries of one schema: those of `names[i]` are rows `bounds[i]` to `bounds[i + 1]`."""

    names: Sequence[str]
    bounds: NDArray[np.int64]
    table: pa.Table


class Stored(Protocol):
    """Results of a query that were written where they were made."""

    @property
    def rows(self) -> int: ...

    def read(self) -> pa.Table:
        """Fetch them all."""
        ...

    def and_also(self, more: Any) -> Stored:
        """These results and more of the same query."""
        ...


class Results(Mapping[str, pa.Table]):
    """A batch's results by query, without queries that have none. Stored results are read on access."""

    def __init__(self, batches: Sequence[ResultBatch] = (), stored: Mapping[str, Stored] | None = None):
        self.batches, self.stored = tuple(batches), dict(stored or {})

    @cached_property
    def _places(self) -> dict[str, list[tuple[ResultBatch, int]]]:
        """Where the results of each query are: made when somebody asks for those of one."""
        places: dict[str, list[tuple[ResultBatch, int]]] = {}
        for batch in self.batches:
            for i, name in enumerate(batch.names):
                places.setdefault(name, []).append((batch, i))
        return places

    def __getitem__(self, name: str) -> pa.Table:
        if name in self.stored:
            return self.stored[name].read()
        tables = []
        for batch, i in self._places[name]:
            start, stop = int(batch.bounds[i]), int(batch.bounds[i + 1])
            tables.append(batch.table.slice(start, stop - start))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from self.stored

    def __len__(self) -> int:
        return len(self._places) + len(self.stored)

    def __bool__(self) -> bool:
        return bool(self.stored) or any(batch.names for batch in self.batches)

    @property
    def rows(self) -> int:
        in_memory = sum(batch.table.num_rows for batch in self.batches)
        return in_memory + sum(one.rows for one in self.stored.values())


def computed_texts(bound: Query) -> tuple[str, ...]:
    """The expressions of a query's SELECT list and HAVING that a backend must evaluate."""
    wanted = [*(item.sql for item in bound.items), *(scalar.sql for scalar in scalars_of(bound.kept))]
    wanted += [] if bound.top is None else [key.sql for key in bound.top.order]
    wanted += [] if bound.early_decision is None else [one.sql for one in bound.early_decision.scalars]
    return tuple(dict.fromkeys(text for text in wanted if not _REFERENCE.fullmatch(text)))


def result_schema(query: Query) -> pa.Schema:
    """The columns of a query's results; a system column is renamed where a user's column has its name."""
    schema = query.__dict__.get("_result_schema")  # every batch asks for it
    if schema is None:
        schema = query.__dict__["_result_schema"] = _result_schema(query)
    return schema


def _result_schema(query: Query) -> pa.Schema:
    if query.is_row_query:
        return _row_schema(query)
    fields = [("window_start", query.clock_type), ("window_end", query.clock_type)]
    taken = {item.name for item in query.items}
    fields = [(free_name(name, taken), kind) for name, kind in fields]
    fields += [(item.name, item.type) for item in query.items]
    estimates = [(f"{item.name}_{what}", pa.float64()) for item in query.estimated for what in ESTIMATES]
    fields += [(free_name(name, taken), kind) for name, kind in estimates]
    if query.corrections is not None:
        fields.append((free_name(REVISION, taken), pa.int64()))
    if query.early_decision is not None:
        fields.append((free_name(DECISION, taken), pa.string()))
    return pa.schema(fields + [(free_name(name, taken), kind) for name, kind in SYSTEM_COLUMNS])


def _row_schema(query: Query) -> pa.Schema:
    """The columns of a row query's results: the event time, the items, the kind, the batch and when it was made."""
    taken = {item.name for item in query.items}
    fields = [
        (free_name(ROW_TIME, taken), query.clock_type),
        *((item.name, item.type) for item in query.items),
    ]
    return pa.schema(fields + [(free_name(name, taken), kind) for name, kind in ROW_SYSTEM_COLUMNS])


ROW_TIME = "event_time"
ROW_SYSTEM_COLUMNS = (("kind", pa.string()), ("batch", pa.int64()), ("made", _INSTANT))
REVISION = "revision"  # before the system columns of a query with EMIT CORRECTIONS: 0 is the first result
SYSTEM_COLUMNS = (
    ("kind", pa.string()),
    ("complete", pa.bool_()),
    ("rows", pa.int64()),
    ("late", pa.int64()),
    ("batch", pa.int64()),
    ("made", _INSTANT),
    ("latency", pa.float64()),
)


def finish(
    closed: Sequence[LoweredWindows], moment: Moment, scalars: Scalars, few_cells: int = FEW_CELLS
) -> Results:
    """The results of closed windows, or early results of open ones.

    Expressions over aggregates are evaluated once for all queries that write them alike, and while
    results have at most `few_cells` cells, together with those of all others.
    """
    if not closed:
        return Results()
    batches, start, system = [], 0, SystemColumns.of(closed, moment)
    for lowered, columns in zip(closed, _computed(closed, scalars, few_cells), strict=True):
        rows = lowered.table.num_rows
        batch = _result_batch(lowered, columns, system.part(start, rows))
        start += rows
        if batch.table.num_rows:
            batches.append(batch)
    return Results(batches)


def _computed(
    closed: Sequence[LoweredWindows], scalars: Scalars, few_cells: int
) -> list[dict[str, pa.ChunkedArray]]:
    """For each shape the evaluated columns, by their expression."""
    computed: list[dict[str, pa.ChunkedArray]] = [{} for _ in closed]
    places = [i for i, lowered in enumerate(closed) if lowered.texts]
    shapes = [closed[i] for i in places]
    for place, columns in zip(places, _evaluated(shapes, scalars, few_cells), strict=True):
        computed[place] = columns
    return computed


def _evaluated(
    shapes: Sequence[LoweredWindows], scalars: Scalars, few_cells: int
) -> Iterator[dict[str, pa.ChunkedArray]]:
    """The evaluated expressions of each shape, by their text."""
    rows = sum(shape.table.num_rows for shape in shapes)
    if len(shapes) > 1 and rows * sum(shape.table.num_columns for shape in shapes) <= few_cells:
        yield from _evaluated_together(shapes, scalars)
        return
    for shape in shapes:
        found = scalars.project(shape.table, {f"x{i}": text for i, text in enumerate(shape.texts)})
        yield {text: found[f"x{i}"] for i, text in enumerate(shape.texts)}


def _evaluated_together(
    shapes: Sequence[LoweredWindows], scalars: Scalars
) -> Iterator[dict[str, pa.ChunkedArray]]:
    """One evaluation for all shapes: their tables below and beside each other, null elsewhere.

    Starting an evaluation is what costs: a batch of thirty shapes would start thirty.
    """
    beside = [
        shape.table.rename_columns([f"{name} of {i}" for name in shape.table.column_names])
        for i, shape in enumerate(shapes)
    ]
    together = pa.concat_tables(beside, promote_options="default")
    texts = {
        f"x{i}_{j}": _over(i, text) for i, shape in enumerate(shapes) for j, text in enumerate(shape.texts)
    }
    found, start = scalars.project(together, texts), 0
    for i, shape in enumerate(shapes):
        part = found.slice(start, shape.table.num_rows)
        start += shape.table.num_rows
        yield {text: part[f"x{i}_{j}"] for j, text in enumerate(shape.texts)}


def _over(shape: int, text: str) -> str:
    """An expression over the columns of one of the shapes in a table of all."""
    return _IN_TEXT.sub(lambda found: f"`{found[1]} of {shape}`" if found[1] else found[0], text)


def _kept(lowered: LoweredWindows, computed: dict[str, pa.ChunkedArray]) -> NDArray[np.bool_]:
    """Which windows pass HAVING; queries of one shape may have different constants in it."""
    columns: dict[str, pa.Array] = {}

    def column(start: int, stop: int, scalar: Scalar) -> pa.Array:
        if scalar.sql not in columns:
            reference = _REFERENCE.fullmatch(scalar.sql)
            whole_column = lowered.table[reference.group(1)] if reference else computed[scalar.sql]
            columns[scalar.sql] = (
                whole_column.combine_chunks() if whole_column.num_chunks != 1 else whole_column.chunk(0)
            )
        return columns[scalar.sql].slice(start, stop - start)

    keep = np.ones(lowered.table.num_rows, bool)
    if len({query.query.having for query in lowered.queries}) == 1:
        parts = [(lowered.queries[0], 0, len(keep))]
    else:
        bounds = np.searchsorted(lowered.which, np.arange(len(lowered.queries) + 1)).tolist()
        parts = list(zip(lowered.queries, bounds[:-1], bounds[1:], strict=True))
    for query, start, stop in parts:
        if query.query.kept is not None and start < stop:
            truth = evaluate(query.query.kept, partial(column, start, stop))
            keep[start:stop] = truth.fill_null(False).to_numpy(zero_copy_only=False)
    return keep


def _value(text: str, table: pa.Table, computed: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """The values of an expression over lowered windows."""
    reference = _REFERENCE.fullmatch(text)
    return table[reference.group(1)] if reference else computed[text]


def _first_rows(
    lowered: LoweredWindows, order: Sequence[pa.ChunkedArray], keep: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The places of the rows to keep that are among the first of their window, by query and in order."""
    at = np.flatnonzero(keep)
    tops = [query.query.top for query in lowered.queries]
    limits = np.array([0 if top is None else top.limit for top in tops])
    with_ties = np.array([top is not None and top.with_ties for top in tops])
    starts, ends = lowered.extents()
    rows, which = pa.array(at), lowered.which[at]
    groups = [lowered.table[name].take(rows) for name in groups_in(lowered.table.column_names)]
    keys = () if tops[0] is None else tops[0].order
    windows_of = [which, starts[at], ends[at]]
    values = [column.take(rows) for column in order]
    return at[top_rows(keys, values, groups, windows_of, limits[which], with_ties[which])]


def result_batch(
    lowered: LoweredWindows, computed: dict[str, pa.ChunkedArray], moment: Moment
) -> ResultBatch:
    """The results of queries of one shape over a part of the groups, given the evaluated columns.

    Of a query with LIMIT they have the values of ORDER BY as further columns, to be put together with other parts.
    """
    return _result_batch(lowered, computed, SystemColumns.of([lowered], moment), is_part=True)


def _result_batch(
    lowered: LoweredWindows,
    computed: dict[str, pa.ChunkedArray],
    system: SystemColumns,
    is_part: bool = False,
) -> ResultBatch:
    bound, table = lowered.queries[0].query, lowered.table
    columns = [table["window_start"], table["window_end"]]
    for item in bound.items:
        column = _value(item.sql, table, computed)
        columns.append(readable_column(column if column.type == item.type else column.cast(item.type)))
    rows = table.num_rows
    columns += [pa.nulls(rows, pa.float64())] * (len(bound.estimated) * len(ESTIMATES))
    if bound.corrections is not None:
        columns.append(pa.repeat(pa.scalar(0, pa.int64()), rows))
    if bound.early_decision is not None:
        columns.append(pa.nulls(rows, pa.string()))
    kind, complete, late, batch, made, latency = system.columns
    columns += [kind, complete, table["rows"], late, batch, made, latency]
    result = pa.Table.from_arrays(columns, schema=result_schema(bound))
    keep, which = system.is_wanted, lowered.which
    if bound.early_decision is not None:
        truth = pa.array(_kept(lowered, computed))
        result = with_condition(result, bound, lambda text: _value(text, table, computed), truth)
    elif bound.kept is not None:
        keep = keep & _kept(lowered, computed)
    if bound.top is not None:
        order = [_value(key.sql, table, computed) for key in bound.top.order]
        if is_part:
            for (name, kind), column in zip(order_columns(bound), order, strict=True):
                result = result.append_column(name, column.cast(kind))
        first = _first_rows(lowered, order, keep)
        result, which = result.take(pa.array(first)), which[first]
    elif not keep.all():
        result, which = result.filter(pa.array(keep)), which[keep]
    counts = np.bincount(which, minlength=len(lowered.queries))
    present = np.flatnonzero(counts)
    names = lowered.names_of(present)
    return ResultBatch(names, np.concatenate([[0], np.cumsum(counts[present])]), result)
