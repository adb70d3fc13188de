"""What can go wrong with a server, beside what can go wrong with its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.errors import SettingError, SQLError, StateError, TransomError


class ServerError(TransomError, ConnectionError):
    """The server did not do what it was asked, and not for a reason of the question's."""


class Unreachable(ServerError):
    """No server answers."""


class Refused(ServerError):
    """The server answers, but not to us: the token is missing or wrong, or it does not serve this address."""


class NotFound(StateError, LookupError):
    """There is no such query, stream or summary."""


class LimitError(StateError):
    """A limit of the server is reached."""


KINDS: Mapping[str, type[TransomError]] = {
    "setting": SettingError,
    "request": SettingError,
    "state": StateError,
    "not_found": NotFound,
    "limit": LimitError,
    "unauthorized": Refused,
    "forbidden": Refused,
    "internal": ServerError,
}


def error_of(told: Mapping[str, Any]) -> TransomError:
    """The error that an engine here would have raised.

    >>> told = {"kind": "sql", "message": "unknown column", "text": "SELECT x", "start": 7, "end": 8}
    >>> print(error_of(told))
    unknown column
      SELECT x
             ^
    """
    message = str(told.get("message", "the server does not say what is wrong"))
    if told.get("kind") == "sql":
        return SQLError(message, told.get("text") or "", told.get("start"), told.get("end"))
    return KINDS.get(str(told.get("kind")), ServerError)(message)
