"""The live chart of a query's windows, with controls for groups, value and number of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from nicegui import ui
from nicegui.element import Element

from transom.api.records import ColumnInfo
from transom.dashboard.chart_points import (
    ALL_ROWS,
    ChartData,
    ChartSelection,
    GroupKey,
    chart_data,
    group_label,
    result_columns,
)
from transom.dashboard.charts import results_chart
from transom.dashboard.display_text import esc
from transom.dashboard.display_zone import display_zone, from_local
from transom.dashboard.widgets import (
    Panel,
    box,
    button,
    empty_state,
    select_field,
    set_attributes,
    text_field,
)
from transom.durations import HOUR
from transom.plan.explain.text_parts import counted
from transom.server.chart_hints import ChartHints

WINDOW_COUNTS = ("30", "60", "120", "300")
TIME_SPANS = (
    (HOUR, "Last hour"),
    (6 * HOUR, "Last 6 hours"),
    (24 * HOUR, "Last day"),
    (168 * HOUR, "Last week"),
)
ALL_WINDOWS, FROM_TO = "all", "from-to"
UNZOOMED = (0.0, 100.0)
MOST_GROUPS = 500  # in the list of groups
LEGEND = (
    '<span class="key" aria-hidden="true"><span><i></i>final</span><span><i class="open"></i>early</span>'
    '<span><i class="band"></i>interval</span></span>'
)
NO_WINDOWS = "A window appears when it closes, or with its first early result."


class LiveChart:
    """A chart that is redrawn when the results or the user's selection change."""

    def __init__(
        self,
        columns: Sequence[ColumnInfo],
        title: str = "Windows",
        height: str = "",
        hints: ChartHints | None = None,
    ):
        self.columns, self.title, self.height, self.hints = columns, title, height, hints
        self.roles = result_columns(columns)
        self.is_time = any(column.role == "window" and column.type == "timestamp" for column in columns)
        self.selection = ChartSelection()
        self.plot = ChartPlot(height)
        self.table: pa.Table | None = None
        self.keys: list[GroupKey] = []

    def build(self) -> None:
        with box("card", "section", aria_label=self.title):
            with box("bar"):
                Panel(f"<h2>{self.title}</h2>")
                Panel(LEGEND)
                with box("end chart-controls"):
                    self.plot.build_reset()
                    self._build_controls()
            self.from_to = from_to_fields(self._on_time)
            self.plot.build()

    def _build_controls(self) -> None:
        if self.roles.keys:
            self.groups = (
                ui.select([], multiple=True, with_input=True, on_change=self._on_groups)
                .classes("pick")
                .props('dense outlined options-dense aria-label="Groups" data-testid=groups')
            )
            self._show_group_count(0)
        if len(self.roles.numeric) > 1:
            values = [(str(at), self.roles.names[at]) for at in self.roles.numeric]
            select_field("Value", values, values[0][0], self._on_value, data_testid="value")
        window_range_field(self._on_range, str(self.selection.windows), self.is_time)

    def _on_groups(self, event: object) -> None:
        labels = set(getattr(event, "value", None) or ())
        self._show_group_count(len(labels))
        groups = tuple(key for key in self.keys if group_label(key) in labels)
        self._select(replace(self.selection, groups=groups))

    def _show_group_count(self, count: int) -> None:
        self.groups._props["display-value"] = counted(count, "group") if count else "Top groups"

    def _on_value(self, value: str) -> None:
        self._select(replace(self.selection, value=int(value)))

    def _on_range(self, value: str) -> None:
        self.from_to.set_visibility(value == FROM_TO)
        self.plot.zoom = UNZOOMED
        self._select(with_range(self.selection, value))

    def _on_time(self, side: str, text: str) -> None:
        self.plot.zoom = UNZOOMED
        self._select(with_range_end(self.selection, side, text))

    def _select(self, selection: ChartSelection) -> None:
        self.selection = selection
        if self.table is not None:
            self.show(*self.prepare(self.table), self.table)

    def prepare(self, table: pa.Table) -> tuple[ChartData, list[GroupKey]]:
        """Turn results into chart data; may be called in a thread."""
        return chart_data(table, self.columns, self.selection, self.hints)

    def show(self, data: ChartData, keys: list[GroupKey], table: pa.Table) -> None:
        """Redraw the chart if its data changed."""
        self.table = table
        if self.roles.keys and keys != self.keys:
            self.keys = keys
            self.groups.set_options([group_label(key) for key in keys[:MOST_GROUPS] if key != ALL_ROWS])
        self.plot.show(data)


