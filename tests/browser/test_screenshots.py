"""The documentation's pictures, of the demo's flights: what each is to show is looked for first.

Written only with `--screenshots DIR`; without it this still walks through the views.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import transom
from tests.browser.browsing import watched_page
from transom.app.flights import EARLY, LOOKUPS, SCHEMA, data_file, demo_queries, flights, pages
from transom.app.server.serving import serving
from transom.app.server.settings import ServerSettings

QUERIES = 40
PAGE = timedelta(minutes=30)
PAGES = 76  # until the afternoon of the second day, in the midst of windows
LARGEST = 250_000  # bytes of a picture
SHOWN = "flights by origin, early"
WRONG = """SELECT origin, avg(delai) AS mean_delay
FROM flights [RANGE 3 hours SLIDE 1 hour]
WHERE distance > 1000
GROUP BY origin"""
RIGHT = WRONG.replace("delai", "delay")


class Tour:
    """A page, and where pictures of it go."""

    def __init__(self, page: Page, place: str | None):
        self.page, self.place = page, Path(place) if place else None

    def open(self, path: str) -> Page:
        self.page.goto(path)
        expect(self.page.get_by_test_id("engine-state")).to_be_visible()
        expect(self.page.locator("[aria-busy=true]:visible")).to_have_count(0)
        return self.page

    def take(self, name: str) -> None:
        """Take a picture, in which nothing moves and nothing is pointed at."""
        self.page.mouse.move(0, 0)
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        if self.place is not None:
            self.place.mkdir(parents=True, exist_ok=True)
            file = self.place / f"{name}.png"
            self.page.screenshot(path=file, animations="disabled", caret="hide")
            assert file.stat().st_size <= LARGEST, f"{file} has {file.stat().st_size:,} bytes"


@pytest.fixture(scope="module")
def url(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a day and a half of flights behind it, and a few without a time."""
    engine = transom.Engine(spark, str(tmp_path_factory.mktemp("flights") / "checkpoint"), poll="50 ms")
    feed = engine.feed("flights", schema=SCHEMA, time="sched", slack="1 hour")
    engine.table("airlines", str(data_file("airlines.csv")))
    engine.register_all(demo_queries(QUERIES) | EARLY | LOOKUPS)
    stream = pages(flights(), PAGE, 3)
    with serving(engine, ServerSettings(port=0), start=False) as served:
        for number in range(PAGES):
            feed.push(next(stream))
            if number % 25 == 7:
                feed.push([(None, "UA", "JFK", "LAX", 3, 2475, None)])
            engine.step()
        served.service.start()
        yield served.url


@pytest.fixture(params=["light", "dark"])
def tour(request: pytest.FixtureRequest, chromium: Browser, url: str) -> Iterator[Tour]:
    look = {"color_scheme": request.param, "device_scale_factor": 1.5}
    with watched_page(chromium, url, **look) as seen:
        yield Tour(seen.page, request.config.getoption("--screenshots", None))
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
    tour.take("queries")


@pytest.mark.parametrize("tour", ["light", "dark"], indirect=True, ids=str)
def test_a_query_with_early_and_final_results(tour: Tour, request: pytest.FixtureRequest) -> None:
    page = tour.open(f"/query/{SHOWN}")
    expect(page.get_by_test_id("accuracy-projected")).to_contain_text("%")
    page.get_by_test_id("refresh").click()
    expect(page.get_by_test_id("refresh-note")).to_contain_text("as of")
    expect(page.locator("[data-testid=result-row][data-kind=early]").first).to_be_visible()
    expect(page.get_by_test_id("chart")).not_to_have_attribute("data-early", "0")
    tour.take("query-dark" if "dark" in request.node.name else "query")


@only("light")
def test_the_accuracy_monitor(tour: Tour) -> None:
    page = tour.open(f"/query/{SHOWN}")
    expect(page.get_by_test_id("accuracy-projected")).to_contain_text("%")
    page.get_by_test_id("accuracy").evaluate("one => one.scrollIntoView({block: 'start'})")
    page.mouse.wheel(0, -16)
    tour.take("accuracy")


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
def test_the_editor_with_a_preview(tour: Tour, url: str) -> None:
    page = tour.open("/new")
    write(page, RIGHT.replace(" SLIDE 1 hour", ""))
    expect(page.get_by_test_id("preview")).to_be_enabled()
    page.get_by_test_id("preview").click()
    expect(page.get_by_test_id("preview-row").first).to_be_visible()
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
