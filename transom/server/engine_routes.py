"""Routes of the whole service: its health and status, streams, summaries, views, and operations on many queries."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException

from transom.api.formats import PlanFormat
from transom.api.parameters import with_parameters
from transom.api.records import (
    ApiLinks,
    BatchList,
    CheckedQuery,
    CheckpointInfo,
    CompletionAnswer,
    CreatedName,
    ExampleInfo,
    ExampleList,
    FormattedQuery,
    Health,
    ProdResults,
    PushedRows,
    QueryList,
    ServiceStatus,
    StreamColumns,
    StreamDetail,
    StreamList,
    SummaryList,
    TableList,
    ViewList,
)
from transom.api.requests import (
    DraftText,
    LookupText,
    NewQueries,
    ProdMany,
    SQLText,
    SummaryText,
    UnfinishedText,
    ViewText,
)
from transom.server.error_responses import RESPONSES
from transom.server.formats import RowsEncoding, encode_rows
from transom.server.pushed_rows import PUSH_BODY
from transom.server.roles import ApiClient
from transom.server.route_helpers import (
    AdminContext,
    ChangeContext,
    OpenContext,
    QueryName,
    ReadContext,
    RegistrationContext,
    RequestClient,
    RouteContext,
    StreamName,
    SummaryName,
    ViewName,
    WantedRows,
    rows_responses,
)
from transom.sql.clauses.summary import parse_summary
from transom.version import __version__

health_router = APIRouter(tags=["health"])
engine_router = APIRouter(prefix="/api", responses=RESPONSES)

PLAN_RESPONSES: dict[int | str, dict[str, Any]] = {
    **RESPONSES,
    200: {
        "description": "The plan",
        "content": {"text/plain": {"schema": {"type": "string"}}, "application/json": {"schema": {}}},
    },
}
LONGEST_COMMIT = 30.0  # seconds
ENDED = ("failed", "stopped")  # states of an engine that takes no rows
COMMIT_POLL = 1.0  # seconds between looks at the state of the engine
UNHEALTHY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "It is not"}}
RowLimit = Annotated[int, Query(ge=1, le=1_000_000, description="the largest number of rows")]


@health_router.get("/healthz", responses=UNHEALTHY)
async def healthz(context: OpenContext, client: RequestClient) -> JSONResponse:
    """Whether the process and its engine are alive; 503 after the engine has failed.

    The reason is in the answer; without a token, only its kind is.
    """
    return _health(context, client, ("starting", "running", "stopped"))


@health_router.get("/readyz", responses=UNHEALTHY)
async def readyz(context: OpenContext, client: RequestClient) -> JSONResponse:
    """Whether the engine is running."""
    return _health(context, client, ("running",))


def _health(context: RouteContext, client: ApiClient | None, healthy: tuple[str, ...]) -> JSONResponse:
    monitor = context.service.monitor
    is_healthy = monitor.state in healthy and monitor.overdue is None
    # The text of an error may contain values of rows.
    failure = (monitor.failure or monitor.overdue) if client is not None else monitor.failure_kind
    return JSONResponse({"state": monitor.state, "failure": failure}, 200 if is_healthy else 503)


TO_REFERENCE: dict[int | str, dict[str, Any]] = {
    **RESPONSES,
    307: {"description": "A browser is sent to the description for people"},
}


@engine_router.get("", tags=["service"], response_model=ApiLinks, responses=TO_REFERENCE)
async def api_links(
    context: ReadContext, accept: Annotated[str, Header(include_in_schema=False)] = ""
) -> ApiLinks | RedirectResponse:
    """Where the API is described; a browser is sent there."""
    if "text/html" in accept:
        return RedirectResponse("/docs")
    return ApiLinks("Transom", __version__, "/docs", "/openapi.json", "/api/status")


@engine_router.get("/status", tags=["service"])
async def status(context: ReadContext) -> ServiceStatus:
    """The state of the whole service: the engine, the last batch, memory, rows."""
    return await context.threads.quick(context.service.status)


# --- streams ---------------------------------------------------------------------------------


@engine_router.get("/streams", tags=["streams"])
async def streams(context: ReadContext) -> StreamList:
    """The status of every stream."""
    return StreamList(tuple(await context.threads.quick(context.service.streams)))


@engine_router.get("/streams/{stream}", tags=["streams"])
async def stream(context: ReadContext, stream: StreamName) -> StreamDetail:
    """The status of a stream, how far its source was read, and the queries that missed rows."""
    return await context.threads.quick(lambda: context.service.stream(stream))


@engine_router.get("/streams/{stream}/columns", tags=["streams"])
async def stream_columns(context: ReadContext, stream: StreamName) -> StreamColumns:
    """The columns of a stream, and what their values in a sample of its rows are like."""
    return await context.threads.slow(lambda: context.service.stream_columns(stream))


@engine_router.get("/streams/{stream}/sample", tags=["streams"], responses=rows_responses("Some rows"))
async def sample(
    context: ReadContext, stream: StreamName, encoding: WantedRows, limit: RowLimit = 100
) -> Response:
    """Some of the newest rows of a stream; none if none are at hand, as of a stream of Spark's."""
    rows = min(limit, context.settings.limits.rows)
    return await context.rows(
        await context.threads.slow(lambda: context.service.sample(stream, rows)), encoding
    )


