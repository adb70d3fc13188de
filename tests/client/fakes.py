"""A server that is all in memory: it answers as the API says, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import httpx
import pyarrow as pa

from transom.client.arrow_rows import arrow_type_of
from transom.client.connection import Server

URL = "http://transom.test"
COUNT = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
ARROW = "application/vnd.apache.arrow.stream"
BIDS = {
    "name": "bids",
    "columns": {"site": "int", "city": "string", "ts": "timestamp"},
    "time": "ts",
    "is_time": True,
    "slack": "1 minute",
    "queries": 1,
    "rows": 120,
    "counted": 118,
    "unwanted": 0,
    "late": 2,
    "rejected": 0,
    "sidelined": 0,
    "shed": 0,
    "high": 1_357_041_790_000_000,
    "watermark": 1_357_041_730_000_000,
    "watermark_delay": 60.0,
    "lag": 1.5,
    "open_windows": 2,
    "rate": 40.4,
    "rates": [40.0, 40.8],
    "finished": False,
    "shape": "that a newer server tells",
}
STATUS = {
    "state": "running",
    "failure": None,
    "version": "0.2.0",
    "uptime": 12.5,
    "batch": 7,
    "batch_seconds": 0.25,
    "spent": {"planning": 0.125},
    "queries": 1,
    "suspended": 0,
    "streams": 1,
    "subscribers": 0,
    "state_bytes": 1024,
    "executor_bytes": 0,
    "rows": 120,
    "rate": 40,
    "saved": None,
    "warning": None,
}
COLUMNS = [
    ("window_start", "timestamp", "window"),
    ("window_end", "timestamp", "window"),
    ("site", "int", "key"),
    ("n", "bigint", "value"),
    ("kind", "string", "system"),
    ("complete", "boolean", "system"),
    ("rows", "bigint", "system"),
    ("late", "bigint", "system"),
    ("batch", "bigint", "system"),
    ("made", "timestamp", "system"),
    ("latency", "double", "system"),
]


def told_query(name: str, sql: str, **others: Any) -> dict[str, Any]:
    """A query as the API tells it."""
    columns = [{"name": own, "type": kind, "role": role, "of": None} for own, kind, role in COLUMNS]
    return {
        "name": name,
        "sql": sql,
        "kind": "standing" if "SLIDE" in sql else "on demand",
        "streams": ["bids"],
        "window": "1 minute every 1 minute",
        "columns": columns,
        "early": None,
        "emits_early": False,
        "aggressiveness": None,
        "tuned": False,
        "suspended": None,
        "paused": False,
        "description": "",
        "tags": [],
        "units": {},
        "pending": False,
        "partial": False,
        "since": 1,
        "edited": None,
        "rows": 120,
        "counted": 100,
        "unwanted": 13,
        "late": 7,
        "rejected": 0,
        "sidelined": 0,
        "shed": 0,
        "results": 2,
        "last": 1_357_041_780_123_456,
        **others,
    }


def results(*counts: int, kind: str = "final") -> pa.Table:
    """Results of one window after the other."""
    minutes = [datetime(2013, 1, 1, 12, minute, tzinfo=UTC) for minute in range(len(counts) + 1)]
    windows = zip(minutes, minutes[1:], counts, strict=False)
    rows = [(start, end, 1, n, kind, True, n, 0, 1, end, 0.5) for start, end, n in windows]
    schema = pa.schema([(name, arrow_type_of(words)) for name, words, _ in COLUMNS])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def arrow(table: pa.Table, **headers: str) -> httpx.Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    named = {f"X-Transom-{name.title()}": value for name, value in headers.items()}
    return httpx.Response(200, content=sink.getvalue().to_pybytes(), headers={"Content-Type": ARROW, **named})


def failed(status: int, kind: str, message: str, **place: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": {"kind": kind, "message": message, **place}})


@dataclass
class FakeServer:
    """Queries and their results; a cursor is the number of rows before it."""

    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[str, pa.Table] = field(default_factory=dict)
    chunk: int = 100  # rows of one answer
    token: str | None = None
    ready: bool = True
    status: dict[str, Any] = field(default_factory=lambda: dict(STATUS))
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    summaries: set[str] = field(default_factory=set)
    before: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
    waiting: Callable[[str], None] = lambda name: None  # called while a client waits for results

    def add(self, name: str, sql: str = COUNT, made: pa.Table | None = None, **others: Any) -> None:
        self.queries[name] = told_query(name, sql, **others)
        self.made[name] = results() if made is None else made

    def push(self, name: str, *counts: int) -> None:
        """More results of a query."""
        self.made[name] = pa.concat_tables([self.made[name], results(*counts)])

    def connect(self, token: str | None = None) -> Server:
        return Server(URL, token, transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, path, body if body is not None else dict(request.url.params)))
        if (early := self.before(request)) is not None:
            return early
        if path == "/readyz":
            answer = {"state": "running" if self.ready else "starting", "failure": None}
            return httpx.Response(200 if self.ready else 503, json=answer)
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return failed(401, "unauthorized", "a token is needed")
        parts = [unquote(part) for part in path.split("/")[2:]]
        match request.method, *parts:
            case "GET", "status":
                return httpx.Response(200, json=self.status)
            case "GET", "streams":
                return httpx.Response(200, json={"streams": [BIDS]})
            case "GET", "streams", "bids", "late" | "rejected":
                return arrow(pa.table({"site": [1], "reason": ["late"]}))
            case "GET" | "POST", "queries":
                return self._queries(request, body)
            case _, "queries", name, *rest:
                if name not in self.queries:
                    return failed(404, "not_found", f"there is no query named {name}")
                return self._query(request, name, rest, body)
            case "POST", "prod":
                columns = self.queries[next(iter(self.queries))]["columns"]
                rows = [{"window_end": "2013-01-01T12:01:00Z", "n": 3, "kind": "early", "latency": "NaN"}]
                answer = {
                    name: {"columns": columns, "rows": rows} for name in body.get("queries", self.queries)
                }
                return httpx.Response(200, json={"results": answer})
            case "POST", "check":
                checked = told_query("", body["sql"]) | {"plan": "one selection"}
                return httpx.Response(200, json=checked)
            case "POST", "lookup":
                return arrow(pa.table({"n": [5], "complete": [False], "batch": [7], "made": ["now"]}))
            case "GET", "explain":
                return httpx.Response(200, text=f"a plan as {request.url.params['format']}")
            case "GET" | "POST" | "DELETE", "summaries", *name:
                return self._summaries(request.method, name, body)
        return failed(404, "not_found", f"nothing at {path}")

    def _queries(self, request: httpx.Request, body: Any) -> httpx.Response:
        if request.method == "GET":
            search = request.url.params.get("search", "")
            found = [query for name, query in self.queries.items() if search in name]
            start, limit = int(request.url.params["offset"]), min(int(request.url.params["limit"]), 2)
            return httpx.Response(200, json={"queries": found[start : start + limit], "total": len(found)})
        if "prise" in body["sql"]:
            start = body["sql"].index("prise")
            place = {"text": body["sql"], "start": start, "end": start + 5, "line": 1, "column": start + 1}
            return failed(400, "sql", "unknown column prise", **place)
        name = body.get("name") or f"q{len(self.queries) + 1}"
        self.add(name, body["sql"])
        return httpx.Response(201, json=self.queries[name])

    def _query(self, request: httpx.Request, name: str, rest: list[str], body: Any) -> httpx.Response:
        match request.method, *rest:
            case ("GET",):
                return httpx.Response(200, json=self.queries[name])
            case ("DELETE",):
                del self.queries[name]
                return httpx.Response(204)
            case "GET", "results":
                return self._results(request, name)
            case "POST", "prod":
                return arrow(results(3, kind="early"))
            case "POST", "lookup":
                return arrow(pa.table({"n": [5], "complete": [True], "batch": [7], "made": ["now"]}))
            case "GET", "explain":
                return httpx.Response(200, text=f"{name} as {request.url.params['format']}")
            case "GET", "coverage":
                answer = {
                    "probes": 9,
                    "produced": 3,
                    "skipped": 1.5,
                    "left": 2,
                    "share": 0.5,
                    "complete": False,
                }
                return httpx.Response(200, json=answer)
            case "PUT", "aggressiveness":
                return httpx.Response(204)
        return failed(409, "state", f"{name} has no EMIT EARLY: it has no early results to compare")

    def _results(self, request: httpx.Request, name: str) -> httpx.Response:
        asked = request.url.params
        table, cursor = self.made[name], asked.get("cursor", "0")
        start = table.num_rows if cursor == "end" else int(cursor)
        if "wait" in asked and start == table.num_rows:
            self.waiting(name)
            if name not in self.queries:
                return failed(404, "not_found", f"there is no query named {name}")
            table = self.made[name]
        found = table.slice(start, self.chunk)
        behind = start + found.num_rows
        return arrow(found, cursor=str(behind), more=str(behind < table.num_rows).lower())

    def _summaries(self, method: str, name: list[str], body: Any) -> httpx.Response:
        if method == "POST":
            self.summaries.add(body["sql"].split()[2])
        elif method == "DELETE" and name[0] not in self.summaries:
            return failed(404, "not_found", f"there is no summary {name[0]}")
        elif method == "DELETE":
            self.summaries.remove(name[0])
        names = ("text", "stream", "column", "structure")
        counts = ("tuples", "arrived", "late", "zones", "bytes")
        answer = [
            dict.fromkeys(names, "x")
            | dict.fromkeys(counts, 1)
            | {"name": one, "chosen": True, "on_executors": False, "queries": []}
            for one in self.summaries
        ]
        return httpx.Response(200, json={"summaries": answer})
