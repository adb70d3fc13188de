"""One batch for all alerts: the reports of result rows, to the next state and the batch's events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transom.alerts.alerts_state import AlertsState, RuleState
from transom.alerts.events import ActiveAlert, AlertEvent, alert_id
from transom.alerts.group_reports import GroupReports
from transom.alerts.machine import AlertChange, GroupState, Transition, advance
from transom.alerts.silences import ALERT_NAME, silent_alerts
from transom.alerts.templates import LONGEST_ALERT_TEXT, filled_template
from transom.elements import AlertRule

MOST_ALERT_GROUPS = 10_000  # of an alert that are pending or firing; further groups are counted, not tracked
ALL_ALERT_GROUPS = 50_000  # of all alerts together


@dataclass(frozen=True)
class WindowTimes:
    """Where the windows of a query start and end, by their ids, and how a time is written."""

    start_of: Callable[[int], int]
    end_of: Callable[[int], int]
    written: Callable[[int], Any]


@dataclass(frozen=True)
class RuleInput:
    """What a batch brings to one alert: reports by group, and the id below which a group's windows are closed.

    A group is its values as JSON text. `closed_for_all` is that id if it is the same for all groups. `ended` is why no
    more windows come for now. With `is_over`, that is for good: the query or the definition of the alert is gone.
    """

    rule: AlertRule
    identity: str
    times: WindowTimes
    reports: GroupReports = field(default_factory=GroupReports.none)
    closed_below: Callable[[str], int] = lambda group: 0
    closed_for_all: int | None = None
    ended: str | None = None
    is_over: bool = False


@dataclass(frozen=True)
class AlertMoment:
    """The batch, and its reading of the clock."""

    batch_id: int
    clock: int
    made: str  # the clock as text


def group_key(group: Mapping[str, Any]) -> str:
    """A group by its values, as JSON."""
    return json.dumps(group, ensure_ascii=False)


def evaluate_alerts(
    state: AlertsState,
    inputs: Sequence[RuleInput],
    moment: AlertMoment,
    text_of: Callable[[Any], str],
    most_groups: int = MOST_ALERT_GROUPS,
    all_groups: int = ALL_ALERT_GROUPS,
) -> tuple[AlertsState, list[AlertEvent]]:
    """The state after a batch, and its events in the order of their windows.

    Alerts without an input keep their state. The same arguments always make the same events.
    """
    silences = tuple(silence for silence in state.silences if moment.clock < silence.until)
    states = dict(state.states)
    events: list[tuple[int, AlertEvent]] = []
    wanted = {name: len(each.groups) for name, each in states.items()}
    for given in inputs:
        before = states.get(given.rule.name)
        wanted[given.rule.name] = len(given.reports) + (0 if before is None else _missing(before, given))
    most_groups = min(most_groups, fair_share(list(wanted.values()), all_groups))
    evaluations: list[_Evaluation] = []
    for given in inputs:
        before = states.get(given.rule.name)
        if before is not None and before.identity != given.identity and not given.is_over:
            before = None
        evaluations.append(_Evaluation(given, before, moment, text_of, most_groups))
        if given.is_over:
            del states[given.rule.name]  # an input of a new alert with this name comes later
    texts = [texts for evaluation in evaluations for texts in evaluation.texts]
    silent = iter(silent_alerts(silences, texts, moment.clock).tolist())
    for evaluation in evaluations:
        name, after = evaluation.rule.name, evaluation.reported(silent)
        events += evaluation.events
        if evaluation.given.is_over:
            continue
        if not (after.groups or after.untracked):
            states.pop(name, None)
        elif after != states.get(name):
            states[name] = after
    unchanged = states == dict(state.states)
    ordered = sorted(
        events, key=lambda each: (each[0], each[1].alert, group_key(each[1].group), each[1].event_id)
    )
    if unchanged and silences == state.silences:
        return state, [event for _, event in ordered]
    return replace(state, silences=silences, states=states), [event for _, event in ordered]


def _missing(before: RuleState, given: RuleInput) -> int:
    """How many tracked groups a batch has no reports of."""
    return sum(key not in given.reports for key in before.groups)


def fair_share(wanted: Sequence[int], total: int) -> int:
    """The most that each may have of a total, so that those that want little get all of it.

    >>> fair_share([10, 500, 900], 1000), fair_share([10, 500], 1000)
    (495, 1000)
    """
    left = total
    for place, amount in enumerate(sorted(wanted)):
        share = left // (len(wanted) - place)
        if amount > share:
            return share
        left -= amount
    return total


@dataclass(frozen=True)
class _Advanced:
    """A group after the windows of a batch, and what happened to it; `was_notified` is of its state before."""

    key: str
    after: GroupState | None
    transitions: Sequence[Transition]
    was_notified: bool

    @property
    def is_reported(self) -> bool:
        """Whether there may be events of it."""
        return bool(self.transitions) or not self.was_notified


class _Evaluation:
    """The evaluation of one alert in one batch: its groups advance, and then their events are reported."""

    def __init__(
        self,
        given: RuleInput,
        before: RuleState | None,
        moment: AlertMoment,
        text_of: Callable[[Any], str],
        most_groups: int,
    ):
        self.given, self.rule, self.moment = given, given.rule, moment
        self.before = before or RuleState(given.rule.query, given.identity)
        self.text_of, self.most_groups = text_of, most_groups
        self.events: list[tuple[int, AlertEvent]] = []
        self._advance_all()

    def _advance_all(self) -> None:
        before, given = self.before.groups, self.given
        given.reports.read(before)
        advanced = [self._advanced(key, tracked) for key, tracked in before.items()]
        tracked = sum(each.after is not None for each in advanced)
        new, keys = given.reports.new_groups(before, self.rule.terms.windows, given.closed_for_all)
        while tracked < self.most_groups and (key := next(keys, None)) is not None:
            advanced.append(self._advanced(key, None))
            # One that fires and is resolved in the same batch has events, and costs as much as one that goes on.
            tracked += advanced[-1].after is not None or bool(advanced[-1].transitions)
        self._untracked = self.before.untracked + new - (len(advanced) - len(before))
        self._groups = {each.key: each.after for each in advanced}
        self._to_report = [(each, json.loads(each.key)) for each in advanced if each.is_reported]

    @property
    def texts(self) -> list[dict[str, str]]:
        """What matchers of silences compare, of each group that may have events."""
        return [alert_texts(self.rule, group, self.text_of) for _, group in self._to_report]

    def reported(self, silent: Iterator[bool]) -> RuleState:
        """Report the events; the state after the batch. `silent` says of each of these groups whether it is."""
        groups = self._groups
        for each, group in self._to_report:
            groups[each.key] = self._reported(each, group, next(silent))
        left = {key: after for key, after in groups.items() if after is not None}
        return RuleState(self.rule.query, self.given.identity, left, self._untracked)

    def _advanced(self, key: str, tracked: GroupState | None) -> _Advanced:
        given = self.given
        if given.is_over:  # nothing is known of its windows any more
            assert tracked is not None
            closed_below = tracked.evaluated + 1
        else:
            closed_below = given.closed_below(key)
        after, transitions = advance(
            self.rule.terms,
            tracked,
            given.reports.get(key, ()),
            closed_below,
            given.times.end_of,
            given.ended,
        )
        was_notified = tracked is None or tracked.firing is None or tracked.firing.is_notified
        return _Advanced(key, after, transitions, was_notified)

    def _reported(self, advanced: _Advanced, group: Mapping[str, Any], is_silent: bool) -> GroupState | None:
        """Report the events of a group; its state after them."""
        after, was_notified = advanced.after, advanced.was_notified
        for transition in advanced.transitions:
            if transition.change is AlertChange.FIRING:
                was_notified = not is_silent
            elif transition.change in (AlertChange.CONFIRMED, AlertChange.REMINDER):
                was_notified = was_notified or not is_silent
            self._add(group, transition, self._is_withheld(transition.change, is_silent, was_notified))
        if after is None or after.firing is None:
            return after
        firing = replace(after.firing, is_notified=was_notified)
        if not was_notified and not is_silent:
            firing = replace(firing, is_notified=True, events=firing.events + 1)
            window = after.evaluated
            late = Transition(AlertChange.FIRING, window, firing, after.values, "the silence ended")
            self._add(group, late, False)
        return after if firing == after.firing else replace(after, firing=firing)

    @staticmethod
    def _is_withheld(change: AlertChange, is_silent: bool, was_notified: bool) -> bool:
        """Whether an event is silenced: the end of an alert follows its beginning, so that receivers can close it."""
        if change in (AlertChange.RESOLVED, AlertChange.WITHDRAWN):
            return not was_notified
        return is_silent

    def _add(self, group: Mapping[str, Any], transition: Transition, is_silenced: bool) -> None:
        times, firing = self.given.times, transition.firing
        id = alert_id(self.rule.name, group, firing.started)
        window = transition.window
        values = {**group, **transition.values}
        event = AlertEvent(
            f"{id}-{firing.events}",
            id,
            self.rule.name,
            self.rule.query,
            transition.change.value,
            group,
            transition.values,
            dict(self.rule.terms.labels),
            annotations_of(self.rule, values, self.text_of),
            firing.is_early or transition.change is AlertChange.WITHDRAWN,
            is_silenced,
            times.written(times.end_of(firing.since)),
            times.written(times.end_of(firing.started)),
            times.written(times.start_of(window)),
            times.written(times.end_of(window)),
            self.moment.batch_id,
            self.moment.made,
            transition.reason,
            self.rule.terms.sinks,
        )
        self.events.append((window, event))


def alert_texts(rule: AlertRule, group: Mapping[str, Any], text_of: Callable[[Any], str]) -> dict[str, str]:
    """What matchers of silences compare of an alert for one group."""
    named = {name: text_of(value) for name, value in group.items()}
    return {**dict(rule.terms.labels), **named, ALERT_NAME: rule.name}


def annotations_of(
    rule: AlertRule, values: Mapping[str, Any], text_of: Callable[[Any], str]
) -> dict[str, str]:
    """The annotations of an alert with the values of a result; together they have a largest length."""
    filled, left = dict[str, str](), LONGEST_ALERT_TEXT
    for name, text in rule.terms.annotations:
        filled[name] = filled_template(text, values, text_of, left)
        left -= len(filled[name])
    return filled


def active_alerts(
    state: AlertsState,
    rules: Mapping[str, tuple[AlertRule, WindowTimes]],
    clock: int,
    text_of: Callable[[Any], str],
) -> Iterator[ActiveAlert]:
    """The groups that are firing or pending, of the alerts whose rules are given."""
    listed = [
        (name, json.loads(key), tracked)
        for name, rule_state in state.states.items()
        if name in rules
        for key, tracked in rule_state.groups.items()
    ]
    texts = [alert_texts(rules[name][0], group, text_of) for name, group, _ in listed]
    silent = silent_alerts(state.silences, texts, clock).tolist()
    for (name, group, tracked), is_silent in zip(listed, silent, strict=True):
        rule, times = rules[name]
        firing, since = tracked.firing, tracked.since
        waiting = (*tracked.announced, *tracked.ahead)
        values = tracked.values or (waiting[0].values if waiting else {})
        yield ActiveAlert(
            None if firing is None else alert_id(name, group, firing.started),
            name,
            rule.query,
            "pending" if firing is None else "firing",
            group,
            values,
            dict(rule.terms.labels),
            annotations_of(rule, {**group, **values}, text_of),
            firing.is_early if firing is not None else not tracked.held and bool(tracked.announced),
            is_silent,
            None if since is None else times.written(times.end_of(since)),
            None if firing is None else times.written(times.end_of(firing.started)),
        )
