"""Metrics in Prometheus's words: what a service tells, at the moment it is asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.api.records import QueryStatus, StreamStatus
from transom.estimates import Accuracy, Score
from transom.server.batch_history import BUCKETS
from transom.server.service import Service

if TYPE_CHECKING:
    from transom.runtime.progress import Progress

FATES = ("counted", "unasked", "late", "rejected", "shed")
STATES = ("starting", "running", "stopped", "failed")


class Requests:
    """Counts requests by method, route and status: a middleware, and what it found."""

    def __init__(self, app: ASGIApp, counts: Counter[tuple[str, str, str]]):
        self.app, self.counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[scope["method"], route_of(scope), str(message["status"])] += 1
            await send(message)

        await self.app(scope, receive, counting)


def route_of(scope: Scope) -> str:
    """The route that a request took, with its names left out, so that there are few."""
    if (path := getattr(scope.get("route"), "path_format", None)) is None:
        return "dashboard" if scope.get("root_path") or scope["path"].startswith("/_nicegui") else "other"
    return path if path.startswith("/") else "other"


class ServiceCollector(Collector):
    """Asks a service when Prometheus asks; of at most so many queries one by one, and of all together."""

    def __init__(self, service: Service, requests: Counter[tuple[str, str, str]], most: int):
        self.service, self.requests, self.most = service, requests, most

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service, queries = self.service, self.service.queries()
        status, progress = service.status(), service.progress()
        yield from _whole(status, progress)
        yield _batch_times(service)
        yield from _streams(service.streams())
        yield from _queries(queries[: self.most])
        yield from _accuracy(progress.early, {query.name for query in queries[: self.most]})
        counted = CounterMetricFamily(
            "transom_http_requests", "Requests that were answered.", labels=("method", "route", "status")
        )
        for labels, count in sorted(self.requests.items()):
            counted.add_metric(labels, count)
        yield counted


def registry(service: Service, requests: Counter[tuple[str, str, str]], most: int) -> CollectorRegistry:
    """A registry of this service alone: one process may have several."""
    made = CollectorRegistry()
    made.register(ServiceCollector(service, requests, most))
    return made


def _gauge(name: str, words: str, value: float | None) -> Metric:
    gauge = GaugeMetricFamily(name, words)
    if value is not None:
        gauge.add_metric((), value)
    return gauge


def _by(name: str, words: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """A gauge with one label; what is not known is left out."""
    gauge = GaugeMetricFamily(name, words, labels=(label,))
    for key, value in values.items():
        if value is not None and not math.isnan(value):
            gauge.add_metric((key,), value)
    return gauge


def _whole(status: Any, progress: Progress) -> Iterator[Metric]:
    yield _by(
        "transom_state",
        "1 for the state that the engine is in.",
        "state",
        {state: float(status.state == state) for state in STATES},
    )
    yield _gauge("transom_uptime_seconds", "Seconds since the service was started.", status.uptime)
    yield _gauge("transom_batch", "The number of the last batch.", status.batch)
    yield _gauge("transom_last_batch_seconds", "How long the last batch took.", status.batch_seconds)
    yield _by("transom_last_batch_spent_seconds", "Where those seconds went.", "part", status.spent)
    yield _by(
        "transom_state_bytes",
        "What is kept, by where.",
        "where",
        {"driver": float(status.state_bytes), "executors": float(status.far_bytes)},
    )
    yield _gauge("transom_queries", "Registered queries.", status.queries)
    yield _gauge(
        "transom_suspended_queries", "Queries that take no part in batches any more.", status.suspended
    )
    yield _gauge("transom_subscribers", "Readers that follow results.", status.subscribers)
    yield _gauge("transom_saved_ratio", "Aggregations without sharing for each made.", status.saved)
    work = progress.sharing.work
    done = CounterMetricFamily("transom_aggregations", "Aggregations that were made.", labels=("kind",))
    for kind in ("partials", "finals", "unshared_partials", "unshared_finals"):
        done.add_metric((kind,), getattr(work, kind))
    yield done


def _batch_times(service: Service) -> Metric:
    times = service.batch_times
    family = HistogramMetricFamily("transom_batch_seconds", "How long batches took.")
    within = [(repr(most), count) for most, count in zip(BUCKETS, times.within, strict=True)]
    family.add_metric((), [*within, ("+Inf", times.count)], times.seconds)
    return family


def _streams(streams: list[StreamStatus]) -> Iterator[Metric]:
    rows = CounterMetricFamily("transom_rows", "Rows, by what became of them.", labels=("stream", "fate"))
    for stream in streams:
        for fate in FATES:
            rows.add_metric((stream.name, fate), getattr(stream, fate))
    yield rows
    told = {
        "transom_rows_aside": ("Rows set aside, to be processed yet.", "aside"),
        "transom_row_rate": ("Rows a second, lately.", "rate"),
        "transom_lag_seconds": ("From the newest time to the source's own now.", "lag"),
        "transom_watermark_delay_seconds": ("From the watermark to the newest time.", "watermark_delay"),
        "transom_open_windows": ("Windows that are open.", "open_windows"),
    }
    for name, (words, field) in told.items():
        yield _by(name, words, "stream", {stream.name: getattr(stream, field) for stream in streams})


def _queries(queries: list[QueryStatus]) -> Iterator[Metric]:
    results = CounterMetricFamily("transom_results", "Results of a query, in rows.", labels=("query",))
    for query in queries:
        results.add_metric((query.name,), query.results)
    yield results
    yield _by(
        "transom_query_suspended",
        "1 for a query that takes no part in batches any more.",
        "query",
        {query.name: float(query.suspended is not None) for query in queries},
    )


def _accuracy(early: Mapping[str, Accuracy], shown: set[str]) -> Iterator[Metric]:
    """Accuracy and coverage of early results, recently: of each query, and of all by their pairs."""
    scores = {name: accuracy.recent for name, accuracy in early.items()}
    for kind in ("raw", "projected"):
        values = {name: getattr(score, kind) for name, score in scores.items() if name in shown}
        yield _by(f"transom_early_accuracy_{kind}_ratio", "Of early results, of a query.", "query", values)
        whole = _mean(scores.values(), kind, "pairs")
        yield _gauge(f"transom_early_accuracy_{kind}_total_ratio", "Of early results, of all queries.", whole)
    covered = {name: score.coverage for name, score in scores.items() if name in shown}
    yield _by("transom_early_coverage_ratio", "Finals within their bounds, of a query.", "query", covered)
    whole = _mean(scores.values(), "coverage", "bounded")
    yield _gauge("transom_early_coverage_total_ratio", "Finals within their bounds, of all queries.", whole)


def _mean(scores: Iterable[Score], value: str, weight: str) -> float | None:
    """The mean of what is known, by weight; None if nothing is."""
    pairs = [(getattr(score, value), getattr(score, weight)) for score in scores]
    known = [(each, count) for each, count in pairs if count and not math.isnan(each)]
    total = sum(count for _, count in known)
    return sum(each * count for each, count in known) / total if total else None
