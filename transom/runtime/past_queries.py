"""Which queries can be answered from retained rows of the past."""

from __future__ import annotations

from transom.elements import ClockKind
from transom.errors import SettingError
from transom.ingest.streams import Stream
from transom.sql.query import Query


def refuse_backfill(name: str, query: Query, stream: Stream | None) -> None:
    """Raise SettingError if retained rows can't be replayed for a query that is registered."""
    if query.is_on_demand:
        raise _refused(name, "it is an on-demand query, which keeps rows instead of windows")
    refuse_past(name, query, stream, is_lookup=False)


def refuse_past(name: str, query: Query, stream: Stream | None, is_lookup: bool = True) -> None:
    """Raise SettingError if retained rows can't answer a query."""
    reasons = {
        "it has no window, and reports rows from now on": query.is_row_query,
        "it joins two streams": query.stream_join is not None,
        "it reads a union, an exploded array or grouping sets": query.derived is not None,
        "it reads the results of another query": stream is None,
        "its windows are of rows, not of time": query.clock.kind is ClockKind.ROWS or query.window.is_keyed,
        "its sessions can be of any length": query.window.is_session and is_lookup,
        "its results depend on earlier windows (LAG, EMIT EMPTY)": query.reads_earlier_windows and is_lookup,
    }
    if stream is not None:
        reasons[f"its windows do not follow {stream.rules.clock.attribute}, the time of {stream.name}"] = (
            query.clock != stream.rules.clock
        )
    for reason, applies in reasons.items():
        if applies:
            raise _refused(name, reason)
    if stream is not None and stream.retain is None:
        raise SettingError(
            f"the stream {stream.name} retains no rows{f' for the query {name}' if name else ''}: declare it with "
            "retain, such as retain='7 days', or do not ask for the past"
        )


def _refused(name: str, reason: str) -> SettingError:
    return SettingError(f"the query{f' {name}' if name else ''} can't ask for the past: {reason}")
