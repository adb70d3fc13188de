"""The list of all queries: searched, sorted, a page at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from nicegui import ui

from transom.api.records import QueryStatus
from transom.dashboard.frame import View
from transom.dashboard.overview import WRITE
from transom.dashboard.query_table import KINDS, Wanted, page_of, query_row, query_table, selected
from transom.dashboard.widgets import Panel, box, empty, entry, segments, skeleton
from transom.plan.explain.words import counted
from transom.server.service import Service
from transom.server.trends import Trend


@dataclass(frozen=True)
class Found:
    """The part of the list that is shown; trends of that part alone."""

    total: int
    matching: int
    shown: Sequence[QueryStatus]
    trends: dict[str, Trend | None]
    page: int
    pages: int


class Queries(View):
    """All queries."""

    section = "queries"
    title = "Queries"

    def __init__(self, service: Service, search: str, kind: str, sort: str, page: int):
        super().__init__(service)
        self.wanted = Wanted(search, kind, sort, page)

    def build(self) -> None:
        Panel(
            '<div><h1>Queries</h1></div><div class="actions">'
            '<a class="b main" href="/new" data-testid="new-query">New query</a></div>',
            classes="head",
        )
        with box("card"):
            with box("bar"):
                entry(
                    self._search,
                    self.wanted.search,
                    0.25,
                    type="search",
                    placeholder="Search names and SQL  ( / )",
                    aria_label="Search queries",
                    data_search="",
                    data_testid="search",
                    style="width:280px",
                )
                self.kinds = Panel(segments("kind", KINDS, self.wanted.kind)).act(self._act)
                self.count = Panel("", classes="end muted small", role="status")
            self.table = Panel(skeleton(12), data_testid="queries").act(self._act)

    async def _search(self, text: str) -> None:
        await self._want(replace(self.wanted, search=text, page=1))

    async def _act(self, what: str, value: str) -> None:
        if what == "kind":
            await self._want(replace(self.wanted, kind=value, page=1))
        elif what == "sort":
            await self._want(replace(self.wanted, sort=value))
        elif what == "page":
            await self._want(replace(self.wanted, page=int(value)))

    async def _want(self, wanted: Wanted) -> None:
        self.wanted = wanted
        asked = {key: value for key, value in vars(wanted).items() if value not in ("", 1)}
        address = "/queries" + (f"?{urlencode(asked)}" if asked else "")
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(address)})")
        self.kinds.set(segments("kind", KINDS, wanted.kind))
        await self.frame.look()

    def fetch(self) -> Found:
        wanted = self.wanted
        known = self.service.queries()
        matching = selected(known, wanted)
        shown, page, pages = page_of(matching, wanted.page)
        trends = {query.name: self.service.trend(query.name) for query in shown}
        return Found(len(known), len(matching), shown, trends, page, pages)

    def show(self, found: Found) -> None:
        of = f" of {found.total:,}" if found.matching != found.total else ""
        self.count.set(f"{found.matching:,}{of}" if of else counted(found.total, "query", "queries"))
        if not found.total:
            text = "Nobody asks anything of the streams. A query is SQL with a window."
            self.table.set(empty("queries", "No queries yet", text, WRITE))
        elif not found.matching:
            self.table.set(
                empty("lost", "Nothing matches", "No query has all of these words in its name or SQL.")
            )
        else:
            now = time.time_ns() // 1000
            rows = [query_row(query, found.trends[query.name], now) for query in found.shown]
            self.table.set(query_table(rows, self.wanted.sort) + _pager(found.page, found.pages))


def _pager(page: int, pages: int) -> str:
    if pages == 1:
        return ""

    def turn(to: int, text: str) -> str:
        off = " disabled" if not 1 <= to <= pages else ""
        return (
            f'<button type="button" class="b small" data-act="page" data-arg="{to}" '
            f'data-testid="page-{text.casefold()}"{off}>{text}</button>'
        )

    return (
        '<div class="row apart pad" style="padding:8px 16px;border-top:1px solid var(--line)">'
        f'<span class="small muted">Page {page} of {pages}</span>'
        f'<span class="row tight">{turn(page - 1, "Previous")}{turn(page + 1, "Next")}</span></div>'
    )
