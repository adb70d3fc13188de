"""Access control: a middleware in front of the API and the dashboard.

It checks the host name of a request (another site may point its own name at this server), the site that the
request comes from, the token, the rate of the client's requests, and the size of the body. Routes check the role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.server.error_responses import error_response
from transom.server.login import LOGIN_PATH, Login, WrongTokenError, peer_of, rate_key
from transom.server.rate_limits import RateLimiter, retry_after
from transom.server.roles import CLIENT_KEY, LOCAL_CLIENT
from transom.server.route_helpers import path_segments
from transom.server.settings import ServerSettings, is_loopback

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
SAME_SITE_PATHS = ("/api/", "/_nicegui_ws")  # other sites may not even read these
OPEN_PATHS = ("/healthz", "/readyz", LOGIN_PATH)  # these need no token
UNCOUNTED_PATHS = ("/_nicegui/", "/_transom/")  # files of the dashboard; a view needs dozens
PUSH_PATH = re.compile(r"/api/streams/[^/]+/rows")
ALL_INTERFACES = ("0.0.0.0", "::", "")

# NiceGUI compiles its templates in the browser, and writes scripts and styles into the page.
DASHBOARD_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers would also hide the origin of a form, which /login checks.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class TooLarge(Exception):
    """A request's body is larger than the limit."""


class Guard:
    """Passes permitted requests to the app, and answers the others with an error."""

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self.app, self.settings = app, settings
        self._hosts = {name.casefold() for name in (settings.host, *settings.hosts)}
        tokens, limits = settings.access_tokens, settings.limits
        self._login = Login(tokens, limits.body) if tokens else None
        self._requests = RateLimiter(limits.request_rate, limits.request_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        if scope.get("raw_path"):
            scope["path"] = path_segments(scope["raw_path"])
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            return await (self.app(scope, receive, send) if refusal is None else _close(receive, send))
        send = _with_headers(send, scope["path"])
        if refusal is not None:
            return await refusal(scope, receive, send)
        if self._login is not None and self._login.handles(scope["path"]):
            return await self._login(scope, receive, send)
        if scope["method"] not in SAFE_METHODS:
            try:
                receive = await read_body(headers, receive, self._longest_body(scope))
            except TooLarge:
                return await self._too_large(scope, receive, send)
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is not permitted, or None."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return error_response(
                403, "forbidden", "the request's host name is not one of this server's names"
            )
        unsafe = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if (unsafe or scope["path"].startswith(SAME_SITE_PATHS)) and not _is_same_site(headers, host):
            return error_response(403, "forbidden", "the request comes from another site")
        try:
            client = LOCAL_CLIENT if self._login is None else self._login.client_of(headers)
        except WrongTokenError:
            refusal = self._wrong_token(peer_of(scope))
            if scope["path"] not in OPEN_PATHS:
                return refusal
            client = None
        scope[CLIENT_KEY] = client
        if not scope["path"].startswith(UNCOUNTED_PATHS):
            wait = self._requests.wait(rate_key(scope))
            if wait:
                message = f"more than {self._requests.rate} requests a second: send them more slowly"
                return error_response(429, "limit", message, retry_after(wait))
        if scope["path"] in OPEN_PATHS or client is not None:
            return None
        if scope["type"] == "http" and "text/html" in headers.get("accept", ""):
            return RedirectResponse(f"{LOGIN_PATH}?next={quote(scope['path'])}", 303)
        return _unauthorized()

    def _wrong_token(self, peer: str) -> Response:
        """The answer to a wrong token; after some from the same address, the client is asked to wait."""
        assert self._login is not None
        wait = self._login.wrong_token_wait(peer)
        if wait:
            return error_response(
                429, "unauthorized", "too many wrong tokens from this address", retry_after(wait)
            )
        return _unauthorized()

    def _is_known(self, host: str) -> bool:
        """Whether a host name is the server's.

        If the server listens on all interfaces, every address is: another site can claim a name, but not an
        address.
        """
        name = host_name(host).casefold()
        if name in self._hosts or is_loopback(name):
            return True
        if self.settings.host not in ALL_INTERFACES:
            return False
        try:
            return ip_address(name) is not None
        except ValueError:
            return False

    def _longest_body(self, scope: Scope) -> int:
        """The most bytes that a request may have: more if it pushes rows."""
        is_push = PUSH_PATH.fullmatch(scope["path"]) is not None
        return self.settings.limits.push_body if is_push else self.settings.limits.body

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the request has more than {self._longest_body(scope):,} bytes"
        await error_response(413, "limit", message, {"Connection": "close"})(scope, receive, send)


def _unauthorized() -> Response:
    message = "this server needs a token: send Authorization: Bearer ..."
    return error_response(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


def host_name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> host_name("localhost:8710"), host_name("[::1]:80"), host_name("example.org")
    ('localhost', '::1', 'example.org')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_same_site(headers: Headers, host: str) -> bool:
    """Whether a request comes from the server's own dashboard, or from no web page at all."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    try:
        source, target = urlsplit(origin), urlsplit(f"//{host}")
        default_port = {"http": 80, "https": 443}.get(source.scheme)
        same_port = (target.port or default_port) == (source.port or default_port)
        return default_port is not None and same_port and source.hostname == target.hostname
    except ValueError:
        return False


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> Receive:
    """Read the whole body before the app sees the request, and return it as a single message."""
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise TooLarge
    parts, total, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        total += len(parts[-1])
        if total > limit:
            raise TooLarge
        more = message.get("more_body", False)
    messages: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def receive_whole() -> Message:
        return messages.pop() if messages else await receive()

    return receive_whole


def _with_headers(send: Send, path: str) -> Send:
    is_api = path.startswith("/api/") or path in ("/metrics", "/openapi.json")

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Content-Security-Policy", API_POLICY if is_api else DASHBOARD_POLICY)
            if is_api:
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return with_headers


async def _close(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})
