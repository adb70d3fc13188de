"""The documentation's screenshots, taken with the demo's flights.

Each test first checks that the screenshot shows what it should. Without `--screenshots DIR` the tests visit the
views and write nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import transom
from tests.browser.watched_page import watched_page
from transom.cli.flights import EARLY, LOOKUPS, SCHEMA, batches, data_file, demo_queries, flights
from transom.server.settings import ServerSettings
from transom.web_service import serving

pytestmark = pytest.mark.timeout(1200)  # screenshots need days of flights first

BATCH = timedelta(minutes=30)
FOR_SCREENSHOTS = (80, 92)  # queries and batches: until the afternoon of the third day
WITHOUT_SCREENSHOTS = (30, 16)
LATE_FLIGHTS = 7  # flights of the first batch that arrive again, days later
LARGEST = 300_000  # bytes of a screenshot
SHOWN = "flights by origin, early"
WRONG = """SELECT origin, avg(delai) AS mean_delay
FROM flights [RANGE 3 hours SLIDE 1 hour]
WHERE distance > 1000
GROUP BY origin"""
RIGHT = WRONG.replace("delai", "delay")


class Tour:
    """A page, the server behind it, and the directory for screenshots."""

    def __init__(self, page: Page, demo: DemoServer, directory: str | None):
        self.page, self.demo, self.directory = page, demo, Path(directory) if directory else None

    def open(self, path: str) -> Page:
        self.page.goto(path)
        expect(self.page.get_by_test_id("engine-state")).to_be_visible()
        expect(self.page.locator("[aria-busy=true]:visible")).to_have_count(0)
        return self.page

    def take(self, name: str, part: Locator | None = None, blur: bool = True) -> None:
        """Take a screenshot without focus, pointer or animation."""
        self.page.mouse.move(0, 0)
        if blur:
            self.page.evaluate("document.activeElement.blur()")
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            file = self.directory / f"{name}.png"
            (part or self.page).screenshot(path=file, animations="disabled", caret="hide")
            assert file.stat().st_size <= LARGEST, f"{file} has {file.stat().st_size:,} bytes"


class DemoServer:
    """A server with days of flights, a few of them late and a few without a time."""

    def __init__(self, engine: transom.Engine, queries: int):
        self.engine, self.queries = engine, queries + len(EARLY) + len(LOOKUPS)
        self.feed = engine.feed("flights", schema=SCHEMA, time="sched", slack="1 hour")
        engine.table("airlines", str(data_file("airlines.csv")))
        engine.register_all(demo_queries(queries + len(EARLY) + len(LOOKUPS)))
        self.batches = list(batches(flights(), BATCH, 6))
        self.pushed = 0
        self.url = ""

    def push(self, count: int) -> None:
        """Push the next batches of flights."""
        for batch in self.batches[self.pushed : self.pushed + count]:
            self.feed.push(batch)
            self.pushed += 1
            if self.pushed % 25 == 7:
                self.feed.push([(None, "UA", "JFK", "LAX", 3, 2475, None)])
            if not self.engine.running:
                self.engine.step()


@pytest.fixture(scope="module")
def demo(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[DemoServer]:
    engine = transom.Engine(spark, str(tmp_path_factory.mktemp("flights") / "checkpoint"), poll="50 ms")
    queries, count = (
        FOR_SCREENSHOTS if request.config.getoption("--screenshots", None) else WITHOUT_SCREENSHOTS
    )
    server = DemoServer(engine, queries)
    with serving(engine, ServerSettings(port=0), start=False) as served:
        server.url = served.url
        server.push(count)
        server.feed.push(server.batches[0].slice(0, LATE_FLIGHTS))
        engine.step()
        served.service.start()
        yield server


@pytest.fixture(params=["light", "dark"])
def tour(request: pytest.FixtureRequest, chromium: Browser, demo: DemoServer) -> Iterator[Tour]:
    options = {"color_scheme": request.param, "device_scale_factor": 1.2}
    with watched_page(chromium, demo.url, **options) as watched:
        yield Tour(watched.page, demo, request.config.getoption("--screenshots", None))
        problems = watched.unexpected_problems()
        assert not problems, "\n".join(problems)


def only(theme: str) -> Any:
    return pytest.mark.parametrize("tour", [theme], indirect=True)


@only("light")
def test_the_overview(tour: Tour) -> None:
    page = tour.open("/")
    expect(page.get_by_test_id("stream-row")).to_contain_text("flights")
    expect(page.get_by_test_id("query-row").first).to_be_visible()
    tour.take("overview")


@only("light")
def test_the_queries(tour: Tour) -> None:
    page = tour.open("/queries")
    expect(page.get_by_test_id("query-row")).to_have_count(25)
    expect(page.get_by_test_id("nav-queries")).to_contain_text(str(tour.demo.queries))
    tour.take("queries")


@pytest.mark.parametrize("tour", ["light", "dark"], indirect=True, ids=str)
def test_a_query_with_early_and_final_results(tour: Tour, request: pytest.FixtureRequest) -> None:
    tour.page.set_viewport_size({"width": 1280, "height": 900})  # all of the chart
    page = tour.open(f"/query/{SHOWN}")
    expect(page.get_by_test_id("accuracy-projected")).to_contain_text("%")
    page.get_by_test_id("refresh").click()
    expect(page.get_by_test_id("refresh-note")).to_contain_text("as of")
    expect(page.locator("[data-testid=result-row][data-kind=early]").first).to_be_visible()
    page.get_by_role("combobox", name="Windows").select_option("30")
    expect(page.get_by_test_id("chart")).not_to_have_attribute("data-early", "0")
    tour.take("query-dark" if "dark" in request.node.name else "query")


@only("light")
def test_several_queries_on_one_chart(tour: Tour) -> None:
    names = urlencode([("query", SHOWN), ("query", "worst delay, early"), ("scale", "relative")])
    page = tour.open(f"/compare?{names}")
    expect(page.get_by_test_id("compared")).to_contain_text("worst delay, early")
    expect(page.get_by_test_id("chart")).not_to_have_attribute("data-final", "0")
    expect(page.get_by_test_id("chart")).to_contain_text("% of each line's highest value")
    tour.take("compare")


@only("light")
def test_the_table_of_results(tour: Tour) -> None:
    page = tour.open(f"/query/{SHOWN}")
    page.get_by_test_id("search-rows").fill("JFK")
    page.get_by_role("button", name="Final only").click()
    page.get_by_test_id("sort-flights").click()
    page.get_by_test_id("sort-flights").click()
    rows = page.get_by_test_id("result-row")
    expect(rows.filter(has_not_text="JFK")).to_have_count(0)
    expect(page.get_by_role("columnheader", name="flights")).to_have_attribute("aria-sort", "descending")
    section = page.get_by_role("region", name="Latest results")
    section.evaluate("element => scrollTo(0, element.getBoundingClientRect().top + scrollY - 24)")
    tour.take("results")


@only("light")
def test_the_accuracy_monitor(tour: Tour) -> None:
    page = tour.open(f"/query/{SHOWN}")
    expect(page.get_by_test_id("accuracy-projected")).to_contain_text("%")
    tour.take("accuracy", page.get_by_test_id("accuracy"))


@pytest.mark.parametrize("tour", ["light", "dark"], indirect=True, ids=str)
def test_sharing(tour: Tour, request: pytest.FixtureRequest) -> None:
    page = tour.open("/sharing")
    expect(page.get_by_test_id("ratio")).to_contain_text("×")
    expect(page.get_by_test_id("family").first).to_be_visible()
    tour.take("sharing-dark" if "dark" in request.node.name else "sharing")


@only("light")
def test_the_editor_with_an_error(tour: Tour) -> None:
    page = tour.open("/new")
    write(page, WRONG)
    expect(page.get_by_test_id("check-error")).to_contain_text("delay")
    expect(page.locator(".cm-line .wrong")).to_have_text("delai")
    tour.take("editor-error")


@only("light")
def test_the_editor_with_a_preview(tour: Tour) -> None:
    page = tour.open("/new")
    write(page, RIGHT)
    expect(page.get_by_test_id("preview")).to_be_enabled()
    page.get_by_test_id("preview").click()
    expect(page.get_by_test_id("preview-rows")).to_be_visible()
    tour.demo.push(10)
    expect(page.locator("[data-testid=preview-row][data-kind=final]").first).to_be_visible()
    expect(page.locator("[data-testid=preview-row][data-kind=early]").first).to_be_visible()
    tour.take("editor-preview")
    page.goto("about:blank")  # which ends the preview


@only("light")
def test_the_editor_with_suggestions(tour: Tour) -> None:
    page = tour.open("/new")
    expect(page.locator(".nicegui-codemirror[data-ready=yes]")).to_be_visible()
    page.get_by_test_id("editor").locator(".cm-content").click()
    page.keyboard.type("SELECT origin, a", delay=30)
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("avg(x)")
    expect(page.get_by_test_id("example").first).to_be_visible()
    page.mouse.move(0, 0)
    tour.take("editor-completion", blur=False)


@only("light")
def test_the_editor_on_a_phone(tour: Tour) -> None:
    tour.page.set_viewport_size({"width": 390, "height": 844})
    tour.page.goto("/new")
    write(tour.page, RIGHT)
    expect(tour.page.get_by_test_id("register")).to_be_enabled()
    expect(tour.page.get_by_test_id("register")).to_be_in_viewport(ratio=1)
    tour.take("editor-phone")


@only("light")
def test_a_stream(tour: Tour) -> None:
    page = tour.open("/stream/flights")
    expect(page.get_by_test_id("column-row").first).to_contain_text("to")
    expect(page.get_by_test_id("stream-fates")).to_contain_text("Late")
    tour.take("stream")


@only("light")
def test_batches(tour: Tour) -> None:
    page = tour.open("/batches")
    expect(page.get_by_test_id("bar").first).to_be_visible()
    expect(page.get_by_test_id("checkpoint")).to_contain_text("state")
    directory = (
        "document.querySelector('[data-testid=checkpoint] dd').textContent = '/data/flights/checkpoint'"
    )
    page.evaluate(directory)  # not that of a test
    tour.take("batches")


@only("light")
def test_help(tour: Tour) -> None:
    tour.page.set_viewport_size({"width": 1180, "height": 640})
    page = tour.open("/help")
    expect(page.get_by_test_id("help-text")).to_contain_text("RANGE")
    tour.take("help")


@only("light")
def test_a_lookup(tour: Tour) -> None:
    page = tour.open("/query/in buckets")
    page.get_by_test_id("lookup-range").fill("40")
    expect(page.get_by_test_id("result-row").first).to_be_visible()
    tour.take("lookup")


@only("light")
def test_late_rows(tour: Tour) -> None:
    page = tour.open("/late")
    expect(page.get_by_test_id("late-row").first).to_be_visible()
    tour.take("late")


def write(page: Page, sql: str) -> None:
    page.get_by_test_id("editor").locator(".cm-content").click()
    page.keyboard.insert_text(sql)
