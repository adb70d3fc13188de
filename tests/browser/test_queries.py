"""A query's life on the dashboard: registration, live results, refresh, tuning, drop."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, EARLY, ON_DEMAND, PER_CITY, Dashboard


def test_a_query_that_is_registered_in_the_editor_is_in_the_list(dashboard: Dashboard) -> None:
    dashboard.open("/new")
    dashboard.write(COUNTS)
    dashboard.at("query-name").fill("bids a minute")
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.at("register").click()
    expect(dashboard.at("title")).to_have_text("bids a minute")
    dashboard.at("nav-queries").click()
    expect(dashboard.row_of("bids a minute")).to_be_visible()
    assert dashboard.engine.query("bids a minute").text == COUNTS


def test_results_arrive_without_a_reload(dashboard: Dashboard) -> None:
    dashboard.register(per_city=PER_CITY)
    page = dashboard.open("/query/per city")
    expect(page.get_by_text("No results yet")).to_be_visible()
    loads: list[str] = []
    page.on("load", lambda: loads.append(page.url))
    dashboard.minute(0, "Oslo", "Rome")
    dashboard.push(("Oslo", 1.0, "12:01:00"))
    expect(dashboard.rows("final")).to_have_count(2)
    expect(dashboard.rows("final").filter(has_text="Rome")).to_contain_text("40")
    dashboard.minute(1, "Oslo")
    dashboard.push(("Oslo", 1.0, "12:02:00"))
    expect(dashboard.rows("final")).to_have_count(3)
    expect(dashboard.at("chart")).to_have_attribute("data-final", "3")
    assert not loads, "the page was loaded again"


def test_refresh_prods_the_query_and_shows_the_time(dashboard: Dashboard) -> None:
    dashboard.register(per_city=PER_CITY)
    dashboard.open("/query/per city")
    dashboard.push(("Oslo", 10.0, "12:00:05"), ("Rome", 20.0, "12:00:10"))
    dashboard.clock.advance(3)
    expect(dashboard.rows()).to_have_count(0)
    expect(dashboard.at("refresh")).to_be_enabled()
    dashboard.at("refresh").click()
    expect(dashboard.at("refresh-note")).to_have_text(
        re.compile(r"^as of 12:03:00, batch \d+, 1 open window$")
    )
    expect(dashboard.rows("early")).to_have_count(2)
    expect(dashboard.rows("final")).to_have_count(0)
    expect(dashboard.at("chart")).to_have_attribute("data-early", "2")


def test_an_early_result_has_an_interval_and_becomes_final(dashboard: Dashboard) -> None:
    dashboard.register(early=EARLY)
    dashboard.open("/query/early")
    for number in range(12):  # intervals are learned from closed windows
        dashboard.minute(number, "Oslo")
    dashboard.push(("Oslo", 22.0, "12:12:05"), ("Oslo", 22.0, "12:12:35"))
    window = "12:12:00 – 12:13:00"
    early = dashboard.rows("early").filter(has_text=window)
    expect(early).to_have_count(1)
    expect(early).to_contain_text(re.compile(r"\d to \d"))
    expect(dashboard.at("chart")).to_have_attribute("data-early", "1")
    expect(dashboard.rows("final").filter(has_text=window)).to_have_count(0)
    dashboard.push(("Oslo", 22.0, "12:12:50"), ("Oslo", 1.0, "12:13:00"))
    expect(dashboard.rows("final").filter(has_text=window)).to_have_count(1)
    expect(dashboard.rows("final").filter(has_text=window)).to_contain_text("66")
    expect(dashboard.at("chart")).to_have_attribute("data-early", "0")
    expect(dashboard.at("chart")).to_have_attribute("data-final", "13")


def test_an_early_point_is_hollow_and_a_final_point_is_solid(dashboard: Dashboard) -> None:
    dashboard.register(early=EARLY)
    dashboard.open("/query/early")
    dashboard.minute(0, "Oslo")
    dashboard.push(("Oslo", 1.0, "12:01:05"), ("Oslo", 1.0, "12:01:40"))
    expect(dashboard.at("chart")).to_have_attribute("data-early", "1")
    expect(dashboard.at("chart")).to_have_attribute("data-final", "1")
    chart = dashboard.at("chart")
    expect(
        chart.locator('path[fill="var(--surface)"][stroke="var(--c1)"]:not([fill-opacity])')
    ).to_have_count(1)
    expect(chart.locator('path[stroke="var(--c1)"][stroke-width="1.5"][stroke-dasharray]')).to_have_count(1)
    expect(chart.locator('path[fill="var(--c1)"]')).to_have_count(1)


def test_a_query_is_dropped_after_confirmation(dashboard: Dashboard) -> None:
    dashboard.register(counts=COUNTS, per_city=PER_CITY)
    page = dashboard.open("/query/counts")
    dashboard.at("drop").click()
    page.get_by_role("button", name="Cancel").click()
    expect(dashboard.at("drop-confirm")).to_be_hidden()
    assert "counts" in dashboard.engine.queries()
    dashboard.at("drop").click()
    dashboard.at("drop-confirm").click()
    expect(page).to_have_url(re.compile("/queries$"))
    expect(dashboard.row_of("per city")).to_be_visible()
    expect(dashboard.row_of("counts")).to_have_count(0)
    dashboard.wait(lambda: "counts" not in dashboard.engine.queries(), "the query to leave")


def test_a_query_that_is_dropped_elsewhere_is_reported(dashboard: Dashboard) -> None:
    dashboard.register(counts=COUNTS)
    page = dashboard.open("/query/counts")
    dashboard.service.drop("counts")
    dashboard.push(("Oslo", 1.0, "12:00:00"))
    expect(page.get_by_text("counts no longer exists")).to_be_visible()
    expect(page.get_by_role("link", name="All queries")).to_be_visible()


def test_selecting_groups_changes_the_chart(dashboard: Dashboard) -> None:
    dashboard.register(per_city=PER_CITY)
    page = dashboard.open("/query/per city")
    dashboard.minute(0, "Oslo", "Rome", "Bonn")
    dashboard.minute(1, "Oslo", "Rome", "Bonn")
    dashboard.push(("Oslo", 1.0, "12:02:00"))
    expect(dashboard.at("chart")).to_have_attribute("data-final", "6")
    page.get_by_label("Groups").click()
    page.get_by_role("option", name="Rome").click()
    page.keyboard.press("Escape")
    expect(dashboard.at("chart")).to_have_attribute("data-final", "2")
    expect(dashboard.rows("final")).to_have_count(6)  # the table shows all groups


def test_the_slider_tunes_and_the_monitor_shows_the_accuracy_of_early_results(dashboard: Dashboard) -> None:
    dashboard.register(early=EARLY)
    dashboard.open("/query/early")
    expect(dashboard.at("accuracy")).to_contain_text("Nothing to compare yet")
    for number in range(6):
        dashboard.minute(number, "Oslo")
    expect(dashboard.at("accuracy-projected")).to_contain_text(re.compile(r"\d %|\d%"))
    expect(dashboard.at("accuracy-coverage")).to_contain_text("90")
    assert not dashboard.service.query("early").tuned
    dashboard.at("aggressiveness").fill("60")
    expect(dashboard.at("tune-question")).to_contain_text("AT 60% OF SLIDE, for everybody")
    dashboard.at("tune-cancel").click()
    expect(dashboard.at("aggressiveness")).to_have_value("50")
    assert not dashboard.service.query("early").tuned
    dashboard.at("aggressiveness").fill("75")
    dashboard.at("tune-confirm").click()
    expect(dashboard.at("toast").first).to_contain_text("AT 75% OF SLIDE")
    dashboard.wait(lambda: dashboard.service.query("early").tuned, "the query to be tuned")
    assert dashboard.service.query("early").aggressiveness == 0.25
    expect(dashboard.at("expected")).to_contain_text(
        re.compile("Expected accuracy|No result has been observed")
    )
    dashboard.at("aggressiveness-reset").click()
    dashboard.wait(lambda: not dashboard.service.query("early").tuned, "the query to be reset")
    expect(dashboard.at("aggressiveness")).to_have_value("50")


def test_a_lookup_answers_for_any_window(dashboard: Dashboard) -> None:
    dashboard.register(tops=ON_DEMAND)
    page = dashboard.open("/query/tops")
    dashboard.push(("Oslo", 10.0, "12:00:05"), ("Rome", 30.0, "12:05:00"), ("Oslo", 20.0, "12:09:50"))
    dashboard.at("refresh").click()
    expect(dashboard.rows()).to_have_count(2)
    expect(dashboard.rows().filter(has_text="Oslo")).to_contain_text("20")
    dashboard.at("where-city").fill("Rome")
    dashboard.at("where-city").press("Enter")
    expect(dashboard.rows()).to_have_count(1)
    expect(dashboard.rows()).to_contain_text("30")
    dashboard.at("where-city").fill("")
    dashboard.at("lookup-range").fill("1")
    expect(page.get_by_text("6 seconds")).to_be_visible()
    expect(dashboard.rows()).to_have_count(1)
    expect(dashboard.rows()).to_contain_text("20")
