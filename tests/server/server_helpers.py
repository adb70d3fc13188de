"""A server over a small engine, in this process, and what comes out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids, bids_engine
from transom.server.limits import ServiceLimits
from transom.server.roles import AccessToken
from transom.server.settings import ServerSettings
from transom.web_service import Served, serving

EARLY = (
    "SELECT site, sum(price) AS total FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site "
    "EMIT EARLY AT 50% OF SLIDE"
)
ON_DEMAND = "SELECT site, max(price) AS top FROM bids [RANGE 10 minutes] GROUP BY site"
SUMMARY = "CREATE SUMMARY bids_sites ON bids(site) WITH GRANULARITY '1 minute'"
WITH_PREFERENCE = (
    "SELECT site, price, ts FROM bids WITH PREFERENCE asc SUMMARY.Estimate.Count(site) BUDGET 10 PROBES"
)

ROWS = bids(
    (1, 10.0, "12:00:05"),
    (2, 24.5, "12:00:20"),
    (1, 12.0, "12:01:10"),
    (2, None, "12:01:40"),
    (1, float("nan"), "12:02:30"),
    (3, 5.0, "12:03:10"),
)
LATER = bids((1, 1.0, "12:05:00"), (2, 2.0, "12:06:30"))
FAST_CLIENTS = ServiceLimits(request_rate=10**6, request_burst=10**6, registration_rate=10**6)


class Backend:
    """An engine that a test steps, its feed, its server and a client."""

    def __init__(self, engine: transom.Engine, feed: Any, served: Served, client: httpx.Client):
        self.engine, self.feed, self.served, self.client = engine, feed, served, client

    def push(self, rows: list[tuple[Any, ...]]) -> None:
        self.feed.push(rows)
        self.engine.step()


@contextmanager
def backend(
    make_engine: EngineFactory,
    tmp_path: Path,
    settings: ServerSettings | None = None,
    start: bool = False,
    **options: Any,
) -> Iterator[Backend]:
    """An engine with a feed of bids behind a server without a dashboard."""
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    settings = settings or served_with()
    headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}
    with (
        serving(engine, settings, start=start) as served,
        httpx.Client(base_url=served.url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield Backend(engine, feed, served, client)


def served_with(
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    tokens: tuple[AccessToken, ...] = (),
    **limits: Any,
) -> ServerSettings:
    """Settings for a test: any free port, no dashboard, and some limits; tests send requests at any rate."""
    return ServerSettings(
        port=0,
        dashboard=False,
        token=token,
        tokens=tokens,
        hosts=hosts,
        limits=replace(FAST_CLIENTS, **limits),
    )


def fill(back: Backend) -> None:
    """Queries of every kind, and rows that closed some windows."""
    back.engine.execute(SUMMARY)
    for name, sql in (
        ("per_site", PER_SITE),
        ("early", EARLY),
        ("on_demand", ON_DEMAND),
        ("preferred", WITH_PREFERENCE),
        ("with space/slash", PER_SITE),
    ):
        back.engine.register(sql, name)
    for row in ROWS:
        back.push([row])
    back.push(bids((1, 9.0, "11:30:00"), (9, 9.0, None)))  # one is late, one has no time


def arrow(response: httpx.Response) -> pa.Table:
    return pa.ipc.open_stream(response.content).read_all()


def error(response: httpx.Response) -> tuple[int, str]:
    """The status and the kind of an error."""
    return response.status_code, response.json()["error"]["kind"]


class Events:
    """A tail's events, one after the other."""

    def __init__(self, response: httpx.Response):
        self._lines = response.iter_lines()

    def next(self) -> dict[str, Any]:
        """The next event, with its data decoded; comments are passed over."""
        found: dict[str, Any] = {}
        for line in self._lines:
            if not line and found:
                return found
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                found[name] = json.loads(value) if name == "data" else value
        raise StopIteration


@contextmanager
def tailing(back: Backend, name: str, **asked: Any) -> Iterator[Events]:
    headers = {"Last-Event-ID": asked.pop("last")} if "last" in asked else {}
    url = f"/api/queries/{name}/tail"
    with back.client.stream("GET", url, params=asked, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield Events(response)
