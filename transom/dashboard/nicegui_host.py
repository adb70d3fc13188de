"""Several pages in one process: NiceGUI has one application and one loop for all, so they are shared."""

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
from transom.server.service import Service

KEY = "transom.page"


@dataclass(frozen=True, eq=False)
class Given:
    """NiceGUI's application for one service: a request tells whose page is asked for."""

    service: Service
    title: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = self
        await core.app(scope, receive, send)


def given(request: Request) -> Given:
    """Whose page a request asks for."""
    found: Given = request.scope[KEY]
    return found


class RunningLoop:
    """The loop of whoever asks, for each server has its own; NiceGUI knows the newest one alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)


_LIVE: set[Given] = set()
_LOCK = Lock()


def run_with(app: FastAPI, page: Given) -> None:
    """Mount the page into an application, and let it live as long as that."""
    before = app.router.lifespan_context
    core.app.user_middleware.clear()  # of an earlier mount
    core.app.middleware_stack = None
    ui.run_with(
        app,
        title=page.title,
        favicon=FAVICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )
    app.router.routes[-1] = Mount("/", page)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[Any]:
        with _LOCK:
            is_first = not _LIVE
            _LIVE.add(page)
        try:
            if is_first:
                await _startup()
                core.loop = RunningLoop()  # type: ignore[assignment]
            async with before(app) as state:
                yield state
        finally:
            with _LOCK:
                _LIVE.discard(page)
                is_last = not _LIVE
            await _end_tasks()
            if is_last:
                await _shutdown()

    app.router.lifespan_context = living


async def _end_tasks() -> None:
    """End what goes on in this loop, and leave what goes on in others."""
    loop = asyncio.get_running_loop()
    tasks = [task for task in list(background_tasks.running_tasks) if task.get_loop() is loop]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
