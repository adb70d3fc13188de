"""The alerts of an engine as a service reports and changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transom.alerts.events import AlertEvent
from transom.api.alert_records import (
    AlertEventInfo,
    AlertEventList,
    AlertInfo,
    AlertList,
    AlertRuleInfo,
    AlertSinkInfo,
    SilenceInfo,
)
from transom.api.errors import NotFound
from transom.elements import Matcher, Silence
from transom.errors import near_miss
from transom.runtime.alert_handles import AlertSummary
from transom.runtime.engine import Engine

MOST_LISTED_ALERTS = 10_000  # alerts, or events, in an answer


class ServedAlerts:
    """The alerts, silences and sinks of an engine, as records."""

    def __init__(self, engine: Engine):
        self._alerting = engine.alerting

    def active(self, alert: str | None = None, limit: int = MOST_LISTED_ALERTS) -> AlertList:
        """Pending and firing alerts, those that fire first."""
        found = self._alerting.active(alert)
        return AlertList(tuple(AlertInfo(**asdict(each)) for each in found[:limit]), len(found))

    def of_query(self, query: str) -> tuple[int, int]:
        """How many groups of a query's alerts are firing and pending."""
        mine = [each for each in self._alerting.summaries().values() if each.rule.query == query]
        return sum(each.firing for each in mine), sum(each.pending for each in mine)

    def rules(self) -> tuple[AlertRuleInfo, ...]:
        """All alerts."""
        return tuple(_rule_info(each) for each in self._alerting.summaries().values())

    def rule(self, name: str) -> AlertRuleInfo:
        """One alert."""
        summaries = self._alerting.summaries()
        if name not in summaries:
            raise NotFound(f"there is no alert named {name}{near_miss(name, summaries)}")
        return _rule_info(summaries[name])

    def create(self, name: str, terms: Mapping[str, Any]) -> AlertRuleInfo:
        """Create an alert, or give it another definition. Sinks are named: only the program declares them."""
        self._alerting.alert(name, **terms)
        return self.rule(name)

    def drop(self, name: str) -> None:
        """Drop an alert."""
        self.rule(name)
        self._alerting.drop(name)

    def events(self, after: str | None, limit: int, alert: str | None = None) -> AlertEventList:
        """Events after a cursor, the oldest first."""
        events, cursor = self._alerting.events(after, min(limit, MOST_LISTED_ALERTS), alert)
        return AlertEventList(tuple(map(event_info, events)), cursor)

    def tail(self, after: str, limit: int) -> list[tuple[str, AlertEventInfo]]:
        """Events after a cursor, each with the cursor after it."""
        return [(cursor, event_info(event)) for cursor, event in self._alerting.read(after, limit)]

    def newest(self, limit: int, alert: str | None = None) -> AlertEventList:
        """The newest events, the newest first, and the cursor after them."""
        cursor = self._alerting.end
        events = self._alerting.newest(min(limit, MOST_LISTED_ALERTS), alert)
        return AlertEventList(tuple(map(event_info, events)), cursor)

    @property
    def end(self) -> str:
        """The cursor after the newest event."""
        return self._alerting.end

    def silences(self) -> tuple[SilenceInfo, ...]:
        """The silences that have not ended."""
        return tuple(map(_silence_info, self._alerting.silences()))

    def silence(
        self,
        matchers: Sequence[str | Matcher],
        duration: str | None,
        until: str | int | None,
        author: str,
        comment: str,
    ) -> SilenceInfo:
        """Silence alerts."""
        return _silence_info(self._alerting.silence(matchers, duration, until, author, comment))

    def unsilence(self, id: str) -> None:
        """End a silence."""
        if id not in {silence.id for silence in self._alerting.silences()}:
            raise NotFound(f"there is no silence {id}")
        self._alerting.unsilence(id)

    def sinks(self) -> tuple[AlertSinkInfo, ...]:
        """The sinks of alerts."""
        return tuple(AlertSinkInfo(**asdict(each)) for each in self._alerting.sinks())


def event_info(event: AlertEvent) -> AlertEventInfo:
    """An event as a record."""
    return AlertEventInfo(**event.to_json())


def _rule_info(summary: AlertSummary) -> AlertRuleInfo:
    rule, terms = summary.rule, summary.rule.terms
    return AlertRuleInfo(
        rule.name,
        rule.query,
        terms.windows,
        terms.resolve_after,
        terms.repeat,
        dict(terms.labels),
        dict(terms.annotations),
        terms.sinks,
        summary.is_written,
        summary.pending,
        summary.firing,
        summary.untracked,
    )


def _silence_info(silence: Silence) -> SilenceInfo:
    matchers = tuple(f"{each.name}{each.op}{each.value}" for each in silence.matchers)
    return SilenceInfo(silence.id, matchers, silence.until, silence.created, silence.author, silence.comment)
