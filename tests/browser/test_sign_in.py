"""A server with tokens lets no user in without one, and shows each what their role allows."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, Dashboard
from transom.server.roles import AccessToken, Role
from transom.server.settings import ServerSettings

TOKEN = "correct horse battery staple"


def test_only_the_right_token_signs_in_and_signing_out_ends_the_session(
    open_dashboard: Callable[..., Dashboard],
) -> None:
    dashboard = open_dashboard(settings=ServerSettings(port=0, token=TOKEN))
    dashboard.watched.expect_problem("status of 401")
    dashboard.register(counts=COUNTS)
    page = dashboard.page
    page.goto("/query/counts")
    expect(page).to_have_url(re.compile("/login"))
    field = page.get_by_label("This server needs a token.")
    expect(field).to_be_focused()
    field.fill("wrong horse battery staple")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    assert not page.context.cookies()
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(dashboard.at("title")).to_have_text("counts")
    expect(dashboard.at("engine-state")).to_be_visible()
    assert all(cookie["httpOnly"] for cookie in page.context.cookies() if "session" in cookie["name"])
    page.evaluate("fetch('/logout', {method: 'POST'})")
    page.goto("/")
    expect(page).to_have_url(re.compile("/login"))


def test_a_reader_sees_results_and_nothing_to_change(open_dashboard: Callable[..., Dashboard]) -> None:
    reader = AccessToken("grafana", "a token for readers only", Role.READ)
    dashboard = open_dashboard(settings=ServerSettings(port=0, token=TOKEN, tokens=(reader,)))
    dashboard.watched.expect_problem("status of 403")
    dashboard.register(counts=COUNTS)
    page = dashboard.page
    page.goto("/query/counts")
    page.get_by_label("This server needs a token.").fill(reader.secret)
    page.keyboard.press("Enter")
    expect(dashboard.at("title")).to_have_text("counts")
    for hidden in ("drop", "resume", "nav-new"):
        expect(dashboard.at(hidden)).to_be_hidden()
    expect(dashboard.at("refresh")).to_be_disabled()
    expect(dashboard.at("download")).to_be_visible()
    page.goto("/new")
    expect(dashboard.at("missing")).to_contain_text("This token may only read")
