"""An event of an alert: what history, sinks and the API report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AlertEvent:
    """A change of an alert for one group.

    All events of one firing alert, from `firing` to `resolved`, have the same `id`; `event_id` differs, and is the same
    when a batch is replayed. Times are ISO texts, or numbers if the windows are not of time.
    """

    event_id: str
    id: str
    alert: str
    query: str
    state: str  # an AlertChange
    group: Mapping[str, Any]
    values: Mapping[str, Any]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    early: bool
    silenced: bool
    since: Any  # the end of the first window of the run that made it fire
    started: Any  # the end of the window at which it fired
    window_start: Any  # of the window that caused the event
    window_end: Any
    batch: int
    made: str  # the batch's reading of the clock
    reason: str | None = None
    sinks: tuple[str, ...] | None = None  # that get it; None: all

    def to_json(self) -> dict[str, Any]:
        """The event as readers get it."""
        return {name: value for name, value in vars(self).items() if name != "sinks"}


@dataclass(frozen=True)
class ActiveAlert:
    """A group of an alert that is pending or firing."""

    id: str | None  # None while it is pending
    alert: str
    query: str
    state: str  # pending or firing
    group: Mapping[str, Any]
    values: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    early: bool = False
    silenced: bool = False
    since: Any = None
    started: Any = None


def alert_id(alert: str, group: Mapping[str, Any], started: int) -> str:
    """The id of a firing alert, from its name, its group and the window at which it fired."""
    named = json.dumps([alert, sorted(group.items()), started], ensure_ascii=False, default=str)
    return hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:16]
