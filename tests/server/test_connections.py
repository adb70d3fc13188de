"""Connections that send half a request: they are limited, time out, and shut no client out."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE
from tests.server.server_helpers import Backend, backend, served_with, tailing
from transom.server.connection_limits import ConnectionTable
from transom.server.limits import ServiceLimits

ROOT = Path(__file__).parents[2]
HALF = b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = b"POST /api/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
NO_DATA = b""


class FakeConnection(SimpleNamespace):
    """A connection that waits, answers, or has ended."""

    __hash__ = object.__hash__

    def abort(self) -> None:
        self.is_aborted = True


def connection(is_waiting: bool = True, is_over: bool = False) -> Any:
    return FakeConnection(is_waiting=is_waiting, is_over=is_over, is_aborted=False)


class TestTable:
    """The table of open connections, without a network."""

    limits = ServiceLimits(connections=100, peer_connections=2)

    def test_the_oldest_waiting_one_makes_room(self) -> None:
        table = ConnectionTable(self.limits, descriptors=16)
        answered, waiting = connection(is_waiting=False), [connection() for _ in range(8)]
        assert all(table.add(one, "127.0.0.1") for one in (answered, *waiting))
        assert (len(table), waiting[0].is_aborted, answered.is_aborted) == (8, True, False)

    def test_a_new_one_is_refused_if_all_are_answered(self) -> None:
        table = ConnectionTable(self.limits, descriptors=16)
        assert all(table.add(connection(is_waiting=False), "127.0.0.1") for _ in range(8))
        assert not table.add(connection(), "127.0.0.1")

    def test_one_that_has_ended_makes_room(self) -> None:
        table = ConnectionTable(self.limits, descriptors=16)
        assert all(table.add(connection(False, is_over=True), "127.0.0.1") for _ in range(20))

    def test_an_address_of_another_machine_has_fewer(self) -> None:
        table = ConnectionTable(self.limits, descriptors=10_000)
        assert all(table.add(connection(is_waiting=False), "10.0.0.1") for _ in range(2))
        assert not table.add(connection(), "10.0.0.1")
        assert table.add(connection(), "10.0.0.2")
        assert all(table.add(connection(is_waiting=False), "127.0.0.1") for _ in range(50))

    def test_the_addresses_of_an_ipv6_network_are_one(self) -> None:
        table = ConnectionTable(self.limits, descriptors=10_000)
        assert all(table.add(connection(is_waiting=False), f"2001:db8::{n}") for n in range(2))
        assert not table.add(connection(), "2001:db8::ffff")
        assert table.add(connection(), "2001:db8:1::1")
        assert all(table.add(connection(is_waiting=False), "::1") for _ in range(50))

    @pytest.mark.parametrize(("descriptors", "most"), [(64, 32), (4, 8), (10_000, 100)])
    def test_half_of_the_descriptors_are_left_to_the_engine(self, descriptors: int, most: int) -> None:
        assert ConnectionTable(self.limits, descriptors).most == most


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backend(make_engine, tmp_path_factory.mktemp("connections"), served_with(body=1 << 20)) as made:
        yield made


@contextlib.contextmanager
def half_sent(back: Backend, count: int, data: bytes = HALF) -> Iterator[list[socket.socket]]:
    url = httpx.URL(back.served.url)
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            opened = stack.enter_context(socket.create_connection((url.host, url.port or 0), timeout=30))
            opened.sendall(data)
            sockets.append(opened)
        yield sockets


def ends(connection: socket.socket) -> bool:
    """Whether the server closes a connection."""
    try:
        while connection.recv(65536) != NO_DATA:
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "data", [b"", HALF, HALF_BODY, b"\r\n"], ids=["nothing", "headers", "a body", "lines"]
)
def test_a_request_must_arrive_in_time(make_engine: EngineFactory, tmp_path: Path, data: bytes) -> None:
    with (
        backend(make_engine, tmp_path, served_with(request_seconds=1)) as back,
        half_sent(back, 1, data) as [slow],
    ):
        began = time.monotonic()
        assert ends(slow)
        assert 0.5 < time.monotonic() - began < 10


@pytest.mark.parametrize("data", [HALF, HALF_BODY, b"\r\n"], ids=["headers", "a body", "lines"])
def test_a_trickle_does_not_help(make_engine: EngineFactory, tmp_path: Path, data: bytes) -> None:
    with (
        backend(make_engine, tmp_path, served_with(token="a-token-of-the-test", request_seconds=1)) as back,
        half_sent(back, 1, data) as [slow],
    ):
        began = time.monotonic()
        slow.settimeout(0.1)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 10:
                slow.sendall(data[-1:])
                with contextlib.suppress(TimeoutError):
                    if slow.recv(65536) == NO_DATA:
                        break
        assert time.monotonic() - began < 5


def test_a_tail_lasts_longer_than_a_request_may_take(make_engine: EngineFactory, tmp_path: Path) -> None:
    settings = served_with(request_seconds=1, heartbeat_seconds=0.2)
    with backend(make_engine, tmp_path, settings) as back:
        back.engine.register(PER_SITE, "per_site")
        back.engine.step()
        with tailing(back, "per_site") as events:
            assert events.next()["event"] == "columns"
            time.sleep(2)
            back.push([(1, 1.0, "2013-01-01 12:00:00")])
            back.push([(1, 1.0, "2013-01-01 12:05:00")])
            assert events.next()["event"] == "results"


def test_pipelined_requests_are_answered_in_turn(make_engine: EngineFactory, tmp_path: Path) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with (
        backend(make_engine, tmp_path, served_with(request_seconds=1)) as back,
        half_sent(back, 1, request * 3 + HALF) as [pipelined],
    ):
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := pipelined.recv(65536):
                received += data
        assert received.count(b'"state"') == 3


def test_half_sent_requests_shut_no_client_out(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, served_with(connections=20)) as back, half_sent(back, 100) as sockets:
        for _ in range(5):
            assert httpx.get(f"{back.served.url}/api/status", timeout=30).status_code == 200
        assert ends(sockets[0])


def test_connections_beyond_the_limit_are_refused_while_all_are_in_use(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    with backend(make_engine, tmp_path, served_with(connections=8)) as back, contextlib.ExitStack() as stack:
        back.engine.register(PER_SITE, "per_site")
        back.engine.step()
        tails = [stack.enter_context(tailing(back, "per_site")) for _ in range(8)]
        assert {tail.next()["event"] for tail in tails} == {"columns"}
        refused = httpx.get(f"{back.served.url}/api/status", timeout=30)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "limit")


LONG_HEADS = {
    "a long header": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 1000,
    "many headers": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Long: 1\r\n" * 100,
    "a long address": b"GET /" + b"x" * 1000,
}


@pytest.mark.parametrize("head", LONG_HEADS)
def test_headers_are_limited(back: Backend, head: str) -> None:
    with half_sent(back, 1, LONG_HEADS[head]) as [sender]:
        received = flooded(sender, b"X-Long: 1\r\n" * 100 if head == "many headers" else b"x" * 1000)
    assert received.startswith(b"HTTP/1.1 431 ") or received == b""  # the reset may overtake the answer


def test_a_body_that_was_refused_is_not_read_for_ever(back: Backend) -> None:
    length = b"POST /api/check HTTP/1.1\r\nHost: rebound.example\r\nContent-Length: 999999999\r\n\r\n"
    with half_sent(back, 1, length) as [sender]:
        assert flooded(sender, b"x" * 100_000).startswith(b"HTTP/1.1 403 ")


def test_trailers_are_ignored(back: Backend) -> None:
    chunked = b"POST /api/check HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with half_sent(back, 1, chunked + b"2\r\n{}\r\n0\r\nHost: rebound.example\r\n\r\n") as [sender]:
        assert sender.recv(65536).startswith(b"HTTP/1.1 422 ")


def flooded(sender: socket.socket, data: bytes) -> bytes:
    """Send data until the server closes the connection; what the server sent."""
    received = b""
    sender.settimeout(0.01)
    try:
        for _ in range(10_000):
            sender.sendall(data)
            with contextlib.suppress(TimeoutError):
                if (part := sender.recv(65536)) == NO_DATA:
                    return received
                received += part
    except ConnectionError:
        return received
    pytest.fail("the server read it all")


FLOOD = """
import resource, socket, sys, time
from pathlib import Path
import httpx, transom

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
place, token = Path(sys.argv[1]), "the-token-of-a-test"
engine = transom.Engine(checkpoint=place / "state", backend="local", poll="20 ms")
feed = engine.feed("bids", "site int, ts timestamp", time="ts")
query = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]", "counts")
headers = {"Authorization": f"Bearer {token}"}
with transom.serving(engine, port=0, token=token, dashboard=DASHBOARD) as served:
    url = httpx.URL(served.url)
    code = (
        "import socket, sys, time, resource\\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\\n"
        "sockets = []\\n"
        "for _ in range(1100):\\n"
        "    try:\\n"
        "        sockets.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5))\\n"
        "        sockets[-1].sendall(b'GET /api/status HTTP/1.1')\\n"
        "    except OSError:\\n"
        "        pass\\n"
        "print('sent', flush=True)\\n"
        "time.sleep(60)\\n"
    )
    import subprocess
    flood = subprocess.Popen([sys.executable, "-c", code, url.host, str(url.port)], stdout=subprocess.PIPE)
    try:
        assert flood.stdout.readline() == b"sent\\n"
        for minute in range(5):
            feed.push([(1, f"2013-01-01 12:{minute:02}:00")])
            answer = httpx.get(f"{served.url}/api/status", headers=headers, timeout=30)
            assert answer.status_code == 200, answer.text
            time.sleep(0.1)
        deadline = time.monotonic() + 30
        while query.results().num_rows < 4:
            assert engine.failure is None, engine.failure
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        flood.kill()
        flood.wait()
print("answered")
"""


def test_a_process_with_few_descriptors_survives_a_thousand_half_sent_requests(tmp_path: Path) -> None:
    code = FLOOD.replace("DASHBOARD", "False")
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "answered\n"), done.stderr
