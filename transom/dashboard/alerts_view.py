"""The alerts: what fires, what is pending, what was resolved, and silences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transom.api.alert_records import (
    AlertEventInfo,
    AlertInfo,
    AlertList,
    AlertRuleInfo,
    AlertSinkInfo,
    SilenceInfo,
)
from transom.api.value_text import value_to_text
from transom.dashboard.actions import Actions
from transom.dashboard.display_text import esc, format_clock, format_number
from transom.dashboard.frame import DashboardView, query_link
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import (
    Panel,
    box,
    empty_state,
    select_field,
    skeleton,
    table_html,
    tag,
    tile,
    tiles,
    toast,
)
from transom.elements import Matcher
from transom.errors import TransomError
from transom.server.service import Service

SHOWN_ALERTS = 200
SHOWN_EVENTS = 50
DURATIONS = ("15 minutes", "1 hour", "4 hours", "1 day", "7 days")
STATE_KINDS = {"firing": "bad", "pending": "warn"}
EVENT_KINDS = {"firing": "bad", "confirmed": "bad", "reminder": "bad", "resolved": "good", "withdrawn": ""}


@dataclass(frozen=True)
class AlertsData:
    """What the view shows."""

    active: AlertList
    events: Sequence[AlertEventInfo]
    silences: Sequence[SilenceInfo]
    rules: Sequence[AlertRuleInfo]
    sinks: Sequence[AlertSinkInfo]


class AlertsView(DashboardView):
    """Alerts that fire first, then pending ones; recent events; silences and sinks."""

    section = "alerts"
    title = "Alerts"

    def __init__(self, service: Service, actions: Actions):
        super().__init__(service)
        self.actions, self.duration = actions, DURATIONS[1]
        self._active: Sequence[AlertInfo] = ()

    def build(self) -> None:
        Panel(
            '<div><h1>Alerts</h1><p class="sub">Groups of queries with ALERT for which HAVING holds.</p></div>',
            classes="head",
        )
        self.figures = Panel("")
        with box("card section", "section", aria_label="Firing and pending"):
            with box("bar"):
                Panel("<h2>Firing and pending</h2>")
                select_field(
                    "Silence for",
                    [(each, f"Silence for {each}") for each in DURATIONS],
                    self.duration,
                    self._on_duration,
                    data_testid="silence-duration",
                    data_needs="register",
                )
            self.active = Panel(skeleton(4), data_testid="alerts").on_action(self._on_action)
        with box("card section", "section", aria_label="Silences"):
            Panel("<h2>Silences</h2>", classes="bar")
            self.silences = Panel(skeleton(1), data_testid="silences").on_action(self._on_action)
        with box("card section", "section", aria_label="Recent events"):
            Panel("<h2>Recent events</h2>", classes="bar")
            self.events = Panel(skeleton(4), data_testid="alert-events")
        with box("card section", "section", aria_label="Sinks"):
            Panel("<h2>Sinks</h2>", classes="bar")
            self.sinks = Panel(skeleton(1), data_testid="alert-sinks")

    def _on_duration(self, duration: str) -> None:
        if duration in DURATIONS:
            self.duration = duration

    async def _on_action(self, action: str, argument: str) -> None:
        try:
            if action == "silence":
                matchers = [Matcher(name, "=", text) for name, text in json.loads(argument)]
                await run_in_thread(self.actions.silence, matchers, self.duration)
                toast(f"Silenced for {self.duration}")
            elif action == "unsilence":
                await run_in_thread(self.actions.unsilence, argument)
                toast("The silence ended")
        except TransomError as error:
            toast(str(error), "bad")
        await self.frame.refresh()

    def fetch(self) -> AlertsData:
        alerts = self.service.alerts
        return AlertsData(
            alerts.active(limit=SHOWN_ALERTS),
            alerts.newest(SHOWN_EVENTS).events,
            alerts.silences(),
            alerts.rules(),
            alerts.sinks(),
        )

    def show(self, data: AlertsData) -> None:
        self._active = data.active.alerts
        self.figures.set(figures_html(data))
        self.active.set(active_html(data.active, bool(data.rules)))
        self.silences.set(silences_html(data.silences))
        self.events.set(events_html(data.events))
        self.sinks.set(sinks_html(data.sinks))


def figures_html(data: AlertsData) -> str:
    """How many groups fire and are pending."""
    firing, pending = (sum(getattr(rule, name) for rule in data.rules) for name in ("firing", "pending"))
    untracked = sum(rule.untracked for rule in data.rules)
    figures = [
        tile("Firing", format_number(firing), data_testid="figure-firing"),
        tile("Pending", format_number(pending), data_testid="figure-pending"),
        tile("Alerts", format_number(len(data.rules))),
        tile("Silences", format_number(len(data.silences))),
    ]
    if untracked:
        figures.append(tile("Groups beyond the limit", format_number(untracked), "not tracked"))
    return tiles(figures)


def active_html(active: AlertList, has_alerts: bool) -> str:
    """A table of alerts, those that fire first."""
    if not active.alerts:
        head = "Nothing fires" if has_alerts else "No alerts yet"
        text = (
            "No group of an alert is firing or pending."
            if has_alerts
            else "Write ALERT FOR 3 WINDOWS at the end of a query with HAVING."
        )
        return empty_state("good" if has_alerts else "alerts", head, text, slim=True)
    rows = "".join(map(_active_row, active.alerts))
    shown = table_html(["State", "Alert", "Group", "Values", "Since", "Summary", ""], rows)
    hidden = active.total - len(active.alerts)
    return shown + (f'<p class="pad small muted">and {hidden:,} more</p>' if hidden else "")


def _active_row(alert: AlertInfo) -> str:
    state = f"early {alert.state}" if alert.early else alert.state
    marks = tag(state, STATE_KINDS[alert.state], "from early results" if alert.early else "")
    marks += tag("silenced") if alert.silenced else ""
    labels = "".join(tag(f"{name}: {text}") for name, text in alert.labels.items())
    silence = (
        ""
        if alert.silenced
        else f'<button type="button" class="b small" data-act="silence" data-needs="register" '
        f'data-arg="{esc(_matchers(alert))}" data-testid="silence">Silence</button>'
    )
    return (
        f'<tr data-testid="alert-row" data-state="{esc(alert.state)}"><td>{marks}</td><td class="name">'
        f'<a href="{esc(query_link(alert.query))}">{esc(alert.alert)}</a> {labels}</td>'
        f"<td>{pairs_html(alert.group)}</td><td>{pairs_html(alert.values)}</td>"
        f"<td>{esc(_time(alert.since))}</td><td>{esc(alert.annotations.get('summary', ''))}</td>"
        f'<td class="num">{silence}</td></tr>'
    )


def _matchers(alert: AlertInfo) -> str:
    """What a silence of just this group matches, as the argument of a click."""
    named = [("alert", alert.alert)]
    named += [(name, "" if value is None else value_to_text(value)) for name, value in alert.group.items()]
    return json.dumps(named, ensure_ascii=False)


def pairs_html(values: Mapping[str, Any]) -> str:
    """Values with their names, as HTML."""
    return ", ".join(
        f'<span class="muted small">{esc(name)}</span> '
        f'<span class="mono">{esc("null" if value is None else value_to_text(value))}</span>'
        for name, value in values.items()
    )


def _time(value: Any) -> str:
    """An event time as the API has it, in fewer characters."""
    if value is None:
        return ""
    return str(value).replace("T", " ").removesuffix("Z")


def silences_html(silences: Sequence[SilenceInfo]) -> str:
    """A table of silences, each with a button that ends it."""
    if not silences:
        return empty_state("none", "No silences", "A silence keeps webhooks quiet for a while.", slim=True)
    rows = "".join(
        f'<tr data-testid="silence-row"><td><span class="mono">{esc(", ".join(each.matchers))}</span></td>'
        f"<td>{esc(format_clock(each.until))}</td><td>{esc(each.author)}</td><td>{esc(each.comment)}</td>"
        f'<td class="num"><button type="button" class="b small" data-act="unsilence" data-needs="register" '
        f'data-arg="{esc(each.id)}" data-testid="unsilence">End</button></td></tr>'
        for each in silences
    )
    return table_html(["Matches", "Until", "Author", "Comment", ""], rows)


def events_html(events: Sequence[AlertEventInfo]) -> str:
    """A table of events, the newest first."""
    if not events:
        return empty_state(
            "none", "No events", "Alerts that fire and are resolved are listed here.", slim=True
        )
    rows = "".join(
        f'<tr data-testid="alert-event" data-state="{esc(each.state)}"><td>{esc(_time(each.window_end))}</td>'
        f"<td>{tag(_event_text(each), EVENT_KINDS[each.state])}{tag('silenced') if each.silenced else ''}</td>"
        f'<td class="name"><a href="{esc(query_link(each.query))}">{esc(each.alert)}</a></td>'
        f"<td>{pairs_html(each.group)}</td><td>{pairs_html(each.values)}</td><td>{esc(each.reason or '')}</td></tr>"
        for each in events
    )
    return table_html(["Window end", "Event", "Alert", "Group", "Values", "Reason"], rows)


def _event_text(event: AlertEventInfo) -> str:
    return f"early {event.state}" if event.early and event.state == "firing" else event.state


def sinks_html(sinks: Sequence[AlertSinkInfo]) -> str:
    """A table of sinks; the newest failure of each."""
    if not sinks:
        text = "A program or a pipeline file declares files and webhooks that get the events."
        return empty_state("none", "No sinks", text, slim=True)
    rows = "".join(
        f'<tr data-testid="alert-sink"><td class="name">{esc(each.name)}</td><td>{esc(each.kind)}</td>'
        f'<td class="num">{format_number(each.queued)}</td><td class="num">{format_number(each.delivered)}</td>'
        f'<td class="num">{format_number(each.failures)}</td>'
        f'<td class="num">{format_number(each.given_up + each.lost)}</td>'
        f"<td>{tag(each.last_failure, 'bad') if each.last_failure else ''}</td></tr>"
        for each in sinks
    )
    return table_html(
        ["Name", "Kind", "#Waiting", "#Delivered", "#Failures", "#Given up", "Last failure"], rows
    )


def query_alerts_html(firing: int, pending: int) -> str:
    """The badge on the page of a query: how many groups of its alerts fire."""
    if not (firing or pending):
        return ""
    text = f"{firing:,} firing" if firing else f"{pending:,} pending"
    return (
        f'<a href="/alerts" data-testid="query-alerts">{tag(text, "bad" if firing else "warn", "Alerts")}</a>'
    )
