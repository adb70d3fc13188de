"""The token: by header, or by a cookie that a small form sets for browsers."""

from __future__ import annotations

import hashlib
import hmac
import html
import time
from collections import deque
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

LOGIN, LOGOUT = "/login", "/logout"
COOKIE = "transom_session"
DAYS = 30  # for which a browser stays
GUESSES = 10  # wrong ones in a minute, before nobody is asked any more for a while
MINUTE = 60.0
LONGEST = 4096  # bytes of the form

FORM = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transom: sign in</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid;
  place-items: center; background: light-dark(#f6f7f9, #14171c); color: light-dark(#1b2230, #e7eaf0); }}
form {{ width: min(22rem, 90vw); display: grid; gap: .75rem; }}
h1 {{ font-size: 1.25rem; margin: 0; }}
input, button {{ font: inherit; padding: .6rem .75rem; border-radius: 6px; }}
input {{ border: 1px solid light-dark(#68738a, #8b95a8); background: light-dark(#fff, #1d222a);
  color: inherit; }}
button {{ border: 0; background: #1f5fbf; color: #fff; cursor: pointer; }}
.error {{ color: light-dark(#a3241b, #ff9d94); margin: 0; }}
</style>
</head>
<body>
<main><form method="post" action="/login">
<h1>Transom</h1>
<label for="token">This server asks for its token.</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus
 aria-describedby="error">
<input type="hidden" name="next" value="{next}">
<p class="error" id="error" role="alert">{error}</p>
<button>Sign in</button>
</form></main>
</body>
</html>
"""


class Login:
    """Knows the token, and who has shown it."""

    def __init__(self, token: str, longest: int):
        self._token, self._longest = token, min(longest, LONGEST)
        self._wrong: deque[float] = deque(maxlen=GUESSES)

    @staticmethod
    def is_for(path: str) -> bool:
        return path in (LOGIN, LOGOUT)

    def admits(self, headers: Headers) -> bool:
        """Whether a request shows the token, or a cookie that was given for it."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer":
            return _same(given.strip(), self._token)
        found = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return found is not None and self._is_session(found)

    def _session(self, until: int) -> str:
        """A cookie's value: until when it is good, signed with the token."""
        signed = hmac.new(self._token.encode(), f"transom session {until}".encode(), hashlib.sha256)
        return f"{until}.{signed.hexdigest()}"

    def _is_session(self, value: str) -> bool:
        until = value.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return False
        return _same(value, self._session(int(until))) and int(until) > time.time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer /login and /logout."""
        request = Request(scope, receive)
        if request.method == "POST" and scope["path"] == LOGOUT:
            answer: Response = RedirectResponse(LOGIN, 303)
            answer.delete_cookie(COOKIE)
        elif request.method == "POST":
            answer = await self._sign_in(request)
        elif request.method in ("GET", "HEAD") and scope["path"] == LOGIN:
            answer = form(request.query_params.get("next", "/"))
        else:
            answer = Response(status_code=405, headers={"Allow": "POST"})
        answer.headers["Cache-Control"] = "no-store"
        await answer(scope, receive, send)

    async def _sign_in(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._longest:
                return form("/", "That is too long for a token.", 413)
        given = parse_qs(body.decode("utf-8", "replace"))
        token, after = given.get("token", [""])[0].strip(), given.get("next", ["/"])[0]
        now = time.monotonic()
        if len(self._wrong) == GUESSES and now - self._wrong[0] < MINUTE:
            return form(after, "Too many wrong tokens. Try again in a minute.", 429)
        if not _same(token, self._token):
            self._wrong.append(now)
            return form(after, "That is not the token.", 401)
        answer = RedirectResponse(own_path(after), 303)
        answer.set_cookie(
            COOKIE,
            self._session(int(time.time()) + DAYS * 86_400),
            max_age=DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def form(after: str, error: str = "", status: int = 200) -> HTMLResponse:
    """The form that asks for the token."""
    return HTMLResponse(FORM.format(next=html.escape(own_path(after)), error=html.escape(error)), status)


def own_path(path: str) -> str:
    """A path on this server; anything else is its start.

    >>> own_path("/query/per_site"), own_path("//example.org"), own_path("https://example.org")
    ('/query/per_site', '/', '/')
    """
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_own else "/"


def _same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(one.encode(), other.encode())
