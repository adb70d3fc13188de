"""Errors as JSON answers: the kind, the message and, for SQL, the place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from transom.api.errors import LimitError, NotFound, RoleError
from transom.api.records import ErrorAnswer
from transom.errors import (
    BatchError,
    CostError,
    FeedFullError,
    SettingError,
    SQLError,
    StateError,
    TransomError,
)
from transom.runtime.descriptor_shortage import lacks_descriptors

log = logging.getLogger("transom")

FULL_SECONDS = "1"  # after which a feed that is full may take more rows
INTERNAL_ERROR = "the engine failed to answer; its log has the reason"
# The first class that matches decides: NotFound and LimitError are StateErrors too.
ERROR_TYPES: tuple[tuple[type[TransomError], int, str], ...] = (
    (SQLError, 400, "sql"),
    (CostError, 400, "limit"),
    (NotFound, 404, "not_found"),
    (LimitError, 429, "limit"),
    (FeedFullError, 429, "limit"),
    (RoleError, 403, "forbidden"),
    (SettingError, 400, "setting"),
    (StateError, 409, "state"),
)
KIND_BY_STATUS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "limit", 429: "limit"}
DESCRIPTIONS = {
    400: "The SQL is wrong, at a place that the answer names, or a value is not valid",
    401: "The server needs a token, and the request has none, or a wrong one",
    403: "The token's role does not allow this; or the request's host name, or its website, is not the server's own",
    404: "Nothing has this name",
    409: "The current state does not allow this",
    413: "The request is too large",
    422: "The request is malformed",
    429: "A limit is reached; with Retry-After, the client sends too many requests",
    500: "The engine failed to answer",
    503: "The engine is not running",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description} for status, description in DESCRIPTIONS.items()
}


def error_response(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, **place: Any
) -> JSONResponse:
    """An answer that reports an error."""
    return JSONResponse({"error": {"kind": kind, "message": message, **place}}, status, headers)


def from_transom_error(error: TransomError) -> JSONResponse:
    """The answer to an error that Transom raised."""
    matches = ((status, kind) for error_type, status, kind in ERROR_TYPES if isinstance(error, error_type))
    match = next(matches, None)
    if match is None:
        log.error("a request failed: %s", error)
        return error_response(503 if isinstance(error, BatchError) else 500, "internal", INTERNAL_ERROR)
    status, kind = match
    if isinstance(error, SQLError):
        place = {name: getattr(error, name) for name in ("line", "column", "start", "end", "text")}
        return error_response(status, kind, error.message, **place)
    headers = {"Retry-After": FULL_SECONDS} if isinstance(error, FeedFullError) else None
    return error_response(status, kind, str(error), headers)


def from_validation_error(error: RequestValidationError) -> JSONResponse:
    """The answer to a malformed request; it names the first problem."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_response(422, "request", f"the body is not JSON: {first['ctx']['error']}")
    if first["loc"] == ("body",) and first["type"] in ("model_attributes_type", "missing"):
        return error_response(422, "request", "the body is not a JSON object; send it as application/json")
    place = ".".join(str(part) for part in first["loc"])
    return error_response(422, "request", f"{place}: {first['msg']}")


def add_error_handlers(app: FastAPI) -> None:
    """Make an app answer all errors in this format."""

    async def on_transom_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, TransomError)
        return from_transom_error(error)

    async def on_validation_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return from_validation_error(error)

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        kind = KIND_BY_STATUS.get(error.status_code, "request")
        return error_response(error.status_code, kind, str(error.detail), error.headers)

    async def on_other_error(request: Request, error: Exception) -> JSONResponse:
        if lacks_descriptors(error):
            message = "the server has too many open files or connections: try again"
            return error_response(503, "state", message, {"Retry-After": "1"})
        return error_response(500, "internal", INTERNAL_ERROR)

    app.add_exception_handler(TransomError, on_transom_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_other_error)
