"""The frame around every view: navigation, engine status, banners, toasts, shortcuts and the refresh timer."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import quote

from nicegui import ui

from transom.api.errors import NotFound
from transom.api.records import ServiceStatus
from transom.dashboard.display_text import esc, format_count, format_number, format_seconds
from transom.dashboard.display_zone import display_zone, zone_names
from transom.dashboard.icons import BRAND, icon
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import Panel, box, empty_state
from transom.errors import TransomError
from transom.server.login import COOKIE, LOGOUT_PATH
from transom.server.service import Service

log = logging.getLogger("transom")

NAVIGATION = (  # key, name, path, shortcut
    ("overview", "Overview", "/", "o"),
    ("queries", "Queries", "/queries", "q"),
    ("compare", "Compare", "/compare", "c"),
    ("new", "New query", "/new", "n"),
    ("alerts", "Alerts", "/alerts", "a"),
    ("streams", "Streams", "/streams", "t"),
    ("late", "Late and rejected", "/late", "l"),
    ("sharing", "Sharing", "/sharing", "s"),
    ("batches", "Batches", "/batches", "b"),
    ("help", "Help", "/help", "h"),
)
SHORTCUTS = (
    *((f"g {key}", name) for _, name, _, key in NAVIGATION),
    ("/", "Search"),
    ("r", "Refresh a query"),
    ("Ctrl Enter", "Preview, in the editor"),
    ("Ctrl Shift Enter", "Register, in the editor"),
    ("Ctrl Space", "Complete, in the editor"),
    ("Shift Alt F", "Format, in the editor"),
    ("?", "Show this list"),
)
REFRESH_SECONDS = 1.0


def stream_link(name: str) -> str:
    """The URL of a stream's view.

    >>> stream_link("bids of 2013")
    '/stream/bids%20of%202013'
    """
    return f"/stream/{quote(name)}"


def query_link(name: str) -> str:
    """The URL of a query's view.

    >>> query_link("delay of 9 in 10, a/b")
    '/query/delay%20of%209%20in%2010%2C%20a/b'
    """
    return f"/query/{quote(name)}"


class DashboardView:
    """One view of the dashboard: `fetch` reads from the service in a thread, `show` displays the data."""

    section = ""
    title = ""

    def __init__(self, service: Service):
        self.service = service
        self.frame: ViewFrame  # set by the frame

    def build(self) -> None:
        """Create the elements; no data is available yet."""

    def fetch(self) -> Any:
        """Read the view's data from the service; called in a thread, about once a second."""
        return None

    def show(self, data: Any) -> None:
        """Display what `fetch` returned; called on the event loop."""

    def on_missing(self) -> None:
        """Called when `fetch` raises NotFound: what the view shows no longer exists."""

    def close(self) -> None:
        """Called when the user leaves the view."""


class ViewFrame:
    """Draws the frame around a view, and refreshes both once a second.

    Unless the client `may_register`, what needs the role register is hidden.
    """

    def __init__(self, service: Service, view: DashboardView, name: str, may_register: bool = True):
        self.service, self.view, self.name, self.may_register = service, view, name, may_register
        view.frame = self
        self.is_visible = True
        self.is_stopped = False
        self._refreshing = asyncio.Lock()
        self._client = ui.context.client

    def build(self) -> None:
        ui.page_title(f"{self.view.title} · {self.name}" if self.view.title else self.name)
        parent = self._client.content.parent_slot
        if parent is not None:  # Quasar would make it a second <main>, with the navigation inside
            parent.parent.tag = "div"
        Panel("Skip to content", "a", "skip", href="#main")
        with box("frame" if self.may_register else "frame read-only"):
            with box("side", "header"):
                self._build_sidebar()
            with box("content", "main", id="main", tabindex="-1"):
                self.banner = Panel("", role="status")
                with box("") as self.content:
                    self.view.build()
        Panel("", id="toasts", aria_live="polite", role="status")
        Panel(_shortcuts_html(), "dialog", id="keys", aria_labelledby="keys-title")
        Panel(_zone_html(display_zone()), "dialog", id="zone", aria_labelledby="zone-title")
        ui.on("visible", self._on_visibility)
        self._client.on_delete(self.view.close)
        ui.timer(REFRESH_SECONDS, self.refresh)

    def _build_sidebar(self) -> None:
        Panel(f"{BRAND}<span>{esc(self.name)}</span>", "a", "brand", href="/")
        Panel(
            f'<button type="button" class="b icon quiet" data-do="menu" data-testid="menu" aria-expanded="false" '
            f'aria-label="Menu">{icon("queries")}</button>',
            classes="menu",
        )
        self._navigation = Panel(self._navigation_html(None), "nav", aria_label="Main")
        self._engine = Panel("", classes="engine", data_testid="engine")
        Panel(
            f'<button type="button" class="b icon quiet" data-do="theme" data-testid="theme" '
            f'aria-label="Switch theme">{icon("theme")}</button>'
            f'<button type="button" class="b icon quiet" data-do="keys" aria-label="Keyboard shortcuts" '
            f'title="Keyboard shortcuts (?)">'
            f"{icon('keys')}</button>{self._sign_out_html()}",
            classes="tools",
        )
        Panel(
            '<button type="button" class="b quiet small" data-do="open" data-what="zone" data-testid="zone-button" '
            f'title="Choose a time zone">Times in <b>{esc(display_zone())}</b></button>',
            classes="zone",
        )

    def _sign_out_html(self) -> str:
        """A sign-out button, for users who signed in with a token."""
        if COOKIE not in self._client.request.cookies:
            return ""
        return (
            f'<form method="post" action="{LOGOUT_PATH}"><button class="b icon quiet" data-testid="sign-out" '
            f'aria-label="Sign out" title="Sign out">{icon("out")}</button></form>'
        )

    def _navigation_html(self, status: ServiceStatus | None) -> str:
        def link(key: str, name: str, path: str) -> str:
            current = ' aria-current="page"' if key == self.view.section else ""
            count = (
                f'<span class="count">{format_number(status.queries)}</span>'
                if status and key == "queries"
                else ""
            )
            return (
                f'<a href="{path}" data-testid="nav-{key}"{current}>{icon(key)}<span>{name}</span>{count}</a>'
            )

        return "".join(link(key, name, path) for key, name, path, _ in NAVIGATION)

    def _on_visibility(self, event: Any) -> None:
        self.is_visible = bool(event.args)

    async def refresh(self) -> None:
        """Fetch and show new data, unless the browser tab is hidden or gone or a refresh is under way."""
        if (
            self.is_stopped
            or not self.is_visible
            or not self._client.has_socket_connection
            or self._refreshing.locked()
        ):
            return
        async with self._refreshing:
            try:
                status, data = await run_in_thread(self._fetch)
            except NotFound:
                self.is_stopped = True
                self.view.on_missing()
                return
            except TransomError as error:
                self.banner.set(banner_html(str(error)))
                return
            except Exception:
                log.exception("the dashboard could not be refreshed")
                self.banner.set(banner_html("Could not refresh. The values below may be out of date."))
                return
            if not self._client.is_deleted:
                self._show(status, data)

    def _fetch(self) -> tuple[ServiceStatus, Any]:
        return self.service.status(), self.view.fetch()

    def _show(self, status: ServiceStatus, data: Any) -> None:
        self._engine.set(_engine_html(status))
        self._navigation.set(self._navigation_html(status))
        self.banner.set(_engine_banner(status))
        self.view.show(data)

    def replace(self, html: str) -> None:
        """Replace the view by a message and stop refreshing."""
        self.is_stopped = True
        self.content.clear()
        with self.content:
            Panel(html, classes="card")


