"""The documentation's pictures, of the demo's flights: what each is to show is looked for first.

Written only with `--screenshots DIR`; without it this still walks through the views.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import transom
from tests.browser.browsing import watched_page
from transom.cli.flights import EARLY, LOOKUPS, SCHEMA, data_file, demo_queries, flights, pages
from transom.server.lifecycle import serving
from transom.server.settings import ServerSettings

pytestmark = pytest.mark.timeout(1200)  # with pictures there are days of flights first

PAGE = timedelta(minutes=30)
RICH = (80, 92)  # queries and pages for a picture: until the afternoon of the third day
PLAIN = (30, 16)  # and where nobody sees it
OLD = 7  # flights of the first page that come once more, days later
LARGEST = 250_000  # bytes of a picture
SHOWN = "flights by origin, early"
WRONG = """SELECT origin, avg(delai) AS mean_delay
FROM flights [RANGE 3 hours SLIDE 1 hour]
WHERE distance > 1000
GROUP BY origin"""
RIGHT = WRONG.replace("delai", "delay")


class Tour:
    """A page, the flights behind it, and where pictures go."""

    def __init__(self, page: Page, sky: Sky, place: str | None):
        self.page, self.sky, self.place = page, sky, Path(place) if place else None

    def open(self, path: str) -> Page:
        self.page.goto(path)
        expect(self.page.get_by_test_id("engine-state")).to_be_visible()
        expect(self.page.locator("[aria-busy=true]:visible")).to_have_count(0)
        return self.page

    def take(self, name: str, part: Locator | None = None) -> None:
        """Take a picture, in which nothing moves and nothing is pointed at."""
        self.page.mouse.move(0, 0)
        self.page.evaluate("document.activeElement.blur()")
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        if self.place is not None:
            self.place.mkdir(parents=True, exist_ok=True)
            file = self.place / f"{name}.png"
            (part or self.page).screenshot(path=file, animations="disabled", caret="hide")
            assert file.stat().st_size <= LARGEST, f"{file} has {file.stat().st_size:,} bytes"


class Sky:
    """A server with days of flights behind it, a few of them late and a few without a time."""

    def __init__(self, engine: transom.Engine, queries: int):
        self.engine, self.queries = engine, queries + len(EARLY) + len(LOOKUPS)
        self.feed = engine.feed("flights", schema=SCHEMA, time="sched", slack="1 hour")
        engine.table("airlines", str(data_file("airlines.csv")))
        engine.register_all(demo_queries(queries) | EARLY | LOOKUPS)
        self.pages = list(pages(flights(), PAGE, 6))
        self.pushed = 0
        self.url = ""

    def fly(self, count: int) -> None:
        """Push so many pages more."""
        for page in self.pages[self.pushed : self.pushed + count]:
            self.feed.push(page)
            self.pushed += 1
            if self.pushed % 25 == 7:
                self.feed.push([(None, "UA", "JFK", "LAX", 3, 2475, None)])
            if not self.engine.running:
                self.engine.step()


@pytest.fixture(scope="module")
def sky(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Sky]:
    engine = transom.Engine(spark, str(tmp_path_factory.mktemp("flights") / "checkpoint"), poll="50 ms")
    queries, count = RICH if request.config.getoption("--screenshots", None) else PLAIN
    sky = Sky(engine, queries)
    with serving(engine, ServerSettings(port=0), start=False) as served:
        sky.url = served.url
        sky.fly(count)
        sky.feed.push(sky.pages[0].slice(0, OLD))
        engine.step()
        served.service.start()
        yield sky


@pytest.fixture(params=["light", "dark"])
def tour(request: pytest.FixtureRequest, chromium: Browser, sky: Sky) -> Iterator[Tour]:
    look = {"color_scheme": request.param, "device_scale_factor": 1.2}
    with watched_page(chromium, sky.url, **look) as seen:
        yield Tour(seen.page, sky, request.config.getoption("--screenshots", None))
        assert not seen.unpardoned(), "\n".join(seen.unpardoned())


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
    expect(page.get_by_test_id("nav-queries")).to_contain_text(str(tour.sky.queries))
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
    tour.sky.fly(10)
    expect(page.locator("[data-testid=preview-row][data-kind=final]").first).to_be_visible()
    expect(page.locator("[data-testid=preview-row][data-kind=early]").first).to_be_visible()
    tour.take("editor-preview")
    page.goto("about:blank")  # which ends the preview


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
