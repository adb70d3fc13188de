"""The alerts of an engine: declared, read, silenced, and delivered to sinks."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from transom.alerts.evaluation import active_alerts
from transom.alerts.events import ActiveAlert, AlertEvent
from transom.alerts.silences import (
    MOST_MATCHERS,
    MOST_PATTERNS,
    MOST_SILENCES,
    REGEX_OPERATORS,
    checked_matcher,
    parse_matcher,
)
from transom.alerts.templates import LONGEST_ALERT_TEXT
from transom.durations import parse_duration, parse_instant
from transom.elements import (
    AlertRule,
    AlertTerms,
    ClockKind,
    Control,
    CreateAlert,
    CreateSilence,
    DropAlert,
    EndSilence,
    Matcher,
    Silence,
)
from transom.errors import SettingError, StateError, near_miss
from transom.runtime.alert_batches import alert_rules
from transom.runtime.alert_log import MOST_EVENTS, EventCursor
from transom.runtime.alert_sinks import AlertFiles, AlertTopic, is_for
from transom.runtime.alert_windows import text_value, times_of_windows
from transom.runtime.batch_report import BatchReport
from transom.runtime.loop import BatchLoop
from transom.runtime.registry import Registry
from transom.runtime.webhooks import LAST_ATTEMPT_SECONDS, Webhook, WebhookSettings
from transom.sql.alert_checks import alert_obstacle, check_alert_terms
from transom.sql.bound_query import BoundQuery
from transom.sql.clauses.alert import MOST_ALERT_WINDOWS
from transom.sql.query import Query

SINK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
LONGEST_SILENCE = 366 * 86_400_000_000  # microseconds
MOST_ALERT_TEXTS = 50  # labels, or annotations, of an alert
MOST_ALERTS = 1_000  # beside those in the texts of queries
LISTED_ALERTS = 1_000


@dataclass(frozen=True)
class AlertSummary:
    """An alert: its definition, and how many groups are pending and firing.

    `is_written` says that the alert is part of its query's text. `untracked` counts reports of groups beyond the limit.
    """

    rule: AlertRule
    is_written: bool = False
    pending: int = 0
    firing: int = 0
    untracked: int = 0


@dataclass(frozen=True)
class AlertSinkStatus:
    """A sink of alerts, and what it has delivered since the engine started. Only a webhook has a queue.

    `last_delivered` is when it last got events, in microseconds since 1970.
    """

    name: str
    kind: str
    queued: int = 0
    delivered: int = 0
    failures: int = 0
    given_up: int = 0
    lost: int = 0
    last_failure: str | None = None
    last_delivered: int | None = None


@dataclass
class _BatchSink:
    """A sink that batches write to, and what it got since the engine started; events count when they are committed."""

    sink: AlertFiles | AlertTopic
    delivered: int = 0
    failures: int = 0
    last_failure: str | None = None
    last_delivered: int | None = None

    def write(self, report: BatchReport, reason: Callable[[BaseException], str]) -> None:
        """Write the events of a batch before it is committed."""
        try:
            self.sink.write(report.batch_id, report.alerts)
        except Exception as error:
            self.failures += 1
            self.last_failure = reason(error)
            raise
        self.last_failure = None

    def committed(self, events: Sequence[AlertEvent], now: int) -> None:
        """Count the events of a committed batch."""
        count = sum(is_for(self.sink.name, event) for event in events)
        if count:
            self.delivered += count
            self.last_delivered = now


class AlertHandle:
    """An alert of an engine."""

    def __init__(self, alerting: Alerting, name: str):
        self._alerting, self.name = alerting, name

    def __repr__(self) -> str:
        return f"<alert {self.name}>"

    def active(self) -> list[ActiveAlert]:
        """Its groups that are firing or pending, those that fire first."""
        return self._alerting.active(self.name)

    def events(self, after: str | None = None, limit: int = LISTED_ALERTS) -> list[AlertEvent]:
        """Its events, the oldest first; all that are retained, or those after a cursor."""
        return self._alerting.events(after, limit, self.name)[0]

    def drop(self) -> None:
        """Drop it with the next batch; what fires is resolved."""
        self._alerting.drop(self.name)


class Alerting:
    """The alerts, silences and sinks of an engine."""

    def __init__(
        self,
        loop: BatchLoop,
        bound: Callable[[str], BoundQuery],
        wake: Callable[[], None],
    ):
        self._loop, self._bound, self._wake = loop, bound, wake
        self._batch_sinks: dict[str, _BatchSink] = {}
        self._webhooks: dict[str, Webhook] = {}
        self._lock = threading.Lock()
        loop.listeners.append(self._write)
        loop.followers.append(self._committed)

    # --- definitions ---

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
    ) -> AlertHandle:
        """Create an alert on a registered query with the next batch, or give it another definition."""
        if not isinstance(query, str):
            raise SettingError(f"an alert is on a query by its name, not on {query!r}")
        if not isinstance(name, str) or not name or name.strip() != name or not name.isprintable():
            raise SettingError(f"not a name: {name!r}; use printable characters")
        bound = self._bound(query)
        if (obstacle := alert_obstacle(bound)) is not None:
            raise SettingError(f"{query}: {obstacle}")
        assert isinstance(bound, Query)
        texts = self._loop.directory.texts
        if name in texts and getattr(self._bound(name), "alert", None) is not None:
            raise StateError(
                f"the query {name} has an alert in its text: edit the query, or use another name"
            )
        terms = AlertTerms(
            _whole(for_windows, "for_windows"),
            _whole(resolve_after, "resolve_after"),
            _length(repeat_every, bound),
            _texts(labels, "labels"),
            _texts(annotations, "annotations"),
            None if sinks is None else self._known_sinks(sinks),
        )
        check_alert_terms(bound, terms)
        rule = AlertRule(name, query, terms)
        with self._lock:
            created = self._created()
            if name not in created and len(created) >= MOST_ALERTS:
                raise StateError(f"there are {MOST_ALERTS:,} alerts already: drop some first")
            if created.get(name) != rule:
                self._loop.directory.push([CreateAlert(rule)])
        self._wake()
        return AlertHandle(self, name)

    def drop(self, name: str) -> None:
        """Drop an alert with the next batch; what fires is resolved."""
        self.handle(name)
        if name not in self._created():
            raise StateError(f"the alert {name} is part of the text of its query: edit or drop the query")
        self._loop.directory.push([DropAlert(name)])
        self._wake()

    def handle(self, name: str) -> AlertHandle:
        """An alert by its name."""
        known = self._definitions()
        if name not in known:
            raise StateError(f"there is no alert named {name}{near_miss(name, known)}")
        return AlertHandle(self, name)

    def summaries(self) -> dict[str, AlertSummary]:
        """All alerts by name, those that wait for the next batch included."""
        created, states = self._created(), self._loop.state.alerts.states
        summaries = {}
        for name, rule in self._definitions().items():
            state = states.get(name)
            groups = () if state is None else state.groups.values()
            firing = sum(group.firing is not None for group in groups)
            untracked = 0 if state is None else state.untracked
            summaries[name] = AlertSummary(rule, name not in created, len(groups) - firing, firing, untracked)
        return summaries

    def _registry(self) -> Registry:
        self._loop.directory.bind()
        return self._loop.directory.registry

    def _definitions(self) -> dict[str, AlertRule]:
        """All alerts: those in the texts of committed queries, and those that were or will be created beside them."""
        return {**alert_rules({}, self._registry()), **self._created()}

    def _waiting(self) -> list[Control]:
        directory = self._loop.directory
        with directory.lock:
            bound = directory.intent.control if directory.intent is not None else ()
            return [*bound, *directory.waiting.control]

    def _created(self) -> dict[str, AlertRule]:
        """The alerts that were created beside those of texts, with the waiting control applied."""
        rules = dict(self._loop.state.alerts.rules)
        for element in self._waiting():
            if isinstance(element, CreateAlert):
                rules[element.rule.name] = element.rule
            elif isinstance(element, DropAlert):
                rules.pop(element.name, None)
        texts = self._loop.directory.texts
        return {name: rule for name, rule in rules.items() if rule.query in texts}

    # --- what fires ---

    def active(self, alert: str | None = None) -> list[ActiveAlert]:
        """The groups that are firing or pending after the last committed batch, those that fire first."""
        loop = self._loop
        with loop.directory.lock:  # the state and the registry belong together
            state, registry = loop.state.alerts, self._registry()
        rules = {}
        for name, rule in alert_rules(state.rules, registry).items():
            query = registry.queries().get(rule.query)
            if query is not None and alert in (None, name):
                rules[name] = rule, times_of_windows(query)
        found = active_alerts(state, rules, loop.clock(), text_value)
        return sorted(found, key=lambda each: (each.state != "firing", each.silenced, each.alert))

    def events(
        self, after: str | None = None, limit: int = LISTED_ALERTS, alert: str | None = None
    ) -> tuple[list[AlertEvent], str]:
        """Events after a cursor (None: all that are retained), the oldest first, and the cursor after them."""
        last = EventCursor() if after is None else EventCursor.parse(after)
        events: list[AlertEvent] = []
        for place, event in self._loop.alerts.read(last, MOST_EVENTS):
            last = place
            if alert in (None, event.alert):
                events.append(event)
                if len(events) >= limit:
                    break
        return events, str(last)

    def read(self, after: str, limit: int) -> list[tuple[str, AlertEvent]]:
        """Events after a cursor, each with the cursor after it."""
        events = self._loop.alerts.read(EventCursor.parse(after), limit)
        return [(str(cursor), event) for cursor, event in events]

    def newest(self, limit: int, alert: str | None = None) -> list[AlertEvent]:
        """The newest events, the newest first."""
        events = self._loop.alerts.newest(limit if alert is None else MOST_EVENTS)
        return [event for event in events if alert in (None, event.alert)][:limit]

    @property
    def end(self) -> str:
        """The cursor after the newest event."""
        return str(self._loop.alerts.end)

    # --- silences ---

    def silence(
        self,
        matchers: str | Matcher | Iterable[str | Matcher],
        duration: str | timedelta | None = None,
        until: Any = None,
        author: str = "",
        comment: str = "",
    ) -> Silence:
        """Silence the alerts that all matchers match, for a duration or until a time, from the next batch on."""
        given = (
            list(matchers) if isinstance(matchers, Iterable) and not isinstance(matchers, str) else [matchers]
        )
        if not 0 < len(given) <= MOST_MATCHERS:
            raise SettingError(f"a silence needs 1 to {MOST_MATCHERS} matchers, such as alert=NAME")
        parsed = tuple(
            checked_matcher(each) if isinstance(each, Matcher) else parse_matcher(each) for each in given
        )
        if (duration is None) == (until is None):
            raise SettingError("a silence needs a duration such as '2 hours', or a time until which it lasts")
        if len(author) > LONGEST_ALERT_TEXT or len(comment) > LONGEST_ALERT_TEXT:
            raise SettingError(f"an author and a comment have at most {LONGEST_ALERT_TEXT:,} characters")
        if isinstance(duration, int):
            raise SettingError(f"{duration!r} has no unit; did you mean '{duration} seconds'?")
        now = self._loop.clock()
        end = now + parse_duration(duration) if duration is not None else _instant(until)
        if not now < end <= now + LONGEST_SILENCE:
            raise SettingError("a silence ends in the future, within a year")
        silence = Silence(uuid.uuid4().hex[:12], parsed, end, now, author, comment)
        with self._lock:
            silences = [*self.silences(), silence]
            if len(silences) > MOST_SILENCES:
                raise StateError(f"there are {MOST_SILENCES:,} silences already: end some first")
            patterns = sum(each.op in REGEX_OPERATORS for one in silences for each in one.matchers)
            if patterns > MOST_PATTERNS:
                raise StateError(
                    f"silences have at most {MOST_PATTERNS:,} regular expressions together: end some first"
                )
            self._loop.directory.push([CreateSilence(silence)])
        self._wake()
        return silence

    def unsilence(self, id: str) -> None:
        """End a silence with the next batch."""
        known = {silence.id for silence in self.silences()}
        if id not in known:
            raise StateError(f"there is no silence {id}")
        self._loop.directory.push([EndSilence(id)])
        self._wake()

    def silences(self) -> list[Silence]:
        """The silences that have not ended, with the waiting control applied."""
        silences = {silence.id: silence for silence in self._loop.state.alerts.silences}
        for element in self._waiting():
            if isinstance(element, CreateSilence):
                silences[element.silence.id] = element.silence
            elif isinstance(element, EndSilence):
                silences.pop(element.id, None)
        now = self._loop.clock()
        return [silence for silence in silences.values() if now < silence.until]

    # --- sinks ---

    def file_sink(self, name: str, path: str) -> None:
        """Write the events of each batch to a file of JSON lines in a directory: exactly once."""
        self._check_new(name)
        sink = AlertFiles(name, str(path))
        sink.guarded, sink.sync = self._loop.store.guarded, self._loop.store.sync
        others = [other.sink for other in self._batch_sinks.values()]
        files = [other.path for other in others if isinstance(other, AlertFiles)]
        if sink.path in files:
            raise SettingError(f"another sink writes to {path} already")
        if not self._loop.continues and sink.path.is_dir() and any(sink.path.glob("*.jsonl")):
            raise SettingError(
                f"{path} holds the alerts of another run: choose another directory, delete this one, or continue "
                "that run with its checkpoint"
            )
        sink.make_directory()
        self._batch_sinks[name] = _BatchSink(sink)

    def topic(self, name: str, topic: str, **options: Any) -> None:
        """Send events to a topic of Kafka, at least once; `options` are those of a `kafka` sink, and need Spark."""
        self._check_new(name)
        sink = self._loop.backend.sink("kafka", {**options, "topic": topic})
        sink.guarded = self._loop.store.guarded
        self._batch_sinks[name] = _BatchSink(AlertTopic(name, sink, self._loop.backend))

    def webhook(self, name: str, url: str, **options: Any) -> Webhook:
        """Post events to a URL, at least once; options are `format`, `secret`, `headers`, `timeout` and `attempts`.

        `${env:NAME}` and `${file:PATH}` in the URL, the secret and headers stand for secrets.
        """
        self._check_new(name)
        try:
            settings = WebhookSettings.of(url, options)
        except TypeError:
            known = ("format", "secret", "headers", "timeout", "attempts")
            wrong = next(each for each in options if each not in known)
            raise SettingError(f"a webhook has no option {wrong}{near_miss(wrong, known)}") from None
        webhook = Webhook(name, settings, self._loop.alerts)
        self._webhooks[name] = webhook
        if webhook.queued:
            webhook.wake()
        return webhook

    def _check_new(self, name: str) -> None:
        if SINK_NAME.fullmatch(name) is None:
            raise SettingError(
                f"not a name of a sink: {name!r}; use up to 64 letters, digits, and any of _.-"
            )
        if name in self._batch_sinks or name in self._webhooks:
            raise SettingError(f"there is a sink of alerts named {name} already")

    def _known_sinks(self, names: Sequence[str]) -> tuple[str, ...]:
        known = [*self._batch_sinks, *self._webhooks]
        if isinstance(names, str):
            raise SettingError("sinks is a list of names")
        for name in names:
            if name not in known:
                hint = near_miss(name, known) or "; the program or the pipeline file declares them"
                raise SettingError(f"there is no sink of alerts named {name}{hint}")
        return tuple(names)

    def sinks(self) -> list[AlertSinkStatus]:
        """The sinks of alerts, and what they delivered."""
        written = [
            AlertSinkStatus(
                name,
                each.sink.kind,
                delivered=each.delivered,
                failures=each.failures,
                last_failure=each.last_failure,
                last_delivered=each.last_delivered,
            )
            for name, each in self._batch_sinks.items()
        ]
        webhooks = [
            AlertSinkStatus(sink.name, sink.kind, sink.queued, **vars(sink.counts))
            for sink in self._webhooks.values()
        ]
        return [*written, *webhooks]

    def _write(self, report: BatchReport) -> None:
        for sink in self._batch_sinks.values():
            sink.write(report, self._loop.backend.error_text)

    def _committed(self, report: BatchReport) -> None:
        if report.alerts:
            now = self._loop.clock()
            for written in self._batch_sinks.values():
                written.committed(report.alerts, now)
            for sink in self._webhooks.values():
                sink.wake()

    def stop(self) -> None:
        """Deliver what is left, as far as receivers take it at once, and stop delivering."""
        end = time.monotonic() + LAST_ATTEMPT_SECONDS
        for sink in self._webhooks.values():
            sink.begin_stop()
        for sink in self._webhooks.values():
            sink.await_stop(end - time.monotonic())


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_ALERT_WINDOWS:
        raise SettingError(f"{name} is a number of windows, 1 to {MOST_ALERT_WINDOWS:,}, not {value!r}")
    return value


def _length(value: str | int | None, query: Query) -> int | None:
    """A length on the clock of a query: a duration, or a number if its windows are not of time."""
    if value is None:
        return None
    is_time = query.clock.kind is ClockKind.TIME
    if is_time and isinstance(value, int):
        raise SettingError(f"repeat_every: {value!r} has no unit; did you mean '{value} seconds'?")
    length = parse_duration(value) if is_time else value
    if not isinstance(length, int) or length <= 0:
        raise SettingError(f"repeat_every is a positive length on the clock of the query, not {value!r}")
    return length


def _texts(given: Mapping[str, str] | None, what: str) -> tuple[tuple[str, str], ...]:
    if given is not None and not isinstance(given, Mapping):
        raise SettingError(f"{what} are names with texts, not {given!r}")
    texts = {} if given is None else dict(given)
    if len(texts) > MOST_ALERT_TEXTS:
        raise SettingError(f"an alert has at most {MOST_ALERT_TEXTS} {what}")
    for name, text in texts.items():
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            raise SettingError(f"{what} are names with texts, not {name!r}: {text!r}")
        if len(name) > 200 or len(text) > LONGEST_ALERT_TEXT:
            raise SettingError(f"{what}: a text has at most {LONGEST_ALERT_TEXT:,} characters, a name 200")
    return tuple(texts.items())


def _instant(value: Any) -> int:
    if isinstance(value, datetime | str | int):
        return parse_instant(value)
    raise SettingError(f"not a time: {value!r}")
