"""Questions and answers over HTTP: JSON or Arrow, and errors as the engine raises them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from transom.client.connection_errors import Refused, ServerError, Unreachable, error_of
from transom.durations import format_duration
from transom.errors import SettingError

TOKEN = "TRANSOM_TOKEN"
ARROW = "application/vnd.apache.arrow.stream"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ResultChunk:
    """Some results, and where to go on."""

    table: pa.Table
    cursor: str | None
    more: bool


class Wire:
    """A server's address, and how to ask it; any thread may."""

    def __init__(self, url: str, token: str | None, timeout: float, transport: httpx.BaseTransport | None):
        self.url, self.timeout = checked_url(url), timeout
        token = self.token = os.environ.get(TOKEN) if token is None else token
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            limits=httpx.Limits(max_connections=None),
            trust_env=httpx.URL(self.url).host not in LOOPBACK,  # no proxy leads back to this machine
            transport=transport,
        )

    def close(self) -> None:
        self._client.close()

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """The answer to a question that is answered in JSON; numbers with a point keep every digit."""
        response = self._ask(method, path, body, query)
        try:
            return response.json(parse_float=Decimal) if response.content else None
        except ValueError:
            raise self._stranger() from None

    def text(self, path: str, **query: Any) -> str:
        return self._ask("GET", path, None, query).text

    def table(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> pa.Table:
        return self.chunk(method, path, body, **query).table

    def chunk(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any
    ) -> ResultChunk:
        """The answer to a question that is answered with rows, as Arrow."""
        response = self._ask(method, path, body, {**query, "format": "arrow"}, {"Accept": ARROW})
        try:
            table = pa.ipc.open_stream(response.content).read_all()
        except pa.ArrowInvalid:
            raise self._stranger() from None
        headers = response.headers
        more = headers.get("X-Transom-More", "false").lower() in ("true", "1")
        return ResultChunk(table, headers.get("X-Transom-Cursor"), more)

    def readiness(self) -> tuple[bool, str]:
        """Whether the engine runs, and what is said of it."""
        response = self._send("GET", "/readyz")
        try:
            told = response.json()
            failure = f": {told['failure']}" if told.get("failure") else ""
            return response.is_success, f"the engine is {told['state']}{failure}"
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._stranger(f" (HTTP {response.status_code})") from None

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        asked = given(**query)
        wait = float(asked.get("wait", 0))
        response = self._send(
            method,
            path,
            params=asked,
            headers=headers,
            json=None if body is None else plain(body),
            timeout=httpx.Timeout(self.timeout, read=self.timeout + wait),
        )
        if not response.is_success:
            raise self._error(response)
        return response

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.ConnectError as error:
            reason = f"no server at {self.url} ({error}): is `transom serve` running there?"
            raise Unreachable(reason) from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.url} did not answer within {self.timeout:g} seconds") from error
        except httpx.TransportError as error:
            raise Unreachable(f"{self.url} broke off: {error or type(error).__name__}") from error

    def _error(self, response: httpx.Response) -> Exception:
        try:
            told = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            return self._stranger(f" (HTTP {response.status_code})")
        error = error_of(told)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            what = "wants a token" if self.token is None else "wants another token than this"
            return Refused(f"{self.url} {what}: put it into {TOKEN}, or give it (--token-file, token=)")
        if response.is_server_error and not isinstance(error, ServerError):  # such as one that is starting
            return ServerError(str(error))
        return error

    def _stranger(self, how: str = "") -> ServerError:
        return ServerError(f"what answers at {self.url} does not speak like a Transom server{how}")


def checked_url(url: str) -> str:
    """A server's address without a slash at its end.

    >>> checked_url("http://127.0.0.1:8710/")
    'http://127.0.0.1:8710'
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise SettingError(f"{url!r} is not an address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise SettingError(f"{url!r} is not a server's address; write one like 'http://127.0.0.1:8710'")
    return str(parsed).rstrip("/")


def part(name: str) -> str:
    """A name as a part of a path.

    >>> part("top/5 %")
    'top%2F5%20%25'
    """
    return quote(name, safe="")


def given(**asked: Any) -> dict[str, Any]:
    """What was asked for, without what was not."""
    return {name: value for name, value in asked.items() if value is not None}


def plain(value: Any) -> Any:
    """A value as JSON has it: times as ISO text, durations in words.

    >>> plain({"at": datetime(2013, 1, 1, 12), "range": timedelta(minutes=5)})
    {'at': '2013-01-01T12:00:00', 'range': '5 minutes'}
    """
    match value:
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return format_duration(value // timedelta(microseconds=1))
        case Decimal():
            return str(value)
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case _:
            return value
