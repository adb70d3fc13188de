"""The overview: the engine, its streams, and the queries with the newest results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from transom.api.records import QueryStatus, ServiceStatus, StreamStatus
from transom.dashboard.display_text import (
    esc,
    format_bytes,
    format_count,
    format_event_time,
    format_number,
    format_percent,
    format_seconds,
)
from transom.dashboard.frame import DashboardView, stream_link
from transom.dashboard.query_table import has_one_input, query_table, query_table_row
from transom.dashboard.sparklines import sparkline
from transom.dashboard.widgets import Panel, box, empty_state, skeleton, tile, tiles
from transom.plan.explain.text_parts import counted
from transom.server.trends import Trend

RECENT_QUERIES = 8
STEP_COLOURS = ("c1", "c6", "c3", "c2", "c5", "c4", "c7", "c8")
FIRST_QUERY_LINK = '<a class="b main" href="/new" data-testid="first-query">Write the first query</a>'


@dataclass(frozen=True)
class OverviewData:
    """What the overview shows."""

    status: ServiceStatus
    streams: Sequence[StreamStatus]
    queries: Sequence[QueryStatus]
    trends: dict[str, Trend | None]


class OverviewView(DashboardView):
    """The start view: the state of everything at a glance."""

    section = "overview"
    title = "Overview"

    def build(self) -> None:
        Panel("<div><h1>Overview</h1></div>", classes="head")
        self.figures = Panel(f'<div class="card">{skeleton(2)}</div>', classes="section")
        with box("card section", "section", aria_label="Streams"):
            Panel("<h2>Streams</h2>", classes="bar")
            self.streams = Panel(skeleton(2), data_testid="streams")
        with box("card section", "section", aria_label="Queries"):
            Panel(
                '<h2>Latest results</h2><div class="end"><a href="/queries">All queries</a></div>',
                classes="bar",
            )
            self.queries = Panel(skeleton(5), data_testid="recent-queries")

    def fetch(self) -> OverviewData:
        service = self.service
        by_age = sorted(service.queries(), key=lambda query: (query.last or 0, query.results), reverse=True)
        recent = by_age[:RECENT_QUERIES]
        trends = {query.name: service.trend(query.name) for query in recent}
        return OverviewData(service.status(), service.streams(), recent, trends)

    def show(self, data: OverviewData) -> None:
        self.figures.set(_figures_html(data.status))
        self.streams.set(_streams_html(data.streams))
        self.queries.set(_queries_html(data))


def _figures_html(status: ServiceStatus) -> str:
    saved = "–" if status.saved is None else f"{status.saved:,.1f} ×"
    executors = (
        f"{format_bytes(status.executor_bytes)} on executors" if status.executor_bytes else "on the driver"
    )
    suspended = f"{status.suspended:,} suspended" if status.suspended else "none suspended"
    uptime = f"up {format_seconds(status.uptime)}"
    figures = [
        tile("Engine", status.state.capitalize(), uptime, data_testid="state"),
        tile("Last batch", format_number(status.batch), f"took {format_seconds(status.batch_seconds)}"),
        tile("Rows per second", format_count(status.rate), f"{format_count(status.rows)} rows in total"),
        tile("Queries", format_number(status.queries), suspended),
        tile("State", format_bytes(status.state_bytes), executors),
        tile("Saved by sharing", saved, "fewer aggregations"),
    ]
    return tiles(figures) + _batch_time_html(status)


def _batch_time_html(status: ServiceStatus) -> str:
    """A bar that divides the last batch's time by step."""
    total = sum(status.spent.values())
    if not total:
        return ""
    steps = [
        (name.replace("_", " "), part, f"var(--{STEP_COLOURS[at % len(STEP_COLOURS)]})")
        for at, (name, part) in enumerate(status.spent.items())
    ]
    bar = "".join(
        f'<i style="flex:{part / total:.4f};background:{colour}" title="{esc(name)}"></i>'
        for name, part, colour in steps
    )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{esc(name)} <b>{format_seconds(part)}</b> '
        f"{format_percent(part / total, 0)}</span>"
        for name, part, colour in steps
    )
    return (
        '<div class="stack tight" style="margin-top:12px"><div class="row apart small muted">'
        f'<span><a href="/batches">Time of the last batch</a>: {format_seconds(status.batch_seconds)}</span>'
        f'<span class="legend">{legend}</span></div><div class="spent" aria-hidden="true">{bar}</div></div>'
    )


