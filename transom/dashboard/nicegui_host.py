"""Several dashboards in one process, although NiceGUI has one application and one event loop per process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from nicegui import background_tasks, core, ui
from nicegui.nicegui import _shutdown, _startup
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from transom.dashboard.icons import FAVICON
from transom.server.roles import CLIENT_KEY, LOCAL_CLIENT, ApiClient
from transom.server.service import Service

SCOPE_KEY = "transom.dashboard"


@dataclass(frozen=True, eq=False)
class MountedDashboard:
    """NiceGUI's application as mounted for one service; it adds itself to the scope of each request."""

    service: Service
    title: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SCOPE_KEY] = self
        await core.app(scope, receive, send)


def dashboard_of(request: Request) -> MountedDashboard:
    """The dashboard that a request belongs to."""
    dashboard: MountedDashboard = request.scope[SCOPE_KEY]
    return dashboard


def client_of_request(request: Request) -> ApiClient:
    """The client whose token a request has; an application without access control has only local clients."""
    client: ApiClient = request.scope.get(CLIENT_KEY, LOCAL_CLIENT)
    return client


class RunningLoop:
    """A stand-in for NiceGUI's event loop that resolves to the caller's loop.

    Each server has its own loop, but NiceGUI remembers only the newest one.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)


_LIVE: set[MountedDashboard] = set()
_LOCK = Lock()


def serve_with(app: FastAPI, dashboard: MountedDashboard) -> None:
    """Mount a dashboard at the root of an application and tie it to the application's lifespan."""
    app_lifespan = app.router.lifespan_context
    core.app.user_middleware.clear()  # left behind by an earlier mount
    core.app.middleware_stack = None
    ui.run_with(
        app,
        title=dashboard.title,
        favicon=FAVICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )
    app.router.routes[-1] = Mount("/", dashboard)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        with _LOCK:
            is_first = not _LIVE
            _LIVE.add(dashboard)
        try:
            if is_first:
                await _startup()
                core.loop = RunningLoop()  # type: ignore[assignment]
            async with app_lifespan(app) as state:
                yield state
        finally:
            with _LOCK:
                _LIVE.discard(dashboard)
                is_last = not _LIVE
            await _cancel_tasks()
            if is_last:
                await _shutdown()

    app.router.lifespan_context = lifespan


async def _cancel_tasks() -> None:
    """Cancel NiceGUI's background tasks of this event loop, and no tasks of other loops."""
    loop = asyncio.get_running_loop()
    tasks = [task for task in list(background_tasks.running_tasks) if task.get_loop() is loop]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
