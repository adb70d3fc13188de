"""Charts, tables, lists and time zones, at three sizes, light and dark; before and after a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import transom
from tests.browser.watched_page import watched_page
from transom.server.settings import ServerSettings
from transom.web_service import Served, serving

SIZES = {"wide": (1280, 800), "medium": (1024, 768), "phone": (390, 844)}
START = datetime(2013, 1, 1, 12)
CITIES = ("Oslo", "Rome", "Bonn", "Lima", "Cairo", "Quito", "Paris")
MISSING = range(20, 25)  # minutes without bids
MINUTES = 70
SLIDER_MARGIN = 44  # beside the zoom slider
ORDERS = "city string, price double, wait_ms double, ts timestamp"
MINUTE = "[RANGE 1 minute SLIDE 1 minute]"
QUERIES = {
    "orders": f"SELECT count(*) AS n FROM orders {MINUTE}",
    "dear orders": f"SELECT count(*) AS n FROM orders {MINUTE} WHERE price > 11 HAVING n > 3",
    "by city": f"SELECT city, sum(price) AS total, count(*) AS n FROM orders {MINUTE} GROUP BY city",
    "waits": (
        f"SELECT city, avg(wait_ms) AS wait FROM orders {MINUTE} WHERE price > 0 AND city IS NOT NULL "
        "GROUP BY city EMIT EARLY AT 50% OF SLIDE"
    ),
    "lookup": "SELECT city, wait_ms, count(*) AS n FROM orders [RANGE 3 hours] GROUP BY city, wait_ms",
}


def minute_of_orders(number: int) -> list[tuple[Any, ...]]:
    """Seven orders, one of each city; the price rises from Oslo, 10, to Paris, 16, and with the minute."""
    at = START + timedelta(minutes=number)
    return [
        (city, 10.0 + place + number, float(number), at + timedelta(seconds=5 * place, microseconds=123))
        for place, city in enumerate(CITIES)
    ]


class Shop:
    """An engine without Spark that has processed an hour of orders, and its server."""

    def __init__(self, directory: Path):
        self.engine = transom.Engine(backend="local", checkpoint=str(directory), poll="50 ms")
        self.feed = self.engine.feed("orders", ORDERS, time="ts")
        self.served: Served


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of an engine that processed an hour of orders and stopped."""
    directory = tmp_path_factory.mktemp("shop") / "checkpoint"
    shop = Shop(directory)
    shop.engine.register_all(QUERIES)
    for number in range(MINUTES):
        if number not in MISSING:
            shop.feed.push(minute_of_orders(number))
            shop.engine.step()
    shop.engine.stop()
    return directory


@pytest.fixture(scope="module")
def shop(checkpoint: Path) -> Iterator[Shop]:
    """The same after a restart."""
    shop = Shop(checkpoint)
    with serving(shop.engine, ServerSettings(port=0)) as shop.served:
        yield shop


@pytest.fixture
def page(request: pytest.FixtureRequest, chromium: Browser, shop: Shop) -> Iterator[Page]:
    """A page of some size and theme; 1,280 by 800 pixels and light, unless the test says otherwise."""
    size, theme = getattr(request, "param", ("wide", "light"))
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme}
    with watched_page(chromium, shop.served.url, **options) as watched:
        yield watched.page
        problems = watched.unexpected_problems()
        assert not problems, "\n".join(problems)


everywhere = pytest.mark.parametrize(
    "page",
    [pytest.param((size, theme), id=f"{size}-{theme}") for size in SIZES for theme in ("light", "dark")],
    indirect=True,
)


def opened(page: Page, path: str) -> Page:
    page.goto(path)
    expect(page.get_by_test_id("engine-state")).to_be_attached()
    expect(page.locator("[aria-busy=true]:visible")).to_have_count(0)
    return page


def chart(page: Page) -> Locator:
    return page.get_by_test_id("chart")


def rows(page: Page) -> Locator:
    return page.get_by_test_id("result-row")


def chart_option(page: Page) -> dict[str, Any]:
    """The options of the chart on the page, as ECharts has them."""
    return chart(page).evaluate("element => getElement(element.id.slice(1)).chart.getOption()")


