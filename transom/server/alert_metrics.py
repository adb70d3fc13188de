"""Metrics of alerts and of their sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from transom.api.alert_records import AlertSinkInfo
from transom.server.served_alerts import ServedAlerts


def alert_metrics(alerts: ServedAlerts, limit: int) -> Iterator[Metric]:
    """How many alerts are in which state, and what sinks delivered; `limit` is the number of alerts with metrics."""
    rules = alerts.rules()
    totals: Counter[str] = Counter()
    states = GaugeMetricFamily("transom_alerts", "Groups of alerts by state.", labels=("state",))
    of_alert = GaugeMetricFamily(
        "transom_alert_groups", "Groups of an alert by state.", labels=("alert", "state")
    )
    for number, rule in enumerate(rules):
        for state, count in (("pending", rule.pending), ("firing", rule.firing)):
            totals[state] += count
            if number < limit:
                of_alert.add_metric((rule.name, state), count)
    for state in ("pending", "firing"):
        states.add_metric((state,), totals[state])
    yield states
    yield of_alert
    silences = GaugeMetricFamily("transom_alert_silences", "Silences that have not ended.")
    silences.add_metric((), len(alerts.silences()))
    yield silences
    untracked = GaugeMetricFamily(
        "transom_alert_untracked_groups", "Reports of groups beyond the limit of an alert."
    )
    untracked.add_metric((), sum(rule.untracked for rule in rules))
    yield untracked
    yield from _sink_metrics(alerts.sinks())


def _sink_metrics(sinks: Sequence[AlertSinkInfo]) -> Iterator[Metric]:
    """What sinks delivered; only a webhook has a queue, and gives events up."""
    queued = GaugeMetricFamily("transom_alert_sink_queued", "Events that wait for a sink.", labels=("sink",))
    events = CounterMetricFamily(
        "transom_alert_sink_events", "Events of a sink by outcome.", labels=("sink", "outcome")
    )
    failures = CounterMetricFamily(
        "transom_alert_sink_failures", "Attempts of a sink that failed.", labels=("sink",)
    )
    last = GaugeMetricFamily(
        "transom_alert_sink_last_delivered_timestamp_seconds",
        "When a sink last got events, in seconds since 1970.",
        labels=("sink",),
    )
    for sink in sinks:
        failures.add_metric((sink.name,), sink.failures)
        events.add_metric((sink.name, "delivered"), sink.delivered)
        if sink.last_delivered is not None:
            last.add_metric((sink.name,), sink.last_delivered / 1e6)
        if sink.kind == "webhook":
            queued.add_metric((sink.name,), sink.queued)
            for outcome in ("given_up", "lost"):
                events.add_metric((sink.name, outcome), getattr(sink, outcome))
    yield from (queued, events, failures, last)
