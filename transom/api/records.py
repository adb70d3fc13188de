"""The records that a server reports and a client receives.

Each record is defined here once. The server fills it in, FastAPI describes it in /openapi.json, and the client
reads it back from JSON. This module needs neither FastAPI nor Spark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter

Record = TypeVar("Record")
EngineState = Literal["starting", "running", "stopped", "failed"]
SQL_EXAMPLE = "SELECT site, count(*) AS n FROM bids [RANGE 5 minutes SLIDE 1 minute] GROUP BY site"


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _nan_if_none(value: Any) -> Any:
    return math.nan if value is None else value


def _text(description: str) -> Any:
    return Field(description=description)


OptionalNumber = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A number that may be unknown: null in JSON, None in Python."""

Ratio = Annotated[
    float, BeforeValidator(_nan_if_none), PlainSerializer(_finite_or_none, return_type=float | None)
]
"""A share of 1 that is undefined while there is nothing to measure: null in JSON, NaN in Python."""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def parse_record(kind: type[Record], value: Any) -> Record:
    """A record from decoded JSON; fields that a newer server adds are ignored.

    >>> parse_record(MarkInfo, {"point": 0.5, "raw": None, "projected": 1, "color": "added later"})
    MarkInfo(point=0.5, raw=nan, projected=1.0)
    """
    cache_key: Any = kind  # mypy does not see that a type is hashable
    return _adapter(cache_key).validate_python(value)


def record_of(kind: type[Record], source: Any) -> Record:
    """A record with the values of an object's attributes of the same names."""
    return kind(**{name: getattr(source, name) for name in kind.__dataclass_fields__})  # type: ignore[attr-defined]


# --- the service -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Health:
    """Whether the engine is alive."""

    state: EngineState
    failure: Annotated[str | None, _text("why the engine failed")] = None


@dataclass(frozen=True)
class ServiceStatus:
    """The state of the whole service."""

    state: EngineState
    failure: Annotated[str | None, _text("why the engine failed")]
    version: str
    uptime: Annotated[float, _text("seconds since the service started")]
    batch: Annotated[int, _text("the number of the last batch")]
    batch_seconds: Annotated[float, _text("how long the last batch took")]
    spent: Annotated[Mapping[str, float], _text("seconds of the last batch by phase")]
    queries: int
    suspended: Annotated[int, _text("the number of suspended queries")]
    streams: Annotated[int, _text("streams of the program; derived streams are not counted")]
    subscribers: Annotated[int, _text("readers that follow results")]
    state_bytes: Annotated[int, _text("state on the driver")]
    executor_bytes: Annotated[int, _text("state on the executors")]
    rows: Annotated[int, _text("rows of all these streams")]
    rate: Annotated[float, _text("rows per second, recently")]
    saved: Annotated[
        OptionalNumber, _text("aggregations without sharing per aggregation made; null before the first")
    ]
    warning: Annotated[str | None, _text("what keeps the current batch waiting")] = None


@dataclass(frozen=True)
class ApiLinks:
    """Where the API is described."""

    name: str
    version: str
    reference: Annotated[str, _text("the description for people")]
    openapi: Annotated[str, _text("the description for programs, in the OpenAPI format")]
    status: Annotated[str, _text("the state of the service")]


