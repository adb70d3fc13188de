"""The dashboard's URLs and the view that each one opens."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.types import Scope

from transom.api.errors import NotFound
from transom.dashboard.actions import Actions
from transom.dashboard.alerts_view import AlertsView
from transom.dashboard.batches_view import BatchesView
from transom.dashboard.colors import stylesheet
from transom.dashboard.compare_view import CompareView
from transom.dashboard.display_zone import ZONE_COOKIE, known_zone, set_client_zone
from transom.dashboard.editor import EditorView
from transom.dashboard.frame import DashboardView, ViewFrame, not_found_html
from transom.dashboard.help_view import FIRST_PAGE, HELP_PAGES, HelpView, help_html
from transom.dashboard.late_view import LateRowsView
from transom.dashboard.nicegui_host import MountedDashboard, client_of_request, dashboard_of, serve_with
from transom.dashboard.overview import OverviewView
from transom.dashboard.query_list import QueryListView
from transom.dashboard.query_view import QueryView
from transom.dashboard.sharing_view import SharingView
from transom.dashboard.stream_list import StreamListView
from transom.dashboard.stream_view import StreamView
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import Panel
from transom.server.service import Service

HERE = Path(__file__).parent
ASSETS = "/_transom"
ASSET_FILES = ("style.css", "dashboard.js", "editor.js")
# Runs before the first paint, so that the wrong theme never flashes.
THEME = (
    "<script>try{const t=localStorage.getItem('transom-theme');"
    "if(t==='dark'||t==='light')document.documentElement.dataset.theme=t}catch{}</script>"
)


class MessageView(DashboardView):
    """The view of a URL that leads nowhere, or that the client may not use."""

    def __init__(self, service: Service, title: str, head: str, text: str):
        super().__init__(service)
        self.title, self.head, self.text = title, head, text

    def build(self) -> None:
        Panel(not_found_html(self.head, self.text), classes="card", data_testid="missing")


def mount(app: FastAPI, service: Service, title: str = "Transom") -> None:
    """Serve the dashboard at / of an application, next to the routes that the application already has."""
    for name in ASSET_FILES:
        nicegui_app.add_static_file(local_file=HERE / name, url_path=f"{ASSETS}/{name}")
    _add_views()
    serve_with(app, MountedDashboard(service, title))


def _add_views() -> None:
    """Register every view at its URL; each request finds its service through its dashboard."""

    @ui.page("/")
    def overview(request: Request) -> None:
        _open(request, OverviewView(dashboard_of(request).service))

    @ui.page("/queries")
    def queries(request: Request, search: str = "", kind: str = "", sort: str = "", page: int = 1) -> None:
        _open(request, QueryListView(dashboard_of(request).service, search, kind, sort, page))

    @ui.page("/query/{name:path}")
    async def query(request: Request, name: str, tab: str = "") -> None:
        service = dashboard_of(request).service
        try:
            status = await run_in_thread(service.query, name_in_path(request.scope, name))
        except NotFound as error:
            _not_found(request, "No such query", f"{str(error)[:1].upper()}{str(error)[1:]}")
        else:
            _open(request, QueryView(service, actions_of(request), status, tab))

    @ui.page("/alerts")
    def alerts(request: Request) -> None:
        _open(request, AlertsView(dashboard_of(request).service, actions_of(request)))

    @ui.page("/compare")
    def compare(request: Request, scale: str = "") -> None:
        names = request.query_params.getlist("query")
        _open(request, CompareView(dashboard_of(request).service, names, scale))

    @ui.page("/streams")
    def streams(request: Request) -> None:
        _open(request, StreamListView(dashboard_of(request).service))

    @ui.page("/stream/{name:path}")
    async def stream(request: Request, name: str) -> None:
        service = dashboard_of(request).service
        try:
            detail = await run_in_thread(service.stream, name_in_path(request.scope, name, "/stream/"))
        except NotFound as error:
            _not_found(request, "No such stream", f"{str(error)[:1].upper()}{str(error)[1:]}")
        else:
            _open(request, StreamView(service, detail))

    @ui.page("/batches")
    def batches(request: Request) -> None:
        _open(request, BatchesView(dashboard_of(request).service))

    @ui.page("/help")
    async def help_start(request: Request) -> None:
        await run_in_thread(help_html, FIRST_PAGE)  # made before the view, which may not wait
        _open(request, HelpView(dashboard_of(request).service, FIRST_PAGE))

    @ui.page("/help/{page}")
    async def help_page(request: Request, page: str) -> None:
        if page not in HELP_PAGES:
            _not_found(request, "No such page", f"The help has no page {page}")
            return
        await run_in_thread(help_html, page)
        _open(request, HelpView(dashboard_of(request).service, page))

    @ui.page("/sharing")
    def sharing(request: Request, search: str = "") -> None:
        _open(request, SharingView(dashboard_of(request).service, search))

    @ui.page("/new")
    async def editor(request: Request, sql: str = "", name: str = "", edit: str = "", like: str = "") -> None:
        actions, service = actions_of(request), dashboard_of(request).service
        if actions.allowed:
            try:
                sql = sql if not (edit or like) else await run_in_thread(service.text, edit or like)
            except NotFound as error:
                _not_found(request, "No such query", f"{str(error)[:1].upper()}{str(error)[1:]}")
                return
            _open(request, EditorView(service, actions, sql, name, edit))
        else:
            text = "Your token has the role read. Registering a query needs the role register."
            _open_message(request, 403, "Not allowed", "This token may only read", text)

    @ui.page("/late")
    def late(request: Request, stream: str = "", what: str = "late") -> None:
        _open(request, LateRowsView(dashboard_of(request).service, stream, what))

    @ui.page("/{path:path}")
    def other(request: Request, path: str) -> Response | None:
        if path.startswith(("api/", "_")):
            return JSONResponse(
                {"error": {"kind": "not_found", "message": f"there is nothing at /{path}"}}, 404
            )
        _not_found(request, "Nothing here", f"The dashboard has no view at /{unquote(path)}")
        return None


def actions_of(request: Request) -> Actions:
    """What the client of a request may change."""
    return Actions(dashboard_of(request).service, client_of_request(request))


def _open(request: Request, view: DashboardView) -> None:
    dashboard = dashboard_of(request)
    set_client_zone(ui.context.client, known_zone(unquote(request.cookies.get(ZONE_COOKIE, ""))))
    ui.add_head_html(_head_html())
    ViewFrame(dashboard.service, view, dashboard.title, actions_of(request).allowed).build()


def _open_message(request: Request, status: int, title: str, head: str, text: str) -> None:
    ui.context.client.status_code = status
    _open(request, MessageView(dashboard_of(request).service, title, head, text))


def _not_found(request: Request, head: str, text: str) -> None:
    _open_message(request, 404, "Not found", head, text)


def name_in_path(scope: Scope, name: str, before: str = "/query/") -> str:
    """The name at the end of a URL, decoded exactly once, even if a proxy decoded the path already.

    >>> name_in_path({"raw_path": b"/query/100%25%3F%23x"}, "100%25?#x"), name_in_path({}, "a, b")
    ('100%?#x', 'a, b')
    """
    raw_path: bytes = scope.get("raw_path") or b""
    _, prefix, encoded = raw_path.partition(b"?")[0].partition(before.encode())
    return unquote(encoded.decode("latin-1"), errors="replace") if prefix else name


def _head_html() -> str:
    style, *scripts = (f"{ASSETS}/{name}?{_fingerprint(name)}" for name in ASSET_FILES)
    tags = "".join(f'<script defer src="{script}"></script>' for script in scripts)
    return f'{THEME}<style>{stylesheet()}</style><link rel="stylesheet" href="{style}">{tags}'


def _fingerprint(name: str) -> str:
    """A hash of a file's content, so that browsers do not use an outdated copy."""
    return hashlib.blake2s((HERE / name).read_bytes(), digest_size=4).hexdigest()