@everywhere
def test_charts_tables_and_lists_fit_the_window(page: Page, shop: Shop) -> None:
    for path in (
        "/query/waits",
        "/query/by city",
        "/query/lookup",
        "/compare?query=orders&query=waits",
        "/queries",
    ):
        opened(page, path)
        if "lookup" not in path and path != "/queries":
            expect(chart(page)).not_to_have_attribute("data-final", "0")
            expect(chart(page).locator("text", has_text=re.compile(r"^1[23]:\d0$")).first).to_be_visible()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"], path
        if path.startswith("/query/") and "lookup" not in path and page.viewport_size["width"] >= 1024:
            box = chart(page).bounding_box()
            assert box["y"] + box["height"] <= page.viewport_size["height"], "the time axis is below the fold"
    opened(page, "/query/by city")
    background = chart(page).evaluate("element => getComputedStyle(element.closest('.card')).backgroundColor")
    is_dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 200
    assert is_dark == page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    expect(page.get_by_test_id("search-rows")).to_be_visible()
    page.get_by_test_id("search-rows").fill("rome")
    expect(rows(page)).to_have_count(25)
    expect(page.get_by_test_id("row-count")).to_contain_text(re.compile(r"^64 of 448 results$"))


def test_lists_show_the_top_group_and_what_the_trend_is_after_a_restart(page: Page) -> None:
    for path in ("/", "/queries"):
        opened(page, path)
        row = page.locator("[data-testid=query-row][data-name='by city']")
        value = row.get_by_test_id("latest-value")
        expect(value).to_contain_text("total 84")  # 16 and the 68th minute
        expect(value).to_contain_text("Paris")
        expect(value).to_contain_text("highest of 7 groups")
        expect(row.get_by_test_id("trend")).to_contain_text("Paris, last 40")
        expect(row.get_by_role("img", name="total of Paris, last 40 windows")).to_be_visible()
        expect(row).to_contain_text("448")  # results: 64 minutes of 7 cities
        plain = page.locator("[data-testid=query-row][data-name='orders']").get_by_test_id("latest-value")
        expect(plain).to_have_text("n 7")


def test_a_chart_has_gaps_where_windows_are_missing_and_counts_begin_at_zero(page: Page) -> None:
    opened(page, "/query/orders")
    expect(chart(page)).to_have_attribute("data-final", "60")
    option = chart_option(page)
    values = [point["value"][1] for point in option["series"][0]["data"]]
    assert values.count(None) == 1 and len(values) == 61
    assert option["yAxis"][0]["min"] == 0
    expect(chart(page)).to_contain_text("n = count(*), in rows")
    opened(page, "/query/waits")
    expect(chart(page)).to_contain_text("wait = avg(wait_ms), in ms")
    assert chart_option(page)["yAxis"][0].get("min") is None


def test_the_constant_of_having_is_a_line(page: Page) -> None:
    opened(page, "/query/dear orders")
    expect(chart(page).locator("text", has_text="HAVING n > 3")).to_be_visible()


def test_zoom_stays_while_results_arrive_and_can_be_reset(page: Page, shop: Shop) -> None:
    opened(page, "/query/orders")
    expect(chart(page)).to_have_attribute("data-final", "60")
    box = chart(page).bounding_box()
    y = box["y"] + box["height"] - 15
    page.mouse.move(box["x"] + 48, y)  # the left handle
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=6)
    page.mouse.up()
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()
    zoomed = chart_option(page)["dataZoom"][1]
    assert 40 < zoomed["start"] < 60 and zoomed["end"] == 100
    before = shop.engine.query("orders").results().num_rows
    shop.feed.push(minute_of_orders(MINUTES))
    shop.feed.push(minute_of_orders(MINUTES + 1))
    expect(page.get_by_test_id("facts")).to_contain_text(str(before + 2))
    assert chart_option(page)["dataZoom"][1]["start"] == pytest.approx(zoomed["start"])
    page.get_by_test_id("reset-zoom").click()
    expect(page.get_by_test_id("reset-zoom")).to_be_hidden()
    assert chart_option(page)["dataZoom"][1]["start"] == 0


def test_a_time_range_limits_the_chart(page: Page) -> None:
    opened(page, "/query/orders")
    page.get_by_test_id("range").select_option("30")
    expect(chart(page)).to_have_attribute("data-final", "30")
    page.get_by_test_id("range").select_option("from-to")
    page.get_by_test_id("chart-since").fill("2013-01-01T12:05:00")
    page.get_by_test_id("chart-until").fill("2013-01-01T12:15:00")
    expect(chart(page)).to_have_attribute("data-final", "11")
    page.get_by_test_id("range").select_option("all")
    expect(page.get_by_test_id("chart-since")).to_be_hidden()
    expect(chart(page)).not_to_have_attribute("data-final", "11")


