"""Webhooks: events of alerts are posted by a thread of its own, at least once, and never delay a batch.

The history of alerts is the queue: a webhook remembers under the checkpoint up to which event it delivered. So the
queue survives a restart, and is bounded as the history is.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transom.alerts.events import AlertEvent
from transom.backends.secrets import with_secrets, without_secrets
from transom.durations import parse_duration
from transom.errors import SettingError, TransomError
from transom.runtime.alert_log import AlertLog, EventCursor
from transom.runtime.alert_sinks import is_for
from transom.runtime.webhook_requests import (
    WEBHOOK_FORMATS,
    DeliveryError,
    check_url,
    request_body,
    send,
)

log = logging.getLogger("transom")

FIRST_RETRY_WAIT, LONGEST_RETRY_WAIT = 1.0, 300.0  # seconds between two attempts
EVENTS_PER_REQUEST = 100
SEARCHED_EVENTS = 1_000  # of the history that are looked through for one request
LAST_ATTEMPT_SECONDS = 5.0  # for what is left when the engine stops


@dataclass(frozen=True)
class WebhookSettings:
    """Where and how a webhook posts events.

    `url`, `secret` and the headers may have references to secrets, `${env:NAME}` or `${file:PATH}`: they are read when
    a request is sent, and are neither stored nor logged. `attempts` is after how many attempts a request is given up.
    """

    url: str = field(repr=False)
    format: str = "transom"
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    attempts: int = 20

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> WebhookSettings:
        """The settings that a program or a pipeline file gives."""
        given = dict(options)
        timeout = parse_duration(given.pop("timeout", "10 s")) / 1e6
        settings = cls(url, timeout=timeout, **given)
        if settings.format not in WEBHOOK_FORMATS:
            raise SettingError(
                f"a webhook's format is {' or '.join(WEBHOOK_FORMATS)}, not {settings.format!r}"
            )
        if not isinstance(settings.attempts, int) or settings.attempts < 1:
            raise SettingError("attempts of a webhook is a positive number")
        settings.resolved()
        return settings

    def resolved(self) -> tuple[str, dict[str, str], str | None]:
        """The URL, the headers and the secret, with values in place of references."""
        url = check_url(with_secrets({"url": self.url})["url"])
        secret = None if self.secret is None else with_secrets({"secret": self.secret})["secret"]
        if secret == "":
            raise SettingError("the secret of a webhook is empty")
        return url, with_secrets(self.headers), secret


@dataclass
class WebhookCounts:
    """What a webhook has done since the engine started."""

    delivered: int = 0  # events
    failures: int = 0  # attempts that failed
    given_up: int = 0  # events that were not delivered
    lost: int = 0  # events that left the history before they were delivered
    last_failure: str | None = None
    last_delivered: int | None = None  # when the receiver last took events, in microseconds since 1970


class Webhook:
    """Posts the events of alerts to a URL."""

    kind = "webhook"

    def __init__(
        self,
        name: str,
        settings: WebhookSettings,
        alerts: AlertLog,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ):
        self.name, self.settings, self.counts = name, settings, WebhookCounts()
        self._alerts, self._clock, self._jitter = alerts, clock, jitter
        self._file = f"alert_sinks/{name}.json"
        self._cursor = self._stored_cursor()
        self._attempt, self._next_attempt = 0, 0.0
        self._changed, self._stopping = threading.Condition(), threading.Event()
        self._thread: threading.Thread | None = None
        self._last_end = 0.0  # of the attempts when the engine stops

    def _stored_cursor(self) -> EventCursor:
        """Up to where events were delivered; a new webhook begins with the events to come."""
        store = self._alerts.store
        if not store.exists(self._file):
            cursor = self._alerts.end
            store.write(self._file, _stored(cursor))  # events that come before the first delivery count
            return cursor
        stored = json.loads(store.read(self._file))
        return EventCursor(stored["batch"], stored["event"])

    def write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        """Nothing: events are posted when their batch is committed."""

    @property
    def queued(self) -> int:
        """How many events of the history wait, at most: some may be for other sinks."""
        return self._alerts.count_after(self._cursor)

    def wake(self) -> None:
        """Look for events now: a batch was committed."""
        with self._changed:
            if self._thread is None:
                self._stopping = threading.Event()
                name = f"transom-webhook-{self.name}"
                self._thread = threading.Thread(
                    target=self._run, args=[self._stopping], name=name, daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def begin_stop(self) -> None:
        """Let the thread try once more to deliver what is left, and end."""
        with self._changed:
            self._last_end = self._clock() + LAST_ATTEMPT_SECONDS
            self._stopping.set()
            self._changed.notify_all()

    def await_stop(self, seconds: float) -> None:
        """Wait for the thread to end; one whose receiver hangs is left behind, and ends with its request."""
        thread = self._thread
        if thread is not None:
            thread.join(max(seconds, 0.0))
        with self._changed:
            self._thread = None

    def _run(self, stopping: threading.Event) -> None:
        is_stopping = False
        while not is_stopping:
            with self._changed:
                if not stopping.is_set():
                    wait = self._next_attempt - self._clock()
                    if self.queued == 0:
                        self._changed.wait()
                    elif wait > 0:
                        self._changed.wait(wait)
                is_stopping = stopping.is_set()
            try:
                self._deliver_queued(is_stopping)
            except Exception:
                log.exception("the webhook %s failed", self.name)
                self._note_failure("an internal error", None)

    def _deliver_queued(self, is_stopping: bool) -> None:
        def is_time() -> bool:
            return self._clock() < self._last_end if is_stopping else self._clock() >= self._next_attempt

        while self.queued and is_time():
            if not self.deliver_next():
                return

    def deliver_next(self) -> bool:
        """Post the next events; whether they were accepted, or there were none for this sink."""
        self._count_lost()
        read = list(self._alerts.read(self._cursor, SEARCHED_EVENTS))
        mine: list[AlertEvent] = []
        after = self._cursor
        for cursor, event in read:
            if len(mine) == EVENTS_PER_REQUEST:
                break
            after = cursor
            if is_for(self.name, event) and not event.silenced:
                mine.append(event)
        if mine and not self._posted(mine):
            return False
        if after != self._cursor:
            self._advance(after)
        return bool(read)

    def _posted(self, events: Sequence[AlertEvent]) -> bool:
        """Whether events were accepted, or given up."""
        try:
            with self._alerts.store.guarded():
                pass  # an engine that another one has replaced delivers nothing
            url, headers, secret = self.settings.resolved()
            body = request_body(self.settings.format, events, self.name)
            send(url, body, headers, secret, self.settings.timeout)
        except (DeliveryError, TransomError) as error:
            is_final = isinstance(error, DeliveryError) and error.is_final
            self._note_failure(
                without_secrets(str(error)), error.retry_after if isinstance(error, DeliveryError) else None
            )
            if not is_final and self._attempt < self.settings.attempts:
                return False
            self.counts.given_up += len(events)
            log.error(
                "the webhook %s gave up %d events: %s", self.name, len(events), self.counts.last_failure
            )
            self._attempt, self._next_attempt = 0, 0.0
            return True
        self.counts.delivered += len(events)
        self.counts.last_delivered = time.time_ns() // 1_000
        self._attempt, self._next_attempt, self.counts.last_failure = 0, 0.0, None
        return True

    def _note_failure(self, reason: str, retry_after: float | None) -> None:
        """Wait for twice as long as after the failure before; jitter keeps senders apart."""
        self.counts.failures += 1
        self.counts.last_failure = reason
        wait = min(LONGEST_RETRY_WAIT, FIRST_RETRY_WAIT * 2.0 ** min(self._attempt, 30))
        wait = wait * (0.5 + self._jitter() / 2)
        if retry_after is not None:
            wait = max(wait, min(retry_after, LONGEST_RETRY_WAIT))
        self._attempt += 1
        self._next_attempt = self._clock() + wait
        if self._attempt == 1:
            log.warning("the webhook %s failed and tries again: %s", self.name, reason)

    def _count_lost(self) -> None:
        """Count events that the history has not kept for as long as they waited."""
        cursor = self._cursor
        missed = [batch for batch in self._alerts.dropped if batch.batch_id >= cursor.batch_id]
        if missed:
            before = cursor.event if missed[0].batch_id == cursor.batch_id else 0
            self.counts.lost += sum(batch.events for batch in missed) - before
            self._cursor = EventCursor(missed[-1].batch_id + 1)
            log.error("the webhook %s lost events that waited for too long", self.name)

    def _advance(self, cursor: EventCursor) -> None:
        # A thread that was left behind may be slower than the next one.
        self._cursor = max(self._cursor, cursor)
        try:  # the store refuses it if another engine has taken over the checkpoint
            self._alerts.store.write(self._file, _stored(self._cursor))
        except Exception as error:  # it is delivered again after a restart
            log.warning("the webhook %s can't store how far it is: %s", self.name, error)


def _stored(cursor: EventCursor) -> bytes:
    return json.dumps({"batch": cursor.batch_id, "event": cursor.event}).encode()
