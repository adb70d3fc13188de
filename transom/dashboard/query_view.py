"""The view of one query: its SQL, its live chart and results, its plan, and the actions on it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from transom.api.records import DecisionInfo, QueryStatus
from transom.api.unit_text import units_from_text, units_to_text
from transom.dashboard.accuracy_view import AccuracyMonitor
from transom.dashboard.actions import Actions
from transom.dashboard.alerts_view import query_alerts_html
from transom.dashboard.chart_points import ChartData, GroupKey
from transom.dashboard.compare_view import compare_link
from transom.dashboard.display_text import NO_VALUE, esc, format_age, format_number, format_percent
from transom.dashboard.frame import DashboardView, not_found_html, query_link
from transom.dashboard.icons import icon
from transom.dashboard.live_chart import LiveChart
from transom.dashboard.lookup_panel import LookupPanel
from transom.dashboard.query_table import query_state, tag_links
from transom.dashboard.result_table import refresh_note
from transom.dashboard.results_panel import ResultsPanel
from transom.dashboard.sharing_view import sharing_queries
from transom.dashboard.sql_highlight import break_lines, highlight
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import (
    Panel,
    box,
    button,
    set_attributes,
    skeleton,
    tag,
    text_field,
    tile,
    tiles,
    toast,
)
from transom.errors import TransomError
from transom.estimates import Accuracy
from transom.plan.explain.text_parts import counted
from transom.server.service import Service

CHARTED_RESULTS = 5_000  # newest results that are read
TABS = (("results", "Results"), ("explain", "Explain"))
READ_ONLY = "Your token has the role read: you see results when windows close."
NO_RESULTS = (
    "A window returns its result when the watermark passes its end. "
    "Refresh returns the current values of open windows."
)
NO_MATCHES = "Each row that satisfies the query is a result, as soon as it arrives."
PLAN_SECONDS = 10.0  # between two readings of the plan


@dataclass(frozen=True)
class QueryData:
    """The changed data of a query; None for unchanged data."""

    status: QueryStatus
    table: pa.Table | None
    chart: tuple[ChartData, list[GroupKey]] | None
    accuracy: Accuracy | None
    coverage: Any
    plan: str | None
    decisions: tuple[DecisionInfo, ...] | None
    shares_with: list[str] | None
    lookup: pa.Table | None
    alerts: tuple[int, int]  # groups of its alerts that are firing, and pending


class QueryView(DashboardView):
    """One query: standing, on demand or with a preference."""

    section = "queries"

    def __init__(self, service: Service, actions: Actions, status: QueryStatus, tab: str):
        super().__init__(service)
        self.actions = actions
        self.status, self.name, self.title = status, status.name, status.name
        self.tab = tab if tab in dict(TABS) else "results"
        self.is_lookup, self.has_preference = status.kind == "on demand", status.kind == "preference"
        self.is_of_rows = status.kind == "rows"
        height = "tall" if status.emits_early else ""
        self.chart = LiveChart(status.columns, height=height)
        no_results = NO_MATCHES if self.is_of_rows else NO_RESULTS
        self.table = ResultsPanel(status.columns, no_results, most=CHARTED_RESULTS)
        self.monitor = AccuracyMonitor(actions, status.name) if status.emits_early else None
        self.lookup = LookupPanel(service, status) if self.is_lookup else None
        # Number and time of results, and the text.
        self._shown_version: tuple[int, int | None, str] | None = None
        self._plan_read_at = 0.0
        self._shares_with: list[str] | None = None
        self._looked_up = False
        self._refusal = ""

    def build(self) -> None:
        with box("head"):
            with box("grow"):
                Panel('<a href="/queries">Queries</a>', "nav", "crumb", aria_label="Breadcrumb")
                self.head = Panel(_head_html(self.status))
                self.alerts = Panel("")
            with box("actions"):
                self.note = Panel("", "span", "small muted", data_testid="refresh-note", role="status")
                self.refresh = button(
                    "Look up" if self.is_lookup else "Refresh",
                    self._refresh,
                    "main",
                    "refresh",
                    data_testid="refresh",
                )
                self.resume = button(
                    "Resume", self._resume, "", "play", data_testid="resume", data_needs="register"
                )
                self.pause = button("Pause", self._pause, data_testid="pause", data_needs="register")
                if not self.is_lookup and not self.has_preference:
                    Panel(
                        f'<a class="b" data-testid="compare" href="{compare_link([self.name])}">Compare</a>',
                        classes="row",
                    )
                Panel(
                    f'<a class="b" data-testid="edit" href="{editor_link(self.name)}">Edit</a>'
                    f'<a class="b" data-testid="duplicate" href="{editor_link(self.name, copies=True)}">Duplicate</a>'
                    '<button type="button" class="b" data-do="open" data-what="details" data-testid="details">'
                    "Rename and describe</button>",
                    classes="row",
                    data_needs="register",
                )
                button(
                    "Drop",
                    None,
                    "danger",
                    "drop",
                    data_do="open",
                    data_what="drop",
                    data_testid="drop",
                    data_needs="register",
                )
        self._build_facts()
        self.tabs = Panel(self._tabs_html(), role="tablist", classes="tabs", aria_label="Views of the query")
        self.tabs.on_action(self._on_tab)
        with box("stack") as self.results_tab:
            self._build_results()
        with box("stack") as self.explain_tab:
            with box("card", "section", aria_label="Plan decisions"):
                Panel("<h2>Plan decisions</h2>", classes="bar")
                self.decisions = Panel(skeleton(4), data_testid="decisions")
            with box("card"):
                self.plan = Panel(skeleton(10), data_testid="explain")
        self._show_tab()
        self._build_drop_dialog()
        self._build_details_dialog()
        self._show_refresh(self.status)

    def _build_facts(self) -> None:
        with box("card section about"):
            self.sql = Panel(_sql_html(self.status.sql), classes="pad")
            self.facts = Panel(skeleton(4))

    def _build_results(self) -> None:
        if self.lookup is not None:
            self.lookup.build()
            return
        if self.has_preference:
            self.coverage = Panel(f'<div class="card">{skeleton(1)}</div>', data_testid="coverage")
        elif self.monitor is not None:
            with box("two watch"):
                with box("stack"):
                    self.chart.build()
                with box("stack"):
                    self.monitor.build()
        elif not self.is_of_rows:
            self.chart.build()
        with box("card", "section", aria_label="Latest results"):
            with box("bar"):
                Panel("<h2>Latest results</h2>")
                self.table.build_controls()
                Panel(_export_links(self.name), classes="end row")
            self.table.build_table(data_testid="results")

    def _build_drop_dialog(self) -> None:
        with box("", "dialog", id="drop", aria_labelledby="drop-title"):
            Panel(
                f'<h2 id="drop-title">Drop {esc(self.name)}?</h2><p>The query ends with the next batch. Its open '
                "windows return no results. Queries that share work with it are not affected.</p>"
            )
            with box("row"):
                button("Cancel", None, data_do="close")
                button("Drop", self._drop, "main danger", data_testid="drop-confirm")

    def _build_details_dialog(self) -> None:
        self._details = {
            "name": self.status.name,
            "description": self.status.description,
            "tags": ", ".join(self.status.tags),
            "units": units_to_text(self.status.units),
        }
        with box("", "dialog", id="details", aria_labelledby="details-title"):
            Panel(f'<h2 id="details-title">Rename and describe {esc(self.name)}</h2>')
            with box("stack"):
                for key, label in (
                    ("name", "Name"),
                    ("description", "Description"),
                    ("tags", "Tags, with commas between them"),
                    ("units", "Units of values, such as total=EUR, delay=min"),
                ):
                    text_field(
                        partial(self._details.__setitem__, key),
                        self._details[key],
                        type="text",
                        aria_label=label,
                        placeholder=label,
                        data_testid=f"details-{key}",
                    )
            with box("row"):
                button("Cancel", None, data_do="close")
                button("Save", self._save_details, "main", data_testid="details-save")

    async def _save_details(self) -> None:
        tags = [each.strip() for each in self._details["tags"].split(",") if each.strip()]
        to, description = self._details["name"].strip(), self._details["description"]
        ui.run_javascript("document.getElementById('details').close()")
        try:
            units = units_from_text(self._details["units"].split(","))
            status = await run_in_thread(
                self.actions.change, self.name, to or self.name, description, tags, units
            )
        except TransomError as error:
            toast(str(error), "bad")
            return
        if status.name == self.name:
            toast("Saved.")
            await self.frame.refresh()
            return
        self.frame.is_stopped = True
        ui.navigate.to(query_link(status.name))

    async def _pause(self) -> None:
        try:
            await run_in_thread(self.actions.pause, self.name)
            toast(f"{self.name} is paused from the next batch on")
            await self.frame.refresh()
        except TransomError as error:
            toast(str(error), "bad")

    def _tabs_html(self) -> str:
        return "".join(
            f'<button type="button" role="tab" data-act="tab" data-arg="{key}" data-testid="tab-{key}" '
            f'aria-selected="{"true" if key == self.tab else "false"}">{name}</button>'
            for key, name in TABS
        )

    async def _on_tab(self, _: str, tab: str) -> None:
        self.tab, self._plan_read_at = tab, 0.0
        url = query_link(self.name) + ("" if tab == "results" else f"?tab={tab}")
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(url)})")
        self.tabs.set(self._tabs_html())
        self._show_tab()
        await self.frame.refresh()

    def _show_tab(self) -> None:
        self.results_tab.set_visibility(self.tab == "results")
        self.explain_tab.set_visibility(self.tab == "explain")

    async def _refresh(self) -> None:
        self.refresh.classes("busy")
        try:
            if self.lookup is not None:
                self.note.set(await self.lookup.look_up())
                return
            early = await run_in_thread(self.actions.prod, self.name)
            self.note.set(refresh_note(early, self.status.columns))
            self._shown_version = None
            await self.frame.refresh()
        except TransomError as error:
            toast(str(error), "bad")
        finally:
            self.refresh.classes(remove="busy")

    async def _resume(self) -> None:
        try:
            await run_in_thread(self.actions.resume, self.name)
            toast(f"{self.name} joins with the next batch")
        except TransomError as error:
            toast(str(error), "bad")

    async def _drop(self) -> None:
        try:
            await run_in_thread(self.actions.drop, self.name)
        except TransomError as error:
            ui.run_javascript("document.getElementById('drop').close()")
            toast(str(error), "bad")
            return
        self.frame.is_stopped = True
        ui.navigate.to("/queries")

    def fetch(self) -> QueryData:
        service, name = self.service, self.name
        status = service.query(name)
        table = chart = accuracy = coverage = plan = decisions = lookup = None
        version = (status.results, status.last, status.sql)
        if version != self._shown_version or (self.lookup and self.lookup.repeats):
            if self.lookup is not None:
                lookup = self.lookup.fetch() if self.lookup.repeats or not self._looked_up else None
                self._looked_up = True
            else:
                table, self.chart.hints = service.recent(name, CHARTED_RESULTS), service.chart_hints(name)
                has_chart = not self.has_preference and not self.is_of_rows
                chart = self.chart.prepare(table) if has_chart else None
                accuracy = service.accuracy(name) if self.monitor else None
                coverage = service.coverage(name) if self.has_preference else None
            self._shown_version = version
        if time.monotonic() - self._plan_read_at > PLAN_SECONDS:
            self._plan_read_at = time.monotonic()
            if self.tab == "explain":
                plan = service.explain(name, verbose=True)
                decisions = service.query_detail(name).decisions
            if not self.has_preference:
                self._shares_with = sharing_queries(service.explain(name, format="json"), name)
        alerts = service.alerts.of_query(name)
        return QueryData(
            status, table, chart, accuracy, coverage, plan, decisions, self._shares_with, lookup, alerts
        )

    def show(self, data: QueryData) -> None:
        if data.status.sql != self.status.sql:
            self.sql.set(_sql_html(data.status.sql))
            if data.status.columns != self.status.columns or data.status.kind != self.status.kind:
                ui.navigate.reload()  # an edit has changed what the view is made of
        status = self.status = data.status
        self.head.set(_head_html(status))
        self.alerts.set(query_alerts_html(*data.alerts))
        self.facts.set(_facts_html(status, data.shares_with))
        self._show_refresh(status)
        if data.lookup is not None and self.lookup is not None:
            self.note.set(self.lookup.show(data.lookup))
        if data.table is not None:
            if data.chart is not None:
                self.chart.show(*data.chart, data.table)
            self.table.show(data.table)
        if self.monitor is not None:
            self.monitor.show(data.accuracy, status)
        if data.coverage is not None:
            self.coverage.set(_coverage_html(data.coverage))
        if data.decisions is not None:
            self.decisions.set(decisions_html(data.decisions))
        if data.plan is not None:
            self.plan.set(f'<pre class="plan" tabindex="0" aria-label="Query plan">{esc(data.plan)}</pre>')

    def _show_refresh(self, status: QueryStatus) -> None:
        self.resume.set_visibility(status.suspended is not None or status.paused)
        self.pause.set_visibility(status.suspended is None and not status.paused)
        refusal = refresh_refusal(status, self.actions.allowed)
        set_attributes(
            self.refresh, {"disabled": True if refusal else None, "title": refusal or "Refresh (r)"}
        )
        if refusal != self._refusal:
            self._refusal = refusal
            self.note.set(esc(refusal))

    def on_missing(self) -> None:
        self.frame.replace(not_found_html(f"{self.name} no longer exists", "The query was dropped."))


def refresh_refusal(status: QueryStatus, may_prod: bool = True) -> str:
    """Why the Refresh button is disabled; empty if it is enabled."""
    if status.suspended is not None:
        return f"Suspended: {status.suspended}"
    if status.paused:
        return "Paused: it takes no part in batches until it is resumed."
    if status.pending:
        return "Joins with the next batch."
    if status.kind == "preference":
        return "A query with a preference emits results by itself."
    if status.kind == "rows":
        return "A query without a window returns each row as soon as it arrives."
    if status.kind == "standing" and not may_prod:
        return READ_ONLY
    return ""


def _head_html(status: QueryStatus) -> str:
    state, style, tooltip = query_state(status)
    tags = tag(status.kind)
    if state:
        tags += tag(state, style, tooltip)
    if status.partial:
        tags += tag("partial")
    described = f'<p class="muted" data-testid="description">{esc(status.description)}</p>'
    return (
        f'<div class="row"><h1 data-testid="title">{esc(status.name)}</h1>{tags}{tag_links(status)}</div>'
        f"{described if status.description else ''}"
    )


def _sql_html(sql: str) -> str:
    return (
        f'<div class="row top"><pre class="sql grow" data-testid="sql">'
        f"{highlight(break_lines(sql))}</pre><button type='button' class='b icon quiet' data-do='copy' "
        f'data-text="{esc(sql)}" aria-label="Copy SQL" title="Copy SQL">'
        f"{icon('copy')}"
        "</button></div>"
    )


def _export_links(name: str) -> str:
    """Links to files with the final results, in each format."""
    path = f"/api/queries/{quote(name, safe='')}/export"
    return "".join(
        f'<a class="b small" data-testid="download{"" if form == "csv" else f"-{form}"}" download '
        f'title="Final results as {label}" href="{path}?format={form}">{icon("down")}{label}</a>'
        for form, label in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"), ("arrow", "Arrow"))
    )


def editor_link(name: str, copies: bool = False) -> str:
    """The URL of the editor with a query's text: to edit the query, or to register another one like it."""
    return f"/new?{'like' if copies else 'edit'}={quote(name, safe='')}"


