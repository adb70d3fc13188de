"""The lookup panel of an on-demand query: answers for any window up to the query's own, ending now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from transom.api.records import QueryStatus
from transom.dashboard.chart_points import is_numeric_type
from transom.dashboard.display_text import esc, format_clock, format_number
from transom.dashboard.result_table import result_table
from transom.dashboard.results_panel import ResultsPanel
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import Panel, box, skeleton, slider, slider_html, text_field, toast
from transom.durations import format_duration
from transom.errors import TransomError
from transom.plan.explain.text_parts import counted
from transom.server.service import Service

SLIDER_STEPS = 100
NO_ROWS = "No rows in this window."


@dataclass(frozen=True)
class LookupRange:
    """The longest window that a lookup may ask for, and its unit."""

    length: int
    unit: str  # time, rows or number

    def length_at(self, percent: int) -> int:
        """The window length at a position of the slider, rounded to a readable number."""
        if percent >= SLIDER_STEPS:
            return self.length
        exact = max(1, self.length * percent // SLIDER_STEPS)
        grain = next((grain for grain in _grains(self.unit) if exact >= 20 * grain), 1)
        return max(1, exact // grain * grain)

    def text(self, length: int) -> str:
        """A window length as text.

        >>> LookupRange(600_000_000, "time").text(60_000_000), LookupRange(5, "rows").text(1)
        ('1 minute', '1 row')
        """
        if self.unit == "time":
            return format_duration(length)
        return counted(length, "row") if self.unit == "rows" else format_number(length)

    def arguments(self, length: int) -> dict[str, Any]:
        """The arguments of `lookup` for a window length."""
        if length == self.length:
            return {}
        if self.unit == "rows":
            return {"rows": length}
        return {"range": format_duration(length) if self.unit == "time" else length}


def _grains(unit: str) -> tuple[int, ...]:
    if unit != "time":
        return (1000, 100, 10, 1)
    return (3_600_000_000, 600_000_000, 60_000_000, 10_000_000, 1_000_000, 1_000)


def lookup_range(plan: str, name: str) -> LookupRange | None:
    """The longest window of a query, read from its plan as JSON."""
    for stream in json.loads(plan)["streams"]:
        for store_set in stream["store_sets"]:
            for query in store_set["queries"]:
                if query["name"] == name:
                    length = str(query["window"]).split(" of ")[0]
                    unit = "rows" if "row" in length else "time"
                    is_number = length.removeprefix("the last ").replace(",", "").isdigit()
                    return LookupRange(int(query["range"]), "number" if is_number else unit)
    return None


def parse_group_values(text: str, sql_type: str) -> Any:
    """The value, or the comma-separated values, that the user typed for a group column.

    >>> [parse_group_values(*typed) for typed in (("7", "int"), ("a, b", "string"), ("1,2", "bigint"))]
    [7, ['a', 'b'], [1, 2]]
    """
    parts = [part.strip() for part in text.split(",")]
    values = [_parse_number(part) if is_numeric_type(sql_type) else part for part in parts if part]
    return values[0] if len(values) == 1 else values


def parse_instant_field(text: str) -> str | int | None:
    """The time that the user typed, or a number of an integer clock; None for the newest row.

    >>> [parse_instant_field(text) for text in ("", "2013-01-01 12:00", "1200", "2 hours ago")]
    [None, '2013-01-01 12:00', 1200, '2 hours ago']
    """
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdigit() else text


def _parse_number(text: str) -> int | float | str:
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text


class LookupPanel:
    """A slider for the window length, a field for each group column, and the answer."""

    def __init__(self, service: Service, status: QueryStatus, testid: str = "result-row"):
        self.service, self.status, self.testid = service, status, testid
        self.longest: LookupRange | None = None
        self.percent = SLIDER_STEPS
        self.where: dict[str, str] = {}
        self.at = ""
        self.repeats = False
        self.rows = 0
        self.is_brief = testid == "preview-row"  # the editor has less room
        self.table = ResultsPanel(status.columns, NO_ROWS, "row", testid)

    def build(self) -> None:
        keys = [column for column in self.status.columns if column.role == "key"]
        with box("card section", "section", aria_label="Lookup", data_testid="lookup"):
            with box("bar"):
                Panel("<h2>Lookup</h2>")
                with box("end"):
                    repeat = Panel(
                        '<input type="checkbox" data-testid="keep-asking"> Repeat every second',
                        "label",
                        "lab",
                    )
                    repeat.on("change", self._on_repeat, js_handler="(event) => emit(event.target.checked)")
            with box("pad row lookup-fields", style="gap:24px"):
                with box("grow stack tight", style="max-width:520px"):
                    self.length = Panel("The last …", classes="row apart")
                    slider(
                        slider_html(
                            SLIDER_STEPS,
                            1,
                            SLIDER_STEPS,
                            1,
                            aria_label="Window length",
                            data_testid="lookup-range",
                        ),
                        self._on_drag,
                        self._on_release,
                    )
                for column in keys:
                    with box("lab", "label"):
                        Panel(esc(column.name), "span")
                        text_field(
                            partial(self._on_group, column.name),
                            type="text",
                            placeholder="all",
                            data_testid=f"where-{column.name}",
                            style="width:140px",
                        ).on("keydown.enter", self.look_up)
                with box("lab", "label"):
                    Panel("As of", "span")
                    text_field(
                        self._on_time,
                        type="text",
                        placeholder="the newest row",
                        data_testid="lookup-at",
                        style="width:180px",
                    ).on("keydown.enter", self.look_up)
            if self.is_brief:
                self.answer = Panel(skeleton(2), data_testid="answer")
            else:
                if self.table.is_searchable:
                    with box("bar"):
                        self.table.build_controls()
                self.table.build_table(data_testid="answer")

    def _on_repeat(self, event: Any) -> None:
        self.repeats = bool(event.args)

    def _on_drag(self, percent: int) -> None:
        self.percent = percent
        self._show_length()

    async def _on_release(self, percent: int) -> None:
        self.percent = percent
        await self.look_up()

    def _on_group(self, name: str, text: str) -> None:
        self.where[name] = text

    def _on_time(self, text: str) -> None:
        self.at = text.strip()

    def _show_length(self) -> None:
        if self.longest is not None:
            length = self.longest.length_at(self.percent)
            self.length.set(
                f"<span>The last <b>{esc(self.longest.text(length))}</b></span>"
                f'<span class="muted small">of {esc(self.longest.text(self.longest.length))}</span>'
            )

    def fetch(self) -> pa.Table:
        """Look up the window and the groups that the user selected; called in a thread."""
        if self.longest is None:
            self.longest = lookup_range(
                self.service.explain(self.status.name, format="json"), self.status.name
            )
        types: Mapping[str, str] = {column.name: column.type for column in self.status.columns}
        where = {
            name: parse_group_values(text, types[name]) for name, text in self.where.items() if text.strip()
        }
        window = {} if self.longest is None else self.longest.arguments(self.longest.length_at(self.percent))
        at = parse_instant_field(self.at)
        return self.service.lookup(self.status.name, at=at, where=where or None, **window)

    async def look_up(self) -> str:
        """Look up and show the answer; returns a note about it."""
        try:
            return self.show(await run_in_thread(self.fetch))
        except TransomError as error:
            toast(str(error), "bad")
            return ""

    def show(self, answer: pa.Table) -> str:
        """Show an answer; returns a note about it."""
        self._show_length()
        self.rows = answer.num_rows
        if self.is_brief:
            self.answer.set(result_table(answer, self.status.columns, NO_ROWS, self.testid, brief=True))
        else:
            self.table.show(answer)
        if not answer.num_rows:
            return NO_ROWS
        made = answer["made"][-1].as_py() if "made" in answer.column_names else None
        at = format_clock(int(made.timestamp() * 1e6)) if made else ""
        batch = format_number(answer["batch"][-1].as_py())
        return f"as of {at}, batch {batch}, {counted(answer.num_rows, 'row')}"
