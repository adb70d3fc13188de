"""The pages of streams, batches and help, at three sizes, in both themes, and how many clicks lead to each feature."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, ON_DEMAND, PER_CITY, Dashboard
from tests.browser.test_accessibility import violations

SIZES = {"wide": (1280, 800), "laptop": (1024, 768), "phone": (390, 844)}
PAGES = (
    "/",
    "/queries",
    "/query/per city",
    "/new",
    "/streams",
    "/stream/bids",
    "/batches",
    "/help",
    "/late",
    "/alerts",
    "/sharing",
)
OWN_PAGES = ("/new", "/streams", "/stream/bids", "/batches", "/help")


def filled(dashboard: Dashboard) -> Dashboard:
    """Queries, rows of three minutes, a late row and a row without a time."""
    dashboard.engine.table("cities", [{"city": "Oslo", "country": "NO"}])
    dashboard.register(counts=COUNTS, per_city=PER_CITY, tops=ON_DEMAND)
    for number in range(3):
        dashboard.minute(number, "Oslo", "Rome")
    dashboard.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, None))
    return dashboard


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_and_is_accessible(
    open_local: Callable[..., Dashboard], size: str, theme: str
) -> None:
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme}
    dashboard = filled(open_local(browser_options=options))
    problems = []
    for path in PAGES:
        page = dashboard.open(path)
        expect(page.locator("[aria-busy=true]:visible")).to_have_count(0)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            problems.append(f"{path} is {wide} pixels wider than the window")
        if path in OWN_PAGES:
            if path == "/new":
                expect(page.get_by_role("textbox", name="SQL")).to_be_visible()
            problems += violations(dashboard)
    assert not problems, "\n".join(problems)


def test_the_page_of_a_stream(open_local: Callable[..., Dashboard]) -> None:
    dashboard = filled(open_local())
    page = dashboard.open("/")
    page.get_by_test_id("stream-row").get_by_role("link", name="bids").click()
    expect(page).to_have_url(re.compile("/stream/bids$"))
    expect(dashboard.at("stream-figures")).to_contain_text("26 rows in total")
    expect(dashboard.at("stream-fates")).to_contain_text("Rejected")
    city = dashboard.at("column-row").filter(has_text="city")
    expect(city).to_contain_text("Oslo to Rome")
    missed = dashboard.at("late-query")
    expect(missed).to_have_count(2)
    expect(missed.first).to_contain_text("1")
    expect(dashboard.at("stream-input")).to_contain_text("feed")
    expect(dashboard.at("stream-sample")).to_contain_text("Rome")
    dashboard.push(("Paris", 7.0, "12:03:00"))
    expect(dashboard.at("stream-figures")).to_contain_text("27 rows in total")
    page.get_by_test_id("query-stream").click()
    expect(dashboard.at("verdict")).to_contain_text("Valid query")


def test_a_stream_that_does_not_exist(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    dashboard.watched.expect_problem("404")
    dashboard.open("/stream/bidz")
    expect(dashboard.at("missing")).to_contain_text("bids")


def test_streams_tables_and_views_are_listed(open_local: Callable[..., Dashboard]) -> None:
    dashboard = filled(open_local())
    dashboard.engine.view("high", "SELECT city, price, ts FROM bids WHERE price > 10")
    page = dashboard.open("/streams")
    expect(page.get_by_test_id("table-row")).to_contain_text("country")
    expect(page.get_by_test_id("view-row")).to_contain_text("price > 10")
    page.get_by_test_id("stream-row").get_by_role("link", name="bids").click()
    expect(dashboard.at("stream-columns")).to_contain_text("event time")


def test_the_timeline_of_batches(open_local: Callable[..., Dashboard]) -> None:
    dashboard = filled(open_local())
    page = dashboard.open("/")
    page.get_by_role("link", name="Time of the last batch").click()
    expect(page).to_have_url(re.compile("/batches$"))
    bars = dashboard.at("bar")
    expect(bars.first).to_be_visible()
    before = bars.count()
    assert before >= 5
    expect(bars.last).to_have_attribute("title", re.compile(r"Batch \d+: .*commit"))
    expect(dashboard.at("checkpoint-part").filter(has_text="state")).to_have_count(1)
    expect(dashboard.at("checkpoint")).to_contain_text("batch")
    newest = dashboard.at("batch-row").first
    expect(newest).to_be_visible()
    dashboard.push(("Oslo", 1.0, "12:04:00"))
    expect(bars).not_to_have_count(before)


def test_the_help_has_the_sql_reference(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    page = dashboard.open("/")
    dashboard.at("nav-help").click()
    text = dashboard.at("help-text")
    expect(text.get_by_role("heading", name="EMIT EARLY")).to_be_attached()
    dashboard.at("help-contents").get_by_role("link", name="EMIT EARLY").click()
    expect(text.get_by_role("heading", name="EMIT EARLY", exact=True)).to_be_in_viewport()
    dashboard.at("help-contents").get_by_role("link", name="Glossary").click()
    expect(page).to_have_url(re.compile("/help/glossary$"))
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(page).to_have_url(re.compile("/batches$"))


def test_the_api_leads_to_its_description(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    page = dashboard.page
    page.goto("/api")
    expect(page).to_have_url(re.compile("/docs$"))
    expect(page.get_by_role("heading", name="GET /api/batches")).to_be_visible()


def test_every_feature_is_two_clicks_from_the_overview(open_local: Callable[..., Dashboard]) -> None:
    dashboard = filled(open_local())
    page = dashboard.open("/")

    def links() -> set[str]:
        expect(page.locator("[aria-busy=true]:visible")).to_have_count(0)
        found = page.eval_on_selector_all("a[href]", "links => links.map(each => each.href)")
        return {urlsplit(link).path for link in found if urlsplit(link).netloc == urlsplit(page.url).netloc}

    first = links()
    second: set[str] = set()
    for path in sorted(first - {"/docs"}):
        if path.startswith("/query/") and second & {"/query/counts"}:
            continue
        dashboard.open(path)
        second |= links()
    reached = first | second
    wanted = {
        "/",
        "/queries",
        "/query/counts",
        "/query/per%20city",
        "/query/tops",
        "/new",
        "/streams",
        "/stream/bids",
    }
    wanted |= {
        "/late",
        "/sharing",
        "/batches",
        "/help",
        "/help/sql",
        "/help/semantics",
        "/help/glossary",
        "/docs",
    }
    assert wanted <= reached, wanted - reached


def test_a_phone_has_a_menu_and_values_before_times(open_local: Callable[..., Dashboard]) -> None:
    dashboard = filled(open_local(browser_options={"viewport": {"width": 390, "height": 844}}))
    page = dashboard.open("/")
    expect(dashboard.at("nav-batches")).not_to_be_visible()
    dashboard.at("menu").click()
    expect(dashboard.at("menu")).to_have_attribute("aria-expanded", "true")
    dashboard.at("nav-queries").click()
    expect(page).to_have_url(re.compile("/queries$"))

    def left_of(name: str) -> float:
        box = page.get_by_role("columnheader", name=name, exact=True).bounding_box()
        assert box is not None
        return box["x"]

    expect(dashboard.row_of("per city")).to_be_visible()
    dashboard.row_of("per city").get_by_role("link", name="per city").click()
    expect(dashboard.rows("final").first).to_be_visible()
    assert left_of("city") < left_of("total") < left_of("n") < left_of("Window")
    assert left_of("n") < 390
