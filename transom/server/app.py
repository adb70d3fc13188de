"""The FastAPI app of a service: routes, errors, metrics and access control."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from transom.server import alert_routes, engine_routes, query_routes
from transom.server.access import Guard
from transom.server.api_reference import api_reference
from transom.server.error_responses import RESPONSES, add_error_handlers
from transom.server.event_stream import ChangeSignal, SharedReader, ThreadPools
from transom.server.metrics import RequestCounter, RequestCounts, metrics_registry
from transom.server.rate_limits import RateLimiter
from transom.server.route_helpers import ReadContext, RouteContext
from transom.server.service import Service
from transom.server.settings import ServerSettings
from transom.version import __version__

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
API_DESCRIPTION = (
    "Standing window-aggregate SQL queries over streams: register them, follow their results, ask for early "
    'results. Rows are JSON, CSV or Arrow; errors are {"error": {"kind", "message"}}.'
)


def make_app(service: Service, settings: ServerSettings) -> FastAPI:
    """The app of a service; the caller starts and stops the service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        signal, threads = ChangeSignal(service), ThreadPools()
        reader = SharedReader(service, signal, threads)
        registrations = RateLimiter(settings.limits.registration_rate, settings.limits.registration_burst)
        app.state.context = RouteContext(service, settings, threads, signal, reader, registrations)
        try:
            yield
        finally:
            signal.close()

    app = FastAPI(
        title="Transom",
        description=API_DESCRIPTION,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's documentation pages load scripts from other sites
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.include_router(engine_routes.health_router)
    app.include_router(engine_routes.engine_router)
    app.include_router(query_routes.query_router)
    app.include_router(alert_routes.alert_router)
    requests: RequestCounts = Counter()
    _add_metrics(app, service, settings, requests)
    _add_reference(app)
    _add_unknown_paths(app)
    add_error_handlers(app)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(RequestCounter, counts=requests)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _add_metrics(app: FastAPI, service: Service, settings: ServerSettings, requests: RequestCounts) -> None:
    registry = metrics_registry(service, requests, settings.metrics_queries)

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics"}

    @app.get("/metrics", tags=["health"], responses={**RESPONSES, 200: text})
    async def metrics(context: ReadContext) -> Response:
        """Metrics in Prometheus's text format."""
        body = await context.threads.quick(lambda: generate_latest(registry))
        return Response(body, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _add_unknown_paths(app: FastAPI) -> None:
    """Answer unknown paths of the API with JSON; otherwise the dashboard would answer with HTML."""

    @app.api_route("/api/{path:path}", methods=list(METHODS), include_in_schema=False)
    async def unknown_path(request: Request) -> Response:
        path, described = request.scope["path"], app.openapi()["paths"]
        if path == "/api/":
            return RedirectResponse("/api")
        methods = {
            method.upper()
            for template in described
            if compile_path(template)[0].match(path)
            for method in described[template]
        }
        if methods:
            allowed = ", ".join(sorted(methods))
            raise HTTPException(405, f"{path} accepts only {allowed}", {"Allow": allowed})
        raise HTTPException(404, f"there is nothing at {path}")


def _add_reference(app: FastAPI) -> None:
    cached: list[str] = []

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        if not cached:
            cached.append(api_reference(app.openapi()))
        return HTMLResponse(cached[0])
