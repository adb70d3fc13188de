"""One stream: its rate and lag, what became of its rows, its columns, its input, and what queries missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import pyarrow as pa

from transom.api.records import StreamColumn, StreamColumns, StreamDetail
from transom.dashboard.display_text import (
    NO_VALUE,
    esc,
    format_cell,
    format_count,
    format_event_time,
    format_number,
    format_percent,
    format_seconds,
)
from transom.dashboard.frame import DashboardView, not_found_html, query_link
from transom.dashboard.stream_list import first_query, new_query_link
from transom.dashboard.widgets import Panel, box, empty_state, skeleton, table_html, tag, tile, tiles
from transom.server.batch_history import STEP_SECONDS
from transom.server.service import Service

SAMPLED_ROWS_SHOWN = 12
LISTED_READERS = 20  # in the table of what queries missed
LISTED_CLOCKS = 20
COLUMN_TICKS = 10  # refreshes between two looks at the columns, which are read from a sample
ROW_FATES = (  # what becomes of a row, its name, and its colour
    ("counted", "Counted", "c1"),
    ("unwanted", "Unwanted", "c8"),
    ("late", "Late", "c2"),
    ("rejected", "Rejected", "c4"),
    ("sidelined", "Sidelined", "c7"),
    ("shed", "Shed", "c3"),
)


@dataclass(frozen=True)
class StreamData:
    """What the page of a stream shows."""

    detail: StreamDetail
    columns: StreamColumns
    rows: pa.Table


class StreamView(DashboardView):
    """The page of a stream."""

    section = "streams"

    def __init__(self, service: Service, detail: StreamDetail):
        super().__init__(service)
        self.title, self.detail = detail.name, detail
        self._ticks = 0
        self._columns = StreamColumns(0, ())
        self._rows = pa.table({})

    def build(self) -> None:
        with box("head"):
            Panel(
                f'<p class="crumb"><a href="/streams">Streams</a></p><h1>{esc(self.detail.name)}</h1>'
                f'<p class="sub">{_subtitle(self.detail)}</p>',
                classes="grow",
            )
            with box("actions"):
                Panel(
                    f'<a class="b main" href="{esc(new_query_link(first_query(self.detail)))}" '
                    'data-testid="query-stream">Query this stream</a>'
                )
        self.figures = Panel(tiles([]), classes="section", data_testid="stream-figures")
        with box("two watch section"):
            with box("card", "section", aria_label="Rate"):
                Panel(
                    '<h2>Rows per second</h2><span class="muted small">last five minutes</span>',
                    classes="bar",
                )
                self.rates = Panel(skeleton(3), classes="pad", data_testid="stream-rates")
            with box("card", "section", aria_label="Rows"):
                Panel("<h2>What became of the rows</h2>", classes="bar")
                self.fates = Panel(skeleton(3), classes="pad", data_testid="stream-fates")
        with box("card section", "section", aria_label="Columns"):
            self.columns_head = Panel("<h2>Columns</h2>", classes="bar")
            self.columns = Panel(skeleton(3), data_testid="stream-columns")
        with box("halves section"):
            with box("card", "section", aria_label="Late rows by query"):
                Panel(
                    '<h2>Late rows by query</h2><div class="end">'
                    f'<a href="{esc(_late_link(self.detail.name))}">All late rows</a></div>',
                    classes="bar",
                )
                self.late = Panel(skeleton(3), data_testid="stream-late")
            with box("card", "section", aria_label="Input"):
                Panel("<h2>Input</h2>", classes="bar")
                self.input = Panel(skeleton(3), data_testid="stream-input")
        with box("card section", "section", aria_label="Newest rows"):
            Panel('<h2>Newest rows</h2><span class="muted small">of a sample</span>', classes="bar")
            self.rows = Panel(skeleton(3), data_testid="stream-sample")

    def fetch(self) -> StreamData:
        detail = self.service.stream(self.detail.name)
        if self._ticks % COLUMN_TICKS == 0:
            self._columns = self.service.stream_columns(detail.name)
            self._rows = self.service.sample(detail.name, SAMPLED_ROWS_SHOWN)
        self._ticks += 1
        return StreamData(detail, self._columns, self._rows)

    def show(self, data: StreamData) -> None:
        detail = data.detail
        self.figures.set(_figures_html(detail))
        self.rates.set(rates_html(detail.rates))
        self.fates.set(fates_html(detail))
        sampled = (
            f"statistics of {data.columns.sampled:,} rows"
            if data.columns.sampled
            else "no rows to look at yet"
        )
        self.columns_head.set(f'<h2>Columns</h2><span class="muted small">{sampled}</span>')
        self.columns.set(columns_html(data.columns))
        self.late.set(late_html(detail))
        self.input.set(input_html(detail))
        self.rows.set(_rows_html(data.rows))

    def on_missing(self) -> None:
        self.frame.replace(not_found_html("No such stream", f"The stream {self.detail.name} is gone."))


def _late_link(name: str) -> str:
    return "/late?" + urlencode({"stream": name, "what": "late"})


def _subtitle(detail: StreamDetail) -> str:
    parts = [f"event time <span class='mono'>{esc(detail.time)}</span>", f"slack {esc(detail.slack)}"]
    if detail.horizon is not None:
        parts.append(f"horizon {esc(detail.horizon)}")
    if detail.idle is not None:
        parts.append(f"windows close after {esc(detail.idle)} without rows")
    return ", ".join(parts)


def _figures_html(detail: StreamDetail) -> str:
    delay = (
        format_seconds(detail.watermark_delay) if detail.is_time else format_number(detail.watermark_delay)
    )
    watermark = format_event_time(detail.watermark, detail.is_time)[:19]
    lag = (
        "behind now"
        if detail.lag is not None
        else "a recording"
        if detail.is_time
        else "its time is a number"
    )
    share = detail.late / detail.rows if detail.rows else float("nan")
    return tiles(
        [
            tile("Rows per second", format_count(detail.rate), f"{format_number(detail.rows)} rows in total"),
            tile("Lag", format_seconds(detail.lag), lag),
            tile("Watermark delay", delay, watermark),
            tile(
                "Open windows",
                format_number(detail.open_windows),
                f"of {format_number(detail.queries)} queries",
            ),
            tile("Late rows", format_number(detail.late), f"{format_percent(share, 2)} of all rows"),
            *([] if detail.slack_target is None else [_slack_tile(detail)]),
            tile("Rejected rows", format_number(detail.rejected), "no usable time"),
        ]
    )


def _slack_tile(detail: StreamDetail) -> str:
    """The learned slack, and the share of rows that were in time."""
    slack = format_seconds(detail.slack_now) if detail.is_time else format_number(detail.slack_now)
    reached = (
        "no rows yet"
        if detail.in_time is None
        else f"{format_percent(detail.in_time, 3)} of the rows in time"
    )
    return tile("Learned slack", slack, f"{reached}, target {format_percent(detail.slack_target, 3)}")


def rates_html(rates: Sequence[float], width: int = 560, height: int = 150) -> str:
    """An area chart of rates with its scale, as SVG."""
    if not rates:
        return '<p class="muted">The first rates appear after a few seconds.</p>'
    most = max(*rates, 1.0)
    step = width / max(1, len(rates) - 1)
    points = [(at * step, height - 1 - (height - 16) * rate / most) for at, rate in enumerate(rates)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    minutes = len(rates) * STEP_SECONDS
    label = f"rows per second, from {format_count(rates[0])} to {format_count(rates[-1])}, at most {format_count(most)}"
    return (
        f'<svg class="rates" role="img" aria-label="{esc(label)}" viewBox="0 0 {width} {height}" '
        f'preserveAspectRatio="none"><path class="top" d="M0 15H{width}"/>'
        f'<polygon points="0,{height} {line} {points[-1][0]:.1f},{height}"/>'
        f'<polyline points="{line}"/></svg><div class="row apart small muted">'
        f"<span>{format_seconds(minutes)} ago</span>"
        f"<span>at most {format_count(most)} rows per second</span><span>now</span></div>"
    )


def fates_html(detail: StreamDetail) -> str:
    """A bar that divides the rows by what became of them; its parts add up to all rows."""
    counts = [(name, getattr(detail, field), colour) for field, name, colour in ROW_FATES]
    total = sum(count for _, count, _ in counts)
    if not total:
        return '<p class="muted">No rows yet.</p>'
    bar = "".join(
        f'<i style="flex:{count / total:.5f};background:var(--{colour})"></i>'
        for _, count, colour in counts
        if count
    )
    rows = "".join(
        f'<dt><i style="background:var(--{colour})"></i>{name}</dt><dd>{format_number(count)}</dd>'
        f'<dd class="muted">{format_percent(count / total, 2)}</dd>'
        for name, count, colour in counts
        if count or name in ("Counted", "Late", "Rejected")
    )
    return f'<div class="spent tall" aria-hidden="true">{bar}</div><dl class="fates">{rows}</dl>'


def columns_html(columns: StreamColumns) -> str:
    """The columns with what their values are like."""
    rows = "".join(_column_row(column, columns.sampled) for column in columns.columns)
    return table_html(["Name", "Type", "#Nulls", "#Distinct", "Range", "Most frequent"], rows)


def _column_row(column: StreamColumn, sampled: int) -> str:
    nulls = NO_VALUE if column.nulls is None or not sampled else format_percent(column.nulls / sampled, 1)
    spans = NO_VALUE
    if column.least is not None and column.greatest is not None:
        spans = f"{esc(_value(column.least))} <span class='muted'>to</span> {esc(_value(column.greatest))}"
    distinct = NO_VALUE if column.distinct is None else format_number(column.distinct)
    common = ", ".join(_value(value) for value in column.common) or NO_VALUE
    time = " " + tag("event time") if column.is_time else ""
    return (
        f'<tr data-testid="column-row"><td class="name mono">{esc(column.name)}{time}</td>'
        f'<td class="mono muted">{esc(column.type)}</td><td class="num">{nulls}</td><td class="num">{distinct}</td>'
        f"<td>{spans}</td><td>{esc(common)}</td></tr>"
    )


def _value(text: str) -> str:
    """A value of a sample; a time without its zone and its fraction."""
    is_time = len(text) > 19 and text[4:5] == "-" and text[10:11] == "T"
    return text[:19].replace("T", " ") if is_time else text


def late_html(detail: StreamDetail) -> str:
    """The queries that read the stream, with the rows that each missed."""
    if not detail.late_by_query:
        return empty_state("queries", "No queries", "No query reads this stream.", slim=True)
    missed = [each for each in detail.late_by_query if each.late]
    if not missed:
        count = len(detail.late_by_query)
        text = f"Every row was in time for {'the query' if count == 1 else f'all {count:,} queries'} of this stream."
        return empty_state("good", "No late rows", text, slim=True)
    rows = "".join(
        f'<tr data-testid="late-query"><td class="name clip"><a href="{esc(query_link(each.query))}">{esc(each.query)}'
        f'</a></td><td class="num">{format_number(each.late)}</td>'
        f'<td class="num">{format_percent(each.late / each.rows if each.rows else None, 2)}</td></tr>'
        for each in missed[:LISTED_READERS]
    )
    rest = len(detail.late_by_query) - len(missed)
    notes = []
    if len(missed) > LISTED_READERS:
        notes.append(f"{len(missed) - LISTED_READERS:,} more queries missed rows")
    if rest:
        notes.append(f"{rest:,} {'query' if rest == 1 else 'queries'} missed none")
    note = f'<p class="small muted pad" style="padding-top:8px">{"; ".join(notes)}</p>' if notes else ""
    return table_html(["Query", "#Missed", "#Share"], rows) + note


def input_html(detail: StreamDetail) -> str:
    """Where the rows come from, and how far they were read."""
    facts = [("Source", esc(detail.source) + (" (ended)" if detail.finished else ""))]
    if detail.files_read is not None:
        facts.append(("Files read", format_number(detail.files_read)))
    if detail.files_waiting is not None:
        facts.append(("Files waiting", format_number(detail.files_waiting)))
    if detail.rows_waiting is not None:
        facts.append(("Rows waiting", format_number(detail.rows_waiting)))
    facts.append(("Newest row", esc(format_event_time(detail.high, detail.is_time)[:19])))
    problems = detail.unreadable_files + detail.missing_columns + detail.new_columns + detail.rewritten_files
    if detail.files_read is not None:
        link = "/late?" + urlencode({"stream": detail.name, "what": "files"})
        facts.append(("File problems", f'<a href="{esc(link)}">{problems:,}</a>' if problems else "0"))
    html = f'<dl class="facts">{"".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)}</dl>'
    return html + _partitions_html(detail) + _clocks_html(detail)


def _partitions_html(detail: StreamDetail) -> str:
    if not detail.partitions:
        if detail.source != "Spark stream":
            return '<p class="small muted pad" style="padding-top:0">This source has no partitions.</p>'
        return '<p class="small muted pad" style="padding-top:0">Spark has not reported partitions yet.</p>'
    rows = "".join(
        f'<tr data-testid="partition-row"><td class="name">{esc(each.name)}</td>'
        f'<td class="num">{format_number(each.offset)}</td><td class="num">{format_number(each.latest)}</td>'
        f'<td class="num">{_behind(each.offset, each.latest)}</td></tr>'
        for each in detail.partitions
    )
    return table_html(["Partition", "#Read to", "#Newest", "#Behind"], rows)


def _clocks_html(detail: StreamDetail) -> str:
    """The partitions or groups with a clock of their own, the slowest first."""
    if not detail.slowest:
        return ""
    rows = "".join(
        f'<tr data-testid="clock-row"><td class="name">{esc("others" if each.name is None else each.name)}</td>'
        f'<td class="num">{esc(format_event_time(each.closed, detail.is_time)[:19])}</td>'
        f'<td class="num">{format_seconds(each.slack) if detail.is_time else format_number(each.slack)}</td>'
        f'<td class="num">{format_percent(each.in_time, 3)}</td><td>{"live" if each.is_live else "idle"}</td></tr>'
        for each in detail.slowest[:LISTED_CLOCKS]
    )
    head = esc(detail.watermark_by or "Partition")
    return table_html([head, "#Watermark", "#Slack", "#In time", "State"], rows)


def _behind(offset: int | None, latest: int | None) -> str:
    return NO_VALUE if offset is None or latest is None else format_number(max(0, latest - offset))


def _rows_html(rows: pa.Table) -> str:
    if not rows.num_rows:
        return empty_state(
            "none", "No rows at hand", "Rows appear here when a batch has read some.", slim=True
        )
    lines = "".join(
        f"<tr>{''.join(f'<td>{esc(_value(format_cell(value)))}</td>' for value in row.values())}</tr>"
        for row in reversed(rows.to_pylist())
    )
    return table_html([f" {name}" for name in rows.column_names], lines)
