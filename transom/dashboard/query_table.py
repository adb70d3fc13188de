"""Queries as rows of a table, and how a long list of them is searched, sorted and paged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transom.api.records import QueryStatus
from transom.dashboard.formatting import NONE, ago, e, number, window
from transom.dashboard.frame import query_link
from transom.dashboard.sparklines import sparkline
from transom.dashboard.widgets import tag
from transom.server.trends import Trend

PAGE = 25  # rows
KINDS = (
    ("", "All"),
    ("standing", "Standing"),
    ("on demand", "On demand"),
    ("preferred", "Preferred"),
    ("suspended", "Suspended"),
)
COLUMNS = (
    ("name", "Query", ""),
    ("kind", "Kind", ""),
    ("window", "Window", ""),
    ("stream", "Reads", ""),
    ("", "Newest value", "num"),
    ("", "Trend", ""),
    ("results", "Results", "num"),
    ("last", "Last", "num"),
    ("state", "State", ""),
)


@dataclass(frozen=True)
class Wanted:
    """What part of the list is wanted; a sort key with a minus is from the greatest down."""

    search: str = ""
    kind: str = ""
    sort: str = ""
    page: int = 1


def state_of(query: QueryStatus) -> tuple[str, str, str]:
    """A query's state: a word, its kind of tag, and why."""
    if query.suspended is not None:
        return "suspended", "warn", query.suspended
    if query.waits:
        return "waiting", "", "It joins with the next page."
    if query.emits_early:
        return "early", "early", f"Tells windows early: {query.early or 'on demand'}"
    return "", "", ""


SORTS: dict[str, Callable[[QueryStatus], Any]] = {
    "name": lambda query: query.name.casefold(),
    "kind": lambda query: query.kind,
    "window": lambda query: query.window or "",
    "stream": lambda query: query.streams,
    "results": lambda query: query.results,
    "last": lambda query: query.last or 0,
    "state": lambda query: state_of(query)[0],
}


def selected(queries: Sequence[QueryStatus], wanted: Wanted) -> list[QueryStatus]:
    """The queries that are wanted, in the order that is."""
    words = wanted.search.casefold().split()
    found = [query for query in queries if _is_kind(query, wanted.kind) and _has(query, words)]
    key = SORTS.get(wanted.sort.removeprefix("-"))
    return found if key is None else sorted(found, key=key, reverse=wanted.sort.startswith("-"))


def _is_kind(query: QueryStatus, kind: str) -> bool:
    if kind == "suspended":
        return query.suspended is not None
    return not kind or query.kind == kind


def _has(query: QueryStatus, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = f"{query.name} {query.sql}".casefold()
    return all(word in text for word in words)


def page_of(found: Sequence[QueryStatus], page: int) -> tuple[Sequence[QueryStatus], int, int]:
    """One page of a list, its number and how many there are.

    >>> page_of(["a", "b"], 7)
    (['a', 'b'], 1, 1)
    """
    pages = max(1, math.ceil(len(found) / PAGE))
    at = min(max(1, page), pages)
    return found[(at - 1) * PAGE : at * PAGE], at, pages


def query_table(rows: Sequence[str], sort: str | None = None) -> str:
    """A table of queries; with a sort, even an empty one, its heads are buttons."""
    heads = "".join(_head(key, name, css, sort) for key, name, css in COLUMNS)
    return (
        f'<div class="scroll"><table class="t"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _head(key: str, name: str, css: str, sort: str | None) -> str:
    if sort is None or not key:
        return f'<th scope="col" class="{css}">{name}</th>'
    sorted_by = sort.removeprefix("-") == key
    down = sort.startswith("-")
    about = f' aria-sort="{"descending" if down else "ascending"}"' if sorted_by else ""
    arrow = f'<span aria-hidden="true">{"↓" if down else "↑"}</span>' if sorted_by else ""
    turned = f"-{key}" if sorted_by and not down else key
    return (
        f'<th scope="col" class="{css}"{about}><button type="button" data-act="sort" data-arg="{turned}" '
        f'data-testid="sort-{key}">{name}{arrow}</button></th>'
    )


def query_row(query: QueryStatus, trend: Trend | None, now: int) -> str:
    """A query as a row."""
    word, kind, why = state_of(query)
    value = number(trend.values[-1]) if trend and trend.values else NONE
    what = f'<span class="muted small">{e(trend.name)}</span> ' if trend and trend.values else ""
    name = e(query.name)
    return (
        f'<tr data-key="{name}" data-testid="query-row" data-name="{name}">'
        f'<td class="name clip" style="width:34%"><a href="{e(query_link(query.name))}" title="{name}">'
        f"{name}</a></td>"
        f"<td>{e(query.kind)}</td>"
        f'<td title="{e(query.window or "")}" style="white-space:nowrap">{e(window(query.window))}</td>'
        f"<td>{e(', '.join(query.streams))}</td>"
        f'<td class="num">{what}{value}</td><td>{sparkline(trend.values if trend else ())}</td>'
        f'<td class="num">{number(query.results)}</td><td class="num muted">{ago(query.last, now)}</td>'
        f"<td>{tag(word, kind, why) if word else ''}</td></tr>"
    )
