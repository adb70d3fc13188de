"""The naive answer: every query by itself, from raw rows, by the definitions.

The first paper calls this the naive approach; here it is the oracle that everything is compared with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cmp_to_key
from typing import Any, Callable, Hashable, Iterable, Iterator, Mapping, Sequence

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
from transom.oracle.corrections import Corrections, cells_to_answer, is_passed
from transom.oracle.earlier_windows import PastResults
from transom.oracle.joins import Joined, without_joins
from transom.oracle.lookups import KeptRow, looked_up, newest, oldest_kept
from transom.oracle.sessions import SessionRow, chains, extent, is_final, surroundings
from transom.oracle.stream_joins import OracleJoin, rules_of_pairs, with_columns
from transom.oracle.window_close import WindowBounds, is_closed, is_in_order, is_prodded, windows_of
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import grouped, microseconds, order_nulls, sameness, table_of, table_rows
from transom.sql.item_columns import key_reference
from transom.sql.query import JoinForm, Query, StreamJoin


def answer(
    queries: Mapping[str, Query],
    batches: Sequence[OracleBatch],
    streams: Mapping[str, OracleStreamRules],
    scalars: Scalars,
    joined: Joined | None = None,
) -> OracleOutcome:
    """The answers of the queries over the batches. A query that no batch registers is there from the start."""
    queries = {name: query.over_pairs for name, query in queries.items()}
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
    members: list[SessionRow] = field(default_factory=list)  # the same rows, of a session


@dataclass
class KeyRows:
    """The rows of a key since a query joined: whether each satisfies WHERE, and its scalars."""

    group: tuple[Any, ...]
    rows: list[tuple[bool, ScalarValues]] = field(default_factory=list)


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
    join: OracleJoin | None = None  # of two streams, whose pairs it reads
    unseen_before: int | None = None  # earlier pairs may have a row from before it joined
    past: PastResults = field(default_factory=PastResults)  # for LAG and EMIT EMPTY
    corrections: Corrections = field(default_factory=Corrections)  # for EMIT CORRECTIONS
    closed_before: Sequence[Punctuation] = ()  # what was closed when it joined

    key_rows: dict[Hashable, KeyRows] = field(default_factory=dict)  # of windows of the rows of a key
    ended_cells: list[Cell] = field(default_factory=list)  # windows of keys that the last batch ended
    found: list[tuple[int, OracleRow]] = field(
        default_factory=list
    )  # times and items of rows, without a window

    def is_over(self, window: WindowBounds) -> bool:
        """Whether the stream ended, or fell idle, after this window or a later one."""
        return self.ended is not None and window[1] <= self.ended

    def saw_all_of(self, window: WindowBounds) -> bool:
        """Whether no row of the window was accepted before the query joined."""
        if self.query.window.is_keyed:  # it numbers the rows of each key from when it joined
            return True
        start, end = surroundings(self.query, window)
        if self.unseen_before is not None and start < self.unseen_before:
            return False
        return not any(start <= value < end for value in self.seen_before)

    def is_complete(self, window: WindowBounds) -> bool:
        """Whether no row of the window was left out."""
        return self.saw_all_of(window) and (self.join is None or self.join.is_whole(window))


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

    def by_value(left: tuple[Cell, OracleRow], right: tuple[Cell, OracleRow]) -> int:
        for i, key in enumerate(top.order):
            a, b = left[1][f"order {i}"], right[1][f"order {i}"]
            if (a is None) != (b is None):
                return -1 if (a is None) is key.nulls_first else 1
            found = order_nulls(a, b)
            if found:
                return -found if key.is_descending else found
        return 0

    def compared(left: tuple[Cell, OracleRow], right: tuple[Cell, OracleRow]) -> int:
        if found := by_value(left, right):
            return found
        groups = zip(left[0].group, right[0].group, strict=True)
        return next((found for a, b in groups if (found := order_nulls(a, b))), 0)

    kept = []
    for window in {cell.window for cell, _ in pairs}:
        mine = sorted((pair for pair in pairs if pair[0].window == window), key=cmp_to_key(compared))
        kept += mine[: top.limit]
        if top.with_ties:
            kept += [pair for pair in mine[top.limit :] if by_value(mine[top.limit - 1], pair) == 0]
    return [pair for pair in pairs if any(pair is one for one in kept)]


def row_result(time: int, shown: OracleRow, batch_id: int) -> OracleRow:
    """A result of a query without a window."""
    system = {"event_time": time, "batch": batch_id}
    return {f"transom_{name}" if name in shown else name: value for name, value in system.items()} | shown


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
        self.joins: dict[str, OracleJoin] = {}
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
        if query.stream_join is not None:
            return self.join_pairs(query, query.stream_join)
        stream = self.streams[query.stream]
        closed = stream.closings(query.clock)
        live = LiveQuery(query, partial, stream.values(query.clock), closed_before=closed)
        if query.is_on_demand:
            found = self.matching(query, stream, stream.accepted, 0)
            live.kept = [KeptRow(value, group, values, earlier=True) for _, value, group, values in found]
        return live

    def join_pairs(self, query: Query, join: StreamJoin) -> LiveQuery:
        """Register a query over a join of two streams from now on."""
        if join.id not in self.joins:
            self.joins[join.id] = OracleJoin(join)
        everything = [other.stream_join for other in self.queries.values() if other.stream == query.stream]
        known = self.joins[join.id]
        known.join = with_columns([one for one in everything if one is not None])
        rules = rules_of_pairs(known.join)
        self.streams.setdefault(join.id, OracleStream(rules, rules.columns))
        unseen = known.unseen_before([self.streams[side.stream].accepted for side in join.sides])
        return LiveQuery(query, partial=False, seen_before=[], join=known, unseen_before=unseen)

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
        self.forget_joins()
        self.process_rows(number, batch)
        for punctuation in batch.after:
            self.streams[punctuation.clock.stream].punctuations.append(punctuation)
        ended = {batch.stream} if batch.end_of_stream else set[str]()
        ended |= set(self.advance_joins(batch))
        for name, live in self.live.items():
            ending = live.query.stream in ended
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

    def forget_joins(self) -> None:
        """Forget joins that no query reads any more."""
        read = {live.query.stream for live in self.live.values()}
        for name in [name for name in self.joins if name not in read]:
            del self.joins[name], self.streams[name]

    def count_pairs(self, batch: OracleBatch, new: Sequence[OracleRow]) -> None:
        """Count the pairs that the rows of a batch make, by what was closed before it."""
        for name, known in self.joins.items():
            sides = [side.stream for side in known.join.sides]
            if batch.stream not in sides:
                continue
            before = {side: self.streams[side].accepted for side in sides}
            columns = {side: self.streams[side].columns for side in sides}
            pairs = known.pairs(batch.stream, new, before, columns, self.scalars)
            if known.join.form is JoinForm.INNER:
                self.count_rows_of(name, pairs)
            else:  # with the rows that turn out to have no partner
                known.brought = pairs

    def count_rows_of(self, name: str, pairs: Sequence[OracleRow]) -> None:
        """Count rows of a join for the queries that read it."""
        for live in self.live.values():
            if live.query.stream == name:
                values = [
                    value for row in pairs if (value := row.get(live.query.clock.attribute)) is not None
                ]
                live.past.begin(live.query, values, self.streams[name].closings(live.query.clock))
                verdicts = self.count(live, self.streams[name], pairs)
                live.account.update("late" if is_late else "counted" if is_late is False else "unwanted"
                                    for is_late in verdicts)  # fmt: skip
                live.account.update({"in": len(pairs)})
        self.streams[name].accepted += pairs

    def advance_joins(self, batch: OracleBatch) -> Iterator[str]:
        """Move the clocks of joins after a batch; the streams of pairs that ended with it."""
        for name, known in self.joins.items():
            if batch.stream not in [side.stream for side in known.join.sides]:
                continue
            has_ended = known.advance(
                batch.stream,
                bool(batch.rows),
                batch.end_of_stream,
                lambda stream, clock: self.streams[stream].closings(clock),
            )
            if known.join.form is not JoinForm.INNER:
                self.count_rows_of(name, [*known.brought, *known.unmatched(has_ended)])
                known.brought = []
            if known.closed is not None:
                until = known.closed - known.join.wait
                self.streams[name].punctuations = [Punctuation(known.join.clock, until)]
            if has_ended:
                yield name

    def process_rows(self, number: int, batch: OracleBatch) -> None:
        """Count the rows of a batch by what was closed before it, and record what became of each row."""
        stream, outcome = self.streams[batch.stream], self.outcome
        time = Clock(batch.stream, stream.rules.time, stream.rules.kind)
        accepted, rejected = accept_rows(batch, stream.rules, max(stream.values(time), default=None))
        rows = in_order(accepted, stream.rules.time, list(stream.columns))
        readers = {name: live for name, live in self.live.items() if live.query.stream == batch.stream}
        for live in readers.values():
            clock, before = live.query.clock, len(stream.accepted)
            numbered = (clock_value(clock, row, before + i) for i, row in enumerate(rows))
            values = [value for value in numbered if value is not None]
            live.past.begin(live.query, values, stream.closings(clock))
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
        self.count_pairs(batch, rows)
        stream.accepted += rows

    def count(self, live: LiveQuery, stream: OracleStream, rows: Sequence[OracleRow]) -> list[bool | None]:
        """Count rows in a query's open windows: for each row, whether a window missed it; None if it is unwanted."""
        query = live.query
        if query.is_on_demand:
            return self.keep_rows(live, stream, rows)
        if query.is_row_query:
            return self.find_rows(live, stream, rows)
        closings = stream.closings(query.clock)
        if query.window.is_keyed:
            return self.count_by_key(live, stream, rows)
        if query.window.is_session:
            return self.count_sessions(live, stream, rows, closings)
        verdicts: list[bool | None] = [None] * len(rows)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            for window in windows_of(value, query.window):
                verdicts[i] = bool(verdicts[i])
                is_late = live.is_over(window) or is_closed(query, window, group, closings)
                key = window, sameness(group)
                if (
                    is_late
                    and query.corrections is not None
                    and not is_passed(query, window, group, closings)
                ):
                    live.corrections.late[key] = None
                elif is_late:
                    live.missed[window] += 1
                    verdicts[i] = True
                    continue
                cell = live.cells.setdefault(key, Cell(window, group))
                cell.rows.append(values)
        return verdicts

    def count_by_key(
        self, live: LiveQuery, stream: OracleStream, rows: Sequence[OracleRow]
    ) -> list[bool | None]:
        """Number the rows of each key, and note the windows that they end."""
        query = live.query
        for _, values in self.evaluated(query, rows, stream.columns):
            group = tuple(grouped(values[key.scalar.sql]) for key in query.keys)
            own = live.key_rows.setdefault(sameness(group), KeyRows(group))
            own.rows.append((holds(query.where, values) is True, values))
            if len(own.rows) % query.window.slide == 0:
                live.ended_cells += self.key_windows(query, own, [len(own.rows)])
        return [False] * len(rows)

    def key_windows(self, query: Query, own: KeyRows, ends: Iterable[int]) -> list[Cell]:
        """The windows of a key that end there, without those in which no row satisfies WHERE."""
        size = query.window.range
        cells = []
        for end in ends:
            taken = [values for is_wanted, values in own.rows[max(0, end - size) : end] if is_wanted]
            cells += [Cell((end - size, end), own.group, taken)] if taken else []
        return cells

    def count_sessions(
        self,
        live: LiveQuery,
        stream: OracleStream,
        rows: Sequence[OracleRow],
        closings: Sequence[Punctuation],
    ) -> list[bool | None]:
        """Count rows in a query's sessions. Late are the rows that are only in sessions that are final already."""
        query, gap = live.query, live.query.window.range
        verdicts: list[bool | None] = [None] * len(rows)
        groups: dict[Hashable, tuple[tuple[Any, ...], list[SessionRow]]] = {}
        for cell in live.cells.values():
            groups.setdefault(sameness(cell.group), (cell.group, []))[1].extend(cell.members)
        for i, value, group, values in self.matching(query, stream, rows, len(stream.accepted)):
            row = SessionRow(value, values, len(stream.accepted) + i, i)
            groups.setdefault(sameness(group), (group, []))[1].append(row)
            verdicts[i] = bool(verdicts[i])
        live.cells = {}
        for key, (group, members) in groups.items():
            for chain in chains(members, gap):
                window = extent(chain, gap)
                if live.is_over(window) or is_final(query, window, group, closings):
                    for row in chain:
                        assert row.place is not None, "a session that was open is closed"
                        live.missed[row.value, row.value + gap] += 1
                        verdicts[row.place] = True
                    continue
                kept = sorted((replace(row, place=None) for row in chain), key=lambda row: row.number)
                live.cells[window, key] = Cell(window, group, [row.values for row in kept], kept)
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

    def find_rows(
        self, live: LiveQuery, stream: OracleStream, rows: Sequence[OracleRow]
    ) -> list[bool | None]:
        """Note the rows that satisfy a query without a window: each is a result, and none is late."""
        query = live.query
        verdicts: list[bool | None] = [None] * len(rows)
        sql = {key_reference(place): key.scalar.sql for place, key in enumerate(query.keys)}
        for i, value, _, values in self.matching(query, stream, rows, len(stream.accepted)):
            verdicts[i] = False
            live.found.append((value, {item.name: values[sql[item.sql]] for item in query.items}))
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
        if query.is_row_query:
            found, live.found = sorted(live.found, key=lambda pair: pair[0]), []
            return [row_result(time, shown, batch_id) for time, shown in found]
        if query.window.is_keyed:
            ended, live.ended_cells = live.ended_cells, []
            return self.report(live, ended, batch_id)
        closings = self.streams[query.stream].closings(query.clock)
        if query.corrections is not None:
            return self.correct_windows(live, batch_id, ending, closings)
        done = {
            key: cell
            for key, cell in live.cells.items()
            if ending or is_final(query, cell.window, cell.group, closings)
        }
        for key, cell in done.items():
            del live.cells[key]
            if ending:
                live.ended = max(cell.window[1], live.ended or cell.window[1])
        if ending and query.empty is not None:
            last = live.past.last_window(query, self.streams[query.stream].values(query.clock))
            live.ended = live.ended if last is None else max(last, live.ended or last)
        cells = list(done.values())
        if is_in_order(query):
            cells = self.with_empty(live, cells, closings)
        return self.report(live, cells, batch_id)

    def correct_windows(
        self, live: LiveQuery, batch_id: int, ending: bool, closings: list[Punctuation]
    ) -> list[OracleRow]:
        """The final results of windows that closed, and how late rows changed those of windows closed before.

        All cells are kept: rows that are too late are not added to them.
        """
        query, known = live.query, live.corrections
        late, known.late = list(known.late), {}
        known.closed |= set(late)
        late = [key for key in late if not self.had_closed(live, live.cells[key])]
        done = [
            key
            for key, cell in live.cells.items()
            if key not in known.closed and (ending or is_final(query, cell.window, cell.group, closings))
        ]
        if ending and live.cells:
            last = max(cell.window[1] for cell in live.cells.values())
            live.ended = max(last, live.ended or last)
        known.closed |= set(done)
        finals = known.finals(self.reported_by_cell(live, done, batch_id).items())
        asked = cells_to_answer(query, live.cells, late, lambda cell: cell.window)
        return [*finals, *known.changes(asked, self.reported_by_cell(live, asked, batch_id), batch_id)]

    def had_closed(self, live: LiveQuery, cell: Cell) -> bool:
        """Whether a window had closed before the query joined: there is no final result to correct."""
        return is_closed(live.query, cell.window, cell.group, list(live.closed_before))

    def reported_by_cell(
        self, live: LiveQuery, keys: Iterable[Hashable], batch_id: int
    ) -> dict[Hashable, OracleRow]:
        """The results of some cells, as far as the query may report them."""
        cells = [live.cells[key] for key in keys]
        wanted = [cell for cell in cells if live.partial or live.saw_all_of(cell.window)]
        return {
            (cell.window, sameness(cell.group)): self.result(live, cell, row, batch_id)
            for cell, row in self.lowered(live.query, wanted)
        }

    def with_empty(self, live: LiveQuery, cells: list[Cell], closings: list[Punctuation]) -> list[Cell]:
        """Cells that closed, and those of windows without rows; all of them are noted as results."""
        query, past = live.query, live.past
        wanted = [cell for cell in cells if live.partial or live.saw_all_of(cell.window)]
        for cell in wanted:
            values = [aggregate(call, cell.rows) for call in query.calls]
            past.add(cell.window, cell.group, cell.rows, values)
        found = list(past.empty_windows(query, live.is_over, closings)) if query.empty is not None else []
        empty = [Cell(*each) for each in found if live.partial or live.saw_all_of(each[0])]
        for cell in empty:
            past.add(cell.window, cell.group, [], [aggregate(call, []) for call in query.calls])
        return wanted + empty

    def early_results(self, live: LiveQuery, batch_id: int, prods: Sequence[Prod]) -> list[OracleRow]:
        """The results so far of the open windows that prods ask for."""
        query = live.query
        is_shared = query.window.is_shared_by_groups
        closings = self.streams[query.stream].closings(query.clock) if is_shared else []
        cells = list(live.cells.values())
        for own in live.key_rows.values():
            count, slide = len(own.rows), query.window.slide
            following = range(count + 1, count + query.window.range)
            cells += self.key_windows(query, own, [end for end in following if end % slide == 0])
        wanted = [cell for cell in cells if is_prodded(query, cell.window, cell.group, prods, closings)]
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
        closings = self.streams[live.query.stream].closings(live.query.clock)

        def earlier(cell: Cell) -> list[Any]:
            return live.past.lags(
                live.query,
                cell.window,
                cell.group,
                lambda window: live.is_over(window) or is_closed(live.query, window, cell.group, closings),
            )

        lowered = self.lowered(live.query, reported, earlier)
        return [self.result(live, cell, row, batch_id) for cell, row in lowered]

    def lowered(
        self, query: Query, cells: list[Cell], earlier: Callable[[Cell], list[Any]] = lambda _: []
    ) -> list[tuple[Cell, OracleRow]]:
        """The items of each cell that passes HAVING; `earlier` are the values of earlier windows that LAG reads."""
        if not cells:
            return []
        types = query.item_columns
        inputs = []
        for cell in cells:
            aggregates = [aggregate(call, cell.rows) for call in query.calls]
            values = (*cell.group, *aggregates, *earlier(cell), *cell.window)
            inputs.append(dict(zip(types, values, strict=True)))
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
            "complete": live.is_complete(cell.window),
            "batch": batch_id,
        }
        return {f"transom_{name}" if name in shown else name: value for name, value in system.items()} | shown
