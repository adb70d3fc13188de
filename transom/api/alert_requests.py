"""The bodies of requests about alerts and silences."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from transom.api.alert_records import MatcherText
from transom.api.requests import Instant, NewName, RequestBody

_Texts = dict[Annotated[str, Field(min_length=1, max_length=200)], Annotated[str, Field(max_length=10_000)]]
_Windows = Annotated[int, Field(ge=1, le=10_000)]
Length = Annotated[str, Field(max_length=64)] | Annotated[int, Field(ge=1, le=2**53)]


class AlertTermsBody(RequestBody):
    """When an alert on a query fires, and what its events carry."""

    query: NewName
    for_windows: _Windows = Field(1, description="windows in a row for which HAVING holds until it fires")
    resolve_after: _Windows = Field(1, description="windows in a row without it until it is resolved")
    repeat_every: Length | None = Field(None, description="a duration between reminders", examples=["1 hour"])
    labels: _Texts = Field(default_factory=dict, max_length=50, examples=[{"severity": "page"}])
    annotations: _Texts = Field(
        default_factory=dict, max_length=50, examples=[{"summary": "{site}: {n} bids"}]
    )
    sinks: list[Annotated[str, Field(max_length=64)]] | None = Field(
        None, max_length=100, description="names of sinks that the server has; null: all of them"
    )


class NewSilence(RequestBody):
    """Which alerts to silence, and for how long."""

    matchers: list[MatcherText] = Field(min_length=1, max_length=20)
    duration: Annotated[str, Field(max_length=64)] | None = Field(None, examples=["2 hours"])
    until: Instant | None = Field(None, description="in place of a duration")
    author: Annotated[str, Field(max_length=200)] = Field("", description="default: the name of the token")
    comment: Annotated[str, Field(max_length=10_000)] = ""
