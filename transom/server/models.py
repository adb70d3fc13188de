"""What requests and answers look like; the OpenAPI description is made of it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MOST = 2**63 - 1
SQL = "SELECT site, count(*) AS n FROM bids [RANGE 5 minutes SLIDE 1 minute] GROUP BY site"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Measured = Annotated[float | None, BeforeValidator(_finite)]
Instant = Annotated[
    Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=-MOST, le=MOST)],
    Field(
        description="ISO text, in UTC if it names no zone, or microseconds since 1970; of a clock that "
        "counts something else, its number",
        examples=["2013-01-01T12:05:00Z"],
    ),
]
Scalar = (
    bool
    | Annotated[int, Field(ge=-MOST, le=MOST)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=4096)]
    | None
)
Where = Annotated[
    dict[Annotated[str, Field(max_length=1024)], Scalar],
    Field(description="a pattern on the groups: column to value", examples=[{"site": 1}], max_length=64),
]
Groups = Annotated[
    dict[Annotated[str, Field(max_length=1024)], Scalar | Annotated[list[Scalar], Field(max_length=10_000)]],
    Field(
        description="a pattern on the groups: column to value, or to a list of values",
        examples=[{"site": [1, 2]}],
        max_length=64,
    ),
]
Name = Annotated[
    str, Field(min_length=1, max_length=256, description="a query's name", examples=["per_site"])
]
Text = Annotated[str, Field(min_length=1, max_length=1 << 20, description="a query's text", examples=[SQL])]
Aggressiveness = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Asked(BaseModel):
    """A request's body: a field that is not known is an error, since it would be ignored in silence."""

    model_config = ConfigDict(extra="forbid")


class Told(BaseModel):
    """An answer, made from the service's own values."""

    model_config = ConfigDict(from_attributes=True)


# --- requests --------------------------------------------------------------------------------


class NewQuery(Asked):
    """A query to register."""

    sql: Text
    name: Name | None = Field(None, description="what it is called; q1, q2, ... if not given")
    partial: bool = Field(False, description="also report windows that the query saw only in part")


class NewQueries(Asked):
    """Queries to register, all or none."""

    queries: dict[Name, Text] = Field(
        description="texts by name", min_length=1, max_length=10_000, examples=[{"per_site": SQL}]
    )
    partial: bool = Field(False, description="also report windows that they saw only in part")


class SQLText(Asked):
    """A query's text."""

    sql: Text


class SummaryText(Asked):
    """A statement."""

    sql: str = Field(
        min_length=1,
        max_length=1 << 20,
        description="CREATE SUMMARY",
        examples=["CREATE SUMMARY bids_sites ON bids(site) WITH GRANULARITY '1 minute'"],
    )


class ProdQuery(Asked):
    """Which open windows to tell: up to a time, the one at a time, or all that hold rows."""

    until: Instant | None = Field(None, description="the windows that end by then")
    at: Instant | None = Field(None, description="the last of those only")
    where: Where | None = None


class ProdMany(ProdQuery):
    """The same of several queries."""

    queries: list[Name] | None = Field(None, description="all of them, if not given", max_length=10_000)
    stream: str | None = Field(None, max_length=256, description="those of one stream only")


class LookupQuery(Asked):
    """Which window to answer for."""

    range: Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=1, le=MOST)] | None = Field(
        None, description="a shorter window than the query's own", examples=["5 minutes"]
    )
    rows: Annotated[int, Field(ge=1, le=MOST)] | None = Field(
        None, description="likewise, of a window of rows"
    )
    at: Instant | None = Field(None, description="where the window ends, if later than the newest row")
    where: Groups | None = None


class LookupText(Asked):
    """A query without SLIDE that need not be registered."""

    sql: Text
    at: Instant | None = Field(None, description="where the window ends, if later than the newest row")
    where: Groups | None = None


class Tuning(Asked):
    """How early to tell windows."""

    value: Aggressiveness | None = Field(
        description="tell windows when this part of their last slide is still to come; null: when the query "
        "itself says",
        examples=[0.25],
    )


# --- answers ---------------------------------------------------------------------------------


class Problem(BaseModel):
    """What is wrong."""

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
    message: str = Field(examples=["unknown column prise; did you mean price?"])
    line: int | None = Field(None, description="of SQL: the line of the place, from 1")
    column: int | None = Field(None, description="of SQL: the column of the place, from 1")
    start: int | None = Field(None, description="of SQL: where the place begins in the text, from 0")
    end: int | None = Field(None, description="of SQL: where it ends")
    text: str | None = Field(None, description="of SQL: the text")


class Failure(BaseModel):
    """An error."""

    error: Problem


class Health(BaseModel):
    """Whether the engine is alive."""

    state: Literal["starting", "running", "stopped", "failed"]
    failure: str | None = None


class ServiceStatus(Told):
    """The service as a whole."""

    state: Literal["starting", "running", "stopped", "failed"]
    failure: str | None = Field(description="why it failed")
    version: str
    uptime: float = Field(description="seconds")
    batch_id: int = Field(description="the number of the last batch")
    batch_seconds: float = Field(description="how long it took")
    spent: dict[str, float] = Field(description="where those seconds went")
    queries: int
    suspended: int
    streams: int
    subscribers: int
    state_bytes: int = Field(description="on the driver")
    far_bytes: int = Field(description="with the executors")
    rows: int = Field(description="of all streams")
    rate: float = Field(description="rows a second, lately")
    saved: Measured = Field(description="aggregations without sharing for each that was made")


