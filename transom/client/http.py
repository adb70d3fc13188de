"""HTTP requests to a server: JSON or Arrow answers, and errors as the engine raises them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
from pydantic import ValidationError

from transom.api.conventions import TOKEN_VARIABLE
from transom.api.errors import LimitError
from transom.api.records import Health, Record, parse_record
from transom.api.result_chunk import ResultChunk
from transom.client.connection_errors import Refused, ServerError, Unreachable, error_from
from transom.durations import format_duration
from transom.errors import SettingError

ARROW_MEDIA_TYPE = "application/vnd.apache.arrow.stream"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class HttpClient:
    """Sends requests to one server; safe to use from several threads."""

    def __init__(self, url: str, token: str | None, timeout: float, transport: httpx.BaseTransport | None):
        self.url, self.timeout = checked_url(url), timeout
        token = self.token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            limits=httpx.Limits(max_connections=None),
            trust_env=httpx.URL(self.url).host not in LOOPBACK,  # a proxy can't reach this machine's loopback
            transport=transport,
        )

    def close(self) -> None:
        self._client.close()

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None, **params: Any) -> Any:
        """The decoded JSON answer; decimals keep every digit."""
        response = self._request(method, path, body, params)
        try:
            return response.json(parse_float=Decimal) if response.content else None
        except ValueError:
            raise self._not_transom() from None

    def record(
        self,
        kind: type[Record],
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Record:
        """The answer as a record."""
        try:
            return parse_record(kind, self.json(method, path, body, **params))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise self._not_transom(f" ({kind.__name__} {place}: {first['msg']})") from None

    def send(self, kind: type[Record], path: str, content: bytes, media_type: str, **params: Any) -> Record:
        """The answer to a request with a body that is not JSON, as a record."""
        response = self._request("POST", path, None, params, {"Content-Type": media_type}, content)
        try:
            return parse_record(kind, response.json())
        except ValueError:
            raise self._not_transom() from None

    def content(self, path: str, **params: Any) -> bytes:
        """The body of an answer as it is."""
        return self._request("GET", path, None, params).content

    def text(self, path: str, **params: Any) -> str:
        return self._request("GET", path, None, params).text

    def table(self, method: str, path: str, body: Mapping[str, Any] | None = None, **params: Any) -> pa.Table:
        """The answer as an Arrow table."""
        return self._read_arrow(self._request_arrow(method, path, body, params))

    def chunk(self, path: str, **params: Any) -> ResultChunk:
        """The answer as an Arrow table with the cursor after it."""
        response = self._request_arrow("GET", path, None, params)
        table, cursor = self._read_arrow(response), response.headers.get("X-Transom-Cursor")
        if cursor is None:
            raise self._not_transom(" (it sends no cursor)")
        return ResultChunk(table, cursor, response.headers.get("X-Transom-More", "").lower() == "true")

    def readiness(self) -> tuple[bool, str]:
        """Whether the engine is running, and a sentence about its state."""
        response = self._send("GET", "/readyz")
        try:
            health = parse_record(Health, response.json())
        except ValueError:  # pydantic's errors are ValueErrors too
            raise self._not_transom(f" (HTTP {response.status_code})") from None
        failure = f": {health.failure}" if health.failure else ""
        return response.is_success, f"the engine is {health.state}{failure}"

    def _request_arrow(
        self, method: str, path: str, body: Mapping[str, Any] | None, params: Mapping[str, Any]
    ) -> httpx.Response:
        return self._request(method, path, body, {**params, "format": "arrow"}, {"Accept": ARROW_MEDIA_TYPE})

    def _read_arrow(self, response: httpx.Response) -> pa.Table:
        try:
            return pa.ipc.open_stream(response.content).read_all()
        except pa.ArrowInvalid:
            raise self._not_transom() from None

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        params: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        sent = without_none(**params)
        wait = float(sent.get("wait", 0))
        deadline = monotonic() + self.timeout
        while True:
            response = self._send(
                method,
                path,
                params=sent,
                headers=headers,
                json=None if body is None else json_ready(body),
                content=content,
                timeout=httpx.Timeout(self.timeout, read=self.timeout + wait),
            )
            if response.is_success:
                return response
            error, pause = self._error(response), response.headers.get("Retry-After", "")
            is_rate_limit = isinstance(error, LimitError) and pause.isdigit()
            if not is_rate_limit or monotonic() + int(pause) > deadline:
                raise error
            sleep(int(pause))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.ConnectError as error:
            reason = f"no server at {self.url} ({error}): is `transom serve` running there?"
            raise Unreachable(reason) from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.url} did not answer within {self.timeout:g} seconds") from error
        except httpx.TransportError as error:
            reason = f"the connection to {self.url} failed: {error or type(error).__name__}"
            raise Unreachable(reason) from error

    def _error(self, response: httpx.Response) -> Exception:
        try:
            record = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            return self._not_transom(f" (HTTP {response.status_code})")
        error = error_from(record)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            problem = "needs a token" if self.token is None else "does not accept this token"
            return Refused(
                f"{self.url} {problem}: set {TOKEN_VARIABLE}, or pass the token (--token-file, token=)"
            )
        if response.is_server_error and not isinstance(error, ServerError):  # such as an engine that starts
            return ServerError(str(error))
        return error

    def _not_transom(self, detail: str = "") -> ServerError:
        return ServerError(f"{self.url} does not answer like a Transom server{detail}")


def checked_url(url: str) -> str:
    """A server's address without a trailing slash.

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


def path_segment(name: str) -> str:
    """A name, percent-encoded as one segment of a path.

    >>> path_segment("top/5 %")
    'top%2F5%20%25'
    """
    return quote(name, safe="")


def without_none(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def json_ready(value: Any) -> Any:
    """A value that JSON can represent: times become ISO text, durations become text.

    >>> json_ready({"at": datetime(2013, 1, 1, 12), "range": timedelta(minutes=5)})
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
            return {str(name): json_ready(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_ready(each) for each in value]
        case _:
            return value
