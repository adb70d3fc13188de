"""The list of everything that a query can read: streams, static tables and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from transom.api.records import StreamStatus, TableStatus, ViewStatus
from transom.dashboard.display_text import esc, format_count, format_number, format_seconds
from transom.dashboard.frame import DashboardView, query_link, stream_link
from transom.dashboard.sparklines import sparkline
from transom.dashboard.widgets import Panel, box, empty_state, skeleton, table_html
from transom.sql.editor.scanned_text import quote_identifier

MOST_READERS = 5  # queries that a view's row names
VIEWS_TICKS = 5  # refreshes between two looks at tables and views, which take longer


@dataclass(frozen=True)
class StreamListData:
    """What the list shows."""

    streams: Sequence[StreamStatus]
    tables: Sequence[TableStatus]
    views: Sequence[ViewStatus]


class StreamListView(DashboardView):
    """Streams, static tables and views, with their columns."""

    section = "streams"
    title = "Streams"
    _ticks = 0
    _others: tuple[Sequence[TableStatus], Sequence[ViewStatus]] = ((), ())

    def build(self) -> None:
        Panel(
            '<div><h1>Streams</h1><p class="sub">All that a query can read: streams, static tables to join them '
            "with, and views.</p></div>",
            classes="head",
        )
        for name, title in (("streams", "Streams"), ("tables", "Static tables"), ("views", "Views")):
            with box("card section", "section", aria_label=title):
                Panel(f"<h2>{title}</h2>", classes="bar")
                setattr(self, f"{name}_panel", Panel(skeleton(2), data_testid=f"{name}-list"))

    def fetch(self) -> StreamListData:
        if self._ticks % VIEWS_TICKS == 0:
            self._others = self.service.tables(), self.service.views()
        self._ticks += 1
        return StreamListData(self.service.streams(), *self._others)

    def show(self, data: StreamListData) -> None:
        panels: dict[str, Panel] = {
            name: getattr(self, f"{name}_panel") for name in ("streams", "tables", "views")
        }
        panels["streams"].set(streams_html(data.streams))
        panels["tables"].set(tables_html(data.tables))
        panels["views"].set(views_html(data.views))


def streams_html(streams: Sequence[StreamStatus]) -> str:
    """A table of streams, each a link to its own page."""
    if not streams:
        return empty_state("none", "No streams", "The pipeline declares no streams.", slim=True)
    rows = "".join(
        f'<tr data-key="{esc(each.name)}" data-testid="stream-row"><td class="name">'
        f'<a href="{esc(stream_link(each.name))}">{esc(each.name)}</a></td>'
        f'<td class="num">{format_count(each.rate)}</td><td class="wide-only">'
        f"{sparkline(each.rates, 120, 24, f'rate of {each.name}')}</td>"
        f'<td class="num">{format_number(each.rows)}</td><td class="num">{format_seconds(each.lag)}</td>'
        f'<td class="num">{format_number(each.queries)}</td><td class="num">{format_number(each.late)}</td>'
        f"<td>{columns_text(each.columns, each.time)}</td></tr>"
        for each in streams
    )
    return table_html(
        ["Name", "#Rows/s", ">Last minutes", "#Rows", "#Lag", "#Queries", "#Late", "Columns"], rows
    )


def tables_html(tables: Sequence[TableStatus]) -> str:
    """A table of static tables with their columns."""
    if not tables:
        text = "A program declares one with engine.table, a pipeline under tables."
        return empty_state("none", "No static tables", text, slim=True)
    rows = "".join(
        f'<tr data-key="{esc(each.name)}" data-testid="table-row"><td class="name">{esc(each.name)}</td>'
        f"<td>{columns_text(each.columns)}</td></tr>"
        for each in tables
    )
    return table_html(["Name", "Columns"], rows)


def views_html(views: Sequence[ViewStatus]) -> str:
    """A table of views: their text, their columns and their readers."""
    if not views:
        text = (
            "A view is a SELECT with a name, which queries read like a stream: CREATE VIEW name AS SELECT ..."
        )
        return empty_state("none", "No views", text, slim=True)
    rows = "".join(
        f'<tr data-key="{esc(each.name)}" data-testid="view-row"><td class="name">{esc(each.name)}</td>'
        f'<td><code class="cond">{esc(each.text)}</code></td><td>{columns_text(each.columns)}</td>'
        f"<td>{_readers(each.readers)}</td></tr>"
        for each in views
    )
    return table_html(["Name", "Text", "Columns", "Read by"], rows)


def _readers(names: Sequence[str]) -> str:
    links = ", ".join(f'<a href="{esc(query_link(name))}">{esc(name)}</a>' for name in names[:MOST_READERS])
    more = f" and {len(names) - MOST_READERS} more" if len(names) > MOST_READERS else ""
    return f"{links}{more}" if names else '<span class="muted">no query</span>'


def columns_text(columns: Mapping[str, str], time: str | None = None) -> str:
    """Columns with their types, as HTML."""
    return ", ".join(
        f'<span class="mono">{esc(name)}</span> <span class="muted small">{esc(kind)}'
        f"{', time' if name == time else ''}</span>"
        for name, kind in columns.items()
    )


def new_query_link(sql: str) -> str:
    """The URL of the editor with a text."""
    return f"/new?{urlencode({'sql': sql})}"


def first_query(stream: StreamStatus) -> str:
    """A query over a stream to begin with."""
    window = "[RANGE 10 minutes SLIDE 1 minute]" if stream.is_time else "[RANGE 100 SLIDE 10]"
    return f"SELECT count(*) AS n\nFROM {quote_identifier(stream.name)} {window}"
