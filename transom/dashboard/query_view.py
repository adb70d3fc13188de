"""One query in full: its SQL, its windows as they come, early and final, and what can be done with it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from transom.api.records import QueryStatus
from transom.dashboard.accuracy_view import AccuracyMonitor
from transom.dashboard.chart_points import Drawn, Key
from transom.dashboard.formatting import NONE, ago, e, number, percent
from transom.dashboard.frame import View, missing, query_link
from transom.dashboard.icons import icon
from transom.dashboard.live_chart import LiveChart
from transom.dashboard.lookup_panel import LookupPanel
from transom.dashboard.query_table import state_of
from transom.dashboard.result_table import refresh_note, result_table
from transom.dashboard.sharing_view import sharers
from transom.dashboard.sql_highlight import highlight, laid_out
from transom.dashboard.threads import in_thread
from transom.dashboard.widgets import Panel, box, button, set_attributes, skeleton, tag, tile, tiles, toast
from transom.errors import TransomError
from transom.estimates.monitor import Accuracy
from transom.plan.explain.words import counted
from transom.server.service import Service

ROWS = 5_000  # of results that are looked at
TABS = (("results", "Results"), ("explain", "Explain"))
PLAN_EVERY = 10.0  # seconds


@dataclass(frozen=True)
class Found:
    """What is new about the query."""

    status: QueryStatus
    table: pa.Table | None  # None: as before
    drawn: tuple[Drawn, list[Key]] | None
    accuracy: Accuracy | None
    coverage: Any
    plan: str | None
    shared: list[str] | None
    answer: pa.Table | None


class OneQuery(View):
    """The page of a query."""

    section = "queries"

    def __init__(self, service: Service, status: QueryStatus, tab: str):
        super().__init__(service)
        self.status, self.name, self.title = status, status.name, status.name
        self.tab = tab if tab in dict(TABS) else "results"
        self.is_lookup, self.is_preferred = status.kind == "on demand", status.kind == "preferred"
        self.chart = LiveChart(status.columns, height="tall" if status.emits_early else "")
        self.monitor = AccuracyMonitor(service, status.name) if status.emits_early else None
        self.lookup = LookupPanel(service, status) if self.is_lookup else None
        self._seen: tuple[int, int | None] | None = None
        self._planned = 0.0
        self._shared: list[str] | None = None
        self._asked = False
        self._reason = ""

    # --- elements ---

    def build(self) -> None:
        with box("head"):
            with box("grow"):
                Panel('<a href="/queries">Queries</a>', "nav", "crumb", aria_label="Breadcrumb")
                self.head = Panel(_head(self.status))
            with box("actions"):
                self.note = Panel("", "span", "small muted", data_testid="refresh-note", role="status")
                self.refresh = button(
                    "Look up" if self.is_lookup else "Refresh",
                    self._refresh,
                    "main",
                    "refresh",
                    data_testid="refresh",
                )
                button("Drop", None, "danger", "drop", data_do="open", data_what="drop", data_testid="drop")
        self._about()
        self.tabs = Panel(self._tabs(), role="tablist", classes="tabs", aria_label="Views of the query")
        self.tabs.act(self._tab)
        with box("stack") as self.results:
            self._results()
        with box("card") as self.explained:
            self.plan = Panel(skeleton(10), data_testid="explain")
        self._switch()
        self._drop_dialog()
        self._show_refresh(self.status)

    def _about(self) -> None:
        sql = laid_out(self.status.sql)
        with box("card section about"):
            Panel(
                f'<div class="row top"><pre class="sql grow" data-testid="sql">'
                f"{highlight(sql)}</pre><button type='button' class='b icon quiet' data-do='copy' "
                f'data-text="{e(self.status.sql)}" aria-label="Copy the SQL" title="Copy the SQL">'
                f"{icon('copy')}"
                "</button></div>",
                classes="pad",
            )
            self.facts = Panel(skeleton(4))

    def _results(self) -> None:
        if self.lookup is not None:
            self.lookup.build()
            return
        if self.is_preferred:
            self.coverage = Panel(f'<div class="card">{skeleton(1)}</div>', data_testid="coverage")
        elif self.monitor is not None:
            with box("two watch"):
                with box("stack"):
                    self.chart.build()
                with box("stack"):
                    self.monitor.build()
        else:
            self.chart.build()
        with box("card", "section", aria_label="Newest results"):
            Panel(
                '<h2>Newest results</h2><div class="end"><a class="b small" data-testid="download" download '
                f'href="/api/queries/{quote(self.name, safe="")}'
                f'/results?format=csv">{icon("down")}CSV</a></div>',
                classes="bar",
            )
            self.table = Panel(skeleton(6), data_testid="results")

    def _drop_dialog(self) -> None:
        with box("", "dialog", id="drop", aria_labelledby="drop-title"):
            Panel(
                f'<h2 id="drop-title">Drop {e(self.name)}?</h2><p>It leaves with the next page, and its '
                "open windows "
                "are not answered. Queries that share with it stay as they are.</p>"
            )
            with box("row"):
                button("Keep it", None, data_do="close")
                button("Drop", self._drop, "main danger", data_testid="drop-confirm")

    def _tabs(self) -> str:
        return "".join(
            f'<button type="button" role="tab" data-act="tab" data-arg="{key}" data-testid="tab-{key}" '
            f'aria-selected="{"true" if key == self.tab else "false"}">{name}</button>'
            for key, name in TABS
        )

    async def _tab(self, _: str, tab: str) -> None:
        self.tab, self._planned = tab, 0.0
        address = query_link(self.name) + ("" if tab == "results" else f"?tab={tab}")
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(address)})")
        self.tabs.set(self._tabs())
        self._switch()
        await self.frame.look()

    def _switch(self) -> None:
        self.results.set_visibility(self.tab == "results")
        self.explained.set_visibility(self.tab == "explain")

    # --- what people do ---

    async def _refresh(self) -> None:
        self.refresh.classes("busy")
        try:
            if self.lookup is not None:
                self.note.set(await self.lookup.ask())
                return
            told = await in_thread(self.service.prod, self.name)
            self.note.set(refresh_note(told, self.status.columns))
            self._seen = None
            await self.frame.look()
        except TransomError as error:
            toast(str(error), "bad")
        finally:
            self.refresh.classes(remove="busy")

    async def _drop(self) -> None:
        try:
            await in_thread(self.service.drop, self.name)
        except TransomError as error:
            ui.run_javascript("document.getElementById('drop').close()")
            toast(str(error), "bad")
            return
        self.frame.is_lost = True
        ui.navigate.to("/queries")

    # --- looking ---

    def fetch(self) -> Found:
        service, name = self.service, self.name
        status = service.query(name)
        table = drawn = accuracy = coverage = plan = answer = None
        now = (status.results, status.last)
        if now != self._seen or (self.lookup and self.lookup.keeps):
            if self.lookup is not None:
                answer = self.lookup.fetch() if self.lookup.keeps or not self._asked else None
                self._asked = True
            else:
                table = service.recent(name, ROWS)
                drawn = None if self.is_preferred else self.chart.drawing(table)
                accuracy = service.accuracy(name) if self.monitor else None
                coverage = service.coverage(name) if self.is_preferred else None
            self._seen = now
        if time.monotonic() - self._planned > PLAN_EVERY:
            self._planned = time.monotonic()
            if self.tab == "explain":
                plan = service.explain(name, verbose=True)
            if not self.is_preferred:
                self._shared = sharers(service.explain(name, format="json"), name)
        return Found(status, table, drawn, accuracy, coverage, plan, self._shared, answer)

    def show(self, found: Found) -> None:
        status = self.status = found.status
        self.head.set(_head(status))
        self.facts.set(_facts(status, found.shared))
        self._show_refresh(status)
        if found.answer is not None and self.lookup is not None:
            self.note.set(self.lookup.show(found.answer))
        if found.table is not None:
            if found.drawn is not None:
                self.chart.show(*found.drawn, found.table)
            none = (
                "A window is answered when the watermark passes its end. Refresh asks for what is known now."
            )
            self.table.set(result_table(found.table, status.columns, none))
        if self.monitor is not None:
            self.monitor.show(found.accuracy, status)
        if found.coverage is not None:
            self.coverage.set(_coverage(found.coverage))
        if found.plan is not None:
            self.plan.set(
                f'<pre class="plan" tabindex="0" aria-label="How the query is computed">{e(found.plan)}</pre>'
            )

    def _show_refresh(self, status: QueryStatus) -> None:
        reason = why_not(status)
        set_attributes(self.refresh, {"disabled": True if reason else None, "title": reason or "Refresh (r)"})
        if reason != self._reason:
            self._reason = reason
            self.note.set(e(reason))

    def gone(self, reason: str) -> None:
        self.frame.replace(missing(f"{self.name} has left", "The query was dropped while it was looked at."))


def why_not(status: QueryStatus) -> str:
    """Why a query can't be asked now; nothing if it can."""
    if status.suspended is not None:
        return f"Suspended: {status.suspended}"
    if status.waits:
        return "It joins with the next page."
    if status.kind == "preferred":
        return "A query with a preference tells what it finds by itself."
    return ""


