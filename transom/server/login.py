"""Token authentication: by header, or for browsers by a cookie that a sign-in form sets."""

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

LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"
COOKIE = "transom_session"
SESSION_DAYS = 30
WRONG_TOKENS = 10  # in a minute; then the form refuses all tokens for a while
WRONG_TOKEN_SECONDS = 60.0
LONGEST_FORM = 4096  # bytes

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
<label for="token">This server needs a token.</label>
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
    """Checks tokens and session cookies, and serves the sign-in form."""

    def __init__(self, token: str, body_limit: int):
        self._token, self._form_limit = token, min(body_limit, LONGEST_FORM)
        self._wrong: deque[float] = deque(maxlen=WRONG_TOKENS)  # when wrong tokens came

    @staticmethod
    def handles(path: str) -> bool:
        """Whether a path is one of the sign-in paths."""
        return path in (LOGIN_PATH, LOGOUT_PATH)

    def admits(self, headers: Headers) -> bool:
        """Whether a request has the token or a valid session cookie."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer":
            return _equal(token.strip(), self._token)
        session = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return session is not None and self._is_session(session)

    def session(self, until: int) -> str:
        """A cookie's value: its expiry time, signed with the token."""
        signature = hmac.new(self._token.encode(), f"transom session {until}".encode(), hashlib.sha256)
        return f"{until}.{signature.hexdigest()}"

    def _is_session(self, value: str) -> bool:
        until = value.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return False
        return _equal(value, self.session(int(until))) and int(until) > time.time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer /login and /logout."""
        request = Request(scope, receive)
        if request.method == "POST" and scope["path"] == LOGOUT_PATH:
            answer: Response = RedirectResponse(LOGIN_PATH, 303)
            answer.delete_cookie(COOKIE)
        elif request.method == "POST":
            answer = await self._sign_in(request)
        elif request.method in ("GET", "HEAD") and scope["path"] == LOGIN_PATH:
            answer = sign_in_form(request.query_params.get("next", "/"))
        else:
            answer = Response(status_code=405, headers={"Allow": "POST"})
        answer.headers["Cache-Control"] = "no-store"
        await answer(scope, receive, send)

    async def _sign_in(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._form_limit:
                return sign_in_form("/", "That is too long for a token.", 413)
        fields = parse_qs(body.decode("utf-8", "replace"))
        token, target = fields.get("token", [""])[0].strip(), fields.get("next", ["/"])[0]
        now = time.monotonic()
        if len(self._wrong) == WRONG_TOKENS and now - self._wrong[0] < WRONG_TOKEN_SECONDS:
            return sign_in_form(target, "Too many wrong tokens. Try again in a minute.", 429)
        if not _equal(token, self._token):
            self._wrong.append(now)
            return sign_in_form(target, "That is not the token.", 401)
        answer = RedirectResponse(same_site_path(target), 303)
        answer.set_cookie(
            COOKIE,
            self.session(int(time.time()) + SESSION_DAYS * 86_400),
            max_age=SESSION_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def sign_in_form(target: str, error: str = "", status: int = 200) -> HTMLResponse:
    """The form that asks for the token, and then leads to a path on this server."""
    return HTMLResponse(
        FORM.format(next=html.escape(same_site_path(target)), error=html.escape(error)), status
    )


def same_site_path(path: str) -> str:
    """A path on this server; anything else becomes "/".

    >>> same_site_path("/query/per_site"), same_site_path("//example.org"), same_site_path("https://example.org")
    ('/query/per_site', '/', '/')
    """
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_local else "/"


def _equal(secret: str, other: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(secret.encode(), other.encode())
