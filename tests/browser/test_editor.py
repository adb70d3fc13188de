"""The editor: what is wrong is shown where it is, and a query is tried before it is registered."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import COUNTS, PER_CITY, Desk

MISSPELT = "SELECT city, sum(prise) AS total\nFROM bids [RANGE 1 minute SLIDE 1 minute]\nGROUP BY city"


def test_a_broken_query_shows_its_error_in_place(desk: Desk) -> None:
    desk.open("/new")
    desk.write(MISSPELT)
    error = desk.at("check-error")
    expect(error).to_contain_text("prise")
    expect(error).to_contain_text(re.compile("did you mean price"))
    marked = desk.at("editor").locator(".cm-line .wrong")
    expect(marked).to_have_text("prise")
    lines = error.locator("pre").inner_text().split("\n")
    assert lines[0] == "1 SELECT city, sum(prise) AS total"
    assert lines[1].index("^") == lines[0].index("prise")
    assert lines[1].strip() == "^" * len("prise")
    expect(desk.at("register")).to_be_disabled()
    expect(desk.at("preview")).to_be_disabled()
    assert not desk.engine.queries()


def test_an_error_on_a_later_line_is_marked_there(desk: Desk) -> None:
    desk.open("/new")
    desk.write(f"SELECT count(*) AS n, 'é😀' AS face\n{COUNTS[COUNTS.index('FROM') :]}\nGROUP BY citi")
    expect(desk.at("editor").locator(".cm-line").nth(2).locator(".wrong")).to_have_text("citi")
    expect(desk.at("check-error").locator("pre")).to_contain_text("3 GROUP BY citi")


def test_a_corrected_query_can_be_registered(desk: Desk) -> None:
    page = desk.open("/new")
    desk.write(MISSPELT)
    expect(desk.at("check-error")).to_be_visible()
    desk.write(MISSPELT.replace("prise", "price"))
    expect(desk.at("check-error")).to_have_count(0)
    expect(desk.at("editor").locator(".wrong")).to_have_count(0)
    expect(desk.at("checked")).to_contain_text("total")
    desk.at("query-name").fill("totals")
    desk.at("register").click()
    expect(page).to_have_url(re.compile("/query/totals$"))
    assert list(desk.engine.queries()) == ["totals"]


def test_a_name_that_is_taken_is_said_and_nothing_is_lost(desk: Desk) -> None:
    desk.register(counts=COUNTS)
    desk.open("/new")
    desk.write(PER_CITY)
    desk.at("query-name").fill("counts")
    expect(desk.at("register")).to_be_enabled()
    desk.at("register").click()
    expect(desk.at("toast")).to_contain_text("counts")
    expect(desk.at("editor").locator(".cm-content")).to_contain_text("sum(price)")
    assert desk.engine.query("counts").text == COUNTS


def test_a_preview_shows_values_and_leaves_nothing_behind(desk: Desk) -> None:
    desk.open("/new")
    desk.write(PER_CITY)
    expect(desk.at("preview")).to_be_enabled()
    desk.at("preview").click()
    expect(desk.at("preview-rows")).to_be_visible()
    desk.push(("Oslo", 10.0, "12:00:00"))
    desk.wait(desk.engine.queries, "the preview to join")
    desk.push(("Oslo", 12.0, "12:00:05"), ("Rome", 7.0, "12:00:10"))
    shown = desk.at("preview-row")
    expect(shown.filter(has_text="Rome").first).to_contain_text("7")
    assert not desk.service.queries(), "a preview is not in the list"
    desk.at("preview-end").click()
    expect(desk.at("preview-rows")).to_have_count(0)
    desk.push(("Oslo", 1.0, "12:00:20"))
    desk.wait(lambda: not desk.engine.queries(), "the preview to leave")


def test_a_preview_ends_when_one_goes_elsewhere(desk: Desk) -> None:
    desk.open("/new")
    desk.write(COUNTS)
    expect(desk.at("preview")).to_be_enabled()
    desk.at("preview").click()
    desk.wait(desk.engine.queries, "the preview to join")
    desk.at("nav-overview").click()
    expect(desk.at("streams")).to_be_visible()
    desk.wait(lambda: not desk.engine.queries(), "the preview to leave")


def test_without_a_mouse_a_query_is_written_tried_and_registered(desk: Desk) -> None:
    page = desk.open("/")
    keys = page.keyboard
    keys.press("g")
    keys.press("n")
    expect(page).to_have_url(re.compile("/new$"))
    expect(desk.at("engine-state")).to_be_visible()
    code = desk.at("editor").locator(".cm-content")
    tab_to(desk, "query-name")
    keys.type("by keys")
    tab_to(desk, "editor")
    expect(code).to_be_focused()
    keys.insert_text(COUNTS)
    expect(desk.at("register")).to_be_enabled()
    keys.press("Control+Enter")
    expect(desk.at("preview-rows")).to_be_visible()
    keys.press("Control+Shift+Enter")
    expect(desk.at("title")).to_have_text("by keys")
    assert [query.name for query in desk.service.queries()] == ["by keys"]
    keys.press("g")
    keys.press("q")
    expect(desk.row_of("by keys")).to_be_visible()
    keys.press("/")
    expect(desk.at("search")).to_be_focused()
    keys.press("Shift+Tab")  # out of the field: in it a letter is a letter
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def tab_to(desk: Desk, testid: str) -> None:
    """Press Tab until the focus is there or inside."""
    for _ in range(60):
        desk.page.keyboard.press("Tab")
        if desk.at(testid).evaluate("one => one.contains(document.activeElement)"):
            return
    raise AssertionError(f"{testid} can't be reached by Tab")
