"""The newest results of a query as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.api.records import ColumnInfo
from transom.dashboard.chart_points import Layout, layout_of, plain_values
from transom.dashboard.formatting import NONE, about, cell, clock, e, instant, number, percent, seconds
from transom.dashboard.sparklines import interval_bar
from transom.dashboard.widgets import empty, tag

SHOWN = 40  # rows
_MAKING = ("page", "made", "latency")


def result_table(
    table: pa.Table, columns: Sequence[ColumnInfo], none: str, testid: str = "result-row", brief: bool = False
) -> str:
    """The newest results first, early ones marked; `none` is said where there are none.

    In brief: without when and after which page each was made.
    """
    if not table.num_rows:
        return empty("none", "No results yet", none, slim=True)
    layout = layout_of(columns)
    if brief:
        layout = replace(
            layout, system={name: at for name, at in layout.system.items() if name not in _MAKING}
        )
    newest = table.slice(max(0, table.num_rows - SHOWN))
    is_time = bool(layout.window) and pa.types.is_timestamp(table.schema.types[layout.window[0]])
    values = [
        plain_values(column) if at in (*layout.window, layout.system.get("made")) else column.to_pylist()
        for at, column in enumerate(newest.columns)
    ]
    spans = {} if "kind" in layout.system else _spans(values, layout)
    rows = [
        _row([column[at] for column in values], layout, is_time, testid, spans)
        for at in range(newest.num_rows)
    ]
    if "kind" in layout.system or not layout.window:  # else it is the answer to a lookup, all of one moment
        rows.reverse()
    return (
        f'<div class="scroll"><table class="t"><thead><tr>{_heads(layout)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _heads(layout: Layout) -> str:
    names = [("Result", "")] if "kind" in layout.system else []
    names += [("Window", "")] if layout.window else []
    names += [(layout.names[at], "") for at in layout.keys]
    for at in layout.values:
        names.append((layout.names[at], "num" if at in layout.numeric else ""))
        if "low" in layout.estimates[at]:
            names.append(("Projected" if "projected" in layout.estimates[at] else "Interval", "num"))
    names += [(name.capitalize(), "num") for name in _told(layout)]
    return "".join(f'<th scope="col" class="{css}">{e(name)}</th>' for name, css in names)


def _told(layout: Layout) -> list[str]:
    known = ("rows", "share", "skipped", "page", "made", "latency")
    return [name for name in known if name in layout.system]


def _spans(values: Sequence[Sequence[Any]], layout: Layout) -> dict[int, tuple[float, float]]:
    """From where to where intervals reach, by value."""
    found = {}
    for at, sides in layout.estimates.items():
        ends = [
            end for side in sides.values() for end in values[side] if end is not None and abs(end) < 1e300
        ]
        if ends:
            found[at] = min(ends), max(ends)
    return found


def _row(
    row: Sequence[Any], layout: Layout, is_time: bool, testid: str, spans: Mapping[int, tuple[float, float]]
) -> str:
    kind = row[layout.system["kind"]] if "kind" in layout.system else "answer"
    complete = bool(row[layout.system["complete"]]) if "complete" in layout.system else True
    cells = []
    lacking = "" if complete else " " + tag("not complete", "warn", "Not all rows of the window were seen.")
    if "kind" in layout.system:
        cells.append(f"<td>{tag(kind, kind)}{lacking}</td>")
    if layout.window:
        start, end = (row[at] for at in layout.window[:2])
        other = "" if "kind" in layout.system else lacking
        cells.append(f'<td style="white-space:nowrap">{e(window_text(start, end, is_time))}{other}</td>')
    cells += [f"<td>{e(cell(row[at]))}</td>" for at in layout.keys]
    for at in layout.values:
        css = ' class="num"' if at in layout.numeric else ""
        cells.append(f"<td{css}>{e((about if kind == 'early' else cell)(row[at]))}</td>")
        if "low" in (sides := layout.estimates[at]):
            cells.append(f'<td class="num">{_estimate(row, sides)}{_bar(row, at, sides, spans)}</td>')
    told: Mapping[str, Callable[[Any], str]] = {
        "rows": number,
        "share": percent,
        "skipped": number,
        "page": number,
        "made": clock,
        "latency": seconds,
    }
    cells += [
        f'<td class="num muted">{e(told[name](row[layout.system[name]]))}</td>' for name in _told(layout)
    ]
    key = "|".join(str(row[at]) for at in (*layout.window, *layout.keys, *layout.system.values()))
    return f'<tr data-testid="{testid}" data-kind="{e(kind)}" data-key="{e(key)}">{"".join(cells)}</tr>'


def _bar(
    row: Sequence[Any], at: int, sides: Mapping[str, int], spans: Mapping[int, tuple[float, float]]
) -> str:
    low, high = row[sides["low"]], row[sides["high"]]
    if at not in spans or low is None or high is None or low == high:
        return ""
    return interval_bar(low, high, row[at], *spans[at])


def _estimate(row: Sequence[Any], sides: Mapping[str, int]) -> str:
    low, high = row[sides["low"]], row[sides["high"]]
    projected = row[sides["projected"]] if "projected" in sides else None
    middle = "" if projected is None else e(about(projected))
    if low is None or high is None:
        return middle or f'<span class="muted">{NONE}</span>'
    if low == high and "projected" not in sides:
        return '<span class="muted small">exact</span>'
    return f'{middle} <span class="muted small">{e(about(low))} to {e(about(high))}</span>'


def window_text(start: int, end: int, is_time: bool) -> str:
    """A window, without saying its day twice.

    >>> window_text(0, 60_000_000, True), window_text(0, 1200, False)
    ('1970-01-01 00:00:00 – 00:01:00', '0 – 1,200')
    """
    first, last = (instant(one, is_time).removesuffix(".000001") for one in (start, end))
    same = is_time and first[:10] == last[:10]
    return f"{first} – {last[11:] if same else last}"


def refresh_note(table: pa.Table, columns: Sequence[ColumnInfo]) -> str:
    """What a prod told, in a line: when, after which page, of how many windows."""
    layout = layout_of(columns)
    if not table.num_rows:
        return "No open window holds rows."
    made, page = (
        plain_values(table.column(layout.system[name]))[-1] if name in layout.system else None
        for name in ("made", "page")
    )
    windows = len(set(plain_values(table.column(layout.window[1])))) if len(layout.window) > 1 else 0
    return f"as of {clock(made)}, page {number(page)}, {windows} open window{'' if windows == 1 else 's'}"
