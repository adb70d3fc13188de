"""The list of all queries, with search, filter, sort and paging."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from nicegui import ui

from transom.api.records import QueryStatus
from transom.dashboard.frame import DashboardView
from transom.dashboard.overview import FIRST_QUERY_LINK
from transom.dashboard.query_table import (
    QUERY_KINDS,
    ListFilter,
    filter_queries,
    has_one_input,
    paginate,
    query_table,
    query_table_row,
)
from transom.dashboard.widgets import Panel, box, empty_state, pager, segments, skeleton, text_field
from transom.plan.explain.text_parts import counted
from transom.server.service import Service
from transom.server.trends import Trend


@dataclass(frozen=True)
class QueryListData:
    """One page of the list, with trends for the queries on it."""

    total: int
    matching: int
    shown: Sequence[QueryStatus]
    trends: dict[str, Trend | None]
    page: int
    pages: int


class QueryListView(DashboardView):
    """All queries, a page at a time."""

    section = "queries"
    title = "Queries"

    def __init__(self, service: Service, search: str, kind: str, sort: str, page: int):
        super().__init__(service)
        self.filter = ListFilter(search, kind, sort, page)

    def build(self) -> None:
        Panel(
            '<div><h1>Queries</h1></div><div class="actions">'
            '<a class="b main" href="/new" data-testid="new-query">New query</a></div>',
            classes="head",
        )
        with box("card"):
            with box("bar"):
                text_field(
                    self._search,
                    self.filter.search,
                    0.25,
                    type="search",
                    placeholder="Search names and SQL  ( / )",
                    aria_label="Search queries",
                    data_search="",
                    data_testid="search",
                    style="width:280px",
                )
                self.kinds = Panel(segments("kind", QUERY_KINDS, self.filter.kind)).on_action(self._on_action)
                self.count = Panel("", classes="end muted small", role="status")
            self.table = Panel(skeleton(12), data_testid="queries").on_action(self._on_action)

    async def _search(self, text: str) -> None:
        await self._apply(replace(self.filter, search=text, page=1))

    async def _on_action(self, action: str, value: str) -> None:
        if action == "kind":
            await self._apply(replace(self.filter, kind=value, page=1))
        elif action == "sort":
            await self._apply(replace(self.filter, sort=value))
        elif action == "page":
            await self._apply(replace(self.filter, page=int(value)))

    async def _apply(self, wanted: ListFilter) -> None:
        self.filter = wanted
        parameters = {key: value for key, value in vars(wanted).items() if value not in ("", 1)}
        url = "/queries" + (f"?{urlencode(parameters)}" if parameters else "")
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(url)})")
        self.kinds.set(segments("kind", QUERY_KINDS, wanted.kind))
        await self.frame.refresh()

    def fetch(self) -> QueryListData:
        queries = self.service.queries()
        matching = filter_queries(queries, self.filter)
        shown, page, pages = paginate(matching, self.filter.page)
        trends = {query.name: self.service.trend(query.name) for query in shown}
        return QueryListData(len(queries), len(matching), shown, trends, page, pages)

    def show(self, data: QueryListData) -> None:
        self.count.set(
            counted(data.total, "query", "queries")
            if data.matching == data.total
            else f"{data.matching:,} of {data.total:,}"
        )
        if not data.total:
            text = (
                "A query is SQL with a window. While it is registered, it returns a result for every window."
            )
            self.table.set(empty_state("queries", "No queries yet", text, FIRST_QUERY_LINK))
        elif not data.matching:
            text = "No query has all of these words in its name or SQL."
            self.table.set(empty_state("lost", "No matches", text))
        else:
            now = time.time_ns() // 1000
            rows = [query_table_row(query, data.trends[query.name], now) for query in data.shown]
            self.table.set(
                query_table(rows, self.filter.sort, has_one_input(data.shown)) + pager(data.page, data.pages)
            )
