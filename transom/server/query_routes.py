"""Routes of single queries: register and drop, results and tails, prods and lookups."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from transom.api.conventions import END_CURSOR
from transom.api.formats import EXPORT_TYPES, ExportFormat, PlanFormat, ResultKind, RowsFormat
from transom.api.parameters import with_parameters
from transom.api.records import (
    AccuracyInfo,
    CoverageInfo,
    EditedQuery,
    QueryDetail,
    QueryList,
    QueryStatus,
    ResultList,
    parse_record,
    record_of,
)
from transom.api.requests import LookupQuery, NewQuery, ProdQuery, QueryChange, SQLText, Tuning
from transom.server.engine_routes import PLAN_RESPONSES, plan_response
from transom.server.error_responses import RESPONSES
from transom.server.event_stream import EVENT, EventStream, result_events
from transom.server.exports import encode_export, export_headers
from transom.server.route_helpers import (
    ChangeContext,
    QueryName,
    ReadContext,
    RegistrationContext,
    WantedRows,
    rows_responses,
)

query_router = APIRouter(prefix="/api/queries", tags=["queries"], responses=RESPONSES)

LONGEST_WAIT = 30.0  # seconds
EXPORT_SCHEMAS: dict[ExportFormat, dict[str, Any]] = {
    form: {"type": "string", "format": "binary"} for form in ExportFormat
} | {
    ExportFormat.CSV: {"type": "string"},
    ExportFormat.JSON: {"type": "array", "items": {"type": "object"}},
}
CursorText = Annotated[
    str | None,
    Query(
        max_length=1024,
        description="read the results after it; `start` is before and `end` after all results so far",
    ),
]


def searched_texts(status: QueryStatus) -> tuple[str, ...]:
    """The texts of a query that a search looks at."""
    return status.name, status.sql, status.description, *status.tags


@query_router.get("")
async def queries(
    context: ReadContext,
    search: Annotated[
        str, Query(max_length=256, description="text in the name, the SQL, the description or a tag")
    ] = "",
    tag: Annotated[str, Query(max_length=60, description="only queries with this tag")] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> QueryList:
    """The registered queries, in the order of registration."""

    def matching() -> QueryList:
        wanted = search.casefold()
        matches = [
            status
            for status in context.service.queries()
            if (not tag or tag in status.tags)
            and any(wanted in part.casefold() for part in searched_texts(status))
        ]
        return QueryList(tuple(matches[offset : offset + limit]), len(matches))

    return await context.threads.quick(matching)


@query_router.post("", name="register", status_code=201)
async def register_query(context: RegistrationContext, body: NewQuery) -> QueryStatus:
    """Register a query; it joins with the next batch. An error names the place in the text."""
    return await context.threads.slow(
        lambda: context.service.register(
            with_parameters(body.sql, body.parameters), body.name, body.partial, body.since
        )
    )


@query_router.get("/{name}", name="query")
async def query_status(context: ReadContext, name: QueryName) -> QueryDetail:
    """The status of a query, with the planner's decisions about it and their reasons."""
    return await context.threads.quick(lambda: context.service.query_detail(name))


@query_router.put("/{name}", name="edit")
async def edit_query(
    context: RegistrationContext,
    name: QueryName,
    body: SQLText,
    dry_run: Annotated[bool, Query(description="only say what would become of the query")] = False,
) -> EditedQuery:
    """Give a query another text, with the next batch; the answer says what becomes of its open windows."""
    return await context.threads.slow(
        lambda: context.service.edit(name, with_parameters(body.sql, body.parameters), dry_run)
    )


@query_router.patch("/{name}", name="change")
async def change_query(context: ChangeContext, name: QueryName, body: QueryChange) -> QueryStatus:
    """Rename, describe, tag, pause or resume a query, or set units, with the next batch; fields left out stay."""
    return await context.threads.slow(
        lambda: context.service.change(
            name,
            to=body.name,
            description=body.description,
            tags=body.tags,
            paused=body.paused,
            units=body.units,
        )
    )


@query_router.delete("/{name}", name="drop", status_code=204)
async def drop_query(context: ChangeContext, name: QueryName) -> None:
    """Drop a query; it leaves with the next batch."""
    await context.threads.slow(lambda: context.service.drop(name))


@query_router.post("/{name}/resume", name="resume", status_code=204)
async def resume_query(context: ChangeContext, name: QueryName) -> None:
    """Let a suspended or paused query take part in batches again; it joins with the next batch."""
    await context.threads.slow(lambda: context.service.resume(name))


@query_router.get(
    "/{name}/results", responses=rows_responses("Results and the cursor after them", ResultList)
)
async def results(
    context: ReadContext,
    name: QueryName,
    encoding: WantedRows,
    cursor: CursorText = None,
    limit: Annotated[int, Query(ge=1, le=1_000_000, description="the largest number of rows")] = 10_000,
    wait: Annotated[
        float,
        Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="seconds to wait for new results"),
    ] = 0,
) -> Response:
    """Results after a cursor, oldest first.

    CSV and Arrow answers have the cursor, and whether there is more, in the headers `X-Transom-Cursor` and
    `X-Transom-More`.
    """
    columns = await context.columns(name) if encoding.format is RowsFormat.JSON else ()
    rows = min(limit, context.settings.limits.rows)
    chunk = await context.reader.wait(name, cursor, rows, encoding, columns, wait)
    headers = {"X-Transom-Cursor": chunk.cursor, "X-Transom-More": "true" if chunk.more else "false"}
    return Response(chunk.body, media_type=encoding.media_type, headers=headers)