@engine_router.get("/streams/{stream}/late", tags=["streams"], responses=rows_responses("Late rows"))
async def late(
    context: ReadContext, stream: StreamName, encoding: WantedRows, limit: RowLimit = 1_000
) -> Response:
    """The newest late rows, each with the reason, the queries that missed it and the batch; the newest last."""
    rows = min(limit, context.settings.limits.rows)
    return await context.rows(
        await context.threads.slow(lambda: context.service.late(stream, rows)), encoding
    )


@engine_router.get("/streams/{stream}/rejected", tags=["streams"], responses=rows_responses("Rejected rows"))
async def rejected(
    context: ReadContext, stream: StreamName, encoding: WantedRows, limit: RowLimit = 1_000
) -> Response:
    """The newest rows without a usable time, each with the reason and the batch; the newest last."""
    rows = min(limit, context.settings.limits.rows)
    return await context.rows(
        await context.threads.slow(lambda: context.service.rejected(stream, rows)), encoding
    )


@engine_router.get("/streams/{stream}/files", tags=["streams"], responses=rows_responses("Problems of files"))
async def file_problems(
    context: ReadContext, stream: StreamName, encoding: WantedRows, limit: RowLimit = 1_000
) -> Response:
    """The newest problems of a stream's files: unreadable and rewritten files, missing and new columns."""
    rows = min(limit, context.settings.limits.rows)
    return await context.rows(
        await context.threads.quick(lambda: context.service.file_problems(stream, rows)), encoding
    )


@engine_router.post(
    "/streams/{stream}/rows",
    name="push",
    tags=["streams"],
    openapi_extra=PUSH_BODY,
    responses={202: {"model": PushedRows, "description": "The rows wait; their batch is not committed yet"}},
)
async def push_rows(
    context: ChangeContext,
    request: Request,
    stream: StreamName,
    wait: Annotated[
        float,
        Query(ge=0, le=LONGEST_COMMIT, allow_inf_nan=False, description="seconds to wait for the commit"),
    ] = LONGEST_COMMIT,
) -> JSONResponse:
    """Push rows into a stream that is declared with `push`: JSON lines, a JSON list, or a stream of Arrow.

    The answer comes when the batch with the rows is committed: their results then survive a crash. After `wait` seconds
    without the commit it is 202. If too many rows wait, it is 429 with Retry-After, and no row was taken.
    """
    service = context.service
    if service.state in ENDED:
        raise HTTPException(503, f"the engine is {service.state}: no row was taken", {"Retry-After": "1"})
    body, content_type = await request.body(), request.headers.get("content-type", "")
    feed, rows, ticket = await context.threads.quick(lambda: service.push(stream, body, content_type))
    deadline = monotonic() + wait
    while (batch := feed.committed(ticket)) is None and not context.signal.closed:
        changed = context.signal.next()
        left = deadline - monotonic()
        if feed.committed(ticket) is None:
            if left <= 0:
                break
            if service.state in ENDED:
                message = f"the engine is {service.state}: the rows are not committed, and may be lost"
                raise HTTPException(503, message)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, COMMIT_POLL))
    answer = PushedRows(stream, rows, batch is not None, batch, feed.waiting)
    return JSONResponse(asdict(answer), 200 if batch is not None else 202)


