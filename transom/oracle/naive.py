"""The naive answer: every query by itself, from raw rows, by the definitions.

The first paper calls this the naive approach; here it is the oracle that everything is compared with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cmp_to_key
from typing import Any, Hashable, Iterator, Mapping, Sequence

import pyarrow as pa

from transom.elements import Clock, ClockKind, Prod, Punctuation, Register
from transom.oracle.aggregates import ScalarValues, aggregate, holds
from transom.oracle.batches import (
    LookupAnswer,
    OracleBatch,
    OracleOutcome,
    OracleRow,
    OracleStreamRules,
    accept_rows,
    column_types,
    in_order,
)
from transom.oracle.joins import Joined, without_joins
from transom.oracle.lookups import KeptRow, looked_up, newest, oldest_kept
from transom.oracle.window_close import WindowBounds, is_closed, is_prodded, windows_of
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import grouped, microseconds, order_nulls, sameness, table_of, table_rows
from transom.sql.query import Query


def answer(
    queries: Mapping[str, Query],
    batches: Sequence[OracleBatch],
    streams: Mapping[str, OracleStreamRules],
    scalars: Scalars,
    joined: Joined | None = None,
) -> OracleOutcome:
    """The answers of the queries over the batches. A query that no batch registers is there from the start."""
    oracle = Oracle(queries, batches, streams, scalars, joined or without_joins)
    for number, batch in enumerate(batches):
        oracle.run(number, batch)
    return oracle.outcome


# --- queries and streams between batches ------------------------------------------------------


@dataclass
class Cell:
    """One group of one window of a query, with its matching rows."""

    window: WindowBounds
    group: tuple[Any, ...]
    rows: list[ScalarValues] = field(default_factory=list)


@dataclass
class LiveQuery:
    """A registered query. `seen_before` are its clock's values on the rows accepted before it joined."""

    query: Query
    partial: bool
    seen_before: list[int]
    cells: dict[Hashable, Cell] = field(default_factory=dict)
    kept: list[KeptRow] = field(default_factory=list)  # for lookups of an on-demand query
    ended: int | None = None  # where the last window ends that the end of the stream closed
    missed: Counter[WindowBounds] = field(
        default_factory=Counter
    )  # rows that came when the window was closed
    account: Counter[str] = field(default_factory=Counter)  # in, counted, unwanted, late, rejected

    def is_over(self, window: WindowBounds) -> bool:
        """Whether the stream ended, or fell idle, after this window or a later one."""
        return self.ended is not None and window[1] <= self.ended

    def saw_all_of(self, window: WindowBounds) -> bool:
        """Whether no row of the window was accepted before the query joined."""
        return not any(window[0] <= value < window[1] for value in self.seen_before)


@dataclass
class OracleStream:
    """A stream so far: its accepted rows in the order ROWS windows number them, and its punctuations."""

    rules: OracleStreamRules
    columns: Mapping[str, pa.DataType]
    accepted: list[OracleRow] = field(default_factory=list)
    punctuations: list[Punctuation] = field(default_factory=list)

    def values(self, clock: Clock) -> list[int]:
        """The values of a clock on all accepted rows, nulls left out."""
        return [
            value for i, row in enumerate(self.accepted) if (value := clock_value(clock, row, i)) is not None
        ]

    def closings(self, clock: Clock) -> list[Punctuation]:
        """What is closed on a clock: its punctuations, and its watermark as another one."""
        punctuations = [each for each in self.punctuations if each.clock == clock]
        if clock.kind is ClockKind.ROWS:
            return [*punctuations, Punctuation(clock, until=len(self.accepted))]
        slack, values = self.rules.slack_of(clock), self.values(clock)
        if slack is None or not values:
            return punctuations
        return [*punctuations, Punctuation(clock, until=max(values) - slack)]


