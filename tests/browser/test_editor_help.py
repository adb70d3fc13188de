"""What the editor offers: suggestions, format, drafts, examples that fit the rows, and errors that can be seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, Dashboard

FLIGHTS = "origin string, delay double, ts timestamp"
PHONE = {"width": 390, "height": 844}
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"


def text_of(dashboard: Dashboard) -> str:
    """The text in the editor."""
    return "\n".join(dashboard.at("editor").locator(".cm-line").all_inner_texts())


def test_a_misspelt_column_finds_the_column_and_nothing_else(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local(schema=FLIGHTS)
    dashboard.open("/new")
    dashboard.type("SELECT orign")
    expect(dashboard.suggestions()).to_have_text(["origin"])
    dashboard.accept()
    expect(dashboard.at("editor").locator(".cm-line")).to_have_text("SELECT origin")


def test_suggestions_follow_the_clause(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local(schema=FLIGHTS)
    dashboard.engine.table("airports", [{"faa": "OSL", "city": "Oslo"}])
    dashboard.engine.view("late", "SELECT origin, delay, ts FROM bids WHERE delay > 15")
    dashboard.register(counts=COUNTS)
    page = dashboard.open("/new")
    dashboard.type("SELECT av")
    first = page.locator(".cm-tooltip-autocomplete li").first
    expect(first).to_contain_text("avg(x)")  # the signature
    dashboard.accept()
    page.keyboard.type("del")
    expect(dashboard.suggestions()).to_have_text(["delay"])
    dashboard.accept()
    page.keyboard.press("End")
    page.keyboard.type(" FROM ", delay=15)
    expect(dashboard.suggestions().first).to_have_text("bids")
    expect(dashboard.suggestions().filter(has_text="late")).to_have_count(1)
    expect(dashboard.suggestions().filter(has_text="counts")).to_have_count(1)
    dashboard.accept()
    page.keyboard.type(" [", delay=15)
    expect(dashboard.suggestions().first).to_have_text("RANGE")
    page.keyboard.press("Escape")
    page.keyboard.type("RANGE 1 minute SL", delay=15)
    expect(dashboard.suggestions()).to_have_text(["SLIDE"])
    dashboard.accept()
    page.keyboard.type(" 1 minute", delay=15)
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    page.keyboard.type(" JOIN ", delay=15)
    expect(dashboard.suggestions().first).to_have_text("airports")


def test_ctrl_space_asks_for_suggestions(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    page = dashboard.open("/new")
    dashboard.type(f"SELECT count(*) AS n FROM bids {WINDOW} ")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Space")
    expect(dashboard.suggestions().filter(has_text=re.compile("^WHERE$"))).to_have_count(1)


def test_format_gives_each_clause_a_line_and_the_query_stays_valid(
    open_local: Callable[..., Dashboard],
) -> None:
    dashboard = open_local()
    page = dashboard.open("/new")
    dashboard.write(
        "select city,sum(price) total from bids[range 1 minute slide 1 minute]group by city -- all"
    )
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.at("format").click()
    lines = dashboard.at("editor").locator(".cm-line")
    expect(lines).to_have_text(
        ["SELECT city, sum(price) total", f"FROM bids {WINDOW}", "GROUP BY city -- all"]
    )
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.write("select 1 from bids")
    page.keyboard.press("Shift+Alt+f")
    expect(lines).to_have_text(["SELECT 1", "FROM bids"])
    dashboard.write("select 'open")
    dashboard.at("format").click()
    expect(dashboard.at("toast")).to_contain_text("quote is not closed")
    assert text_of(dashboard) == "select 'open"


def test_drafts_are_kept_and_come_back(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    page = dashboard.open("/new")
    expect(page.locator(".nicegui-codemirror[data-ready=yes]")).to_be_visible()
    expect(dashboard.at("draft")).to_have_count(0)
    dashboard.write(COUNTS)
    expect(dashboard.at("draft")).to_have_count(1)
    dashboard.open("/")
    dashboard.open("/new")
    expect(page.locator(".nicegui-codemirror[data-ready=yes]")).to_be_visible()
    dashboard.write("SELECT city FROM bids")
    expect(dashboard.at("draft")).to_have_count(2)  # the second visit has a draft of its own
    dashboard.at("draft").nth(1).click()
    expect(dashboard.at("editor").locator(".cm-content")).to_have_text(COUNTS)
    expect(dashboard.at("register")).to_be_enabled()
    page.get_by_role("button", name="Forget all drafts").click()
    expect(dashboard.at("draft")).to_have_count(0)


def test_examples_group_by_what_repeats_and_static_tables_are_listed(
    open_local: Callable[..., Dashboard],
) -> None:
    schema = "event_id string, country string, amount double, ts timestamp"
    dashboard = open_local(schema=schema)
    dashboard.engine.table("countries", [{"country": "NO", "region": "north"}])
    start = datetime(2013, 1, 1, 12, tzinfo=UTC)
    dashboard.feed.push(
        [
            (f"e{n}", ("NO", "IT", "FR")[n % 3], float(n % 50), start + timedelta(seconds=n))
            for n in range(300)
        ]
    )
    dashboard.wait(lambda: dashboard.engine.progress().streams["bids"].rows == 300, "the rows to be read")
    dashboard.open("/new")
    examples = dashboard.at("example")
    expect(examples.first).to_be_visible()
    titles = examples.all_inner_texts()
    assert "Average amount by country" in titles and "Count by region of countries" in titles
    assert not any("event_id" in title for title in titles)
    for at_place in range(len(titles)):
        examples.nth(at_place).click()
        expect(dashboard.at("register")).to_be_disabled()  # it is checked
        expect(dashboard.at("register")).to_be_enabled()
    table = dashboard.at("relation-table")
    table.locator("summary").click()
    expect(table).to_contain_text("region")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_carets_of_a_long_line_can_be_seen(open_local: Callable[..., Dashboard], width: int) -> None:
    dashboard = open_local(browser_options={"viewport": {"width": width, "height": 844}})
    page = dashboard.open("/new")
    items = ", ".join(f"sum(price) AS s{n}" for n in range(12))
    dashboard.write(f"SELECT {items}, max(prise) AS m, {items.replace('AS s', 'AS t')} FROM bids {WINDOW}")
    carets = dashboard.at("check-error").locator("pre b")
    expect(carets).to_have_text("^^^^^")
    expect(carets).to_be_in_viewport(ratio=1)
    pre = dashboard.at("check-error").locator("pre").bounding_box()
    box = carets.bounding_box()
    assert pre is not None and box is not None
    assert pre["x"] <= box["x"] and box["x"] + box["width"] <= pre["x"] + pre["width"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_register_is_in_reach_of_a_thumb(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local(browser_options={"viewport": PHONE, "has_touch": True})
    page = dashboard.open("/new")
    dashboard.write(COUNTS)
    expect(dashboard.at("register")).to_be_enabled()
    expect(dashboard.at("register")).to_be_in_viewport(ratio=1)
    page.mouse.wheel(0, 2000)
    expect(dashboard.at("register")).to_be_in_viewport(ratio=1)
    dashboard.at("query-name").fill("from a phone")
    dashboard.at("register").click()
    expect(page).to_have_url(re.compile("/query/from%20a%20phone$"))
