"""What a service grants and tells, as plain values; most of them are those that its clients hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from transom.client.records import Checked, Column, QueryStatus, Status, StreamStatus
from transom.errors import TransomError

__all__ = [
    "Checked",
    "Chunk",
    "Column",
    "Limits",
    "NotFound",
    "QueryStatus",
    "Status",
    "StreamStatus",
    "TooMany",
    "Trend",
]


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
