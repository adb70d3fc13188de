"""Queries that are edited, duplicated, renamed, described and paused on the dashboard."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.dashboard_fixture import PER_CITY, Dashboard


def test_a_query_is_edited_with_its_text_in_the_editor(dashboard: Dashboard) -> None:
    dashboard.register(rule=PER_CITY)
    dashboard.minute(0, "Oslo")
    dashboard.open("/query/rule")
    dashboard.at("edit").click()
    expect(dashboard.at("kept")).to_contain_text("nothing changes")
    dashboard.write(f"{PER_CITY} HAVING count(*) > 0")
    expect(dashboard.at("kept")).to_contain_text("open windows are kept")
    dashboard.at("register").click()
    expect(dashboard.at("title")).to_have_text("rule")
    expect(dashboard.at("sql")).to_contain_text("HAVING")
    assert dashboard.engine.query("rule").text == f"{PER_CITY} HAVING count(*) > 0"


def test_a_duplicate_is_another_query_with_the_same_text(dashboard: Dashboard) -> None:
    dashboard.register(rule=PER_CITY)
    dashboard.open("/query/rule")
    dashboard.at("duplicate").click()
    dashboard.at("query-name").fill("copy")
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.at("register").click()
    expect(dashboard.at("title")).to_have_text("copy")
    assert dashboard.engine.query("copy").text == PER_CITY


def test_a_query_is_renamed_described_and_found_by_its_tag(dashboard: Dashboard) -> None:
    dashboard.register(rule=PER_CITY, other=PER_CITY)
    dashboard.open("/query/rule")
    dashboard.at("details").click()
    dashboard.at("details-name").fill("cities")
    dashboard.at("details-description").fill("bids of a city")
    dashboard.at("details-tags").fill("fraud, cards")
    dashboard.at("details-save").click()
    expect(dashboard.at("title")).to_have_text("cities")
    expect(dashboard.at("description")).to_have_text("bids of a city")
    dashboard.at("query-tag").first.click()
    expect(dashboard.at("query-row")).to_have_count(1)
    expect(dashboard.row_of("cities")).to_contain_text("cards")


def test_a_query_is_paused_and_resumed(dashboard: Dashboard) -> None:
    dashboard.register(rule=PER_CITY)
    dashboard.minute(0, "Oslo")
    dashboard.open("/query/rule")
    dashboard.at("pause").click()
    expect(dashboard.at("resume")).to_be_visible()
    expect(dashboard.at("pause")).to_be_hidden()
    expect(dashboard.at("refresh-note")).to_contain_text("Paused")
    dashboard.at("resume").click()
    expect(dashboard.at("pause")).to_be_visible()
    assert not dashboard.service.query("rule").paused