def _facts_html(status: QueryStatus, shares_with: list[str] | None) -> str:
    no_window = "none: each row that satisfies it is a result" if status.kind == "rows" else NO_VALUE
    facts = [("Window", status.window or no_window), ("Input", ", ".join(status.streams))]
    if status.kind == "standing":
        facts.append(("Early results", status.early or "on refresh"))
    joined = "with the next batch" if status.since is None else f"batch {format_number(status.since)}"
    if status.edited is not None:
        joined += f", edited with batch {format_number(status.edited)}"
    facts.append(("Joined", joined))
    if status.kind != "on demand":
        age = format_age(status.last, time.time_ns() // 1000)
        facts.append(
            ("Results", f"{format_number(status.results)}, last {age}" if status.last else "none yet")
        )
    if status.kind not in ("preference", "rows"):
        facts.append(("Late rows", late_text(status)))
    if status.kind != "preference":
        facts.append(("Shares with", _sharing_text(shares_with)))
    rows = "".join(f'<dt>{name}</dt><dd title="{esc(text)}">{esc(text)}</dd>' for name, text in facts)
    return f'<dl class="facts" data-testid="facts">{rows}</dl>'


def late_text(status: QueryStatus) -> str:
    """How many rows a query missed, in words."""
    if status.late:
        share = format_percent(status.late / status.rows, 2)
        return f"{counted(status.late, 'row')} came too late ({share})"
    return "Every row was in time" if status.rows else "none yet"


def decisions_html(decisions: tuple[DecisionInfo, ...]) -> str:
    """The planner's decisions about a query as a table: pass, subject, decision and reason."""
    if not decisions:
        return '<p class="pad muted">The planner has not decided anything about this query.</p>'
    rows = "".join(
        f"<tr><td>{esc(one.pass_name)}</td><td>{esc(one.about)}</td><td>{esc(one.chosen)}</td>"
        f"<td>{esc(one.reason)}</td></tr>"
        for one in decisions
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Pass", "About", "Decision", "Reason"))
    return f'<div class="scroll"><table class="t"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _sharing_text(names: list[str] | None) -> str:
    if names is None:
        return NO_VALUE
    if not names:
        return "no other query"
    return f"{counted(len(names), 'query', 'queries')}: {', '.join(names[:20])}"


def _coverage_html(coverage: Any) -> str:
    deferred = "complete" if coverage.complete else f"{coverage.left:,} probes deferred"
    return tiles(
        [
            tile("Share of all results", format_percent(coverage.share), deferred),
            tile("Results", format_number(coverage.produced), "tuples"),
            tile("Probes", format_number(coverage.probes), "so far"),
            tile("Skipped", format_number(round(coverage.skipped)), "tuples, estimated"),
        ],
        "four",
    )