# --- static tables ---------------------------------------------------------------------------


@engine_router.get("/tables", tags=["streams"])
async def tables(context: ReadContext) -> TableList:
    """The static tables that queries can join, with their columns."""
    return TableList(tuple(await context.threads.quick(context.service.tables)))


# --- batches ---------------------------------------------------------------------------------


@engine_router.get("/batches", tags=["service"])
async def recent_batches(
    context: ReadContext, limit: Annotated[int, Query(ge=1, le=500, description="the largest number")] = 60
) -> BatchList:
    """The newest batches since the service started, the newest last: what they read, and what took the time."""
    return BatchList(tuple(await context.threads.quick(lambda: context.service.batches(limit))))


@engine_router.get("/checkpoint", tags=["service"])
async def checkpoint(context: ReadContext) -> CheckpointInfo:
    """Where the checkpoint is, the last batch in it, and how large its parts are."""
    return await context.threads.slow(context.service.checkpoint)


# --- many queries ----------------------------------------------------------------------------


@engine_router.get("/explain", tags=["service"], responses=PLAN_RESPONSES)
async def explain_all(
    context: ReadContext, format: PlanFormat = PlanFormat.TEXT, verbose: bool = False
) -> Response:
    """The shared plan of all queries."""
    return await plan_response(context, None, format, verbose)


async def plan_response(context: RouteContext, name: str | None, form: PlanFormat, verbose: bool) -> Response:
    """The plan of one query or of all."""
    text = await context.threads.slow(lambda: context.service.explain(name, form.value, verbose))
    media_type = "application/json" if form is PlanFormat.JSON else "text/plain"
    return Response(text, media_type=media_type)


@engine_router.post("/register", tags=["queries"], status_code=201)
async def register_all(context: RegistrationContext, body: NewQueries) -> QueryList:
    """Register many queries at once, all or none; they join with the next batch."""
    registered = await context.threads.slow(
        lambda: context.service.register_all(body.queries, body.partial, body.since)
    )
    return QueryList(tuple(registered), len(registered))


@engine_router.post("/check", tags=["queries"])
async def check(context: ChangeContext, body: SQLText) -> CheckedQuery:
    """Describe a query without registering it; an error names the place in the text."""
    return await context.threads.slow(
        lambda: context.service.check(with_parameters(body.sql, body.parameters))
    )


@engine_router.post("/complete", tags=["queries"])
async def complete_text(context: ReadContext, body: UnfinishedText) -> CompletionAnswer:
    """What can be written at a place of a query's text, the best first; the text may be unfinished."""
    cursor = len(body.sql) if body.cursor is None else body.cursor
    return await context.threads.quick(lambda: context.service.complete(body.sql, cursor))


@engine_router.post("/format", tags=["queries"])
async def format_text(context: ReadContext, body: DraftText) -> FormattedQuery:
    """A query's text in the usual form: only white space and the case of keywords change."""
    return FormattedQuery(await context.threads.quick(lambda: context.service.format(body.sql)))


