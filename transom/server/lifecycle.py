"""A server's life: it listens, tells that it is starting, and serves an engine until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import Receive, Scope, Send

from transom.errors import SettingError
from transom.server.app import make_app
from transom.server.error_responses import failure
from transom.server.service import Service
from transom.server.settings import ServerSettings

if TYPE_CHECKING:
    from transom.runtime.engine import Engine

PATIENCE = 3  # seconds for answers that are under way when the server stops
STARTING = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
    "<title>Transom is starting</title><style>:root{color-scheme:light dark}body{font:16px system-ui;"
    'display:grid;place-items:center;min-height:90vh}</style></head><body><main role="status">Transom is '
    "starting ...</main></body></html>"
)


class Front:
    """Answers while there is no app yet, and passes requests on as soon as there is one."""

    def __init__(self) -> None:
        self.app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close", "code": 1013})
        wanted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        again = {"Retry-After": "2"}
        if scope["path"] in ("/healthz", "/readyz"):
            body = {"state": "starting", "failure": None}
            await JSONResponse(body, 200 if scope["path"] == "/healthz" else 503)(scope, receive, send)
        elif b"text/html" in wanted:
            await HTMLResponse(STARTING, 503, again)(scope, receive, send)
        else:
            await failure(503, "state", "the engine is starting", again)(scope, receive, send)


class HttpServer:
    """A server in a thread of its own: it listens as soon as it is made, and is given an app later."""

    def __init__(self, settings: ServerSettings):
        self._socket = _listen(settings.checked())
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"
        self._front = Front()
        config = uvicorn.Config(
            self._front,
            lifespan="off",  # an app's own is run when it is given
            http="httptools",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        self._server = uvicorn.Server(config)
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ending: asyncio.Event | None = None
        self._life: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="transom http", daemon=True)
        self._thread.start()
        self._loop.result()

    def _run(self) -> None:
        async def main() -> None:
            self._loop.set_result(asyncio.get_running_loop())
            await self._server.serve(sockets=[self._socket])

        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            runner.run(main())

    def show(self, app: FastAPI) -> None:
        """Serve an app from now on."""
        shown: Future[None] = Future()

        async def live() -> None:
            self._ending = asyncio.Event()
            try:
                async with app.router.lifespan_context(app):
                    self._front.app = app
                    shown.set_result(None)
                    await self._ending.wait()
            except BaseException as error:
                if not shown.done():
                    shown.set_exception(error)
                raise

        self._life = asyncio.run_coroutine_threadsafe(live(), self._loop.result())
        shown.result()

    def stop(self) -> None:
        """Stop accepting, end tails, and let answers that are under way come to their end."""
        if self._life is not None and self._ending is not None:
            self._loop.result().call_soon_threadsafe(self._ending.set)
            self._life.result()
            self._life = None
        self._server.should_exit = True
        self._thread.join()


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        why = os.strerror(error.errno) if error.errno else str(error)
        raise SettingError(f"can't listen on {place}: {why}") from None


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    url: str
    service: Service
    stop: Callable[[], None]


def show(http: HttpServer, engine: Engine, settings: ServerSettings, start: bool = True) -> Service:
    """Serve an engine, which is started unless its program steps it."""
    service = Service(engine, settings.limits)
    app = make_app(service, settings)
    if settings.dashboard:
        from transom.dashboard import mount

        mount(app, service)
    if start:
        service.start()
    http.show(app)
    return service


@contextmanager
def serving(
    engine: Engine, settings: ServerSettings | None = None, *, start: bool = True, **given: Any
) -> Iterator[Served]:
    """Meanwhile an engine is served from this process, on a free port unless the settings name one.

    Settings may also be given by their names (`port=8710`). The engine is started, unless its program steps
    it, and stopped at the end.
    """
    settings = replace(settings or ServerSettings(port=0), **given)
    http = HttpServer(settings)
    try:
        service = show(http, engine, settings, start)
        try:
            yield Served(http.url, service, http.stop)
        finally:
            http.stop()
            service.stop()
    finally:
        http.stop()
