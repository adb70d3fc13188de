"""A connection to a running server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import httpx
import pyarrow as pa

from transom.api.alert_records import AlertInfo, AlertRuleInfo
from transom.api.conventions import DEFAULT_URL
from transom.api.errors import NotFound
from transom.api.parameters import with_parameters
from transom.api.records import (
    CheckedQuery,
    CompletionAnswer,
    ExampleInfo,
    ExampleList,
    FormattedQuery,
    PushedRows,
    QueryList,
    QueryStatus,
    ServiceStatus,
    StreamList,
    StreamStatus,
    SummaryList,
    SummaryStatus,
    ViewList,
    ViewStatus,
)
from transom.client.arrow_rows import table_from_rows
from transom.client.connection_errors import ServerError
from transom.client.encoded_rows import encoded_rows
from transom.client.http import HttpClient, path_segment, without_none
from transom.client.remote_alerts import RemoteAlerts
from transom.client.remote_query import RemoteQuery
from transom.errors import SQLError, StateError, TransomError

LIST_LIMIT = 1000  # queries in one request
RECONNECT_SECONDS = 0.1
_CREATE_VIEW = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*CREATE\s+(?:OR\s+REPLACE\s+)?VIEW\b", re.IGNORECASE | re.DOTALL
)
_DROP = re.compile(
    r"""\s*DROP\s+(?P<what>SUMMARY|VIEW)\s+(?P<if>IF\s+EXISTS\s+)?(?:`(?P<tick>[^`]+)`|"(?P<quote>[^"]+)"|(?P<name>\w+))\s*;?\s*""",
    re.IGNORECASE,
)


def connect(url: str = DEFAULT_URL, token: str | None = None, timeout: float = 30) -> Server:
    """Connect to a running server (`transom serve`); no request is sent yet.

    `token` is the server's token, if it has one (default: TRANSOM_TOKEN of the environment). `timeout` is the
    number of seconds that an answer may take.
    """
    return Server(url, token, timeout)


class Server:
    """A remote engine, with the methods of a local one."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        timeout: float = 30,
        transport: httpx.BaseTransport | None = None,
    ):
        self._http = HttpClient(url, token, timeout, transport)
        self.alerting = RemoteAlerts(self._http)

    def __repr__(self) -> str:
        return f"<server {self.url}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the server and its queries keep running."""
        self._http.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._http.url

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the engine is running."""
        deadline = monotonic() + timeout
        while True:
            try:
                ready, reason = self._http.readiness()
            except ServerError as error:  # a proxy may answer before the server does
                ready, reason = False, str(error)
            if ready:
                return
            if monotonic() + RECONNECT_SECONDS > deadline:
                raise StateError(f"not ready after {timeout:g} seconds: {reason}")
            sleep(RECONNECT_SECONDS)

    def status(self) -> ServiceStatus:
        """The state of the whole service."""
        return self._http.record(ServiceStatus, "GET", "/api/status")

    # --- streams ---

    def streams(self) -> dict[str, StreamStatus]:
        """The status of every stream, by name."""
        listed = self._http.record(StreamList, "GET", "/api/streams").streams
        return {stream.name: stream for stream in listed}

    def push(
        self, stream: str, rows: pa.Table | Iterable[Mapping[str, Any]], *, wait: float = 30
    ) -> PushedRows:
        """Push rows into a stream: a table of Arrow, pandas, Polars or DuckDB, or mappings.

        It returns when the batch with the rows is committed, or after `wait` seconds. While too many rows wait in the
        server, it sends again, until the connection's timeout. Many rows are sent in several requests.
        """
        path = f"/api/streams/{path_segment(stream)}/rows"
        bodies = list(encoded_rows(rows))
        total, answer = 0, PushedRows(stream, 0, True, None, 0)
        for number, body in enumerate(bodies, 1):
            is_last = number == len(bodies)
            answer = self._http.send(
                PushedRows, path, body.content, body.media_type, wait=wait if is_last else 0
            )
            total += answer.rows
        return replace(answer, rows=total)

    def late(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest late rows, each with the reason, the queries that missed it and the batch."""
        return self._http.table("GET", f"/api/streams/{path_segment(stream)}/late", limit=limit)

    def rejected(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows without a usable time, each with the reason and the batch."""
        return self._http.table("GET", f"/api/streams/{path_segment(stream)}/rejected", limit=limit)

    def file_problems(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest problems of a stream's files: the problem, the file, the column, the reason and the batch."""
        return self._http.table("GET", f"/api/streams/{path_segment(stream)}/files", limit=limit)

    # --- queries ---

    def queries(self, search: str | None = None) -> dict[str, RemoteQuery]:
        """The registered queries by name; with `search`, those whose name or SQL contains it."""
        queries: dict[str, RemoteQuery] = {}
        while True:
            listed = self._http.record(
                QueryList, "GET", "/api/queries", search=search, offset=len(queries), limit=LIST_LIMIT
            )
            queries |= {status.name: RemoteQuery(self._http, status) for status in listed.queries}
            if not listed.queries or len(queries) >= listed.total:
                return queries

    def query(self, name: str) -> RemoteQuery:
        """The registered query of this name."""
        status = self._http.record(QueryStatus, "GET", f"/api/queries/{path_segment(name)}")
        return RemoteQuery(self._http, status)

    def register(
        self,
        sql: str,
        name: str | None = None,
        *,
        partial: bool = False,
        parameters: Mapping[str, Any] | None = None,
        since: str | int | None = None,
    ) -> RemoteQuery:
        """Register a query; it joins with the next batch. `parameters` are the values of `:name` in the text.

        With `since` (a time, or "24 hours ago"), the rows that its stream retains are replayed for it first.
        """
        body = without_none(sql=with_parameters(sql, parameters), name=name, partial=partial, since=since)
        return RemoteQuery(self._http, self._http.record(QueryStatus, "POST", "/api/queries", body))

    def register_all(
        self, queries: Mapping[str, str], *, partial: bool = False, since: str | int | None = None
    ) -> dict[str, RemoteQuery]:
        """Register many queries at once: all of them, or none if one is wrong."""
        if not queries:
            return {}
        body = without_none(queries=dict(queries), partial=partial, since=since)
        listed = self._http.record(QueryList, "POST", "/api/register", body)
        return {status.name: RemoteQuery(self._http, status) for status in listed.queries}

    def register_each(
        self,
        queries: Sequence[tuple[str | None, str]],
        *,
        partial: bool = False,
        since: str | int | None = None,
    ) -> list[RemoteQuery]:
        """Register pairs of name and SQL in order, all or none; the server names queries without a name."""
        before = self.queries() if len(queries) > 1 else {}
        registered: list[RemoteQuery] = []
        for name, sql in queries:
            try:
                registered.append(self.register(sql, name, partial=partial, since=since))
            except TransomError as error:
                for query in reversed(registered):
                    if query.name not in before:
                        with suppress(TransomError):  # the first error is the one to report
                            query.drop()
                if name is not None and len(queries) > 1 and isinstance(error, SQLError):
                    raise SQLError(f"{name}: {error.message}", error.text, error.start, error.end) from None
                raise
        return registered

    def check(self, sql: str, *, parameters: Mapping[str, Any] | None = None) -> CheckedQuery:
        """Describe a query without registering it; raise the error that registering it would raise."""
        body = {"sql": with_parameters(sql, parameters)}
        return self._http.record(CheckedQuery, "POST", "/api/check", body)

    def complete(self, sql: str, cursor: int | None = None) -> CompletionAnswer:
        """What can be written at an offset of a query's text, the best first; the text may be unfinished.

        Without a `cursor` it is the end of the text.
        """
        return self._http.record(
            CompletionAnswer, "POST", "/api/complete", without_none(sql=sql, cursor=cursor)
        )

    def format(self, sql: str) -> str:
        """A query's text in the usual form: only white space and the case of keywords change."""
        return self._http.record(FormattedQuery, "POST", "/api/format", {"sql": sql}).sql

    def examples(self) -> tuple[ExampleInfo, ...]:
        """Queries over all streams that make sense for their rows, each with a title."""
        return self._http.record(ExampleList, "GET", "/api/examples").examples

    def prod(
        self,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: Iterable[str] | str | None = None,
    ) -> dict[str, pa.Table]:
        """Early results of open windows by query: of one stream or all, of some queries or all."""
        chosen = [queries] if isinstance(queries, str) else queries
        names = None if chosen is None else list(chosen)
        body = without_none(stream=stream, until=until, at=at, where=where, queries=names)
        answers = self._http.json("POST", "/api/prod", body)["results"]
        return {name: table_from_rows(each["columns"], each["rows"]) for name, each in answers.items()}

    def lookup(
        self,
        sql: str,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer of a query, which need not be registered, as `Engine.lookup` returns it."""
        body = without_none(sql=with_parameters(sql, parameters), at=at, where=where)
        return self._http.table("POST", "/api/lookup", body)

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """The shared plan of all queries, as text, json or mermaid."""
        return self._http.text("/api/explain", format=format, verbose=verbose or None)

    # --- alerts ---

    def alert(self, name: str, query: str, **terms: Any) -> AlertRuleInfo:
        """Create an alert that fires while the HAVING of a query is true, for each of its groups."""
        return self.alerting.alert(name, query, **terms)

    def alerts(self) -> list[AlertInfo]:
        """The groups of alerts that are firing or pending, those that fire first."""
        return self.alerting.active()

    # --- views and summaries ---

    def view(self, name: str, sql: str) -> None:
        """Create a view: a SELECT that filters and projects a stream, for queries to read by its name."""
        self.execute(f"CREATE VIEW `{name}` AS {sql}")

    def views(self) -> dict[str, ViewStatus]:
        """Every view by name: its text, its columns, and what reads it."""
        listed = self._http.record(ViewList, "GET", "/api/views").views
        return {view.name: view for view in listed}

    def summaries(self) -> dict[str, SummaryStatus]:
        """The status of every summary, by name."""
        listed = self._http.record(SummaryList, "GET", "/api/summaries").summaries
        return {summary.name: summary for summary in listed}

    def execute(self, statement: str) -> None:
        """Run CREATE VIEW, DROP VIEW, CREATE SUMMARY or DROP SUMMARY; it takes effect with the next batch."""
        drop = _DROP.fullmatch(statement)
        if drop is None:
            where = "views" if _CREATE_VIEW.match(statement) else "summaries"
            self._http.json("POST", f"/api/{where}", {"sql": statement})
            return
        name = drop["tick"] or drop["quote"] or drop["name"]
        where = "views" if drop["what"].upper() == "VIEW" else "summaries"
        try:
            self._http.json("DELETE", f"/api/{where}/{path_segment(name)}")
        except NotFound:
            if drop["if"] is None:
                raise
