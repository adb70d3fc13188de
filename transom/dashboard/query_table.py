"""The table of queries, and the search, filter, sort and paging of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from transom.api.records import QueryStatus
from transom.dashboard.chart_points import group_label
from transom.dashboard.display_text import NO_VALUE, esc, format_age, format_cell, format_number, short_window
from transom.dashboard.frame import query_link
from transom.dashboard.sparklines import sparkline
from transom.dashboard.widgets import sort_heading, tag
from transom.plan.explain.text_parts import counted
from transom.server.trends import Trend

PAGE_SIZE = 25
QUERY_KINDS = (
    ("", "All"),
    ("standing", "Standing"),
    ("on demand", "On demand"),
    ("rows", "Without a window"),
    ("preference", "With preference"),
    ("suspended", "Suspended"),
    ("paused", "Paused"),
)
COLUMNS = (
    ("name", "Query", ""),
    ("kind", "Kind", ""),
    ("window", "Window", ""),
    ("stream", "Input", ""),
    ("", "Latest value", "num"),
    ("", "Trend", ""),
    ("results", "Results", "num"),
    ("last", "Last result", "num"),
    ("state", "State", ""),
)


@dataclass(frozen=True)
class ListFilter:
    """The user's search, filter, sort and page; a sort key with a minus sorts in descending order."""

    search: str = ""
    kind: str = ""
    sort: str = ""
    page: int = 1


def query_state(query: QueryStatus) -> tuple[str, str, str]:
    """A query's state tag: its text, its style and its tooltip."""
    if query.suspended is not None:
        return "suspended", "warn", query.suspended
    if query.paused:
        return "paused", "", "Takes no part in batches until it is resumed."
    if query.backfill is not None:
        return (
            f"replay {query.backfill:.0%}",
            "",
            "Retained rows are replayed; then it takes part in batches.",
        )
    if query.pending:
        return "waiting", "", "Joins with the next batch."
    if query.emits_early:
        return "early", "early", f"Emits early results: {query.early or 'on demand'}"
    return "", "", ""


SORT_KEYS: dict[str, Callable[[QueryStatus], Any]] = {
    "name": lambda query: query.name.casefold(),
    "kind": lambda query: query.kind,
    "window": lambda query: query.window or "",
    "stream": lambda query: query.streams,
    "results": lambda query: query.results,
    "last": lambda query: query.last or 0,
    "state": lambda query: query_state(query)[0],
}


def filter_queries(queries: Sequence[QueryStatus], wanted: ListFilter) -> list[QueryStatus]:
    """The queries that match a filter, in its sort order."""
    words = wanted.search.casefold().split()
    matching = [query for query in queries if _is_kind(query, wanted.kind) and _contains(query, words)]
    key = SORT_KEYS.get(wanted.sort.removeprefix("-"))
    return matching if key is None else sorted(matching, key=key, reverse=wanted.sort.startswith("-"))


def _is_kind(query: QueryStatus, kind: str) -> bool:
    if kind == "suspended":
        return query.suspended is not None
    if kind == "paused":
        return query.paused
    return not kind or query.kind == kind


def _contains(query: QueryStatus, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = " ".join([query.name, query.sql, query.description, *query.tags]).casefold()
    return all(word in text for word in words)


def paginate(queries: Sequence[QueryStatus], page: int) -> tuple[Sequence[QueryStatus], int, int]:
    """The queries on a page, the page's number (at most the last one's), and the number of pages.

    >>> paginate(["a", "b"], 7)
    (['a', 'b'], 1, 1)
    """
    pages = max(1, math.ceil(len(queries) / PAGE_SIZE))
    page = min(max(1, page), pages)
    return queries[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], page, pages


def query_table(rows: Sequence[str], sort: str | None = None, one_input: bool = False) -> str:
    """A table of queries; with a sort key, even an empty one, its headings are buttons.

    If all queries have one input, the column of inputs is left out on screens that are not wide.
    """
    heads = "".join(sort_heading(key, name, css, sort, f"sort-{key}") for key, name, css in COLUMNS)
    classes = "t queries one-input" if one_input else "t queries"
    return (
        f'<div class="scroll"><table class="{classes}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def query_table_row(query: QueryStatus, trend: Trend | None, now: int) -> str:
    """A query's row in the table."""
    state, style, tooltip = query_state(query)
    name = esc(query.name)
    title = esc(f"{query.name}: {query.description}") if query.description else name
    return (
        f'<tr data-key="{name}" data-testid="query-row" data-name="{name}">'
        f'<td class="name clip" style="width:34%"><a href="{esc(query_link(query.name))}" title="{title}">'
        f"{name}</a>{tag_links(query)}</td>"
        f'<td style="white-space:nowrap">{esc(query.kind)}</td>'
        f'<td title="{esc(query.window or "")}" style="white-space:nowrap">{esc(short_window(query.window))}</td>'
        f"<td>{esc(', '.join(query.streams))}</td>"
        f'<td class="num value" data-testid="latest-value">{latest_value_html(trend)}</td>'
        f'<td class="trend" data-testid="trend">{trend_html(trend)}</td>'
        f'<td class="num">{format_number(query.results)}</td><td class="num muted">{format_age(query.last, now)}</td>'
        f"<td>{tag(state, style, tooltip) if state else ''}</td></tr>"
    )


def latest_value_html(trend: Trend | None) -> str:
    """The newest value with its column; of a query with groups, that of one group, and how many groups there are."""
    if trend is None or not trend.values:
        return NO_VALUE
    value = f'<span class="muted small">{esc(trend.name)}</span> {format_number(trend.values[-1])}'
    if not trend.group:
        return value
    which = "highest" if trend.is_highest else "newest"
    note = f"{which} of {counted(trend.groups, 'group')}" if trend.groups > 1 else "the only group"
    label = esc(group_name(trend))
    return (
        f'<div>{value}</div><div class="small group"><b title="{label}">{label}</b> '
        f'<span class="muted">{esc(note)}</span></div>'
    )


def trend_html(trend: Trend | None) -> str:
    """The newest values as a small chart, and in words what they are values of."""
    if trend is None or not trend.values:
        return sparkline(())
    windows = counted(len(trend.values), "window")
    label = f"{trend.name}{f' of {group_name(trend)}' if trend.group else ''}, last {windows}"
    caption = f"{group_name(trend)}, last {len(trend.values)}" if trend.group else f"last {windows}"
    return (
        f'<div title="{esc(label)}">{sparkline(trend.values, label=label)}'
        f'<div class="small muted">{esc(caption)}</div></div>'
    )


def group_name(trend: Trend) -> str:
    """The group that a trend is of, as charts and tables write it."""
    return group_label(tuple(format_cell(value) for value in trend.group))


def has_one_input(queries: Sequence[QueryStatus]) -> bool:
    """Whether all queries read the same stream or streams."""
    return len({query.streams for query in queries}) <= 1


def tag_links(query: QueryStatus) -> str:
    """A query's tags; each leads to the queries that have it."""
    return "".join(
        f' <a class="tag" data-testid="query-tag" href="/queries?search={quote(each, safe="")}">{esc(each)}</a>'
        for each in query.tags
    )
