"""The time zone in which a user reads times. The browser keeps the choice in a cookie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo, available_timezones

from nicegui import Client, context

ZONE_COOKIE = "transom_zone"
UTC_NAME = "UTC"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_of_thread: ContextVar[str | None] = ContextVar("display_zone", default=None)
_of_client: WeakKeyDictionary[Client, str] = WeakKeyDictionary()


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """The names of all time zones that a user can choose, UTC first."""
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    return (UTC_NAME, *names)


def known_zone(name: str) -> str:
    """The name of a time zone, or UTC if there is no zone of that name.

    >>> known_zone("Europe/Berlin"), known_zone("../../etc/passwd"), known_zone("")
    ('Europe/Berlin', 'UTC', 'UTC')
    """
    return name if name in zone_names() else UTC_NAME


def set_client_zone(client: Client, name: str) -> None:
    """Show times in this zone to a client."""
    _of_client[client] = name


def display_zone() -> str:
    """The zone of the client for which the caller works; UTC if there is none."""
    name = _of_thread.get()
    if name is not None:
        return name
    try:
        return _of_client.get(context.client, UTC_NAME)
    except RuntimeError:  # no client
        return UTC_NAME


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """Show times in a zone while the block runs in this thread."""
    token = _of_thread.set(name)
    try:
        yield
    finally:
        _of_thread.reset(token)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return UTC if name == UTC_NAME else ZoneInfo(name)


def zone_offset(microseconds: int, name: str | None = None) -> int:
    """How far a zone is ahead of UTC at a time, in microseconds.

    >>> zone_offset(0, "Europe/Berlin")
    3600000000
    """
    zone = _zone(name or display_zone())
    if zone is UTC:
        return 0
    try:
        offset = (_EPOCH + timedelta(microseconds=microseconds)).astimezone(zone).utcoffset()
    except (OverflowError, ValueError):
        return 0
    return 0 if offset is None else offset // timedelta(microseconds=1)


def from_local(text: str, name: str | None = None) -> int | None:
    """The microseconds of a time that a user wrote in their zone, such as 2013-01-01T12:00; None if it is none.

    >>> from_local("1970-01-01T01:00", "Europe/Berlin"), from_local("soon", "UTC")
    (0, None)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(name or display_zone()))
    return (moment - _EPOCH) // timedelta(microseconds=1)
