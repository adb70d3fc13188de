"""The live chart of a query's windows, with what is chosen to be seen on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from nicegui import ui

from transom.api.records import ColumnInfo
from transom.dashboard.chart_points import ALL, Choice, Drawn, Key, draw, label, layout_of
from transom.dashboard.charts import results_chart
from transom.dashboard.widgets import Panel, box, choice, empty, set_attributes
from transom.plan.explain.words import counted

WINDOWS = ("30", "60", "120", "300")
OPTIONS = 500  # groups to choose from
LEGEND = (
    '<span class="key" aria-hidden="true"><span><i></i>final</span><span><i class="open"></i>early</span>'
    '<span><i class="band"></i>interval</span></span>'
)
WAIT = "A window is drawn when it closes, or when it is told early."


class LiveChart:
    """A chart that is drawn again when results or choices change."""

    def __init__(
        self, columns: Sequence[ColumnInfo], title: str = "Windows", height: str = "", wait: str = WAIT
    ):
        self.columns, self.title, self.height, self.wait = columns, title, height, wait
        self.layout = layout_of(columns)
        self.choice = Choice()
        self.table: pa.Table | None = None
        self.keys: list[Key] = []
        self._drawn: Drawn | None = None

    def build(self) -> None:
        with box("card", "section", aria_label=self.title):
            with box("bar"):
                Panel(f"<h2>{self.title}</h2>")
                Panel(LEGEND)
                with box("end"):
                    self._choices()
            with box("pad plot", style="padding:12px 8px 8px"):
                self.chart = (
                    ui.echart(results_chart(Drawn({})), renderer="svg")
                    .classes(f"chart {self.height}")
                    .props("role=img")
                )
                set_attributes(self.chart, {"data_testid": "chart", "data_early": "0", "data_final": "0"})
                self.none = Panel(empty("none", "No windows yet", self.wait, slim=True), classes="over")

    def _choices(self) -> None:
        if self.layout.keys:
            self.groups = (
                ui.select([], multiple=True, with_input=True, on_change=self._grouped)
                .classes("pick")
                .props('dense outlined options-dense aria-label="Groups" data-testid=groups')
            )
            self._name_groups(0)
        if len(self.layout.numeric) > 1:
            values = [(str(at), self.layout.names[at]) for at in self.layout.numeric]
            choice("Value", values, values[0][0], self._valued, data_testid="value")
        windows = [(one, f"last {one}") for one in WINDOWS]
        choice("Windows", windows, str(self.choice.windows), self._counted)

    def _grouped(self, event: object) -> None:
        chosen = set(getattr(event, "value", None) or ())
        self._name_groups(len(chosen))
        self._choose(replace(self.choice, groups=tuple(key for key in self.keys if label(key) in chosen)))

    def _name_groups(self, chosen: int) -> None:
        self.groups._props["display-value"] = counted(chosen, "group") if chosen else "Top groups"

    def _valued(self, value: str) -> None:
        self._choose(replace(self.choice, value=int(value)))

    def _counted(self, value: str) -> None:
        self._choose(replace(self.choice, windows=int(value)))

    def _choose(self, wanted: Choice) -> None:
        self.choice = wanted
        if self.table is not None:
            self.show(*self.drawing(self.table), self.table)

    def drawing(self, table: pa.Table) -> tuple[Drawn, list[Key]]:
        """What is to be drawn of results; in a thread."""
        return draw(table, self.columns, self.choice)

    def show(self, drawn: Drawn, keys: list[Key], table: pa.Table) -> None:
        self.table = table
        if self.layout.keys and keys != self.keys:
            self.keys = keys
            self.groups.set_options([label(key) for key in keys[:OPTIONS] if key != ALL])
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.none.set_visibility(not drawn.groups)
        self.chart.options.clear()
        self.chart.options.update(results_chart(drawn))
        self.chart.update()
        told = f"{counted(drawn.final, 'final value')}, {counted(drawn.early, 'early value')}"
        set_attributes(
            self.chart,
            {
                "data_early": str(drawn.early),
                "data_final": str(drawn.final),
                "aria_label": f"Chart of {drawn.value} by window: {told}. The table below has the newest.",
            },
        )
