"""A short history of an engine's batches: input rates, batch times, and results by query."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from transom.results.newest_results import corrections_by_query
from transom.runtime.batch_report import BatchReport
from transom.runtime.engine import Engine

RATE_SECONDS = 10.0  # over which the current rate is averaged
STEP_SECONDS = 5.0  # between two points of the rate history
POINTS = 60
KEPT_BATCHES = 500
BATCH_TIME_BOUNDS = (
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)  # upper bounds of batch times, in seconds


@dataclass(frozen=True)
class PastBatch:
    """A batch that is committed."""

    batch_id: int
    stream: str | None
    finished: int  # microseconds since 1970
    seconds: float
    spent: Mapping[str, float]
    rows: int
    late: int
    results: int


@dataclass
class BatchTimes:
    """A histogram of batch times: how many batches took at most each of `BATCH_TIME_BOUNDS` seconds."""

    count: int = 0
    seconds: float = 0.0
    within: list[int] = field(default_factory=lambda: [0] * len(BATCH_TIME_BOUNDS))

    def add(self, seconds: float) -> None:
        """Count a batch."""
        self.count += 1
        self.seconds += seconds
        self.within = [
            n + (seconds <= bound) for n, bound in zip(self.within, BATCH_TIME_BOUNDS, strict=True)
        ]


class BatchHistory:
    """Follows an engine and records a few numbers of every batch; recording is cheap."""

    def __init__(self, engine: Engine):
        self.started = time.monotonic()
        self.batch_times = BatchTimes()
        self.results: Counter[str] = Counter()  # rows by query
        self.corrections: Counter[str] = Counter()  # corrected results by query
        self.last: dict[str, int] = {}  # by query: when its last results were made, in microseconds
        self._rows: dict[str, deque[tuple[float, int]]] = {}  # by stream: arrival time and number of rows
        self._batches: deque[PastBatch] = deque(maxlen=KEPT_BATCHES)
        self._lock = threading.Lock()
        self._stop_following = engine.follow(self._record_batch)

    def stop(self) -> None:
        """Stop following the engine."""
        self._stop_following()

    def _record_batch(self, report: BatchReport) -> None:
        now, made = time.monotonic(), time.time_ns() // 1000
        with self._lock:
            self.batch_times.add(report.seconds)
            self._batches.append(_past_batch(report, made))
            for name, to in report.renamed:
                if name in self.results:
                    self.results[to], self.last[to] = self.results.pop(name), self.last.pop(name)
                    self.corrections[to] = self.corrections.pop(name, 0)
            if report.stream is not None and report.outcome.rows:
                arrivals = self._rows.setdefault(report.stream, deque())
                arrivals.append((now, report.outcome.rows))
                while arrivals[0][0] < now - STEP_SECONDS * (POINTS + 1):
                    arrivals.popleft()
            for batch in report.results.batches:
                counts = np.diff(batch.bounds).tolist()
                for name, count in zip(batch.names, counts, strict=True):
                    self._record_results(name, count, made)
                self.corrections.update(corrections_by_query(batch))
            for name, stored in report.results.stored.items():
                self._record_results(name, stored.rows, made)

    def _record_results(self, name: str, rows: int, made: int) -> None:
        if rows:
            self.results[name] += rows
            self.last[name] = made

    def batches(self, limit: int = 60) -> list[PastBatch]:
        """The newest batches, the newest last."""
        with self._lock:
            return list(self._batches)[-limit:]

    def forget(self, name: str) -> None:
        """Forget a dropped query; another query may take its name."""
        with self._lock:
            self.results.pop(name, None)
            self.corrections.pop(name, None)
            self.last.pop(name, None)

    @property
    def uptime(self) -> float:
        """Seconds since the history began."""
        return time.monotonic() - self.started

    def rate(self, stream: str) -> float:
        """The current rate of a stream, in rows per second."""
        now = time.monotonic()
        span = max(min(RATE_SECONDS, now - self.started), 1e-3)
        with self._lock:
            return sum(rows for at, rows in self._rows.get(stream, ()) if at > now - span) / span

    def rates(self, stream: str) -> tuple[float, ...]:
        """The rates of a stream over the last minutes, oldest first; only of steps that are over."""
        now = time.monotonic()
        steps = min(int((now - self.started) // STEP_SECONDS), POINTS)
        # Steps are aligned to the start, so that a point keeps its value from one call to the next.
        end = self.started + (now - self.started) // STEP_SECONDS * STEP_SECONDS
        rates = [0.0] * steps
        with self._lock:
            for at, rows in self._rows.get(stream, ()):
                step = steps - 1 - int((end - at) // STEP_SECONDS) if at < end else steps
                if 0 <= step < steps:
                    rates[step] += rows / STEP_SECONDS
        return tuple(rates)


def _past_batch(report: BatchReport, finished: int) -> PastBatch:
    results = sum(
        int(batch.bounds[-1] - batch.bounds[0]) for batch in report.results.batches if len(batch.bounds)
    )
    stored = sum(each.rows for each in report.results.stored.values())
    outcome = report.outcome
    return PastBatch(
        report.batch_id,
        report.stream,
        finished,
        report.seconds,
        dict(report.spent),
        outcome.rows,
        outcome.late,
        results + stored,
    )
