"""From a service to a page: the addresses, and what each shows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from nicegui import app as pages
from nicegui import ui
from starlette.types import Scope

from transom.api.errors import NotFound
from transom.dashboard.colors import stylesheet
from transom.dashboard.editor import Editor
from transom.dashboard.frame import Frame, View, missing
from transom.dashboard.late_view import Late
from transom.dashboard.nicegui_host import Given, given, run_with
from transom.dashboard.overview import Overview
from transom.dashboard.query_list import Queries
from transom.dashboard.query_view import OneQuery
from transom.dashboard.sharing_view import Sharing
from transom.dashboard.threads import in_thread
from transom.dashboard.widgets import Panel
from transom.server.service import Service

HERE = Path(__file__).parent
ASSETS = "/_transom"
# Before anything is painted, so that nothing flashes.
THEME = (
    "<script>try{const t=localStorage.getItem('transom-theme');"
    "if(t==='dark'||t==='light')document.documentElement.dataset.theme=t}catch{}</script>"
)


class Missing(View):
    """An address where nothing is."""

    title = "Not found"

    def __init__(self, service: Service, head: str, text: str):
        super().__init__(service)
        self.head, self.text = head, text

    def build(self) -> None:
        Panel(missing(self.head, self.text), classes="card", data_testid="missing")


def mount(app: FastAPI, service: Service, title: str = "Transom") -> None:
    """Serve the page at / of an application, beside what it serves already."""
    for name in ("style.css", "page.js"):
        pages.add_static_file(local_file=HERE / name, url_path=f"{ASSETS}/{name}")
    _views()
    run_with(app, Given(service, title))


def _views() -> None:
    """Every view at its address; the service is that of the application which was asked."""

    @ui.page("/")
    def overview(request: Request) -> None:
        _open(request, Overview(given(request).service))

    @ui.page("/queries")
    def queries(request: Request, search: str = "", kind: str = "", sort: str = "", page: int = 1) -> None:
        _open(request, Queries(given(request).service, search, kind, sort, page))

    @ui.page("/query/{name:path}")
    async def query(request: Request, name: str, tab: str = "") -> None:
        service = given(request).service
        try:
            status = await in_thread(service.query, named(request.scope, name))
        except NotFound as error:
            _not_found(request, "No such query", f"{str(error)[:1].upper()}{str(error)[1:]}")
        else:
            _open(request, OneQuery(service, status, tab))

    @ui.page("/sharing")
    def sharing(request: Request, search: str = "") -> None:
        _open(request, Sharing(given(request).service, search))

    @ui.page("/new")
    def editor(request: Request, sql: str = "", name: str = "") -> None:
        _open(request, Editor(given(request).service, sql, name))

    @ui.page("/late")
    def late(request: Request, stream: str = "", what: str = "late") -> None:
        _open(request, Late(given(request).service, stream, what))

    @ui.page("/{path:path}")
    def other(request: Request, path: str) -> Response | None:
        if path.startswith(("api/", "_")):
            return JSONResponse(
                {"error": {"kind": "not_found", "message": f"there is nothing at /{path}"}}, 404
            )
        _not_found(request, "There is nothing here", f"No view of this page is at /{unquote(path)}")
        return None


def _open(request: Request, view: View) -> None:
    page = given(request)
    ui.add_head_html(_head())
    Frame(page.service, view, page.title).build()


def _not_found(request: Request, head: str, text: str) -> None:
    ui.context.client.status_code = 404
    _open(request, Missing(given(request).service, head, text))


def named(scope: Scope, name: str) -> str:
    """The name of a query at the end of an address, decoded once, whatever was done to the path before.

    >>> named({"raw_path": b"/query/100%25%3F%23x"}, "100%25?#x"), named({}, "a, b")
    ('100%?#x', 'a, b')
    """
    raw: bytes = scope.get("raw_path") or b""
    _, found, rest = raw.partition(b"?")[0].partition(b"/query/")
    return unquote(rest.decode("latin-1"), errors="replace") if found else name


def _head() -> str:
    style, script = (f"{ASSETS}/{name}?{_mark(name)}" for name in ("style.css", "page.js"))
    return (
        f'{THEME}<style>{stylesheet()}</style><link rel="stylesheet" href="{style}">'
        f'<script defer src="{script}"></script>'
    )


def _mark(name: str) -> str:
    """What changes with a file, so that no browser keeps an old one."""
    return hashlib.blake2s((HERE / name).read_bytes(), digest_size=4).hexdigest()
