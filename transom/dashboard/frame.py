"""What all views stand in: the navigation, the engine's state, banners, toasts, keys, and one timer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui

from transom.api.errors import NotFound
from transom.api.records import ServiceStatus
from transom.dashboard.formatting import compact, e, number, seconds
from transom.dashboard.icons import BRAND, icon
from transom.dashboard.threads import in_thread
from transom.dashboard.widgets import Panel, box, empty
from transom.errors import TransomError
from transom.server.login import COOKIE, LOGOUT

if TYPE_CHECKING:
    from transom.server.service import Service

log = logging.getLogger("transom")

PLACES = (
    ("overview", "Overview", "/", "o"),
    ("queries", "Queries", "/queries", "q"),
    ("sharing", "Sharing", "/sharing", "s"),
    ("new", "New query", "/new", "n"),
    ("late", "Late and rejected", "/late", "l"),
)
KEYS = (
    *((f"g {key}", name) for _, name, _, key in PLACES),
    ("/", "Search"),
    ("r", "Refresh, on a query's page"),
    ("Ctrl Enter", "Preview, in the editor"),
    ("Ctrl Shift Enter", "Register, in the editor"),
    ("?", "These keys"),
)
EVERY = 1.0  # seconds between looks at the service


def query_link(name: str) -> str:
    """The address of a query's page.

    >>> query_link("delay of 9 in 10, a/b")
    '/query/delay%20of%209%20in%2010%2C%20a/b'
    """
    return f"/query/{quote(name)}"


class View:
    """A page: what it asks the service for, in a thread, and how that is shown."""

    section = ""
    title = ""

    def __init__(self, service: Service):
        self.service = service
        self.frame: Frame  # given by it

    def build(self) -> None:
        """Put the elements on the page, before anything is known."""

    def fetch(self) -> Any:
        """Ask the service; in a thread."""
        return None

    def show(self, found: Any) -> None:
        """Show what was fetched."""

    def gone(self, reason: str) -> None:
        """What is looked at has left."""

    def close(self) -> None:
        """The page was left."""


class Frame:
    """The frame around a view, and the timer that keeps both up to date."""

    def __init__(self, service: Service, view: View, name: str):
        self.service, self.view, self.name = service, view, name
        view.frame = self
        self.is_seen = True
        self.is_lost = False
        self._looking = asyncio.Lock()
        self._client = ui.context.client

    def build(self) -> None:
        ui.page_title(f"{self.view.title} · {self.name}" if self.view.title else self.name)
        around = self._client.content.parent_slot
        if around is not None:  # Quasar's page would be a main part, with the navigation in it
            around.parent.tag = "div"
        Panel("Skip to the content", "a", "skip", href="#main")
        with box("frame"):
            with box("side", "header"):
                self._side()
            with box("page-body", "main", id="main", tabindex="-1"):
                self.banner = Panel("", role="status")
                with box("") as self.content:
                    self.view.build()
        Panel("", id="toasts", aria_live="polite", role="status")
        Panel(_keys(), "dialog", id="keys", aria_labelledby="keys-title")
        ui.on("seen", self._seen)
        self._client.on_delete(self._left)
        ui.timer(EVERY, self.look)

    def _side(self) -> None:
        Panel(f"{BRAND}<span>{e(self.name)}</span>", "a", "brand", href="/")
        self._nav = Panel(self._links(None), "nav", aria_label="Main")
        self._engine = Panel("", classes="engine", data_testid="engine")
        Panel(
            f'<button type="button" class="b icon quiet" data-do="theme" data-testid="theme" '
            f'aria-label="Change the theme">{icon("theme")}</button>'
            f'<button type="button" class="b icon quiet" data-do="keys" aria-label="Keys" title="Keys (?)">'
            f"{icon('keys')}</button>{self._sign_out()}<span class='small'>Times are UTC</span>",
            classes="tools",
        )

    def _sign_out(self) -> str:
        """A way out for those who came in with a token."""
        if COOKIE not in self._client.request.cookies:
            return ""
        return (
            f'<form method="post" action="{LOGOUT}"><button class="b icon quiet" data-testid="sign-out" '
            f'aria-label="Sign out" title="Sign out">{icon("out")}</button></form>'
        )

    def _links(self, status: ServiceStatus | None) -> str:
        def link(key: str, name: str, path: str) -> str:
            current = ' aria-current="page"' if key == self.view.section else ""
            count = (
                f'<span class="count">{number(status.queries)}</span>' if status and key == "queries" else ""
            )
            return (
                f'<a href="{path}" data-testid="nav-{key}"{current}>{icon(key)}<span>{name}</span>{count}</a>'
            )

        return "".join(link(key, name, path) for key, name, path, _ in PLACES)

    # --- looking ---

    def _seen(self, event: Any) -> None:
        self.is_seen = bool(event.args)

    def _left(self) -> None:
        self.view.close()

    async def look(self) -> None:
        """Ask the service for what is shown, unless nobody looks."""
        if (
            self.is_lost
            or not self.is_seen
            or not self._client.has_socket_connection
            or self._looking.locked()
        ):
            return
        async with self._looking:
            try:
                found = await in_thread(self._fetch)
            except NotFound as error:
                self.is_lost = True
                self.view.gone(str(error))
                return
            except TransomError as error:
                self.banner.set(banner(str(error)))
                return
            except Exception:
                log.exception("the page could not be brought up to date")
                self.banner.set(banner("This can't be read now. What is shown is what was last known."))
                return
            if not self._client.is_deleted:
                self._show(*found)

    def _fetch(self) -> tuple[ServiceStatus, Any]:
        return self.service.status(), self.view.fetch()

    def _show(self, status: ServiceStatus, found: Any) -> None:
        self._engine.set(_engine(status))
        self._nav.set(self._links(status))
        self.banner.set(_state_banner(status))
        self.view.show(found)

    def replace(self, html: str) -> None:
        """Show something else in place of the view, for good."""
        self.is_lost = True
        self.content.clear()
        with self.content:
            Panel(html, classes="card")


def banner(text: str, kind: str = "", detail: str = "") -> str:
    """A message above everything, as HTML."""
    more = f"<pre>{e(detail)}</pre>" if detail else ""
    words = f"<div><b>{e(text)}</b>{more}</div>"
    return f'<div class="banner {kind}" data-testid="banner">{icon("warn")}{words}</div>'


def _state_banner(status: ServiceStatus) -> str:
    if status.state == "failed":
        text = "The engine has failed. What is shown is what it last knew."
        return banner(text, "bad", status.failure or "")
    if status.state == "stopped":
        return banner("The engine is stopped. Nothing new will come until it is started again.")
    return ""


def _engine(status: ServiceStatus) -> str:
    facts = (
        ("page", number(status.batch)),
        ("took", seconds(status.batch_seconds)),
        ("rows/s", compact(status.rate)),
    )
    return (
        f'<div data-testid="engine-state" data-state="{e(status.state)}"><span class="dot {e(status.state)}">'
        f'</span><span class="word" data-off="Not connected">{e(status.state.capitalize())}</span></div><dl>'
        + "".join(f"<dt>{name}</dt><dd>{e(value)}</dd>" for name, value in facts)
        + "</dl>"
    )


def _keys() -> str:
    rows = "".join(
        "<dt>" + " ".join(f"<kbd>{e(one)}</kbd>" for one in keys.split()) + f"</dt><dd>{e(what)}</dd>"
        for keys, what in KEYS
    )
    return (
        f'<h2 id="keys-title">Keys</h2><dl class="keys">{rows}</dl>'
        '<div class="row"><button type="button" class="b" data-do="close">Close</button></div>'
    )


def missing(head: str, text: str) -> str:
    """What is shown where nothing is, and a way back, as HTML."""
    back = '<a class="b" href="/queries">All queries</a> <a class="b" href="/">Overview</a>'
    return empty("lost", head, text, f'<div class="row" style="justify-content:center">{back}</div>')
