"""Handles of a program: a registered query, and a feed to push rows into."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from transom.api.data_frames import ResultFrames
from transom.api.parameters import with_parameters
from transom.elements import ClockKind, Tune
from transom.errors import SettingError, StateError, TransomError
from transom.estimates import Accuracy
from transom.estimates.feedback import new_estimator
from transom.ingest.late_rows import MISSED_BY
from transom.ingest.sources import FeedSource
from transom.plan.compiled_query import compile_query
from transom.plan.decisions import DecisionRecord
from transom.results.newest_results import ResultPlaces, newest_results
from transom.results.result_rows import result_schema
from transom.runtime.backfill import BackfillProgress
from transom.runtime.delivery import Delivery
from transom.runtime.explain import explain_query
from transom.runtime.late_windows import late_windows
from transom.runtime.lookups import Lookups, window_length
from transom.runtime.loop import BatchLoop
from transom.runtime.notebook import SHOWN_ROWS, html_table, result_chart, text_block, titled
from transom.runtime.plan_decisions import query_decisions
from transom.runtime.prods import ProdAnswers, prod_of, punctuation_of
from transom.runtime.query_changes import EditOutcome, QueryChanges, checked_units
from transom.runtime.registry import RegisteredQuery
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query
from transom.state.accounts import Accounts, QueryAccount
from transom.state.promising import Coverage


@dataclass(frozen=True)
class EngineParts:
    """The parts of an engine that its handles use."""

    loop: BatchLoop
    delivery: Delivery
    prods: ProdAnswers
    lookups: Lookups
    changes: QueryChanges
    wake: Callable[[], None]  # look for batches now


class QueryHandle(ResultFrames):
    """A registered query."""

    def __init__(self, parts: EngineParts, name: str, text: str, query: Query | None = None):
        self._parts, self.name, self.text, self._query = parts, name, text, query
        self._since, self._stored_name, self._is_dropped = 0, name, False

    def __repr__(self) -> str:
        return f"<query {self.name}: {textwrap.shorten(self.text, 100, placeholder=' ...')}>"

    def _repr_html_(self) -> str:
        """The query in a notebook: its text, its state, a chart and its newest results."""
        with suppress(TransomError):
            table = self.results()
            newest = table.slice(max(0, table.num_rows - SHOWN_ROWS))
            state = self.suspended or ("paused" if self.paused else f"{table.num_rows:,} results")
            rows = zip(*(column.to_pylist() for column in newest.columns), strict=True)
            shown = html_table(newest.column_names, rows) if newest.num_rows else ""
            query = self._bound()[0]
            chart = "" if query is None else result_chart(table, query)
            return titled(f"query {self.name}: {state}", text_block(self.text), chart, shown)
        return titled(f"query {self.name}", text_block(self.text))

    def drop(self) -> None:
        """Drop the query with the next batch; results made so far can still be read from this handle."""
        with suppress(StateError):  # a query whose stream is gone can't be bound, but it can be dropped
            self._remember()
        self._parts.loop.directory.drop(self.name)
        self._parts.delivery.forget(self.name)
        self._parts.wake()
        self._is_dropped = True

    def _entry(self) -> RegisteredQuery | None:
        """The query in the registry, if it has joined and was not dropped; its name may be another's by now.

        A query that was edited, perhaps by another program, is followed: the handle has its text from then on.
        """
        directory = self._parts.loop.directory
        entry = directory.registry.entries.get(self.name)
        if self._is_dropped or entry is None:
            return None
        if entry.text != self.text and entry.edited and directory.texts.get(self.name) == entry.text:
            self.text, self._query = entry.text, None
        return entry if entry.text == self.text else None

    def _remember(self) -> None:
        """Keep the bound query for reads after the drop."""
        entry = self._entry()
        self._query, self._since = self._bound()
        self._stored_name = self.name if entry is None else entry.stored_name

    def _bound(self) -> tuple[Query | None, int]:
        """The bound query and the batch it joined with, as far as they are known.

        The name may be another query's by now, or still be that of a query that is about to leave.
        """
        directory = self._parts.loop.directory
        if self._entry() is None:
            return self._query or directory.bound.get(self.text), self.since or self._since
        directory.bind()
        return directory.registry.query(self.name), directory.registry[self.name].since

    def results(self) -> pa.Table:
        """All results so far: window_start, window_end, the group columns, the select items, kind,
        complete, rows, late, batch, made, latency.

        Results of a row query, which has no window: event_time, the select items, kind, batch, made."""
        self._check_pushed()
        query, since = self._bound()
        if query is None:
            raise StateError(f"there is no query named {self.name}")
        return self._parts.loop.outputs.results(self.stored_name, result_schema(query), since)

    def latest(self) -> pa.Table:
        """The newest result of each window and group, without early results, in the columns of `results`.

        Of a query with EMIT CORRECTIONS these are the corrected results, without those that were retracted. Of other
        queries they are the final results."""
        query, results = self._window_query(), self.results()
        if query.is_row_query:
            return results
        return newest_results(results, ResultPlaces.of(query))

    @property
    def stored_name(self) -> str:
        """The name under which results are stored: the one that the query joined with."""
        entry = self._entry() or self._waiting()
        return self._stored_name if entry is None else entry.stored_name

    def late(self, rows: bool = False) -> pa.Table:
        """The rows that this query missed, by window: window_start, window_end, late; the newest windows last.

        A query misses a row that satisfies its WHERE in every window that was closed when the row arrived. With
        `rows` the answer is the rows themselves, each once, with the reason and the batch.
        """
        query, since = self._bound()
        if query is None:
            raise StateError(f"there is no query named {self.name}")
        loop = self._parts.loop
        if not rows:
            accounts = Accounts() if self._entry() is None else loop.state.accounts
            return late_windows(self.name, query, accounts)
        if query.stream_join is not None:
            raise SettingError(f"{self.name} joins two streams: pairs that it missed are counted, not kept")
        stream = loop.declared.streams.get(query.stream)
        if stream is None and query.stream in loop.directory.registry.of_kind(PreferenceQuery):
            stream = loop.directory.source(query.stream)
            stream = replace(stream, name=loop.directory.registry[query.stream].identity)
        if stream is None:
            raise SettingError(
                f"{self.name} reads the results of {query.stream}: those that it missed are counted, not kept"
            )
        late = loop.outputs.rows.late(stream, {self.stored_name: since})
        return late.drop_columns([MISSED_BY])

    @property
    def account(self) -> QueryAccount:
        """What became of every row since the query joined, as of the last batch."""
        return self._parts.loop.state.accounts.of(self.name)

    def subscribe(self, callback: Callable[[pa.Table], None]) -> Callable[[], None]:
        """Call back with each batch's new results, before the batch is committed (so at least once);
        returns a function that ends the subscription. An exception in it is logged, not raised."""
        self._check_pushed()
        return self._parts.delivery.subscribe(self.name, callback)

    def sink(self, format: str, path: str | None = None, **options: Any) -> None:
        """Write this query's results, typed, in a format that the backend writes; files are written exactly once."""
        self._check_pushed()
        self._parts.delivery.sink(self.name, format, path, options)

    def prod(self, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """What is known now of this query's open windows, from the last committed batch: early results.

        `until` asks for the windows that end by then, `at` for the last of those only, neither for all that
        hold rows; `where` is a pattern on the groups.
        """
        query = self._window_query()
        self._check_pushed()
        if query.is_row_query:
            raise SettingError(f"{self.name} has no window to prod: its results are final at once")
        timed = query.clock.attribute if until is not None or at is not None else None
        if timed is not None and query.clock.kind is ClockKind.ROWS:
            raise SettingError("windows of rows have no time: leave until and at out")
        stream = self._parts.loop.directory.source(query.stream)
        early = self._parts.prods.prod([stream], until, at, where, (self.name,), timed)
        return early.get(self.name, result_schema(query).empty_table())

    def lookup(
        self,
        range: str | int | timedelta | None = None,
        rows: int | None = None,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer for one window, from the last committed batch.

        A query without SLIDE answers for its own window, or a shorter one (`range`, or `rows` of a window of rows),
        which ends at `at`, or at the newest row. A query with SLIDE needs `at`, and answers for its last window that
        ends by then. Windows of the past, and those of a query with SLIDE, are computed from the rows that the stream
        retains. `where` is a pattern on the groups.
        """
        query = self._on_demand() if at is None else self._windowed()
        length = window_length(query, range, rows)
        if self._is_dropped:
            raise StateError(f"the query {self.name} was dropped")
        if self._entry() is None:
            return self._parts.lookups.waiting(self.name, self.text, length, at, where)
        return self._parts.lookups.registered(self.name, length, at, where)

    @property
    def has_preference(self) -> bool:
        """Whether the query says WITH PREFERENCE."""
        return False

    @property
    def is_row_query(self) -> bool:
        """Whether the query has no window: each row that satisfies it is a result."""
        query, _ = self._bound()
        return query is not None and query.is_row_query

    @property
    def corrects(self) -> bool:
        """Whether late rows correct results of closed windows: the query has EMIT CORRECTIONS."""
        query, _ = self._bound()
        return isinstance(query, Query) and query.corrections is not None

    @property
    def on_demand(self) -> bool:
        """Whether the query is without SLIDE: it is looked up, and reports nothing by itself."""
        query, _ = self._bound()
        return query is not None and query.is_on_demand

    def _check_pushed(self) -> None:
        with suppress(StateError):  # the results of a query that can't be bound any more can still be read
            if self.on_demand:
                raise SettingError(f"{self.name} has no SLIDE: it pushes no results; call its lookup()")

    def _windowed(self) -> Query:
        query = self._window_query()
        if query.is_row_query:
            raise SettingError(f"{self.name} has no window: what it finds is pushed; read its results()")
        return query

    def _on_demand(self) -> Query:
        query = self._windowed()
        if query.is_standing:
            raise SettingError(
                f"{self.name} has SLIDE: its results are pushed; prod it for early ones, or look up a past window "
                "with at='2013-01-01 12:00'"
            )
        return query

    def accuracy(self) -> Accuracy:
        """How good early results have been, compared with their finals: on average, at worst, and how many
        finals lay within the bounds. For queries with EMIT EARLY."""
        query = self._window_query()
        if query.emit is None:
            raise StateError(f"{self.name} has no EMIT EARLY: it has no early results to compare")
        estimator = self._parts.loop.state.estimators.get(self.name)
        if estimator is not None:
            return estimator.accuracy()
        return new_estimator(compile_query(self.name, query)).accuracy()

    def tune(self, aggressiveness: float | None) -> None:
        """Report windows when this part of their last slide is still to come (0.25: after three quarters of it),
        instead of the points that the query names; None restores those. For queries with EMIT EARLY."""
        if self._window_query().emit is None:
            raise SettingError(f"{self.name} has no EMIT EARLY: there is nothing to tune")
        if not self._window_query().window.is_shared_by_groups:
            raise SettingError(f"the windows of {self.name} have no common slide: there is nothing to tune")
        if aggressiveness is not None and not 0 <= aggressiveness < 1:
            raise SettingError(f"aggressiveness is a part of the slide, from 0 to 1, not {aggressiveness!r}")
        point = None if aggressiveness is None else 1 - aggressiveness
        self._parts.loop.directory.push([Tune(self.name, point)])
        self._parts.wake()

    @property
    def tuned(self) -> float | None:
        """The aggressiveness that the query was tuned to, as of the last batch; None if it was not tuned."""
        prodder = self._parts.loop.state.prodders.get(self.name)
        return None if prodder is None or prodder.point is None else round(1 - prodder.point, 9)

    @property
    def bound(self) -> BoundQuery:
        """The bound query: every name resolved and every type known."""
        return self._window_query()

    def _window_query(self) -> Query:
        query, _ = self._bound()
        if query is None:
            raise StateError(f"there is no query named {self.name}")
        return query

    @property
    def partial(self) -> bool:
        """Whether the query also reports windows that it saw only in part."""
        registry = self._parts.loop.directory.registry
        return self.name in registry and registry[self.name].partial

    @property
    def since(self) -> int | None:
        """The batch that the query joined with; None while it waits for one."""
        entry = self._entry() or self._waiting()
        return None if entry is None else entry.since

    def _waiting(self) -> RegisteredQuery | None:
        """The query that has joined, and gets this text or this name with the next batch."""
        if self._is_dropped:
            return None
        with suppress(StateError):
            entry = self._parts.changes.entry(self.name)
            return entry if entry.since and entry.text == self.text else None
        return None

    def coverage(self) -> Coverage:
        """What became of the budget so far, of a query WITH PREFERENCE: probes made, tuples produced, tuples
        probably passed over, and the share of the output that was produced."""
        raise SettingError(f"{self.name} has no WITH PREFERENCE: it skips nothing")

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """How this query is computed, and what it shares with which queries: as text, json or mermaid."""
        return explain_query(self._parts.loop, self.name, format, verbose)

    def decisions(self) -> list[DecisionRecord]:
        """What the planner decided about this query and what it shares, and why, in the order of the passes.

        There are none before the query joins.
        """
        return query_decisions(self._parts.loop, self.name)

    @property
    def suspended(self) -> str | None:
        """Why the query is suspended, or None."""
        registry = self._parts.loop.directory.registry
        return registry[self.name].suspended if self.name in registry else None

    def resume(self) -> None:
        """Let a suspended or paused query take part in batches again; it joins with the next batch, like a new one."""
        self._parts.changes.resume(self.name)

    # --- changes of a registered query ---

    def edit(
        self, sql: str, *, parameters: Mapping[str, Any] | None = None, dry_run: bool = False
    ) -> EditOutcome:
        """Give the query another text with the next batch, under the same name; says what becomes of open windows.

        Windows are kept where the slices of the old text answer the new one: HAVING, the SELECT list and EMIT can
        change freely. A text that is wrong is an error, and the old one stays. Sinks, subscribers, tags and the
        description stay. Results go on if rows, windows and columns are the same; otherwise they begin with the batch
        of the edit. A suspended query takes part in batches again; a paused one stays paused. With `dry_run` nothing
        changes.
        """
        outcome = self._parts.changes.edit(self.name, with_parameters(sql, parameters), dry_run)
        if not dry_run:
            self.text, self._query = outcome.text, None
        return outcome

    def rename(self, name: str) -> None:
        """Give the query another name with the next batch; results, windows, sinks and subscribers stay."""
        self._parts.changes.rename(self.name, name)
        self.name = name

    def pause(self) -> None:
        """Let the query take no part in batches from the next one on, until it is resumed. Open windows are dropped."""
        self._parts.changes.pause(self.name)

    @property
    def paused(self) -> bool:
        """Whether the query is paused, or will be with the next batch."""
        return self._parts.changes.entry(self.name).paused

    def describe(
        self,
        description: str | None = None,
        tags: Iterable[str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Set the description, the tags, or the units of columns, with the next batch; None leaves what there is.

        `units` is a mapping from columns to the units that charts show, such as `{"total": "EUR"}`.
        """
        pairs = None if units is None else checked_units(units, self.bound) if units else ()
        self._parts.changes.describe(self.name, description, tags, pairs)

    @property
    def description(self) -> str:
        """What the query is for, in words; empty if it was not described."""
        return self._parts.changes.entry(self.name).description

    @property
    def tags(self) -> tuple[str, ...]:
        """The query's tags."""
        return self._parts.changes.entry(self.name).tags

    @property
    def backfill(self) -> BackfillProgress | None:
        """How far retained rows were replayed for the query; None if it takes part in batches, or asked for none."""
        entry = self._entry()
        return None if entry is None else self._parts.loop.history.backfills.progress(entry)

    @property
    def units(self) -> dict[str, str]:
        """The units of columns that were set for charts, by column."""
        return dict(self._parts.changes.entry(self.name).units)

    @property
    def edited(self) -> int | None:
        """The batch that gave the query its text, or will; None if it joined with it."""
        entry = self._entry() or self._waiting()
        return None if entry is None or not entry.edited else entry.edited


class Feed:
    """A stream that a program pushes into."""

    def __init__(self, parts: EngineParts, name: str, source: FeedSource):
        self._parts, self.name, self._source = parts, name, source

    def __repr__(self) -> str:
        return f"<feed {self.name}({', '.join(f'{name} {kind}' for name, kind in self._source.columns.items())})>"

    def _repr_html_(self) -> str:
        """The feed in a notebook: its columns, and how many rows wait."""
        columns = html_table(["column", "type"], self._source.columns.items())
        return titled(f"feed {self.name}: {self.waiting:,} rows wait", columns)

    def push(self, rows: pa.Table | Iterable[Any]) -> int:
        """Push rows: a table of Arrow, pandas, Polars or DuckDB, mappings, or tuples in the order of the schema; how
        many there were.

        They are processed by the next `engine.step()`, or at once by an engine that was started.
        """
        count = self._source.push(rows)
        self._parts.wake()
        return count

    def push_up_to(self, rows: pa.Table | Iterable[Any], limit: int | None) -> tuple[int, int]:
        """Push rows unless more than `limit` rows would wait then (FeedFullError); how many there were, and a ticket.

        `committed` says of a ticket whether its rows are committed.
        """
        pushed = self._source.push_up_to(rows, limit)
        self._parts.wake()
        return pushed

    def committed(self, ticket: int) -> int | None:
        """The committed batch with the rows of a push, by its ticket; None if they wait, or their batch runs."""
        batch_id = self._source.batch_of(ticket)
        return batch_id if batch_id is not None and batch_id <= self._parts.loop.state.batch_id else None

    @property
    def waiting(self) -> int:
        """The number of pushed rows that no committed batch has taken."""
        return self._source.waiting

    def punctuate(
        self, until: Any, since: Any = None, where: Mapping[str, Any] | None = None, on: str | None = None
    ) -> None:
        """No more rows like that will be pushed; takes effect behind the rows pushed before it."""
        stream = self._parts.loop.declared.stream(self.name)
        zone = self._parts.loop.backend.time_zone
        self._source.control(punctuation_of(stream, until, since, where, on, zone))
        self._parts.wake()

    def prod(
        self, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None, on: str | None = None
    ) -> None:
        """Ask for early results behind the rows pushed before it; they come with that batch's results."""
        stream, zone = self._parts.loop.declared.stream(self.name), self._parts.loop.backend.time_zone
        self._source.control(prod_of(stream, until, at, where, on, zone=zone))
        self._parts.wake()
