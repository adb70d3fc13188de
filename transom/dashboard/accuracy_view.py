"""The accuracy monitor: the measured accuracy of early results, and a slider for the point at which to emit them.

The slider has the number of `EMIT EARLY AT 75% OF SLIDE`. A new point is for everybody who reads the query, so it is
asked about before it is set.
"""

from __future__ import annotations

from nicegui import ui

from transom.api.records import QueryStatus
from transom.dashboard.actions import Actions
from transom.dashboard.charts import accuracy_chart, expected_accuracy
from transom.dashboard.display_text import NO_VALUE, esc, format_percent
from transom.dashboard.threads import run_in_thread
from transom.dashboard.widgets import (
    Panel,
    box,
    button,
    empty_state,
    set_attributes,
    skeleton,
    slider,
    slider_html,
    tile,
    tiles,
    toast,
)
from transom.errors import TransomError
from transom.estimates import Accuracy, DecisionReport, ItemAccuracy, Score

# Percent of the slide: before that, a window would be emitted before its last slide begins.
EARLIEST_POINT = 5


class AccuracyMonitor:
    """The panel of a query with EMIT EARLY (thesis, figure 6.4)."""

    def __init__(self, actions: Actions, name: str):
        self.actions, self.name = actions, name
        self.accuracy: Accuracy | None = None
        self.status: QueryStatus | None = None
        self.dragged: float | None = None  # the slider's value while the user drags it
        self.asked: float | None = None  # the aggressiveness that the user is asked about
        self.pending: tuple[float | None] | None = None  # a setting that the engine has not applied yet
        self._query_default: float | None = None  # the aggressiveness in the query's own text
        self._shown_curve: object = None

    def build(self) -> None:
        with box("card", "section", aria_label="Accuracy of early results", data_testid="accuracy"):
            with box("bar"):
                Panel("<h2>Accuracy of early results</h2>")
                self.count = Panel("", "span", "end small muted")
            self.scores = Panel(skeleton(3))
            with box("pad stack", style="padding-top:8px"):
                self.chart = (
                    ui.echart(accuracy_chart((), None), renderer="svg")
                    .classes("chart flat")
                    .props('role=img aria-label="Accuracy by the point of the slide"')
                )
                with box("stack tight"):
                    with box("row apart"):
                        self.setting = Panel("")
                        self.reset_button = button(
                            "Reset",
                            self._reset,
                            "small",
                            data_testid="aggressiveness-reset",
                            data_needs="register",
                            title="Use the query's own setting",
                        )
                    with box("", data_needs="register"):
                        self.slider = slider(_slider(None), self._on_drag, self._on_release)
                    with box("row", data_testid="tune-question", role="alert") as self.question:
                        self.question_text = Panel("", classes="grow small")
                        button("Cancel", self._cancel, "small", data_testid="tune-cancel")
                        button(
                            "Change for everybody", self._confirm, "small main", data_testid="tune-confirm"
                        )
                    self.note = Panel("", classes="small muted", data_testid="expected", role="status")
        self.question.set_visibility(False)

    def _on_drag(self, value: int) -> None:
        self.dragged = aggressiveness_at(value)
        self._show_setting()

    def _on_release(self, value: int) -> None:
        self.asked = self.dragged = aggressiveness_at(value)
        self.question_text.set(
            f"Emit early results of {esc(self.name)} <b>{esc(point_text(self.asked))}</b>, for everybody who reads it?"
        )
        self.question.set_visibility(True)
        self._show_setting()

    def _cancel(self) -> None:
        self.asked = self.dragged = None
        self.question.set_visibility(False)
        self._show_slider()
        if self.status is not None:  # the server's copy of the slider has not changed, the user's has
            percent = slider_percent(self.current(self.status)[0])
            ui.run_javascript(f"getHtmlElement({self.slider.id}).querySelector('input').value = {percent}")

    async def _confirm(self) -> None:
        asked, self.asked = self.asked, None
        self.question.set_visibility(False)
        if asked is not None:
            await self._tune(asked)

    async def _reset(self) -> None:
        self.asked = None
        self.question.set_visibility(False)
        await self._tune(None)

    async def _tune(self, value: float | None) -> None:
        self.dragged, self.pending = None, (value,)
        self._show_slider()
        try:
            await run_in_thread(self.actions.tune, self.name, value)
        except TransomError as error:
            self.pending = None
            toast(str(error), "bad")
            self._show_slider()
            return
        toast(
            "Early results come when the query's text says."
            if value is None
            else f"Early results come {point_text(value)}."
        )

    def show(self, accuracy: Accuracy | None, status: QueryStatus) -> None:
        """Show new accuracy figures, if there are any, and the current setting."""
        self.follow(status)
        if accuracy is not None:
            self.accuracy = accuracy
            self.scores.set(scores_html(accuracy))
            self.count.set(f"{accuracy.total.pairs:,} now final" if accuracy.total.pairs else "")
        self._show_slider()

    def _item_with_curve(self) -> ItemAccuracy | None:
        items = self.accuracy.items if self.accuracy else ()
        return next((item for item in items if item.curve), None)

    def _show_slider(self) -> None:
        if self.dragged is None and self.status is not None:
            self.slider.set(_slider(self.current(self.status)[0]))
        self._show_setting()

    def follow(self, status: QueryStatus) -> None:
        """Adopt the engine's setting, and drop a pending setting that the engine has applied."""
        self.status = status
        if not status.tuned:
            self._query_default = status.aggressiveness
        applied = status.aggressiveness if status.tuned else None
        if self.pending is not None and self.pending[0] == applied:
            self.pending = None

    def current(self, status: QueryStatus) -> tuple[float | None, bool]:
        """The aggressiveness to display and whether the user set it; a pending setting counts already."""
        if self.pending is None:
            return status.aggressiveness, status.tuned
        (pending,) = self.pending
        return (self._query_default, False) if pending is None else (pending, True)

    def _show_setting(self) -> None:
        """Update the text next to the slider, the expected accuracy and the marker in the chart."""
        status, item = self.status, self._item_with_curve()
        if status is None:
            return
        current, tuned = self.current(status)
        aggressiveness = current if self.dragged is None else self.dragged
        if tuned or self.dragged is not None:
            origin = "set here"
        else:
            origin = "" if aggressiveness is None else "from the query"
        value = status.early or "on demand" if aggressiveness is None else point_text(aggressiveness)
        self.setting.set(f'<b>Emit early {esc(value)}</b> <span class="muted small">{origin}</span>')
        self.note.set(expectation_html(item, aggressiveness))
        set_attributes(self.reset_button, {"disabled": None if tuned else True})
        curve = item.curve if item else ()
        if (curve, aggressiveness) != self._shown_curve:
            self._shown_curve = (curve, aggressiveness)
            self.chart.options.clear()
            self.chart.options.update(accuracy_chart(curve, aggressiveness))
            self.chart.update()


