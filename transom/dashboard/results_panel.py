"""A table of results that a user can search, filter, sort and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from transom.api.records import ColumnInfo
from transom.dashboard.chart_points import ResultColumns, result_columns
from transom.dashboard.result_table import rows_html
from transom.dashboard.table_page import (
    RowFilter,
    RowPage,
    count_text,
    matching_rows,
    row_page,
    sort_places,
    sorted_places,
)
from transom.dashboard.widgets import Panel, empty_state, pager, segments, skeleton, text_field

RESULT_KINDS = (("", "All"), ("final", "Final only"), ("early", "Early only"))
CORRECTED_KINDS = (*RESULT_KINDS, ("correction", "Corrections only"))


def page_of(table: pa.Table, roles: ResultColumns, wanted: RowFilter) -> RowPage:
    """A page of results; without a sort key, the newest windows are first, and a lookup stays as it is."""
    matching = table
    if wanted.kind and "kind" in roles.system:
        matching = matching.filter(pc.equal(matching.column(roles.system["kind"]), wanted.kind))
    matching = matching_rows(matching, roles.keys or roles.values, wanted.search)
    order = sorted_places(matching, wanted.sort, _newest_first(roles))
    if order is None and "kind" in roles.system and roles.window:
        order = sort_places(matching, _newest_first(roles))
    if order is None:
        places = range(matching.num_rows)
        order = pa.array(places if roles.window else reversed(places), pa.int64())
    return row_page(table, matching, order, wanted.page)


def _newest_first(roles: ResultColumns) -> list[tuple[int, bool]]:
    columns = [*roles.window[1:], *(roles.system[name] for name in ("batch", "made") if name in roles.system)]
    return [(at, True) for at in columns]


class ResultsPanel:
    """The table, its controls and its pager."""

    def __init__(
        self,
        columns: Sequence[ColumnInfo],
        no_results: str,
        what: str = "result",
        testid: str = "result-row",
        most: int | None = None,
    ):
        self.columns, self.no_results, self.what, self.testid = columns, no_results, what, testid
        self.roles = result_columns(columns)
        self.filter = RowFilter()
        self.table: pa.Table | None = None
        self.count: Panel | None = None
        self.most = most  # rows that are read; older ones are not in the table

    @property
    def is_searchable(self) -> bool:
        """Whether rows have groups or texts: numbers alone are sorted rather than searched."""
        return bool(self.roles.keys) or len(self.roles.numeric) < len(self.roles.values)

    @property
    def result_kinds(self) -> Sequence[tuple[str, str]]:
        """The kinds of results to choose from."""
        return CORRECTED_KINDS if "revision" in self.roles.system else RESULT_KINDS

    def build_controls(self) -> None:
        """Create the search field and the choice of final and early results; in the bar above the table."""
        if self.is_searchable:
            names = ", ".join(self.roles.names[at] for at in self.roles.keys)
            text_field(
                self._on_search,
                "",
                0.2,
                type="search",
                placeholder=f"Search {names or 'texts'}",
                aria_label=f"Search {self.what}s",
                data_testid="search-rows",
                style="width:180px",
            )
        if "kind" in self.roles.system:
            self.kinds = Panel(segments("kind", self.result_kinds, "")).on_action(self._on_action)
        self.count = Panel("", "span", "small muted", role="status", data_testid="row-count")

    def build_table(self, **attributes: str) -> None:
        """Create the table and its pager."""
        self.rows = Panel(skeleton(6), **attributes).on_action(self._on_action)

    def _on_search(self, text: str) -> None:
        self._apply(replace(self.filter, search=text, page=1))

    def _on_action(self, action: str, value: str) -> None:
        if action == "kind":
            self._apply(replace(self.filter, kind=value, page=1))
            self.kinds.set(segments("kind", self.result_kinds, value))
        else:
            self._apply(self.filter.after(action, value))

    def _apply(self, wanted: RowFilter) -> None:
        self.filter = wanted
        if self.table is not None:
            self.show(self.table)

    def show(self, table: pa.Table) -> None:
        """Show a page of some results."""
        self.table = table
        if not table.num_rows:
            self._show_count("")
            self.rows.set(empty_state("none", f"No {self.what}s yet", self.no_results, slim=True))
            return
        page = page_of(table, self.roles, self.filter)
        self._show_count(count_text(page, self.what, self.most))
        if not page.matching:
            text = "No row has these words in its groups." if self.filter.search else "None of this kind."
            self.rows.set(empty_state("lost", "No matches", text, slim=True))
            return
        roles = self.roles
        if self.filter.kind == "final":  # which have no estimates
            roles = replace(roles, estimates={at: {} for at in roles.values})
        html = rows_html(page.rows, roles, self.testid, self.filter.sort)
        self.rows.set(html + pager(page.page, page.pages))

    def _show_count(self, text: str) -> None:
        if self.count is not None:
            self.count.set(text)
