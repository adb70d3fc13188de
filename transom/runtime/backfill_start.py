"""Which queries can ask for retained rows of the past, and the time from which on they are replayed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from transom.durations import parse_duration
from transom.elements import ClockKind
from transom.errors import SettingError
from transom.ingest.streams import Stream
from transom.runtime.loop import BatchLoop
from transom.runtime.prods import clock_zone, instant_of
from transom.sql.query import Query
from transom.windows.intervals import LOWEST

_AGO = re.compile(r"(?i)^\s*(.+?)\s+ago\s*$")


def backfill_starts(
    loop: BatchLoop,
    queries: Mapping[str, Query],
    preference_queries: Collection[str],
    since: Any,
    partial: bool,
    zone: str,
) -> dict[str, int]:
    """The time of its stream since when each query asks for retained rows; SettingError if one can't."""
    if since is None:
        return {}
    for name in preference_queries:
        raise SettingError(
            f"since is not supported for the query {name}: it has a preference, and no windows"
        )
    if partial:
        raise SettingError(
            "since and partial exclude each other: with since, windows that were seen in part are left out"
        )
    starts = {}
    for name, query in queries.items():
        stream = loop.declared.streams.get(query.stream)
        refuse_backfill(name, query, stream)
        assert stream is not None
        starts[name] = _start(loop, stream, since, zone)
    return starts


def _start(loop: BatchLoop, stream: Stream, since: Any, zone: str) -> int:
    """A time on the stream's clock; `24 hours ago` counts back from its newest row."""
    clock = stream.rules.clock
    ago = _AGO.match(since) if isinstance(since, str) else None
    if ago is None:
        return instant_of(clock, since, clock_zone(stream, clock, zone))
    if clock.kind is not ClockKind.TIME:
        raise SettingError(
            f"{clock.attribute} counts in plain numbers: write since as a number, not {since!r}"
        )
    newest = loop.state.stream(stream.name).clock(clock).newest
    return LOWEST if newest is None else newest - parse_duration(ago[1])


def refuse_backfill(name: str, query: Query, stream: Stream | None) -> None:
    """Raise SettingError if retained rows can't be replayed for a query."""
    reasons = {
        "it is an on-demand query, which keeps rows instead of windows": query.is_on_demand,
        "it has no window, and reports rows from now on": query.is_row_query,
        "it joins two streams": query.stream_join is not None,
        "it reads a union or an exploded array": query.derived is not None,
        "it joins a table, whose earlier versions are not kept": bool(query.joins),
        "it reads the results of another query": stream is None,
        "its windows are of rows, not of time": query.clock.kind is ClockKind.ROWS or query.window.is_keyed,
        "its results depend on earlier windows (LAG, EMIT EMPTY)": bool(query.lags)
        or query.empty is not None,
    }
    if stream is not None:
        reasons[f"its windows do not follow {stream.rules.clock.attribute}, the time of {stream.name}"] = (
            query.clock != stream.rules.clock
        )
    for reason, applies in reasons.items():
        if applies:
            raise SettingError(f"since is not supported for the query {name}: {reason}")
    if stream is not None and stream.retain is None:
        raise SettingError(
            f"the stream {stream.name} retains no rows for the query {name}: declare it with retain, such as "
            "retain='7 days', or register the query without since"
        )