def first_of_windows(query: Query, pairs: list[tuple[Cell, OracleRow]]) -> list[tuple[Cell, OracleRow]]:
    """Of each window the first rows by ORDER BY, then by group; all rows without LIMIT."""
    top = query.top
    if top is None:
        return pairs

    def compared(left: tuple[Cell, OracleRow], right: tuple[Cell, OracleRow]) -> int:
        for i, key in enumerate(top.order):
            a, b = left[1][f"order {i}"], right[1][f"order {i}"]
            if (a is None) != (b is None):
                return -1 if (a is None) is key.nulls_first else 1
            found = order_nulls(a, b)
            if found:
                return -found if key.is_descending else found
        groups = zip(left[0].group, right[0].group, strict=True)
        return next((found for a, b in groups if (found := order_nulls(a, b))), 0)

    kept = []
    for window in {cell.window for cell, _ in pairs}:
        mine = sorted((pair for pair in pairs if pair[0].window == window), key=cmp_to_key(compared))
        kept += mine[: top.limit]
    return [pair for pair in pairs if any(pair is one for one in kept)]


def clock_value(clock: Clock, row: OracleRow, number: int) -> int | None:
    """The value of a clock on a row."""
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
        streams: Mapping[str, OracleStreamRules],
        scalars: Scalars,
        joined: Joined,
    ):
        self.queries, self.scalars, self.joined = queries, scalars, joined
        self.streams = {
            name: OracleStream(
                rules, column_types(rules, [batch for batch in batches if batch.stream == name])
            )
            for name, rules in streams.items()
        }
        joining = {each.name for batch in batches for each in batch.before if isinstance(each, Register)}
        self.live = {name: self.join(query) for name, query in queries.items() if name not in joining}
        self.outcome = OracleOutcome(
            {name: [] for name in queries},
            {name: [] for name in streams},
            {name: [] for name in streams},
            {name: Counter() for name in streams},
            early={name: [] for name in queries},
        )
        for name, live in self.live.items():
            self.outcome.missed[name], self.outcome.accounts[name] = live.missed, live.account

    def join(self, query: Query, partial: bool = False) -> LiveQuery:
        """Register a query from now on."""
        stream = self.streams[query.stream]
        live = LiveQuery(query, partial, stream.values(query.clock))
        if query.is_on_demand:
            found = self.matching(query, stream, stream.accepted, 0)
            live.kept = [KeptRow(value, group, values, earlier=True) for _, value, group, values in found]
        return live

    def run(self, number: int, batch: OracleBatch) -> None:
        """Process one batch: queries join and leave, rows are counted, then windows close."""
        for control in batch.before:
            if isinstance(control, Register):
                live = self.live[control.name] = self.join(self.queries[control.name], control.partial)
                self.outcome.missed[control.name], self.outcome.accounts[control.name] = (
                    live.missed,
                    live.account,
                )
            else:
                del self.live[control.name]
        self.process_rows(number, batch)
        for punctuation in batch.after:
            self.streams[punctuation.clock.stream].punctuations.append(punctuation)
        for name, live in self.live.items():
            ending = batch.end_of_stream and live.query.stream == batch.stream
            self.outcome.results[name] += self.close_windows(live, number, ending)
            prods = [
                prod
                for prod in batch.prods
                if prod.clock.stream == live.query.stream and name in (prod.queries or [name])
            ]
            self.outcome.early[name] += self.early_results(live, number, prods) if prods else []
        queries = {name: live.query for name, live in self.live.items()}
        self.outcome.lookups += [
            self.look_up(number, name, length) for name, length in looked_up(batch.lookups, queries)
        ]

    def process_rows(self, number: int, batch: OracleBatch) -> None:
        """Count the rows of a batch by what was closed before it, and record what became of each row."""
        stream, outcome = self.streams[batch.stream], self.outcome
        time = Clock(batch.stream, stream.rules.time, stream.rules.kind)
        accepted, rejected = accept_rows(batch, stream.rules, max(stream.values(time), default=None))
        rows = in_order(accepted, stream.rules.time, list(stream.columns))
        readers = {name: live for name, live in self.live.items() if live.query.stream == batch.stream}
        verdicts = {name: self.count(live, stream, rows) for name, live in readers.items()}
        for name, live in readers.items():
            live.account.update("late" if is_late else "counted" if is_late is False else "unwanted"
                                for is_late in verdicts[name])  # fmt: skip
            live.account.update({"rejected": len(rejected), "in": len(batch.rows)})
        counts = outcome.counts[batch.stream]
        for row, *asked in zip(rows, *verdicts.values(), strict=True):
            fate = "late" if True in asked else "counted" if False in asked else "unwanted"
            counts[fate] += 1
            if fate == "late":
                missing = tuple(name for name, is_late in zip(verdicts, asked, strict=True) if is_late)
                outcome.late[batch.stream].append((row, number, missing))
        outcome.rejected[batch.stream] += [(row, reason, number) for row, reason in rejected]
        counts["rejected"] += len(rejected)
        counts["in"] += len(batch.rows)
        stream.accepted += rows

    def count(self, live: LiveQuery, stream: OracleStream, rows: Sequence[OracleRow]) -> list[bool | None]:
        """Count rows in a query's open windows: for each row, whether a window missed it; None if it is unwanted."""
        query = live.query
        if query.is_on_demand:
            return self.keep_rows(live, stream, rows)
        closings = stream.closings(query.clock)
        verdicts: list[bool | None] = [None] * len(rows)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            for window in windows_of(value, query.window):
                verdicts[i] = bool(verdicts[i])
                if live.is_over(window) or is_closed(query, window, group, closings):
                    live.missed[window] += 1
                    verdicts[i] = True
                    continue
                cell = live.cells.setdefault((window, sameness(group)), Cell(window, group))
                cell.rows.append(values)
        return verdicts

    def keep_rows(
        self, live: LiveQuery, stream: OracleStream, rows: Sequence[OracleRow]
    ) -> list[bool | None]:
        """Keep rows for lookups: for each row, whether it came too late; None if it is unwanted."""
        query = live.query
        floor = oldest_kept(query, stream.values(query.clock))
        verdicts: list[bool | None] = [None] * len(rows)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            verdicts[i] = floor is not None and value < floor
            if not verdicts[i]:
                live.kept.append(KeptRow(value, group, values, earlier=False))
        return verdicts

    def matching(
        self, query: Query, stream: OracleStream, rows: Sequence[OracleRow], before: int
    ) -> Iterator[tuple[int, int, tuple[Any, ...], ScalarValues]]:
        """The rows that a query wants: their numbers, clock values, groups, and the query's scalars."""
        for i, values in self.evaluated(query, rows, stream.columns):
            value = clock_value(query.clock, rows[i], before + i)
            if value is not None and holds(query.where, values) is True:
                yield i, value, tuple(grouped(values[key.scalar.sql]) for key in query.keys), values

    def evaluated(
        self, query: Query, rows: Sequence[OracleRow], columns: Mapping[str, pa.DataType]
    ) -> list[tuple[int, ScalarValues]]:
        """The query's scalars for each row; a row that joins with several rows of a table comes several times."""
        if not rows:
            return []
        pairs, wider = self.joined(query, rows, columns)
        expressions = {scalar.sql: scalar.sql for scalar in query.scalars()}
        if not expressions:
            return [(i, {}) for i, _ in pairs]
        projected = self.scalars.project(table_of([row for _, row in pairs], wider), expressions)
        return [(i, values) for (i, _), values in zip(pairs, table_rows(projected), strict=True)]

    def close_windows(self, live: LiveQuery, batch_id: int, ending: bool) -> list[OracleRow]:
        """Remove the windows that are closed now, and return their results."""
        query = live.query
        closings = self.streams[query.stream].closings(query.clock)
        done = {
            key: cell
            for key, cell in live.cells.items()
            if ending or is_closed(query, cell.window, cell.group, closings)
        }
        for key, cell in done.items():
            del live.cells[key]
            if ending:
                live.ended = max(cell.window[1], live.ended or cell.window[1])
        return self.report(live, list(done.values()), batch_id)

    def early_results(self, live: LiveQuery, batch_id: int, prods: Sequence[Prod]) -> list[OracleRow]:
        """The results so far of the open windows that prods ask for."""
        query = live.query
        closings = self.streams[query.stream].closings(query.clock)
        wanted = [
            cell
            for cell in live.cells.values()
            if is_prodded(query, cell.window, cell.group, prods, closings)
        ]
        return self.report(live, wanted, batch_id)

    def look_up(self, batch_id: int, name: str, length: int) -> LookupAnswer:
        """The answer of an on-demand query now, for the window of a length that ends at the newest row."""
        live = self.live[name]
        query = live.query
        window = newest(self.streams[query.stream].values(query.clock), length)
        if window is None:
            return LookupAnswer(batch_id, name, length, None, [], [], complete=True)
        whole = self.lookup_results(replace(live, seen_before=[]), window, live.kept, batch_id)
        since = [kept for kept in live.kept if not kept.earlier]
        rows, complete = self.lookup_results(live, window, since, batch_id), live.saw_all_of(window)
        return LookupAnswer(batch_id, name, length, window, rows, whole, complete)

    def lookup_results(
        self, live: LiveQuery, window: WindowBounds, rows_kept: Sequence[KeptRow], batch_id: int
    ) -> list[OracleRow]:
        """The results for a window of a lookup, from the rows that lie in it."""
        cells: dict[Hashable, Cell] = {}
        for each in rows_kept:
            if window[0] <= each.value < window[1]:
                cell = cells.setdefault(sameness(each.group), Cell(window, each.group))
                cell.rows.append(each.values)
        ordered = sorted(cells.values(), key=lambda cell: repr(cell.group))
        return [self.result(live, cell, row, batch_id) for cell, row in self.lowered(live.query, ordered)]

    def report(self, live: LiveQuery, cells: list[Cell], batch_id: int) -> list[OracleRow]:
        """The results of cells, as far as the query may report them."""
        reported = [cell for cell in cells if live.partial or live.saw_all_of(cell.window)]
        reported.sort(key=lambda cell: (cell.window[1], repr(cell.group)))
        return [self.result(live, cell, row, batch_id) for cell, row in self.lowered(live.query, reported)]

    def lowered(self, query: Query, cells: list[Cell]) -> list[tuple[Cell, OracleRow]]:
        """The items of each cell that passes HAVING."""
        if not cells:
            return []
        types = query.item_columns
        inputs = []
        for cell in cells:
            aggregates = [aggregate(call, cell.rows) for call in query.calls]
            inputs.append(dict(zip(types, (*cell.group, *aggregates, *cell.window), strict=True)))
        expressions = {f"item {i}": item.sql for i, item in enumerate(query.items)}
        expressions["having"] = query.having or "true"
        if query.top is not None:
            expressions |= {f"order {i}": key.sql for i, key in enumerate(query.top.order)}
        outputs = table_rows(self.scalars.project(table_of(inputs, types), expressions))
        pairs = zip(cells, outputs, strict=True)
        kept = first_of_windows(query, [pair for pair in pairs if pair[1]["having"] is True])
        return [
            (cell, {item.name: output[f"item {i}"] for i, item in enumerate(query.items)})
            for cell, output in kept
        ]

    def result(self, live: LiveQuery, cell: Cell, items: OracleRow, batch_id: int) -> OracleRow:
        """One row of the results."""
        group = {key.name: value for key, value in zip(live.query.keys, cell.group, strict=True)}
        shown = {**group, **items}
        system = {
            "window_start": cell.window[0],
            "window_end": cell.window[1],
            "rows": len(cell.rows),
            "late": live.account["late"],
            "complete": live.saw_all_of(cell.window),
            "batch": batch_id,
        }
        return {f"transom_{name}" if name in shown else name: value for name, value in system.items()} | shown