def _head(status: QueryStatus) -> str:
    word, kind, why = state_of(status)
    tags = (
        tag(status.kind) + (tag(word, kind, why) if word else "") + (tag("partial") if status.partial else "")
    )
    return f'<div class="row"><h1 data-testid="title">{e(status.name)}</h1>{tags}</div>'


def _facts(status: QueryStatus, shared: list[str] | None) -> str:
    last = ago(status.last, time.time_ns() // 1000)
    facts = [
        ("Window", status.window or NONE),
        ("Reads", ", ".join(status.streams)),
        ("Early", status.early or "when refreshed") if status.kind == "standing" else ("", ""),
        ("Joined", "with the next page" if status.since is None else f"page {number(status.since)}"),
        ("Results", f"{number(status.results)}, last {last}" if status.last else "none yet")
        if status.kind != "on demand"
        else ("", ""),
        ("Shares with", _shared(shared)) if status.kind != "preferred" else ("", ""),
    ]
    rows = "".join(f'<dt>{name}</dt><dd title="{e(text)}">{e(text)}</dd>' for name, text in facts if name)
    return f'<dl class="facts" data-testid="facts">{rows}</dl>'


def _shared(shared: list[str] | None) -> str:
    if shared is None:
        return NONE
    if not shared:
        return "nobody"
    return f"{counted(len(shared), 'query', 'queries')}: {', '.join(shared[:20])}"


def _coverage(coverage: Any) -> str:
    left = "nothing was left out" if coverage.complete else f"{coverage.left:,} probes left"
    return tiles(
        [
            tile("Share of all results", percent(coverage.share), left),
            tile("Found", number(coverage.produced), "tuples"),
            tile("Probes", number(coverage.probes), "made so far"),
            tile("Passed over", number(round(coverage.skipped)), "tuples, about"),
        ],
        "four",
    )
