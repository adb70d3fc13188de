"""Tails: live, resumed, dropped, slow and too many."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids
from tests.server.server_helpers import Backend, Events, backend, error, served_with, tailing
from transom.server import event_stream as events


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that another process or thread brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


@contextmanager
def per_site(make_engine: EngineFactory, tmp_path: Path, **limits: Any) -> Iterator[Backend]:
    """A server with some limits, a query and a batch."""
    with backend(make_engine, tmp_path, served_with(**limits)) as made:
        made.engine.register(PER_SITE, "per_site")
        made.push(bids((1, 1.0, "12:00")))
        yield made


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Path) -> Iterator[Backend]:
    with per_site(make_engine, tmp_path, subscribers=3) as made:
        yield made


def test_results_come_as_they_are_made(back: Backend) -> None:
    with tailing(back, "per_site") as tail:
        first = tail.next()
        assert first["event"] == "columns" and first["data"]["columns"][2]["name"] == "site"
        back.push(bids((1, 1.0, "12:02")))
        told = tail.next()
        assert (told["event"], [row["n"] for row in told["data"]["rows"]]) == ("results", [1, 1])
        back.push(bids((1, 1.0, "12:03")))
        assert tail.next()["data"]["rows"][0]["window_end"] == "2013-01-01T12:03:00Z"


def test_a_tail_begins_where_it_is_told_to(back: Backend) -> None:
    back.push(bids((1, 1.0, "12:05")))
    whole = back.client.get("/api/queries/per_site/results").json()
    cursor = back.client.get("/api/queries/per_site/results?limit=1").json()["cursor"]
    for asked in ({"cursor": cursor}, {"last": cursor}, {"last": cursor, "cursor": "end"}):
        with tailing(back, "per_site", **asked) as tail:
            assert tail.next()["id"] == cursor  # whoever is cut off here begins there again
            told = tail.next()
            assert told["data"]["rows"] == whole["rows"][1:]
            assert told["id"] == whole["cursor"]


def test_whoever_comes_back_misses_nothing_and_sees_nothing_twice(back: Backend) -> None:
    with tailing(back, "per_site") as tail:
        last = tail.next()["id"]  # it leaves before the first results
    back.push(bids((1, 1.0, "12:02")))
    with tailing(back, "per_site", last=last) as tail:
        tail.next()
        told = tail.next()
        assert len(told["data"]["rows"]) == 2
    back.push(bids((1, 1.0, "12:04")))
    with tailing(back, "per_site", last=told["id"]) as tail:
        tail.next()
        ends = [row["window_end"] for row in tail.next()["data"]["rows"]]
        assert ends == ["2013-01-01T12:03:00Z", "2013-01-01T12:04:00Z"]


def test_a_tail_ends_when_its_query_leaves(back: Backend) -> None:
    with tailing(back, "per_site") as tail:
        tail.next()
        assert back.client.delete("/api/queries/per_site").status_code == 204
        back.engine.step()
        assert tail.next()["event"] == "dropped"
        with pytest.raises(StopIteration):
            tail.next()
    assert error(back.client.get("/api/queries/per_site/tail")) == (404, "not_found")


def test_readers_are_counted_and_limited(back: Backend) -> None:
    with tailing(back, "per_site"), tailing(back, "per_site"), tailing(back, "per_site"):
        until(lambda: back.served.service.subscribers == 3)
        assert error(back.client.get("/api/queries/per_site/tail")) == (429, "limit")
    until(lambda: back.served.service.subscribers == 0)


def test_a_silent_tail_tells_now_and_then_that_all_is_well(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    with (
        per_site(make_engine, tmp_path, heartbeat_seconds=0.01) as back,
        back.client.stream("GET", "/api/queries/per_site/tail") as response,
    ):
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": "


def test_a_reader_that_never_reads_delays_no_other(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, write = list[int](), events.results_event

    def padded(table: pa.Table, cursor: str) -> bytes:
        made.append(table.num_rows)
        return write(table, cursor) + b": " + b"x" * 100_000 + b"\n\n"

    monkeypatch.setattr(events, "results_event", padded)
    with per_site(make_engine, tmp_path, event_rows=10) as back:
        host = urlsplit(back.served.url)
        with socket.create_connection((host.hostname, host.port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /api/queries/per_site/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: back.served.service.subscribers == 1)
            for minute in (2, 3, 4):  # 30 MB for it, if it would read
                back.push(bids(*((site, 1.0, f"12:{minute:02}") for site in range(1_000))))
            assert back.engine.progress().streams["bids"].rows == 3_001
            settled = -1
            while settled != len(made):  # it is given no more than fits into the socket
                settled = len(made)
                time.sleep(0.2)
            assert 0 < sum(made) < 1_500
            with tailing(back, "per_site") as other:
                other.next()
                back.push(bids((1, 1.0, "12:06")))
                assert other.next()["event"] == "results"
        until(lambda: back.served.service.subscribers == 0)


def test_readers_of_the_same_share_what_is_written(back: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    write = events.results_event
    monkeypatch.setattr(
        events, "results_event", lambda table, cursor: made.append(cursor) or write(table, cursor)
    )
    with tailing(back, "per_site") as one, tailing(back, "per_site") as two:
        one.next(), two.next()
        back.push(bids((1, 1.0, "12:05")))
        assert one.next() == two.next()
    assert len(made) == 1


def test_tails_end_when_the_server_stops(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path) as back:
        back.engine.register(PER_SITE, "per_site")
        with back.client.stream("GET", "/api/queries/per_site/tail") as response:
            tail = Events(response)
            tail.next()
            started = time.monotonic()
            back.served.stop()
            with pytest.raises(StopIteration):
                tail.next()
            assert time.monotonic() - started < 3