# --- streams ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamStatus:
    """A stream: the fate of every row, the progress of event time, and the rate."""

    name: Annotated[str, Field(examples=["bids"])]
    columns: Annotated[
        Mapping[str, str], Field(description="SQL types by column", examples=[{"site": "int"}])
    ]
    time: Annotated[str, _text("the column of event time")]
    is_time: Annotated[bool, _text("whether event time is a timestamp, not a plain number")]
    slack: Annotated[str, _text("how far the watermark stays behind the newest time")]
    queries: Annotated[int, _text("queries that read the stream")]
    rows: Annotated[int, _text("rows read; the sum of the following counts")]
    counted: Annotated[int, _text("rows that were in time for every query that wants them")]
    unwanted: Annotated[int, _text("rows that no query wants")]
    late: Annotated[int, _text("rows that some query missed: a window was closed when they arrived")]
    rejected: Annotated[int, _text("rows without a usable time")]
    sidelined: Annotated[int, _text("sidelined rows that wait to be processed")]
    shed: Annotated[int, _text("rows dropped under overload")]
    high: Annotated[int | None, _text("the newest time: microseconds since 1970 (UTC), or a plain number")]
    watermark: Annotated[int | None, _text("all windows that end by this time are closed")]
    watermark_delay: Annotated[
        OptionalNumber, _text("from the watermark to the newest time: seconds, or a plain number")
    ]
    lag: Annotated[
        OptionalNumber,
        _text("seconds from the newest time to the source's current time; null if it has none"),
    ]
    open_windows: int
    rate: Annotated[float, _text("rows per second, recently")]
    rates: Annotated[
        tuple[float, ...], _text("rows per second over the last minutes, oldest first, evenly spaced")
    ]
    finished: Annotated[bool, _text("whether the source has ended")]
    unreadable_files: Annotated[int, _text("files that could not be read and were left out")] = 0
    missing_columns: Annotated[int, _text("columns that files lacked; their values are null")] = 0
    new_columns: Annotated[int, _text("columns of files that the stream does not have")] = 0
    rewritten_files: Annotated[
        int, _text("files that changed after they were read; they are not read again")
    ] = 0
    slack_target: Annotated[
        OptionalNumber, _text("if the slack is learned, the share of rows that shall be in time")
    ] = None
    slack_now: Annotated[
        OptionalNumber,
        _text("the slack that was learned: seconds, or a plain number; the largest of all partitions"),
    ] = None
    in_time: Annotated[
        OptionalNumber, _text("if the slack is learned, the share of rows that were not behind the watermark")
    ] = None
    wanted_in_time: Annotated[
        OptionalNumber, _text("the share of the rows that queries want that no query missed")
    ] = None
    clocks: Annotated[int, _text("partitions or groups with a clock of their own")] = 0
    derived_from: Annotated[
        tuple[str, ...],
        _text(
            "the streams that its rows are made of, if the engine derives them: for a union or a join of streams"
        ),
    ] = ()


@dataclass(frozen=True)
class StreamList:
    """All streams."""

    streams: tuple[StreamStatus, ...]


@dataclass(frozen=True)
class PushedRows:
    """Rows that were pushed into a stream."""

    stream: str
    rows: Annotated[int, _text("the rows of the request")]
    committed: Annotated[bool, _text("whether the batch with the rows is committed")]
    batch: Annotated[int | None, _text("the batch with the rows, if it is committed")]
    waiting: Annotated[int, _text("rows of the stream, of all clients, that no committed batch has taken")]


@dataclass(frozen=True)
class InputPartition:
    """How far a partition of a stream was read."""

    name: Annotated[str, Field(description="the topic and the partition", examples=["bids 0"])]
    offset: Annotated[int | None, _text("the offset after the last row that was read")]
    latest: Annotated[int | None, _text("the newest offset that there is")] = None


@dataclass(frozen=True)
class WatermarkClock:
    """How far a partition of a stream, or a group, has come."""

    name: Annotated[
        str | None,
        Field(
            description="the partition or the value; null: rows without one, and all others",
            examples=["bids 0"],
        ),
    ]
    newest: Annotated[int, _text("its newest time: microseconds since 1970 (UTC), or a plain number")]
    closed: Annotated[int | None, _text("its newest time minus its slack")]
    is_live: Annotated[bool, _text("whether the watermark waits for it")]
    slack: Annotated[OptionalNumber, _text("its slack: seconds, or a plain number")] = None
    rows: Annotated[int | None, _text("rows whose delay was learned; null with many partitions")] = None
    in_time: Annotated[
        OptionalNumber, _text("the share of these rows that were not behind the watermark")
    ] = None


@dataclass(frozen=True)
class LateOfQuery:
    """How many rows of a stream a query missed."""

    query: str
    late: Annotated[int, _text("rows that it missed: a window was closed when they arrived")]
    rows: Annotated[int, _text("rows read since it joined")]


