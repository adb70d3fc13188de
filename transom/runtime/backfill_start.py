"""The time from which on retained rows are replayed for queries that ask for the past."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from transom.durations import format_instant, parse_duration, parse_instant
from transom.elements import BackfillStart, Clock, ClockKind
from transom.errors import SettingError
from transom.ingest.streams import Stream
from transom.runtime.loop import BatchLoop
from transom.runtime.past_queries import refuse_backfill
from transom.runtime.prods import clock_zone, instant_of
from transom.sql.query import Query
from transom.state.state import StreamState
from transom.windows.intervals import LOWEST

_FIRST_MOMENT, _LAST_MOMENT = parse_instant("0001-01-01"), parse_instant("9999-12-31 23:59:59.999999")
_AGO = re.compile(r"(?i)^\s*(.+?)\s+ago\s*$")


def backfill_starts(
    loop: BatchLoop,
    queries: Mapping[str, Query],
    preference_queries: Collection[str],
    since: Any,
    partial: bool,
    zone: str,
) -> dict[str, int]:
    """The time of its stream since when each query asks for retained rows; SettingError if one can't.

    A query asks with `since`, or with BACKFILL in its text.
    """
    for name, query in queries.items():
        if query.as_of is not None:
            raise SettingError(f"AS OF is for lookups, and the query {name} is registered")
        if query.backfill is not None and since is not None:
            raise SettingError(f"the query {name} has BACKFILL: leave since out")
    for name in preference_queries if since is not None else ():
        raise SettingError(f"the query {name} can't ask for the past: it has a preference, and no windows")
    starts = {}
    for name, query in queries.items():
        wanted = BackfillStart(since) if since is not None else query.backfill
        if wanted is None:
            continue
        if partial:
            raise SettingError(
                "a query that asks for the past has only windows whose rows were all seen: leave partial out"
            )
        stream = loop.declared.streams.get(query.stream)
        refuse_backfill(name, query, stream)
        assert stream is not None
        starts[name] = _start(loop, stream, wanted.since, zone)
    return starts


def _start(loop: BatchLoop, stream: Stream, since: Any, zone: str) -> int:
    """The time since when rows are replayed; None is before all rows."""
    if since is None:
        return LOWEST
    clock, state = stream.rules.clock, loop.state.stream(stream.name)
    start = past_moment(clock, state, since, clock_zone(stream, clock, zone))
    newest = state.clock(clock).newest
    if newest is not None and start > newest:
        shown = format_instant(newest) if clock.kind is ClockKind.TIME else f"{newest:,}"
        raise SettingError(
            f"{str(since)!r} is after the newest row of {stream.name}, {shown}: no results would come before then; "
            "ask for the past since an earlier time"
        )
    return start


def past_moment(clock: Clock, stream: StreamState, value: Any, zone: str) -> int:
    """A time on a stream's clock; `24 hours ago`, or a timedelta, counts back from its newest row."""
    ago = _AGO.match(value) if isinstance(value, str) else None
    is_time = clock.kind is ClockKind.TIME
    if ago is None and not isinstance(value, timedelta):
        return _instant(clock, value, zone) if is_time else instant_of(clock, value, zone)
    if not is_time:
        raise SettingError(f"{clock.attribute} counts in plain numbers: write a number, not {value!r}")
    newest = stream.clock(clock).newest
    if newest is None:
        return LOWEST
    moment = newest - parse_duration(ago[1] if ago else value)
    if not _FIRST_MOMENT <= moment <= _LAST_MOMENT:
        raise SettingError(
            f"{str(value)!r} is not in the years 1 to 9999: write a time such as '2013-01-01 12:05'"
        )
    return moment


def _instant(clock: Clock, value: Any, zone: str) -> int:
    """A time as it is written; SettingError with a hint if it is a number or a duration."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise SettingError(
            f"{clock.attribute} is a time, and {value} a number without a unit: write one like '2013-01-01 12:05' or "
            "'24 hours ago'"
        )
    try:
        return instant_of(clock, value, zone)
    except SettingError as error:
        raise SettingError(f"{error}{_ago_hint(value)}") from None


def _ago_hint(value: Any) -> str:
    """The suggestion of a time for a duration such as `24 hours`; nothing for other values."""
    if not isinstance(value, str):
        return ""
    with suppress(SettingError):
        if parse_duration(value) > 0:
            return f"; did you mean '{value.strip()} ago'?"
    return ""
