"""The naive answer: every query by itself, from raw rows, by the definitions.

The first paper calls this the naive approach; here it is the oracle that everything is compared with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import product
from typing import Any, Hashable, Iterator, Mapping, Sequence

import pyarrow as pa

from transom.elements import Clock, ClockKind, Prod, Punctuation, Register, WindowSpec
from transom.oracle.aggregates import Values, aggregate, holds
from transom.oracle.joins import Joined, unjoined
from transom.oracle.pages import OracleOutcome, OraclePage, Row, StreamRules, column_types, in_order, sieve
from transom.oracle.values import grouped, microseconds, rows_of, sameness, table_of
from transom.sql.catalog import Scalars
from transom.sql.query import And, Comparison, Member, Predicate, Query

Window = tuple[int, int]  # start, end


def answer(
    queries: Mapping[str, Query],
    pages: Sequence[OraclePage],
    streams: Mapping[str, StreamRules],
    scalars: Scalars,
    joined: Joined | None = None,
) -> OracleOutcome:
    """What the queries answer over the pages. A query that no page registers is there from the start."""
    oracle = Oracle(queries, pages, streams, scalars, joined or unjoined)
    for number, page in enumerate(pages):
        oracle.run(number, page)
    return oracle.outcome


# --- windows and what is closed --------------------------------------------------------------


def windows_of(value: int, spec: WindowSpec) -> list[Window]:
    """Every window [end - range, end), end = phase modulo slide, with start <= value < end.

    >>> windows_of(211, WindowSpec.ending(range=60, slide=20))
    [(160, 220), (180, 240), (200, 260)]
    """
    first = value + 1 + (spec.phase - (value + 1)) % spec.slide
    return [(end - spec.range, end) for end in range(first, value + spec.range + 1, spec.slide)]


def covered(window: Window, ranges: Sequence[tuple[int | None, int]]) -> bool:
    """Whether a window lies within the union of ranges [since, until), since None being the beginning."""
    reached, end = window
    for since, until in sorted(ranges, key=lambda each: (each[0] is not None, each[0])):
        if since is None or since <= reached:
            reached = max(reached, until)
    return reached >= end


def pinned(predicate: Predicate | None) -> Iterator[tuple[str, list[Any]]]:
    """The columns that WHERE ties to constants, by a conjunct `column = x` or `column IN (x, ...)`."""
    match predicate:
        case And(parts):
            for part in parts:
                yield from pinned(part)
        case Comparison(scalar, "=", value) if scalar.column is not None:
            yield scalar.column, [value]
        case Member(scalar, values) if scalar.column is not None:
            yield scalar.column, list(values)


def is_closed(query: Query, window: Window, group: Sequence[Any], closings: Sequence[Punctuation]) -> bool:
    """Whether no more rows can come for this window and group of a query.

    The rows of a group are known to have certain values in certain columns: its plain GROUP BY columns
    and what WHERE pins. For each combination of them the window must be covered by the punctuations
    whose pattern such a row is sure to match.
    """
    known: dict[str, list[Any]] = {}
    for column, values in pinned(query.where):
        earlier = known.get(column, values)
        known[column] = [v for v in values if sameness(v) in map(sameness, earlier)]
    for key, value in zip(query.keys, group, strict=True):
        if key.scalar.column is not None:
            known[key.scalar.column] = [value]
    applying = [each for each in closings if all(column in known for column, _ in each.where)]
    columns = sorted({column for each in applying for column, _ in each.where})
    for combination in product(*(known[column] for column in columns)):
        row = {column: sameness(value) for column, value in zip(columns, combination, strict=True)}
        matching = [each for each in applying
                    if all(row[column] == sameness(microseconds(v)) for column, v in each.where)]  # fmt: skip
        if not covered(window, [(each.since, each.until) for each in matching]):
            return False
    return True


def is_asked(
    query: Query,
    window: Window,
    group: Sequence[Any],
    prods: Sequence[Prod],
    closings: Sequence[Punctuation],
) -> bool:
    """Whether prods ask for this window and group: does it end by then, and of those with patterns, would
    they close it as punctuations?"""
    upto: list[Punctuation] = []
    for prod in prods:
        if prod.until is not None and prod.clock != query.clock:
            continue
        until = window[1] if prod.until is None else prod.until
        if prod.exactly and window[1] != until - (until - query.window.phase) % query.window.slide:
            continue
        as_punctuation = Punctuation(query.clock, until, where=prod.where)
        if not prod.where:
            if window[1] <= until:
                return True
        elif not prod.exactly:
            upto.append(as_punctuation)
        elif is_closed(query, window, group, [as_punctuation]):
            return True
    return bool(upto) and is_closed(query, window, group, [*upto, *closings])


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
    """Runs pages one after the other, keeping every row."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        pages: Sequence[OraclePage],
        streams: Mapping[str, StreamRules],
        scalars: Scalars,
        joined: Joined,
    ):
        self.queries, self.scalars, self.joined = queries, scalars, joined
        self.streams = {
            name: Stream(rules, column_types(rules, [page for page in pages if page.stream == name]))
            for name, rules in streams.items()
        }
        joining = {each.name for page in pages for each in page.before if isinstance(each, Register)}
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
        return Standing(query, partial, self.streams[query.stream].values(query.clock))

    def run(self, number: int, page: OraclePage) -> None:
        """One page: who joins and leaves, then the rows, then what is closed by them and after them."""
        for control in page.before:
            if isinstance(control, Register):
                self.standing[control.name] = self.joins(self.queries[control.name], control.partial)
            else:
                del self.standing[control.name]
        self.take(number, page)
        for punctuation in page.after:
            self.streams[punctuation.clock.stream].punctuations.append(punctuation)
        for name, standing in self.standing.items():
            ending = page.end_of_stream and standing.query.stream == page.stream
            self.outcome.results[name] += self.finish(standing, number, ending)
            prods = [
                prod
                for prod in page.prods
                if prod.clock.stream == standing.query.stream and name in (prod.queries or [name])
            ]
            self.outcome.early[name] += self.glance(standing, number, prods) if prods else []

    def take(self, number: int, page: OraclePage) -> None:
        """Judges the rows of a page by what was closed before it, and files each under what became of it."""
        stream, outcome = self.streams[page.stream], self.outcome
        time = Clock(page.stream, stream.rules.time, stream.rules.kind)
        accepted, rejected = sieve(page, stream.rules, max(stream.values(time), default=None))
        rows = in_order(accepted, stream.rules.time, list(stream.columns))
        verdicts = [
            self.count(standing, stream, rows)
            for standing in self.standing.values()
            if standing.query.stream == page.stream
        ]
        counts = outcome.counts[page.stream]
        for row, *asked in zip(rows, *verdicts, strict=True):
            fate = "counted" if True in asked else "late" if False in asked else "unasked"
            counts[fate] += 1
            if fate == "late":
                outcome.late[page.stream].append((row, number))
        outcome.rejected[page.stream] += [(row, reason, number) for row, reason in rejected]
        counts["rejected"] += len(rejected)
        counts["in"] += len(page.rows)
        stream.accepted += rows

    def count(self, standing: Standing, stream: Stream, rows: Sequence[Row]) -> list[bool | None]:
        """Counts rows in a query's open windows: for each, whether one took it, None if not asked for."""
        query = standing.query
        closings, before = stream.closings(query.clock), len(stream.accepted)
        verdicts: list[bool | None] = [None] * len(rows)
        for i, values in self.evaluated(query, rows, stream.columns):
            value = reading(query.clock, rows[i], before + i)
            if value is None or holds(query.where, values) is not True:
                continue
            group = tuple(grouped(values[key.scalar.sql]) for key in query.keys)
            for window in windows_of(value, query.window):
                verdicts[i] = bool(verdicts[i])
                if standing.is_over(window) or is_closed(query, window, group, closings):
                    continue
                verdicts[i] = True
                cell = standing.cells.setdefault((window, sameness(group)), Cell(window, group))
                cell.rows.append(values)
        return verdicts

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

    def finish(self, standing: Standing, page: int, ending: bool) -> list[Row]:
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
        return self.tell(standing, list(done.values()), page)

    def glance(self, standing: Standing, page: int, prods: Sequence[Prod]) -> list[Row]:
        """What is known of the open windows that prods ask for."""
        query = standing.query
        closings = self.streams[query.stream].closings(query.clock)
        asked = [
            cell
            for cell in standing.cells.values()
            if is_asked(query, cell.window, cell.group, prods, closings)
        ]
        return self.tell(standing, asked, page)

    def tell(self, standing: Standing, cells: list[Cell], page: int) -> list[Row]:
        """The results of cells, as far as the query may report them."""
        told = [cell for cell in cells if standing.partial or standing.saw_all_of(cell.window)]
        told.sort(key=lambda cell: (cell.window[1], repr(cell.group)))
        return [self.result(standing, cell, row, page) for cell, row in self.lowered(standing.query, told)]

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

    def result(self, standing: Standing, cell: Cell, items: Row, page: int) -> Row:
        """One row of the results."""
        group = {key.name: value for key, value in zip(standing.query.keys, cell.group, strict=True)}
        shown = {**group, **items}
        system = {
            "window_start": cell.window[0],
            "window_end": cell.window[1],
            "rows": len(cell.rows),
            "complete": standing.saw_all_of(cell.window),
            "page": page,
        }
        return {f"transom_{name}" if name in shown else name: value for name, value in system.items()} | shown