@dataclass(frozen=True)
class StreamDetail(StreamStatus):
    """A stream, how far its source was read, and what its queries missed."""

    source: Annotated[str, Field(description="what its source is", examples=["files"])] = "rows"
    files_read: Annotated[int | None, _text("files that were read; null if it has none")] = None
    files_waiting: Annotated[int | None, _text("files that were found and not read yet")] = None
    rows_waiting: Annotated[int | None, _text("rows that wait to be read; null if that is not known")] = None
    partitions: Annotated[
        tuple[InputPartition, ...], _text("of a stream of Spark's, such as Kafka's; of its last batch")
    ] = ()
    late_by_query: Annotated[
        tuple[LateOfQuery, ...], _text("the queries that read it, most late rows first")
    ] = ()
    horizon: Annotated[str | None, _text("how far ahead of the others a row may be")] = None
    idle: Annotated[str | None, _text("after how long without rows its windows close")] = None
    watermark_by: Annotated[str | None, _text("the column whose values have a clock of their own")] = None
    slowest: Annotated[
        tuple[WatermarkClock, ...],
        _text("partitions or groups with a clock of their own, the slowest first; at most 100"),
    ] = ()


@dataclass(frozen=True)
class StreamColumn:
    """A column of a stream, and what its values in a sample are like; null is what is not known."""

    name: str
    type: Annotated[str, Field(description="the SQL type", examples=["double"])]
    is_time: Annotated[bool, _text("whether it is the column of event time")]
    nulls: Annotated[int | None, _text("values that are null")] = None
    distinct: Annotated[int | None, _text("different values")] = None
    least: str | None = None
    greatest: str | None = None
    common: Annotated[tuple[str, ...], _text("the most frequent values, if some occur more than once")] = ()


@dataclass(frozen=True)
class StreamColumns:
    """The columns of a stream."""

    sampled: Annotated[int, _text("rows of the sample")]
    columns: tuple[StreamColumn, ...]


@dataclass(frozen=True)
class TableStatus:
    """A static table that queries can join."""

    name: str
    columns: Annotated[
        Mapping[str, str], Field(description="SQL types by column", examples=[{"site": "int"}])
    ]


@dataclass(frozen=True)
class TableList:
    """All static tables."""

    tables: tuple[TableStatus, ...]


# --- batches ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchInfo:
    """A batch: what it read and made, and what took the time."""

    batch: Annotated[int, _text("its number")]
    stream: Annotated[str | None, _text("the stream that it read; null: it read no rows")]
    finished: Annotated[int, _text("when it ended: microseconds since 1970 (UTC)")]
    seconds: Annotated[float, _text("how long it took")]
    spent: Annotated[Mapping[str, float], _text("seconds by phase")]
    rows: int
    late: Annotated[int, _text("rows that some query missed")]
    results: Annotated[int, _text("result rows")]


@dataclass(frozen=True)
class BatchList:
    """The newest batches, the newest last."""

    batches: tuple[BatchInfo, ...]


@dataclass(frozen=True)
class CheckpointPartInfo:
    """A directory of the checkpoint."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True)
class CheckpointInfo:
    """The checkpoint: where it is, the last batch in it, and how large its parts are."""

    path: str
    format: Annotated[int, _text("the version of its format")]
    batch: Annotated[int, _text("the last batch that was committed; -1: none")]
    bytes: Annotated[int | None, _text("the size of all parts; null if it is on another machine")]
    parts: Annotated[tuple[CheckpointPartInfo, ...], _text("the largest first")]


# --- queries ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnInfo:
    """A column of a query's results and its role in the query."""

    name: Annotated[str, Field(examples=["n"])]
    type: Annotated[str, Field(description="the SQL type", examples=["bigint"])]
    role: Annotated[str, _text("window, time (of a row), key, value, estimate or system")]
    of: Annotated[str | None, _text("for an estimate: the value that it estimates")] = None


