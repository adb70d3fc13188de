"""Errors that a server raises and its clients raise again."""

from __future__ import annotations

from transom.errors import StateError, TransomError


class NotFound(StateError, LookupError):
    """There is no such query, stream or summary."""


class LimitError(StateError):
    """A limit of the server is reached."""


class RoleError(TransomError):
    """The role of the client does not allow this."""
