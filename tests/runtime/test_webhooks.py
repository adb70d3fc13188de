"""Webhooks against a real server on loopback that fails, hangs and comes back."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids, bids_engine
from transom.errors import SettingError
from transom.runtime import alert_handles, webhooks
from transom.runtime.alert_log import EventCursor
from transom.runtime.webhook_requests import SIGNATURE_HEADER, DeliveryError, send, signature
from transom.runtime.webhooks import Webhook

BUSY = (
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site "
    "HAVING count(*) > 1 ALERT SEVERITY 'page' SUMMARY '{site} has {n}'"
)
SECRET = "a secret that nobody sees"


class Receiver:
    """An HTTP server that answers as a test says, and keeps what it got."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[], int] = lambda: 200
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answer()
                outer.requests.append((dict(self.headers), body))
                self.send_response(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/alerts"

    def events(self) -> list[dict[str, Any]]:
        return [event for _, body in self.requests for event in json.loads(body)["events"]]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def fast(webhook: Webhook) -> Webhook:
    """The webhook with waits of milliseconds."""
    start = time.monotonic()
    webhook._clock = lambda: (time.monotonic() - start) * 200
    return webhook


def fire(engine: transom.Engine, feed: Any, minute: int = 0) -> None:
    """Let the alert of site 7 fire, and be resolved."""
    feed.push(
        bids(
            *[(7, 1.0, f"12:{minute:02d}:{second}") for second in (10, 20)],
            (8, 1.0, f"12:{minute + 2:02d}:00"),
        )
    )
    engine.step()


def test_events_are_posted_and_signed(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url, secret="${env:HOOK_SECRET}", headers={"X-Team": "bids"})
    engine.register(BUSY, "busy")
    fire(engine, feed)
    until(lambda: len(receiver.events()) == 2)
    assert receiver.events() == [event.to_json() for event in engine.alerting.events()[0]]
    headers, body = receiver.requests[0]
    assert headers[SIGNATURE_HEADER] == signature(SECRET, body)
    assert (headers["Content-Type"], headers["X-Team"]) == ("application/json", "bids")
    until(lambda: engine.alerting.sinks()[0].queued == 0)
    engine.stop()
    stored = b"".join(file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    assert SECRET.encode() not in stored and receiver.url.encode() not in stored


def test_the_body_of_alertmanager(make_engine: EngineFactory, tmp_path: Path, receiver: Receiver) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url, format="alertmanager")
    engine.register(BUSY, "busy")
    fire(engine, feed)
    until(lambda: len(receiver.requests) == 1)
    body = json.loads(receiver.requests[0][1])
    first, second = body.pop("alerts")
    labels = {"alertname": "busy", "site": "7", "severity": "page"}
    assert body == {
        "version": "4",
        "groupKey": '{}:{alertname="busy", severity="page", site="7"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "pager",
        "groupLabels": {"alertname": "busy"},
        "commonLabels": labels,
        "commonAnnotations": {"summary": "7 has 2"},
        "externalURL": "",
    }
    assert first == {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "7 has 2"},
        "startsAt": "2013-01-01T12:01:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": second["fingerprint"],
    }
    assert (second["status"], second["endsAt"]) == ("resolved", "2013-01-01T12:02:00Z")
    engine.stop()


def test_a_server_that_fails_gets_the_events_when_it_comes_back(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    fast(engine.alerting.webhook("pager", receiver.url))
    engine.register(BUSY, "busy")
    receiver.answer = lambda: 503
    fire(engine, feed)
    fire(engine, feed, 10)
    until(lambda: len(receiver.requests) >= 3)
    status = engine.alerting.sinks()[0]
    assert (status.queued, status.delivered, status.last_failure) == (4, 0, "HTTP status 503")
    assert status.failures >= 2
    receiver.answer = lambda: 200
    receiver.requests.clear()
    until(lambda: engine.alerting.sinks()[0].delivered == 4)
    assert [event["state"] for event in receiver.events()] == ["firing", "resolved"] * 2
    engine.stop()


def test_a_server_that_hangs_delays_no_batch(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver
) -> None:
    released = threading.Event()

    def hang() -> int:
        released.wait(20)
        return 200

    receiver.answer = hang
    engine, feed = bids_engine(make_engine, tmp_path)
    fast(engine.alerting.webhook("pager", receiver.url, timeout="200 ms"))
    engine.register(BUSY, "busy")
    began = time.monotonic()
    for minute in range(0, 40, 4):
        fire(engine, feed, minute)
    assert len(engine.alerting.events()[0]) == 20 and time.monotonic() - began < 10
    until(lambda: engine.alerting.sinks()[0].failures > 0)
    assert "timed out" in (engine.alerting.sinks()[0].last_failure or "")
    receiver.answer = lambda: 200
    released.set()
    until(lambda: engine.alerting.sinks()[0].delivered == 20)
    engine.stop()


def test_the_queue_survives_a_restart(make_engine: EngineFactory, tmp_path: Path, receiver: Receiver) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", "http://127.0.0.1:9/closed")
    engine.register(BUSY, "busy")
    fire(engine, feed)
    until(lambda: engine.alerting.sinks()[0].failures > 0)
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url)
    until(lambda: len(receiver.events()) == 2)
    first = [event["event_id"] for event in receiver.events()]
    fire(engine, feed, 10)
    until(lambda: len(receiver.events()) == 4)
    until(lambda: engine.alerting.sinks()[0].queued == 0)
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url)
    engine.step()
    engine.stop()
    ids = [event["event_id"] for event in receiver.events()]
    assert ids[:2] == first and len(set(ids)) == len(ids) == 4