@query_router.get(
    "/{name}/export",
    name="export",
    responses={
        **RESPONSES,
        200: {
            "description": "A file with the results",
            "content": {media: {"schema": EXPORT_SCHEMAS[form]} for form, media in EXPORT_TYPES.items()},
        },
    },
)
async def export_query(
    context: ReadContext,
    name: QueryName,
    format: ExportFormat = ExportFormat.CSV,
    kind: Annotated[ResultKind, Query(description="which results")] = ResultKind.FINAL,
    escape: Annotated[
        bool,
        Query(description="put an apostrophe before text in CSV that a spreadsheet would run as a formula"),
    ] = True,
) -> Response:
    """All results that are retained, as a file that has the query's name."""
    body = await context.threads.slow(
        lambda: encode_export(context.service.export(name, kind), format, escape)
    )
    return Response(body, headers=export_headers(name, kind, format))


@query_router.get(
    "/{name}/tail",
    name="tail",
    responses={
        **RESPONSES,
        200: {
            "description": "Events: first `columns`, then `results`, each with a cursor as its id, last `dropped`",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def tail_query(
    context: ReadContext,
    name: QueryName,
    cursor: CursorText = None,
    last_event_id: Annotated[
        str | None, Header(max_length=1024, description="overrides the cursor; browsers send it")
    ] = None,
) -> Response:
    """New results as server-sent events; from now on, unless a cursor is given."""
    columns = await context.columns(name)
    start = last_event_id or cursor or END_CURSOR
    first = await context.reader.read(name, start, context.service.limits.event_rows, EVENT)
    begin = first.cursor if start == END_CURSOR else start
    text = context.service.text(name)
    return EventStream(context.service, result_events(context.reader, name, text, columns, begin, first))


@query_router.post("/{name}/prod", name="prod", responses=rows_responses("Early results"))
async def prod_query(
    context: ChangeContext, name: QueryName, body: ProdQuery, encoding: WantedRows
) -> Response:
    """Early results of a query's open windows, as of the last committed batch."""
    table = await context.threads.slow(lambda: context.service.prod(name, body.until, body.at, body.where))
    return await context.rows(table, encoding, await context.columns(name))


@query_router.post("/{name}/lookup", name="lookup", responses=rows_responses("The answer"))
async def lookup_query(
    context: ReadContext, name: QueryName, body: LookupQuery, encoding: WantedRows
) -> Response:
    """The current answer of an on-demand query, for its window or a shorter one."""
    table = await context.threads.slow(
        lambda: context.service.lookup(name, body.range, body.rows, body.at, body.where)
    )
    return await context.rows(table, encoding, await context.columns(name))


@query_router.get("/{name}/late", name="late_windows", responses=rows_responses("Windows that missed rows"))
async def count_late_rows(context: ReadContext, name: QueryName, encoding: WantedRows) -> Response:
    """The windows of a query that missed rows, and how many each missed; the newest windows last."""
    return await context.rows(
        await context.threads.slow(lambda: context.service.late_windows(name)), encoding
    )


@query_router.get(
    "/{name}/late/rows", name="late_rows", responses=rows_responses("Rows that the query missed")
)
async def list_late_rows(
    context: ReadContext,
    name: QueryName,
    encoding: WantedRows,
    limit: Annotated[int, Query(ge=1, le=1_000_000, description="the largest number of rows")] = 1_000,
) -> Response:
    """The newest rows that a query missed, each with the reason and the batch; the newest last."""
    rows = min(limit, context.settings.limits.rows)
    return await context.rows(
        await context.threads.slow(lambda: context.service.late_rows(name, rows)), encoding
    )


@query_router.get("/{name}/explain", name="explain", responses=PLAN_RESPONSES)
async def query_plan(
    context: ReadContext, name: QueryName, format: PlanFormat = PlanFormat.TEXT, verbose: bool = False
) -> Response:
    """The query's plan and what it shares with other queries."""
    return await plan_response(context, name, format, verbose)


@query_router.get("/{name}/accuracy")
async def accuracy(context: ReadContext, name: QueryName) -> AccuracyInfo:
    """The accuracy of early results of a query with EMIT EARLY."""
    measured = await context.threads.slow(lambda: context.service.accuracy(name))
    return parse_record(AccuracyInfo, asdict(measured))


@query_router.get("/{name}/coverage")
async def coverage(context: ReadContext, name: QueryName) -> CoverageInfo:
    """How a query WITH PREFERENCE has used its budget so far."""
    return record_of(CoverageInfo, await context.threads.slow(lambda: context.service.coverage(name)))


@query_router.put("/{name}/aggressiveness", status_code=204)
async def tune(context: ChangeContext, name: QueryName, body: Tuning) -> None:
    """Set how early a query with EMIT EARLY emits results of open windows."""
    await context.threads.slow(lambda: context.service.tune(name, body.value))
