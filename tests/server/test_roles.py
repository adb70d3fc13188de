"""Roles: every route has one, and the server keeps to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from tests.engine_factory import EngineFactory
from tests.server.server_helpers import Backend, backend, error, fill, served_with
from transom.server.app import make_app
from transom.server.roles import AccessToken, Role
from transom.server.route_helpers import RoleContext
from transom.server.service import Service
from transom.server.settings import ServerSettings

TOKENS = {role: AccessToken(f"{role}er", f"the-secret-of-{role}-tokens", role) for role in Role}
NAME, STREAM = "/api/queries/{name}", "/api/streams/{stream}"

# The least role that each route needs; None: it needs no token.
ROLES: dict[tuple[str, str], Role | None] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): Role.READ,
    ("GET", "/api"): Role.READ,
    ("GET", "/api/status"): Role.READ,
    ("GET", "/api/batches"): Role.READ,
    ("GET", "/api/checkpoint"): Role.READ,
    ("GET", "/api/tables"): Role.READ,
    ("GET", f"{STREAM}/columns"): Role.READ,
    ("GET", f"{STREAM}/sample"): Role.READ,
    ("POST", "/api/complete"): Role.READ,
    ("POST", "/api/format"): Role.READ,
    ("GET", "/api/examples"): Role.READ,
    ("GET", "/api/streams"): Role.READ,
    ("GET", STREAM): Role.READ,
    ("GET", f"{STREAM}/late"): Role.READ,
    ("GET", f"{STREAM}/rejected"): Role.READ,
    ("GET", f"{STREAM}/files"): Role.READ,
    ("POST", f"{STREAM}/rows"): Role.REGISTER,
    ("GET", "/api/explain"): Role.READ,
    ("POST", "/api/register"): Role.REGISTER,
    ("POST", "/api/check"): Role.REGISTER,
    ("POST", "/api/prod"): Role.REGISTER,
    ("POST", "/api/lookup"): Role.READ,
    ("POST", "/api/previews"): Role.REGISTER,
    ("DELETE", "/api/previews/{name}"): Role.REGISTER,
    ("GET", "/api/views"): Role.READ,
    ("POST", "/api/views"): Role.ADMIN,
    ("DELETE", "/api/views/{name}"): Role.ADMIN,
    ("GET", "/api/summaries"): Role.READ,
    ("POST", "/api/summaries"): Role.ADMIN,
    ("DELETE", "/api/summaries/{name}"): Role.ADMIN,
    ("GET", "/api/alerts"): Role.READ,
    ("GET", "/api/alerts/events"): Role.READ,
    ("GET", "/api/alerts/rules"): Role.READ,
    ("GET", "/api/alerts/sinks"): Role.READ,
    ("GET", "/api/alerts/tail"): Role.READ,
    ("PUT", "/api/alerts/rules/{name}"): Role.REGISTER,
    ("DELETE", "/api/alerts/rules/{name}"): Role.REGISTER,
    ("GET", "/api/silences"): Role.READ,
    ("POST", "/api/silences"): Role.REGISTER,
    ("DELETE", "/api/silences/{id}"): Role.REGISTER,
    ("GET", "/api/queries"): Role.READ,
    ("POST", "/api/queries"): Role.REGISTER,
    ("GET", NAME): Role.READ,
    ("PUT", NAME): Role.REGISTER,
    ("PATCH", NAME): Role.REGISTER,
    ("DELETE", NAME): Role.REGISTER,
    ("POST", f"{NAME}/resume"): Role.REGISTER,
    ("GET", f"{NAME}/results"): Role.READ,
    ("GET", f"{NAME}/export"): Role.READ,
    ("GET", f"{NAME}/tail"): Role.READ,
    ("POST", f"{NAME}/prod"): Role.REGISTER,
    ("POST", f"{NAME}/lookup"): Role.READ,
    ("GET", f"{NAME}/late"): Role.READ,
    ("GET", f"{NAME}/late/rows"): Role.READ,
    ("GET", f"{NAME}/explain"): Role.READ,
    ("GET", f"{NAME}/accuracy"): Role.READ,
    ("GET", f"{NAME}/coverage"): Role.READ,
    ("PUT", f"{NAME}/aggressiveness"): Role.REGISTER,
}


def make() -> FastAPI:
    return make_app(Service.__new__(Service), ServerSettings())


def described_routes(app: FastAPI) -> dict[tuple[str, str], set[Role]]:
    """The routes of the API's description, with the roles that their contexts check."""
    found: dict[tuple[str, str], set[Role]] = {}
    for each in iter_route_contexts(app.routes):
        route = each.original_route
        if isinstance(route, APIRoute) and route.include_in_schema:
            checks = (one.call for one in route.dependant.dependencies)
            roles = {check.role for check in checks if isinstance(check, RoleContext)}
            found |= {(method, route.path): roles for method in route.methods}
    return found


