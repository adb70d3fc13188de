"""The other views: sharing, late and rejected rows, empty states, unknown URLs, failures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from nicegui import Client
from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, Dashboard
from transom.runtime.runner import Runner
from transom.server.settings import ServerSettings
from transom.web_service import serving


def test_sharing_lists_the_queries_of_a_selection_and_the_savings(dashboard: Dashboard) -> None:
    longer = COUNTS.replace("[RANGE 1 minute", "[RANGE 3 minutes")
    dashboard.register(short=COUNTS, long=longer, dear=f"{COUNTS} WHERE price > 15")
    for number in range(4):
        dashboard.minute(number, "Oslo", "Rome")
    page = dashboard.open("/sharing")
    expect(dashboard.at("ratio")).to_have_text(re.compile(r"^[1-9][\d,.]* ×$"))
    shown = float(dashboard.at("ratio").inner_text().split()[0].replace(",", ""))
    assert shown == pytest.approx(dashboard.service.status().saved, abs=0.3) and shown > 1
    both = page.locator(".sel").filter(has=page.get_by_role("link", name="short", exact=True))
    expect(both.get_by_role("link", name="long", exact=True)).to_be_visible()
    expect(both).to_contain_text("shared by 2 queries")
    dashboard.at("search").fill("dear")
    expect(page.get_by_role("link", name="dear", exact=True)).to_be_visible()
    page.get_by_role("link", name="dear", exact=True).click()
    expect(dashboard.at("title")).to_have_text("dear")


def test_late_and_rejected_rows_are_shown_with_reasons(dashboard: Dashboard) -> None:
    dashboard.register(counts=COUNTS)
    page = dashboard.open("/late")
    expect(page.get_by_text("No late rows")).to_be_visible()
    dashboard.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 2.0, "12:05:00"))
    dashboard.push(("Rome", 3.0, "12:01:00"), ("Bonn", 4.0, None))
    row = dashboard.at("late-row")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Rome")
    reason = dashboard.service.late("bids")["reason"][0].as_py()
    expect(row).to_contain_text(reason)
    dashboard.at("show-rejected").click()
    expect(row).to_contain_text("Bonn")
    expect(row).to_contain_text(dashboard.service.rejected("bids")["reason"][0].as_py())
    with page.expect_download() as download:
        dashboard.at("download").click()
    assert "Bonn" in download.value.path().read_text()


def test_empty_views_explain_themselves(dashboard: Dashboard) -> None:
    page = dashboard.open("/")
    expect(page.get_by_text("No rows yet")).to_be_visible()
    expect(page.get_by_text("No queries yet")).to_be_visible()
    dashboard.at("first-query").click()
    expect(page).to_have_url(re.compile("/new$"))
    dashboard.open("/queries")
    expect(page.get_by_text("No queries yet")).to_be_visible()
    dashboard.open("/sharing")
    expect(page.get_by_text("Nothing to share yet")).to_be_visible()


def test_the_list_can_be_searched_and_sorted(dashboard: Dashboard) -> None:
    for number in range(30):
        dashboard.service.register(f"{COUNTS} WHERE price > {number}", f"dearer than {number}")
    page = dashboard.open("/queries")
    expect(dashboard.at("query-row")).to_have_count(25)
    dashboard.at("page-next").click()
    expect(dashboard.at("query-row")).to_have_count(5)
    dashboard.at("search").fill("than 2")
    expect(dashboard.at("query-row")).to_have_count(12)  # 2, 12 and 20 to 29
    expect(page).to_have_url(re.compile(r"search=than\+2"))
    dashboard.at("sort-name").click()
    dashboard.at("sort-name").click()
    expect(dashboard.at("query-row").first).to_have_attribute("data-name", "dearer than 29")
    dashboard.at("search").fill("no such name")
    expect(page.get_by_text("No matches")).to_be_visible()


def test_an_unknown_query_and_an_unknown_url(dashboard: Dashboard) -> None:
    dashboard.watched.expect_problem("status of 404")
    dashboard.register(counts=COUNTS)
    page = dashboard.open("/query/count")
    expect(page.get_by_text("There is no query named count")).to_be_visible()
    expect(dashboard.at("missing")).to_contain_text("did you mean counts")
    page.get_by_role("link", name="All queries").click()
    expect(dashboard.row_of("counts")).to_be_visible()
    dashboard.open("/elsewhere")
    expect(page.get_by_text("Nothing here")).to_be_visible()


def test_a_failed_engine_shows_its_error(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard.register(counts=COUNTS)
    dashboard.push(("Oslo", 1.0, "12:00:00"))
    dashboard.open("/")
    expect(dashboard.at("engine-state")).to_have_attribute("data-state", "running")

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no space left on <device>")

    monkeypatch.setattr(Runner, "batch", broken)
    dashboard.feed.push([("Oslo", 1.0, "2013-01-01 12:00:01")])
    expect(dashboard.at("banner")).to_contain_text("The engine has failed")
    expect(dashboard.at("banner")).to_contain_text("no space left on <device>")
    expect(dashboard.at("engine-state")).to_have_attribute("data-state", "failed")


def test_the_dashboard_reconnects_to_a_restarted_server(dashboard: Dashboard) -> None:
    dashboard.watched.expect_problem(
        "ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|status of 50"
    )
    dashboard.register(counts=COUNTS)
    page = dashboard.open("/query/counts")
    port = int(dashboard.served.url.rpartition(":")[2])
    dashboard.served.stop()
    lost = page.get_by_text("Connection lost")
    expect(lost).to_be_visible()
    dashboard.service.stop()
    for client in list(Client.instances.values()):  # as if the server were a new process
        client.delete()
    with serving(dashboard.engine, ServerSettings(port=port)):
        expect(lost).to_be_hidden()
        expect(dashboard.at("engine-state")).to_be_visible()
        expect(dashboard.at("title")).to_have_text("counts")
        dashboard.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, "12:01:00"))
        expect(dashboard.rows("final")).to_have_count(1)
        page.goto("about:blank")
