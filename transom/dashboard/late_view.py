"""Rows that came too late, and rows that could not be placed: never dropped in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from transom.api.records import StreamStatus
from transom.dashboard.formatting import cell, e, number, percent
from transom.dashboard.frame import View
from transom.dashboard.icons import icon
from transom.dashboard.widgets import Panel, empty, skeleton
from transom.server.service import Service

SHOWN = 50  # rows
WORDS = {
    "late": ("Late", "Every row was in time", "A row is late when all windows that asked for it are closed."),
    "rejected": ("Rejected", "Every row had its time", "A row is rejected when it has no usable time."),
}


@dataclass(frozen=True)
class Found:
    """The streams, and the rows of the one that is looked at."""

    streams: Sequence[StreamStatus]
    stream: str
    what: str
    rows: pa.Table | None


class Late(View):
    """Late and rejected rows, stream by stream."""

    section = "late"
    title = "Late and rejected"

    def __init__(self, service: Service, stream: str, what: str):
        super().__init__(service)
        self.stream, self.what = stream, what if what in WORDS else "late"
        self._read: tuple[tuple[str, str, int], pa.Table] | None = None

    def build(self) -> None:
        Panel(
            '<div><h1>Late and rejected</h1><p class="sub">Rows that no open window could take are kept '
            "here, "
            "each with the reason.</p></div>",
            classes="head",
        )
        self.streams = Panel(f'<div class="card">{skeleton(2)}</div>', classes="section").act(self._act)
        self.rows = Panel(skeleton(8), classes="card", data_testid="late-rows")

    async def _act(self, what: str, stream: str) -> None:
        self.what, self.stream = what, stream
        self.rows.set(skeleton(8))
        await self.frame.look()

    def fetch(self) -> Found:
        streams = self.service.streams()
        names = [stream.name for stream in streams]
        if self.stream not in names:
            counted = [stream.name for stream in streams if stream.late or stream.rejected]
            self.stream = next(iter(counted + names), "")
        at = next((stream for stream in streams if stream.name == self.stream), None)
        if at is None:
            return Found(streams, "", self.what, None)
        return Found(streams, at.name, self.what, self._rows(at))

    def _rows(self, stream: StreamStatus) -> pa.Table | None:
        """The newest rows, read again only when there are more of them."""
        count = stream.late if self.what == "late" else stream.rejected
        asked = (stream.name, self.what, count)
        if not count:
            return None
        if self._read is None or self._read[0] != asked:
            read = self.service.late if self.what == "late" else self.service.rejected
            self._read = asked, read(stream.name, SHOWN)
        return self._read[1]

    def show(self, found: Found) -> None:
        if not found.streams:
            self.streams.set("")
            self.rows.set(empty("good", "No streams", "Nothing can be late where nothing comes."))
            return
        self.streams.set(_streams(found))
        self.rows.set(_rows(found))


def _streams(found: Found) -> str:
    rows = "".join(_stream(stream, found) for stream in found.streams)
    return (
        '<div class="card scroll"><table class="t"><thead><tr><th scope="col">Stream</th>'
        '<th scope="col" class="num">Rows</th><th scope="col" class="num">Late</th>'
        '<th scope="col" class="num">Of all</th><th scope="col" class="num">Rejected</th>'
        '<th scope="col">Slack</th><th scope="col"><span class="sr">Show</span></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _stream(stream: StreamStatus, found: Found) -> str:
    def look(what: str, count: int) -> str:
        pressed = "true" if (stream.name, what) == (found.stream, found.what) else "false"
        return (
            f'<button type="button" data-act="{what}" data-arg="{e(stream.name)}" aria-pressed="{pressed}" '
            f'data-testid="show-{what}">{WORDS[what][0]} rows</button>'
        )

    share = stream.late / stream.rows if stream.rows else float("nan")
    return (
        f'<tr data-key="{e(stream.name)}"><td class="name">{e(stream.name)}</td>'
        f'<td class="num">{number(stream.rows)}</td><td class="num">{number(stream.late)}</td>'
        f'<td class="num">{percent(share, 2)}</td><td class="num">{number(stream.rejected)}</td>'
        f"<td>{e(stream.slack)}</td>"
        f'<td class="num"><span class="seg" role="group" aria-label="Rows of {e(stream.name)}">'
        f"{look('late', stream.late)}{look('rejected', stream.rejected)}</span></td></tr>"
    )


def _cell(name: str, value: Any) -> str:
    kind = "why" if name.endswith("reason") else "when" if isinstance(value, datetime) else ""
    css = f' class="{kind}"' if kind else ""
    return f"<td{css}>{e(cell(value))}</td>"


def _rows(found: Found) -> str:
    word, fine, why = WORDS[found.what]
    if found.rows is None or not found.rows.num_rows:
        return empty("good", fine, why)
    table = found.rows
    address = f"/api/streams/{quote(found.stream, safe='')}/{found.what}?format=csv"
    heads = "".join(f'<th scope="col">{e(name)}</th>' for name in table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    lines = "".join(
        '<tr data-testid="late-row">' + "".join(map(_cell, table.column_names, row)) + "</tr>"
        for row in reversed(list(zip(*columns, strict=True)))
    )
    return (
        f'<div class="bar"><h2>{word} rows of {e(found.stream)}</h2><span class="muted small">the newest '
        "first</span>"
        f'<div class="end"><a class="b small" href="{e(address)}" download data-testid="download">'
        f"{icon('down')}"
        f'CSV</a></div></div><div class="scroll"><table class="t"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )
