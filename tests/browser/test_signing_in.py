"""A server with a token lets nobody in without it."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.desk import COUNTS, Desk
from transom.server.settings import ServerSettings

TOKEN = "correct horse battery staple"


def test_only_the_right_token_gets_in_and_leaving_ends_it(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(settings=ServerSettings(port=0, token=TOKEN))
    desk.seen.pardon("status of 401")
    desk.register(counts=COUNTS)
    page = desk.page
    page.goto("/query/counts")
    expect(page).to_have_url(re.compile("/login"))
    field = page.get_by_label("This server asks for its token.")
    expect(field).to_be_focused()
    field.fill("wrong horse battery staple")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    assert not page.context.cookies()
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(desk.at("title")).to_have_text("counts")
    expect(desk.at("engine-state")).to_be_visible()
    assert all(cookie["httpOnly"] for cookie in page.context.cookies() if "session" in cookie["name"])
    page.evaluate("fetch('/logout', {method: 'POST'})")
    page.goto("/")
    expect(page).to_have_url(re.compile("/login"))
