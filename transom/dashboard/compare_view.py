"""Several queries on one chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from nicegui import ui

from transom.api.errors import NotFound
from transom.api.records import QueryStatus
from transom.dashboard.chart_points import (
    ChartData,
    ChartSelection,
    GroupKey,
    WindowPoint,
    chart_data,
    combined_chart,
    top_groups,
)
from transom.dashboard.colors import SERIES
from transom.dashboard.display_text import esc
from transom.dashboard.frame import DashboardView, query_link
from transom.dashboard.live_chart import (
    FROM_TO,
    LEGEND,
    UNZOOMED,
    ChartPlot,
    from_to_fields,
    window_range_field,
    with_range,
    with_range_end,
)
from transom.dashboard.widgets import Panel, box, button, empty_state, segments, skeleton, text_field, toast
from transom.server.service import Service

MOST_COMPARED = SERIES  # as many as there are colours
MOST_SUGGESTIONS = 1_000  # suggested while the user types
GROUPS_OF_A_QUERY = 3
READ_RESULTS = 5_000  # newest results of each query
SCALES = (("", "Same scale"), ("relative", "Relative"))


def compare_link(names: Sequence[str], scale: str = "") -> str:
    """The URL of the chart of some queries.

    >>> compare_link(["a b", "c"])
    '/compare?query=a+b&query=c'
    """
    parameters = [("query", name) for name in names] + ([("scale", scale)] if scale else [])
    return "/compare" + (f"?{urlencode(parameters)}" if parameters else "")


@dataclass(frozen=True)
class ComparedQueries:
    """The names of all standing queries, and the chart data of the compared ones."""

    names: Sequence[str]
    charts: dict[str, ChartData]
    missing: Sequence[str]


class CompareView(DashboardView):
    """A chart of up to eight queries, with their shared time axis."""

    section = "compare"
    title = "Compare"

    def __init__(self, service: Service, names: Sequence[str], scale: str):
        super().__init__(service)
        self.names = list(dict.fromkeys(names))[:MOST_COMPARED]
        self.scale = scale if scale in dict(SCALES) else ""
        self.selection = ChartSelection()
        self.plot = ChartPlot("whole")
        self._typed = ""
        self._known: Sequence[str] = ()
        self._charts: dict[str, ChartData] = {}

    def build(self) -> None:
        Panel(
            '<div><h1>Compare</h1><p class="sub">Several queries on one chart. A query with groups shows its '
            f"top {GROUPS_OF_A_QUERY}.</p></div>",
            classes="head",
        )
        with box("card section", "section", aria_label="Compared queries"):
            with box("bar"):
                text_field(
                    self._on_typed,
                    type="search",
                    list="compare-names",
                    placeholder="Name of a query",
                    aria_label="Name of a query",
                    data_search="",
                    data_testid="compare-name",
                    style="width:280px",
                ).on("keydown.enter", self._add)
                button("Add", self._add, "", "new", data_testid="compare-add")
                self.options = Panel("", "datalist", id="compare-names")
                with box("end chart-controls"):
                    self.plot.build_reset()
                    self.scales = Panel(segments("scale", SCALES, self.scale)).on_action(self._on_scale)
                    window_range_field(self._on_range, str(self.selection.windows), True)
            with box("row pad compare-row"):
                self.chips = Panel(skeleton(1), classes="row tight", data_testid="compared").on_action(
                    self._on_remove
                )
                Panel(LEGEND, classes="end")
            self.from_to = from_to_fields(self._on_time)
            self.plot.build()

    def _on_typed(self, text: str) -> None:
        self._typed = text

    async def _add(self) -> None:
        name = self._typed.strip()
        if name not in self._known:
            toast(
                f"There is no standing query named {name}." if name else "Write the name of a query.", "bad"
            )
            return
        if name not in self.names and len(self.names) >= MOST_COMPARED:
            toast(f"A chart has at most {MOST_COMPARED} queries: remove one first.", "bad")
            return
        await self._apply([*dict.fromkeys([*self.names, name])], self.scale)

    async def _on_remove(self, _: str, name: str) -> None:
        await self._apply([each for each in self.names if each != name], self.scale)

    async def _on_scale(self, _: str, scale: str) -> None:
        self.scales.set(segments("scale", SCALES, scale))
        await self._apply(self.names, scale)

    async def _on_range(self, value: str) -> None:
        self.from_to.set_visibility(value == FROM_TO)
        await self._select(with_range(self.selection, value))

    async def _on_time(self, side: str, text: str) -> None:
        await self._select(with_range_end(self.selection, side, text))

    async def _select(self, selection: ChartSelection) -> None:
        self.selection, self.plot.zoom = selection, UNZOOMED
        await self.frame.refresh()

    async def _apply(self, names: Sequence[str], scale: str) -> None:
        self.names, self.scale = list(names), scale
        url = compare_link(self.names, scale)
        ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(url)})")
        await self.frame.refresh()

    def fetch(self) -> ComparedQueries:
        standing = [query.name for query in self.service.queries() if query.kind == "standing"]
        charts, missing = {}, []
        for name in self.names:
            try:
                charts[name] = self._chart(self.service.query(name))
            except NotFound:
                missing.append(name)
        return ComparedQueries(standing, charts, missing)

    def _chart(self, status: QueryStatus) -> ChartData:
        table = self.service.recent(status.name, READ_RESULTS)
        hints = self.service.chart_hints(status.name)
        everything = replace(self.selection, windows=None, span=None)
        data, keys = chart_data(table, status.columns, everything, hints)
        if len(keys) > GROUPS_OF_A_QUERY:
            data = _top(data)
        return data

    def show(self, data: ComparedQueries) -> None:
        self._known = data.names
        self.options.set(
            "".join(
                f'<option value="{esc(name)}"></option>'
                for name in data.names[:MOST_SUGGESTIONS]
                if name not in self.names
            )
        )
        if data.missing:
            self.names = [name for name in self.names if name not in data.missing]
            toast(f"There is no query named {', '.join(data.missing)}.", "bad")
        self.chips.set(_chips_html(self.names))
        whole = combined_chart(data.charts, self.scale == "relative")
        self.plot.show(_within(whole, self.selection))


def _top(data: ChartData) -> ChartData:
    """The groups with the greatest newest values."""
    by_label: dict[GroupKey, dict[int, WindowPoint]] = {
        (label,): {point.end: point for point in points} for label, points in data.groups.items() if points
    }
    labels = [key[0] for key in top_groups(by_label, GROUPS_OF_A_QUERY)]
    return replace(data, groups={label: data.groups[label] for label in labels})


def _within(data: ChartData, selection: ChartSelection) -> ChartData:
    """The selected windows; counted by the ends of all queries together."""
    chosen = selection.ends(point.end for points in data.groups.values() for point in points)
    if chosen is None:
        return data
    first, last = chosen
    groups = {
        label: [point for point in points if first <= point.end <= last]
        for label, points in data.groups.items()
    }
    return replace(data, groups=groups)


def _chips_html(names: Sequence[str]) -> str:
    if not names:
        return empty_state(
            "none",
            "No queries chosen",
            "Add queries by name, or use Compare on the page of a query.",
            slim=True,
        )
    return "".join(
        f'<span class="chip" data-key="{esc(name)}"><a href="{esc(query_link(name))}">{esc(name)}</a> '
        f'<button type="button" class="b icon quiet remove" data-act="remove" data-arg="{esc(name)}" '
        f'aria-label="Remove {esc(name)}" title="Remove">×</button></span>'
        for name in names
    )
