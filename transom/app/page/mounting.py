"""From a service to a page: the addresses, and what each shows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from nicegui import app as pages
from nicegui import core, ui
from starlette.types import Scope

from transom.app.page.editor import Editor
from transom.app.page.frame import Frame, View, missing
from transom.app.page.icons import FAVICON
from transom.app.page.late import Late
from transom.app.page.overview import Overview
from transom.app.page.parts import Panel
from transom.app.page.queries import Queries
from transom.app.page.query import OneQuery
from transom.app.page.sharing import Sharing
from transom.app.page.threads import in_thread
from transom.app.page.tokens import stylesheet
from transom.app.server.service import Service
from transom.app.server.status import NotFound

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

    def open_view(view: View) -> None:
        ui.add_head_html(_head())
        Frame(service, view, title).build()

    def not_found(head: str, text: str) -> None:
        ui.context.client.status_code = 404
        open_view(Missing(service, head, text))

    @ui.page("/")
    def overview() -> None:
        open_view(Overview(service))

    @ui.page("/queries")
    def queries(search: str = "", kind: str = "", sort: str = "", page: int = 1) -> None:
        open_view(Queries(service, search, kind, sort, page))

    @ui.page("/query/{name:path}")
    async def query(request: Request, name: str, tab: str = "") -> None:
        name = named(request.scope, name)
        try:
            status = await in_thread(service.query, name)
        except NotFound as error:
            not_found("No such query", f"{str(error)[:1].upper()}{str(error)[1:]}")
        else:
            open_view(OneQuery(service, status, tab))

    @ui.page("/sharing")
    def sharing(search: str = "") -> None:
        open_view(Sharing(service, search))

    @ui.page("/new")
    def editor(sql: str = "", name: str = "") -> None:
        open_view(Editor(service, sql, name))

    @ui.page("/late")
    def late(stream: str = "", what: str = "late") -> None:
        open_view(Late(service, stream, what))

    @ui.page("/{path:path}")
    def other(path: str) -> Response | None:
        if path.startswith(("api/", "_")):
            return JSONResponse(
                {"error": {"kind": "not_found", "message": f"there is nothing at /{path}"}}, 404
            )
        not_found("There is nothing here", f"No view of this page is at /{unquote(path)}")
        return None

    _run_with(app, title)


def named(scope: Scope, name: str) -> str:
    """The name of a query at the end of an address, decoded once, whatever was done to the path before.

    >>> named({"raw_path": b"/query/100%25%3F%23x"}, "100%25?#x"), named({}, "a, b")
    ('100%?#x', 'a, b')
    """
    raw: bytes = scope.get("raw_path") or b""
    _, found, rest = raw.partition(b"?")[0].partition(b"/query/")
    return unquote(rest.decode("latin-1"), errors="replace") if found else name


def _run_with(app: FastAPI, title: str) -> None:
    """Mount NiceGUI's application, which is one for the process: a second time anew."""
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    ui.run_with(
        app,
        title=title,
        favicon=FAVICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )


def _head() -> str:
    style, script = (f"{ASSETS}/{name}?{_mark(name)}" for name in ("style.css", "page.js"))
    return (
        f'{THEME}<style>{stylesheet()}</style><link rel="stylesheet" href="{style}">'
        f'<script defer src="{script}"></script>'
    )


def _mark(name: str) -> str:
    """What changes with a file, so that no browser keeps an old one."""
    return hashlib.blake2s((HERE / name).read_bytes(), digest_size=4).hexdigest()