def test_every_route_has_the_role_of_the_table() -> None:
    found = described_routes(make())
    assert found == {route: set() if role is None else {role} for route, role in ROLES.items()}


def test_the_description_names_the_role_and_its_refusals() -> None:
    description = make().openapi()
    for (method, path), role in ROLES.items():
        route = description["paths"][path][method.lower()]
        if role is None:
            assert "security" not in route
        else:
            assert route["security"] == [{role.value: []}]
            assert {"401", "403", "429"} <= set(route["responses"])
    schemes = description["components"]["securitySchemes"]
    assert schemes["register"]["description"] == "a token with the role register or admin"
    assert {scheme["scheme"] for scheme in schemes.values()} == {"bearer"}


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    settings = served_with(tokens=tuple(TOKENS.values()))
    with backend(make_engine, tmp_path_factory.mktemp("roles"), settings) as made:
        fill(made)
        yield made


def send(back: Backend, method: str, path: str, role: Role | None, **options: Any) -> httpx.Response:
    """Send a request with the token of a role, without a body unless one is given."""
    headers = {} if role is None else {"Authorization": f"Bearer {TOKENS[role].secret}"}
    url = path.format(name="none", stream="none", id="none")
    with httpx.stream(method, back.served.url + url, headers=headers, timeout=60, **options) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):  # which does not end
            response.read()
    return response


@pytest.mark.parametrize("sender", [None, *Role])
@pytest.mark.parametrize(("method", "path"), ROLES)
def test_the_server_keeps_to_the_roles(back: Backend, method: str, path: str, sender: Role | None) -> None:
    needed = ROLES[method, path]
    body = {"sql": "x"} if method == "POST" else None
    response = send(back, method, path, sender, json=body)
    if needed is not None and sender is None:
        assert error(response) == (401, "unauthorized")
    elif needed is not None and sender is not None and not sender.includes(needed):
        assert error(response) == (403, "forbidden")
        message = response.json()["error"]["message"]
        assert message == f"the token {sender}er has the role {sender}; this needs the role {needed}"
    else:
        assert response.status_code not in (401, 403), path


@pytest.mark.parametrize(
    "path", ["/openapi.json", "/docs", "/api/unknown", "/metrics", "/", "/_nicegui/x.js"]
)
def test_nothing_else_is_answered_without_a_token(back: Backend, path: str) -> None:
    assert error(send(back, "GET", path, None)) == (401, "unauthorized")
    assert send(back, "GET", path, Role.READ).status_code in (200, 404)


def test_registrations_have_a_limit_of_their_own(
    make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = served_with(tokens=tuple(TOKENS.values()), registration_rate=1, registration_burst=2)
    with backend(make_engine, tmp_path_factory.mktemp("rates"), settings) as back:
        statuses = [send(back, "POST", "/api/queries", Role.REGISTER, json={"sql": "x"}) for _ in range(3)]
        assert [one.status_code for one in statuses] == [400, 400, 429]
        assert statuses[-1].headers["retry-after"] == "1"
        assert send(back, "POST", "/api/queries", Role.ADMIN, json={"sql": "x"}).status_code == 400
        assert send(back, "GET", "/api/queries", Role.REGISTER).status_code == 200


def test_health_shows_values_of_rows_only_with_a_token(
    back: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    error_text = "can't cast 'the price of Ada' to int"
    failure = property(lambda monitor: ValueError(error_text))
    monkeypatch.setattr(type(back.engine), "failure", failure)
    for path in ("/healthz", "/readyz"):
        without, reader = send(back, "GET", path, None), send(back, "GET", path, Role.READ)
        assert without.status_code == reader.status_code == 503
        assert without.json() == {"state": "failed", "failure": "ValueError"}
        assert reader.json() == {"state": "failed", "failure": error_text}


def test_health_says_without_a_token_that_a_batch_is_overdue(
    back: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(back.engine), "overdue", property(lambda engine: 7.0))
    without, reader = (send(back, "GET", "/healthz", role) for role in (None, Role.READ))
    assert without.status_code == reader.status_code == 503
    assert without.json()["failure"] == "overdue"
    assert "7 s beyond" in reader.json()["failure"]
