"""The alerts of a running server, with the methods of those of a local engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from transom.api.alert_records import (
    AlertEventInfo,
    AlertEventList,
    AlertInfo,
    AlertList,
    AlertRuleInfo,
    AlertRuleList,
    AlertSinkInfo,
    AlertSinkList,
    SilenceInfo,
    SilenceList,
)
from transom.client.http import HttpClient, path_segment, without_none

LISTED = 10_000  # alerts or events in one request


class RemoteAlerts:
    """The alerts, silences and sinks of a server. Sinks are declared where the server runs."""

    def __init__(self, http: HttpClient):
        self._http = http

    def alert(
        self,
        name: str,
        query: str,
        for_windows: int = 1,
        resolve_after: int = 1,
        repeat_every: str | int | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        sinks: Sequence[str] | None = None,
    ) -> AlertRuleInfo:
        """Create an alert on a registered query, or give it another definition."""
        body = without_none(
            query=query,
            for_windows=for_windows,
            resolve_after=resolve_after,
            repeat_every=repeat_every,
            labels=labels,
            annotations=annotations,
            sinks=None if sinks is None else list(sinks),
        )
        return self._http.record(AlertRuleInfo, "PUT", f"/api/alerts/rules/{path_segment(name)}", body)

    def drop(self, name: str) -> None:
        """Drop an alert; what fires is resolved."""
        self._http.json("DELETE", f"/api/alerts/rules/{path_segment(name)}")

    def rules(self) -> dict[str, AlertRuleInfo]:
        """All alerts by name, with those in the texts of queries."""
        return {
            rule.name: rule for rule in self._http.record(AlertRuleList, "GET", "/api/alerts/rules").rules
        }

    def active(self, alert: str | None = None) -> list[AlertInfo]:
        """The groups that are firing or pending, those that fire first."""
        return list(self._http.record(AlertList, "GET", "/api/alerts", alert=alert, limit=LISTED).alerts)

    def events(
        self, after: str | None = None, limit: int = 1_000, alert: str | None = None
    ) -> tuple[list[AlertEventInfo], str]:
        """Events after a cursor (None: all that are retained), the oldest first, and the cursor after them."""
        page = self._http.record(
            AlertEventList, "GET", "/api/alerts/events", after=after, limit=limit, alert=alert
        )
        return list(page.events), page.cursor

    def newest(self, limit: int, alert: str | None = None) -> list[AlertEventInfo]:
        """The newest events, the newest first."""
        return list(self._newest(limit, alert).events)

    def _newest(self, limit: int, alert: str | None = None) -> AlertEventList:
        path = "/api/alerts/events"
        return self._http.record(AlertEventList, "GET", path, newest="true", limit=limit, alert=alert)

    def end(self) -> str:
        """The cursor after the newest event."""
        return self._newest(1).cursor

    def read(self, after: str, alert: str | None = None) -> Iterator[AlertEventInfo]:
        """All events after a cursor that there are now."""
        while True:
            events, after = self.events(after, LISTED, alert)
            yield from events
            if len(events) < LISTED:
                return

    def silence(
        self,
        matchers: str | Iterable[str],
        duration: str | None = None,
        until: Any = None,
        author: str = "",
        comment: str = "",
    ) -> SilenceInfo:
        """Silence the alerts that all matchers match, for a duration or until a time."""
        given = [matchers] if isinstance(matchers, str) else list(matchers)
        body = without_none(matchers=given, duration=duration, until=until, author=author, comment=comment)
        return self._http.record(SilenceInfo, "POST", "/api/silences", body)

    def unsilence(self, id: str) -> None:
        """End a silence."""
        self._http.json("DELETE", f"/api/silences/{path_segment(id)}")

    def silences(self) -> list[SilenceInfo]:
        """The silences that have not ended."""
        return list(self._http.record(SilenceList, "GET", "/api/silences").silences)

    def sinks(self) -> list[AlertSinkInfo]:
        """The sinks of alerts, and what they delivered."""
        return list(self._http.record(AlertSinkList, "GET", "/api/alerts/sinks").sinks)
