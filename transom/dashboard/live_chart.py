"""The live chart of a query's windows, with controls for groups, value and number of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from nicegui import ui

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
from transom.dashboard.widgets import Panel, box, empty_state, select_field, set_attributes
from transom.plan.explain.text_parts import counted

WINDOW_COUNTS = ("30", "60", "120", "300")
MOST_GROUPS = 500  # in the list of groups
LEGEND = (
    '<span class="key" aria-hidden="true"><span><i></i>final</span><span><i class="open"></i>early</span>'
    '<span><i class="band"></i>interval</span></span>'
)
NO_WINDOWS = "A window appears when it closes, or with its first early result."


class LiveChart:
    """A chart that is redrawn when the results or the user's selection change."""

    def __init__(self, columns: Sequence[ColumnInfo], title: str = "Windows", height: str = ""):
        self.columns, self.title, self.height = columns, title, height
        self.roles = result_columns(columns)
        self.selection = ChartSelection()
        self.table: pa.Table | None = None
        self.keys: list[GroupKey] = []
        self._shown: ChartData | None = None

    def build(self) -> None:
        with box("card", "section", aria_label=self.title):
            with box("bar"):
                Panel(f"<h2>{self.title}</h2>")
                Panel(LEGEND)
                with box("end"):
                    self._build_controls()
            with box("pad plot", style="padding:12px 8px 8px"):
                self.chart = (
                    ui.echart(results_chart(ChartData({})), renderer="svg")
                    .classes(f"chart {self.height}")
                    .props("role=img")
                )
                set_attributes(self.chart, {"data_testid": "chart", "data_early": "0", "data_final": "0"})
                self.no_windows = Panel(
                    empty_state("none", "No windows yet", NO_WINDOWS, slim=True), classes="over"
                )

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
        counts = [(count, f"Last {count}") for count in WINDOW_COUNTS]
        select_field("Windows", counts, str(self.selection.windows), self._on_window_count)

    def _on_groups(self, event: object) -> None:
        labels = set(getattr(event, "value", None) or ())
        self._show_group_count(len(labels))
        groups = tuple(key for key in self.keys if group_label(key) in labels)
        self._select(replace(self.selection, groups=groups))

    def _show_group_count(self, count: int) -> None:
        self.groups._props["display-value"] = counted(count, "group") if count else "Top groups"

    def _on_value(self, value: str) -> None:
        self._select(replace(self.selection, value=int(value)))

    def _on_window_count(self, value: str) -> None:
        self._select(replace(self.selection, windows=int(value)))

    def _select(self, selection: ChartSelection) -> None:
        self.selection = selection
        if self.table is not None:
            self.show(*self.prepare(self.table), self.table)

    def prepare(self, table: pa.Table) -> tuple[ChartData, list[GroupKey]]:
        """Turn results into chart data; may be called in a thread."""
        return chart_data(table, self.columns, self.selection)

    def show(self, data: ChartData, keys: list[GroupKey], table: pa.Table) -> None:
        """Redraw the chart if its data changed."""
        self.table = table
        if self.roles.keys and keys != self.keys:
            self.keys = keys
            self.groups.set_options([group_label(key) for key in keys[:MOST_GROUPS] if key != ALL_ROWS])
        if data == self._shown:
            return
        self._shown = data
        self.no_windows.set_visibility(not data.groups)
        self.chart.options.clear()
        self.chart.options.update(results_chart(data))
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
