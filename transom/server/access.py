"""Who may come in: one middleware in front of the API and the page.

It looks at the name that a request came by (a page of another site may have made its own name point here),
at the page that it came from, at the token, and at the size of the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.server.error_responses import failure
from transom.server.login import LOGIN, Login
from transom.server.route_helpers import path_segments
from transom.server.settings import ServerSettings, is_loopback

SAFE = ("GET", "HEAD", "OPTIONS")
SPOKEN = ("/api/", "/_nicegui_ws")  # what programs read, and not people
OPEN = ("/healthz", "/readyz", LOGIN)  # need no token
ANYWHERE = ("0.0.0.0", "::", "")

# NiceGUI compiles its templates in the browser, and writes scripts and styles into the page.
PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers would also hide where a form comes from, and /login could not tell.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class TooLarge(Exception):
    """A request's body is larger than is granted."""


class Guard:
    """Lets requests through that may come in, and answers the others itself."""

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self.app, self.settings = app, settings
        self._hosts = {name.casefold() for name in (settings.host, *settings.hosts)}
        self._login = None if settings.token is None else Login(settings.token, settings.limits.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        if scope.get("raw_path"):
            scope["path"] = path_segments(scope["raw_path"])
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if scope["type"] == "websocket":
            return await (self.app(scope, receive, send) if refused is None else _close(receive, send))
        send = _with_headers(send, scope["path"])
        if refused is not None:
            return await refused(scope, receive, send)
        if self._login is not None and self._login.is_for(scope["path"]):
            return await self._login(scope, receive, send)
        if scope["method"] not in SAFE:
            try:
                receive = await read_body(headers, receive, self.settings.limits.body)
            except TooLarge:
                return await self._too_large(scope, receive, send)
        await self.app(scope, receive, send)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that may not come in; None: it may."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return failure(403, "forbidden", "the request came by a name that is not this server's own")
        unsafe = scope["type"] == "websocket" or scope["method"] not in SAFE
        if (unsafe or scope["path"].startswith(SPOKEN)) and not _is_own(headers, host):
            return failure(403, "forbidden", "the request came from a page of another site")
        if scope["path"] in OPEN or self._login is None or self._login.admits(headers):
            return None
        if scope["type"] == "http" and "text/html" in headers.get("accept", ""):
            return RedirectResponse(f"{LOGIN}?next={quote(scope['path'])}", 303)
        wanted = {"WWW-Authenticate": "Bearer"}
        return failure(401, "unauthorized", "a token is needed: Authorization: Bearer ...", wanted)

    def _is_known(self, host: str) -> bool:
        """Whether a name is the server's own; an address is, if it listens on all: no site can claim it."""
        name = host_name(host).casefold()
        if name in self._hosts or is_loopback(name):
            return True
        if self.settings.host not in ANYWHERE:
            return False
        try:
            return ip_address(name) is not None
        except ValueError:
            return False

    async def _too_large(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self.settings.limits.body
        answer = failure(413, "limit", f"the request has more than {most:,} bytes", {"Connection": "close"})
        await answer(scope, receive, send)


def host_name(host: str) -> str:
    """A Host header's name, without the port.

    >>> host_name("localhost:8710"), host_name("[::1]:80"), host_name("example.org")
    ('localhost', '::1', 'example.org')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_own(headers: Headers, host: str) -> bool:
    """Whether a request comes from the server's own page, or from no page at all."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    try:
        came = urlsplit(origin)
        default = {"http": 80, "https": 443}.get(came.scheme)
        own = urlsplit(f"//{host}")
        same_port = (own.port or default) == (came.port or default)
        return default is not None and same_port and came.hostname == own.hostname
    except ValueError:
        return False


async def read_body(headers: Mapping[str, str], receive: Receive, most: int) -> Receive:
    """The body, read to its end before anybody looks at it, and given back as one message."""
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > most:
        raise TooLarge
    parts, total, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        total += len(parts[-1])
        if total > most:
            raise TooLarge
        more = message.get("more_body", False)
    whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again


def _with_headers(send: Send, path: str) -> Send:
    api = path.startswith("/api/") or path in ("/metrics", "/openapi.json")

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Content-Security-Policy", API_POLICY if api else PAGE_POLICY)
            if api:
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return with_headers


async def _close(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})