def test_several_queries_on_one_chart(page: Page) -> None:
    opened(page, "/")
    page.get_by_test_id("nav-compare").click()
    expect(page.get_by_text("No queries chosen")).to_be_visible()
    for name in ("orders", "by city"):
        page.get_by_test_id("compare-name").fill(name)
        page.get_by_test_id("compare-add").click()
        expect(page.get_by_test_id("compared")).to_contain_text(name)
    expect(page).to_have_url(re.compile(r"\?query=orders&query=by\+city$"))
    expect(chart(page)).to_contain_text("by city: Paris")
    assert len(chart_option(page)["legend"][0]["data"]) == 4  # orders, and three groups
    page.get_by_test_id("range").select_option("from-to")
    page.get_by_test_id("chart-since").fill("2013-01-01T12:05:00")
    page.get_by_test_id("chart-until").fill("2013-01-01T12:09:00")
    expect(chart(page)).to_have_attribute("data-final", "20")  # four lines
    page.get_by_role("button", name="Relative").click()
    expect(chart(page)).to_contain_text("% of each line's highest value")
    expect(page).to_have_url(re.compile("scale=relative"))
    page.get_by_role("button", name="Remove by city").click()
    expect(chart(page)).not_to_contain_text("by city: Paris")
    page.get_by_test_id("compare-name").fill("nothing")
    page.get_by_test_id("compare-add").click()
    expect(page.get_by_test_id("toast")).to_contain_text("no standing query named nothing")
    opened(page, "/query/orders")
    page.get_by_test_id("compare").click()
    expect(page.get_by_test_id("compared")).to_contain_text("orders")


def open_menu(page: Page) -> None:
    """Open the navigation, which is a menu on a phone."""
    if page.get_by_test_id("menu").is_visible():
        page.get_by_test_id("menu").click()


