"""The view of late rows, rejected rows and problems of files, with the reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from transom.api.records import StreamStatus
from transom.dashboard.display_text import esc, format_cell, format_number, format_percent
from transom.dashboard.frame import DashboardView
from transom.dashboard.icons import icon
from transom.dashboard.table_page import (
    RowFilter,
    RowPage,
    count_text,
    matching_rows,
    row_page,
    sorted_places,
)
from transom.dashboard.widgets import Panel, box, empty_state, pager, skeleton, sort_heading, text_field
from transom.server.service import Service

READ_LATE_ROWS = 1_000  # the newest; the download has all
MOST_NAMES = 3  # of queries that missed a row; the tooltip has all
OUTPUT_TEXTS = {
    "late": (
        "Late",
        "No late rows",
        "Every row was in time for every query. A query misses a row when a window of the row has closed.",
    ),
    "rejected": ("Rejected", "No rejected rows", "A row is rejected when it has no usable time."),
    "files": (
        "Files",
        "No problems with files",
        "Every file was read, and all had the columns of the stream.",
    ),
}


@dataclass(frozen=True)
class LateRowsData:
    """The streams, and the late or rejected rows of the selected one."""

    streams: Sequence[StreamStatus]
    stream: str
    what: str
    rows: pa.Table | None


class LateRowsView(DashboardView):
    """Late and rejected rows, stream by stream."""

    section = "late"
    title = "Late and rejected"

    def __init__(self, service: Service, stream: str, what: str):
        super().__init__(service)
        self.stream, self.what = stream, what if what in OUTPUT_TEXTS else "late"
        self.filter = RowFilter()
        self._cached: tuple[tuple[str, str, int], pa.Table] | None = None
        self._shown: LateRowsData | None = None

    def build(self) -> None:
        Panel(
            '<div><h1>Late and rejected</h1><p class="sub">Rows that a query missed, rows without a usable '
            "time, and files with problems, each with its reason.</p></div>",
            classes="head",
        )
        self.streams = Panel(f'<div class="card">{skeleton(2)}</div>', classes="section").on_action(
            self._on_action
        )
        with box("card", data_testid="late-rows"):
            with box("bar"):
                self.heading = Panel("<h2>Rows</h2>")
                text_field(
                    self._on_search,
                    "",
                    0.2,
                    type="search",
                    placeholder="Search rows and reasons",
                    aria_label="Search rows",
                    data_search="",
                    data_testid="search-rows",
                    style="width:220px",
                )
                self.count = Panel("", "span", "small muted", role="status", data_testid="row-count")
                self.download = Panel("", classes="end")
            self.rows = Panel(skeleton(8)).on_action(self._on_table)

    async def _on_action(self, what: str, stream: str) -> None:
        self.what, self.stream, self.filter = what, stream, replace(self.filter, sort="", page=1)
        self.rows.set(skeleton(8))
        await self.frame.refresh()

    def _on_search(self, text: str) -> None:
        self._apply(replace(self.filter, search=text, page=1))

    def _on_table(self, action: str, value: str) -> None:
        self._apply(self.filter.after(action, value))

    def _apply(self, wanted: RowFilter) -> None:
        self.filter = wanted
        if self._shown is not None:
            self._show_rows(self._shown)

    def fetch(self) -> LateRowsData:
        streams = self.service.streams()
        names = [stream.name for stream in streams]
        if self.stream not in names:
            affected = [s.name for s in streams if s.late or s.rejected or _file_problems(s)]
            self.stream = next(iter(affected + names), "")
        selected = next((stream for stream in streams if stream.name == self.stream), None)
        if selected is None:
            return LateRowsData(streams, "", self.what, None)
        return LateRowsData(streams, selected.name, self.what, self._read_rows(selected))

    def _read_rows(self, stream: StreamStatus) -> pa.Table | None:
        """The newest rows; read again only when their number has changed."""
        count = {"late": stream.late, "rejected": stream.rejected, "files": _file_problems(stream)}[self.what]
        version = (stream.name, self.what, count)
        if not count:
            return None
        if self._cached is None or self._cached[0] != version:
            outputs = {
                "late": self.service.late,
                "rejected": self.service.rejected,
                "files": self.service.file_problems,
            }
            self._cached = version, outputs[self.what](stream.name, READ_LATE_ROWS)
        return self._cached[1]

    def show(self, data: LateRowsData) -> None:
        if not data.streams:
            self.streams.set("")
            self.rows.set(empty_state("good", "No streams", "The pipeline declares no streams."))
            return
        self.streams.set(_streams_html(data))
        self._shown = data
        self._show_rows(data)

    def _show_rows(self, data: LateRowsData) -> None:
        self.heading.set(f"<h2>{_output_name(data.what)} of {esc(data.stream)}</h2>")
        if data.rows is None or not data.rows.num_rows:
            _, no_rows, reason = OUTPUT_TEXTS[data.what]
            self.count.set("")
            self.download.set("")
            self.rows.set(empty_state("good", no_rows, reason))
            return
        url = f"/api/streams/{quote(data.stream, safe='')}/{data.what}?format=csv"
        self.download.set(
            f'<a class="b small" href="{esc(url)}" download data-testid="download">{icon("down")}CSV</a>'
        )
        page = _page(data.rows, self.filter)
        self.count.set(count_text(page, "problem" if data.what == "files" else "row", READ_LATE_ROWS))
        if not page.matching:
            self.rows.set(empty_state("lost", "No matches", "No row has all of these words.", slim=True))
            return
        self.rows.set(_rows_html(page.rows, self.filter.sort) + pager(page.page, page.pages))


def _file_problems(stream: StreamStatus) -> int:
    counts = (stream.unreadable_files, stream.missing_columns, stream.new_columns, stream.rewritten_files)
    return sum(counts)


def _streams_html(data: LateRowsData) -> str:
    rows = "".join(_stream_row(stream, data) for stream in data.streams)
    return (
        '<div class="card scroll"><table class="t"><thead><tr><th scope="col">Stream</th>'
        '<th scope="col" class="num">Rows</th><th scope="col" class="num">Late</th>'
        '<th scope="col" class="num">Share late</th><th scope="col" class="num">Rejected</th>'
        '<th scope="col" class="num">File problems</th>'
        '<th scope="col">Slack</th><th scope="col"><span class="sr">Show</span></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _stream_row(stream: StreamStatus, data: LateRowsData) -> str:
    def show_button(what: str) -> str:
        pressed = "true" if (stream.name, what) == (data.stream, data.what) else "false"
        return (
            f'<button type="button" data-act="{what}" data-arg="{esc(stream.name)}" aria-pressed="{pressed}" '
            f'data-testid="show-{what}">{_output_name(what)}</button>'
        )

    share = stream.late / stream.rows if stream.rows else float("nan")
    return (
        f'<tr data-key="{esc(stream.name)}"><td class="name">{esc(stream.name)}</td>'
        f'<td class="num">{format_number(stream.rows)}</td><td class="num">{format_number(stream.late)}</td>'
        f'<td class="num">{format_percent(share, 2)}</td><td class="num">{format_number(stream.rejected)}</td>'
        f'<td class="num">{format_number(_file_problems(stream))}</td><td>{esc(stream.slack)}</td>'
        f'<td class="num"><span class="seg" role="group" aria-label="Rows of {esc(stream.name)}">'
        f"{show_button('late')}{show_button('rejected')}{show_button('files')}</span></td></tr>"
    )


def _output_name(what: str) -> str:
    return OUTPUT_TEXTS[what][0] if what == "files" else f"{OUTPUT_TEXTS[what][0]} rows"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - MOST_NAMES} more" if len(value) > MOST_NAMES else ""
        shown = ", ".join(value[:MOST_NAMES]) + more
        return f'<td class="names" title="{esc(", ".join(value))}">{esc(shown)}</td>'
    kind = "reason" if name.endswith("reason") else "time" if isinstance(value, datetime) else ""
    css = f' class="{kind}"' if kind else ""
    return f"<td{css}>{esc(format_cell(value))}</td>"


def _page(table: pa.Table, wanted: RowFilter) -> RowPage:
    """A page of rows, without a sort key the newest first."""
    matching = matching_rows(table, range(table.num_columns), wanted.search)
    order = sorted_places(matching, wanted.sort)
    if order is None:
        order = pa.array(reversed(range(matching.num_rows)), pa.int64())
    return row_page(table, matching, order, wanted.page)


def _rows_html(table: pa.Table, sort: str) -> str:
    heads = "".join(
        sort_heading(
            "" if pa.types.is_nested(field.type) else str(at), field.name, "", sort, f"sort-{field.name}"
        )
        for at, field in enumerate(table.schema)
    )
    columns = [column.to_pylist() for column in table.columns]
    lines = "".join(
        '<tr data-testid="late-row">' + "".join(map(_cell, table.column_names, row)) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    return f'<div class="scroll"><table class="t"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