@dataclass(frozen=True)
class QueryStatus:
    """A registered query."""

    name: Annotated[str, Field(examples=["per_site"])]
    sql: Annotated[str, Field(examples=[SQL_EXAMPLE])]
    kind: Annotated[str, _text("standing, on demand, rows (without a window) or preference")]
    streams: Annotated[tuple[str, ...], _text("the streams, or the queries, that it reads")]
    window: Annotated[str | None, _text("the window as text")]
    columns: tuple[ColumnInfo, ...]
    early: Annotated[str | None, _text("when it emits early results, as text; null: only on a prod")]
    emits_early: Annotated[bool, _text("whether it has EMIT EARLY, and so has estimates and can be tuned")]
    aggressiveness: Annotated[
        OptionalNumber, _text("the share of the slide that is still to come when it emits early results")
    ]
    tuned: Annotated[bool, _text("whether the aggressiveness was set at run time, not by the query's text")]
    suspended: Annotated[str | None, _text("why it takes no part in batches any more")]
    paused: Annotated[
        bool, _text("whether a user paused it: it takes no part in batches until it is resumed")
    ]
    description: Annotated[str, _text("what it is for, in a user's words")]
    tags: tuple[str, ...]
    units: Annotated[dict[str, str], _text("units of values that a user set for charts, by column")]
    pending: Annotated[bool, _text("whether it joins with the next batch")]
    partial: Annotated[bool, _text("whether it reports windows that it saw only in part")]
    since: Annotated[int | None, _text("the batch that it joined with")]
    edited: Annotated[int | None, _text("the batch that gave it its text; null: it joined with it")]
    rows: Annotated[int, _text("rows read since it joined; the sum of the following counts")]
    counted: Annotated[int, _text("rows that all their windows took")]
    unwanted: Annotated[int, _text("rows that its WHERE and windows do not want")]
    late: Annotated[int, _text("rows that it missed: a window was closed when they arrived")]
    rejected: Annotated[int, _text("rows without a usable time")]
    sidelined: Annotated[int, _text("sidelined rows that wait to be processed")]
    shed: Annotated[int, _text("rows dropped under overload")]
    results: Annotated[
        int, _text("result rows; after a restart, those before it that the checkpoint still has are counted")
    ]
    last: Annotated[
        int | None, _text("when it last emitted results: microseconds since 1970 (UTC); null: never")
    ]
    backfill: Annotated[
        OptionalNumber,
        _text("the share of retained rows that was replayed for it so far; null: no replay runs"),
    ] = None


@dataclass(frozen=True)
class DecisionInfo:
    """What a pass of the planner decided about a query, or about something that it shares, and why."""

    pass_name: Annotated[str, Field(description="the pass of the planner", examples=["admission"])]
    about: Annotated[
        str, Field(description="the query, selection, family or stores", examples=["query per_site"])
    ]
    chosen: Annotated[str, Field(examples=["shares selection 3"])]
    reason: Annotated[str, Field(examples=["same WHERE, joins and GROUP BY as 2 other queries"])]
    kind: Annotated[
        str, Field(description="what was chosen, without names and numbers", examples=["shares_selection"])
    ]


@dataclass(frozen=True)
class QueryDetail(QueryStatus):
    """A registered query and what the planner decided about it."""

    decisions: Annotated[
        tuple[DecisionInfo, ...], _text("in the order of the passes; empty before the query joins")
    ] = ()


@dataclass(frozen=True)
class EditedQuery:
    """A query that was edited, and what becomes of its open windows and its results."""

    query: QueryStatus
    kept: Annotated[bool, _text("whether all open windows are kept")]
    changed: Annotated[tuple[str, ...], _text("the clauses because of which some windows are not kept")]
    results_continue: Annotated[bool, _text("whether earlier results stay readable with the new ones")]
    message: Annotated[str, Field(description="the same in words", examples=["open windows are kept"])]


@dataclass(frozen=True)
class QueryList:
    """A part of the registered queries."""

    queries: tuple[QueryStatus, ...]
    total: Annotated[int, _text("the number of all queries that match")]


@dataclass(frozen=True)
class CheckedQuery:
    """A query that can be registered: its results and its plan."""

    kind: str
    streams: tuple[str, ...]
    window: str | None
    columns: tuple[ColumnInfo, ...]
    early: str | None
    plan: Annotated[str, _text("how it would be computed, and with which queries it would share")]