def _streams_html(streams: Sequence[StreamStatus]) -> str:
    if not streams:
        return empty_state("none", "No streams", "The pipeline declares no streams.")
    head = (
        '<th scope="col">Stream</th><th scope="col">Rate, last minutes</th><th scope="col" class="num">'
        "Rows/s</th>"
        '<th scope="col" class="num">Rows</th><th scope="col" class="num">Lag</th>'
        '<th scope="col" class="num">Watermark</th><th scope="col" class="num">Delay</th>'
        '<th scope="col" class="num">Open windows</th><th scope="col" class="num">Late</th>'
        '<th scope="col" class="num">Rejected</th>'
    )
    table = (
        f'<div class="scroll"><table class="t"><thead><tr>{head}</tr></thead><tbody>'
        f"{''.join(map(_stream_row, streams))}</tbody></table></div>"
    )
    if any(stream.rows for stream in streams):
        return table
    return table + empty_state("none", "No rows yet", "Waiting for the first rows.", slim=True)


def _stream_row(stream: StreamStatus) -> str:
    delay = (
        format_seconds(stream.watermark_delay) if stream.is_time else format_number(stream.watermark_delay)
    )
    notes = f"{counted(stream.queries, 'query', 'queries')}, slack {stream.slack}"
    if stream.finished:
        notes += ", finished"
    if stream.sidelined or stream.shed:
        notes += f", {stream.sidelined:,} rows sidelined, {stream.shed:,} shed"
    name, watermark = esc(stream.name), format_event_time(stream.watermark, stream.is_time)
    return (
        f'<tr data-key="{name}" data-testid="stream-row" data-stream="{name}"><td class="name">'
        f'<a href="{esc(stream_link(stream.name))}">{name}</a>'
        f'<div class="small muted" style="font-weight:400;white-space:nowrap">{esc(notes)}</div></td>'
        f"<td>{sparkline(stream.rates, 140, 28, f'rate of {stream.name}')}</td>"
        f'<td class="num">{format_count(stream.rate)}</td><td class="num">{format_number(stream.rows)}</td>'
        f'<td class="num" title="{_lag_tooltip(stream)}">{format_seconds(stream.lag)}</td>'
        f'<td class="num" title="{esc(watermark)}">{esc(watermark[:19])}</td><td class="num">{delay}</td>'
        f'<td class="num">{format_number(stream.open_windows)}</td>'
        f'<td class="num">{_count_link(stream, "late", stream.late)}</td>'
        f'<td class="num">{_count_link(stream, "rejected", stream.rejected)}</td></tr>'
    )


def _lag_tooltip(stream: StreamStatus) -> str:
    if not stream.is_time:
        return "No lag: the stream's time is a number"
    if stream.high is None:
        return "No rows yet"
    return "From the newest row to now" if stream.lag is not None else "No lag: the stream is a recording"


def _count_link(stream: StreamStatus, what: str, count: int) -> str:
    if not count:
        return "0"
    url = "/late?" + urlencode({"stream": stream.name, "what": what})
    return f'<a href="{esc(url)}">{count:,}</a>'


def _queries_html(data: OverviewData) -> str:
    if not data.queries:
        text = "A query is SQL with a window. While it is registered, it returns a result for every window."
        return empty_state("queries", "No queries yet", text, FIRST_QUERY_LINK)
    now = time.time_ns() // 1000
    rows = [query_table_row(query, data.trends.get(query.name), now) for query in data.queries]
    return query_table(rows, one_input=has_one_input(data.queries))
