"""The limits of a service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of a service, for all clients together and for one request."""

    queries: int = 10_000
    subscribers: int = 1_000
    rows: int = 100_000  # of one answer; a cursor leads to the rest
    body: int = 4 << 20  # bytes of a request
    push_body: int = 32 << 20  # bytes of a request that pushes rows
    pushed_rows: int = 500_000  # that wait to be processed, of one stream
    sql: int = 64 << 10  # characters of a query
    previews: int = 16
    recent: int = 64 << 20  # bytes of results kept in memory for readers
    event_rows: int = 1_000  # of one server-sent event
    heartbeat_seconds: float = 15.0  # between comments that keep a silent tail open
    request_rate: int = 200  # requests a second of one client; a tail is one request
    request_burst: int = 1_000  # requests of one client at once
    registration_rate: int = 20  # the same for requests that register queries or previews
    registration_burst: int = 500
    connections: int = 2_000  # at most half of the process's file descriptors
    peer_connections: int = 200  # from one address of another machine
    request_seconds: int = 30  # in which a request must arrive
