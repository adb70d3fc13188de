"""A dashboard under test: a running engine, a feed to push rows into, a server, and a browser page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

import transom
from tests.browser.watched_page import WatchedPage, watched_page
from tests.runtime.engine_helpers import SettableClock, at
from transom.server.settings import ServerSettings
from transom.web_service import Served, serving

ENGINE_TIMEOUT = 60  # seconds: the first batch of a kind compiles code in Spark
BIDS = "city string, price double, ts timestamp"
COUNTS = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]"
PER_CITY = (
    "SELECT city, sum(price) AS total, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY city"
)
EARLY = f"{PER_CITY} EMIT EARLY AT 50% OF SLIDE"
ON_DEMAND = "SELECT city, max(price) AS top, count(*) AS n FROM bids [RANGE 10 minutes] GROUP BY city"

Row = tuple[str | None, float | None, str | None]


class Dashboard:
    """The engine, feed, clock, server and page of a test."""

    def __init__(
        self, engine: transom.Engine, feed: Any, clock: SettableClock, served: Served, watched: WatchedPage
    ):
        self.engine, self.feed, self.clock, self.served = engine, feed, clock, served
        self.watched, self.page = watched, watched.page
        self._pushed = 0

    @property
    def service(self) -> Any:
        return self.served.service

    def push(self, *rows: Row) -> None:
        """Push rows of city, price and time of day, and wait until the engine has read them."""
        self._pushed += self.feed.push([(city, price, ts and at(ts)) for city, price, ts in rows])
        self.wait(lambda: self.engine.progress().streams["bids"].rows >= self._pushed, "the rows to be read")

    def minute(self, number: int, *cities: str, price: float = 10.0) -> None:
        """Push a minute of bids: each city bids in each quarter, so that windows fill evenly."""
        for second in (5, 20, 35, 50):
            self.push(*[(city, price + number, f"12:{number:02}:{second:02}") for city in cities])

    def register(self, **queries: str) -> None:
        """Register queries by name through the service; `_` in a name becomes a space."""
        for name, sql in queries.items():
            self.service.register(sql, name.replace("_", " "))

    @staticmethod
    def wait(condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition that the dashboard does not show."""
        deadline = time.monotonic() + ENGINE_TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out waiting for {what}")
            time.sleep(0.02)

    def open(self, path: str = "/") -> Page:
        """Open a view, and wait for its first refresh."""
        self.page.goto(path)
        expect(self.at("engine-state")).to_be_attached()  # a phone does not show it
        return self.page

    def at(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    def type(self, text: str) -> None:
        """Type into the editor, key by key, so that it makes suggestions."""
        expect(self.page.locator(".nicegui-codemirror[data-ready=yes]")).to_be_visible()
        self.at("editor").locator(".cm-content").click()
        self.page.keyboard.type(text, delay=15)

    def suggestions(self) -> Locator:
        """The names that the editor suggests."""
        return self.page.locator(".cm-tooltip-autocomplete .cm-completionLabel")

    def accept(self) -> None:
        """Accept the first suggestion; for a moment, the editor still takes Enter for a line break."""
        self.page.wait_for_timeout(200)
        self.page.keyboard.press("Enter")
        expect(self.page.locator(".cm-tooltip-autocomplete")).to_have_count(0)

    def rows(self, kind: str | None = None) -> Locator:
        """The result rows on screen, all or of one kind."""
        return self.page.locator(f"[data-testid=result-row]{f'[data-kind={kind}]' if kind else ''}")

    def row_of(self, query: str) -> Locator:
        """A query's row in the list of queries."""
        return self.at("query-row").filter(has=self.page.get_by_role("link", name=query, exact=True))

    def write(self, sql: str) -> None:
        """Replace the text in the editor."""
        code = self.at("editor").locator(".cm-content")
        code.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(sql)


@contextmanager
def opened_dashboard(
    spark: Any,
    browser: Browser,
    directory: Path,
    settings: ServerSettings | None = None,
    browser_options: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Dashboard]:
    """Start an engine and a server and open a page; the remaining options are those of the feed.

    Without a Spark session, the engine computes in this process.
    """
    clock = SettableClock("2013-01-01 12:00")
    engine = transom.Engine(
        spark,
        str(directory / "checkpoint"),
        backend="local" if spark is None else "spark",
        clock=clock,
        poll="50 ms",
        max_failures=1,
    )
    feed = engine.feed("bids", options.pop("schema", BIDS), time="ts", **options)
    with (
        serving(engine, settings or ServerSettings(port=0)) as served,
        watched_page(browser, served.url, **browser_options or {}) as watched,
    ):
        yield Dashboard(engine, feed, clock, served, watched)