def _slider(aggressiveness: float | None) -> str:
    return slider_html(
        slider_percent(aggressiveness),
        EARLIEST_POINT,
        100,
        5,
        aria_label="Emit early at this percentage of the slide",
        data_testid="aggressiveness",
    )


def slider_percent(aggressiveness: float | None) -> int:
    """The value of the slider; of a query that emits at several points, or on a clock, its end."""
    return 100 if aggressiveness is None else percent_of_slide(aggressiveness)


def percent_of_slide(aggressiveness: float) -> int:
    """The point of the slide, as `EMIT EARLY AT` has it, at which an aggressiveness emits.

    >>> percent_of_slide(0.25)
    75
    """
    return round(100 * (1 - aggressiveness))


def aggressiveness_at(percent: int) -> float:
    """The aggressiveness that emits at a point of the slide.

    >>> aggressiveness_at(75)
    0.25
    """
    return round(1 - percent / 100, 9)


def point_text(aggressiveness: float) -> str:
    """When an aggressiveness emits, in the words of SQL.

    >>> point_text(0.25)
    'AT 75% OF SLIDE'
    """
    return f"AT {percent_of_slide(aggressiveness)}% OF SLIDE"


def expectation_html(item: ItemAccuracy | None, aggressiveness: float | None) -> str:
    """How accurate early results of an item are expected to be, as HTML."""
    if item is None:
        return "The expected accuracy appears once windows have closed."
    if aggressiveness is None:
        return "The query emits at several points, or on a clock. Move the slider to emit at a single point."
    early = f"after {percent_of_slide(aggressiveness)}% of a window's last slide"
    if aggressiveness == 0:
        early = "when a window ends"
    expected = expected_accuracy(item.curve, aggressiveness)
    if expected is None:
        return f"Emitted {early}. No result has been observed that early yet."
    return (
        f"Emitted {early}. Expected accuracy of {esc(item.name)}: "
        f"<b>{format_percent(expected.projected)}</b> projected, {format_percent(expected.raw)} as received."
    )


