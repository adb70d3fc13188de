"""Routes of queries: register and drop, results and their tail, prods and lookups."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from transom.api.records import AccuracyInfo, CoverageInfo, QueryList, QueryStatus, ResultList, parse_record
from transom.api.requests import LookupQuery, NewQuery, ProdQuery, Tuning
from transom.cli.result_text import PlanFormat
from transom.server.engine_routes import PLAN, plan
from transom.server.error_responses import RESPONSES
from transom.server.event_stream import CHUNK, EVENT, EventStream
from transom.server.formats import MEDIA, RowsFormat
from transom.server.route_helpers import Form, Kept, QueryName, rows_answers

router = APIRouter(prefix="/api/queries", tags=["queries"], responses=RESPONSES)

LONGEST = 30.0  # seconds to wait for something new
END = "end"  # the cursor behind all there is
Cursor = Annotated[
    str | None,
    Query(
        max_length=1024,
        description="go on behind it; `start` is before all there is, `end` behind it",
    ),
]


@router.get("")
async def queries(
    kit: Kept,
    search: Annotated[str, Query(max_length=256, description="in the name or the text")] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> QueryList:
    """The registered queries, in the order in which they were registered."""

    def found() -> QueryList:
        wanted = search.casefold()
        match = [
            each
            for each in kit.service.queries()
            if wanted in each.name.casefold() or wanted in each.sql.casefold()
        ]
        return QueryList(tuple(match[offset : offset + limit]), len(match))

    return await kit.threads.quick(found)


@router.post("", status_code=201)
async def register(kit: Kept, asked: NewQuery) -> QueryStatus:
    """Register a query; it joins with the next batch. An error points at the place in the text."""
    return await kit.threads.slow(lambda: kit.service.register(asked.sql, asked.name, asked.partial))


@router.get("/{name}")
async def query(kit: Kept, name: QueryName) -> QueryStatus:
    """One query."""
    return await kit.threads.quick(lambda: kit.service.query(name))


@router.delete("/{name}", status_code=204)
async def drop(kit: Kept, name: QueryName) -> None:
    """Drop a query; it leaves with the next batch."""
    await kit.threads.slow(lambda: kit.service.drop(name))


@router.get("/{name}/results", responses=rows_answers("Results and the cursor after them", ResultList))
async def results(
    kit: Kept,
    name: QueryName,
    form: Form,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1_000_000, description="at most so many rows")] = 10_000,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST, allow_inf_nan=False, description="seconds to wait for something new")
    ] = 0,
) -> Response:
    """Results behind a cursor, the oldest first.

    CSV and Arrow have the cursor and whether there is more in the headers `X-Transom-Cursor` and
    `X-Transom-More`.
    """
    columns = await kit.columns(name) if form is RowsFormat.JSON else ()
    most = min(limit, kit.settings.limits.rows)
    found = await kit.reader.wait(name, cursor, most, form, columns, wait)
    headers = {"X-Transom-Cursor": found.cursor, "X-Transom-More": "true" if found.more else "false"}
    return Response(found.body, media_type=MEDIA[form], headers=headers)


@router.get(
    "/{name}/tail",
    responses={
        **RESPONSES,
        200: {
            "description": "Events: `columns` first, then `results` with an id to go on from, `dropped` last",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def tail(
    kit: Kept,
    name: QueryName,
    cursor: Cursor = None,
    last_event_id: Annotated[
        str | None, Header(max_length=1024, description="goes before the cursor; browsers send it")
    ] = None,
) -> Response:
    """Results as they come, as server-sent events; from now on, unless a cursor says otherwise."""
    columns = await kit.columns(name)
    start = last_event_id or cursor or END
    first = await kit.reader.read(name, start, CHUNK, EVENT)
    return EventStream(kit.reader, name, columns, first.cursor if start == END else start, first)


@router.post("/{name}/prod", responses=rows_answers("Early results"))
async def prod(kit: Kept, name: QueryName, asked: ProdQuery, form: Form) -> Response:
    """What is known now of a query's open windows: early results, from the last committed batch."""
    told = await kit.threads.slow(lambda: kit.service.prod(name, asked.until, asked.at, asked.where))
    return await kit.rows(told, form, await kit.columns(name))


@router.post("/{name}/lookup", responses=rows_answers("The answer"))
async def lookup(kit: Kept, name: QueryName, asked: LookupQuery, form: Form) -> Response:
    """The answer now of a query without SLIDE, for its own window or a shorter one."""
    found = await kit.threads.slow(
        lambda: kit.service.lookup(name, asked.range, asked.rows, asked.at, asked.where)
    )
    return await kit.rows(found, form, await kit.columns(name))


@router.get("/{name}/explain", responses=PLAN)
async def explain(
    kit: Kept, name: QueryName, format: PlanFormat = PlanFormat.TEXT, verbose: bool = False
) -> Response:
    """How this query is computed, and with which others it shares what."""
    return await plan(kit, name, format, verbose)


@router.get("/{name}/accuracy")
async def accuracy(kit: Kept, name: QueryName) -> AccuracyInfo:
    """How good early results turned out to be, of a query that says EMIT EARLY."""
    measured = await kit.threads.slow(lambda: kit.service.accuracy(name))
    return parse_record(AccuracyInfo, asdict(measured))


@router.get("/{name}/coverage")
async def coverage(kit: Kept, name: QueryName) -> CoverageInfo:
    """What became of the budget so far, of a query WITH PREFERENCE."""
    used = await kit.threads.slow(lambda: kit.service.coverage(name))
    return CoverageInfo(used.probes, used.produced, used.skipped, used.left, used.share, used.complete)


@router.put("/{name}/aggressiveness", status_code=204)
async def tune(kit: Kept, name: QueryName, asked: Tuning) -> None:
    """Set how early a query that says EMIT EARLY tells its windows."""
    await kit.threads.slow(lambda: kit.service.tune(name, asked.value))
