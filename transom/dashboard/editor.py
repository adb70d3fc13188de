"""The editor: check a query as it is typed, preview it on the live stream, register it, or edit a registered one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from nicegui import ui

from transom.api.errors import NotFound
from transom.api.records import CheckedQuery, QueryStatus
from transom.dashboard.actions import Actions
from transom.dashboard.chart_points import ChartData, GroupKey
from transom.dashboard.display_text import esc
from transom.dashboard.frame import DashboardView, query_link
from transom.dashboard.icons import icon
from transom.dashboard.live_chart import LiveChart
from transom.dashboard.lookup_panel import LookupPanel
from transom.dashboard.result_table import result_table
from transom.dashboard.sql_highlight import error_excerpt, error_span
from transom.dashboard.threads import run_in_thread, run_later
from transom.dashboard.widgets import (
    Panel,
    box,
    button,
    empty_state,
    set_attributes,
    skeleton,
    text_field,
    toast,
)
from transom.errors import SQLError, TransomError
from transom.server.service import Service
from transom.sql.editor.completion import KnownRelation, type_text
from transom.sql.editor.example_queries import ExampleQuery
from transom.sql.editor.scanned_text import quote_identifier

CHECK_DELAY = 0.4  # seconds after the last key press
PROD_TICKS = 2  # refreshes per prod of a preview
PREVIEWED_RESULTS = 2_000
NAMES_TICKS = 20  # refreshes between two looks at streams, tables and examples
LISTED_QUERIES = 30  # that are listed; completion knows all
KINDS = (("stream", "Streams"), ("table", "Static tables"), ("view", "Views"), ("query", "Queries"))


@dataclass(frozen=True)
class EditorNames:
    """What a query can read, and example queries."""

    relations: Sequence[KnownRelation]
    examples: Sequence[ExampleQuery]


@dataclass(frozen=True)
class PreviewData:
    """The results of a preview so far."""

    status: QueryStatus
    table: pa.Table
    chart: tuple[ChartData, list[GroupKey]] | None


class EditorView(DashboardView):
    """An SQL editor with live checks, examples and a preview."""

    section = "new"
    title = "New query"

    def __init__(self, service: Service, actions: Actions, sql: str, name: str, edited: str = ""):
        super().__init__(service)
        self.actions = actions
        self.sql, self.name = sql, name
        self.edited = edited  # the query that gets the text; empty: a new one does
        if edited:
            self.title = f"Edit {edited}"
        self.checked: CheckedQuery | None = None
        self.names: EditorNames | None = None
        self._examples: Sequence[ExampleQuery] = ()
        self.preview: str | None = None
        self._preview_panel: LiveChart | LookupPanel | None = None
        self._checks = 0
        self._ticks = 0
        self._looks = 0

    def build(self) -> None:
        with box("head editor-head"):
            Panel(f"<h1>{esc(self.title)}</h1>", classes="grow")
            with box("actions"):
                if not self.edited:
                    self.name_field = text_field(
                        self._on_name,
                        self.name,
                        type="text",
                        placeholder="Name (optional)",
                        aria_label="Query name",
                        data_testid="query-name",
                        maxlength="200",
                    )
                self.preview_button = button("Preview", self._preview, "", "play", data_testid="preview")
                label = "Save" if self.edited else "Register"
                self.register_button = button(label, self._register, "main", data_testid="register")
        with box("two"):
            with box("stack"):
                with box("card", data_testid="editor"):
                    self._build_editor()
                    with box("bar slim"):  # after the text in the order of Tab stops, above it on the screen
                        Panel(
                            '<span class="small muted">Suggestions appear as you type; <kbd>Ctrl</kbd> '
                            "<kbd>Space</kbd> asks for them.</span>",
                            classes="wide-only",
                        )
                        with box("end"):
                            self.format_button = button(
                                "Format", self._format, "small quiet", "format", data_testid="format"
                            )
                            Panel(
                                f'<a class="b small quiet" href="/help/sql" target="_blank">{icon("help")}SQL</a>'
                            )
                    self.verdict = Panel(
                        _hint_html(), classes="verdict", data_testid="verdict", role="status"
                    )
                self.preview_area = box("stack", data_testid="preview-area")
                self.plan = Panel("", data_testid="checked")
            with box("stack"):
                self.examples_panel = Panel(skeleton(4), classes="card", data_testid="names").on_action(
                    self._insert
                )
                Panel(_drafts_html(), classes="card drafts", data_testid="drafts")
        set_attributes(self.format_button, {"title": "Format (Shift Alt F)"})
        set_attributes(self.preview_button, {"title": "Preview (Ctrl Enter)", "disabled": True})
        title = f"{'Save' if self.edited else 'Register'} (Ctrl Shift Enter)"
        set_attributes(self.register_button, {"title": title, "disabled": True})

    def _build_editor(self) -> None:
        self.code = ui.codemirror(
            self.sql,
            theme="vscodeLight",
            indent="  ",
            line_wrapping=True,
            on_change=self._on_change,
            keymap={
                "Mod-Enter": self._preview,
                "Mod-Shift-Enter": self._register,
                "Shift-Alt-f": self._format,
            },
        )
        if self.sql:
            ui.timer(0.1, self._on_change, once=True)

    async def _format(self) -> None:
        """Give the text its usual form; a text with an open quote has none."""
        sql = self.code.value or ""
        try:
            formatted = await run_in_thread(self.service.format, sql)
        except TransomError as error:
            toast(str(error).split("\n")[0].capitalize(), "bad")
            return
        if (self.code.value or "") == sql and formatted:
            self.code.value = formatted

    def _underline(self, span: tuple[int, int] | None) -> None:
        """Underline a part of the text, or nothing.

        Setting the element's `decorations` would also send the server's copy of the text, and overwrite what
        the user has typed since.
        """
        marks = [] if span is None else [{"kind": "mark", "from": span[0], "to": span[1], "class": "wrong"}]
        self.code.run_method("setDecorations", marks)

    async def _on_change(self) -> None:
        self._checks += 1
        number = self._checks
        self._enable_buttons(False)
        await asyncio.sleep(CHECK_DELAY)
        if number == self._checks:  # no key was pressed since
            await self._check(number)

    async def _check(self, number: int) -> None:
        sql = self.code.value or ""
        if not sql.strip():
            self._underline(None)
            self._show_verdict("", _hint_html())
            self.plan.set("")
            return
        kept = ""
        try:
            checked = await run_in_thread(self.actions.check, sql)
            if self.edited:
                edited = await run_in_thread(self.actions.edit, self.edited, sql, True)
                kept = f'<p data-testid="kept">When it is saved: {esc(edited.message)}.</p>'
        except TransomError as error:
            if number == self._checks:
                self._show_error(sql, error)
            return
        if number == self._checks:
            self.checked = checked
            self._underline(None)
            self._show_verdict("good", f"{icon('good')}<div>{_verdict_html(checked)}{kept}</div>")
            self.plan.set(_plan_html(checked))
            self._enable_buttons(True)

    def _enable_buttons(self, enabled: bool) -> None:
        for element in (self.preview_button, self.register_button):
            set_attributes(element, {"disabled": None if enabled else True})
        if not enabled:
            self.checked = None

    def _show_error(self, sql: str, error: TransomError) -> None:
        self.plan.set("")
        start, end = (error.start, error.end) if isinstance(error, SQLError) else (None, None)
        self._underline(error_span(sql, start, end))
        self._show_verdict("bad", error_html(sql, error))
        ui.run_javascript(_SHOW_CARETS)

    def _show_verdict(self, kind: str, html: str) -> None:
        self.verdict.set(html)
        self.verdict.classes(replace=f"verdict {kind}")

    async def _preview(self) -> None:
        if self.checked is None:
            return
        await self._end_preview()
        checked, sql = self.checked, self.code.value or ""
        self.preview_button.classes("busy")
        try:
            self.preview = await run_in_thread(self.actions.preview, sql)
            status = await run_in_thread(self.service.query, self.preview)
        except TransomError as error:
            toast(str(error), "bad")
            return
        finally:
            self.preview_button.classes(remove="busy")
        self._ticks = 0
        self.preview_area.clear()
        with self.preview_area:
            self._build_preview(checked, status)

    def _build_preview(self, checked: CheckedQuery, status: QueryStatus) -> None:
        if checked.kind == "on demand":
            panel = LookupPanel(self.service, status, "preview-row")
            panel.repeats = True
            self._preview_panel = panel
            panel.build()
            return
        if checked.kind == "standing":
            self._preview_panel = LiveChart(status.columns, "Preview", "low")
            self._preview_panel.build()
        with box("card", "section", aria_label="Preview results"):
            with box("bar"):
                Panel("<h2>First results</h2>")
                self.preview_note = Panel(
                    "Joining with the next batch …", "span", "small muted", role="status"
                )
                with box("end"):
                    button("End preview", self._on_end_preview, "small", data_testid="preview-end")
            self.preview_rows = Panel(skeleton(3), data_testid="preview-rows")

    async def _on_end_preview(self) -> None:
        await self._end_preview()
        self.preview_area.clear()

    async def _end_preview(self) -> None:
        name, self.preview, self._preview_panel = self.preview, None, None
        if name is not None:
            try:
                await run_in_thread(self.actions.end_preview, name)
            except TransomError:
                pass  # the preview has expired already

    def close(self) -> None:
        if self.preview is not None:
            run_later(self.actions.end_preview, self.preview)  # not awaited: this event loop may be closing
            self.preview = None

    async def _register(self) -> None:
        if self.checked is None:
            return
        self.register_button.classes("busy")
        try:
            await self._end_preview()
            status = await run_in_thread(self._save, self.code.value or "")
        except TransomError as error:
            toast(str(error), "bad")
            return
        finally:
            self.register_button.classes(remove="busy")
        ui.navigate.to(query_link(status.name))

    def _save(self, sql: str) -> QueryStatus:
        if self.edited:
            return self.actions.edit(self.edited, sql).query
        return self.actions.register(sql, self.name.strip() or None)

    def _on_name(self, text: str) -> None:
        self.name = text

    def _insert(self, action: str, text: str) -> None:
        if action == "example":
            self.code.value = self._examples[int(text)].sql
        else:
            ui.run_javascript(_insert_script(self.code.id, text))

    def _fetch_names(self) -> EditorNames:
        if self._looks % NAMES_TICKS == 0 or self.names is None:
            service = self.service
            relations = service.names().relations
            shown = [each for each in relations if each.kind != "query"]
            queries = [each for each in relations if each.kind == "query"][:LISTED_QUERIES]
            return EditorNames((*shown, *queries), service.examples())
        return self.names

    def fetch(self) -> tuple[EditorNames, pa.Table | PreviewData | None]:
        streams = self._fetch_names()
        self._looks += 1
        name, panel = self.preview, self._preview_panel
        if name is None:
            return streams, None
        try:
            if isinstance(panel, LookupPanel):
                return streams, panel.fetch()
            status = self.service.query(name)
            self._ticks += 1
            if panel is not None and not status.pending and self._ticks % PROD_TICKS == 0:
                self.actions.prod(name)
            table = self.service.recent(name, PREVIEWED_RESULTS)
            return streams, PreviewData(status, table, panel.prepare(table) if panel else None)
        except NotFound:
            self.preview = None
            return streams, None

    def show(self, data: tuple[EditorNames, pa.Table | PreviewData | None]) -> None:
        names, preview = data
        if names != self.names:
            self.names, self._examples = names, names.examples
            self.examples_panel.set(names_html(names))
        if isinstance(preview, PreviewData):
            self._show_preview(preview)
        elif preview is not None and isinstance(self._preview_panel, LookupPanel):
            self._preview_panel.show(preview)

    def _show_preview(self, preview: PreviewData) -> None:
        if self.preview is None:
            return
        if isinstance(self._preview_panel, LiveChart) and preview.chart is not None:
            self._preview_panel.show(*preview.chart, preview.table)
        no_results = "The preview reads rows from now on. Its open windows update every two seconds."
        self.preview_note.set(
            "Joining with the next batch …"
            if preview.status.pending
            else "Open windows update every two seconds."
        )
        self.preview_rows.set(
            result_table(preview.table, preview.status.columns, no_results, "preview-row", brief=True)
        )


# Scrolls to the carets, on a screen that is narrower than the line.
_SHOW_CARETS = (
    "setTimeout(() => document.querySelector('.verdict pre b')"
    "?.scrollIntoView({block: 'nearest', inline: 'center'}), 50)"
)


def _insert_script(element: int, text: str) -> str:
    """JavaScript that inserts text at the cursor."""
    return (
        f"(() => {{ const view = getElement({element}).editor; if (!view) return;"
        f" view.dispatch(view.state.replaceSelection({json.dumps(text)})); view.focus(); }})()"
    )


def _hint_html() -> str:
    return (
        '<span class="muted">Write a <code>SELECT</code> over a stream with a window, such as '
        "<code>[RANGE 10 minutes SLIDE 1 minute]</code>. Without <code>SLIDE</code>, the query runs on demand."
        "</span>"
    )


def error_html(sql: str, error: TransomError) -> str:
    """An error message, with its line and carets under the error if its position is known."""
    message = error.message if isinstance(error, SQLError) else str(error)
    excerpt = ""
    if isinstance(error, SQLError) and error.start is not None and error.line and error.column:
        lines = (error.text or sql).split("\n")
        line = lines[error.line - 1] if error.line <= len(lines) else ""
        width = max(1, min((error.end or error.start + 1) - error.start, len(line) - error.column + 1))
        shown, place, width = error_excerpt(line, error.column - 1, width)
        prefix = f"{error.line} "
        excerpt = f"<pre>{prefix}{esc(shown)}\n{' ' * (len(prefix) + place)}<b>{'^' * width}</b></pre>"
    return (
        f'{icon("bad")}<div class="grow" data-testid="check-error"><span>{esc(message)}</span>{excerpt}</div>'
    )


def _verdict_html(checked: CheckedQuery) -> str:
    window = f", {esc(checked.window)}" if checked.window else ""
    early = f", early results {esc(checked.early)}" if checked.early else ""
    streams = esc(", ".join(checked.streams))
    return f"Valid query: <b>{esc(checked.kind)}</b>, over {streams}{window}{early}."


def _plan_html(checked: CheckedQuery) -> str:
    shown = [column for column in checked.columns if column.role != "system"]
    rows = "".join(
        f"<tr><td class='mono'>{esc(column.name)}</td><td class='mono muted'>{esc(column.type)}</td>"
        f"<td class='muted' style='white-space:nowrap'>{esc(column.role)}</td></tr>"
        for column in shown
    )
    system = ", ".join(column.name for column in checked.columns if column.role == "system")
    return (
        '<div class="checked-parts"><div class="card">'
        '<div class="bar"><h2>Columns</h2></div><div class="scroll">'
        '<table class="t"><thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">'
        "Role</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="small muted pad" style="padding-top:8px">and {esc(system)}</p></div>'
        '<div class="card"><div class="bar"><h2>Plan</h2></div>'
        f'<pre class="plan wrap" tabindex="0" aria-label="Plan">{esc(checked.plan)}</pre></div></div>'
    )


def names_html(names: EditorNames) -> str:
    """Example queries, and what a query can read with its columns; a click inserts them."""
    if not names.relations:
        return empty_state("none", "No streams", "The pipeline declares no streams.", slim=True)
    buttons = "".join(
        f'<button type="button" data-act="example" data-arg="{at}" data-testid="example" title="{esc(example.sql)}">'
        f"{esc(example.title)}</button>"
        for at, example in enumerate(names.examples)
    )
    parts = [f'<div class="pad examples"><h2 class="minor">Examples</h2>{buttons}</div>']
    for kind, title in KINDS:
        relations = [each for each in names.relations if each.kind == kind]
        if relations:
            is_open = kind == "stream" and len(relations) < 3
            listed = "".join(_relation_html(each, is_open) for each in relations)
            parts.append(
                f'<div class="pad columns" data-key="{kind}"><h2 class="minor">{title}</h2>{listed}</div>'
            )
    return "".join(parts)


def _relation_html(relation: KnownRelation, is_open: bool) -> str:
    columns = "".join(
        f'<li><button type="button" data-act="insert" data-arg="{esc(quote_identifier(name))}">{esc(name)}</button>'
        f'<span class="muted small">{esc(type_text(kind))}{" · time" if name == relation.time else ""}</span></li>'
        for name, kind in relation.columns.items()
    )
    name = quote_identifier(relation.name)
    insert = (
        f'<button type="button" data-act="insert" data-arg="{esc(name)}" aria-label="Insert {esc(relation.name)}" '
        f'title="Insert the name">{icon("new")}</button>'
    )
    return (
        f'<div class="relation" data-key="{esc(relation.name)}" data-testid="relation-{esc(relation.kind)}"><details'
        f"{' open' if is_open else ''}><summary>{esc(relation.name)}</summary><ul>{columns}</ul></details>"
        f"{insert}</div>"
    )


def _drafts_html() -> str:
    """The list of drafts, which the browser keeps and fills in."""
    return (
        '<div class="pad examples" data-has="none"><h2 class="minor">Drafts</h2><div data-drafts></div>'
        '<p class="small muted none">This browser keeps what you write here: the last 20 drafts.</p>'
        '<button type="button" class="forget" data-do="forget-drafts">Forget all drafts</button></div>'
    )
