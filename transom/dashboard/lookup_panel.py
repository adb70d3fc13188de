"""The lookup panel of an on-demand query: any window up to its own, now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from transom.api.records import QueryStatus
from transom.dashboard.chart_points import is_numeric
from transom.dashboard.formatting import clock, e, number
from transom.dashboard.result_table import result_table
from transom.dashboard.threads import in_thread
from transom.dashboard.widgets import Panel, box, entry, skeleton, slider, slider_html, toast
from transom.durations import format_duration
from transom.errors import TransomError
from transom.plan.explain.words import counted
from transom.server.service import Service

STEPS = 100  # of the slider
NONE = "No row is in the window. Nothing matches, or nothing has come yet."


@dataclass(frozen=True)
class Reach:
    """How far back a query can be looked up, and in what."""

    length: int
    unit: str  # time, rows or number

    def part(self, percent: int) -> int:
        """The length at a step of the slider, rounded to something that is easily said."""
        if percent >= STEPS:
            return self.length
        exact = max(1, self.length * percent // STEPS)
        grain = next((one for one in _grains(self.unit) if exact >= 20 * one), 1)
        return max(1, exact // grain * grain)

    def text(self, length: int) -> str:
        """A length in words.

        >>> Reach(600_000_000, "time").text(60_000_000), Reach(5, "rows").text(1)
        ('1 minute', '1 row')
        """
        if self.unit == "time":
            return format_duration(length)
        return counted(length, "row") if self.unit == "rows" else number(length)

    def arguments(self, length: int) -> dict[str, Any]:
        """How a lookup asks for it."""
        if length == self.length:
            return {}
        if self.unit == "rows":
            return {"rows": length}
        return {"range": format_duration(length) if self.unit == "time" else length}


def _grains(unit: str) -> tuple[int, ...]:
    if unit != "time":
        return (1000, 100, 10, 1)
    return (3_600_000_000, 600_000_000, 60_000_000, 10_000_000, 1_000_000, 1_000)


def reach_of(plan: str, name: str) -> Reach | None:
    """How far a query reaches, from its plan as JSON."""
    for stream in json.loads(plan)["streams"]:
        for store_set in stream["store_sets"]:
            for query in store_set["queries"]:
                if query["name"] == name:
                    words = str(query["window"])
                    unit = "rows" if "row" in words.split(" of ")[0] else "time"
                    plain = words.split(" of ")[0].removeprefix("the last ").replace(",", "").isdigit()
                    return Reach(int(query["range"]), "number" if plain else unit)
    return None


def typed(text: str, kind: str) -> Any:
    """What was typed for a group column, as its type wants it.

    >>> typed("7", "int"), typed("a, b", "string"), typed("1,2", "bigint")
    (7, ['a', 'b'], [1, 2])
    """
    parts = [part.strip() for part in text.split(",")]
    values = [_number(part) if is_numeric(kind) else part for part in parts if part]
    return values[0] if len(values) == 1 else values


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class LookupPanel:
    """A slider for the window, a field for each group column, and the answer."""

    def __init__(self, service: Service, status: QueryStatus, testid: str = "result-row"):
        self.service, self.status, self.testid = service, status, testid
        self.reach: Reach | None = None
        self.percent = STEPS
        self.where: dict[str, str] = {}
        self.keeps = False
        self.rows = 0

    def build(self) -> None:
        keys = [column for column in self.status.columns if column.role == "key"]
        with box("card section", "section", aria_label="Lookup", data_testid="lookup"):
            with box("bar"):
                Panel("<h2>Lookup</h2>")
                with box("end"):
                    self.keep = Panel(
                        '<input type="checkbox" data-testid="keep-asking"> Ask every second', "label", "lab"
                    )
                    self.keep.on("change", self._keeps, js_handler="(event) => emit(event.target.checked)")
            with box("pad row", style="gap:24px"):
                with box("grow stack tight", style="max-width:520px"):
                    self.length = Panel("The last …", classes="row apart")
                    slider(
                        slider_html(
                            STEPS, 1, STEPS, 1, aria_label="Length of the window", data_testid="lookup-range"
                        ),
                        self._slid,
                        self._slid_to,
                    )
                for column in keys:
                    with box("lab", "label"):
                        Panel(e(column.name), "span")
                        entry(
                            partial(self._where, column.name),
                            type="text",
                            placeholder="all",
                            data_testid=f"where-{column.name}",
                            style="width:140px",
                        ).on("keydown.enter", self.ask)
            self.answer = Panel(skeleton(2), data_testid="answer")

    def _keeps(self, event: Any) -> None:
        self.keeps = bool(event.args)

    def _slid(self, percent: int) -> None:
        self.percent = percent
        self.show_length()

    async def _slid_to(self, percent: int) -> None:
        self.percent = percent
        await self.ask()

    def _where(self, name: str, text: str) -> None:
        self.where[name] = text

    def show_length(self) -> None:
        if self.reach is not None:
            length = self.reach.part(self.percent)
            self.length.set(
                f"<span>The last <b>{e(self.reach.text(length))}</b></span>"
                f'<span class="muted small">of {e(self.reach.text(self.reach.length))}</span>'
            )

    def fetch(self) -> pa.Table:
        """Look the query up as it is asked for now; in a thread."""
        if self.reach is None:
            self.reach = reach_of(self.service.explain(self.status.name, format="json"), self.status.name)
        kinds: Mapping[str, str] = {column.name: column.type for column in self.status.columns}
        where = {name: typed(text, kinds[name]) for name, text in self.where.items() if text.strip()}
        asked = {} if self.reach is None else self.reach.arguments(self.reach.part(self.percent))
        return self.service.lookup(self.status.name, where=where or None, **asked)

    async def ask(self) -> str:
        """Look up and show; returns what is to be said of it."""
        try:
            return self.show(await in_thread(self.fetch))
        except TransomError as error:
            toast(str(error), "bad")
            return ""

    def show(self, found: pa.Table) -> str:
        self.show_length()
        self.rows = found.num_rows
        brief = self.testid == "preview-row"  # beside the streams there is less room
        self.answer.set(result_table(found, self.status.columns, NONE, self.testid, brief))
        if not found.num_rows:
            return NONE
        made = found["made"][-1].as_py() if "made" in found.column_names else None
        at = clock(int(made.timestamp() * 1e6)) if made else ""
        return f"as of {at}, page {number(found['page'][-1].as_py())}, {counted(found.num_rows, 'row')}"
