"""The guard: names, pages, tokens and sizes, in front of an app that would answer anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from transom.errors import SettingError
from transom.server import login
from transom.server.access import Guard, host_name
from transom.server.limits import ServiceLimits
from transom.server.rate_limits import RateLimiter
from transom.server.roles import AccessToken, Role
from transom.server.settings import ServerSettings, server_settings

TOKEN = "correct-horse-battery"
HTML = {"Accept": "text/html"}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body and the path."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{len(body)} {scope['path']}")(scope, receive, send)


def ask(
    method: str = "GET",
    path: str = "/api/status",
    headers: dict[str, str] | None = None,
    content: Any = None,
    guard: Guard | None = None,
    peer: str = "127.0.0.1",
    **settings: Any,
) -> httpx.Response:
    """What the guard makes of a request."""
    app = guard or Guard(echo, ServerSettings(**settings))

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, client=(peer, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8710") as client:
            return await client.request(method, path, headers=headers, content=content)

    return asyncio.run(answer())


HOSTS = [
    ("its own address", {}, "127.0.0.1:8710", 200),
    ("localhost", {}, "localhost:1", 200),
    ("loopback of version 6", {}, "[::1]:8710", 200),
    ("another name for this machine", {}, "rebound.example:8710", 403),
    ("another address", {}, "10.0.0.1", 403),
    ("no name", {}, "", 403),
    ("a name that is none", {}, "[::1", 403),
    ("a name that was allowed", {"hosts": ("transom.example",)}, "Transom.example", 200),
    ("the bound name", {"host": "box.example", "token": TOKEN}, "box.example:80", 200),
    ("an address of a server that listens on all", {"host": "0.0.0.0", "token": TOKEN}, "10.0.0.1:80", 200),
    ("a name of a server that listens on all", {"host": "0.0.0.0", "token": TOKEN}, "rebound.example", 403),
]


@pytest.mark.parametrize(("settings", "host", "status"), [c[1:] for c in HOSTS], ids=[c[0] for c in HOSTS])
def test_requests_come_by_a_name_of_the_server(settings: dict[str, Any], host: str, status: int) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    told = ask(headers=headers, **settings)
    assert told.status_code == status
    if status == 403:
        assert told.json()["error"]["kind"] == "forbidden"


ORIGINS = [
    ("a program posts", "POST", "/api/queries", {}, 200),
    ("its own page posts", "POST", "/api/queries", {"Origin": "http://127.0.0.1:8710"}, 200),
    ("a page of another site posts", "POST", "/api/queries", {"Origin": "http://evil.example"}, 403),
    ("a page of another port posts", "POST", "/api/queries", {"Origin": "http://127.0.0.1:80"}, 403),
    ("a page without origin posts", "POST", "/api/queries", {"Origin": "null"}, 403),
    ("a page of a file posts", "POST", "/api/queries", {"Origin": "file://127.0.0.1:8710"}, 403),
    ("an old form of another site posts", "POST", "/x", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("another site's page reads the API", "GET", "/api/status", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("another site links to the page", "GET", "/queries", {"Sec-Fetch-Site": "cross-site"}, 200),
    ("another site drops a query", "DELETE", "/api/queries/x", {"Origin": "http://evil.example"}, 403),
]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"), [c[1:] for c in ORIGINS], ids=[c[0] for c in ORIGINS]
)
def test_requests_come_from_its_own_page(
    method: str, path: str, headers: dict[str, str], status: int
) -> None:
    assert ask(method, path, headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "opened"),
    [
        ({"origin": "http://127.0.0.1:8710", "authorization": f"Bearer {TOKEN}"}, True),
        ({"origin": "http://evil.example", "authorization": f"Bearer {TOKEN}"}, False),
        ({"origin": "http://127.0.0.1:8710"}, False),
        ({"host": "rebound.example", "authorization": f"Bearer {TOKEN}"}, False),
    ],
    ids=["its own page", "another site's", "without a token", "by another name"],
)
def test_websockets_are_guarded_too(headers: dict[str, str], opened: bool) -> None:
    sent: list[str] = []

    async def accept(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    whole = {"host": "127.0.0.1:8710"} | headers
    scope = {
        "type": "websocket",
        "path": "/_nicegui_ws/socket.io/",
        "headers": [(name.encode(), value.encode()) for name, value in whole.items()],
    }
    asyncio.run(Guard(accept, ServerSettings(token=TOKEN))(scope, receive, send))
    assert sent == ["websocket.accept" if opened else "websocket.close"]


TOKENS = [
    ("none", {}, 401),
    ("the right one", {"Authorization": f"Bearer {TOKEN}"}, 200),
    ("the right one, however bearer is spelled", {"Authorization": f"bearer {TOKEN}"}, 200),
    ("a wrong one", {"Authorization": "Bearer correct-horse-batterx"}, 401),
    ("a part of it", {"Authorization": "Bearer correct"}, 401),
    ("an empty one", {"Authorization": "Bearer "}, 401),
    ("signs that are not ASCII", {"Authorization": "Bearer \u00e4\u00e4"}, 401),
    ("the token as a cookie", {"Cookie": f"transom_session={TOKEN}"}, 401),
    ("a cookie of nonsense", {"Cookie": "transom_session=1.2.3; ;;=="}, 401),
    (
        "a cookie that is over",
        {"Cookie": f"transom_session={login.session(AccessToken('default', TOKEN), 1)}"},
        401,
    ),
]


@pytest.mark.parametrize(("headers", "status"), [c[1:] for c in TOKENS], ids=[c[0] for c in TOKENS])
def test_a_token_is_asked_for(headers: dict[str, str], status: int) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    told = ask(headers=raw, token=TOKEN)  # type: ignore[arg-type]
    assert told.status_code == status
    if status == 401:
        assert told.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in told.text


def test_health_needs_no_token_and_metrics_do() -> None:
    assert ask(path="/healthz", token=TOKEN).status_code == 200
    assert ask(path="/readyz", token=TOKEN).status_code == 200
    assert ask(path="/metrics", token=TOKEN).status_code == 401


class TestSigningIn:
    def test_a_browser_is_sent_to_the_form_and_back(self) -> None:
        guard = Guard(echo, ServerSettings(token=TOKEN))
        sent = ask(path="/query/a%20b", headers=HTML, guard=guard)
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/query/a%20b")
        form = ask(path=sent.headers["location"], headers=HTML, guard=guard)
        assert 'value="/query/a b"' in form.text
        signed = ask("POST", "/login", content=f"token={TOKEN}&next=/query/x", guard=guard)
        assert (signed.status_code, signed.headers["location"]) == (303, "/query/x")
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
        value = {"Cookie": cookie.split(";")[0]}
        assert ask(headers=value, guard=guard).status_code == 200
        left = ask("POST", "/logout", headers=value, guard=guard)
        assert 'transom_session=""' in left.headers["set-cookie"]

    def test_wrong_tokens_are_limited_by_address_and_the_right_one_is_always_accepted(self) -> None:
        guard = Guard(echo, ServerSettings(token=TOKEN))
        guesses = [ask("POST", "/login", content="token=wrong", guard=guard) for _ in range(11)]
        assert [told.status_code for told in guesses] == [401] * 10 + [429]
        assert 1 <= int(guesses[-1].headers["retry-after"]) <= 60
        elsewhere = ask("POST", "/login", content="token=wrong", guard=guard, peer="10.0.0.2")
        assert elsewhere.status_code == 401
        assert ask("POST", "/login", content=f"token={TOKEN}", guard=guard).status_code == 303
        assert ask(headers={"Authorization": f"Bearer {TOKEN}"}, guard=guard).status_code == 200

    def test_wrong_tokens_in_headers_are_limited_too(self) -> None:
        guard = Guard(echo, ServerSettings(token=TOKEN))
        wrong = {"Authorization": "Bearer wrong"}
        guesses = [ask(headers=wrong, guard=guard) for _ in range(11)]
        assert [told.status_code for told in guesses] == [401] * 10 + [429]
        assert ask(headers=wrong, guard=guard, peer="10.0.0.2").status_code == 401
        assert ask(headers={"Authorization": f"Bearer {TOKEN}"}, guard=guard).status_code == 200
        assert ask(guard=guard).status_code == 401  # a request without a token is no guess
        assert ask(path="/healthz", headers=wrong, guard=guard).status_code == 200

    @pytest.mark.parametrize(
        "after", ["https://evil.example", "//evil.example", "/\\evil.example", "x", "/a\n"]
    )
    def test_it_leads_nowhere_else(self, after: str) -> None:
        told = ask(
            "POST", "/login", content=httpx.QueryParams(token=TOKEN, next=after).__str__(), token=TOKEN
        )
        assert told.headers["location"] == "/"

    def test_the_page_brings_its_icon_because_the_server_s_needs_a_token(self) -> None:
        assert '<link rel="icon" href="data:,">' in ask(path="/login", token=TOKEN).text
        assert ask(path="/favicon.ico", token=TOKEN).status_code == 401

    def test_what_was_typed_is_not_written_into_the_page(self) -> None:
        told = ask(path='/login?next=/"><script>', token=TOKEN)
        assert "<script>" not in told.text
        assert ask("POST", "/login", content="token=" + "x" * 5000, token=TOKEN).status_code == 413
        assert (
            ask("GET", "/logout", headers={"Authorization": f"Bearer {TOKEN}"}, token=TOKEN).status_code
            == 405
        )

    def test_another_site_can_not_sign_a_browser_in(self) -> None:
        headers = {"Origin": "http://evil.example"}
        assert ask("POST", "/login", headers, f"token={TOKEN}", token=TOKEN).status_code == 403

    def test_sessions_of_another_token_are_none(self) -> None:
        other = login.session(AccessToken("default", "another-token-of-it"), int(time.time()) + 100)
        assert ask(headers={"Cookie": f"transom_session={other}"}, token=TOKEN).status_code == 401


async def _parts(size: int) -> AsyncIterator[bytes]:
    for _ in range(size):
        yield b"x"


class TestBodies:
    small = ServiceLimits(body=10)

    def test_one_that_is_just_small_enough_comes_through_whole(self) -> None:
        assert ask("POST", content=b"x" * 10, limits=self.small).text == "10 /api/status"
        assert ask("POST", content=_parts(10), limits=self.small).text == "10 /api/status"

    @pytest.mark.parametrize("content", [b"x" * 11, "chunked"], ids=["of a known length", "in chunks"])
    def test_one_that_is_too_large_does_not(self, content: Any) -> None:
        told = ask("POST", content=_parts(11) if content == "chunked" else content, limits=self.small)
        assert (told.status_code, told.json()["error"]["kind"]) == (413, "limit")

    def test_a_length_that_is_none_is_counted(self) -> None:
        told = ask("POST", headers={"Content-Length": "-1"}, content=b"x" * 11, limits=self.small)
        assert told.status_code == 413


def test_answers_carry_what_browsers_need_to_be_careful() -> None:
    api, page = ask().headers, ask(path="/").headers
    for headers in (api, page, ask(headers={"Host": "x.example"}).headers):
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"
    assert api["content-security-policy"].startswith("default-src 'none'")
    assert api["cache-control"] == "no-store"
    assert "https:" not in page["content-security-policy"]


class TestRates:
    """Requests are counted by token, or else by address."""

    few = ServiceLimits(request_rate=1, request_burst=3)

    def statuses(self, guard: Guard, count: int, **request: Any) -> list[int]:
        return [ask(guard=guard, **request).status_code for _ in range(count)]

    def test_a_client_beyond_its_rate_is_asked_to_wait(self) -> None:
        guard = Guard(echo, ServerSettings(limits=self.few))
        assert self.statuses(guard, 4) == [200, 200, 200, 429]
        told = ask(guard=guard)
        assert (told.json()["error"]["kind"], told.headers["retry-after"]) == ("limit", "1")
        assert self.statuses(guard, 1, peer="10.0.0.2") == [200]

    def test_tokens_are_counted_apart_from_each_other_and_from_addresses(self) -> None:
        tokens = (AccessToken("ops", TOKEN), AccessToken("grafana", "another-token-of-it", Role.READ))
        guard = Guard(echo, ServerSettings(tokens=tokens, limits=self.few))
        assert self.statuses(guard, 4, path="/healthz") == [200, 200, 200, 429]
        for token in tokens:
            headers = {"Authorization": f"Bearer {token.secret}"}
            assert self.statuses(guard, 4, headers=headers) == [200, 200, 200, 429]

    def test_files_of_the_dashboard_are_not_counted(self) -> None:
        guard = Guard(echo, ServerSettings(limits=self.few))
        assert self.statuses(guard, 9, path="/_nicegui/3/vue.js") == [200] * 9

    def test_a_bucket_fills_again(self) -> None:
        now = 100.0
        limiter = RateLimiter(rate=2, burst=2, clock=lambda: now)
        assert [limiter.wait("a") for _ in range(3)] == [0, 0, 0.5]
        now += 0.25
        assert limiter.wait("a") == 0.25
        now += 0.25
        assert [limiter.wait("a") for _ in range(2)] == [0, 0.5]
        now += 3600
        assert [limiter.wait("a") for _ in range(3)] == [0, 0, 0.5]


class TestSettings:
    def test_nobody_listens_beyond_this_machine_without_a_token(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TRANSOM_TOKEN", raising=False)
        for host in ("0.0.0.0", "::", "box.example", "10.0.0.1"):
            with pytest.raises(SettingError, match="the server needs a token"):
                server_settings({"host": host}, {})
        assert server_settings({"host": "::1"}, {}).token is None
        assert len(server_settings({"host": "0.0.0.0"}, {}, generate_token=True).token or "") > 30

    def test_the_token_is_of_a_file_or_the_environment(self, tmp_path: Any, monkeypatch: Any) -> None:
        monkeypatch.setenv("TRANSOM_TOKEN", TOKEN)
        assert server_settings({}, {}).token == TOKEN
        file = tmp_path / "token"
        file.write_text("another-token-of-it\n")
        assert server_settings({}, {"token_file": str(file)}).token == "another-token-of-it"
        file.write_text("short")
        with pytest.raises(SettingError, match="at least 16"):
            server_settings({}, {"token_file": str(file)})
        with pytest.raises(SettingError, match="can't read the token file"):
            server_settings({}, {"token_file": str(tmp_path / "none")})

    def test_the_command_line_goes_before_the_file(self) -> None:
        made = server_settings({"port": 1, "rows": 7, "hosts": ["a"]}, {"port": 2, "host": None})
        assert (made.port, made.host, made.hosts, made.limits.rows) == (2, "127.0.0.1", ("a",), 7)

    def test_the_token_is_not_shown(self) -> None:
        assert TOKEN not in repr(ServerSettings(token=TOKEN))
        assert TOKEN not in repr(ServerSettings(tokens=(AccessToken("ops", TOKEN),)))

    def test_tokens_with_roles_are_of_files_and_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TRANSOM_TOKEN", raising=False)
        monkeypatch.setenv("OPS", TOKEN)
        file = tmp_path / "token"
        file.write_text("another-token-of-it\n")
        entries = [
            {"name": "ops", "role": "admin", "token_env": "OPS"},
            {"name": "grafana", "role": "read", "token_file": str(file)},
        ]
        made = server_settings({"host": "0.0.0.0", "tokens": entries}, {})
        assert made.access_tokens == (
            AccessToken("ops", TOKEN, Role.ADMIN),
            AccessToken("grafana", "another-token-of-it", Role.READ),
        )
        monkeypatch.setenv("TRANSOM_TOKEN", "the-token-without-a-name")
        first = server_settings({"tokens": entries}, {}).access_tokens[0]
        assert (first.name, first.role) == ("default", Role.ADMIN)

    @pytest.mark.parametrize(
        ("entries", "says"),
        [
            ([{"name": "a", "role": "root", "token_env": "OPS"}], "the role is one of read, register, admin"),
            ([{"name": "a", "role": "read"}], "give its token_file or its token_env"),
            ([{"name": "a", "role": "read", "token_env": "UNSET"}], "the token a: UNSET is empty"),
            ([{"name": "a", "role": "read", "token_env": "SHORT"}], "the token a: .* at least 16"),
            ([{"name": "a/b", "role": "read", "token_env": "OPS"}], "not a token's name"),
            ([{"name": name, "role": "read", "token_env": "OPS"} for name in "ab"], "the same secret"),
        ],
    )
    def test_wrong_tokens_are_reported(
        self, entries: list[dict[str, str]], says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPS", TOKEN)
        monkeypatch.setenv("SHORT", "short")
        with pytest.raises(SettingError, match=says) as raised:
            server_settings({"tokens": entries}, {})
        assert TOKEN not in str(raised.value)

    def test_names_are_read_from_headers(self) -> None:
        assert [host_name(host) for host in ("A:1", "[::1]", "a@b:1", "")] == ["a", "::1", "b", ""]
