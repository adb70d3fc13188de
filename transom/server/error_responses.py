"""Errors as answers: what kind it is, what is wrong, and of SQL where."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from transom.api.errors import LimitError, NotFound
from transom.api.records import ErrorAnswer
from transom.errors import BatchError, SettingError, SQLError, StateError, TransomError

log = logging.getLogger("transom")

FAILED = "the engine failed while answering; its log says why"
KINDS: tuple[tuple[type[TransomError], int, str], ...] = (
    (SQLError, 400, "sql"),
    (NotFound, 404, "not_found"),
    (LimitError, 429, "limit"),
    (SettingError, 400, "setting"),
    (StateError, 409, "state"),
)
BY_STATUS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "limit", 429: "limit"}
MEANINGS = {
    400: "The SQL is wrong at a place that the answer names, or a value can't be meant",
    401: "A token is needed",
    403: "The request came by a name, or from a website, that is not the server's own",
    404: "There is nothing of that name",
    409: "It can't be done as things are",
    413: "The request is too large",
    422: "The request is not understood",
    429: "A limit is reached",
    500: "The engine failed while answering",
    503: "The engine is not running",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": meaning} for status, meaning in MEANINGS.items()
}


def failure(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, **place: Any
) -> JSONResponse:
    """An error as an answer."""
    return JSONResponse({"error": {"kind": kind, "message": message, **place}}, status, headers)


def of_error(error: TransomError) -> JSONResponse:
    """The answer to an error that Transom raised on purpose."""
    found = next(((status, kind) for known, status, kind in KINDS if isinstance(error, known)), None)
    if found is None:
        log.error("a request failed: %s", error)
        return failure(503 if isinstance(error, BatchError) else 500, "internal", FAILED)
    status, kind = found
    if isinstance(error, SQLError):
        place = {name: getattr(error, name) for name in ("line", "column", "start", "end", "text")}
        return failure(status, kind, error.message, **place)
    return failure(status, kind, str(error))


def of_request(error: RequestValidationError) -> JSONResponse:
    """The answer to a request that is not understood: the first thing that is wrong with it."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return failure(422, "request", f"the body is not JSON: {first['ctx']['error']}")
    if first["loc"] == ("body",) and first["type"] in ("model_attributes_type", "missing"):
        return failure(422, "request", "the body is not a JSON object; send it as application/json")
    place = ".".join(str(part) for part in first["loc"])
    return failure(422, "request", f"{place}: {first['msg']}")


def add_errors(app: FastAPI) -> None:
    """Let an app answer errors like this."""

    async def transom_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, TransomError)
        return of_error(error)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return of_request(error)

    async def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        kind = BY_STATUS.get(error.status_code, "request")
        return failure(error.status_code, kind, str(error.detail), error.headers)

    async def other(request: Request, error: Exception) -> JSONResponse:
        return failure(500, "internal", FAILED)

    app.add_exception_handler(TransomError, transom_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, other)
