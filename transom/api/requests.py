"""The bodies of requests; an unknown field is an error, so that a typing mistake is not ignored."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from transom.api.records import SQL_EXAMPLE

INT64_MAX = 2**63 - 1

Instant = Annotated[
    Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)],
    Field(
        description="ISO text (UTC if it names no zone) or microseconds since 1970; a plain number if event "
        "time is one",
        examples=["2013-01-01T12:05:00Z"],
    ),
]
JsonScalar = (
    bool
    | Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=4096)]
    | None
)
GroupValues = Annotated[
    dict[Annotated[str, Field(max_length=1024)], JsonScalar],
    Field(description="only groups with these values, by column", examples=[{"site": 1}], max_length=64),
]
GroupLists = Annotated[
    dict[
        Annotated[str, Field(max_length=1024)],
        JsonScalar | Annotated[list[JsonScalar], Field(max_length=10_000)],
    ],
    Field(
        description="only groups with these values, by column; a list means any of its values",
        examples=[{"site": [1, 2]}],
        max_length=64,
    ),
]
QueryParameters = Annotated[
    dict[
        Annotated[str, Field(max_length=256)],
        JsonScalar | Annotated[list[JsonScalar], Field(max_length=10_000)],
    ],
    Field(
        description="the values of :name in the text; a list is an array",
        examples=[{"limit": 10}],
        max_length=256,
    ),
]
NewName = Annotated[
    str, Field(min_length=1, max_length=256, description="a query's name", examples=["per_site"])
]
QueryText = Annotated[
    str, Field(min_length=1, max_length=1 << 20, description="a query's text", examples=[SQL_EXAMPLE])
]
Aggressiveness = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


Since = Annotated[str, Field(min_length=1, max_length=60)] | int | None  # a number for streams without a time


class RequestBody(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


class NewQuery(RequestBody):
    """A query to register."""

    sql: QueryText
    name: NewName | None = Field(None, description="its name; default: q1, q2, ...")
    partial: bool = Field(False, description="also report windows that the query saw only in part")
    since: Since = Field(
        None, description="replay the rows that its stream retains since this time", examples=["24 hours ago"]
    )
    parameters: QueryParameters | None = None


class QueryChange(RequestBody):
    """Changes of a query; what is left out stays as it is."""

    name: NewName | None = Field(None, description="another name")
    description: Annotated[str, Field(max_length=4_000)] | None = Field(
        None, description="what it is for, in words", examples=["sites with many bids"]
    )
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=60)]], Field(max_length=20)] | None = (
        Field(None, description="its tags, in place of those that it has", examples=[["fraud", "cards"]])
    )
    units: dict[str, Annotated[str, Field(max_length=20)]] | None = Field(
        None,
        description="units of its values for charts, by column, in place of those that it has; empty: none is shown",
        examples=[{"total": "EUR"}],
    )
    paused: bool | None = Field(None, description="whether it takes no part in batches")


class NewQueries(RequestBody):
    """Queries to register, all or none."""

    queries: dict[NewName, QueryText] = Field(
        description="texts by name", min_length=1, max_length=10_000, examples=[{"per_site": SQL_EXAMPLE}]
    )
    partial: bool = Field(False, description="also report windows that the queries saw only in part")
    since: Since = Field(None, description="replay the rows that their streams retain since this time")


class SQLText(RequestBody):
    """A query's text."""

    sql: QueryText
    parameters: QueryParameters | None = None


class DraftText(RequestBody):
    """A query's text, which need not be right."""

    sql: Annotated[str, Field(max_length=1 << 20, description="a query's text", examples=[SQL_EXAMPLE])]


class UnfinishedText(DraftText):
    """A query's text as far as it is written, and where the cursor is."""

    cursor: Annotated[int, Field(ge=0, le=1 << 20)] | None = Field(
        None, description="the offset of the cursor in the text, from 0; default: at its end", examples=[9]
    )


class SummaryText(RequestBody):
    """A CREATE SUMMARY statement."""

    sql: str = Field(
        min_length=1,
        max_length=1 << 20,
        description="CREATE SUMMARY",
        examples=["CREATE SUMMARY bids_sites ON bids(site) WITH GRANULARITY '1 minute'"],
    )


class ViewText(RequestBody):
    """A CREATE VIEW statement."""

    sql: str = Field(
        min_length=1,
        max_length=1 << 20,
        description="CREATE VIEW or CREATE OR REPLACE VIEW",
        examples=["CREATE VIEW high_bids AS SELECT site, price FROM bids WHERE price > 100"],
    )


class ProdQuery(RequestBody):
    """Which open windows to report: up to a time, the one at a time, or all that hold rows."""

    until: Instant | None = Field(None, description="windows that end by this time")
    at: Instant | None = Field(None, description="only the last window that ends by this time")
    where: GroupValues | None = None


class ProdMany(ProdQuery):
    """Which open windows of which queries to report."""

    queries: list[NewName] | None = Field(None, description="default: all queries", max_length=10_000)
    stream: str | None = Field(None, max_length=256, description="only queries of this stream")


class LookupQuery(RequestBody):
    """Which window to answer for."""

    range: Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=1, le=INT64_MAX)] | None = Field(
        None, description="a shorter window than the query's", examples=["5 minutes"]
    )
    rows: Annotated[int, Field(ge=1, le=INT64_MAX)] | None = Field(
        None, description="a shorter window than the query's, in rows"
    )
    at: Instant | None = Field(
        None, description="where the window ends; a window of the past needs a stream that retains its rows"
    )
    where: GroupLists | None = None


class LookupText(RequestBody):
    """A query that need not be registered."""

    sql: QueryText
    at: Instant | None = Field(
        None, description="where the window ends; a window of the past needs a stream that retains its rows"
    )
    where: GroupLists | None = None
    parameters: QueryParameters | None = None


class Tuning(RequestBody):
    """How early to emit results of open windows."""

    value: Aggressiveness | None = Field(
        description="emit early results when this share of the slide is still to come; null: when the "
        "query's text says",
        examples=[0.25],
    )
