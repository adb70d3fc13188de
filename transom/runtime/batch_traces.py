"""OpenTelemetry traces: a span for each batch, with a span for each of its phases.

Nothing of OpenTelemetry is imported unless an engine has `traces`. The spans of a batch are made when the batch has
ended, from the seconds that its report has anyway. So traces cost nothing while a batch runs.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from transom.errors import SettingError
from transom.runtime.batch_report import BatchFailure, BatchReport
from transom.version import __version__

BATCH_SPAN = "transom.batch"
STOP_SECONDS = 2.0  # that an engine that stops waits for its last spans
_SECOND = 1_000_000_000  # in nanoseconds
_INSTALL = "install it: pip install 'transom[otel]'"


class BatchTraces:
    """Sends the spans of an engine's batches to a tracer provider of OpenTelemetry."""

    def __init__(self, provider: Any, backend: str, is_owner: bool = False):
        self._provider, self._backend, self._is_owner = provider, backend, is_owner
        self._tracer = provider.get_tracer("transom", __version__)

    @classmethod
    def of(cls, traces: Any, backend: str) -> BatchTraces:
        """The traces of an engine: to a given provider, to the program's, or to where the environment says."""
        if hasattr(traces, "get_tracer"):
            return cls(traces, backend)
        if traces is not True:
            raise SettingError(f"traces: expected true, false or a tracer provider, not {traces!r}")
        provider = _program_provider()
        if provider is not None:
            return cls(provider, backend)
        return cls(_exporting_provider(), backend, is_owner=True)

    def committed(self, report: BatchReport) -> None:
        """Send the spans of a batch that is committed: its phases follow one another."""
        from opentelemetry import trace

        outcome = report.outcome
        end = time.time_ns()
        at = end - round(sum(report.spent.values()) * _SECOND)
        attributes = self._attributes(report.batch_id, report.stream) | {
            "transom.rows": outcome.rows,
            "transom.rows.late": outcome.late,
            "transom.rows.rejected": outcome.timeless + outcome.ahead,
            "transom.queries": len(report.queries),
            "transom.results": report.results.rows,
        }
        span = self._tracer.start_span(BATCH_SPAN, start_time=at, attributes=attributes)
        if span.is_recording():
            parent = trace.set_span_in_context(span)
            for phase, seconds in report.spent.items():
                start, at = at, at + round(seconds * _SECOND)
                self._tracer.start_span(f"{BATCH_SPAN}.{phase}", parent, start_time=start).end(at)
        span.end(end)

    def failed(self, failure: BatchFailure) -> None:
        """Send the span of a batch that failed."""
        from opentelemetry.trace import Status, StatusCode

        end = time.time_ns()
        attributes = self._attributes(failure.batch_id, failure.stream) | {"error.type": failure.error}
        start = end - round(failure.seconds * _SECOND)
        span = self._tracer.start_span(BATCH_SPAN, start_time=start, attributes=attributes)
        span.set_status(Status(StatusCode.ERROR, failure.reason))
        span.end(end)

    def stop(self) -> None:
        """Send what waits to be sent; a provider of the program is left to the program.

        An engine does not wait long for a collector that can't be reached.
        """
        if self._is_owner:
            sender = threading.Thread(target=self._provider.force_flush, name="transom traces", daemon=True)
            sender.start()
            sender.join(STOP_SECONDS)

    def _attributes(self, batch_id: int, stream: str | None) -> dict[str, Any]:
        of_stream = {} if stream is None else {"transom.stream": stream}
        return {"transom.batch.id": batch_id, "transom.backend": self._backend} | of_stream


def _program_provider() -> Any:
    """The provider that the program has set for the whole process; None if it has set none."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise SettingError(f"traces need OpenTelemetry: {_INSTALL}") from None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider


def _exporting_provider() -> Any:
    """A provider that sends spans by OTLP over HTTP, by OpenTelemetry's environment variables."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise SettingError(
            f"traces need OpenTelemetry's SDK and its OTLP exporter: {error.name} is missing; {_INSTALL}"
        ) from None
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if is_named else {"service.name": "transom"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