@everywhere
def test_every_feature_is_two_clicks_from_the_overview(page: Page) -> None:
    """One click leads to a view; the controls are there, for a second click."""
    for link, controls in {
        "by city": (
            "compare",
            "range",
            "groups",
            "value",
            "search-rows",
            "sort-total",
            "download",
            "page-next",
        ),
        "lookup": ("search-rows", "sort-city", "lookup-range", "where-city"),
    }.items():
        opened(page, "/")
        page.get_by_role("link", name=link, exact=True).click()
        for control in controls:
            expect(page.get_by_test_id(control).first).to_be_attached()
    opened(page, "/")
    open_menu(page)
    page.get_by_test_id("zone-button").click()
    expect(page.get_by_test_id("zone")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    opened(page, "/")
    open_menu(page)
    page.get_by_test_id("nav-compare").click()
    expect(page.get_by_test_id("compare-name")).to_be_visible()
    expect(page.get_by_role("button", name="Relative")).to_be_visible()


def test_a_time_zone_is_chosen_once_for_all_views(page: Page) -> None:
    opened(page, "/query/orders")
    page.get_by_test_id("range").select_option("30")
    page.get_by_test_id("zone-button").click()
    page.get_by_test_id("zone").select_option("Asia/Kolkata")
    expect(page.get_by_test_id("zone-button")).to_have_text("Times in Asia/Kolkata")
    expect(rows(page).first).to_contain_text(re.compile(r"2013-01-01 18:\d\d:00 – 18:\d\d:00"))
    expect(chart(page).locator("text", has_text=re.compile(r"^18:\d0$")).first).to_be_visible()
    opened(page, "/")
    expect(page.get_by_test_id("zone-button")).to_have_text("Times in Asia/Kolkata")
    expect(page.get_by_test_id("stream-row")).to_contain_text("2013-01-01 18:")


def test_results_are_searched_sorted_filtered_and_paged(page: Page) -> None:
    opened(page, "/query/by city")
    expect(rows(page)).to_have_count(25)
    expect(page.get_by_test_id("row-count")).to_have_text(re.compile(r"^\d+ results$"))
    page.get_by_test_id("sort-total").click()
    expect(rows(page).first).to_contain_text("Oslo")  # 10, in the first minute
    expect(page.get_by_role("columnheader", name="total")).to_have_attribute("aria-sort", "ascending")
    page.get_by_test_id("sort-total").click()
    expect(rows(page).first).to_contain_text("Paris")
    page.get_by_test_id("page-next").click()
    expect(page.get_by_text(re.compile(r"^Page 2 of \d+$"))).to_be_visible()
    page.get_by_test_id("search-rows").fill("oslo")
    expect(rows(page).filter(has_not_text="Oslo")).to_have_count(0)
    expect(page.get_by_text(re.compile(r"^Page 1 of \d$"))).to_be_visible()
    page.get_by_test_id("search-rows").fill("Atlantis")
    expect(page.get_by_text("No matches")).to_be_visible()
    page.get_by_test_id("search-rows").fill("")
    page.get_by_test_id("refresh").click()
    expect(page.locator("[data-testid=result-row][data-kind=early]").first).to_be_visible()
    page.get_by_role("button", name="Final only").click()
    expect(page.locator("[data-testid=result-row][data-kind=early]")).to_have_count(0)
    page.get_by_role("button", name="Early only").click()
    expect(page.locator("[data-testid=result-row][data-kind=final]")).to_have_count(0)


def test_a_lookup_says_how_many_rows_there_are_and_is_searched_by_key(page: Page) -> None:
    opened(page, "/query/lookup")
    count = page.get_by_test_id("row-count")
    expect(count).to_have_text(re.compile(r"^4\d\d rows$"))  # a minute has a wait of its own
    expect(rows(page)).to_have_count(25)
    expect(rows(page).first).not_to_contain_text(re.compile(r"\d\.\d{3}"))  # times without noise digits
    page.get_by_test_id("search-rows").fill("quito")
    expect(count).to_have_text(re.compile(r"^\d\d of 4\d\d rows$"))
    expect(rows(page).filter(has_not_text="Quito")).to_have_count(0)
    page.get_by_test_id("sort-wait_ms").click()
    page.get_by_test_id("sort-wait_ms").click()
    expect(rows(page).first).to_contain_text(re.compile("69|70|71"))  # another test adds two minutes


def test_an_edit_of_having_moves_the_line(page: Page, shop: Shop) -> None:
    opened(page, "/query/dear orders")
    expect(chart(page).locator("text", has_text="HAVING n > 3")).to_be_visible()
    shop.served.service.edit("dear orders", QUERIES["dear orders"].replace("n > 3", "n > 4"))
    shop.feed.push(minute_of_orders(MINUTES + 3))
    expect(chart(page).locator("text", has_text="HAVING n > 4")).to_be_visible()
    expect(chart(page).locator("text", has_text="HAVING n > 3")).to_have_count(0)


class Slider:
    """The zoom slider of a chart; places are parts of its width."""

    def __init__(self, page: Page):
        self.page = page
        expect(chart(page)).to_have_attribute("data-final", "60")
        box = chart(page).bounding_box()
        assert box is not None
        self.left, self.width = box["x"] + SLIDER_MARGIN, box["width"] - 2 * SLIDER_MARGIN
        self.y = box["y"] + box["height"] - 15

    def press(self, at: float) -> None:
        self.move(at)
        self.page.mouse.down()

    def move(self, to: float) -> None:
        self.page.mouse.move(self.left + self.width * to, self.y, steps=6)

    def drag(self, start: float, end: float) -> None:
        self.press(start)
        self.move(end)
        self.page.mouse.up()

    def shown(self) -> tuple[float, float]:
        """The part of the time that the chart shows."""
        zoom = chart_option(self.page)["dataZoom"][1]
        return zoom["start"] / 100, zoom["end"] / 100


def newest_point(page: Page) -> float:
    """The place of the last point of the chart's first line on the time axis."""
    return float(chart_option(page)["series"][0]["data"][-1]["value"][0])


def test_the_handles_and_the_part_between_them_can_be_dragged(page: Page) -> None:
    opened(page, "/query/orders")
    slider = Slider(page)
    slider.drag(0, 0.3)
    assert slider.shown() == pytest.approx((0.3, 1), abs=0.02)
    slider.drag(1, 0.7)
    assert slider.shown() == pytest.approx((0.3, 0.7), abs=0.02)
    slider.drag(0.5, 0.7)  # the part that is shown moves
    assert slider.shown() == pytest.approx((0.5, 0.9), abs=0.02)
    slider.drag(0.6, 0.1)  # not beyond the end
    assert slider.shown() == pytest.approx((0, 0.4), abs=0.02)
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()


def test_results_that_arrive_do_not_disturb_a_drag(page: Page, shop: Shop) -> None:
    opened(page, "/query/orders")
    slider = Slider(page)
    last = shop.engine.query("orders").results()["window_end"].to_pylist()[-1]
    minute = (last.hour * 60 + last.minute) - 12 * 60
    before = shop.engine.query("orders").results().num_rows
    slider.press(0)
    newest = newest_point(page)
    for step in (1, 2):
        slider.move(step / 10)
        shop.feed.push(minute_of_orders(minute + step))
        expect(page.get_by_test_id("facts")).to_contain_text(str(before + step - 1))
        page.wait_for_timeout(1500)  # longer than it takes to refresh the chart
        assert slider.shown() == pytest.approx((step / 10, 1), abs=0.02), step
    assert newest_point(page) == newest
    slider.move(0.6)
    page.mouse.up()
    expect(page.get_by_test_id("reset-zoom")).to_be_visible()
    page.wait_for_timeout(1500)
    assert slider.shown() == pytest.approx((0.6, 1), abs=0.02)
    assert newest_point(page) > newest, "what has arrived is drawn after the drag"
