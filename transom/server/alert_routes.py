"""Routes of alerts: what fires, definitions, events as pages and as a tail, silences, and sinks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AfterValidator

from transom.api.alert_records import (
    AlertEventList,
    AlertList,
    AlertRuleInfo,
    AlertRuleList,
    AlertSinkList,
    SilenceInfo,
    SilenceList,
)
from transom.api.alert_requests import AlertTermsBody, NewSilence
from transom.server.error_responses import RESPONSES
from transom.server.event_stream import EventStream, heartbeats_until
from transom.server.route_helpers import (
    ChangeContext,
    ReadContext,
    RegistrationContext,
    RequestClient,
    RouteContext,
)
from transom.server.service import check_name

alert_router = APIRouter(prefix="/api", tags=["alerts"], responses=RESPONSES)

TAIL_EVENTS = 1_000  # in one part of a tail
AlertName = Annotated[
    str,
    Path(description="an alert's name, percent-encoded", min_length=1, max_length=1024),
    AfterValidator(unquote),
]
OfAlert = Annotated[str | None, Query(max_length=256, description="only this alert")]
AlertLimit = Annotated[int, Query(ge=1, le=10_000, description="the largest number in the answer")]
After = Annotated[str | None, Query(max_length=64, description="the cursor of an earlier answer")]


@alert_router.get("/alerts")
async def list_alerts(context: ReadContext, alert: OfAlert = None, limit: AlertLimit = 1_000) -> AlertList:
    """The groups of alerts that are firing or pending, those that fire first."""
    return await context.threads.quick(lambda: context.service.alerts.active(alert, limit))


@alert_router.get("/alerts/rules")
async def list_alert_rules(context: ReadContext) -> AlertRuleList:
    """All alerts, with those in the texts of queries."""
    return AlertRuleList(await context.threads.quick(context.service.alerts.rules))


@alert_router.put("/alerts/rules/{name}")
async def create_alert(context: RegistrationContext, name: AlertName, body: AlertTermsBody) -> AlertRuleInfo:
    """Create an alert on a registered query with the next batch, or give it another definition.

    Sinks are named; the server's program or pipeline file declares them.
    """
    check_name(name)
    return await context.threads.slow(lambda: context.service.alerts.create(name, body.model_dump()))


@alert_router.delete("/alerts/rules/{name}", status_code=204)
async def drop_alert(context: ChangeContext, name: AlertName) -> None:
    """Drop an alert with the next batch; what fires is resolved. One in the text of a query goes with the text."""
    await context.threads.slow(lambda: context.service.alerts.drop(name))


@alert_router.get("/alerts/events")
async def alert_events(
    context: ReadContext,
    after: After = None,
    alert: OfAlert = None,
    limit: AlertLimit = 1_000,
    newest: Annotated[bool, Query(description="the newest events, the newest first")] = False,
) -> AlertEventList:
    """Events of alerts after a cursor, the oldest first; without a cursor, from the oldest that is retained."""
    alerts = context.service.alerts
    if newest:
        return await context.threads.slow(lambda: alerts.newest(limit, alert))
    return await context.threads.slow(lambda: alerts.events(after, limit, alert))


@alert_router.get(
    "/alerts/tail",
    response_class=Response,
    responses={**RESPONSES, 200: {"content": {"text/event-stream": {}}, "description": "Events, one by one"}},
)
async def tail_alerts(
    context: ReadContext,
    after: After = None,
    last_event_id: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Events of alerts as server-sent events, from a cursor or from now on, until the reader leaves.

    The id of an event is the cursor after it, with which a reader that reconnects continues (Last-Event-ID).
    """
    start = last_event_id or after or context.service.alerts.end
    await context.threads.slow(lambda: context.service.alerts.events(start, 1))  # refuse what is no cursor
    return EventStream(context.service, _alert_events(context, start))


@alert_router.get("/alerts/sinks")
async def alert_sinks(context: ReadContext) -> AlertSinkList:
    """The sinks of alerts: what waits, what was delivered, and what failed."""
    return AlertSinkList(await context.threads.quick(context.service.alerts.sinks))


@alert_router.get("/silences")
async def list_silences(context: ReadContext) -> SilenceList:
    """The silences that have not ended."""
    return SilenceList(await context.threads.quick(context.service.alerts.silences))


@alert_router.post("/silences", status_code=201)
async def create_silence(
    context: RegistrationContext, client: RequestClient, body: NewSilence
) -> SilenceInfo:
    """Silence the alerts that all matchers match, for a duration or until a time, from the next batch on."""
    author = body.author or (client.name if client is not None else "")
    return await context.threads.slow(
        lambda: context.service.alerts.silence(body.matchers, body.duration, body.until, author, body.comment)
    )


@alert_router.delete("/silences/{id}", status_code=204)
async def end_silence(
    context: ChangeContext, id: Annotated[str, Path(max_length=64, description="a silence's id")]
) -> None:
    """End a silence with the next batch."""
    await context.threads.slow(lambda: context.service.alerts.unsilence(id))


async def _alert_events(context: RouteContext, cursor: str) -> AsyncIterator[bytes]:
    """The events of alerts after a cursor as server-sent events, until the server stops."""
    alerts, signal = context.service.alerts, context.signal
    yield f"id: {cursor}\nevent: start\ndata: {{}}\n\n".encode("utf-8", "replace")
    while not signal.closed:
        changed = signal.next()
        page = await context.threads.slow(partial(alerts.tail, cursor, TAIL_EVENTS))
        for cursor, event in page:
            data = json.dumps(asdict(event), ensure_ascii=False)
            yield f"id: {cursor}\nevent: {event.state}\ndata: {data}\n\n".encode("utf-8", "replace")
        if not page:
            async for heartbeat in heartbeats_until(changed, context.service.limits.heartbeat_seconds):
                yield heartbeat
