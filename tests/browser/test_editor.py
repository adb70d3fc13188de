"""The editor: errors in place, previews, registration."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, PER_CITY, Dashboard

MISSPELT = "SELECT city, sum(prise) AS total\nFROM bids [RANGE 1 minute SLIDE 1 minute]\nGROUP BY city"


def test_a_broken_query_shows_its_error_in_place(dashboard: Dashboard) -> None:
    dashboard.open("/new")
    dashboard.write(MISSPELT)
    error = dashboard.at("check-error")
    expect(error).to_contain_text("prise")
    expect(error).to_contain_text(re.compile("did you mean price"))
    marked = dashboard.at("editor").locator(".cm-line .wrong")
    expect(marked).to_have_text("prise")
    lines = error.locator("pre").inner_text().split("\n")
    assert lines[0] == "1 SELECT city, sum(prise) AS total"
    assert lines[1].index("^") == lines[0].index("prise")
    assert lines[1].strip() == "^" * len("prise")
    expect(dashboard.at("register")).to_be_disabled()
    expect(dashboard.at("preview")).to_be_disabled()
    assert not dashboard.engine.queries()


def test_an_error_on_a_later_line_is_marked_there(dashboard: Dashboard) -> None:
    dashboard.open("/new")
    dashboard.write(f"SELECT count(*) AS n, 'é😀' AS face\n{COUNTS[COUNTS.index('FROM') :]}\nGROUP BY citi")
    expect(dashboard.at("editor").locator(".cm-line").nth(2).locator(".wrong")).to_have_text("citi")
    expect(dashboard.at("check-error").locator("pre")).to_contain_text("3 GROUP BY citi")


def test_a_corrected_query_can_be_registered(dashboard: Dashboard) -> None:
    page = dashboard.open("/new")
    dashboard.write(MISSPELT)
    expect(dashboard.at("check-error")).to_be_visible()
    dashboard.write(MISSPELT.replace("prise", "price"))
    expect(dashboard.at("check-error")).to_have_count(0)
    expect(dashboard.at("editor").locator(".wrong")).to_have_count(0)
    expect(dashboard.at("checked")).to_contain_text("total")
    dashboard.at("query-name").fill("totals")
    dashboard.at("register").click()
    expect(page).to_have_url(re.compile("/query/totals$"))
    assert list(dashboard.engine.queries()) == ["totals"]


def test_a_name_that_is_taken_is_reported_and_the_text_stays(dashboard: Dashboard) -> None:
    dashboard.register(counts=COUNTS)
    dashboard.open("/new")
    dashboard.write(PER_CITY)
    dashboard.at("query-name").fill("counts")
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.at("register").click()
    expect(dashboard.at("toast")).to_contain_text("counts")
    expect(dashboard.at("editor").locator(".cm-content")).to_contain_text("sum(price)")
    assert dashboard.engine.query("counts").text == COUNTS


def test_a_preview_shows_values_and_leaves_nothing_behind(dashboard: Dashboard) -> None:
    dashboard.open("/new")
    dashboard.write(PER_CITY)
    expect(dashboard.at("preview")).to_be_enabled()
    dashboard.at("preview").click()
    expect(dashboard.at("preview-rows")).to_be_visible()
    dashboard.push(("Oslo", 10.0, "12:00:00"))
    dashboard.wait(dashboard.engine.queries, "the preview to join")
    dashboard.push(("Oslo", 12.0, "12:00:05"), ("Rome", 7.0, "12:00:10"))
    shown = dashboard.at("preview-row")
    expect(shown.filter(has_text="Rome").first).to_contain_text("7")
    assert not dashboard.service.queries(), "a preview is not in the list"
    dashboard.at("preview-end").click()
    expect(dashboard.at("preview-rows")).to_have_count(0)
    dashboard.push(("Oslo", 1.0, "12:00:20"))
    dashboard.wait(lambda: not dashboard.engine.queries(), "the preview to leave")


def test_a_preview_ends_when_the_user_leaves_the_editor(dashboard: Dashboard) -> None:
    dashboard.open("/new")
    dashboard.write(COUNTS)
    expect(dashboard.at("preview")).to_be_enabled()
    dashboard.at("preview").click()
    dashboard.wait(dashboard.engine.queries, "the preview to join")
    dashboard.at("nav-overview").click()
    expect(dashboard.at("streams")).to_be_visible()
    dashboard.wait(lambda: not dashboard.engine.queries(), "the preview to leave")


def test_a_query_can_be_written_previewed_and_registered_by_keyboard(dashboard: Dashboard) -> None:
    page = dashboard.open("/")
    keys = page.keyboard
    keys.press("g")
    keys.press("n")
    expect(page).to_have_url(re.compile("/new$"))
    expect(dashboard.at("engine-state")).to_be_visible()
    code = dashboard.at("editor").locator(".cm-content")
    tab_to(dashboard, "query-name")
    keys.type("by keys")
    tab_to(dashboard, "editor")
    expect(code).to_be_focused()
    keys.insert_text(COUNTS)
    expect(dashboard.at("register")).to_be_enabled()
    keys.press("Control+Enter")
    expect(dashboard.at("preview-rows")).to_be_visible()
    keys.press("Control+Shift+Enter")
    expect(dashboard.at("title")).to_have_text("by keys")
    assert [query.name for query in dashboard.service.queries()] == ["by keys"]
    keys.press("g")
    keys.press("q")
    expect(dashboard.row_of("by keys")).to_be_visible()
    keys.press("/")
    expect(dashboard.at("search")).to_be_focused()
    keys.press("Shift+Tab")  # leave the field: inside it, "?" is text
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()


def tab_to(dashboard: Dashboard, testid: str) -> None:
    """Press Tab until the focus is there or inside."""
    for _ in range(60):
        dashboard.page.keyboard.press("Tab")
        if dashboard.at(testid).evaluate("element => element.contains(document.activeElement)"):
            return
    raise AssertionError(f"{testid} can't be reached by Tab")
