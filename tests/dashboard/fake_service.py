"""A fake service with made-up streams, queries and results, for tests without an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.api.alert_records import (
    AlertEventInfo,
    AlertEventList,
    AlertInfo,
    AlertList,
    AlertRuleInfo,
    AlertSinkInfo,
    SilenceInfo,
)
from transom.api.errors import NotFound
from transom.api.records import (
    BatchInfo,
    CheckedQuery,
    CheckpointInfo,
    CheckpointPartInfo,
    ColumnInfo,
    DecisionInfo,
    LateOfQuery,
    QueryDetail,
    QueryStatus,
    ServiceStatus,
    StreamColumn,
    StreamColumns,
    StreamDetail,
    StreamStatus,
    TableStatus,
    ViewStatus,
)
from transom.errors import SQLError
from transom.estimates.monitor import Accuracy, ItemAccuracy, MarkAccuracy, Score
from transom.server.chart_hints import ChartHints, ValueHint
from transom.server.trends import Trend
from transom.sql.editor.completion import KnownNames, KnownRelation
from transom.sql.editor.example_queries import ExampleQuery

MINUTE = 60_000_000
TIME = pa.timestamp("us", tz="UTC")
COLUMNS = (
    ColumnInfo("window_start", "timestamp", "window"),
    ColumnInfo("window_end", "timestamp", "window"),
    ColumnInfo("site", "string", "key"),
    ColumnInfo("total", "double", "value"),
    ColumnInfo("note", "string", "value"),
    ColumnInfo("total_projected", "double", "estimate", "total"),
    ColumnInfo("total_low", "double", "estimate", "total"),
    ColumnInfo("total_high", "double", "estimate", "total"),
    ColumnInfo("kind", "string", "system"),
    ColumnInfo("complete", "boolean", "system"),
    ColumnInfo("rows", "bigint", "system"),
    ColumnInfo("late", "bigint", "system"),
    ColumnInfo("batch", "bigint", "system"),
    ColumnInfo("made", "timestamp", "system"),
    ColumnInfo("latency", "double", "system"),
)
SCHEMA = pa.schema(
    [
        ("window_start", TIME),
        ("window_end", TIME),
        ("site", pa.string()),
        ("total", pa.float64()),
        ("note", pa.string()),
        ("total_projected", pa.float64()),
        ("total_low", pa.float64()),
        ("total_high", pa.float64()),
        ("kind", pa.string()),
        ("complete", pa.bool_()),
        ("rows", pa.int64()),
        ("late", pa.int64()),
        ("batch", pa.int64()),
        ("made", TIME),
        ("latency", pa.float64()),
    ]
)


def result(end: int, site: str, total: float | None, kind: str = "final", **more: Any) -> dict[str, Any]:
    """A result row of the ten-minute window that ends `end` minutes after the epoch."""
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {"window_start": (end - 10) * MINUTE, "window_end": end * MINUTE, "site": site, "total": total}
    row |= {
        "kind": kind,
        "complete": True,
        "rows": 5,
        "late": 0,
        "batch": 7,
        "made": end * MINUTE,
        "latency": 1.5,
    }
    return row | more


def results(*rows: dict[str, Any]) -> pa.Table:
    """Result rows as a table."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def query(name: str, **more: Any) -> QueryStatus:
    """A standing query, with changes."""
    status = QueryStatus(
        name,
        "SELECT site, sum(price) AS total FROM bids [RANGE 10 minutes SLIDE 1 minute] GROUP BY site",
        "standing",
        ("bids",),
        "range 10 minutes, slide 1 minute",
        COLUMNS,
        None,
        False,
        None,
        False,
        None,
        False,
        "",
        (),
        {},
        False,
        False,
        1,
        None,
        1000,
        990,
        10,
        0,
        0,
        0,
        0,
        3,
        MINUTE,
    )
    return replace(status, **more)


def stream(**more: Any) -> StreamStatus:
    """A stream of bids, with changes."""
    columns = {"site": "string", "unit price": "double", "ts": "timestamp"}
    status = StreamStatus(
        "bids",
        columns,
        "ts",
        True,
        "1 minute",
        2,
        1000,
        990,
        0,
        10,
        0,
        0,
        0,
        90 * MINUTE,
        89 * MINUTE,
        60.0,
        2.5,
        12,
        250.0,
        (1.0, 2.0),
        False,
    )
    return replace(status, **more)


def accuracy() -> Accuracy:
    """The accuracy of twelve early results."""
    score = Score(12, 0.8, 0.95, 0.5, 0.7, 10, 0.9)
    curve = (MarkAccuracy(0.25, 0.3, 0.7), MarkAccuracy(0.5, 0.5, 0.8), MarkAccuracy(0.75, 0.8, 0.9))
    return Accuracy(score, score, (ItemAccuracy("total", score, score, curve),), 0.9, None, None)


