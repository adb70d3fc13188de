"""The other views: sharing, late and rejected rows, and what is said where something is missing or broken."""

from __future__ import annotations

import re
from typing import Any

import pytest
from nicegui import Client
from playwright.sync_api import expect

from tests.browser.desk import COUNTS, Desk
from transom.runtime.runner import Runner
from transom.server.lifecycle import serving
from transom.server.settings import ServerSettings


def test_sharing_names_who_shares_a_selection_and_what_it_saves(desk: Desk) -> None:
    longer = COUNTS.replace("[RANGE 1 minute", "[RANGE 3 minutes")
    desk.register(short=COUNTS, long=longer, dear=f"{COUNTS} WHERE price > 15")
    for number in range(4):
        desk.minute(number, "Oslo", "Rome")
    page = desk.open("/sharing")
    expect(desk.at("ratio")).to_have_text(re.compile(r"^[1-9][\d,.]* ×$"))
    shown = float(desk.at("ratio").inner_text().split()[0].replace(",", ""))
    assert shown == pytest.approx(desk.service.status().saved, abs=0.3) and shown > 1
    both = page.locator(".sel").filter(has=page.get_by_role("link", name="short", exact=True))
    expect(both.get_by_role("link", name="long", exact=True)).to_be_visible()
    expect(both).to_contain_text("shared by 2 queries")
    desk.at("search").fill("dear")
    expect(page.get_by_role("link", name="dear", exact=True)).to_be_visible()
    page.get_by_role("link", name="dear", exact=True).click()
    expect(desk.at("title")).to_have_text("dear")


def test_late_and_rejected_rows_are_shown_with_reasons(desk: Desk) -> None:
    desk.register(counts=COUNTS)
    page = desk.open("/late")
    expect(page.get_by_text("Every row was in time")).to_be_visible()
    desk.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 2.0, "12:05:00"))
    desk.push(("Rome", 3.0, "12:01:00"), ("Bonn", 4.0, None))
    row = desk.at("late-row")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Rome")
    reason = desk.service.late("bids")["reason"][0].as_py()
    expect(row).to_contain_text(reason)
    desk.at("show-rejected").click()
    expect(row).to_contain_text("Bonn")
    expect(row).to_contain_text(desk.service.rejected("bids")["reason"][0].as_py())
    with page.expect_download() as download:
        desk.at("download").click()
    assert "Bonn" in download.value.path().read_text()


def test_where_nothing_is_yet_it_says_so(desk: Desk) -> None:
    page = desk.open("/")
    expect(page.get_by_text("No rows yet")).to_be_visible()
    expect(page.get_by_text("No queries yet")).to_be_visible()
    desk.at("first-query").click()
    expect(page).to_have_url(re.compile("/new$"))
    desk.open("/queries")
    expect(page.get_by_text("No queries yet")).to_be_visible()
    desk.open("/sharing")
    expect(page.get_by_text("Nothing to share yet")).to_be_visible()


def test_the_list_is_searched_and_sorted(desk: Desk) -> None:
    for number in range(30):
        desk.service.register(f"{COUNTS} WHERE price > {number}", f"dearer than {number}")
    page = desk.open("/queries")
    expect(desk.at("query-row")).to_have_count(25)
    desk.at("page-next").click()
    expect(desk.at("query-row")).to_have_count(5)
    desk.at("search").fill("than 2")
    expect(desk.at("query-row")).to_have_count(12)  # 2, 12 and 20 to 29
    expect(page).to_have_url(re.compile(r"search=than\+2"))
    desk.at("sort-name").click()
    desk.at("sort-name").click()
    expect(desk.at("query-row").first).to_have_attribute("data-name", "dearer than 29")
    desk.at("search").fill("no such name")
    expect(page.get_by_text("Nothing matches")).to_be_visible()


def test_an_unknown_query_and_an_unknown_address(desk: Desk) -> None:
    desk.seen.pardon("status of 404")
    desk.register(counts=COUNTS)
    page = desk.open("/query/count")
    expect(page.get_by_text("There is no query named count")).to_be_visible()
    expect(desk.at("missing")).to_contain_text("did you mean counts")
    page.get_by_role("link", name="All queries").click()
    expect(desk.row_of("counts")).to_be_visible()
    desk.open("/elsewhere")
    expect(page.get_by_text("There is nothing here")).to_be_visible()


def test_an_engine_that_failed_says_why(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.register(counts=COUNTS)
    desk.push(("Oslo", 1.0, "12:00:00"))
    desk.open("/")
    expect(desk.at("engine-state")).to_have_attribute("data-state", "running")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no space left on <device>")

    monkeypatch.setattr(Runner, "page", broken)
    desk.feed.push([("Oslo", 1.0, "2013-01-01 12:00:01")])
    expect(desk.at("banner")).to_contain_text("The engine has failed")
    expect(desk.at("banner")).to_contain_text("no space left on <device>")
    expect(desk.at("engine-state")).to_have_attribute("data-state", "failed")


def test_a_server_that_goes_and_comes_back(desk: Desk) -> None:
    desk.seen.pardon("ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|status of 50")
    desk.register(counts=COUNTS)
    page = desk.open("/query/counts")
    port = int(desk.served.url.rpartition(":")[2])
    desk.served.stop()
    lost = page.get_by_text("Connection lost")
    expect(lost).to_be_visible()
    desk.service.stop()
    for client in list(Client.instances.values()):  # another process would not know them
        client.delete()
    with serving(desk.engine, ServerSettings(port=port)):
        expect(lost).to_be_hidden()
        expect(desk.at("engine-state")).to_be_visible()
        expect(desk.at("title")).to_have_text("counts")
        desk.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, "12:01:00"))
        expect(desk.rows("final")).to_have_count(1)
        page.goto("about:blank")
