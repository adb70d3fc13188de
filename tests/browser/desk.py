"""A desk: an engine that runs, a feed that the test pushes into, a server, and somebody at its page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

import transom
from tests.browser.browsing import PATIENCE, Watched, watched_page
from tests.runtime.engine_helpers import SettableClock, at
from transom.server.lifecycle import Served, serving
from transom.server.settings import ServerSettings

BIDS = "city string, price double, ts timestamp"
COUNTS = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]"
PER_CITY = (
    "SELECT city, sum(price) AS total, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY city"
)
EARLY = f"{PER_CITY} EMIT EARLY AT 50% OF SLIDE"
ON_DEMAND = "SELECT city, max(price) AS top, count(*) AS n FROM bids [RANGE 10 minutes] GROUP BY city"

Row = tuple[str | None, float | None, str | None]


class Desk:
    """What a test holds in its hands."""

    def __init__(
        self, engine: transom.Engine, feed: Any, clock: SettableClock, served: Served, seen: Watched
    ):
        self.engine, self.feed, self.clock, self.served = engine, feed, clock, served
        self.seen, self.page = seen, seen.page
        self._pushed = 0

    @property
    def service(self) -> Any:
        return self.served.service

    # --- the stream ---

    def push(self, *rows: Row) -> None:
        """Push rows of a city, a price and a time of day, and wait until the engine has them."""
        self._pushed += self.feed.push([(city, price, ts and at(ts)) for city, price, ts in rows])
        self.wait(lambda: self.engine.progress().streams["bids"].rows >= self._pushed, "the rows to be read")

    def minute(self, number: int, *cities: str, price: float = 10.0) -> None:
        """A minute of the stream in four quarters: each city bids in each, so windows fill evenly."""
        for second in (5, 20, 35, 50):
            self.push(*[(city, price + number, f"12:{number:02}:{second:02}") for city in cities])

    def register(self, **queries: str) -> None:
        """Register queries by name, without the page; `_` in a name is a blank."""
        for name, sql in queries.items():
            self.service.register(sql, name.replace("_", " "))

    @staticmethod
    def wait(is_so: Callable[[], Any], what: str) -> None:
        """Wait for something that no page shows."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.02)

    # --- the page ---

    def open(self, path: str = "/") -> Page:
        """Open a view, and wait until it has looked at the service."""
        self.page.goto(path)
        expect(self.at("engine-state")).to_be_visible()
        return self.page

    def at(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    def rows(self, kind: str | None = None) -> Locator:
        """The rows of results that are shown, all or of one kind."""
        return self.page.locator(f"[data-testid=result-row]{f'[data-kind={kind}]' if kind else ''}")

    def row_of(self, query: str) -> Locator:
        """A query's row in a list."""
        return self.at("query-row").filter(has=self.page.get_by_role("link", name=query, exact=True))

    def write(self, sql: str) -> None:
        """Type a query into the editor, in place of what is there."""
        code = self.at("editor").locator(".cm-content")
        code.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(sql)


@contextmanager
def opened_desk(
    spark: Any,
    browser: Browser,
    place: Path,
    settings: ServerSettings | None = None,
    looking: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Desk]:
    """A desk; `looking` are options of the browser's context, the rest those of the feed."""
    clock = SettableClock("2013-01-01 12:00")
    engine = transom.Engine(spark, str(place / "checkpoint"), clock=clock, poll="50 ms", max_failures=1)
    feed = engine.feed("bids", options.pop("schema", BIDS), time="ts", **options)
    with (
        serving(engine, settings or ServerSettings(port=0)) as served,
        watched_page(browser, served.url, **looking or {}) as seen,
    ):
        yield Desk(engine, feed, clock, served, seen)
