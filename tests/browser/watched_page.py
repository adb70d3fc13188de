"""Chromium pages that record console errors and every request to another machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = {"width": 1280, "height": 800}
TIMEOUT = 20_000  # milliseconds until anything must have appeared
LOCAL = ("data", "blob", "about")  # schemes that stay on this machine
ARGUMENTS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    # No host name is resolved and no other machine is called, whatever a page requests.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def find_chromium() -> str | None:
    """The path of the browser: from CHROMIUM, or the first usual name on the PATH."""
    name = os.environ.get("CHROMIUM")
    return shutil.which(name) if name else next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """Start a headless browser with a fresh profile."""
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    return playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *as_root])


@dataclass
class WatchedPage:
    """A page, with its console errors and its requests to other machines."""

    page: Page
    problems: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    def expect_problem(self, pattern: str) -> None:
        """Accept problems that match a pattern: the test provokes them."""
        self.expected.append(re.compile(pattern))

    def unexpected_problems(self) -> list[str]:
        return [text for text in self.problems if not any(pattern.search(text) for pattern in self.expected)]

    def watch(self) -> None:
        self.page.on("request", self._on_request)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))

    def _on_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in LOCAL and url.hostname != "127.0.0.1":
            self.problems.append(f"request to another machine: {request.url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where = message.location.get("url", "")
            self.problems.append(f"console {message.type}: {message.text} ({where})")

    def save(self, directory: Path) -> list[str]:
        """Write a screenshot and a trace; returns lines that name them."""
        screenshot, trace = directory / "page.png", directory / "trace.zip"
        self.page.screenshot(path=screenshot)
        self.page.context.tracing.stop(path=trace)
        return [
            f"url:        {self.page.url}",
            f"screenshot: {screenshot}",
            f"trace:      {trace} (playwright show-trace)",
        ]


@contextmanager
def watched_page(browser: Browser, url: str, **options: Any) -> Iterator[WatchedPage]:
    """A page in its own browser context, with no cookies, storage or cache of other tests."""
    context: BrowserContext = browser.new_context(
        **{"base_url": url, "viewport": SIZE, "color_scheme": "light", "reduced_motion": "reduce"} | options
    )
    try:
        context.set_default_timeout(TIMEOUT)
        context.tracing.start(snapshots=True)
        watched = WatchedPage(context.new_page())
        watched.watch()
        yield watched
    finally:
        context.close()
