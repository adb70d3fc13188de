"""Prometheus metrics of a service, computed at each scrape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.api.records import QueryStatus, ServiceStatus, StreamStatus
from transom.estimates import Accuracy, Score
from transom.runtime.progress import OnDemand, Progress, PromisingProgress
from transom.server.alert_metrics import alert_metrics
from transom.server.batch_history import BATCH_TIME_BOUNDS, BatchTimes
from transom.server.service import Service

METRIC_FATES = ("counted", "unwanted", "late", "rejected", "shed")
STATES = ("starting", "running", "stopped", "failed")
RequestCounts = Counter[tuple[str, str, str]]  # by method, route and status


class RequestCounter:
    """A middleware that counts requests by method, route and status."""

    def __init__(self, app: ASGIApp, counts: RequestCounts):
        self.app, self.counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[scope["method"], route_label(scope), str(message["status"])] += 1
            await send(message)

        await self.app(scope, receive, send_and_count)


def route_label(scope: Scope) -> str:
    """The route of a request without the names in its path, so that there are few labels."""
    if (path := getattr(scope.get("route"), "path_format", None)) is None:
        return "dashboard" if scope.get("root_path") or scope["path"].startswith("/_nicegui") else "other"
    return path if path.startswith("/") else "other"


class ServiceCollector(Collector):
    """Collects the metrics of a service; `query_limit` is the number of queries with metrics of their own."""

    def __init__(self, service: Service, requests: RequestCounts, query_limit: int):
        self.service, self.requests, self.query_limit = service, requests, query_limit

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service, queries = self.service, self.service.queries()
        status, progress = service.status(), service.monitor.progress()
        yield from _service_metrics(status, progress)
        yield _decision_metric(service.decision_counts())
        yield _batch_seconds(service.history.batch_times)
        yield from _stream_metrics(service.streams())
        yield from _history_metrics(progress)
        listed = queries[: self.query_limit]
        yield from _query_metrics(listed, service.history.results)
        yield _correction_metric(listed, service.history.corrections)
        names = {query.name for query in listed}
        yield from _accuracy_metrics(progress.early, names)
        yield from _on_demand_metrics(progress.on_demand)
        yield from _promising_metrics(progress.promising, names)
        yield from alert_metrics(service.alerts, self.query_limit)
        requests = CounterMetricFamily(
            "transom_http_requests", "Requests that were answered.", labels=("method", "route", "status")
        )
        for labels, count in sorted(self.requests.items()):
            requests.add_metric(labels, count)
        yield requests


def metrics_registry(service: Service, requests: RequestCounts, query_limit: int) -> CollectorRegistry:
    """A registry for this service alone; a process may have several services."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service, requests, query_limit))
    return registry


def _gauge(name: str, help: str, value: float | None) -> Metric:
    gauge = GaugeMetricFamily(name, help)
    if value is not None:
        gauge.add_metric((), value)
    return gauge


