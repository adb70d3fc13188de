"""What a service tells of its streams, its queries and itself, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from transom.errors import TransomError


class NotFound(TransomError, LookupError):
    """There is no such query, stream or summary."""


class TooMany(TransomError, RuntimeError):
    """A limit of the service is reached."""


@dataclass(frozen=True)
class Limits:
    """What a service grants: to all who ask it together, and to one request."""

    queries: int = 10_000
    subscribers: int = 1_000
    rows: int = 100_000  # of one answer; there is a cursor for the rest
    body: int = 4 << 20  # bytes of a request
    sql: int = 64 << 10  # characters of a query
    previews: int = 16
    recent: int = 64 << 20  # bytes of results that are kept in memory for readers


@dataclass(frozen=True)
class Status:
    """The service as a whole."""

    state: str  # starting, running, stopped or failed
    failure: str | None
    version: str
    uptime: float  # seconds
    page: int
    page_seconds: float
    spent: Mapping[str, float]  # where the seconds of the last page went
    queries: int
    suspended: int
    streams: int
    subscribers: int
    state_bytes: int
    far_bytes: int
    rows: int  # of all streams
    rate: float  # rows a second, lately
    saved: float | None  # aggregations without sharing for each that was made; None before the first


@dataclass(frozen=True)
class StreamStatus:
    """A stream: every row accounted for, how far its time has come, and how fast it comes."""

    name: str
    columns: Mapping[str, str]  # types in SQL's words
    time: str  # the column of its event time
    is_time: bool  # whether that is a time, and not a plain number
    slack: str
    queries: int
    rows: int
    counted: int
    unasked: int
    late: int
    rejected: int
    aside: int
    shed: int
    high: int | None  # the newest time: microseconds since 1970 (UTC), or a plain number
    watermark: int | None  # everything before is closed
    watermark_delay: float | None  # from the watermark to the newest time: seconds, or a plain number
    lag: float | None  # seconds from the newest time to the source's own now; None if it has none
    open_windows: int
    rate: float  # rows a second, lately
    rates: tuple[float, ...]  # the same over the last minutes, the oldest first, evenly spaced
    finished: bool = False  # whether the source has nothing more to give


@dataclass(frozen=True)
class Column:
    """A column of a query's results, and what it is to the query."""

    name: str
    type: str  # in SQL's words
    role: str  # window, key, value, estimate (of a value: low, high, projected) or system
    of: str | None = None  # of an estimate: the value that it is of


@dataclass(frozen=True)
class QueryStatus:
    """A registered query."""

    name: str
    sql: str
    kind: str  # standing, on demand or preferred
    streams: tuple[str, ...]  # that it reads, or the queries whose results it reads
    window: str | None  # in words
    columns: tuple[Column, ...]
    early: str | None  # when it tells windows early, in words; None: never by itself
    emits_early: bool  # whether it says EMIT EARLY: it has estimates, and can be tuned
    aggressiveness: float | None  # at which it tells its windows; None if that is not one number
    tuned: bool  # whether that was set by tune(), and is not of the query's own words
    suspended: str | None
    waits: bool  # to join with the next page
    partial: bool
    since: int | None  # the page that it joined with
    results: int  # rows, since the service started
    last: int | None  # when the last ones were made: microseconds since 1970


@dataclass(frozen=True)
class Checked:
    """A query that could be registered: what its results would look like, and with whom it would share."""

    kind: str
    streams: tuple[str, ...]
    window: str | None
    columns: tuple[Column, ...]
    early: str | None
    plan: str  # as of explain()


@dataclass(frozen=True)
class Chunk:
    """Some results of a query, and where to go on."""

    table: pa.Table
    cursor: str
    more: bool = False  # whether there is more already


@dataclass(frozen=True)
class Trend:
    """The newest finals of a query as numbers to draw small: one value a window."""

    name: str  # of the column
    ends: tuple[int, ...] = field(default=())
    values: tuple[float, ...] = field(default=())
