"""The naive answer: every query by itself, from raw rows, by the definitions.

The first paper calls this the naive approach; here it is the oracle that everything is compared with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Hashable, Iterator, Mapping, Sequence

import pyarrow as pa

from transom.elements import Clock, ClockKind, Prod, Punctuation, Register
from transom.oracle.aggregates import Values, aggregate, holds
from transom.oracle.batches import (
    LookupAnswer,
    OracleBatch,
    OracleOutcome,
    Row,
    StreamRules,
    column_types,
    in_order,
    sieve,
)
from transom.oracle.joins import Joined, unjoined
from transom.oracle.lookups import Held, floor_of, newest, who_is_asked
from transom.oracle.window_close import Window, is_asked, is_closed, windows_of
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import grouped, microseconds, rows_of, sameness, table_of
from transom.sql.query import Query


def answer(
    queries: Mapping[str, Query],
    batches: Sequence[OracleBatch],
    streams: Mapping[str, StreamRules],
    scalars: Scalars,
    joined: Joined | None = None,
) -> OracleOutcome:
    """What the queries answer over the batches. A query that no batch registers is there from the start."""
    oracle = Oracle(queries, batches, streams, scalars, joined or unjoined)
    for number, batch_id in enumerate(batches):
        oracle.run(number, batch_id)
    return oracle.outcome


# --- queries and streams as they stand -------------------------------------------------------


@dataclass
class Cell:
    """One group of one window of a query, with the matching rows behind it."""

    window: Window
    group: tuple[Any, ...]
    rows: list[Values] = field(default_factory=list)


@dataclass
class Standing:
    """A query that is live. `seen_before` are its clock's values on the rows accepted before it joined."""

    query: Query
    partial: bool
    seen_before: list[int]
    cells: dict[Hashable, Cell] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)  # for lookups, if it has no SLIDE
    ended: int | None = None  # where the last window ends that the end of the stream closed

    def is_over(self, window: Window) -> bool:
        """Whether the stream ended, or fell idle, after this window or a later one."""
        return self.ended is not None and window[1] <= self.ended

    def saw_all_of(self, window: Window) -> bool:
        """Whether no row of the window was accepted before the query joined."""
        return not any(window[0] <= value < window[1] for value in self.seen_before)


@dataclass
class Stream:
    """A stream so far: its accepted rows in the order ROWS windows number them, and its punctuations."""

    rules: StreamRules
    columns: Mapping[str, pa.DataType]
    accepted: list[Row] = field(default_factory=list)
    punctuations: list[Punctuation] = field(default_factory=list)

    def values(self, clock: Clock) -> list[int]:
        """The values of a clock on all accepted rows, nulls left out."""
        return [value for i, row in enumerate(self.accepted) if (value := reading(clock, row, i)) is not None]

    def closings(self, clock: Clock) -> list[Punctuation]:
        """What is closed on a clock: its punctuations, and its watermark as one more."""
        found = [each for each in self.punctuations if each.clock == clock]
        if clock.kind is ClockKind.ROWS:
            return [*found, Punctuation(clock, until=len(self.accepted))]
        slack, values = self.rules.slack_of(clock), self.values(clock)
        if slack is None or not values:
            return found
        return [*found, Punctuation(clock, until=max(values) - slack)]


def reading(clock: Clock, row: Row, number: int) -> int | None:
    """What a clock shows on a row."""
    if clock.kind is ClockKind.ROWS:
        return number
    value = row.get(clock.attribute)
    if isinstance(value, date):
        value = microseconds(datetime(value.year, value.month, value.day, tzinfo=UTC))
    return value


