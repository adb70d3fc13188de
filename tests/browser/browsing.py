"""Chromium, and a page of it that is watched: nothing leaves this machine, nothing goes wrong unseen."""

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
PATIENCE = 20_000  # milliseconds that anything may take to appear
LOCAL = ("data", "blob", "about")  # schemes that reach nobody
ARGUMENTS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    # Whatever a page asks for, no name is looked up and nobody else is called.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def find_chromium() -> str | None:
    """Where the browser is: what CHROMIUM says, or the first of the usual names."""
    given = os.environ.get("CHROMIUM")
    return shutil.which(given) if given else next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """A browser without a window and with a profile of its own."""
    own = ("--no-sandbox",) if os.geteuid() == 0 else ()
    return playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *own])


@dataclass
class Watched:
    """A page, and everything that it did that it should not have done."""

    page: Page
    problems: list[str] = field(default_factory=list)
    pardons: list[re.Pattern[str]] = field(default_factory=list)

    def pardon(self, pattern: str) -> None:
        """A test brings about errors of this kind on purpose."""
        self.pardons.append(re.compile(pattern))

    def unpardoned(self) -> list[str]:
        return [text for text in self.problems if not any(known.search(text) for known in self.pardons)]

    def watch(self) -> None:
        self.page.on("request", self._requested)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))

    def _requested(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in LOCAL and address.hostname != "127.0.0.1":
            self.problems.append(f"left this machine: {request.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where = message.location.get("url", "")
            self.problems.append(f"console {message.type}: {message.text} ({where})")

    def keep(self, place: Path) -> list[str]:
        """Write down what is to be seen, and what led to it; says where."""
        picture, trace = place / "page.png", place / "trace.zip"
        self.page.screenshot(path=picture)
        self.page.context.tracing.stop(path=trace)
        return [f"page:  {self.page.url}", f"seen:  {picture}", f"trace: {trace} (playwright show-trace)"]


@contextmanager
def watched_page(browser: Browser, address: str, **options: Any) -> Iterator[Watched]:
    """A page in a context of its own: no cookie, no storage and no cache of another test."""
    context: BrowserContext = browser.new_context(
        **{"base_url": address, "viewport": SIZE, "color_scheme": "light", "reduced_motion": "reduce"}
        | options
    )
    try:
        context.set_default_timeout(PATIENCE)
        context.tracing.start(snapshots=True)
        watched = Watched(context.new_page())
        watched.watch()
        yield watched
    finally:
        context.close()
