"""OpenTelemetry: the spans of batches, failed batches, and that nothing is imported without `traces`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_MINUTE, PER_SITE, bids
from transom.errors import SettingError
from transom.runtime import batch_traces
from transom.storage.failpoints import arm

PHASES = ["planning", "ingest", "emit", "delivery", "commit"]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def traced(
    make_engine: EngineFactory, traces: Any, checkpoint: Path | None = None
) -> tuple[transom.Engine, Any]:
    engine = make_engine(checkpoint, traces=traces)
    return engine, engine.feed("bids", BIDS, time="ts")


def batches(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == "transom.batch"]


@pytest.mark.backends("local", "spark")
def test_a_batch_is_a_span_and_its_phases_are_spans_below(
    make_engine: EngineFactory, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    began = time.time_ns()
    engine, feed = traced(make_engine, provider)
    with engine:
        queries = [engine.register(PER_SITE), engine.register(PER_MINUTE)]
        feed.push(bids((1, 1.0, "12:00"), (2, 2.0, "12:00:30"), (3, 1.0, None)))
        engine.step()
        feed.push(bids((1, 1.0, "12:02"), (1, 1.0, "11:00")))
        engine.step()
        engine.drain(close=True)
        made = Counter(number for query in queries for number in query.results()["batch"].to_pylist())
    first, second, last = batches(exporter)
    assert dict(second.attributes or {}) == {
        "transom.batch.id": 2,
        "transom.backend": make_engine.name,
        "transom.stream": "bids",
        "transom.rows": 2,
        "transom.rows.late": 1,
        "transom.rows.rejected": 0,
        "transom.queries": 2,
        "transom.results": made[2],
    }
    assert (first.attributes or {})["transom.rows.rejected"] == 1
    assert "transom.stream" not in (last.attributes or {})  # the batch that closes the windows has no rows
    assert made[2] > 0
    for batch in (first, second, last):
        assert batch.status.status_code is StatusCode.UNSET and batch.context is not None
        phases = [span for span in exporter.get_finished_spans() if span.parent == batch.context]
        assert [span.name for span in phases] == [f"transom.batch.{phase}" for phase in PHASES]
        assert phases[0].start_time == batch.start_time
        for phase, following in pairwise(phases):
            assert phase.end_time == following.start_time
        ends = phases[-1].end_time, batch.end_time
        assert None not in ends and abs(ends[0] - ends[1]) < 1_000_000  # type: ignore[operator]
        assert began < (batch.start_time or 0) < (batch.end_time or 0) < time.time_ns()


def test_a_batch_that_fails_is_a_span_with_an_error(
    make_engine: EngineFactory, exporter: InMemorySpanExporter, provider: TracerProvider, tmp_path: Path
) -> None:
    def fail(point: str) -> None:
        if point == "delivery.begin":
            raise OSError("the power is gone")

    engine, feed = traced(make_engine, provider, tmp_path / "checkpoint")
    with engine:
        engine.register(PER_MINUTE)
        feed.push(bids((1, 1.0, "12:00")))
        arm(fail)
        try:
            with pytest.raises(OSError, match="power"):
                engine.step()
        finally:
            arm(None)
        engine.step()
    failed, again = batches(exporter)
    assert failed.status.status_code is StatusCode.ERROR and failed.status.description == "the power is gone"
    assert dict(failed.attributes or {}) == {
        "transom.batch.id": 1,
        "transom.backend": "local",
        "transom.stream": "bids",
        "error.type": "OSError",
    }
    assert again.status.status_code is StatusCode.UNSET and (again.attributes or {})["transom.batch.id"] == 1


def test_batches_that_are_not_sampled_have_no_spans(
    make_engine: EngineFactory, exporter: InMemorySpanExporter
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine, feed = traced(make_engine, provider)
    with engine:
        feed.push(bids((1, 1.0, "12:00")))
        engine.step()
    assert not exporter.get_finished_spans()


def test_true_is_the_provider_of_the_program(
    make_engine: EngineFactory,
    exporter: InMemorySpanExporter,
    provider: TracerProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    engine, _ = traced(make_engine, True)
    with engine:
        engine.step(empty=True)
    assert len(batches(exporter)) == 1


class Collector(BaseHTTPRequestHandler):
    """Takes traces as a collector does."""

    received: list[tuple[str, ExportTraceServiceRequest]]

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request.ParseFromString(body)
        self.received.append((self.path, request))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *parts: Any) -> None:
        """Keep the output of tests quiet."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    received: list[tuple[str, ExportTraceServiceRequest]] = []
    handler = type("CollectorOfTest", (Collector,), {"received": received})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(("named", "service"), [(None, "transom"), ("bids", "bids")])
def test_spans_are_sent_to_where_the_environment_says(
    make_engine: EngineFactory,
    collector: tuple[str, list[tuple[str, ExportTraceServiceRequest]]],
    monkeypatch: pytest.MonkeyPatch,
    named: str | None,
    service: str,
) -> None:
    address, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    if named is not None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", named)
    engine, feed = traced(make_engine, True)
    with engine:
        feed.push(bids((1, 1.0, "12:00")))
        engine.step()
    ((path, request),) = received  # `stop` has sent it
    assert path == "/v1/traces"
    (spans,) = request.resource_spans
    resource = {each.key: each.value.string_value for each in spans.resource.attributes}
    assert resource["service.name"] == service
    (scope,) = spans.scope_spans
    assert scope.scope.name == "transom"
    assert [span.name for span in scope.spans] == [
        *(f"transom.batch.{phase}" for phase in PHASES),
        "transom.batch",
    ]


def test_an_engine_does_not_wait_for_a_collector_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered, began = threading.Event(), threading.Event()

    class StuckProvider(TracerProvider):
        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            began.set()
            return answered.wait()

    monkeypatch.setattr(batch_traces, "STOP_SECONDS", 0.05)
    batch_traces.BatchTraces(StuckProvider(), "local", is_owner=True).stop()
    assert began.wait(60) and not answered.is_set()
    answered.set()


@pytest.mark.parametrize(
    "missing", ["opentelemetry", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_a_missing_package_is_named(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SettingError, match=r"traces need OpenTelemetry.*pip install 'transom\[otel\]'"):
        make_engine(traces=True)


def test_a_wrong_value_is_refused(make_engine: EngineFactory) -> None:
    with pytest.raises(SettingError, match="traces: expected true, false or a tracer provider, not 'yes'"):
        make_engine(traces="yes")


def test_nothing_is_imported_without_traces() -> None:
    code = (
        "import sys, transom; engine = transom.Engine(backend='local'); engine.step(empty=True); engine.stop(); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_document_lists_the_attributes() -> None:
    page = (Path(__file__).parents[2] / "docs/deploy.md").read_text()
    source = Path(batch_traces.__file__).read_text()
    for name in ("batch.id", "backend", "stream", "rows", "rows.late", "rows.rejected", "queries", "results"):
        assert f"`transom.{name}`" in page and f'"transom.{name}"' in source