def scores_html(accuracy: Accuracy) -> str:
    """How close early estimates came to final values, and what became of early decisions, as HTML."""
    if accuracy.decisions is not None:
        return _decision_tiles(accuracy.decisions)
    if not accuracy.total.pairs:
        text = "When a window closes, its early estimates are compared with its final values."
        return empty_state("none", "Nothing to compare yet", text, slim=True)
    compared = [item for item in accuracy.items if item.total.pairs]
    if len(compared) < 2:
        return _score_tiles(accuracy, accuracy.total, accuracy.recent, "")
    parts = []
    for i, item in enumerate(compared):  # an average over columns of different meaning would say nothing
        suffix = f"-{i}" if i else ""
        parts.append(f'<h3 class="small">{esc(item.name)}</h3>')
        parts.append(_score_tiles(accuracy, item.total, item.recent, suffix))
    return "".join(parts)


def _score_tiles(accuracy: Accuracy, total: Score, recent: Score, suffix: str) -> str:
    """The scores of one column of results; the suffix makes the ids of its tiles different from those of others."""
    recent = recent if recent.pairs else total
    target = (
        f"target {format_percent(accuracy.target, 0)}" if accuracy.target else _overall(total, "projected")
    )
    return tiles(
        [
            tile(
                "Projected",
                format_percent(recent.projected),
                target,
                data_testid=f"accuracy-projected{suffix}",
            ),
            tile("As received", format_percent(recent.raw), _overall(total, "raw")),
            _worst_tile(recent),
            tile(
                "Within interval",
                format_percent(recent.coverage),
                f"target {format_percent(accuracy.confidence, 0)}",
                data_testid=f"accuracy-coverage{suffix}",
            ),
        ],
        "pairs inner",
    )


def _decision_tiles(report: DecisionReport) -> str:
    """The achieved rates of a query WITH CONFIDENCE: those of the last decisions, with those of all below."""
    total, recent = report.total, report.recent
    wanted = format_percent(1 - report.confidence, 0)
    counts = f"{total.confirmed:,} confirmed, {total.withdrawn:,} withdrawn"
    lead = NO_VALUE if recent.lead_slides != recent.lead_slides else f"{recent.lead_slides:.2f} slides"
    return tiles(
        [
            tile(
                "False alarms",
                format_percent(recent.false_alarm_rate),
                f"at most {wanted}; {format_percent(total.false_alarm_rate)} overall",
                data_testid="decisions-false-alarms",
            ),
            tile(
                "Missed",
                format_percent(recent.miss_rate),
                f"{format_percent(total.miss_rate)} overall",
                data_testid="decisions-missed",
            ),
            tile("Ahead of the window's end", lead, "confirmed decisions, on average"),
            tile("Announced", f"{report.open:,} open", counts),
        ],
        "pairs inner",
    )


def _worst_tile(recent: Score) -> str:
    """The worst accuracy. Of values near zero it is often 0, which only says that they were off by their size."""
    if recent.worst_projected == 0:
        return tile("Worst", NO_VALUE, "off by its own size or more: near zero?")
    return tile(
        "Worst", format_percent(recent.worst_projected), f"as received {format_percent(recent.worst_raw)}"
    )


def _overall(score: Score, name: str) -> str:
    return f"overall {format_percent(getattr(score, name))}"
