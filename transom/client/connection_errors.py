"""Errors of the connection to a server, and the errors that a server reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.api.errors import LimitError, NotFound
from transom.errors import SettingError, SQLError, StateError, TransomError


class ServerError(TransomError, ConnectionError):
    """The server failed, or the connection to it; the request itself may be right."""


class Unreachable(ServerError):
    """No server answers."""


class Refused(ServerError):
    """The server refuses this client: its token is missing, wrong or of a lesser role, or the host name is."""


ERRORS_BY_KIND: Mapping[str, type[TransomError]] = {
    "setting": SettingError,
    "request": SettingError,
    "state": StateError,
    "not_found": NotFound,
    "limit": LimitError,
    "unauthorized": Refused,
    "forbidden": Refused,
    "internal": ServerError,
}


def error_from(record: Mapping[str, Any]) -> TransomError:
    """The error that a local engine would have raised, from a server's error record.

    >>> record = {"kind": "sql", "message": "unknown column", "text": "SELECT x", "start": 7, "end": 8}
    >>> print(error_from(record))
    unknown column
      SELECT x
             ^
    """
    message = str(record.get("message", "the server reported an error without a message"))
    if record.get("kind") == "sql":
        return SQLError(message, record.get("text") or "", record.get("start"), record.get("end"))
    return ERRORS_BY_KIND.get(str(record.get("kind")), ServerError)(message)
