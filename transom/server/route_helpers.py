"""The context, parameters and responses that routes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote

import pyarrow as pa
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import AfterValidator
from starlette.exceptions import HTTPException

from transom.api.errors import LimitError
from transom.api.formats import MEDIA_TYPES, RowsFormat
from transom.api.records import ColumnInfo, RowList
from transom.server.error_responses import RESPONSES
from transom.server.event_stream import ChangeSignal, SharedReader, ThreadPools, is_large
from transom.server.formats import RowsEncoding, encode_rows, wanted_format
from transom.server.login import rate_key
from transom.server.rate_limits import RateLimiter, retry_after
from transom.server.roles import CLIENT_KEY, ApiClient, Role, check_role
from transom.server.service import Service
from transom.server.settings import ServerSettings

OTHER_FORMATS: dict[str, Any] = {
    MEDIA_TYPES[form]: {"schema": {"type": "string"}} for form in (RowsFormat.CSV, RowsFormat.ARROW)
}


@dataclass(frozen=True)
class RouteContext:
    """A service, its settings, and the means to call it from the event loop."""

    service: Service
    settings: ServerSettings
    threads: ThreadPools
    signal: ChangeSignal
    reader: SharedReader
    registrations: RateLimiter

    async def columns(self, name: str) -> tuple[ColumnInfo, ...]:
        """The columns of a query's results."""
        return (await self.threads.quick(lambda: self.service.query(name))).columns

    async def rows(
        self, table: pa.Table, encoding: RowsEncoding, columns: Sequence[ColumnInfo] = ()
    ) -> Response:
        """A table as an answer; a large one is encoded in a thread."""
        self.check_rows(table.num_rows)
        if is_large(table):
            body = await self.threads.quick(lambda: encode_rows(table, columns, encoding))
        else:
            body = encode_rows(table, columns, encoding)
        return Response(body, media_type=encoding.media_type)

    def check_rows(self, rows: int) -> None:
        """Refuse an answer with more rows than the limit."""
        limit = self.settings.limits.rows
        if rows > limit:
            raise LimitError(f"the answer has {rows:,} rows, and the limit is {limit:,}: ask for less")


class RoleContext(SecurityBase):
    """Gives a route its context if the client has a role; so no route reaches the service without a check.

    With `registers`, the request counts towards the client's limit of registrations.
    """

    def __init__(self, role: Role, registers: bool = False):
        self.role, self.registers = role, registers
        including = [each for each in Role if each.includes(role)]
        self.scheme_name = role.value
        self.model = HTTPBearer(description=f"a token with the role {' or '.join(including)}")

    async def __call__(self, request: Request) -> RouteContext:
        context: RouteContext = request.app.state.context
        client: ApiClient = request.scope[CLIENT_KEY]
        check_role(client, self.role)
        if self.registers and (wait := context.registrations.wait(rate_key(request.scope))):
            message = f"more than {context.registrations.rate} registrations a second: send them more slowly"
            raise HTTPException(429, message, dict(retry_after(wait)))
        return context


async def open_context(request: Request) -> RouteContext:
    """The context of a route that needs no token; `client_of` tells whether the request has one."""
    context: RouteContext = request.app.state.context
    return context


async def client_of(request: Request) -> ApiClient | None:
    """The client that sent a request; None without a valid token."""
    client: ApiClient | None = request.scope[CLIENT_KEY]
    return client


async def rows_encoding(
    format: Annotated[RowsFormat | None, Query(description="overrides the Accept header")] = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    escape: Annotated[
        bool,
        Query(description="put an apostrophe before text in CSV that a spreadsheet would run as a formula"),
    ] = True,
) -> RowsEncoding:
    """The format that a request wants its rows in."""
    return RowsEncoding(wanted_format(format, accept), escape)


def path_segments(raw: bytes) -> str:
    """A path as it is routed: decoded, except that a slash within a name stays escaped.

    >>> path_segments(b"/api/queries/a%2Fb%20c/results")
    '/api/queries/a%2Fb c/results'
    """
    parts = (unquote(part, errors="replace") for part in raw.decode("latin-1").split("/"))
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _in_path(description: str) -> Any:
    return Path(description=description, min_length=1, max_length=1024)


OpenContext = Annotated[RouteContext, Depends(open_context)]
RequestClient = Annotated[ApiClient | None, Depends(client_of)]
ReadContext = Annotated[RouteContext, Depends(RoleContext(Role.READ))]
ChangeContext = Annotated[RouteContext, Depends(RoleContext(Role.REGISTER))]
RegistrationContext = Annotated[RouteContext, Depends(RoleContext(Role.REGISTER, registers=True))]
AdminContext = Annotated[RouteContext, Depends(RoleContext(Role.ADMIN))]
WantedRows = Annotated[RowsEncoding, Depends(rows_encoding)]
QueryName = Annotated[str, _in_path("a query's name, percent-encoded"), AfterValidator(unquote)]
StreamName = Annotated[str, _in_path("a stream's name, percent-encoded"), AfterValidator(unquote)]
ViewName = Annotated[str, _in_path("a view's name, percent-encoded"), AfterValidator(unquote)]
SummaryName = Annotated[str, _in_path("a summary's name, percent-encoded"), AfterValidator(unquote)]


def rows_responses(description: str, record: Any = RowList) -> dict[int | str, dict[str, Any]]:
    """The responses of a route that answers with rows."""
    return {**RESPONSES, 200: {"model": record, "content": OTHER_FORMATS, "description": description}}
