"""What alerts remember between two batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.alerts.machine import GroupState
from transom.elements import AlertRule, Silence


@dataclass(frozen=True)
class RuleState:
    """The groups of one alert that are pending or firing, each by its values as JSON.

    `identity` is that of the registered query whose results they follow, and `query` its name. `untracked` counts
    reports of further groups, when there are as many as the limit allows.
    """

    query: str
    identity: str
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    untracked: int = 0


@dataclass(frozen=True)
class AlertsState:
    """The alerts that were created beside those in the texts of queries, the silences, and the groups of all alerts."""

    rules: Mapping[str, AlertRule] = field(default_factory=dict)
    silences: tuple[Silence, ...] = ()
    states: Mapping[str, RuleState] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rules or self.silences or self.states)
