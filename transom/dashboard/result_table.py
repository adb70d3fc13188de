"""The table of a query's newest results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.api.records import ColumnInfo
from transom.dashboard.chart_points import ResultColumns, python_values, result_columns
from transom.dashboard.display_text import (
    NO_VALUE,
    esc,
    format_cell,
    format_clock,
    format_estimate,
    format_number,
    format_percent,
    format_seconds,
    window_label,
)
from transom.dashboard.sparklines import interval_bar
from transom.dashboard.widgets import empty_state, sort_heading, tag
from transom.plan.explain.text_parts import counted

SHOWN_RESULTS = 40
_ORIGIN = ("batch", "made", "latency")  # system columns that a brief table omits
_SYSTEM_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "revision": format_number,
    "rows": format_number,
    "late": format_number,
    "share": format_percent,
    "skipped": format_number,
    "batch": format_number,
    "made": format_clock,
    "latency": format_seconds,
}


def result_table(
    table: pa.Table,
    columns: Sequence[ColumnInfo],
    no_results: str,
    testid: str = "result-row",
    brief: bool = False,
) -> str:
    """The newest results first; `no_results` is the text of an empty table.

    A brief table omits the batch, the time and the latency of each result.
    """
    if not table.num_rows:
        return empty_state("none", "No results yet", no_results, slim=True)
    roles = result_columns(columns)
    if brief:
        roles = replace(roles, system={name: at for name, at in roles.system.items() if name not in _ORIGIN})
    newest = table.slice(max(0, table.num_rows - SHOWN_RESULTS))
    if "kind" in roles.system or not roles.window:  # the rows of a lookup keep their order
        newest = newest.take(pa.array(range(newest.num_rows - 1, -1, -1), pa.int64()))
    return rows_html(newest, roles, testid)


def rows_html(table: pa.Table, roles: ResultColumns, testid: str, sort: str | None = None) -> str:
    """All rows of a table in their order; with a sort key, even an empty one, its headings are buttons.

    The sort key is the number of a column; a minus sorts in descending order.
    """
    is_time = bool(roles.window) and pa.types.is_timestamp(table.schema.types[roles.window[0]])
    values = [
        python_values(column) if at in (*roles.window, roles.system.get("made")) else column.to_pylist()
        for at, column in enumerate(table.columns)
    ]
    spans = {} if "kind" in roles.system else _interval_spans(values, roles)
    rows = [
        _row([column[at] for column in values], roles, is_time, testid, spans) for at in range(table.num_rows)
    ]
    return (
        f'<div class="scroll"><table class="t"><thead><tr>{_headings(roles, sort, table.schema)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _headings(roles: ResultColumns, sort: str | None, schema: pa.Schema) -> str:
    names: list[tuple[int, str, str]] = []  # the column that a heading sorts by, name, style
    if "kind" in roles.system:
        names.append((roles.system["kind"], "Result", ""))
    if roles.window:
        names.append((roles.window[-1], "Window", "when"))
    names += [(at, roles.names[at], "") for at in roles.keys]
    for at in roles.values:
        names.append((at, roles.names[at], "num" if at in roles.numeric else ""))
        if "low" in (sides := roles.estimates[at]):
            is_projected = "projected" in sides
            column = sides["projected"] if is_projected else sides["low"]
            names.append((column, "Projected" if is_projected else "Interval", "num"))
    names += [(roles.system[name], name.capitalize(), "num system") for name in _shown_system_columns(roles)]
    return "".join(
        sort_heading("" if pa.types.is_nested(schema.types[at]) else str(at), name, css, sort, f"sort-{name}")
        for at, name, css in names
    )


def _shown_system_columns(roles: ResultColumns) -> list[str]:
    return [name for name in _SYSTEM_FORMATS if name in roles.system]


def _interval_spans(values: Sequence[Sequence[Any]], roles: ResultColumns) -> dict[int, tuple[float, float]]:
    """For each value column, the least and the greatest bound of its intervals."""
    spans = {}
    for at, sides in roles.estimates.items():
        bounds = [
            bound
            for side in sides.values()
            for bound in values[side]
            if bound is not None and abs(bound) < 1e300
        ]
        if bounds:
            spans[at] = min(bounds), max(bounds)
    return spans


def _row(
    row: Sequence[Any],
    roles: ResultColumns,
    is_time: bool,
    testid: str,
    spans: Mapping[int, tuple[float, float]],
) -> str:
    has_kind = "kind" in roles.system
    kind = row[roles.system["kind"]] if has_kind else "answer"
    complete = bool(row[roles.system["complete"]]) if "complete" in roles.system else True
    incomplete = "" if complete else " " + tag("incomplete", "warn", "Some rows of the window are missing.")
    cells = []
    if has_kind:
        cells.append(f"<td>{tag(kind, kind)}{incomplete}</td>")
    if roles.window:
        start, end = (row[at] for at in roles.window[:2])
        note = "" if has_kind else incomplete
        cells.append(f'<td class="when">{esc(window_label(start, end, is_time))}{note}</td>')
    cells += [f"<td>{esc(format_cell(row[at]))}</td>" for at in roles.keys]
    format_value = format_estimate if kind == "early" else format_cell
    for at in roles.values:
        css = ' class="num"' if at in roles.numeric else ""
        cells.append(f"<td{css}>{esc(format_value(row[at]))}</td>")
        if "low" in (sides := roles.estimates[at]):
            cells.append(f'<td class="num">{_estimate(row, sides)}{_interval(row, at, sides, spans)}</td>')
    cells += [
        f'<td class="num muted system">{esc(_SYSTEM_FORMATS[name](row[roles.system[name]]))}</td>'
        for name in _shown_system_columns(roles)
    ]
    key = "|".join(str(row[at]) for at in (*roles.window, *roles.keys, *roles.system.values()))
    return f'<tr data-testid="{testid}" data-kind="{esc(kind)}" data-key="{esc(key)}">{"".join(cells)}</tr>'


def _interval(
    row: Sequence[Any], at: int, sides: Mapping[str, int], spans: Mapping[int, tuple[float, float]]
) -> str:
    low, high = row[sides["low"]], row[sides["high"]]
    if at not in spans or low is None or high is None or low == high:
        return ""
    return interval_bar(low, high, row[at], *spans[at])


def _estimate(row: Sequence[Any], sides: Mapping[str, int]) -> str:
    low, high = row[sides["low"]], row[sides["high"]]
    projected = row[sides["projected"]] if "projected" in sides else None
    middle = "" if projected is None else esc(format_estimate(projected))
    if low is None or high is None:
        return middle or f'<span class="muted">{NO_VALUE}</span>'
    if low == high and "projected" not in sides:
        return '<span class="muted small">exact</span>'
    bounds = f"{esc(format_estimate(low))} to {esc(format_estimate(high))}"
    return f'{middle} <span class="muted small">{bounds}</span>'


def refresh_note(table: pa.Table, columns: Sequence[ColumnInfo]) -> str:
    """A line about the early results of a prod: their time, their batch and the number of windows."""
    roles = result_columns(columns)
    if not table.num_rows:
        return "No open windows with rows."
    made, batch = (
        python_values(table.column(roles.system[name]))[-1] if name in roles.system else None
        for name in ("made", "batch")
    )
    windows = len(set(python_values(table.column(roles.window[1])))) if len(roles.window) > 1 else 0
    return f"as of {format_clock(made)}, batch {format_number(batch)}, {counted(windows, 'open window')}"
