"""Queries come, tell what they find while one looks, and leave."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.desk import COUNTS, EARLY, ON_DEMAND, PER_CITY, Desk


def test_a_query_that_is_registered_in_the_editor_is_in_the_list(desk: Desk) -> None:
    desk.open("/new")
    desk.write(COUNTS)
    desk.at("query-name").fill("bids a minute")
    expect(desk.at("register")).to_be_enabled()
    desk.at("register").click()
    expect(desk.at("title")).to_have_text("bids a minute")
    desk.at("nav-queries").click()
    expect(desk.row_of("bids a minute")).to_be_visible()
    assert desk.engine.query("bids a minute").text == COUNTS


def test_results_arrive_while_one_looks(desk: Desk) -> None:
    desk.register(per_city=PER_CITY)
    page = desk.open("/query/per city")
    expect(page.get_by_text("No results yet")).to_be_visible()
    loads: list[str] = []
    page.on("load", lambda: loads.append(page.url))
    desk.minute(0, "Oslo", "Rome")
    desk.push(("Oslo", 1.0, "12:01:00"))
    expect(desk.rows("final")).to_have_count(2)
    expect(desk.rows("final").filter(has_text="Rome")).to_contain_text("40")
    desk.minute(1, "Oslo")
    desk.push(("Oslo", 1.0, "12:02:00"))
    expect(desk.rows("final")).to_have_count(3)
    expect(desk.at("chart")).to_have_attribute("data-final", "3")
    assert not loads, "the page was loaded again"


def test_refresh_prods_and_says_when(desk: Desk) -> None:
    desk.register(per_city=PER_CITY)
    desk.open("/query/per city")
    desk.push(("Oslo", 10.0, "12:00:05"), ("Rome", 20.0, "12:00:10"))
    desk.clock.advance(3)
    expect(desk.rows()).to_have_count(0)
    expect(desk.at("refresh")).to_be_enabled()
    desk.at("refresh").click()
    expect(desk.at("refresh-note")).to_have_text(re.compile(r"^as of 12:03:00, page \d+, 1 open window$"))
    expect(desk.rows("early")).to_have_count(2)
    expect(desk.rows("final")).to_have_count(0)
    expect(desk.at("chart")).to_have_attribute("data-early", "2")


def test_an_early_result_has_an_interval_and_becomes_final(desk: Desk) -> None:
    desk.register(early=EARLY)
    desk.open("/query/early")
    for number in range(12):  # of what they turned out to be, intervals are learned
        desk.minute(number, "Oslo")
    desk.push(("Oslo", 22.0, "12:12:05"), ("Oslo", 22.0, "12:12:35"))
    window = "12:12:00 – 12:13:00"
    early = desk.rows("early").filter(has_text=window)
    expect(early).to_have_count(1)
    expect(early).to_contain_text(re.compile(r"\d to \d"))
    expect(desk.at("chart")).to_have_attribute("data-early", "1")
    expect(desk.rows("final").filter(has_text=window)).to_have_count(0)
    desk.push(("Oslo", 22.0, "12:12:50"), ("Oslo", 1.0, "12:13:00"))
    expect(desk.rows("final").filter(has_text=window)).to_have_count(1)
    expect(desk.rows("final").filter(has_text=window)).to_contain_text("66")
    expect(desk.at("chart")).to_have_attribute("data-early", "0")
    expect(desk.at("chart")).to_have_attribute("data-final", "13")


def test_an_early_mark_is_hollow_and_a_final_one_is_not(desk: Desk) -> None:
    desk.register(early=EARLY)
    desk.open("/query/early")
    desk.minute(0, "Oslo")
    desk.push(("Oslo", 1.0, "12:01:05"), ("Oslo", 1.0, "12:01:40"))
    expect(desk.at("chart")).to_have_attribute("data-early", "1")
    expect(desk.at("chart")).to_have_attribute("data-final", "1")
    chart = desk.at("chart")
    expect(
        chart.locator('path[fill="var(--surface)"][stroke="var(--c1)"]:not([fill-opacity])')
    ).to_have_count(1)
    expect(chart.locator('path[stroke="var(--c1)"][stroke-width="1.5"][stroke-dasharray]')).to_have_count(1)
    expect(chart.locator('path[fill="var(--c1)"]')).to_have_count(1)


def test_a_query_is_dropped_after_a_question(desk: Desk) -> None:
    desk.register(counts=COUNTS, per_city=PER_CITY)
    page = desk.open("/query/counts")
    desk.at("drop").click()
    page.get_by_role("button", name="Keep it").click()
    expect(desk.at("drop-confirm")).to_be_hidden()
    assert "counts" in desk.engine.queries()
    desk.at("drop").click()
    desk.at("drop-confirm").click()
    expect(page).to_have_url(re.compile("/queries$"))
    expect(desk.row_of("per city")).to_be_visible()
    expect(desk.row_of("counts")).to_have_count(0)
    desk.wait(lambda: "counts" not in desk.engine.queries(), "the query to leave")


def test_a_query_that_leaves_while_one_looks_says_so(desk: Desk) -> None:
    desk.register(counts=COUNTS)
    page = desk.open("/query/counts")
    desk.service.drop("counts")
    desk.push(("Oslo", 1.0, "12:00:00"))
    expect(page.get_by_text("counts has left")).to_be_visible()
    expect(page.get_by_role("link", name="All queries")).to_be_visible()


def test_choosing_groups_changes_the_chart(desk: Desk) -> None:
    desk.register(per_city=PER_CITY)
    page = desk.open("/query/per city")
    desk.minute(0, "Oslo", "Rome", "Bonn")
    desk.minute(1, "Oslo", "Rome", "Bonn")
    desk.push(("Oslo", 1.0, "12:02:00"))
    expect(desk.at("chart")).to_have_attribute("data-final", "6")
    page.get_by_label("Groups").click()
    page.get_by_role("option", name="Rome").click()
    page.keyboard.press("Escape")
    expect(desk.at("chart")).to_have_attribute("data-final", "2")
    expect(desk.rows("final")).to_have_count(6)  # the table keeps all


def test_the_slider_tunes_and_the_monitor_tells_how_good_early_results_are(desk: Desk) -> None:
    desk.register(early=EARLY)
    desk.open("/query/early")
    expect(desk.at("accuracy")).to_contain_text("Nothing to compare yet")
    for number in range(6):
        desk.minute(number, "Oslo")
    expect(desk.at("accuracy-projected")).to_contain_text(re.compile(r"\d %|\d%"))
    expect(desk.at("accuracy-coverage")).to_contain_text("90")
    assert not desk.service.query("early").tuned
    desk.at("aggressiveness").fill("25")
    expect(desk.at("toast").first).to_contain_text("25")
    desk.wait(lambda: desk.service.query("early").tuned, "the query to be tuned")
    assert desk.service.query("early").aggressiveness == 0.25
    expect(desk.at("expected")).to_contain_text(re.compile("expect|Nothing was seen"))
    desk.at("aggressiveness-reset").click()
    desk.wait(lambda: not desk.service.query("early").tuned, "the query to be as it says")
    expect(desk.at("aggressiveness")).to_have_value("50")


def test_a_lookup_answers_for_any_window(desk: Desk) -> None:
    desk.register(tops=ON_DEMAND)
    page = desk.open("/query/tops")
    desk.push(("Oslo", 10.0, "12:00:05"), ("Rome", 30.0, "12:05:00"), ("Oslo", 20.0, "12:09:50"))
    desk.at("refresh").click()
    expect(desk.rows()).to_have_count(2)
    expect(desk.rows().filter(has_text="Oslo")).to_contain_text("20")
    desk.at("where-city").fill("Rome")
    desk.at("where-city").press("Enter")
    expect(desk.rows()).to_have_count(1)
    expect(desk.rows()).to_contain_text("30")
    desk.at("where-city").fill("")
    desk.at("lookup-range").fill("1")
    expect(page.get_by_text("6 seconds")).to_be_visible()
    expect(desk.rows()).to_have_count(1)
    expect(desk.rows()).to_contain_text("20")