@dataclass(frozen=True)
class CandidateInfo:
    """Something that can be written at a place of a query's text."""

    label: Annotated[str, Field(examples=["avg"])]
    kind: Annotated[
        str,
        _text(
            "stream, table, view, query, column, alias, aggregate, function, keyword, window, unit or zone"
        ),
    ]
    detail: Annotated[str, Field(description="a type or a signature", examples=["avg(x)"])]
    info: Annotated[str, _text("what it means")]
    insert: Annotated[str, Field(description="the text that replaces what was typed", examples=["avg()"])]
    cursor: Annotated[int | None, _text("where the cursor goes within that text; null: to its end")] = None


@dataclass(frozen=True)
class CompletionAnswer:
    """What can be written in place of a part of a text, the best first."""

    start: Annotated[int, _text("the offset of the part in the text, from 0")]
    end: Annotated[int, _text("the offset of its end")]
    candidates: tuple[CandidateInfo, ...]


@dataclass(frozen=True)
class FormattedQuery:
    """A query's text in the usual form."""

    sql: str


@dataclass(frozen=True)
class ExampleInfo:
    """A query that makes sense for the rows of a stream."""

    title: Annotated[str, Field(description="what it answers", examples=["Average price by site"])]
    sql: str


@dataclass(frozen=True)
class ExampleList:
    """Example queries over all streams."""

    examples: tuple[ExampleInfo, ...]


@dataclass(frozen=True)
class CreatedName:
    """The name of what was created."""

    name: str


# --- rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowList:
    """Rows and their columns."""

    columns: tuple[ColumnInfo, ...]
    rows: Annotated[
        tuple[Mapping[str, Any], ...],
        Field(
            examples=[
                [
                    {
                        "window_start": "2013-01-01T12:00:00Z",
                        "window_end": "2013-01-01T12:05:00Z",
                        "site": 1,
                        "n": 4,
                    }
                ]
            ]
        ),
    ]


@dataclass(frozen=True)
class ResultList(RowList):
    """Results of a query and the cursor after them."""

    cursor: Annotated[str, _text("send it to read the results after these rows")]
    more: Annotated[bool, _text("whether more results are available now")]


@dataclass(frozen=True)
class ProdResults:
    """Early results by query."""

    results: Mapping[str, RowList]


# --- early results, budgets, summaries -------------------------------------------------------


@dataclass(frozen=True)
class ScoreInfo:
    """The accuracy of a set of early results as shares of 1; undefined while there are none."""

    pairs: Annotated[int, _text("early results that have been compared with finals")]
    raw: Annotated[Ratio, _text("average accuracy of the values that had arrived")]
    projected: Annotated[Ratio, _text("average accuracy of the projected values")]
    worst_raw: Ratio
    worst_projected: Ratio
    bounded: Annotated[int, _text("compared results that have bounds")]
    coverage: Annotated[Ratio, _text("the share of finals that were within the bounds")]


@dataclass(frozen=True)
class MarkInfo:
    """The accuracy of early results at one point of the slide."""

    point: float
    raw: Ratio
    projected: Ratio


@dataclass(frozen=True)
class ItemInfo:
    """The accuracy of one result column: of all windows, of recent ones, and along the slide."""

    name: str
    total: ScoreInfo
    recent: ScoreInfo
    curve: tuple[MarkInfo, ...]


@dataclass(frozen=True)
class DecisionScoreInfo:
    """What became of early decisions; rates are shares of 1, undefined while there is nothing to count."""

    confirmed: Annotated[int, _text("announced windows whose final satisfies HAVING")]
    withdrawn: Annotated[int, _text("announced windows whose final does not")]
    missed: Annotated[int, _text("finals that satisfy HAVING and were not announced")]
    certain: Annotated[int, _text("announced because HAVING could not become false any more")]
    false_alarm_rate: Annotated[Ratio, _text("withdrawn / announced")]
    miss_rate: Annotated[Ratio, _text("missed / finals that satisfy HAVING")]
    lead_slides: Annotated[
        Ratio, _text("slides from a confirmed announcement to the window's end, on average")
    ]
    lead_seconds: Annotated[Ratio, _text("seconds from a confirmed announcement to the final, on average")]


