"""The states of one group of one alert: pending, firing, and inactive, which has no state at all.

FOR 3 WINDOWS, RESOLVE AFTER 2 WINDOWS; x is a window for which HAVING holds, . one for which it does not:

    window      1  2  3  4  5  6  7  8  9
    HAVING      x  x  x  x  .  x  .  .  x
    state       pending |  firing      |  pending
    event             firing        resolved

Windows are evaluated in the order of their ids, each once, when it and all windows before it are closed for the group.
HAVING does not hold for a window without a result row. An early result that announces that it will hold counts until
its window closes. An alert that fires because of announcements is early: final results confirm or withdraw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from transom.elements import AlertTerms

JsonValues = Mapping[str, Any]  # of a result row, as JSON has them


class AlertChange(StrEnum):
    """A change of an alert that is reported."""

    FIRING = "firing"
    CONFIRMED = "confirmed"  # final results agree with the early ones that made it fire
    WITHDRAWN = "withdrawn"  # they do not
    REMINDER = "reminder"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class WindowReport:
    """A result of one group: whether the condition holds for a window, and the values of the row.

    An early report announces that it will hold, or takes that back; the window is open.
    """

    window: int  # its id
    values: JsonValues = field(default_factory=dict)
    holds: bool = True
    is_early: bool = False


@dataclass(frozen=True)
class Firing:
    """A firing alert: the window at which it began to fire, and what was reported of it.

    `is_notified` is whether its events were delivered: they are not while it is silenced.
    """

    started: int  # the id of the window
    since: int  # the id of the first window of the run that made it fire
    is_early: bool = False
    events: int = 1  # reported so far
    reported: int = 0  # the end of the window of the last firing event or reminder
    is_notified: bool = True


@dataclass(frozen=True)
class GroupState:
    """One group of an alert.

    Windows up to `evaluated` were evaluated; the condition held for the last `held` of them, or did not for the last
    `missed` since it fires. `ahead` are final results of windows that wait for earlier ones to close, and `announced`
    early results of open windows.
    """

    evaluated: int
    held: int = 0
    missed: int = 0
    firing: Firing | None = None
    values: JsonValues = field(default_factory=dict)  # of the newest row
    ahead: tuple[WindowReport, ...] = ()
    announced: tuple[WindowReport, ...] = ()

    @property
    def is_inactive(self) -> bool:
        """Whether nothing has to be remembered of the group."""
        return self.firing is None and not (self.held or self.ahead or self.announced)

    @property
    def since(self) -> int | None:
        """The id of the first window of the run that it is in; None if the condition does not hold."""
        if self.firing is not None:
            return self.firing.since
        if self.held:
            return self.evaluated - self.held + 1
        waiting = [report.window for report in (*self.announced, *self.ahead)]
        return min(waiting, default=None)


@dataclass(frozen=True)
class Transition:
    """An event of one group before it has a name: the window that caused it, and the alert as it was then."""

    change: AlertChange
    window: int
    firing: Firing
    values: JsonValues
    reason: str | None = None


class _Group:
    """One group while its windows are evaluated."""

    def __init__(self, terms: AlertTerms, state: GroupState, end_of: Callable[[int], int]):
        self.terms, self.end_of = terms, end_of
        self.evaluated, self.held, self.missed = state.evaluated, state.held, state.missed
        self.firing, self.values = state.firing, state.values
        self.announced = {report.window: report for report in state.announced}
        self.transitions: list[Transition] = []

    def evaluate(self, finals: Mapping[int, WindowReport], closed_below: int) -> None:
        """Evaluate the windows that are closed: those with a row, those that were announced, and all between them."""
        known = {window for window in (*finals, *self.announced) if self.evaluated < window < closed_below}
        for window in sorted(known):
            self._miss(self.evaluated + 1, window)
            report = finals.get(window)
            self.announced.pop(window, None)
            if report is not None and report.holds:
                self._hold(window, report.values)
            else:
                self._miss(window, window + 1)
            self._withdraw(window)
        self._miss(self.evaluated + 1, closed_below)

    def _hold(self, window: int, values: JsonValues) -> None:
        self.evaluated, self.values, self.missed = window, values, 0
        self.held += 1
        firing = self.firing
        if firing is not None and not firing.is_early:
            self._remind(window)
        elif self.held >= self.terms.windows:
            since = window - self.held + 1
            if firing is None:
                self._begin(Firing(window, since, reported=self.end_of(window)), window, values)
            else:
                self._report(AlertChange.CONFIRMED, window, replace(firing, is_early=False, since=since))

    def _miss(self, first: int, stop: int) -> None:
        """Evaluate windows from `first` to before `stop`, for which the condition does not hold."""
        if first >= stop:
            return
        self.held = 0
        if self.firing is not None and not self.firing.is_early:
            for window in range(first, stop):
                self.missed += 1
                if self.missed >= self.terms.resolve_after:
                    self._end(AlertChange.RESOLVED, window)
                    break
                self._remind(window)
        self.evaluated = stop - 1

    def _remind(self, window: int) -> None:
        firing, repeat = self.firing, self.terms.repeat
        assert firing is not None
        end = self.end_of(window)
        if repeat is not None and end - firing.reported >= repeat:
            self._report(AlertChange.REMINDER, window, replace(firing, reported=end))

    def _withdraw(self, window: int) -> None:
        if self.firing is not None and self.firing.is_early and self._early_run() is None:
            self._end(AlertChange.WITHDRAWN, window)

    def announce(self, reports: Sequence[WindowReport]) -> None:
        """Take in early reports of open windows; the alert may fire early, or be withdrawn."""
        for report in reports:
            if report.window <= self.evaluated:
                continue
            if report.holds:
                self.announced[report.window] = report
            else:
                self.announced.pop(report.window, None)
                self._withdraw(report.window)
        run = self._early_run() if self.firing is None else None
        if run is not None:
            since, window = run
            values = self.announced[window].values
            self._begin(Firing(window, since, True, reported=self.end_of(window)), window, values)

    def _early_run(self) -> tuple[int, int] | None:
        """The first and the last window of a run that would make it fire if all announcements came true."""
        first, last = self.evaluated - self.held + 1, self.evaluated
        for window in sorted(self.announced):
            if window != last + 1:
                first = window
            last = window
            if last - first + 1 >= self.terms.windows:
                return first, last
        return None

    def end_of_stream(self, reason: str) -> None:
        """Forget what was held, and resolve the alert."""
        if self.firing is not None:
            change = AlertChange.WITHDRAWN if self.firing.is_early else AlertChange.RESOLVED
            self._end(change, self.evaluated, reason)
        self.held, self.announced = 0, {}

    def _begin(self, firing: Firing, window: int, values: JsonValues) -> None:
        self.firing, self.missed, self.values = firing, 0, values
        self.transitions.append(Transition(AlertChange.FIRING, window, firing, values))

    def _report(self, change: AlertChange, window: int, firing: Firing) -> None:
        self.firing = replace(firing, events=firing.events + 1)
        self.transitions.append(Transition(change, window, self.firing, self.values))

    def _end(self, change: AlertChange, window: int, reason: str | None = None) -> None:
        assert self.firing is not None
        ended = replace(self.firing, events=self.firing.events + 1)
        self.transitions.append(Transition(change, window, ended, self.values, reason))
        self.firing, self.missed = None, 0


def advance(
    terms: AlertTerms,
    state: GroupState | None,
    reports: Sequence[WindowReport],
    closed_below: int,
    end_of: Callable[[int], int],
    ended: str | None = None,
) -> tuple[GroupState | None, list[Transition]]:
    """The state of a group after some reports, and its transitions in order.

    Windows below `closed_below` are closed for the group, and `end_of` is where a window ends. `ended` is the reason
    why no more windows come for now, if that is so.
    """
    if state is None:
        if not reports:
            return None, []
        # Nothing was reported of earlier windows, so the condition did not hold for them.
        state = GroupState(min(closed_below, min(report.window for report in reports)) - 1)
    finals = {report.window: report for report in _finals(state, reports)}
    group = _Group(terms, state, end_of)
    group.evaluate(finals, closed_below)
    group.announce([report for report in reports if report.is_early])
    if ended is not None:
        group.end_of_stream(ended)
    ahead = tuple(finals[window] for window in sorted(finals) if window > group.evaluated)
    after = GroupState(
        group.evaluated,
        group.held,
        group.missed,
        group.firing,
        group.values,
        ahead,
        tuple(group.announced[window] for window in sorted(group.announced)),
    )
    return (None if after.is_inactive else after), group.transitions


def _finals(state: GroupState, reports: Sequence[WindowReport]) -> Iterator[WindowReport]:
    """The final reports of windows that were not evaluated yet."""
    for report in (*state.ahead, *reports):
        if not report.is_early and report.window > state.evaluated:
            yield report
