"""The editor: a query is written, checked as it is, tried for real, and registered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from nicegui import ui

from transom.api.errors import NotFound
from transom.api.records import CheckedQuery, QueryStatus, StreamStatus
from transom.dashboard.chart_points import Drawn, Key
from transom.dashboard.formatting import e
from transom.dashboard.frame import View, query_link
from transom.dashboard.icons import icon
from transom.dashboard.live_chart import LiveChart
from transom.dashboard.lookup_panel import LookupPanel
from transom.dashboard.result_table import result_table
from transom.dashboard.sql_highlight import error_place, examples, quoted
from transom.dashboard.threads import in_thread, later
from transom.dashboard.widgets import Panel, box, button, empty, entry, set_attributes, skeleton, toast
from transom.errors import SQLError, TransomError
from transom.server.service import Service

WAIT = 0.4  # seconds without typing, before a query is checked
PROD_EVERY = 2  # looks at a preview
ROWS = 2_000


@dataclass(frozen=True)
class Tried:
    """What a preview has told so far."""

    status: QueryStatus
    table: pa.Table
    drawn: tuple[Drawn, list[Key]] | None


class Editor(View):
    """Where queries are written."""

    section = "new"
    title = "New query"

    def __init__(self, service: Service, sql: str, name: str):
        super().__init__(service)
        self.sql, self.name = sql, name
        self.checked: CheckedQuery | None = None
        self.streams: Sequence[StreamStatus] = ()
        self.preview: str | None = None
        self._trying: LiveChart | LookupPanel | None = None
        self._checks = 0
        self._ticks = 0

    # --- elements ---

    def build(self) -> None:
        with box("head"):
            Panel("<h1>New query</h1>", classes="grow")
            with box("actions"):
                self.name_field = entry(
                    self._named,
                    self.name,
                    type="text",
                    placeholder="Name (optional)",
                    aria_label="Name of the query",
                    data_testid="query-name",
                    style="width:200px",
                    maxlength="200",
                )
                self.try_button = button("Preview", self._preview, "", "play", data_testid="preview")
                self.add_button = button("Register", self._register, "main", data_testid="register")
        with box("two"):
            with box("stack"):
                with box("card", data_testid="editor"):
                    self._editor()
                    self.verdict = Panel(_hint(), classes="verdict", data_testid="verdict", role="status")
                self.tried = box("stack", data_testid="preview-area")
                self.plan = Panel("", data_testid="checked")
            with box("stack"):
                self.start = Panel(skeleton(4), classes="card").act(self._insert)
        set_attributes(self.try_button, {"title": "Preview (Ctrl Enter)", "disabled": True})
        set_attributes(self.add_button, {"title": "Register (Ctrl Shift Enter)", "disabled": True})

    def _editor(self) -> None:
        self.code = ui.codemirror(
            self.sql,
            language="SQL",
            theme="vscodeLight",
            indent="  ",
            line_wrapping=True,
            on_change=self._changed,
            keymap={"Mod-Enter": self._preview, "Mod-Shift-Enter": self._register},
        )
        if self.sql:
            ui.timer(0.1, self._changed, once=True)

    def _mark(self, place: tuple[int, int] | None) -> None:
        """Underline a part of the text. (Setting the element's `decorations` would send the text, too, as the
        server knows it, over what was typed since.)"""
        marks = (
            [] if place is None else [{"kind": "mark", "from": place[0], "to": place[1], "class": "wrong"}]
        )
        self.code.run_method("setDecorations", marks)

    # --- checking ---

    async def _changed(self) -> None:
        self._checks += 1
        mine = self._checks
        self._allow(False)
        await asyncio.sleep(WAIT)
        if mine == self._checks:
            await self._check(mine)

    async def _check(self, mine: int) -> None:
        sql = self.code.value or ""
        if not sql.strip():
            self._mark(None)
            self._judge("", _hint())
            self.plan.set("")
            return
        try:
            found = await in_thread(self.service.check, sql)
        except TransomError as error:
            if mine == self._checks:
                self._wrong(sql, error)
            return
        if mine == self._checks:
            self.checked = found
            self._mark(None)
            self._judge("good", f"{icon('good')}<div>{_kind(found)}</div>")
            self.plan.set(_checked(found))
            self._allow(True)

    def _allow(self, allowed: bool) -> None:
        for one in (self.try_button, self.add_button):
            set_attributes(one, {"disabled": None if allowed else True})
        if not allowed:
            self.checked = None

    def _wrong(self, sql: str, error: TransomError) -> None:
        self.plan.set("")
        start, end = (error.start, error.end) if isinstance(error, SQLError) else (None, None)
        self._mark(error_place(sql, start, end))
        self._judge("bad", error_html(sql, error))

    def _judge(self, kind: str, html: str) -> None:
        self.verdict.set(html)
        self.verdict.classes(replace=f"verdict {kind}")

    # --- trying ---

    async def _preview(self) -> None:
        if self.checked is None:
            return
        await self._end_preview()
        checked, sql = self.checked, self.code.value or ""
        self.try_button.classes("busy")
        try:
            self.preview = await in_thread(self.service.preview, sql)
            status = await in_thread(self.service.query, self.preview)
        except TransomError as error:
            toast(str(error), "bad")
            return
        finally:
            self.try_button.classes(remove="busy")
        self._ticks = 0
        self.tried.clear()
        with self.tried:
            self._trial(checked, status)

    def _trial(self, checked: CheckedQuery, status: QueryStatus) -> None:
        if checked.kind == "on demand":
            panel = LookupPanel(self.service, status, "preview-row")
            panel.keeps = True
            self._trying = panel
            panel.build()
            return
        if checked.kind == "standing":
            self._trying = LiveChart(status.columns, "Preview", "low")
            self._trying.build()
        with box("card", "section", aria_label="Results of the preview"):
            with box("bar"):
                Panel("<h2>First values</h2>")
                self.tried_note = Panel("It joins with the next page …", "span", "small muted", role="status")
                with box("end"):
                    button("End the preview", self._stop_preview, "small", data_testid="preview-end")
            self.tried_rows = Panel(skeleton(3), data_testid="preview-rows")

    async def _stop_preview(self) -> None:
        await self._end_preview()
        self.tried.clear()

    async def _end_preview(self) -> None:
        name, self.preview, self._trying = self.preview, None, None
        if name is not None:
            try:
                await in_thread(self.service.end_preview, name)
            except TransomError:
                pass  # it has left by itself

    def close(self) -> None:
        if self.preview is not None:
            later(self.service.end_preview, self.preview)  # its loop may be ending, too
            self.preview = None

    async def _register(self) -> None:
        if self.checked is None:
            return
        self.add_button.classes("busy")
        try:
            await self._end_preview()
            name = self.name.strip() or None
            status = await in_thread(self.service.register, self.code.value or "", name)
        except TransomError as error:
            toast(str(error), "bad")
            return
        finally:
            self.add_button.classes(remove="busy")
        ui.navigate.to(query_link(status.name))

    def _named(self, text: str) -> None:
        self.name = text

    def _insert(self, what: str, text: str) -> None:
        if what == "example":
            self.code.value = self._examples[int(text)].sql
        else:
            ui.run_javascript(_insertion(self.code.id, text))

    # --- looking ---

    def fetch(self) -> tuple[Sequence[StreamStatus], pa.Table | Tried | None]:
        streams = self.service.streams() if not self.streams else self.streams
        name, trying = self.preview, self._trying
        if name is None:
            return streams, None
        try:
            if isinstance(trying, LookupPanel):
                return streams, trying.fetch()
            status = self.service.query(name)
            self._ticks += 1
            if trying is not None and not status.waits and self._ticks % PROD_EVERY == 0:
                self.service.prod(name)
            table = self.service.recent(name, ROWS)
            return streams, Tried(status, table, trying.drawing(table) if trying else None)
        except NotFound:
            self.preview = None
            return streams, None

    def show(self, found: tuple[Sequence[StreamStatus], pa.Table | Tried | None]) -> None:
        streams, tried = found
        if streams and not self.streams:
            self.streams = streams
            self._examples = examples(streams)
            self.start.set(_start(streams, [one.title for one in self._examples]))
        elif not streams:
            self.start.set(empty("none", "No streams", "The pipeline declares none.", slim=True))
        if isinstance(tried, Tried):
            self._show_tried(tried)
        elif tried is not None and isinstance(self._trying, LookupPanel):
            self._trying.show(tried)

    def _show_tried(self, tried: Tried) -> None:
        if self.preview is None:
            return
        if isinstance(self._trying, LiveChart) and tried.drawn is not None:
            self._trying.show(*tried.drawn, tried.table)
        none = "The preview sees rows from now on. Its open windows are asked every two seconds."
        self.tried_note.set(
            "It joins with the next page …"
            if tried.status.waits
            else "What its open windows hold is asked for as it comes."
        )
        self.tried_rows.set(result_table(tried.table, tried.status.columns, none, "preview-row", brief=True))


def _insertion(element: int, text: str) -> str:
    """JavaScript that writes text where the cursor is."""
    return (
        f"(() => {{ const view = getElement({element}).editor; if (!view) return;"
        f" view.dispatch(view.state.replaceSelection({json.dumps(text)})); view.focus(); }})()"
    )


def _hint() -> str:
    return (
        '<span class="muted">A query is <code>SELECT</code> over a stream with a window: '
        "<code>[RANGE 10 minutes SLIDE 1 minute]</code>. Without <code>SLIDE</code> it is looked up on "
        "demand."
        "</span>"
    )


def error_html(sql: str, error: TransomError) -> str:
    """What is wrong, and with the line and the place, if there is one."""
    message = error.message if isinstance(error, SQLError) else str(error)
    at = ""
    if isinstance(error, SQLError) and error.start is not None and error.line and error.column:
        lines = (error.text or sql).split("\n")
        line = lines[error.line - 1] if error.line <= len(lines) else ""
        width = max(1, min((error.end or error.start + 1) - error.start, len(line) - error.column + 1))
        number = f"{error.line} "
        at = f"<pre>{number}{e(line)}\n{' ' * (len(number) + error.column - 1)}<b>{'^' * width}</b></pre>"
    return f'{icon("bad")}<div class="grow" data-testid="check-error"><span>{e(message)}</span>{at}</div>'


def _kind(checked: CheckedQuery) -> str:
    window = f", {e(checked.window)}" if checked.window else ""
    early = f", told early: {e(checked.early)}" if checked.early else ""
    return (
        f"It can be registered: <b>{e(checked.kind)}</b> over {e(', '.join(checked.streams))}{window}{early}."
    )


def _checked(checked: CheckedQuery) -> str:
    shown = [column for column in checked.columns if column.role != "system"]
    rows = "".join(
        f"<tr><td class='mono'>{e(column.name)}</td><td class='mono muted'>{e(column.type)}</td>"
        f"<td class='muted' style='white-space:nowrap'>{e(column.role)}</td></tr>"
        for column in shown
    )
    others = ", ".join(column.name for column in checked.columns if column.role == "system")
    return (
        '<div class="halves" style="grid-template-columns:minmax(0,300px) minmax(0,1fr)"><div class="card">'
        '<div class="bar"><h2>Columns</h2></div><div class="scroll">'
        '<table class="t"><thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">'
        "Role</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="small muted pad" style="padding-top:8px">and {e(others)}</p></div>'
        '<div class="card"><div class="bar"><h2>How it would be computed</h2></div>'
        f'<pre class="plan wrap" tabindex="0" aria-label="Plan">{e(checked.plan)}</pre></div></div>'
    )


def _start(streams: Sequence[StreamStatus], titles: Sequence[str]) -> str:
    """Examples to start from, and the streams with their columns."""
    links = "".join(
        f'<button type="button" data-act="example" data-arg="{at}" data-testid="example">{e(title)}</button>'
        for at, title in enumerate(titles)
    )
    parts = [
        f'<div class="pad examples"><h2 class="minor" style="margin-bottom:4px">Start from</h2>{links}</div>'
    ]
    for stream in streams:
        columns = "".join(
            f'<li><button type="button" data-act="insert" data-arg="{e(quoted(name))}">{e(name)}</button>'
            f'<span class="muted small">{e(kind)}{" · time" if name == stream.time else ""}</span></li>'
            for name, kind in stream.columns.items()
        )
        parts.append(
            '<div class="pad columns" style="border-top:1px solid var(--line)">'
            '<h2 class="minor" style="margin-bottom:4px">'
            f'<button type="button" data-act="insert" data-arg="{e(quoted(stream.name))}">'
            f"{e(stream.name)}</button>"
            f"</h2><ul>{columns}</ul></div>"
        )
    return "".join(parts)