class Oracle:
    """Runs batches one after the other, keeping every row."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        batches: Sequence[OracleBatch],
        streams: Mapping[str, StreamRules],
        scalars: Scalars,
        joined: Joined,
    ):
        self.queries, self.scalars, self.joined = queries, scalars, joined
        self.streams = {
            name: Stream(rules, column_types(rules, [batch for batch in batches if batch.stream == name]))
            for name, rules in streams.items()
        }
        joining = {each.name for batch in batches for each in batch.before if isinstance(each, Register)}
        self.standing = {name: self.joins(query) for name, query in queries.items() if name not in joining}
        self.outcome = OracleOutcome(
            {name: [] for name in queries},
            {name: [] for name in streams},
            {name: [] for name in streams},
            {name: Counter() for name in streams},
            {name: [] for name in queries},
        )

    def joins(self, query: Query, partial: bool = False) -> Standing:
        """A query that begins to live now."""
        stream = self.streams[query.stream]
        standing = Standing(query, partial, stream.values(query.clock))
        if query.is_on_demand:
            found = self.matching(query, stream, stream.accepted, 0)
            standing.held = [Held(value, group, values, earlier=True) for _, value, group, values in found]
        return standing

    def run(self, number: int, batch: OracleBatch) -> None:
        """One batch: who joins and leaves, then the rows, then what is closed by them and after them."""
        for control in batch.before:
            if isinstance(control, Register):
                self.standing[control.name] = self.joins(self.queries[control.name], control.partial)
            else:
                del self.standing[control.name]
        self.take(number, batch)
        for punctuation in batch.after:
            self.streams[punctuation.clock.stream].punctuations.append(punctuation)
        for name, standing in self.standing.items():
            ending = batch.end_of_stream and standing.query.stream == batch.stream
            self.outcome.results[name] += self.finish(standing, number, ending)
            prods = [
                prod
                for prod in batch.prods
                if prod.clock.stream == standing.query.stream and name in (prod.queries or [name])
            ]
            self.outcome.early[name] += self.store_read(standing, number, prods) if prods else []
        queries = {name: standing.query for name, standing in self.standing.items()}
        self.outcome.lookups += [
            self.look(number, name, length) for name, length in who_is_asked(batch.lookups, queries)
        ]

    def take(self, number: int, batch: OracleBatch) -> None:
        """Judges the rows of a batch by what was closed before it, and files each under what became of it."""
        stream, outcome = self.streams[batch.stream], self.outcome
        time = Clock(batch.stream, stream.rules.time, stream.rules.kind)
        accepted, rejected = sieve(batch, stream.rules, max(stream.values(time), default=None))
        rows = in_order(accepted, stream.rules.time, list(stream.columns))
        verdicts = [
            self.count(standing, stream, rows)
            for standing in self.standing.values()
            if standing.query.stream == batch.stream
        ]
        counts = outcome.counts[batch.stream]
        for row, *asked in zip(rows, *verdicts, strict=True):
            fate = "counted" if True in asked else "late" if False in asked else "unwanted"
            counts[fate] += 1
            if fate == "late":
                outcome.late[batch.stream].append((row, number))
        outcome.rejected[batch.stream] += [(row, reason, number) for row, reason in rejected]
        counts["rejected"] += len(rejected)
        counts["in"] += len(batch.rows)
        stream.accepted += rows

    def count(self, standing: Standing, stream: Stream, rows: Sequence[Row]) -> list[bool | None]:
        """Counts rows in a query's open windows: for each, whether one took it, None if it is unwanted."""
        query = standing.query
        if query.is_on_demand:
            return self.hold(standing, stream, rows)
        closings = stream.closings(query.clock)
        verdicts: list[bool | None] = [None] * len(rows)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            for window in windows_of(value, query.window):
                verdicts[i] = bool(verdicts[i])
                if standing.is_over(window) or is_closed(query, window, group, closings):
                    continue
                verdicts[i] = True
                cell = standing.cells.setdefault((window, sameness(group)), Cell(window, group))
                cell.rows.append(values)
        return verdicts

    def hold(self, standing: Standing, stream: Stream, rows: Sequence[Row]) -> list[bool | None]:
        """Keeps rows for lookups: for each, whether it came in time, None if it is unwanted."""
        query = standing.query
        floor = floor_of(query, stream.values(query.clock))
        verdicts: list[bool | None] = [None] * len(rows)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            verdicts[i] = floor is None or value >= floor
            if verdicts[i]:
                standing.held.append(Held(value, group, values, earlier=False))
        return verdicts

    def matching(
        self, query: Query, stream: Stream, rows: Sequence[Row], before: int
    ) -> Iterator[tuple[int, int, tuple[Any, ...], Values]]:
        """The rows that a query asks for: which, where on its clock, of which group, and its scalars."""
        for i, values in self.evaluated(query, rows, stream.columns):
            value = reading(query.clock, rows[i], before + i)
            if value is not None and holds(query.where, values) is True:
                yield i, value, tuple(grouped(values[key.scalar.sql]) for key in query.keys), values

    def evaluated(
        self, query: Query, rows: Sequence[Row], columns: Mapping[str, pa.DataType]
    ) -> list[tuple[int, Values]]:
        """The query's scalars for each row, several times for a row that joins with several."""
        if not rows:
            return []
        pairs, wider = self.joined(query, rows, columns)
        expressions = {scalar.sql: scalar.sql for scalar in query.scalars()}
        if not expressions:
            return [(i, {}) for i, _ in pairs]
        projected = self.scalars.project(table_of([row for _, row in pairs], wider), expressions)
        return [(i, values) for (i, _), values in zip(pairs, rows_of(projected), strict=True)]

    def finish(self, standing: Standing, batch_id: int, ending: bool) -> list[Row]:
        """Takes out what is closed now, and answers what the query may report."""
        query = standing.query
        closings = self.streams[query.stream].closings(query.clock)
        done = {
            key: cell
            for key, cell in standing.cells.items()
            if ending or is_closed(query, cell.window, cell.group, closings)
        }
        for key, cell in done.items():
            del standing.cells[key]
            if ending:
                standing.ended = max(cell.window[1], standing.ended or cell.window[1])
        return self.tell(standing, list(done.values()), batch_id)

    def store_read(self, standing: Standing, batch_id: int, prods: Sequence[Prod]) -> list[Row]:
        """What is known of the open windows that prods ask for."""
        query = standing.query
        closings = self.streams[query.stream].closings(query.clock)
        asked = [
            cell
            for cell in standing.cells.values()
            if is_asked(query, cell.window, cell.group, prods, closings)
        ]
        return self.tell(standing, asked, batch_id)

    def look(self, batch_id: int, name: str, length: int) -> LookupAnswer:
        """What a query without SLIDE answers now, for the window of a length that ends at the newest row."""
        standing = self.standing[name]
        query = standing.query
        window = newest(self.streams[query.stream].values(query.clock), length)
        if window is None:
            return LookupAnswer(batch_id, name, length, None, [], [], complete=True)
        whole = self.found(replace(standing, seen_before=[]), window, standing.held, batch_id)
        since = [held for held in standing.held if not held.earlier]
        rows, complete = self.found(standing, window, since, batch_id), standing.saw_all_of(window)
        return LookupAnswer(batch_id, name, length, window, rows, whole, complete)

    def found(self, standing: Standing, window: Window, held: Sequence[Held], batch_id: int) -> list[Row]:
        """The results for a window of a lookup, from the rows that lie in it."""
        cells: dict[Hashable, Cell] = {}
        for each in held:
            if window[0] <= each.value < window[1]:
                cell = cells.setdefault(sameness(each.group), Cell(window, each.group))
                cell.rows.append(each.values)
        ordered = sorted(cells.values(), key=lambda cell: repr(cell.group))
        return [
            self.result(standing, cell, row, batch_id) for cell, row in self.lowered(standing.query, ordered)
        ]

    def tell(self, standing: Standing, cells: list[Cell], batch_id: int) -> list[Row]:
        """The results of cells, as far as the query may report them."""
        told = [cell for cell in cells if standing.partial or standing.saw_all_of(cell.window)]
        told.sort(key=lambda cell: (cell.window[1], repr(cell.group)))
        return [
            self.result(standing, cell, row, batch_id) for cell, row in self.lowered(standing.query, told)
        ]

    def lowered(self, query: Query, cells: list[Cell]) -> list[tuple[Cell, Row]]:
        """The items of each cell that passes HAVING."""
        if not cells:
            return []
        types = {"window_start": query.clock_type, "window_end": query.clock_type}
        types |= {f"k{i}": key.scalar.type for i, key in enumerate(query.keys)}
        types |= {f"a{i}": call.type for i, call in enumerate(query.calls)}
        inputs = [
            {"window_start": cell.window[0], "window_end": cell.window[1]}
            | {f"k{i}": value for i, value in enumerate(cell.group)}
            | {f"a{i}": aggregate(call, cell.rows) for i, call in enumerate(query.calls)}
            for cell in cells
        ]
        expressions = {f"item {i}": item.sql for i, item in enumerate(query.items)}
        expressions["having"] = query.having or "true"
        outputs = rows_of(self.scalars.project(table_of(inputs, types), expressions))
        return [
            (cell, {item.name: output[f"item {i}"] for i, item in enumerate(query.items)})
            for cell, output in zip(cells, outputs, strict=True)
            if output["having"] is True
        ]

    def result(self, standing: Standing, cell: Cell, items: Row, batch_id: int) -> Row:
        """One row of the results."""
        group = {key.name: value for key, value in zip(standing.query.keys, cell.group, strict=True)}
        shown = {**group, **items}
        system = {
            "window_start": cell.window[0],
            "window_end": cell.window[1],
            "rows": len(cell.rows),
            "complete": standing.saw_all_of(cell.window),
            "batch": batch_id,
        }
        return {f"transom_{name}" if name in shown else name: value for name, value in system.items()} | shown
