"""What a server tells of its streams, its queries and itself, as plain values on both sides.

What a newer server tells beyond them is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Told = TypeVar("Told")


@dataclass(frozen=True)
class Status:
    """The server as a whole."""

    state: str  # starting, running, stopped or failed
    failure: str | None
    version: str
    uptime: float  # seconds
    batch_id: int
    batch_seconds: float
    spent: Mapping[str, float]  # where the seconds of the last batch went
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
    role: str  # window, key, value, estimate or system
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
    waits: bool  # to join with the next batch
    partial: bool
    since: int | None  # the batch that it joined with
    results: int  # rows, since the server started
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
class SummaryInfo:
    """How a summary fares."""

    name: str
    text: str  # as it was created
    stream: str
    column: str
    structure: str
    chosen: bool  # whether the structure is the engine's choice
    tuples: int  # that are kept
    came: int
    late: int
    zones: int
    bytes: int
    far: bool  # whether tuples are in files
    queries: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """How good some early results were, as parts of 1; NaN while there are none."""

    pairs: int
    raw: float
    projected: float
    worst_raw: float
    worst_projected: float
    bounded: int  # pairs with bounds
    coverage: float  # the part of those whose final was within


@dataclass(frozen=True)
class Mark:
    """The accuracy of early results at one point of the slide."""

    point: float
    raw: float
    projected: float


@dataclass(frozen=True)
class Item:
    """How good an item's early results were: all, those of the last windows, and along the slide."""

    name: str
    total: Score
    recent: Score
    curve: tuple[Mark, ...]


@dataclass(frozen=True)
class Accuracy:
    """How good a query's early results turned out to be."""

    total: Score
    recent: Score
    items: tuple[Item, ...]
    confidence: float
    target: float | None
    point: float | None


@dataclass(frozen=True)
class Coverage:
    """What became of the budget of a query with a preference."""

    probes: int
    produced: int
    skipped: float
    left: int  # probes that were not made
    share: float  # of the output, that was produced
    complete: bool  # whether nothing was left out


def read(kind: type[Told], told: Mapping[str, Any]) -> Told:
    """A value of a kind from what JSON says of it.

    >>> read(Mark, {"point": 0.5, "raw": "NaN", "projected": 1, "color": "a newer server's"})
    Mark(point=0.5, raw=nan, projected=1.0)
    """
    hints = _hints(kind)  # type: ignore[arg-type]
    given = {
        field.name: _value(hints[field.name], told.get(field.name))
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name in told or field.default is MISSING
    }
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, told: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):  # X | None
        return None if told is None else _value(get_args(kind)[0], told)
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], each) for each in told or ())
    if get_origin(kind) is not None:  # a mapping
        return {name: _value(get_args(kind)[1], each) for name, each in dict(told or {}).items()}
    if is_dataclass(kind):
        return read(kind, told or {})  # type: ignore[arg-type]
    if kind is float:  # JSON has no NaN, and writes whole numbers without a point
        return float("nan") if told is None else float(told)
    return told
