"""Everybody can use the page: themes that stay, names for everything, contrast, and the way by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import COUNTS, EARLY, ON_DEMAND, Desk

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIEWS = (
    "/",
    "/queries",
    "/query/early",
    "/query/counts?tab=explain",
    "/query/tops",
    "/sharing",
    "/new",
    "/late",
)


def violations(desk: Desk) -> list[str]:
    """What axe-core finds wrong with the page as it is."""
    desk.page.evaluate(AXE)
    run = "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
    found: dict[str, Any] = desk.page.evaluate(run, RULES)
    return [
        f"{desk.page.url} {rule['id']}: {rule['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_breaks_a_rule_of_accessibility(open_desk: Callable[..., Desk], theme: str) -> None:
    desk = open_desk(looking={"color_scheme": theme})
    desk.register(counts=COUNTS, early=EARLY, tops=ON_DEMAND)
    for number in range(3):
        desk.minute(number, "Oslo", "Rome")
    desk.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, None))
    found = []
    for view in VIEWS:
        desk.open(view)
        expect(desk.page.locator("[aria-busy=true]:visible")).to_have_count(0)
        if view == "/new":  # the editor is loaded behind the page
            expect(desk.page.get_by_role("textbox", name="SQL")).to_be_visible()
        found += violations(desk)
    desk.open("/new")
    desk.write("SELECT nothing FROM bids [RANGE 1 minute SLIDE 1 minute]")
    expect(desk.at("check-error")).to_be_visible()
    found += violations(desk)
    desk.page.goto("/query/counts")
    desk.at("drop").click()
    expect(desk.at("drop-confirm")).to_be_visible()
    found += violations(desk)
    assert not found, "\n".join(found)


def test_a_theme_that_was_chosen_stays(desk: Desk) -> None:
    page = desk.open("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Use the dark theme").click()
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    dark = page.evaluate(paper)
    assert dark != light
    desk.open("/queries")
    assert page.evaluate(paper) == dark
    page.reload()
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    page.get_by_role("button", name="Use the light theme").click()
    assert page.evaluate(paper) == light


def test_the_system_s_theme_is_the_first(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(looking={"color_scheme": "dark"})
    page = desk.open("/")
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    page.emulate_media(color_scheme="light")
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()


def test_the_first_tab_skips_to_the_content(desk: Desk) -> None:
    page = desk.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize("width", [1024, 1280])
def test_nothing_is_wider_than_a_laptop(open_desk: Callable[..., Desk], width: int) -> None:
    desk = open_desk(looking={"viewport": {"width": width, "height": 700}})
    desk.register(counts=COUNTS, early=EARLY, tops=ON_DEMAND)
    desk.minute(0, "Oslo", "a city with a name that is far longer than any column of a table can be")
    desk.push(("Oslo", 1.0, "12:01:00"))
    for view in VIEWS:
        page = desk.open(view)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels wider than the window"