@engine_router.get("/examples", tags=["queries"])
async def list_examples(context: ReadContext) -> ExampleList:
    """Queries over all streams that make sense for their rows, to begin with."""
    examples = await context.threads.slow(context.service.examples)
    return ExampleList(tuple(ExampleInfo(each.title, each.sql) for each in examples))


@engine_router.post("/prod", tags=["queries"], responses={**RESPONSES, 200: {"model": ProdResults}})
async def prod_all(context: ChangeContext, body: ProdMany) -> Response:
    """Early results of open windows of several queries or all, by name."""

    def prods() -> bytes:
        service = context.service
        tables = service.prod_all(body.queries, body.stream, body.until, body.at, body.where)
        context.check_rows(sum(table.num_rows for table in tables.values()))
        parts = (
            f"{json.dumps(name)}: {encode_rows(table, service.query(name).columns, RowsEncoding()).decode()}"
            for name, table in tables.items()
        )
        return f'{{"results": {{{", ".join(parts)}}}}}'.encode()

    return Response(await context.threads.slow(prods), media_type="application/json")


@engine_router.post("/lookup", tags=["queries"], responses=rows_responses("The answer"))
async def lookup_text(context: ReadContext, body: LookupText, encoding: WantedRows) -> Response:
    """The current answer of an on-demand query that need not be registered, from the stores of others."""
    table = await context.threads.slow(
        lambda: context.service.lookup_text(with_parameters(body.sql, body.parameters), body.at, body.where)
    )
    return await context.rows(table, encoding)


# --- previews --------------------------------------------------------------------------------


@engine_router.post("/previews", tags=["previews"], status_code=201)
async def preview(context: RegistrationContext, body: SQLText) -> CreatedName:
    """Run a query as a preview. It is dropped when no client has used it for two minutes."""
    text = with_parameters(body.sql, body.parameters)
    return CreatedName(await context.threads.slow(lambda: context.service.preview(text)))


@engine_router.delete("/previews/{name}", tags=["previews"], status_code=204)
async def end_preview(context: ChangeContext, name: QueryName) -> None:
    """Drop a preview."""
    await context.threads.slow(lambda: context.service.end_preview(name))


# --- summaries -------------------------------------------------------------------------------


@engine_router.get("/summaries", tags=["summaries"])
async def summaries(context: ReadContext) -> SummaryList:
    """The status of every summary."""
    summaries_by_name = await context.threads.slow(context.service.summaries)
    return SummaryList(tuple(summaries_by_name.values()))


@engine_router.post("/summaries", tags=["summaries"], status_code=201)
async def create_summary(context: AdminContext, body: SummaryText) -> CreatedName:
    """Run CREATE SUMMARY; it takes effect with the next batch."""

    def create() -> str:
        context.service.create_summary(body.sql)
        return parse_summary(body.sql).name

    return CreatedName(await context.threads.slow(create))


@engine_router.delete("/summaries/{name}", tags=["summaries"], status_code=204)
async def drop_summary(context: AdminContext, name: SummaryName) -> None:
    """Drop a summary that no query reads."""
    await context.threads.slow(lambda: context.service.drop_summary(name))


# --- views -----------------------------------------------------------------------------------


@engine_router.get("/views", tags=["views"])
async def views(context: ReadContext) -> ViewList:
    """Every view: its text, its columns, and what reads it."""
    return ViewList(tuple(await context.threads.slow(context.service.views)))


@engine_router.post("/views", tags=["views"], status_code=201)
async def create_view(context: AdminContext, body: ViewText) -> CreatedName:
    """Run CREATE VIEW; it takes effect with the next batch."""
    return CreatedName(await context.threads.slow(lambda: context.service.create_view(body.sql)))


@engine_router.delete("/views/{name}", tags=["views"], status_code=204)
async def drop_view(context: AdminContext, name: ViewName) -> None:
    """Drop a view that no query and no other view reads."""
    await context.threads.slow(lambda: context.service.drop_view(name))
