"""The HTTP server: it listens at once, answers that the engine is starting, and serves its app until stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import Future

import uvicorn
from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import Receive, Scope, Send

from transom.errors import SettingError
from transom.server.connection_limits import limited_connections
from transom.server.error_responses import error_response
from transom.server.settings import ServerSettings

KEEP_ALIVE_SECONDS = 5  # that a connection may be idle between two requests
BACKLOG = 128  # connections that wait to be accepted; all of them may be accepted at once
SHUTDOWN_SECONDS = 3  # for answers that are under way when the server stops
STARTING_HTML = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
    "<title>Transom is starting</title><style>:root{color-scheme:light dark}body{font:16px system-ui;"
    'display:grid;place-items:center;min-height:90vh}</style></head><body><main role="status">Transom is '
    "starting ...</main></body></html>"
)


class StartupApp:
    """Answers that the engine is starting until there is an app, then passes requests to the app."""

    def __init__(self) -> None:
        self.app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close", "code": 1013})
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        retry = {"Retry-After": "2"}
        if scope["path"] in ("/healthz", "/readyz"):
            body = {"state": "starting", "failure": None}
            await JSONResponse(body, 200 if scope["path"] == "/healthz" else 503)(scope, receive, send)
        elif b"text/html" in accept:
            await HTMLResponse(STARTING_HTML, 503, retry)(scope, receive, send)
        else:
            await error_response(503, "state", "the engine is starting", retry)(scope, receive, send)


class HttpServer:
    """A server in its own thread; it listens at once and receives its app later."""

    def __init__(self, settings: ServerSettings):
        self._socket = _listen(settings.checked())
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"
        self._front = StartupApp()
        config = uvicorn.Config(
            self._front,
            lifespan="off",  # `attach` runs the app's lifespan
            http=limited_connections(settings.limits),
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._stopping: asyncio.Event | None = None
        self._lifespan: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="transom http", daemon=True)
        self._thread.start()
        self._loop.result()

    def _run(self) -> None:
        async def main() -> None:
            self._loop.set_result(asyncio.get_running_loop())
            await self._server.serve(sockets=[self._socket])

        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            runner.run(main())

    def attach(self, app: FastAPI) -> None:
        """Serve an app from now on."""
        attached: Future[None] = Future()

        async def run_lifespan() -> None:
            self._stopping = asyncio.Event()
            try:
                async with app.router.lifespan_context(app):
                    self._front.app = app
                    attached.set_result(None)
                    await self._stopping.wait()
            except BaseException as error:
                if not attached.done():
                    attached.set_exception(error)
                raise

        self._lifespan = asyncio.run_coroutine_threadsafe(run_lifespan(), self._loop.result())
        attached.result()

    def stop(self) -> None:
        """Stop accepting requests, end tails, and wait for answers that are under way."""
        if self._lifespan is not None and self._stopping is not None:
            self._loop.result().call_soon_threadsafe(self._stopping.set)
            self._lifespan.result()
            self._lifespan = None
        self._server.should_exit = True
        self._thread.join()


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingError(f"can't listen on {address}: {reason}") from None
