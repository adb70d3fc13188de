"""An engine behind HTTP: its API and, unless the settings say no, its dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from transom.runtime.engine import Engine
from transom.server.app import make_app
from transom.server.lifecycle import HttpServer
from transom.server.service import Service
from transom.server.settings import ServerSettings


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    service: Service
    stop: Callable[[], None]


def serve_engine(http: HttpServer, engine: Engine, settings: ServerSettings, start: bool = True) -> Service:
    """Serve an engine; start it, unless the caller steps it."""
    service = Service(engine, settings.limits)
    app = make_app(service, settings)
    if settings.dashboard:
        from transom.dashboard import mount  # NiceGUI is slow to import, and the dashboard is optional

        mount(app, service)
    if start:
        service.start()
    http.attach(app)
    return service


@contextmanager
def serving(
    engine: Engine, settings: ServerSettings | None = None, *, start: bool = True, **options: Any
) -> Iterator[Served]:
    """Serve an engine from this process while the block runs, on a free port unless the settings name one.

    Settings may also be given by name (`port=8710`). The engine is started, unless `start` is false, and
    stopped at the end.
    """
    settings = replace(settings or ServerSettings(port=0), **options)
    http = HttpServer(settings)
    try:
        service = serve_engine(http, engine, settings, start)
        try:
            yield Served(http.url, service, http.stop)
        finally:
            http.stop()
            service.stop()
    finally:
        http.stop()
