"""Routes of the service as a whole: its state, its streams, its summaries, and what is of all queries."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from transom.api.records import (
    CheckedQuery,
    CreatedName,
    Health,
    ProdResults,
    QueryList,
    ServiceStatus,
    StreamList,
    StreamStatus,
    SummaryList,
    SummaryStatus,
)
from transom.api.requests import LookupText, NewQueries, ProdMany, SQLText, SummaryText
from transom.cli.result_text import PlanFormat
from transom.server.error_responses import RESPONSES
from transom.server.formats import RowsFormat, answer
from transom.server.route_helpers import Form, Kept, Kit, QueryName, StreamName, SummaryName, rows_answers
from transom.sql.clauses.summary import parse_summary

health = APIRouter(tags=["health"])
router = APIRouter(prefix="/api", responses=RESPONSES)

PLAN: dict[int | str, dict[str, Any]] = {
    **RESPONSES,
    200: {
        "description": "The plan",
        "content": {"text/plain": {"schema": {"type": "string"}}, "application/json": {"schema": {}}},
    },
}
UNWELL: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "It is not"}}
Limit = Annotated[int, Query(ge=1, le=1_000_000, description="at most so many rows")]


@health.get("/healthz", responses=UNWELL)
async def healthz(kit: Kept) -> JSONResponse:
    """Whether the process and its engine are alive; 503 with the reason after the engine failed."""
    return _health(kit, ("starting", "running", "stopped"))


@health.get("/readyz", responses=UNWELL)
async def readyz(kit: Kept) -> JSONResponse:
    """Whether the engine runs."""
    return _health(kit, ("running",))


def _health(kit: Kit, well: tuple[str, ...]) -> JSONResponse:
    state = kit.service.state
    return JSONResponse({"state": state, "failure": kit.service.failure}, 200 if state in well else 503)


@router.get("/status", tags=["service"])
async def status(kit: Kept) -> ServiceStatus:
    """The service as a whole: its dashboard, its state, its rows."""
    return await kit.threads.quick(kit.service.status)


# --- streams ---------------------------------------------------------------------------------


@router.get("/streams", tags=["streams"])
async def streams(kit: Kept) -> StreamList:
    """All streams."""
    return StreamList(tuple(await kit.threads.quick(kit.service.streams)))


@router.get("/streams/{stream}", tags=["streams"])
async def stream(kit: Kept, stream: StreamName) -> StreamStatus:
    """One stream."""
    return await kit.threads.quick(lambda: kit.service.stream(stream))


@router.get("/streams/{stream}/late", tags=["streams"], responses=rows_answers("Late rows"))
async def late(kit: Kept, stream: StreamName, form: Form, limit: Limit = 1_000) -> Response:
    """The newest rows that came too late, each with the reason and the batch; the newest last."""
    most = min(limit, kit.settings.limits.rows)
    return await kit.rows(await kit.threads.slow(lambda: kit.service.late(stream, most)), form)


@router.get("/streams/{stream}/rejected", tags=["streams"], responses=rows_answers("Rejected rows"))
async def rejected(kit: Kept, stream: StreamName, form: Form, limit: Limit = 1_000) -> Response:
    """The newest rows without a usable time, likewise."""
    most = min(limit, kit.settings.limits.rows)
    return await kit.rows(await kit.threads.slow(lambda: kit.service.rejected(stream, most)), form)


# --- all queries -----------------------------------------------------------------------------


@router.get("/explain", tags=["service"], responses=PLAN)
async def explain_all(kit: Kept, format: PlanFormat = PlanFormat.TEXT, verbose: bool = False) -> Response:
    """How all queries are computed together, and who shares what."""
    return await plan(kit, None, format, verbose)


async def plan(kit: Kit, name: str | None, form: PlanFormat, verbose: bool) -> Response:
    """The plan of one query or of all, as it was asked for."""
    text = await kit.threads.slow(lambda: kit.service.explain(name, form.value, verbose))
    media = "application/json" if form is PlanFormat.JSON else "text/plain"
    return Response(text, media_type=media)


@router.post("/register", tags=["queries"], status_code=201)
async def register_all(kit: Kept, asked: NewQueries) -> QueryList:
    """Register many queries at once, all or none; they join with the next batch."""
    made = await kit.threads.slow(lambda: kit.service.register_all(asked.queries, asked.partial))
    return QueryList(tuple(made), len(made))


@router.post("/check", tags=["queries"])
async def check(kit: Kept, asked: SQLText) -> CheckedQuery:
    """What a query would be, without registering it; an error points at the place in the text."""
    return await kit.threads.slow(lambda: kit.service.check(asked.sql))


@router.post("/prod", tags=["queries"], responses={**RESPONSES, 200: {"model": ProdResults}})
async def prod_all(kit: Kept, asked: ProdMany) -> Response:
    """What is known now of open windows, of several queries or all: early results by name."""

    def prods() -> bytes:
        told = kit.service.prod_all(asked.queries, asked.stream, asked.until, asked.at, asked.where)
        kit.check_rows(sum(table.num_rows for table in told.values()))
        parts = (
            f"{json.dumps(name)}: {answer(table, kit.service.query(name).columns, RowsFormat.JSON).decode()}"
            for name, table in told.items()
        )
        return f'{{"results": {{{", ".join(parts)}}}}}'.encode()

    return Response(await kit.threads.slow(prods), media_type="application/json")


@router.post("/lookup", tags=["queries"], responses=rows_answers("The answer"))
async def lookup_text(kit: Kept, asked: LookupText, form: Form) -> Response:
    """The answer now of a query without SLIDE that need not be registered, from what others keep."""
    found = await kit.threads.slow(lambda: kit.service.lookup_text(asked.sql, asked.at, asked.where))
    return await kit.rows(found, form)


# --- previews --------------------------------------------------------------------------------


@router.post("/previews", tags=["previews"], status_code=201)
async def preview(kit: Kept, asked: SQLText) -> CreatedName:
    """Run a query for a look only. It leaves by itself when nobody has asked for two minutes."""
    return CreatedName(await kit.threads.slow(lambda: kit.service.preview(asked.sql)))


@router.delete("/previews/{name}", tags=["previews"], status_code=204)
async def end_preview(kit: Kept, name: QueryName) -> None:
    """End a preview."""
    await kit.threads.slow(lambda: kit.service.end_preview(name))


# --- summaries -------------------------------------------------------------------------------


@router.get("/summaries", tags=["summaries"])
async def summaries(kit: Kept) -> SummaryList:
    """All summaries, and how they fare."""
    found = await kit.threads.slow(kit.service.summaries)
    return SummaryList(tuple(SummaryStatus(**vars(each)) for each in found.values()))


@router.post("/summaries", tags=["summaries"], status_code=201)
async def summarize(kit: Kept, asked: SummaryText) -> CreatedName:
    """Run CREATE SUMMARY; it takes effect with the next batch."""

    def created() -> str:
        kit.service.summarize(asked.sql)
        return parse_summary(asked.sql).name

    return CreatedName(await kit.threads.slow(created))


@router.delete("/summaries/{name}", tags=["summaries"], status_code=204)
async def forget(kit: Kept, name: SummaryName) -> None:
    """Drop a summary that no query reads."""
    await kit.threads.slow(lambda: kit.service.forget(name))