class FakeAlerts:
    """An alert that fires, with an event, a silence and a webhook that fails."""

    def active(self, alert: str | None = None, limit: int = 100) -> AlertList:
        firing = AlertInfo(
            "busy <1>",
            "busy",
            "firing",
            {"site": "<b>", "none": None},
            {"n": 3},
            {"severity": "page"},
            {"summary": "<b> has 3"},
            True,
            False,
            "0123456789abcdef",
            "2013-01-01T12:00:00Z",
            "2013-01-01T12:01:00Z",
        )
        return AlertList((firing, replace(firing, state="pending", id=None, silenced=True)), 3)

    def of_query(self, query: str) -> tuple[int, int]:
        return 1, 1

    def newest(self, limit: int, alert: str | None = None) -> AlertEventList:
        (firing, _) = self.active().alerts
        shared = {name: value for name, value in vars(firing).items() if name != "state"}
        event = AlertEventInfo(
            **shared,
            event_id="0123456789abcdef-1",
            state="withdrawn",
            window_start="2013-01-01T12:00:00Z",
            window_end="2013-01-01T12:01:00Z",
            batch=3,
            made="2013-01-01T12:02:00Z",
            reason="<dropped>",
        )
        return AlertEventList((event,), "4.0")

    def rules(self) -> tuple[AlertRuleInfo, ...]:
        return (AlertRuleInfo("busy <1>", "busy", 1, 1, None, {}, {}, None, True, 1, 1, 5),)

    def silences(self) -> tuple[SilenceInfo, ...]:
        return (SilenceInfo("abc", ("site=<b>",), 60 * MINUTE, 0, "<ann>", "known"),)

    def sinks(self) -> tuple[AlertSinkInfo, ...]:
        return (AlertSinkInfo("pager", "webhook", 4, 3, 2, 1, 0, "HTTP status <503>"),)


class FakeService:
    """The part of a service that the dashboard calls."""

    def __init__(self, *queries: QueryStatus, streams: tuple[StreamStatus, ...] = ()):
        self._queries = {query.name: query for query in queries}
        self._streams = streams
        self.state, self.failure = "running", None
        self.alerts = FakeAlerts()
        self.trend_calls: list[str] = []

    def status(self) -> ServiceStatus:
        spent = {"planning": 0.1, "ingest": 0.3}
        return ServiceStatus(
            self.state,
            self.failure,
            "0",
            5.0,
            8,
            0.4,
            spent,
            len(self._queries),
            0,
            1,
            0,
            100,
            0,
            10,
            2.0,
            3.0,
        )

    def streams(self) -> list[StreamStatus]:
        return list(self._streams)

    def stream(self, name: str) -> StreamDetail:
        found = next((each for each in self._streams if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no stream named {name}")
        late = tuple(LateOfQuery(query.name, query.late, query.rows) for query in self._queries.values())
        return StreamDetail(**vars(found), source="feed", rows_waiting=3, late_by_query=late)

    def stream_columns(self, name: str) -> StreamColumns:
        columns = self.stream(name).columns
        return StreamColumns(
            10, tuple(StreamColumn(each, kind, each == "ts") for each, kind in columns.items())
        )

    def sample(self, stream: str, limit: int = 100) -> pa.Table:
        return pa.table({"site": ["a", "<b>"], "unit price": [1.0, None]})

    def tables(self) -> list[TableStatus]:
        return [TableStatus("sites", {"site": "string", "city": "string"})]

    def views(self) -> list[ViewStatus]:
        return []

    def names(self) -> KnownNames:
        relations = [
            KnownRelation(each.name, "stream", {"site": pa.string()}, "ts") for each in self._streams
        ]
        return KnownNames((*relations, KnownRelation("sites", "table", {"city": pa.string()})))

    def examples(self) -> list[ExampleQuery]:
        return [ExampleQuery("Count bids", "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]")]

    def batches(self, limit: int = 60) -> list[BatchInfo]:
        return [
            BatchInfo(n, "bids", n * MINUTE, 0.1, {"ingest": 0.06, "commit": 0.04}, 5, 0, 1) for n in range(3)
        ]

    def checkpoint(self) -> CheckpointInfo:
        return CheckpointInfo("/data/<here>", 11, 2, 30, (CheckpointPartInfo("state", 1, 30),))

    def queries(self) -> list[QueryStatus]:
        return list(self._queries.values())

    def query(self, name: str) -> QueryStatus:
        if name not in self._queries:
            raise NotFound(f"there is no query named {name}")
        return self._queries[name]

    def query_detail(self, name: str) -> QueryDetail:
        decision = DecisionInfo(
            "admission", f"query {name}", "opens selection 1", "it is <new>", "opens_selection"
        )
        return QueryDetail(**vars(self.query(name)), decisions=(decision,))

    def trend(self, name: str, points: int = 40) -> Trend | None:
        self.trend_calls.append(name)
        return Trend("total", (1, 2), (1.0, 2.0))

    def chart_hints(self, name: str) -> ChartHints:
        return ChartHints(MINUTE, {"total": ValueHint("sum(price)", "USD")})

    def recent(self, name: str, limit: int = 100) -> pa.Table:
        return results(result(10, "a", 1.0))

    def explain(self, name: str | None = None, format: str = "text", verbose: bool = False) -> str:
        return json.dumps({"streams": []}) if format == "json" else "a plan"

    def accuracy(self, name: str) -> Accuracy:
        return accuracy()

    def check(self, sql: str) -> CheckedQuery:
        if "prise" in sql:
            raise SQLError("unknown column prise", sql, sql.index("prise"), sql.index("prise") + 5)
        return CheckedQuery("standing", ("bids",), "range 1 minute", COLUMNS, None, "a plan")
