"""What is remembered of an engine's batches for those who look: rates, batch times, results by query."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transom.runtime.batch_report import BatchReport
    from transom.runtime.engine import Engine

LATELY = 10.0  # seconds that a rate is of
STEP = 5.0  # seconds of a point of the rates that are drawn
POINTS = 60
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds of a batch


@dataclass
class BatchTimes:
    """How long batches took: how many there were, their seconds in all, and how many took no longer than."""

    count: int = 0
    seconds: float = 0.0
    within: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))

    def add(self, seconds: float) -> None:
        """One more batch."""
        self.count += 1
        self.seconds += seconds
        self.within = [n + (seconds <= most) for n, most in zip(self.within, BUCKETS, strict=True)]


class Watching:
    """Follows an engine. What it notes of a batch costs next to nothing."""

    def __init__(self, engine: Engine):
        self.started = time.monotonic()
        self.batches = BatchTimes()
        self.results: Counter[str] = Counter()  # rows by query
        self.last: dict[str, int] = {}  # by query: when the last ones were made, in microseconds
        self._rows: dict[str, deque[tuple[float, int]]] = {}  # by stream: rows with when they came
        self._lock = threading.Lock()
        self._end = engine.follow(self._batch)

    def stop(self) -> None:
        self._end()

    def _batch(self, report: BatchReport) -> None:
        now, made = time.monotonic(), time.time_ns() // 1000
        with self._lock:
            self.batches.add(report.seconds)
            if report.stream is not None and report.outcome.rows:
                came = self._rows.setdefault(report.stream, deque())
                came.append((now, report.outcome.rows))
                while came[0][0] < now - STEP * (POINTS + 1):
                    came.popleft()
            for batch in report.results.batches:
                counts = np.diff(batch.bounds).tolist()
                for name, count in zip(batch.names, counts, strict=True):
                    self._note(name, count, made)
            for name, stored in report.results.stored.items():
                self._note(name, stored.rows, made)

    def _note(self, name: str, rows: int, made: int) -> None:
        if rows:
            self.results[name] += rows
            self.last[name] = made

    def forget(self, name: str) -> None:
        """A query leaves; another may come by its name."""
        with self._lock:
            self.results.pop(name, None)
            self.last.pop(name, None)

    @property
    def uptime(self) -> float:
        return time.monotonic() - self.started

    def rate(self, stream: str) -> float:
        """Rows a second, lately."""
        now = time.monotonic()
        span = max(min(LATELY, now - self.started), 1e-3)
        with self._lock:
            return sum(rows for at, rows in self._rows.get(stream, ()) if at > now - span) / span

    def rates(self, stream: str) -> tuple[float, ...]:
        """Rows a second over the last minutes, the oldest first; only of steps that are over."""
        now = time.monotonic()
        steps = min(int((now - self.started) // STEP), POINTS)
        last = self.started + (now - self.started) // STEP * STEP  # points stay what they are
        found = [0.0] * steps
        with self._lock:
            for at, rows in self._rows.get(stream, ()):
                place = steps - 1 - int((last - at) // STEP) if at < last else steps
                if 0 <= place < steps:
                    found[place] += rows / STEP
        return tuple(found)
