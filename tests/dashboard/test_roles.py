"""What the role of a token allows in the dashboard."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

import transom.dashboard
from tests.dashboard.fake_service import FakeService, query, stream
from transom.api.errors import RoleError
from transom.dashboard import mount
from transom.dashboard.actions import Actions
from transom.server.access import Guard
from transom.server.roles import AccessToken, ApiClient, Role
from transom.server.settings import ServerSettings

TOKENS = {role: AccessToken(role.value, f"the-secret-of-{role}-tokens", role) for role in Role}
ARGUMENTS = {
    "check": ("SELECT",),
    "register": ("SELECT", "q"),
    "preview": ("SELECT",),
    "end_preview": ("q",),
    "prod": ("q",),
    "tune": ("q", 0.5),
    "edit": ("q", "SELECT", True),
    "change": ("q", "q", "", [], {}),
    "pause": ("q",),
    "resume": ("q",),
    "drop": ("q",),
    "silence": ([], "1 hour"),
    "unsilence": ("abc",),
}
PASSED_ON = {
    "change": ("q", "q", "", [], None, {}),  # it neither pauses nor resumes
    "silence": ([], "1 hour", None, "ops", "from the dashboard"),
}
OF_ALERTS = ("silence", "unsilence")


@contextmanager
def browser(role: Role) -> Iterator[TestClient]:
    """A browser in front of a guarded dashboard, with the token of a role."""
    app = FastAPI()
    mount(app, FakeService(query("q"), streams=(stream(),)))
    app.add_middleware(Guard, settings=ServerSettings(tokens=tuple(TOKENS.values())))
    headers = {"Authorization": f"Bearer {TOKENS[role].secret}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


@pytest.mark.parametrize("role", Role)
def test_the_editor_needs_the_role_register(role: Role) -> None:
    with browser(role) as client:
        answer = client.get("/new")
        assert answer.status_code == (403 if role is Role.READ else 200)
        assert ("This token may only read" in answer.text) == (role is Role.READ)


@pytest.mark.parametrize("role", Role)
def test_a_reader_sees_no_buttons_that_change_something(role: Role) -> None:
    with browser(role) as client:
        assert ("read-only" in client.get("/query/q").text) == (role is Role.READ)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("role", Role)
def test_each_action_checks_the_role(role: Role, name: str) -> None:
    service = Mock()
    action = getattr(Actions(service, ApiClient("ops", role)), name)
    if role is Role.READ:
        with pytest.raises(RoleError, match="the token ops has the role read"):
            action(*ARGUMENTS[name])
        assert not service.method_calls
    else:
        action(*ARGUMENTS[name])
        owner = service.alerts if name in OF_ALERTS else service
        getattr(owner, name).assert_called_once_with(*PASSED_ON.get(name, ARGUMENTS[name]))


def test_views_change_nothing_except_through_actions() -> None:
    methods = {
        name for name, _ in inspect.getmembers(Actions, inspect.isfunction) if not name.startswith("_")
    }
    assert methods == ARGUMENTS.keys()
    changing = methods | {"register_all", "prod_all", "create_summary", "drop_summary", "start", "stop"}
    for file in Path(transom.dashboard.__path__[0]).glob("*.py"):
        if file.name == "actions.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in changing:
                assert not ast.unparse(node.value).endswith("service"), f"{file.name}: {ast.unparse(node)}"