def _zone_html(zone: str) -> str:
    """The choice of the time zone; dashboard.js adds all names, stores the choice and loads the view again."""
    return (
        '<h2 id="zone-title">Time zone</h2><p>Times on all views are shown in this zone. Queries, results and '
        "downloads stay as they are.</p>"
        '<p style="margin-top:12px"><select class="field" data-testid="zone" aria-label="Time zone" '
        f'data-zone="{esc(" ".join(zone_names()))}">'
        f'<option value="{esc(zone)}" selected>{esc(zone)}</option></select></p>'
        '<div class="row"><button type="button" class="b" data-do="close">Close</button></div>'
    )


def banner_html(text: str, kind: str = "", detail: str = "") -> str:
    """A message at the top of a view."""
    detail_html = f"<pre>{esc(detail)}</pre>" if detail else ""
    message = f"<div><b>{esc(text)}</b>{detail_html}</div>"
    return f'<div class="banner {kind}" data-testid="banner">{icon("warn")}{message}</div>'


def _engine_banner(status: ServiceStatus) -> str:
    if status.state == "failed":
        text = "The engine has failed. The values below are the last ones before the failure."
        return banner_html(text, "bad", status.failure or "")
    if status.state == "stopped":
        return banner_html("The engine is stopped. No new results until it starts again.")
    if status.warning is not None:
        return banner_html(f"{status.warning[:1].upper()}{status.warning[1:]}.")
    return ""


def _engine_html(status: ServiceStatus) -> str:
    facts = (
        ("batch", format_number(status.batch)),
        ("duration", format_seconds(status.batch_seconds)),
        ("rows/s", format_count(status.rate)),
    )
    return (
        f'<div data-testid="engine-state" data-state="{esc(status.state)}">'
        f'<span class="dot {esc(status.state)}"></span>'
        f'<span class="word" data-off="Not connected">{esc(status.state.capitalize())}</span></div><dl>'
        + "".join(f"<dt>{name}</dt><dd>{esc(value)}</dd>" for name, value in facts)
        + "</dl>"
    )


def _shortcuts_html() -> str:
    rows = "".join(
        "<dt>" + " ".join(f"<kbd>{esc(key)}</kbd>" for key in keys.split()) + f"</dt><dd>{esc(action)}</dd>"
        for keys, action in SHORTCUTS
    )
    return (
        f'<h2 id="keys-title">Keyboard shortcuts</h2><dl class="keys">{rows}</dl>'
        '<div class="row"><button type="button" class="b" data-do="close">Close</button></div>'
    )


def not_found_html(head: str, text: str) -> str:
    """An empty state for something that does not exist, with links back."""
    links = '<a class="b" href="/queries">All queries</a> <a class="b" href="/">Overview</a>'
    return empty_state("lost", head, text, f'<div class="row" style="justify-content:center">{links}</div>')