def window_range_field(on_change: Callable[[str], Any], value: str, is_time: bool) -> Panel:
    """The choice of the windows that a chart shows."""
    options = [(count, f"{count} windows") for count in WINDOW_COUNTS]
    if is_time:
        options += [(f"span {span}", text) for span, text in TIME_SPANS]
    options.append((ALL_WINDOWS, "All windows"))
    if is_time:
        options.append((FROM_TO, "From … to …"))
    return select_field("Windows", options, value, on_change, data_testid="range")


def from_to_fields(on_time: Callable[[str, str], Any]) -> Element:
    """Fields for the first and the last time of a range, hidden at first; calls back with the side and the text."""
    with box("row tight pad from-to") as fields:
        for label, side in (("From", "since"), ("To", "until")):
            with box("lab", "label"):
                Panel(label, "span")
                text_field(
                    partial(on_time, side),
                    type="datetime-local",
                    step="1",
                    aria_label=label,
                    data_testid=f"chart-{side}",
                )
        Panel(f"in {esc(display_zone())}", "span", "small muted")
    fields.set_visibility(False)
    return fields


def with_range_end(selection: ChartSelection, side: str, text: str) -> ChartSelection:
    """A selection with the first (`since`) or the last (`until`) time that the user wrote."""
    time = from_local(text)
    return replace(selection, since=time) if side == "since" else replace(selection, until=time)


def with_range(selection: ChartSelection, value: str) -> ChartSelection:
    """A selection with the windows that the user chose.

    >>> with_range(ChartSelection(), "span 60").span, with_range(ChartSelection(), "300").windows
    (60, 300)
    """
    whole = replace(selection, windows=None, span=None, since=None, until=None)
    if value.isdigit():
        return replace(whole, windows=int(value))
    if value.startswith("span "):
        return replace(whole, span=int(value.removeprefix("span ")))
    return whole


class ChartPlot:
    """The chart itself. It remembers how far the user has zoomed in while new results arrive."""

    def __init__(self, height: str = ""):
        self.height = height
        self.zoom = UNZOOMED
        self._shown: tuple[ChartData, tuple[float, float]] | None = None
        self._is_held = False  # a pointer is down on the chart: an update would end its drag
        self._waiting: ChartData | None = None

    def build_reset(self) -> None:
        """Create the button that ends the zoom."""
        self.reset = button("Reset zoom", self._on_reset, "small", data_testid="reset-zoom")
        self.reset.set_visibility(False)

    def build(self) -> None:
        with box("pad plot", style="padding:8px 8px 4px"):
            self.chart = (
                ui.echart(results_chart(ChartData({})), renderer="svg")
                .classes(f"chart {self.height}")
                .props("role=img")
            )
            set_attributes(self.chart, {"data_testid": "chart", "data_early": "0", "data_final": "0"})
            self.chart.on(
                "chart:datazoom",
                self._on_zoom,
                throttle=0.2,
                js_handler="(event) => { const to = event.batch ? event.batch[0] : event;"
                " if (to.start !== undefined) emit([to.start, to.end]); }",
            )
            # The release comes after the last zoom of the drag, which is throttled.
            self.chart.on(
                "pointerdown",
                self._on_hold,
                js_handler="() => { emit(true); window.addEventListener('pointerup',"
                " () => setTimeout(() => emit(false), 300), { once: true }); }",
            )
            self.no_windows = Panel(
                empty_state("none", "No windows yet", NO_WINDOWS, slim=True), classes="over"
            )

    def _on_zoom(self, event: Any) -> None:
        start, end = event.args
        self.zoom = float(start), float(end)
        self.reset.set_visibility(self.zoom != UNZOOMED)

    def _on_hold(self, event: Any) -> None:
        self._is_held = bool(event.args)
        if not self._is_held and self._waiting is not None:
            self.show(self._waiting)

    def _on_reset(self) -> None:
        self.zoom = UNZOOMED
        if self._shown is not None:
            self.show(self._shown[0])

    def show(self, data: ChartData) -> None:
        """Redraw the chart if its data or the zoom changed; not before a drag on it ends."""
        self._waiting = data if self._is_held else None
        if self._is_held:
            return
        if (data, self.zoom) == self._shown:
            return
        self._shown = data, self.zoom
        self.reset.set_visibility(self.zoom != UNZOOMED)
        self.no_windows.set_visibility(not data.groups)
        self.chart.options.clear()
        self.chart.options.update(results_chart(data, self.zoom))
        self.chart.update()
        counts = f"{counted(data.final, 'final value')}, {counted(data.early, 'early value')}"
        set_attributes(
            self.chart,
            {
                "data_early": str(data.early),
                "data_final": str(data.final),
                "aria_label": f"Chart of {data.value} by window: {counts}. The table below lists the newest.",
            },
        )
