"""Accessibility: axe-core rules, themes, keyboard access, and small screens."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, EARLY, ON_DEMAND, Dashboard

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIEWS = (
    "/",
    "/queries",
    "/query/early",
    "/query/counts?tab=explain",
    "/query/tops",
    "/compare?query=counts&query=early",
    "/sharing",
    "/new",
    "/late",
    "/alerts",
)


def violations(dashboard: Dashboard) -> list[str]:
    """The violations that axe-core finds on the current page."""
    dashboard.page.evaluate(AXE)
    run = "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
    report: dict[str, Any] = dashboard.page.evaluate(run, RULES)
    return [
        f"{dashboard.page.url} {rule['id']}: {rule['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for rule in report["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_violates_an_accessibility_rule(open_dashboard: Callable[..., Dashboard], theme: str) -> None:
    dashboard = open_dashboard(browser_options={"color_scheme": theme})
    dashboard.register(counts=COUNTS, early=EARLY, tops=ON_DEMAND)
    for number in range(3):
        dashboard.minute(number, "Oslo", "Rome")
    dashboard.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, None))
    problems = []
    for view in VIEWS:
        dashboard.open(view)
        expect(dashboard.page.locator("[aria-busy=true]:visible")).to_have_count(0)
        if view == "/new":  # the editor loads after the rest
            expect(dashboard.page.get_by_role("textbox", name="SQL")).to_be_visible()
        problems += violations(dashboard)
    dashboard.open("/new")
    dashboard.write("SELECT nothing FROM bids [RANGE 1 minute SLIDE 1 minute]")
    expect(dashboard.at("check-error")).to_be_visible()
    problems += violations(dashboard)
    dashboard.open("/query/counts")
    dashboard.at("zone-button").click()
    expect(dashboard.at("zone")).to_be_visible()
    problems += violations(dashboard)
    dashboard.page.goto("/query/counts")
    dashboard.at("drop").click()
    expect(dashboard.at("drop-confirm")).to_be_visible()
    problems += violations(dashboard)
    assert not problems, "\n".join(problems)


def test_the_selected_theme_persists(dashboard: Dashboard) -> None:
    page = dashboard.open("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Use the dark theme").click()
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    dark = page.evaluate(paper)
    assert dark != light
    dashboard.open("/queries")
    assert page.evaluate(paper) == dark
    page.reload()
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    page.get_by_role("button", name="Use the light theme").click()
    assert page.evaluate(paper) == light


def test_the_system_s_theme_is_the_default(open_dashboard: Callable[..., Dashboard]) -> None:
    dashboard = open_dashboard(browser_options={"color_scheme": "dark"})
    page = dashboard.open("/")
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    page.emulate_media(color_scheme="light")
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()


def test_the_first_tab_stop_skips_to_the_content(dashboard: Dashboard) -> None:
    page = dashboard.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize("width", [1024, 1280])
def test_no_view_is_wider_than_a_laptop_screen(open_dashboard: Callable[..., Dashboard], width: int) -> None:
    dashboard = open_dashboard(browser_options={"viewport": {"width": width, "height": 700}})
    dashboard.register(counts=COUNTS, early=EARLY, tops=ON_DEMAND)
    dashboard.minute(0, "Oslo", "a city with a name that is far longer than any column of a table can be")
    dashboard.push(("Oslo", 1.0, "12:01:00"))
    for view in VIEWS:
        page = dashboard.open(view)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels wider than the window"
