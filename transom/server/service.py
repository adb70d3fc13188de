"""A running engine as a service: what its API, its dashboard and its metrics are made of, without HTTP.

Every method may be called from any thread. Some wait for Spark (check, register, prod, lookup, late, rejected
or results that are no longer in memory): whoever serves many calls them in threads of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.api.errors import LimitError, NotFound
from transom.api.records import CheckedQuery, QueryStatus
from transom.api.result_chunk import ResultChunk
from transom.errors import SettingError, StateError, near_miss
from transom.estimates import Accuracy
from transom.plan.explain.early import emit_text
from transom.server.engine_host import Hosted
from transom.server.limits import ServiceLimits
from transom.server.previews import is_preview
from transom.server.query_description import ON_DEMAND, STANDING, Described, described
from transom.server.query_policy import refuse_costly
from transom.server.trends import Trend, trend
from transom.sql.syntax.canonical import quote

if TYPE_CHECKING:
    from transom.runtime.engine import Engine
    from transom.runtime.handles import QueryHandle
    from transom.runtime.journal import Whose
    from transom.runtime.summary_status import SummaryInfo
    from transom.state.promising import Coverage

LONGEST_NAME = 200
FORBIDDEN = frozenset("/\\")  # in names: they stand in paths of the API


class Service(Hosted):
    """An engine, its limits, and what it answers."""

    def __init__(self, engine: Engine, limits: ServiceLimits | None = None):
        super().__init__(engine, limits)
        self._binding = threading.Lock()  # queries are read one at a time, whoever sends them
        self._known: dict[tuple[str, str], Described] = {}  # in words, by name and text

    # --- queries ---

    def queries(self) -> list[QueryStatus]:
        """All queries but previews, in the order in which they were registered."""
        return [
            self._status(handle) for name, handle in self.engine.queries().items() if not is_preview(name)
        ]

    def query(self, name: str) -> QueryStatus:
        """One of them, or a preview."""
        return self._status(self._handle(name))

    def _handle(self, name: str) -> QueryHandle:
        self.previews.asked(name)
        try:
            return self.engine.query(name)
        except StateError as error:
            raise NotFound(str(error)) from None

    def _described(self, handle: QueryHandle) -> Described:
        key = handle.name, handle.text
        known = self._known.get(key)
        if known is None:
            try:
                bound = handle.bound
            except StateError:  # the batch that it joins with has begun, and is not committed yet
                bound = self.engine.check(handle.text)
            known = self._known[key] = described(bound)
        return known

    def _status(self, handle: QueryHandle) -> QueryStatus:
        known, name, since = self._described(handle), handle.name, handle.since
        tuned = handle.tuned
        early = None
        if known.emit is not None:
            early = emit_text(known.emit, None, None if tuned is None else 1 - tuned)
        return QueryStatus(
            name,
            handle.text,
            known.kind,
            known.streams,
            known.window,
            known.columns,
            early,
            known.emit is not None,
            tuned if tuned is not None else self._aggressiveness(handle, known),
            tuned is not None,
            handle.suspended,
            since is None,
            handle.partial,
            since,
            self.watching.results[name],
            self.watching.last.get(name),
        )

    def _aggressiveness(self, handle: QueryHandle, known: Described) -> float | None:
        """When a query tells its windows by its own words, if that is one number."""
        if known.emit is None:
            return None
        if known.emit.accuracy is not None:
            point = handle.accuracy().point
            return None if point is None else 1 - point
        return 1 - known.emit.at[0] if len(known.emit.at) == 1 else None

    def check(self, sql: str) -> CheckedQuery:
        """What a query would be; raises what is wrong with it."""
        self._check_text(sql)
        with self._binding:
            known = described(self.engine.check(sql))
            plan = self.engine.explain_text(sql)
        return CheckedQuery(known.kind, known.streams, known.window, known.columns, known.early, plan)

    def register(self, sql: str, name: str | None = None, partial: bool = False) -> QueryStatus:
        """Register a query; it joins with the next batch."""
        self._check_text(sql)
        if name is not None:
            check_name(name)
        with self._binding:
            if len(self.engine.queries()) >= self.limits.queries:
                raise LimitError(f"there are {self.limits.queries:,} queries already: drop one first")
            return self._status(self.engine.register(sql, name, partial=partial))

    def register_all(self, queries: Mapping[str, str], partial: bool = False) -> list[QueryStatus]:
        """Register many queries at once: all of them, or none if one is wrong."""
        for name, sql in queries.items():
            check_name(name)
            self._check_text(sql)
        with self._binding:
            known = self.engine.queries()
            if len({*known, *queries}) > self.limits.queries:
                raise LimitError(
                    f"there are {len(known):,} queries, and at most {self.limits.queries:,} are taken"
                )
            return [self._status(h) for h in self.engine.register_all(queries, partial=partial).values()]

    def _check_text(self, sql: str) -> None:
        if len(sql) > self.limits.sql:
            raise SettingError(
                f"the query has {len(sql):,} characters; at most {self.limits.sql:,} are taken"
            )
        refuse_costly(sql)

    def drop(self, name: str) -> None:
        """Let a query leave with the next batch."""
        if is_preview(name):
            raise SettingError(f"{name} is a preview: end it instead")
        self._handle(name).drop()
        self.forgotten(name)

    def forgotten(self, name: str) -> None:
        super().forgotten(name)
        for key in [key for key in list(self._known) if key[0] == name]:
            self._known.pop(key, None)

    def text(self, name: str) -> str:
        """A query's text: what tells it from another that had its name before."""
        return self._handle(name).text

    def results(self, name: str, cursor: str | None = None, limit: int | None = None) -> ResultChunk:
        """Results behind a cursor, the oldest first; without one from the beginning. `start` and `end` are
        cursors too: before and behind all there is."""
        from transom.runtime.journal import END, START, Cursor

        whose = self._whose(name)
        if cursor == END:
            return ResultChunk(whose.schema.empty_table(), str(self.journal.end()))
        start = Cursor() if cursor is None or cursor == START else Cursor.parse(cursor)
        read = self.journal.read(whose, start, self._most(limit))
        return ResultChunk(read.table, str(read.cursor), read.more)

    def is_recent(self, name: str, cursor: str) -> bool:
        """Whether what is behind a cursor is in memory, so that reading it waits for nothing."""
        from transom.runtime.journal import END, START, Cursor

        return cursor == END or (
            cursor != START and self.journal.is_near(self._whose(name), Cursor.parse(cursor))
        )

    def recent(self, name: str, limit: int = 2_000) -> pa.Table:
        """The newest results, the oldest of them first; some of them may be read back."""
        return self.journal.recent(self._whose(name), self._most(limit), deep=True)

    def trend(self, name: str, points: int = 40) -> Trend | None:
        """The first numeric value of the newest finals in memory, over all groups, if there is one."""
        known = self._described(self._handle(name))
        if known.kind != STANDING:
            return None
        return trend(known, self.journal.recent(self._whose(name), 4_000), points)

    def _whose(self, name: str) -> Whose:
        from transom.runtime.journal import BEFORE_ANY, Whose

        handle = self._handle(name)
        known, since = self._described(handle), handle.since
        if known.kind == ON_DEMAND:
            raise SettingError(f"{name} has no SLIDE: nothing is pushed; look it up")
        return Whose(name, BEFORE_ANY if since is None else since, known.schema)

    def prod(
        self, name: str, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """What is known now of a query's open windows."""
        return self._handle(name).prod(until, at, where)

    def prod_all(
        self,
        queries: list[str] | None = None,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> dict[str, pa.Table]:
        """The same of many queries, by name."""
        for name in queries or ():
            self._handle(name)
        found = self.engine.prod(stream, until, at, where, queries)
        return {name: table for name, table in found.items() if queries or not is_preview(name)}

    def lookup(
        self,
        name: str,
        range: str | int | None = None,
        rows: int | None = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer now of a query without SLIDE."""
        return self._handle(name).lookup(range, rows, at=at, where=where)

    def lookup_text(self, sql: str, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer now of a query that nobody registered."""
        self._check_text(sql)
        with self._binding:
            return self.engine.lookup(sql, at=at, where=where)

    def explain(self, name: str | None = None, format: str = "text", verbose: bool = False) -> str:
        """How one query, or all of them, are computed: as text, json or mermaid."""
        if name is None:
            return self.engine.explain(format, verbose)
        return self._handle(name).explain(format, verbose)

    def accuracy(self, name: str) -> Accuracy:
        """How good early results of a query have been."""
        return self._handle(name).accuracy()

    def tune(self, name: str, aggressiveness: float | None) -> None:
        """Tell a query's windows when this part of their last slide is still to come (0.25: after three
        quarters); None: when the query itself says."""
        self._handle(name).tune(aggressiveness)

    def coverage(self, name: str) -> Coverage:
        """What became of the budget of a query with a preference."""
        return self._handle(name).coverage()

    def preview(self, sql: str) -> str:
        """Register a query for a look only, and return its name: `results`, `prod`, `lookup` and `query` take
        it. It is in no list, and leaves with `end_preview`, or after two minutes in which nobody asked."""
        self._check_text(sql)
        with self._binding:
            return self.previews.begin(sql)

    def end_preview(self, name: str) -> None:
        """Let a preview leave."""
        self.previews.end(name)

    # --- summaries ---

    def summaries(self) -> dict[str, SummaryInfo]:
        """The summaries by name, and how they fare."""
        return self.engine.summaries()

    def summarize(self, sql: str) -> None:
        """Run CREATE SUMMARY."""
        self._check_text(sql)
        if not sql.lstrip().casefold().startswith("create"):
            raise SettingError("expected CREATE SUMMARY")
        self.engine.execute(sql)

    def forget(self, name: str) -> None:
        """Drop a summary."""
        known = self.engine.summaries()
        if name not in known:
            raise NotFound(f"there is no summary named {name}{near_miss(name, known)}")
        self.engine.execute(f"DROP SUMMARY {quote(name)}")


def check_name(name: str) -> None:
    """Refuse a name that could not stand in a path of the API, or that is kept for previews."""
    is_plain = name.strip() == name and name.isprintable() and not FORBIDDEN & set(name)
    if not 0 < len(name) <= LONGEST_NAME or not is_plain or name in (".", ".."):
        raise SettingError(
            f"not a name: {name[:40]!r}; up to {LONGEST_NAME} letters, digits, spaces or signs other than / "
            "and \\ will do"
        )
    if is_preview(name):
        raise SettingError(f"names like {name} are kept for previews")
