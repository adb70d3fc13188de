"""Alerts in a batch: control takes effect, the batch's results are evaluated, and the events are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from transom.alerts.alerts_state import AlertsState
from transom.alerts.evaluation import AlertMoment, RuleInput, evaluate_alerts
from transom.alerts.events import AlertEvent
from transom.elements import (
    AlertRule,
    Control,
    CreateAlert,
    CreateSilence,
    DropAlert,
    EndSilence,
    Rename,
)
from transom.plan.compiled_query import CompiledQuery
from transom.results.result_rows import Results
from transom.runtime.alert_windows import RuleInputs, instant_text, text_value, times_of_windows
from transom.runtime.registry import Registry
from transom.sql.alert_checks import alert_obstacle
from transom.sql.preference_query import PreferenceQuery
from transom.state.batch_intent import BatchIntent
from transom.state.state import State

IDLE = "the stream is idle"


def alerts_after(
    intent: BatchIntent,
    committed: Registry,
    registry: Registry,
    state: State,
    results: Results,
) -> tuple[AlertsState, Sequence[AlertEvent]]:
    """The state of all alerts after a batch, and its events.

    `state` is the state after the batch, with the alerts as they were before it. `committed` has the queries as they
    were before the batch, and `registry` as they are in it.
    """
    before = state.alerts
    if not (before or registry.alert_terms() or _has_alert_control(intent.control)):
        return before, ()
    alerts = _controlled(before, intent.control, registry)
    rules_before, rules = alert_rules(before.rules, committed), alert_rules(alerts.rules, registry)
    alerts = _with_new_names(alerts, intent.control)
    old_names = {to: name for name, to in _renamed(intent.control).items()}
    inputs: list[RuleInput] = []
    brought = RuleInputs(state, results)
    for name, kept in alerts.states.items():
        reason = _why_over(name, kept.identity, kept.query, rules, registry)
        if reason is not None:
            old = rules_before.get(name) or rules_before.get(old_names.get(name, name))
            query = None if old is None else _query(committed, old.query)
            if old is not None and query is not None:
                times = times_of_windows(query.query)
                inputs.append(
                    RuleInput(replace(old, name=name), kept.identity, times, ended=reason, is_over=True)
                )
            else:
                alerts = replace(alerts, states={n: s for n, s in alerts.states.items() if n != name})
    for rule in rules.values():
        if rule.name not in alerts.states and rule.query not in results:
            continue
        entry, query = registry.entries[rule.query], _query(registry, rule.query)
        if query is None or not entry.takes_part or alert_obstacle(query.query) is not None:
            continue
        ended = IDLE if intent.idle and _streams(query, registry) <= set(intent.idle) else None
        inputs.append(brought.of(rule, query, entry.identity, ended))
    moment = AlertMoment(intent.batch_id, intent.clock, instant_text(intent.clock))
    return evaluate_alerts(alerts, inputs, moment, text_value)


def alert_rules(created: Mapping[str, AlertRule], registry: Registry) -> dict[str, AlertRule]:
    """All alerts by name: those in the texts of queries, and those that were created beside them."""
    written = {name: AlertRule(name, name, terms) for name, terms in registry.alert_terms().items()}
    return {**written, **{name: rule for name, rule in created.items() if rule.query in registry}}


def _has_alert_control(control: Iterable[Control]) -> bool:
    return any(isinstance(each, CreateAlert | DropAlert | CreateSilence | EndSilence) for each in control)


def _controlled(alerts: AlertsState, control: Iterable[Control], registry: Registry) -> AlertsState:
    """The alerts and silences after the control of a batch; an alert goes with its query."""
    rules, silences = dict(alerts.rules), {silence.id: silence for silence in alerts.silences}
    for element in control:
        match element:
            case CreateAlert(rule):
                rules[rule.name] = rule
            case DropAlert(name):
                rules.pop(name, None)
            case CreateSilence(silence):
                silences[silence.id] = silence
            case EndSilence(id):
                silences.pop(id, None)
            case Rename(name, to):
                rules = {
                    each: replace(rule, query=to) if rule.query == name else rule
                    for each, rule in rules.items()
                }
    living = {name: rule for name, rule in rules.items() if rule.query in registry}
    kept = tuple(silences.values())
    if living == alerts.rules and kept == alerts.silences:
        return alerts
    return replace(alerts, rules=living, silences=kept)


def _renamed(control: Iterable[Control]) -> dict[str, str]:
    return {element.name: element.to for element in control if isinstance(element, Rename)}


def _with_new_names(alerts: AlertsState, control: Iterable[Control]) -> AlertsState:
    """The groups follow queries that get another name, and so do the names of alerts in their texts."""
    for element in control:
        if not isinstance(element, Rename):
            continue
        name, to = element.name, element.to
        states = {}
        for alert, each in alerts.states.items():
            follows = each.query == name
            own = to if follows and alert == name and alert not in alerts.rules else alert
            states[own] = replace(each, query=to) if follows else each
        if states != alerts.states:
            alerts = replace(alerts, states=states)
    return alerts


def _why_over(
    name: str, identity: str, query: str, rules: Mapping[str, AlertRule], registry: Registry
) -> str | None:
    """Why the groups of an alert are none any more; None if they go on."""
    if query not in registry:
        return "the query was dropped"
    rule = rules.get(name)
    if rule is None:
        return "the alert was dropped"
    entry, bound = registry.entries[rule.query], _query(registry, rule.query)
    if entry.identity != identity:
        return "the query is another one now"
    if bound is not None and (obstacle := alert_obstacle(bound.query)) is not None:
        return obstacle
    return None


def _query(registry: Registry, name: str) -> CompiledQuery | None:
    """A registered window query, if it is bound."""
    entry = registry.entries.get(name)
    return entry.executable if entry is not None and isinstance(entry.executable, CompiledQuery) else None


def _streams(query: CompiledQuery, registry: Registry) -> set[str]:
    """The streams that a query reads, directly or through the results of other queries."""
    streams, waiting, seen = set[str](), list(query.query.streams), set[str]()
    while waiting:
        name = waiting.pop()
        preferred = registry.of_kind(PreferenceQuery).get(name)
        if preferred is not None:
            waiting += preferred.streams
            continue
        inner = _query(registry, name)
        if inner is None or name in seen:
            streams.add(name)
            continue
        seen.add(name)
        waiting += inner.query.streams
    return streams