class StreamInfo(Told):
    """A stream: every row accounted for, how far its time has come, and how fast it comes."""

    name: str = Field(examples=["bids"])
    columns: dict[str, str] = Field(description="types in SQL's words", examples=[{"site": "int"}])
    time: str = Field(description="the column of its event time")
    is_time: bool = Field(description="whether that is a time, and not a plain number")
    slack: str
    queries: int
    rows: int
    counted: int
    unasked: int
    late: int
    rejected: int
    aside: int
    shed: int
    high: int | None = Field(description="the newest time: microseconds since 1970, or a plain number")
    watermark: int | None = Field(description="everything before is closed")
    watermark_delay: Measured = Field(description="from the watermark to the newest time, in seconds")
    lag: Measured = Field(description="seconds from the newest time to the source's own now")
    open_windows: int
    rate: float = Field(description="rows a second, lately")
    rates: list[float] = Field(description="the same over the last minutes, the oldest first")
    finished: bool = Field(description="whether the source has nothing more to give")


class Streams(BaseModel):
    """All streams."""

    streams: list[StreamInfo]


class ColumnInfo(Told):
    """A column of results."""

    name: str = Field(examples=["n"])
    type: str = Field(description="in SQL's words", examples=["bigint"])
    role: str = Field(description="window, key, value, estimate or system")
    of: str | None = Field(None, description="of an estimate: the value that it is of")


class QueryInfo(Told):
    """A registered query."""

    name: str = Field(examples=["per_site"])
    sql: str = Field(examples=[SQL])
    kind: str = Field(description="standing, on demand or preferred")
    streams: list[str] = Field(description="streams that it reads, or queries whose results it reads")
    window: str | None = Field(description="in words")
    columns: list[ColumnInfo]
    early: str | None = Field(description="when it tells windows early, in words")
    emits_early: bool = Field(description="whether it says EMIT EARLY: it has estimates, and can be tuned")
    aggressiveness: Measured = Field(description="at which it tells its windows")
    tuned: bool = Field(description="whether that was set, and is not of the query's own words")
    suspended: str | None = Field(description="why it takes no part in batches any more")
    waits: bool = Field(description="to join with the next batch")
    partial: bool
    since: int | None = Field(description="the batch that it joined with")
    results: int = Field(description="rows, since the service started")
    last: int | None = Field(description="when the last ones were made: microseconds since 1970")


class Queries(BaseModel):
    """Some of the queries."""

    queries: list[QueryInfo]
    total: int = Field(description="how many there are that match")


class CheckedQuery(Told):
    """What a query would be."""

    kind: str
    streams: list[str]
    window: str | None
    columns: list[ColumnInfo]
    early: str | None
    plan: str = Field(description="how it would be computed, and with whom it would share")


class Named(BaseModel):
    """What was made, by its name."""

    name: str


class Rows(BaseModel):
    """Rows and their columns."""

    columns: list[ColumnInfo]
    rows: list[dict[str, Any]] = Field(
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
    )


class Results(Rows):
    """Results of a query, and where to go on."""

    cursor: str = Field(description="give it back to go on behind these rows")
    more: bool = Field(description="whether there is more already")


class Prods(BaseModel):
    """Early results of queries by name."""

    results: dict[str, Rows]


class ScoreInfo(Told):
    """How good some early results were, as parts of 1; null while there are none."""

    pairs: int
    raw: Measured = Field(description="average accuracy of what had arrived")
    projected: Measured = Field(description="average accuracy of what was projected")
    worst_raw: Measured
    worst_projected: Measured
    bounded: int = Field(description="pairs with bounds")
    coverage: Measured = Field(description="the part of those whose final was within")


class MarkInfo(Told):
    """The accuracy of early results at one point of the slide, told or not."""

    point: float
    raw: Measured
    projected: Measured


class ItemInfo(Told):
    """How good an item's early results were."""

    name: str
    total: ScoreInfo
    recent: ScoreInfo
    curve: list[MarkInfo]


class AccuracyInfo(Told):
    """How good early results turned out to be."""

    total: ScoreInfo
    recent: ScoreInfo
    items: list[ItemInfo]
    confidence: float = Field(description="asked of the bounds, to be compared with the coverage")
    target: Measured = Field(description="the accuracy asked for")
    point: Measured = Field(description="the part of the slide at which windows are told")


class CoverageInfo(Told):
    """What became of the budget of a query with a preference."""

    probes: int
    produced: int
    skipped: float = Field(description="tuples that were probably passed over")
    left: int = Field(description="probes that were not made")
    share: float = Field(description="the share of the estimated output that was produced")
    complete: bool


class SummaryStatus(Told):
    """How a summary fares."""

    name: str
    text: str
    stream: str
    column: str
    structure: str
    chosen: bool = Field(description="whether the structure is the engine's choice")
    tuples: int
    came: int
    late: int
    zones: int
    bytes: int
    far: bool
    queries: list[str]


class Summaries(BaseModel):
    """All summaries."""

    summaries: list[SummaryStatus]
