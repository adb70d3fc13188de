"""The FastAPI app around a service: routes, errors, metrics and the guard."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

import transom
from transom.server import engine_routes as api
from transom.server import query_routes as queries
from transom.server.access import Guard
from transom.server.api_reference import api_reference
from transom.server.error_responses import RESPONSES, add_errors
from transom.server.event_stream import Broadcast, Reader, Threads
from transom.server.metrics import Requests, registry
from transom.server.route_helpers import Kept, Kit
from transom.server.service import Service
from transom.server.settings import ServerSettings

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ABOUT = (
    "Standing window-aggregate SQL queries over streams: register them, follow their results, ask for early "
    'ones. Rows are JSON, CSV or Arrow; errors are {"error": {"kind", "message"}}.'
)


def make_app(service: Service, settings: ServerSettings) -> FastAPI:
    """An app that serves a service, which is started and stopped by whoever made it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        broadcast, threads = Broadcast(service), Threads()
        app.state.kit = Kit(service, settings, threads, broadcast, Reader(service, broadcast, threads))
        try:
            yield
        finally:
            broadcast.close()

    app = FastAPI(
        title="Transom",
        description=ABOUT,
        version=transom.__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own loads scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=_operation,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.include_router(api.health)
    app.include_router(api.router)
    app.include_router(queries.router)
    requests: Counter[tuple[str, str, str]] = Counter()
    _add_metrics(app, service, settings, requests)
    _add_reference(app)
    _add_rest(app)
    add_errors(app)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Requests, counts=requests)
    return app


def _operation(route: APIRoute) -> str:
    return route.name


def _add_metrics(
    app: FastAPI, service: Service, settings: ServerSettings, requests: Counter[tuple[str, str, str]]
) -> None:
    known = registry(service, requests, settings.metrics_queries)

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics"}

    @app.get("/metrics", tags=["health"], responses={**RESPONSES, 200: text})
    async def metrics(kit: Kept) -> Response:
        """Metrics in Prometheus's text format."""
        found = await kit.threads.quick(lambda: generate_latest(known))
        return Response(found, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _add_rest(app: FastAPI) -> None:
    """What is asked of the API and is not there; the dashboard would answer otherwise, in words of its own."""

    @app.api_route("/api/{path:path}", methods=list(METHODS), include_in_schema=False)
    async def rest(request: Request) -> None:
        asked, described = request.scope["path"], app.openapi()["paths"]
        taken = {
            method.upper() for at in described if compile_path(at)[0].match(asked) for method in described[at]
        }
        if taken:
            allowed = ", ".join(sorted(taken))
            raise HTTPException(405, f"{asked} takes {allowed}", {"Allow": allowed})
        raise HTTPException(404, f"there is nothing at {asked}")


def _add_reference(app: FastAPI) -> None:
    made: list[str] = []

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        if not made:
            made.append(api_reference(app.openapi()))
        return HTMLResponse(made[0])
