"""The report of a batch: its results, its counts, and where its seconds went."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from transom.alerts.events import AlertEvent
from transom.kernel.aggregate import Outcome
from transom.results.result_rows import Results
from transom.sql.bound_query import BoundQuery
from transom.state.state import Work

log = logging.getLogger("transom")

_Report = TypeVar("_Report")


@dataclass(frozen=True)
class BatchReport:
    """What a batch did, for listeners and the log."""

    batch_id: int
    stream: str | None
    outcome: Outcome
    results: Results
    queries: Mapping[str, BoundQuery]  # those with results, and others
    seconds: float
    work: Mapping[str, Work] = field(default_factory=dict)  # of each stream
    spent: Mapping[str, float] = field(default_factory=dict)  # where the seconds went
    renamed: Sequence[tuple[str, str]] = ()  # queries that got another name with the batch: before and after
    alerts: Sequence[AlertEvent] = ()


@dataclass(frozen=True)
class BatchFailure:
    """A batch that failed: it is not committed, and runs again when the engine is started again."""

    batch_id: int
    stream: str | None
    seconds: float
    error: str  # the class of the error
    reason: str  # its text, without secrets


class Stopwatch:
    """Measures how many seconds each phase of a batch takes."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def start_again(self) -> None:
        """Count all that was measured so far as time spent on attempts that failed."""
        self.spent, self._last = {"quarantine": self.seconds}, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.spent[name], self._last = now - self._last, now


def notify(followers: Iterable[Callable[[_Report], None]], report: _Report) -> None:
    """Call followers with a batch that is committed, or has failed; an exception in one is logged."""
    for follower in list(followers):
        try:
            follower(report)
        except Exception:
            log.exception("a follower of batches failed")
