"""A running server, in the hand of a program elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

import httpx
import pyarrow as pa

from transom.client.arrow_rows import table_of
from transom.client.connection_errors import NotFound, ServerError
from transom.client.http import Wire, given, part
from transom.client.records import Checked, QueryStatus, Status, StreamStatus, SummaryInfo, read
from transom.client.remote_query import RemoteQuery
from transom.errors import SQLError, StateError, TransomError

URL = "http://127.0.0.1:8710"
LISTED = 1000  # queries that are asked for at once
POLL = 0.1  # seconds
_DROP = re.compile(
    r"""\s*DROP\s+SUMMARY\s+(?P<if>IF\s+EXISTS\s+)?(?:`(?P<tick>[^`]+)`|"(?P<quote>[^"]+)"|(?P<name>\w+))\s*;?\s*""",
    re.IGNORECASE,
)


def connect(url: str = URL, token: str | None = None, timeout: float = 30) -> Server:
    """A server that runs (`transom serve`); nothing is asked of it yet.

    `token` is what it was started with, if it was (without one given: TRANSOM_TOKEN of the environment),
    `timeout` how many seconds an answer may take.
    """
    return Server(url, token, timeout)


class Server:
    """An engine elsewhere: it is asked as one here would be."""

    def __init__(
        self,
        url: str = URL,
        token: str | None = None,
        timeout: float = 30,
        transport: httpx.BaseTransport | None = None,
    ):
        self._wire = Wire(url, token, timeout, transport)

    def __repr__(self) -> str:
        return f"<server {self.url}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; the server and its queries stay."""
        self._wire.close()

    @property
    def url(self) -> str:
        return self._wire.url

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until its engine runs."""
        deadline = monotonic() + timeout
        while True:
            try:
                ready, reason = self._wire.readiness()
            except ServerError as error:  # a proxy may answer before it does
                ready, reason = False, str(error)
            if ready:
                return
            if monotonic() + POLL > deadline:
                raise StateError(f"not ready after {timeout:g} seconds: {reason}")
            sleep(POLL)

    def status(self) -> Status:
        return read(Status, self._wire.json("GET", "/api/status"))

    # --- streams ---

    def streams(self) -> dict[str, StreamStatus]:
        """All streams by name, and how they fare."""
        told = self._wire.json("GET", "/api/streams")["streams"]
        return {one["name"]: read(StreamStatus, one) for one in told}

    def late(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows that came too late, with the reason and the batch."""
        return self._wire.table("GET", f"/api/streams/{part(stream)}/late", limit=limit)

    def rejected(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows without a usable time, likewise."""
        return self._wire.table("GET", f"/api/streams/{part(stream)}/rejected", limit=limit)

    # --- queries ---

    def queries(self, search: str | None = None) -> dict[str, RemoteQuery]:
        """All registered queries by name, or those with a text in their name or SQL."""
        found: dict[str, RemoteQuery] = {}
        while True:
            told = self._wire.json("GET", "/api/queries", search=search, offset=len(found), limit=LISTED)
            found |= {one["name"]: self._query(one) for one in told["queries"]}
            if not told["queries"] or len(found) >= told["total"]:
                return found

    def query(self, name: str) -> RemoteQuery:
        return self._query(self._wire.json("GET", f"/api/queries/{part(name)}"))

    def register(self, sql: str, name: str | None = None, *, partial: bool = False) -> RemoteQuery:
        """Register a query; it joins with the next batch."""
        asked = given(sql=sql, name=name, partial=partial)
        return self._query(self._wire.json("POST", "/api/queries", asked))

    def register_all(self, queries: Mapping[str, str], *, partial: bool = False) -> dict[str, RemoteQuery]:
        """Register many queries at once: all of them, or none if one is wrong."""
        if not queries:
            return {}
        told = self._wire.json("POST", "/api/register", {"queries": dict(queries), "partial": partial})
        return {one["name"]: self._query(one) for one in told["queries"]}

    def register_each(
        self, queries: Sequence[tuple[str | None, str]], *, partial: bool = False
    ) -> list[RemoteQuery]:
        """The same in their order; those without a name are given one."""
        before = self.queries() if len(queries) > 1 else {}
        done: list[RemoteQuery] = []
        for name, sql in queries:
            try:
                done.append(self.register(sql, name, partial=partial))
            except TransomError as error:
                for query in reversed(done):
                    if query.name not in before:
                        with suppress(TransomError):  # the first error is the one to tell
                            query.drop()
                if name is not None and len(queries) > 1 and isinstance(error, SQLError):
                    raise SQLError(f"{name}: {error.message}", error.text, error.start, error.end) from None
                raise
        return done

    def check(self, sql: str) -> Checked:
        """What a query would be; raises what is wrong with it."""
        return read(Checked, self._wire.json("POST", "/api/check", {"sql": sql}))

    def prod(
        self,
        stream: str | None = None,
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: Iterable[str] | str | None = None,
    ) -> dict[str, pa.Table]:
        """What is known now of open windows: early results by query, of one stream or of all, of some queries
        or of all."""
        chosen = [queries] if isinstance(queries, str) else queries
        named = None if chosen is None else list(chosen)
        asked = given(stream=stream, until=until, at=at, where=where, queries=named)
        told = self._wire.json("POST", "/api/prod", asked)["results"]
        return {name: table_of(answer["columns"], answer["rows"]) for name, answer in told.items()}

    def lookup(self, sql: str, *, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """The answer now of a query without SLIDE that need not be registered."""
        return self._wire.table("POST", "/api/lookup", given(sql=sql, at=at, where=where))

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """How all queries are computed together, and who shares what: as text, json or mermaid."""
        return self._wire.text("/api/explain", format=format, verbose=verbose or None)

    def _query(self, told: Mapping[str, Any]) -> RemoteQuery:
        return RemoteQuery(self._wire, read(QueryStatus, told))

    # --- summaries ---

    def summaries(self) -> dict[str, SummaryInfo]:
        """The summaries by name, and how they fare."""
        told = self._wire.json("GET", "/api/summaries")["summaries"]
        return {one["name"]: read(SummaryInfo, one) for one in told}

    def execute(self, statement: str) -> None:
        """Run CREATE SUMMARY or DROP SUMMARY; it takes effect with the next batch."""
        dropped = _DROP.fullmatch(statement)
        if dropped is None:
            self._wire.json("POST", "/api/summaries", {"sql": statement})
            return
        name = dropped["tick"] or dropped["quote"] or dropped["name"]
        try:
            self._wire.json("DELETE", f"/api/summaries/{part(name)}")
        except NotFound:
            if dropped["if"] is None:
                raise
