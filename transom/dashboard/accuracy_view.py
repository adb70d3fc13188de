"""The accuracy monitor: how good early results turned out to be, and how aggressively they are told."""

from __future__ import annotations

from nicegui import ui

from transom.api.records import QueryStatus
from transom.dashboard.charts import accuracy_chart, expected
from transom.dashboard.formatting import e, percent
from transom.dashboard.threads import in_thread
from transom.dashboard.widgets import (
    Panel,
    box,
    button,
    empty,
    set_attributes,
    skeleton,
    slider,
    slider_html,
    tile,
    tiles,
    toast,
)
from transom.errors import TransomError
from transom.estimates.monitor import Accuracy, Item, Score
from transom.server.service import Service

MOST = 95  # percent: more would be to tell a window before it begins its last slide


class AccuracyMonitor:
    """The panel of a query that says EMIT EARLY (thesis, figure 6.4)."""

    def __init__(self, service: Service, name: str):
        self.service, self.name = service, name
        self.accuracy: Accuracy | None = None
        self.status: QueryStatus | None = None
        self.moved: float | None = None  # while the slider is moved
        self.told: tuple[float | None] | None = None  # what the engine was told, until it does so
        self._own: float | None = None  # what the query itself says, as far as it was seen
        self._drawn: object = None

    def build(self) -> None:
        with box("card", "section", aria_label="Accuracy of early results", data_testid="accuracy"):
            with box("bar"):
                Panel("<h2>Accuracy of early results</h2>")
                self.count = Panel("", "span", "end small muted")
            self.scores = Panel(skeleton(3))
            with box("pad stack", style="padding-top:8px"):
                self.chart = (
                    ui.echart(accuracy_chart((), None, 0.9), renderer="svg")
                    .classes("chart flat")
                    .props('role=img aria-label="Accuracy by aggressiveness"')
                )
                with box("stack tight"):
                    with box("row apart"):
                        self.words = Panel("")
                        self.back = button(
                            "Reset",
                            self._reset,
                            "small",
                            data_testid="aggressiveness-reset",
                            title="Tell windows as the query itself says",
                        )
                    self.slider = slider(_slider(None), self._moved, self._tune_percent)
                    self.note = Panel("", classes="small muted", data_testid="expected", role="status")

    def _moved(self, value: int) -> None:
        self.moved = value / 100
        self._tell()

    async def _tune_percent(self, value: int) -> None:
        await self._tune(value / 100)

    async def _reset(self) -> None:
        await self._tune(None)

    async def _tune(self, value: float | None) -> None:
        self.moved, self.told = None, (value,)
        self._show_slider()
        try:
            await in_thread(self.service.tune, self.name, value)
        except TransomError as error:
            self.told = None
            toast(str(error), "bad")
            self._show_slider()
            return
        toast(
            "Windows are told as the query says."
            if value is None
            else f"Windows are told at {percent(value, 0)} aggressiveness from now on."
        )

    def show(self, accuracy: Accuracy | None, status: QueryStatus) -> None:
        """Show how good early results were, if that is new, and how they are told now."""
        self.follow(status)
        if accuracy is not None:
            self.accuracy = accuracy
            self.scores.set(_scores(accuracy))
            self.count.set(f"{accuracy.total.pairs:,} became final" if accuracy.total.pairs else "")
        self._show_slider()

    def _item(self) -> Item | None:
        items = self.accuracy.items if self.accuracy else ()
        return next((item for item in items if item.curve), None)

    def _show_slider(self) -> None:
        if self.moved is None and self.status is not None:
            self.slider.set(_slider(self.now(self.status)[0]))
        self._tell()

    def follow(self, status: QueryStatus) -> None:
        """Take over how the engine tells windows, and what it was told if it does so now."""
        self.status = status
        if not status.tuned:
            self._own = status.aggressiveness
        if self.told is not None and self.told[0] == (status.aggressiveness if status.tuned else None):
            self.told = None

    def now(self, status: QueryStatus) -> tuple[float | None, bool]:
        """How windows are told, and whether that was set here: as it was just told, or as it is."""
        if self.told is None:
            return status.aggressiveness, status.tuned
        (told,) = self.told
        return (self._own, False) if told is None else (told, True)

    def _tell(self) -> None:
        """The words around the slider, and the mark on the curve."""
        status, item = self.status, self._item()
        if status is None:
            return
        now, tuned = self.now(status)
        at = now if self.moved is None else self.moved
        own = "set here" if tuned or self.moved is not None else "of the query" if at is not None else ""
        said = "as the query says" if at is None else percent(at, 0)
        self.words.set(f'<b>Aggressiveness {e(said)}</b> <span class="muted small">{own}</span>')
        self.note.set(_expectation(item, at))
        set_attributes(self.back, {"disabled": None if tuned else True})
        curve = item.curve if item else ()
        confidence = self.accuracy.confidence if self.accuracy else 0.9
        drawn = (curve, at)
        if drawn != self._drawn:
            self._drawn = drawn
            _replace(self.chart, accuracy_chart(curve, at, confidence))


def _slider(at: float | None) -> str:
    return slider_html(
        round(100 * (at or 0)), 0, MOST, 5, aria_label="Aggressiveness, percent", data_testid="aggressiveness"
    )


def _replace(chart: ui.echart, options: dict[str, object]) -> None:
    chart.options.clear()
    chart.options.update(options)
    chart.update()


def _expectation(item: Item | None, at: float | None) -> str:
    if item is None:
        return "What to expect is learned from windows that close."
    if at is None:
        return "Windows are told at several points, or as often as the clock says. The slider sets one."
    early = f"{percent(at, 0)} of the last slide before a window's end"
    if at == 0:
        early = "at a window's end"
    found = expected(item.curve, at)
    if found is None:
        return f"Told {early}. Nothing was seen that early yet."
    return (
        f"Told {early}: expect an accuracy of <b>{percent(found.projected)}</b> as projected and "
        f"{percent(found.raw)} as arrived, for {e(item.name)}."
    )


def _scores(accuracy: Accuracy) -> str:
    if not accuracy.total.pairs:
        text = "When windows that were told early close, their estimates are compared with what came."
        return empty("none", "Nothing to compare yet", text, slim=True)
    recent = accuracy.recent if accuracy.recent.pairs else accuracy.total
    held = f"asked for {percent(accuracy.confidence, 0)}"
    aim = f"asked for {percent(accuracy.target, 0)}" if accuracy.target else _all(accuracy.total, "projected")
    of = ", all values" if len(accuracy.items) > 1 else ""
    return tiles(
        [
            tile(f"Projected{of}", percent(recent.projected), aim, data_testid="accuracy-projected"),
            tile("As arrived", percent(recent.raw), _all(accuracy.total, "raw")),
            tile("Worst", percent(recent.worst_projected), f"as arrived {percent(recent.worst_raw)}"),
            tile("In bounds", percent(recent.coverage), held, data_testid="accuracy-coverage"),
        ],
        "pairs inner",
    )


def _all(score: Score, what: str) -> str:
    return f"in all {percent(getattr(score, what))}"
