"""The records of alerts, silences and their sinks that a server reports and a client receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

AlertState = Literal["pending", "firing"]
EventState = Literal["firing", "confirmed", "withdrawn", "reminder", "resolved"]
MatcherText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description='`name=text`, `name!=text`, `name=~regex` or `name!~regex`; the name is "alert", a group column '
        "or a label",
        examples=["site=7"],
    ),
]
_Texts = Mapping[str, str]
_Values = Mapping[str, Any]
_WindowTime = Annotated[
    str | int | None, Field(description="ISO text in UTC; a number if the windows are not of time")
]


@dataclass(frozen=True)
class AlertInfo:
    """A group of an alert that is pending or firing."""

    alert: str
    query: str
    state: AlertState
    group: Annotated[_Values, Field(description="the values of the group columns", examples=[{"site": 7}])]
    values: Annotated[_Values, Field(description="the other values of the newest result that holds")]
    labels: _Texts
    annotations: _Texts
    early: Annotated[bool, Field(description="whether it follows from early results that may be withdrawn")]
    silenced: bool
    id: Annotated[str | None, Field(description="the same in all events of this firing; null while pending")]
    since: Annotated[_WindowTime, Field(description="the end of the first window of the run that holds")]
    started: Annotated[_WindowTime, Field(description="the end of the window at which it fired")]


@dataclass(frozen=True)
class AlertList:
    """Pending and firing alerts, those that fire first."""

    alerts: tuple[AlertInfo, ...]
    total: Annotated[int, Field(description="how many there are; the list may have fewer")]


@dataclass(frozen=True)
class AlertRuleInfo:
    """An alert: when it fires, and what its events carry."""

    name: str
    query: str
    for_windows: int
    resolve_after: int
    repeat: Annotated[
        int | None,
        Field(description="the time between two reminders, in microseconds or on the query's clock"),
    ]
    labels: _Texts
    annotations: _Texts
    sinks: Annotated[tuple[str, ...] | None, Field(description="null: all sinks")]
    in_query: Annotated[bool, Field(description="whether it is ALERT in the text of its query")]
    pending: Annotated[int, Field(description="groups that are pending")]
    firing: Annotated[int, Field(description="groups that are firing")]
    untracked: Annotated[int, Field(description="reports of groups beyond the limit, which were not tracked")]


@dataclass(frozen=True)
class AlertRuleList:
    """All alerts."""

    rules: tuple[AlertRuleInfo, ...]


@dataclass(frozen=True)
class AlertEventInfo:
    """A change of an alert for one group."""

    event_id: Annotated[str, Field(description="the same if the event is delivered again")]
    id: Annotated[str, Field(description="the same in all events from firing to resolved")]
    alert: str
    query: str
    state: EventState
    group: _Values
    values: _Values
    labels: _Texts
    annotations: _Texts
    early: bool
    silenced: bool
    since: _WindowTime
    started: _WindowTime
    window_start: _WindowTime
    window_end: _WindowTime
    batch: int
    made: str
    reason: str | None = None


@dataclass(frozen=True)
class AlertEventList:
    """Events, and the cursor with which the next ones are asked for."""

    events: tuple[AlertEventInfo, ...]
    cursor: Annotated[str, Field(examples=["12.3"])]


@dataclass(frozen=True)
class SilenceInfo:
    """Alerts that all matchers match are silent until a time."""

    id: str
    matchers: tuple[str, ...]
    until: Annotated[int, Field(description="microseconds since 1970")]
    created: Annotated[int, Field(description="microseconds since 1970")]
    author: str
    comment: str


@dataclass(frozen=True)
class SilenceList:
    """The silences that have not ended."""

    silences: tuple[SilenceInfo, ...]


@dataclass(frozen=True)
class AlertSinkInfo:
    """A sink of alerts, and what it delivered since the server started. URLs are not reported."""

    name: str
    kind: Literal["file", "topic", "webhook"]
    queued: Annotated[int, Field(description="events that wait, at most")]
    delivered: int
    failures: Annotated[int, Field(description="attempts that failed")]
    given_up: Annotated[int, Field(description="events that were given up")]
    lost: Annotated[int, Field(description="events that left the history before they were delivered")]
    last_failure: str | None
    last_delivered: Annotated[
        int | None,
        Field(description="when it last got events, in microseconds since 1970; null: it got none"),
    ] = None


@dataclass(frozen=True)
class AlertSinkList:
    """All sinks of alerts."""

    sinks: tuple[AlertSinkInfo, ...]
