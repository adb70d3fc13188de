"""Authentication by token: in a header, or for browsers by a cookie that a sign-in form sets."""

from __future__ import annotations

import hashlib
import hmac
import html
import time
from collections.abc import Sequence
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from transom.server.rate_limits import RateLimiter, address_group, retry_after
from transom.server.roles import CLIENT_KEY, LOCAL_CLIENT, AccessToken, ApiClient

LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"
COOKIE = "transom_session"
SESSION_DAYS = 30
WRONG_TOKENS = 10  # in a minute from one address; further wrong ones get 429 instead of 401
WRONG_TOKEN_SECONDS = 60.0
LONGEST_FORM = 4096  # bytes

FORM = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transom: sign in</title>
<link rel="icon" href="data:,">
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


class WrongTokenError(Exception):
    """A request has a token that is none of the server's."""


class Login:
    """Checks tokens and session cookies, and serves the sign-in form."""

    def __init__(self, tokens: Sequence[AccessToken], body_limit: int):
        self._tokens, self._form_limit = tokens, min(body_limit, LONGEST_FORM)
        self._guesses = RateLimiter(WRONG_TOKENS / WRONG_TOKEN_SECONDS, WRONG_TOKENS)

    @staticmethod
    def handles(path: str) -> bool:
        """Whether a path is one of the sign-in paths."""
        return path in (LOGIN_PATH, LOGOUT_PATH)

    def client_of(self, headers: Headers) -> ApiClient | None:
        """The client whose token or session a request has; None if it has neither.

        WrongTokenError if the request has a wrong token. An expired session counts as none.
        """
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer":
            token = self._token_of(secret.strip())
            if token is None:
                raise WrongTokenError
            return ApiClient(token.name, token.role)
        session = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return None if session is None else self._session_client(session)

    def wrong_token_wait(self, peer: str) -> float:
        """Count a wrong token from an address; return the seconds until the next one gets an ordinary answer.

        A right token is accepted meanwhile, from any address.
        """
        return self._guesses.wait(peer)

    def _token_of(self, secret: str) -> AccessToken | None:
        # All tokens are compared, so that the time of an answer does not depend on which one matches.
        matching = [token for token in self._tokens if _equal(secret, token.secret)]
        return matching[0] if matching else None

    def _session_client(self, value: str) -> ApiClient | None:
        until = value.partition(".")[0]
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return None
        matching = [token for token in self._tokens if _equal(value, session(token, int(until)))]
        if not matching or int(until) <= time.time():
            return None
        return ApiClient(matching[0].name, matching[0].role)

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
        signed_in = self._token_of(token)
        if signed_in is None:
            wait = self.wrong_token_wait(peer_of(request.scope))
            if wait:
                answer = sign_in_form(target, "Too many wrong tokens. Try again in a minute.", 429)
                answer.headers.update(retry_after(wait))
                return answer
            return sign_in_form(target, "That is not the token.", 401)
        redirect = RedirectResponse(same_site_path(target), 303)
        redirect.set_cookie(
            COOKIE,
            session(signed_in, int(time.time()) + SESSION_DAYS * 86_400),
            max_age=SESSION_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return redirect


def session(token: AccessToken, until: int) -> str:
    """A cookie's value: its expiry time, signed with a token."""
    signature = hmac.new(token.secret.encode(), f"transom session {until}".encode(), hashlib.sha256)
    return f"{until}.{signature.hexdigest()}"


def peer_of(scope: Scope) -> str:
    """The address that a request comes from; a proxy on this machine reports it in X-Forwarded-For."""
    client = scope.get("client")
    return address_group(str(client[0])) if client else ""


def rate_key(scope: Scope) -> str:
    """The name under which a request is counted: its token's, or the address that it comes from."""
    client: ApiClient | None = scope.get(CLIENT_KEY)
    is_named = client is not None and client is not LOCAL_CLIENT
    return f"token {client.name}" if client is not None and is_named else f"address {peer_of(scope)}"


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
