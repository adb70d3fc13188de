"""Limits of connections: their number, in total and by address, and the time and size of what arrives.

uvicorn refuses requests beyond a number, but a connection that never completes a request is none to it: it keeps
a file descriptor for ever.
"""

from __future__ import annotations

import json
import resource
from asyncio import TimerHandle, Transport
from collections.abc import Iterator
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transom.server.limits import ServiceLimits
from transom.server.rate_limits import address_group
from transom.server.settings import is_loopback

FEWEST_CONNECTIONS = 8
LONGEST_HEAD = 64 << 10  # bytes of a request's first line and headers; httptools sets no limit


def raw_answer(status: str, message: str) -> bytes:
    """The answer to a connection, before there is a request that the app could answer."""
    body = json.dumps({"error": {"kind": "limit", "message": message}}).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "retry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


OVERLOADED = raw_answer("503 Service Unavailable", "too many connections are open")
HEAD_TOO_LARGE = raw_answer(
    "431 Request Header Fields Too Large", f"the headers have more than {LONGEST_HEAD:,} bytes"
)


class ConnectionTable:
    """The open connections of a server, oldest first.

    When there are too many, the oldest one that waits for a request is closed, so that clients which send half a
    request can't shut others out. If none waits, the new one is refused.
    """

    def __init__(self, limits: ServiceLimits, descriptors: int | None = None):
        self.most, self.most_of_peer = limits.connections, limits.peer_connections
        available = open_file_limit() if descriptors is None else descriptors
        if available is not None:  # the engine needs the rest
            self.most = max(FEWEST_CONNECTIONS, min(self.most, available // 2))
        self._open: dict[LimitedConnection, str] = {}  # with the address

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: LimitedConnection, peer: str) -> bool:
        """Add a new connection, or return False if there is no room for it."""
        if not is_loopback(peer):  # a proxy on this machine has as many as it needs
            peer = address_group(peer)
            mine = [each for each, address in self._open.items() if address == peer]
            if len(mine) >= self.most_of_peer and not self._make_room(iter(mine)):
                return False
        if len(self._open) >= self.most and not self._make_room(iter(self._open)):
            return False
        self._open[connection] = peer
        return True

    def remove(self, connection: LimitedConnection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)

    def _make_room(self, connections: Iterator[LimitedConnection]) -> bool:
        """Close the first of some connections that has ended or waits for a request; False if there is none."""
        for connection in connections:
            if connection.is_over or connection.is_waiting:
                connection.abort()
                self.remove(connection)
                return True
        return False


class LimitedConnection(HttpToolsProtocol):
    """A connection that is closed unless its request arrives in time.

    It waits while a request is incomplete and between two requests. It does not while a request is answered,
    however long that takes, and after an upgrade to a websocket.
    """

    table: ClassVar[ConnectionTable]
    request_seconds: ClassVar[float]
    longest_body: ClassVar[int]

    _deadline: TimerHandle | None = None
    _has_arrived = False  # the newest request, whole
    _is_in_head = False
    _bytes = 0  # of the newest request, so far

    @property
    def is_waiting(self) -> bool:
        """Whether the connection waits for a request, or for the rest of one."""
        return self._deadline is not None

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended; a websocket's end is reported to another protocol."""
        return self.transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.transport.abort()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.table.add(self, self.client[0] if self.client else ""):
            self._wait()
        else:
            self._refuse(OVERLOADED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._bytes += len(data)
        if self._is_in_head and self._bytes > LONGEST_HEAD:
            self._refuse(HEAD_TOO_LARGE)
        elif not self._has_arrived and self._bytes > LONGEST_HEAD + 2 * self.longest_body:
            self.abort()  # the app has refused it already, and the client sends more and more

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._has_arrived, self._is_in_head, self._bytes = False, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # else it is a trailer of a chunked body: no route reads one
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._has_arrived = True
        super().on_message_complete()
        if self._is_answering:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering:
            self._wait()

    @property
    def _is_answering(self) -> bool:
        return self._has_arrived and self.cycle is not None and not self.cycle.response_complete

    def handle_websocket_upgrade(self) -> None:
        self._stop_waiting()
        super().handle_websocket_upgrade()

    def _wait(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.request_seconds, self.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def limited_connections(limits: ServiceLimits) -> type[LimitedConnection]:
    """The protocol of a server's connections, which share one table."""
    attributes: dict[str, Any] = {
        "table": ConnectionTable(limits),
        "request_seconds": limits.request_seconds,
        "longest_body": limits.body,
    }
    return type("ServerConnection", (LimitedConnection,), attributes)


def open_file_limit() -> int | None:
    """How many file descriptors this process may have; None if there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit
