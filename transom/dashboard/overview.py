"""The overview: how the engine, its streams and its busiest queries are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from transom.api.records import QueryStatus, ServiceStatus, StreamStatus
from transom.dashboard.formatting import compact, e, instant, number, percent, seconds, size
from transom.dashboard.frame import View
from transom.dashboard.query_table import query_row, query_table
from transom.dashboard.sparklines import sparkline
from transom.dashboard.widgets import Panel, box, empty, skeleton, tile, tiles
from transom.plan.explain.words import counted
from transom.server.trends import Trend

RECENT = 8  # queries
STEPS = ("c1", "c6", "c3", "c2", "c5", "c4", "c7", "c8")
WRITE = '<a class="b main" href="/new" data-testid="first-query">Write the first query</a>'


@dataclass(frozen=True)
class Found:
    """What the overview shows."""

    status: ServiceStatus
    streams: Sequence[StreamStatus]
    queries: Sequence[QueryStatus]
    trends: dict[str, Trend | None]


class Overview(View):
    """The first view: everything at a glance."""

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
                '<h2>Queries with the newest results</h2><div class="end"><a href="/queries">All '
                "queries</a></div>",
                classes="bar",
            )
            self.queries = Panel(skeleton(5), data_testid="recent-queries")

    def fetch(self) -> Found:
        service = self.service
        known = service.queries()
        newest = sorted(known, key=lambda one: (one.last or 0, one.results), reverse=True)[:RECENT]
        return Found(
            service.status(), service.streams(), newest, {one.name: service.trend(one.name) for one in newest}
        )

    def show(self, found: Found) -> None:
        self.figures.set(_figures(found.status))
        self.streams.set(_streams(found.streams))
        self.queries.set(_queries(found))


def _figures(status: ServiceStatus) -> str:
    saved = "–" if status.saved is None else f"{status.saved:,.1f} ×"
    far = f"{size(status.far_bytes)} with the executors" if status.far_bytes else "on the driver"
    suspended = f"{status.suspended:,} suspended" if status.suspended else "none suspended"
    strip = tiles(
        [
            tile("Engine", status.state.capitalize(), f"up {seconds(status.uptime)}", data_testid="state"),
            tile("Last page", number(status.batch), f"took {seconds(status.batch_seconds)}"),
            tile("Rows a second", compact(status.rate), f"{compact(status.rows)} rows in all"),
            tile("Queries", number(status.queries), suspended),
            tile("State", size(status.state_bytes), far),
            tile("Saved by sharing", saved, "fewer aggregations"),
        ]
    )
    return strip + _spent(status)


def _spent(status: ServiceStatus) -> str:
    """Where the last page's seconds went, as a bar."""
    total = sum(status.spent.values())
    if not total:
        return ""
    steps = [
        (name.replace("_", " "), part, f"var(--{STEPS[at % len(STEPS)]})")
        for at, (name, part) in enumerate(status.spent.items())
    ]
    bar = "".join(
        f'<i style="flex:{part / total:.4f};background:{colour}" title="{e(name)}"></i>'
        for name, part, colour in steps
    )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{e(name)} <b>{seconds(part)}</b> '
        f"{percent(part / total, 0)}</span>"
        for name, part, colour in steps
    )
    return (
        '<div class="stack tight" style="margin-top:12px"><div class="row apart small muted">'
        f"<span>Where the last page's {seconds(status.batch_seconds)} went</span>"
        f'<span class="legend">{legend}</span></div><div class="spent" aria-hidden="true">{bar}</div></div>'
    )


def _streams(streams: Sequence[StreamStatus]) -> str:
    if not streams:
        return empty("none", "No streams", "The pipeline declares none, so there is nothing to ask about.")
    head = (
        '<th scope="col">Stream</th><th scope="col">Rate, last minutes</th><th scope="col" class="num">'
        "Rows/s</th>"
        '<th scope="col" class="num">Rows</th><th scope="col" class="num">Lag</th>'
        '<th scope="col" class="num">Watermark</th><th scope="col" class="num">Delay</th>'
        '<th scope="col" class="num">Open windows</th><th scope="col" class="num">Late</th>'
        '<th scope="col" class="num">Rejected</th>'
    )
    return (
        f'<div class="scroll"><table class="t"><thead><tr>{head}</tr></thead><tbody>'
        + "".join(map(_stream, streams))
        + "</tbody></table></div>"
        + (
            empty(
                "none", "No rows yet", "The streams are declared, and wait for their first rows.", slim=True
            )
            if not any(stream.rows for stream in streams)
            else ""
        )
    )


def _stream(stream: StreamStatus) -> str:
    delay = seconds(stream.watermark_delay) if stream.is_time else number(stream.watermark_delay)
    about = f"{counted(stream.queries, 'query', 'queries')}, slack {stream.slack}"
    if stream.finished:
        about += ", at its end"
    if stream.aside or stream.shed:
        about += f", {stream.aside:,} rows aside, {stream.shed:,} shed"
    name, mark = e(stream.name), instant(stream.watermark, stream.is_time)  # shown to the second
    return (
        f'<tr data-key="{name}" data-testid="stream-row" data-stream="{name}"><td class="name">{name}'
        f'<div class="small muted" style="font-weight:400;white-space:nowrap">{e(about)}</div></td>'
        f"<td>{sparkline(stream.rates, 140, 28, f'rates of {stream.name}')}</td>"
        f'<td class="num">{compact(stream.rate)}</td><td class="num">{number(stream.rows)}</td>'
        f'<td class="num" title="{_lag(stream)}">{seconds(stream.lag)}</td>'
        f'<td class="num" title="{e(mark)}">{e(mark[:19])}</td><td class="num">{delay}</td>'
        f'<td class="num">{number(stream.open_windows)}</td>'
        f'<td class="num">{_count(stream, "late", stream.late)}</td>'
        f'<td class="num">{_count(stream, "rejected", stream.rejected)}</td></tr>'
    )


def _lag(stream: StreamStatus) -> str:
    if not stream.is_time:
        return "Its time is a number, which no clock tells"
    if stream.high is None:
        return "No row has come"
    return "From the newest row to now" if stream.lag is not None else "A recording: its time is long past"


def _count(stream: StreamStatus, what: str, count: int) -> str:
    if not count:
        return "0"
    address = "/late?" + urlencode({"stream": stream.name, "what": what})
    return f'<a href="{e(address)}">{count:,}</a>'


def _queries(found: Found) -> str:
    if not found.queries:
        text = (
            "A query is SQL with a window. It is answered for every window, for as long as it is registered."
        )
        return empty("queries", "No queries yet", text, WRITE)
    now = time.time_ns() // 1000
    return query_table([query_row(query, found.trends.get(query.name), now) for query in found.queries])