def test_silenced_events_are_not_posted(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url)
    engine.register(BUSY, "busy")
    silence = engine.alerting.silence("site=7", "1 hour")
    fire(engine, feed)
    engine.alerting.unsilence(silence.id)
    fire(engine, feed, 10)
    until(lambda: len(receiver.events()) == 2)
    assert [event["window_end"] for event in receiver.events()] == [
        "2013-01-01T12:11:00Z",
        "2013-01-01T12:12:00Z",
    ]
    engine.stop()


def test_an_alert_can_name_its_sinks(make_engine: EngineFactory, tmp_path: Path, receiver: Receiver) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url)
    engine.alerting.file_sink("log", str(tmp_path / "out"))
    engine.register(BUSY.partition(" ALERT")[0], "busy")
    engine.alert("paged", "busy", sinks=["pager"])
    engine.alert("logged", "busy", sinks=["log"])
    fire(engine, feed)
    until(lambda: len(receiver.events()) == 2)
    assert {event["alert"] for event in receiver.events()} == {"paged"}
    lines = [json.loads(line) for file in (tmp_path / "out").iterdir() for line in file.open()]
    assert {line["alert"] for line in lines} == {"logged"}
    engine.stop()


def test_a_request_that_is_refused_for_good_is_given_up(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    fast(engine.alerting.webhook("pager", receiver.url))
    engine.register(BUSY, "busy")
    receiver.answer = lambda: 400
    with caplog.at_level(logging.ERROR, "transom"):
        fire(engine, feed)
        until(lambda: engine.alerting.sinks()[0].given_up == 2)
    assert "gave up 2 events: HTTP status 400" in caplog.text
    receiver.answer = lambda: 200
    fire(engine, feed, 10)
    until(lambda: engine.alerting.sinks()[0].delivered == 2)
    engine.stop()


def test_a_request_is_given_up_after_so_many_attempts(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    fast(engine.alerting.webhook("pager", receiver.url, attempts=3))
    engine.register(BUSY, "busy")
    receiver.answer = lambda: 500
    fire(engine, feed)
    until(lambda: engine.alerting.sinks()[0].given_up == 2)
    assert len(receiver.requests) == 3
    engine.stop()


def test_a_redirect_is_not_followed(make_engine: EngineFactory, tmp_path: Path, receiver: Receiver) -> None:
    other = Receiver()
    receiver.headers = {"Location": other.url}
    receiver.answer = lambda: 302
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.alerting.webhook("pager", receiver.url)
    engine.register(BUSY, "busy")
    fire(engine, feed)
    until(lambda: engine.alerting.sinks()[0].failures > 0)
    assert other.requests == []
    engine.stop()
    other.stop()


def test_waits_grow_and_follow_the_server(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Without a thread: the clock is a number, and each attempt is made by hand."""
    engine, _ = bids_engine(make_engine, tmp_path)
    webhook = engine.alerting.webhook("pager", "http://127.0.0.1:9/closed")
    webhook._clock, webhook._jitter = (lambda: 100.0), (lambda: 1.0)
    waits = []
    for _ in range(11):
        webhook._note_failure("no answer", None)
        waits.append(webhook._next_attempt - 100.0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    webhook._attempt, webhook._jitter = 0, (lambda: 0.0)
    webhook._note_failure("no answer", None)
    assert webhook._next_attempt == 100.5
    webhook._note_failure("busy", 120.0)
    assert webhook._next_attempt == 220.0


WRONG_WEBHOOKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no URL of HTTP": ("file:///etc/passwd", {}, "http:// or https://"),
    "no host": ("http://", {}, "http:// or https://"),
    "an unknown format": ("http://localhost", {"format": "slack"}, "format is transom or alertmanager"),
    "an unknown option": ("http://localhost", {"retries": 3}, "no option retries"),
    "no attempts": ("http://localhost", {"attempts": 0}, "positive"),
    "a variable that is not set": ("http://localhost", {"secret": "${env:TRANSOM_NO_SUCH}"}, "not set"),
}


@pytest.mark.parametrize("url, options, reason", WRONG_WEBHOOKS.values(), ids=list(WRONG_WEBHOOKS))
def test_wrong_webhooks(
    make_engine: EngineFactory, tmp_path: Path, url: str, options: dict[str, Any], reason: str
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(SettingError, match=reason):
        engine.alerting.webhook("pager", url, **options)


def test_events_that_left_the_history_are_counted_as_lost(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transom.runtime.alert_log.MOST_EVENTS", 6)
    receiver.answer = lambda: 503
    engine, feed = bids_engine(make_engine, tmp_path)
    webhook = engine.alerting.webhook("pager", receiver.url)
    webhook._clock = lambda: 0.0  # after the first attempt, it waits
    engine.register(BUSY, "busy")
    for minute in range(0, 40, 4):
        fire(engine, feed, minute)
    until(lambda: engine.alerting.sinks()[0].failures == 1)
    assert engine.alerting.sinks()[0].queued == 6 and len(engine.alerting.events()[0]) == 6
    receiver.answer = lambda: 200
    receiver.requests.clear()
    webhook._next_attempt = 0.0
    webhook.wake()
    until(lambda: engine.alerting.sinks()[0].delivered == 6)
    assert engine.alerting.sinks()[0].lost == 14
    engine.stop()


def test_receivers_that_hang_delay_a_stop_once_and_get_events_after_the_next_start(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "LAST_ATTEMPT_SECONDS", 0.5)
    monkeypatch.setattr(alert_handles, "LAST_ATTEMPT_SECONDS", 0.5)
    hangs = threading.Event()
    receiver.answer = lambda: 200 if hangs.wait(20) else 500
    engine, feed = bids_engine(make_engine, tmp_path)
    for name in ("a", "b", "c", "d"):
        engine.alerting.webhook(name, receiver.url)
    engine.register(BUSY, "busy")
    feed.push(bids((1, 1.0, "12:00:00"), (1, 1.0, "12:00:01"), (1, 1.0, "12:01:00")))
    engine.step()
    until(lambda: all(sink.queued for sink in engine.alerting.sinks()))
    began = time.monotonic()
    engine.alerting.stop()
    assert time.monotonic() - began < 1.8, "not once for each of them"
    hangs.set()
    for sink in engine.alerting._webhooks.values():
        sink.wake()  # as after the next batch
    until(lambda: not any(sink.queued for sink in engine.alerting.sinks()))
    engine.stop()


def test_a_thread_that_was_left_behind_moves_no_cursor_of_the_next_engine(
    make_engine: EngineFactory, tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    old = engine.alerting.webhook("pager", receiver.url)
    engine.stop()
    engine, _ = bids_engine(make_engine, tmp_path)
    new = engine.alerting.webhook("pager", receiver.url)
    old._advance(EventCursor(99))
    assert new._stored_cursor() == new._cursor != old._cursor
    assert "another engine has taken over this checkpoint" in caplog.text
    engine.stop()


def test_a_receiver_that_sends_one_byte_after_the_other_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                while True:
                    connection.sendall(b"H")
                    time.sleep(0.05)

        dripping = threads.submit(drip)
        began = time.monotonic()
        with pytest.raises(DeliveryError):
            send(f"http://127.0.0.1:{server.getsockname()[1]}", b"{}", {}, None, 0.3)
        assert time.monotonic() - began < 8
        dripping.result(timeout=10)


def test_what_a_receiver_sends_makes_no_lines_in_the_log() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"garbage\x1b[31m\rERROR all is lost\n")

        threads.submit(answer)
        with pytest.raises(DeliveryError) as raised:
            send(f"http://127.0.0.1:{server.getsockname()[1]}", b"{}", {}, None, 10)
    assert "garbage" in str(raised.value) and str(raised.value).isprintable()