def _labelled_gauge(name: str, help: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """A gauge with one label; unknown values are left out."""
    gauge = GaugeMetricFamily(name, help, labels=(label,))
    for key, value in values.items():
        if value is not None and not math.isnan(value):
            gauge.add_metric((key,), value)
    return gauge


def _service_metrics(status: ServiceStatus, progress: Progress) -> Iterator[Metric]:
    yield _labelled_gauge(
        "transom_state",
        "1 for the current state of the engine.",
        "state",
        {state: float(status.state == state) for state in STATES},
    )
    yield _gauge("transom_uptime_seconds", "Seconds since the service started.", status.uptime)
    yield _gauge("transom_batch", "The number of the last batch.", status.batch)
    yield _gauge("transom_last_batch_seconds", "How long the last batch took.", status.batch_seconds)
    yield _labelled_gauge(
        "transom_last_batch_spent_seconds", "Seconds of the last batch by part.", "part", status.spent
    )
    yield _labelled_gauge(
        "transom_state_bytes",
        "Size of the state by location.",
        "where",
        {"driver": float(status.state_bytes), "executors": float(status.executor_bytes)},
    )
    yield _gauge("transom_queries", "Registered queries.", status.queries)
    yield _gauge("transom_suspended_queries", "Suspended queries.", status.suspended)
    unaccounted = CounterMetricFamily(
        "transom_unaccounted_rows", "Rows that the counts of a query do not explain: must stay 0."
    )
    unaccounted.add_metric((), progress.unaccounted)
    yield unaccounted
    yield _gauge("transom_subscribers", "Readers that follow results.", status.subscribers)
    yield _gauge("transom_saved_ratio", "Aggregations without sharing per aggregation made.", status.saved)
    work = progress.sharing.work
    aggregations = CounterMetricFamily("transom_aggregations", "Aggregations by kind.", labels=("kind",))
    for kind in ("partials", "finals", "unshared_partials", "unshared_finals"):
        aggregations.add_metric((kind,), getattr(work, kind))
    yield aggregations


def _decision_metric(counts: Mapping[tuple[str, str], int]) -> Metric:
    """A gauge, not a counter: a decision holds until the query leaves or the planner decides otherwise."""
    gauge = GaugeMetricFamily(
        "transom_plan_decisions", "Decisions of the planner that hold.", labels=("pass", "decision")
    )
    for labels, count in sorted(counts.items()):
        gauge.add_metric(labels, count)
    return gauge


def _batch_seconds(times: BatchTimes) -> Metric:
    family = HistogramMetricFamily("transom_batch_seconds", "How long batches took.")
    buckets = [(repr(bound), count) for bound, count in zip(BATCH_TIME_BOUNDS, times.within, strict=True)]
    family.add_metric((), [*buckets, ("+Inf", times.count)], times.seconds)
    return family


def _history_metrics(progress: Progress) -> Iterator[Metric]:
    """What streams retain; those that retain nothing are left out."""
    retained = {name: stream.retained for name, stream in progress.streams.items() if stream.retained.rows}
    help = "Rows that the stream retains, and how many of them are in sealed slices."
    rows = GaugeMetricFamily("transom_retained_rows", help, labels=("stream", "form"))
    for name, one in retained.items():
        rows.add_metric((name, "rows"), one.rows)
        rows.add_metric((name, "slices"), one.sliced_rows)
    yield rows
    sizes = {name: float(one.bytes) for name, one in retained.items()}
    yield _labelled_gauge("transom_retained_bytes", "Size of the retained rows.", "stream", sizes)
    missed = CounterMetricFamily(
        "transom_slice_missed_deadlines",
        "How often the making of sealed slices took longer than the deadline of a batch.",
        labels=("stream",),
    )
    for name, one in retained.items():
        missed.add_metric((name,), one.missed_deadlines)
    yield missed


def _stream_metrics(streams: list[StreamStatus]) -> Iterator[Metric]:
    rows = CounterMetricFamily("transom_rows", "Rows by fate.", labels=("stream", "fate"))
    for stream in streams:
        for fate in METRIC_FATES:
            rows.add_metric((stream.name, fate), getattr(stream, fate))
    yield rows
    counters = {
        "transom_unreadable_files": ("Files that could not be read and were left out.", "unreadable_files"),
        "transom_missing_columns": ("Columns that files lacked.", "missing_columns"),
        "transom_new_columns": ("Columns of files that the stream does not have.", "new_columns"),
        "transom_rewritten_files": ("Files that changed after they were read.", "rewritten_files"),
    }
    for name, (help, field) in counters.items():
        counter = CounterMetricFamily(name, help, labels=("stream",))
        for stream in streams:
            counter.add_metric((stream.name,), getattr(stream, field))
        yield counter
    gauges = {
        "transom_rows_sidelined": ("Sidelined rows that wait to be processed.", "sidelined"),
        "transom_row_rate": ("Rows per second, recently.", "rate"),
        "transom_lag_seconds": ("From the newest time to the source's current time.", "lag"),
        "transom_watermark_delay_seconds": ("From the watermark to the newest time.", "watermark_delay"),
        "transom_open_windows": ("Open windows.", "open_windows"),
        "transom_slack_seconds": ("The slack that was learned.", "slack_now"),
        "transom_in_time_ratio": (
            "Rows that were not behind the watermark, with a learned slack.",
            "in_time",
        ),
        "transom_slack_target_ratio": ("Rows that shall be in time, with a learned slack.", "slack_target"),
    }
    for name, (help, field) in gauges.items():
        values = {stream.name: getattr(stream, field) for stream in streams}
        yield _labelled_gauge(name, help, "stream", values)


def _query_metrics(queries: list[QueryStatus], result_rows: Mapping[str, int]) -> Iterator[Metric]:
    results = CounterMetricFamily("transom_results", "Result rows of a query.", labels=("query",))
    for query in queries:
        # Not those before a restart: they are read back step by step, and would look like a burst.
        results.add_metric((query.name,), result_rows[query.name])
    yield results
    rows = CounterMetricFamily("transom_query_rows", "Rows of a query by fate.", labels=("query", "fate"))
    for query in queries:
        for fate in METRIC_FATES:
            rows.add_metric((query.name, fate), getattr(query, fate))
    yield rows
    yield _labelled_gauge(
        "transom_query_suspended",
        "1 for a suspended query.",
        "query",
        {query.name: float(query.suspended is not None) for query in queries},
    )


def _correction_metric(queries: list[QueryStatus], corrections: Mapping[str, int]) -> Metric:
    """Of queries that corrected a result since the service started."""
    counter = CounterMetricFamily(
        "transom_corrections", "Results of closed windows that late rows corrected.", labels=("query",)
    )
    for query in queries:
        if query.name in corrections:
            counter.add_metric((query.name,), corrections[query.name])
    return counter


def _accuracy_metrics(early: Mapping[str, Accuracy], listed: set[str]) -> Iterator[Metric]:
    """Recent accuracy and coverage of early results: of each listed query, and the mean of all queries."""
    scores = {name: accuracy.recent for name, accuracy in early.items()}
    for kind in ("raw", "projected"):
        values = {name: getattr(score, kind) for name, score in scores.items() if name in listed}
        name = f"transom_early_accuracy_{kind}"
        yield _labelled_gauge(f"{name}_ratio", "Accuracy of a query's early results.", "query", values)
        mean = _weighted_mean(scores.values(), kind, "pairs")
        yield _gauge(f"{name}_total_ratio", "Accuracy of all queries' early results.", mean)
    yield from _decision_metrics(early, listed)
    coverage = {name: score.coverage for name, score in scores.items() if name in listed}
    yield _labelled_gauge(
        "transom_early_coverage_ratio", "Share of a query's finals within their bounds.", "query", coverage
    )
    mean = _weighted_mean(scores.values(), "coverage", "bounded")
    yield _gauge(
        "transom_early_coverage_total_ratio", "Share of all queries' finals within their bounds.", mean
    )


def _decision_metrics(early: Mapping[str, Accuracy], listed: set[str]) -> Iterator[Metric]:
    """The early decisions of each listed query: how many there were of each outcome, and the recent rates."""
    reports = {name: one.decisions for name, one in early.items() if one.decisions and name in listed}
    counter = CounterMetricFamily(
        "transom_early_decisions", "Decided windows by outcome.", labels=("query", "outcome")
    )
    for name, report in reports.items():
        for outcome in ("confirmed", "withdrawn", "missed"):
            counter.add_metric((name, outcome), getattr(report.total, outcome))
    yield counter
    for rate, text in (
        ("false_alarm_rate", "Share of a query's announced windows that were withdrawn."),
        ("miss_rate", "Share of a query's true finals that were not announced."),
    ):
        values = {name: getattr(report.recent, rate) for name, report in reports.items()}
        yield _labelled_gauge(
            f"transom_early_decision_{rate.removesuffix('_rate')}_ratio", text, "query", values
        )


def _on_demand_metrics(on_demand: OnDemand) -> Iterator[Metric]:
    """Lookups and their reads since the service started, and the present stores by stream."""
    counters = {
        "transom_lookups": ("Lookups that were answered.", on_demand.totals.lookups),
        "transom_lookup_reads": ("Reads of stores by lookups.", on_demand.totals.reads),
        "transom_lookup_hits": ("Reads of stores that took no scan.", on_demand.totals.hits),
    }
    for name, (help, value) in counters.items():
        counter = CounterMetricFamily(name, help)
        counter.add_metric((), value)
        yield counter
    totals: dict[str, Counter[str]] = {
        "stores": Counter(),
        "store_entries": Counter(),
        "store_bytes": Counter(),
    }
    for store in on_demand.stores.values():
        totals["stores"][store.stream] += 1
        totals["store_entries"][store.stream] += store.entries
        totals["store_bytes"][store.stream] += store.bytes
    for (name, by_stream), help in zip(
        totals.items(), ("Stores for lookups.", "Entries of stores.", "Size of stores."), strict=True
    ):
        yield _labelled_gauge(f"transom_{name}", help, "stream", dict(by_stream))


def _promising_metrics(promising: PromisingProgress, listed: set[str]) -> Iterator[Metric]:
    """The summaries, and for listed queries with a preference how they use their budgets."""
    summaries = promising.summaries
    yield _gauge("transom_summaries", "Summaries.", len(summaries))
    for name, help in (("tuples", "Tuples that a summary keeps."), ("bytes", "Size of a summary's counts.")):
        values = {key: float(getattr(summary, name)) for key, summary in summaries.items()}
        yield _labelled_gauge(f"transom_summary_{name}", help, "summary", values)
    probes = CounterMetricFamily("transom_probes", "Probes of a query with a preference.", labels=("query",))
    produced = CounterMetricFamily(
        "transom_produced_tuples", "Tuples that a query with a preference produced.", labels=("query",)
    )
    queries = {name: query for name, query in promising.queries.items() if name in listed}
    for name, query in queries.items():
        probes.add_metric((name,), query.probes)
        produced.add_metric((name,), query.produced)
    yield probes
    yield produced
    shares = {name: query.share for name, query in queries.items()}
    help = "Share of a query's estimated output that was produced."
    yield _labelled_gauge("transom_produced_share_ratio", help, "query", shares)
    total = promising.share if promising.queries else None
    yield _gauge("transom_produced_share_total_ratio", "The same for all queries with a preference.", total)


def _weighted_mean(scores: Iterable[Score], value: str, weight: str) -> float | None:
    """The weighted mean of the defined values; None if there are none."""
    pairs = [(getattr(score, value), getattr(score, weight)) for score in scores]
    defined = [(each, count) for each, count in pairs if count and not math.isnan(each)]
    total = sum(count for _, count in defined)
    return sum(each * count for each, count in defined) / total if total else None
