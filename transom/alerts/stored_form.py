"""Rules, silences and states of alerts as JSON, with field names that are spelled out here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.alerts.alerts_state import AlertsState, RuleState
from transom.alerts.machine import Firing, GroupState, WindowReport
from transom.elements import AlertRule, AlertTerms, Matcher, Silence

AlertJson = dict[str, Any]


def encode_terms(terms: AlertTerms) -> AlertJson:
    return {
        "for_windows": terms.windows,
        "resolve_after": terms.resolve_after,
        "repeat": terms.repeat,
        "labels": dict(terms.labels),
        "annotations": dict(terms.annotations),
        "sinks": None if terms.sinks is None else list(terms.sinks),
    }


def decode_terms(stored: Mapping[str, Any]) -> AlertTerms:
    return AlertTerms(
        stored["for_windows"],
        stored["resolve_after"],
        stored["repeat"],
        tuple(stored["labels"].items()),
        tuple(stored["annotations"].items()),
        None if stored["sinks"] is None else tuple(stored["sinks"]),
    )


def encode_rule(rule: AlertRule) -> AlertJson:
    return {"name": rule.name, "query": rule.query, **encode_terms(rule.terms)}


def decode_rule(stored: Mapping[str, Any]) -> AlertRule:
    return AlertRule(stored["name"], stored["query"], decode_terms(stored))


def encode_silence(silence: Silence) -> AlertJson:
    return {
        "id": silence.id,
        "matchers": [{"name": each.name, "op": each.op, "value": each.value} for each in silence.matchers],
        "until": silence.until,
        "created": silence.created,
        "author": silence.author,
        "comment": silence.comment,
    }


def decode_silence(stored: Mapping[str, Any]) -> Silence:
    return Silence(
        stored["id"],
        tuple(Matcher(each["name"], each["op"], each["value"]) for each in stored["matchers"]),
        stored["until"],
        stored["created"],
        stored["author"],
        stored["comment"],
    )


def encode_alerts(state: AlertsState) -> AlertJson:
    """The state of all alerts."""
    return {
        "rules": [encode_rule(rule) for rule in state.rules.values()],
        "silences": [encode_silence(silence) for silence in state.silences],
        "states": {name: _encode_rule_state(each) for name, each in state.states.items()},
    }


def decode_alerts(stored: Mapping[str, Any]) -> AlertsState:
    """The state that `encode_alerts` stored."""
    rules = map(decode_rule, stored["rules"])
    return AlertsState(
        {rule.name: rule for rule in rules},
        tuple(map(decode_silence, stored["silences"])),
        {name: _decode_rule_state(each) for name, each in stored["states"].items()},
    )


def _encode_rule_state(state: RuleState) -> AlertJson:
    return {
        "query": state.query,
        "identity": state.identity,
        "untracked": state.untracked,
        "groups": {key: _encode_group(group) for key, group in state.groups.items()},
    }


def _decode_rule_state(stored: Mapping[str, Any]) -> RuleState:
    groups = {key: _decode_group(group) for key, group in stored["groups"].items()}
    return RuleState(stored["query"], stored["identity"], groups, stored["untracked"])


def _encode_group(group: GroupState) -> AlertJson:
    firing = group.firing
    return {
        "evaluated": group.evaluated,
        "held": group.held,
        "missed": group.missed,
        "values": dict(group.values),
        "firing": None
        if firing is None
        else {
            "started": firing.started,
            "since": firing.since,
            "early": firing.is_early,
            "events": firing.events,
            "reported": firing.reported,
            "notified": firing.is_notified,
        },
        "ahead": [_encode_report(report) for report in group.ahead],
        "announced": [_encode_report(report) for report in group.announced],
    }


def _decode_group(stored: Mapping[str, Any]) -> GroupState:
    firing = stored["firing"]
    return GroupState(
        stored["evaluated"],
        stored["held"],
        stored["missed"],
        None
        if firing is None
        else Firing(
            firing["started"],
            firing["since"],
            firing["early"],
            firing["events"],
            firing["reported"],
            firing["notified"],
        ),
        stored["values"],
        tuple(_decode_report(report, False) for report in stored["ahead"]),
        tuple(_decode_report(report, True) for report in stored["announced"]),
    )


def _encode_report(report: WindowReport) -> AlertJson:
    return {"window": report.window, "values": dict(report.values), "holds": report.holds}


def _decode_report(stored: Mapping[str, Any], is_early: bool) -> WindowReport:
    return WindowReport(stored["window"], stored["values"], stored["holds"], is_early)