@dataclass(frozen=True)
class DecisionsInfo:
    """The achieved rates of a query WITH CONFIDENCE."""

    confidence: Annotated[float, _text("the wanted confidence; compare it with 1 - false_alarm_rate")]
    total: DecisionScoreInfo
    recent: DecisionScoreInfo
    open: Annotated[int, _text("announced windows that are still open")]


@dataclass(frozen=True)
class AccuracyInfo:
    """The accuracy of a query's early results, measured against its finals."""

    total: ScoreInfo
    recent: ScoreInfo
    items: tuple[ItemInfo, ...]
    confidence: Annotated[float, _text("the wanted confidence of the bounds; compare it with the coverage")]
    target: Annotated[OptionalNumber, _text("the wanted accuracy")]
    point: Annotated[OptionalNumber, _text("the part of the slide after which early results are emitted")]
    decisions: Annotated[DecisionsInfo | None, _text("of a query WITH CONFIDENCE")] = None


@dataclass(frozen=True)
class CoverageInfo:
    """How a query with a preference has used its budget."""

    probes: int
    produced: int
    skipped: Annotated[float, _text("the estimated number of tuples that were passed over")]
    left: Annotated[int, _text("probes that were not made")]
    share: Annotated[float, _text("the share of the estimated output that was produced")]
    complete: Annotated[bool, _text("whether nothing was passed over")]


@dataclass(frozen=True)
class SummaryStatus:
    """A summary and what it holds."""

    name: str
    text: Annotated[str, _text("the CREATE SUMMARY statement")]
    stream: str
    column: str
    structure: str
    chosen: Annotated[bool, _text("whether the engine chose the structure")]
    tuples: Annotated[int, _text("tuples that are retained")]
    arrived: Annotated[int, _text("tuples that arrived")]
    late: Annotated[int, _text("tuples that were older than all retained ones")]
    zones: Annotated[int, _text("zones that are built so far; on the driver, none before one is needed")]
    bytes: Annotated[int, _text("memory of the summary, without the tuples")]
    on_executors: Annotated[bool, _text("whether its tuples are in files")]
    queries: Annotated[tuple[str, ...], _text("the queries that it guides")]
    suspended: Annotated[str | None, _text("why it takes in no rows any more")] = None


@dataclass(frozen=True)
class SummaryList:
    """All summaries."""

    summaries: tuple[SummaryStatus, ...]


# --- views -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewStatus:
    """A view, which is inlined into the queries that read it."""

    name: str
    text: Annotated[str, _text("the SELECT of the view")]
    stream: Annotated[str | None, _text("the stream that it reads; null if that is not declared")]
    columns: Annotated[
        Mapping[str, str], Field(description="SQL types by column", examples=[{"site": "int"}])
    ]
    readers: Annotated[tuple[str, ...], _text("the queries and views that read it")]


@dataclass(frozen=True)
class ViewList:
    """All views."""

    views: tuple[ViewStatus, ...]


# --- errors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorInfo:
    """What is wrong and, for SQL, where."""

    kind: Literal[
        "sql",
        "setting",
        "state",
        "not_found",
        "limit",
        "request",
        "unauthorized",
        "forbidden",
        "internal",
    ]
    message: Annotated[str, Field(examples=["unknown column prise; did you mean price?"])]
    line: Annotated[int | None, _text("for SQL: the line, from 1")] = None
    column: Annotated[int | None, _text("for SQL: the column, from 1")] = None
    start: Annotated[int | None, _text("for SQL: the offset of the place in the text, from 0")] = None
    end: Annotated[int | None, _text("for SQL: the offset of its end")] = None
    text: Annotated[str | None, _text("for SQL: the text")] = None


@dataclass(frozen=True)
class ErrorAnswer:
    """An error."""

    error: ErrorInfo
