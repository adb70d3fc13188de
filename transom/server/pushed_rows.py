"""Rows that clients push into a stream: the bodies of requests, and when their batch is committed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from transom.api.formats import MEDIA_TYPES, RowsFormat
from transom.errors import SettingError

ARROW = MEDIA_TYPES[RowsFormat.ARROW]
LINES = "application/x-ndjson"
JSON_TYPES = ("application/json", "text/json")
LINE_TYPES = (
    LINES,
    "application/ndjson",
    "application/jsonl",
    "application/jsonlines",
    "application/json-lines",
    "application/x-jsonlines",
    "text/plain",
)
CURL_TYPE = "application/x-www-form-urlencoded"  # what curl says of any data
PUSH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            LINES: {"schema": {"type": "string", "description": "a JSON object on each line"}},
            ARROW: {"schema": {"type": "string", "format": "binary", "description": "a stream of Arrow IPC"}},
            "application/json": {
                "schema": {"type": "array", "items": {"type": "object"}, "description": "a list of objects"}
            },
        },
    }
}


def rows_of_body(body: bytes, content_type: str) -> pa.Table | list[dict[str, Any]]:
    """The rows of a request's body: JSON lines, a JSON list, or a stream of Arrow.

    >>> rows_of_body(b'{"a": 1}\\n{"a": 2}\\n', "application/x-ndjson")
    [{'a': 1}, {'a': 2}]
    """
    kind = content_type.partition(";")[0].strip().casefold()
    if kind == ARROW:
        return _read_arrow(body)
    if kind and kind not in (*JSON_TYPES, *LINE_TYPES, CURL_TYPE):
        raise SettingError(f"rows are sent as {LINES}, application/json or {ARROW}, not as {kind}")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise SettingError("the body is not UTF-8 text") from None
    if kind in JSON_TYPES or text.lstrip().startswith("["):
        return _objects(_parsed(text, "the body"))
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return [_object(_parsed(line, f"line {number}"), f"line {number}") for number, line in lines]


def _read_arrow(body: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(body).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise SettingError(f"the body is not a stream of Arrow: {error}") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise SettingError(f"{where} is nested too deeply") from None


def _objects(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else [value]
    return [_object(row, f"row {number}") for number, row in enumerate(rows, 1)]


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"{where} is not a JSON object")
    return value
