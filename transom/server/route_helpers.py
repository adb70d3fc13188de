"""What routes work with, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote

import pyarrow as pa
from fastapi import Depends, Header, Path, Query, Request, Response
from pydantic import AfterValidator

from transom.api.errors import LimitError
from transom.api.records import ColumnInfo, RowList
from transom.server.error_responses import RESPONSES
from transom.server.event_stream import Broadcast, Reader, Threads, large
from transom.server.formats import ARROW, MEDIA, RowsFormat, answer, wanted_format
from transom.server.service import Service
from transom.server.settings import ServerSettings

TABLES: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}, ARROW: {"schema": {"type": "string"}}}


@dataclass(frozen=True)
class Kit:
    """A service, and the ways to ask it from an event loop."""

    service: Service
    settings: ServerSettings
    threads: Threads
    broadcast: Broadcast
    reader: Reader

    async def columns(self, name: str) -> tuple[ColumnInfo, ...]:
        """What is known of a query's columns."""
        return (await self.threads.quick(lambda: self.service.query(name))).columns

    async def rows(self, table: pa.Table, form: RowsFormat, known: Sequence[ColumnInfo] = ()) -> Response:
        """A table as an answer, written in a thread if it is large."""
        self.check_rows(table.num_rows)
        write = self.threads.quick(lambda: answer(table, known, form)) if large(table) else None
        body = answer(table, known, form) if write is None else await write
        return Response(body, media_type=MEDIA[form])

    def check_rows(self, rows: int) -> None:
        most = self.settings.limits.rows
        if rows > most:
            raise LimitError(f"the answer has {rows:,} rows, and {most:,} are granted: ask for less")


async def kit(request: Request) -> Kit:
    """The app's own."""
    found: Kit = request.app.state.kit
    return found


async def rows_format(
    format: Annotated[RowsFormat | None, Query(description="goes before the Accept header")] = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> RowsFormat:
    """How a request wants its rows."""
    return wanted_format(format, accept)


def path_segments(raw: bytes) -> str:
    """A path as it is routed: decoded, but for slashes within a name, which stay escaped.

    >>> path_segments(b"/api/queries/a%2Fb%20c/results")
    '/api/queries/a%2Fb c/results'
    """
    parts = (unquote(part, errors="replace") for part in raw.decode("latin-1").split("/"))
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _in_path(description: str) -> Any:
    return Path(description=description, min_length=1, max_length=1024)


Kept = Annotated[Kit, Depends(kit)]
Form = Annotated[RowsFormat, Depends(rows_format)]
QueryName = Annotated[str, _in_path("a query's name, percent-encoded"), AfterValidator(unquote)]
StreamName = Annotated[str, _in_path("a stream's name, percent-encoded"), AfterValidator(unquote)]
SummaryName = Annotated[str, _in_path("a summary's name, percent-encoded"), AfterValidator(unquote)]


def rows_answers(description: str, model: Any = RowList) -> dict[int | str, dict[str, Any]]:
    """What a route may answer that answers with rows."""
    return {**RESPONSES, 200: {"model": model, "content": TABLES, "description": description}}
