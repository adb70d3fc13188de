"""What can be asked of an engine: early results, lookups, plans, what it set apart, and how it fares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from transom.errors import SettingError, StateError, near_miss
from transom.estimates import Accuracy
from transom.ondemand.lookup import lookup_schema
from transom.results.presentation import result_schema
from transom.runtime.batch_report import BatchReport
from transom.runtime.delivery import Delivery
from transom.runtime.explain import explain, explain_text
from transom.runtime.handles import QueryHandle
from transom.runtime.journal import Journal
from transom.runtime.lookups import Lookups
from transom.runtime.loop import BatchLoop
from transom.runtime.preferred_handle import PreferredHandle, refuse_statement
from transom.runtime.prods import Prodding, prod_of
from transom.runtime.progress import Progress, progress_of
from transom.runtime.streams import Stream, StreamInfo, stream_info
from transom.runtime.summary_status import SummaryInfo, summaries_of
from transom.sql.query import Query
from transom.sql.syntax.dialect import is_preferred


class Answers:
    """The part of an engine that answers questions, from the last committed batch."""

    _loop: BatchLoop
    _delivery: Delivery
    _prodding: Prodding
    _lookups: Lookups
    _journals: list[Journal]

    def query(self, name: str) -> QueryHandle:
        """A registered query, also one that came with the checkpoint."""
        texts = dict(self._loop.texts)
        if name not in texts:
            raise StateError(f"there is no query named {name}{near_miss(name, texts)}")
        return self._handle(name, texts[name])

    def queries(self) -> dict[str, QueryHandle]:
        """All registered queries by name."""
        return {name: self._handle(name, text) for name, text in dict(self._loop.texts).items()}

    def _handle(self, name: str, text: str) -> QueryHandle:
        kind = PreferredHandle if is_preferred(text) else QueryHandle
        return kind(self, name, text)  # type: ignore[arg-type]  # an engine is what this is part of

    def streams(self) -> dict[str, StreamInfo]:
        """The streams that queries can read, by name."""
        now = self._loop.clock()
        return {name: stream_info(stream, now) for name, stream in self._loop.queried().items()}

    def summaries(self) -> dict[str, SummaryInfo]:
        """The summaries by name, and how they fare."""
        self._loop.bind()
        return summaries_of(self._loop)

    def prod(
        self,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: Iterable[str] | str | None = None,
        on: str | None = None,
    ) -> dict[str, pa.Table]:
        """What is known now of open windows: early results of queries by name, from the last committed batch.

        `until` asks for the windows that end by then, `at` for the last of those only, neither for all that
        hold rows; `where` is a pattern on the groups. Of one stream (or the results of a query that others
        read) or of all, of some queries or of all.
        """
        asked_for = [queries] if isinstance(queries, str) else queries
        chosen = None if asked_for is None else tuple(self._prodded_query(name) for name in asked_for)
        asked = [one for one in self._prodded(stream, chosen) if one.prods is None]
        prods, problem = [], None
        for one in asked:
            try:
                prods.append(prod_of(one, until, at, where, on, chosen))
            except SettingError as error:  # a time or a pattern of another stream
                problem = error
        if problem is not None and not prods:
            raise problem
        results, batch_id = self._prodding.answer(prods)
        self._delivery.tell(results)
        for journal in self._journals:
            journal.told(results, batch_id)
        return dict(results)

    def _prodded_query(self, name: str) -> str:
        query = self.query(name)
        if query.preferred:
            query.prod()  # says why not
        return query.name

    def _prodded(self, stream: str | None, queries: Iterable[str] | None) -> list[Stream]:
        """The streams that a prod is of: the one that is named, those that the queries read, or all."""
        if stream is not None:
            return [self._loop.source(stream)]
        if queries is None:
            return list(self._loop.streams.values())
        bound = (self._bound(self.query(name))[0] for name in queries)
        return [self._loop.source(name) for name in dict.fromkeys(q.stream for q in bound if q is not None)]

    def lookup(self, sql: str, *, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer now of a query without SLIDE that need not be registered, from the last committed batch.

        It can be answered if queries that are registered keep what it asks for: the same tuples, groups and
        attributes, with a window at least as long. `at` and `where` are as in a query's `lookup`.
        """
        refuse_statement(sql)
        return self._lookups.text(sql, at, where)

    def _lookup(
        self, handle: QueryHandle, length: int | None, at: Any, where: Mapping[str, Any] | None
    ) -> pa.Table:
        registry = self._loop.registry
        if handle._has_left:
            raise StateError(f"the query {handle.name} has left")
        if handle.name not in registry or registry[handle.name].text != handle.text:
            query, _ = self._bound(handle)  # it joins with the next batch, and has seen nothing yet
            assert query is not None
            return lookup_schema(query).empty_table()
        return self._lookups.registered(handle.name, length, at, where)

    def _bound(self, handle: QueryHandle) -> tuple[Query | None, int]:
        """A handle's query and the batch it joined with, as far as they are known.

        The name may be another query's by now, or still be one's that is about to leave.
        """
        registry = self._loop.registry
        if handle._has_left or handle.name not in registry or registry[handle.name].text != handle.text:
            return handle._query or self._loop.bound.get(handle.text), handle._since
        self._loop.bind()
        return registry.query(handle.name), registry[handle.name].since

    def _results(self, handle: QueryHandle) -> pa.Table:
        query, since = self._bound(handle)
        if query is None:
            raise StateError(f"there is no query named {handle.name}")
        return self._loop.results(handle.name, result_schema(query), since)

    def _suspended(self, name: str) -> str | None:
        registry = self._loop.registry
        return registry[name].suspended if name in registry else None

    def late(self, stream: str) -> pa.Table:
        """The rows that came too late for every query that asked for them, with the reason and the batch."""
        return self._loop.apart("late", self._stream(stream))

    def rejected(self, stream: str) -> pa.Table:
        """The rows without a usable time, with the reason and the batch."""
        return self._loop.apart("rejected", self._stream(stream))

    def journal(self, limit: int = 64 << 20) -> Journal:
        """The results of all queries in the order in which they are made from now on, for readers with
        cursors: so many bytes of the newest are kept in memory, older ones are read back."""
        journal = Journal(self._loop, limit)
        self._journals.append(journal)
        return journal

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """How the registered queries are computed together: as text, json or mermaid.

        Text and drawings show what matters; `verbose` shows all of it.
        """
        return explain(self._loop, format, verbose)

    def explain_text(self, sql: str) -> str:
        """How a query would be computed, and with whom it would share what, if it was registered now."""
        return explain_text(self._loop, sql)

    def follow(self, callback: Callable[[BatchReport], None]) -> Callable[[], None]:
        """Call back with every batch that is committed, in the engine's thread; returns how to end it."""
        followers = self._loop.followers
        followers.append(callback)
        return lambda: followers.remove(callback) if callback in followers else None

    def progress(self) -> Progress:
        """How the engine fares: rows, lateness, watermarks, open windows, batch time, state."""
        return progress_of(self._loop)

    def _accuracy(self, name: str) -> Accuracy | None:
        """What early results of a query were worth so far, if it says EMIT EARLY and one has become final."""
        learned = self._loop.state.estimators.get(name)
        return None if learned is None else learned.accuracy()

    def _stream(self, name: str) -> Stream:
        streams = self._loop.streams
        if name not in streams:
            raise SettingError(f"there is no stream named {name}{near_miss(name, streams)}")
        return streams[name]
