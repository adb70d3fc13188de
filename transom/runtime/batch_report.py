"""What a batch came to, and where its seconds went."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transom.kernel.aggregate import Outcome
from transom.results.presentation import Results
from transom.runtime.progress import progress_of
from transom.sql.preferred_query import Preferred
from transom.sql.query import Query
from transom.state.state import Work

if TYPE_CHECKING:
    from transom.runtime.loop import BatchLoop

log = logging.getLogger("transom")


@dataclass(frozen=True)
class BatchReport:
    """What a batch came to, for listeners and the log."""

    batch_id: int
    stream: str | None
    outcome: Outcome
    results: Results
    queries: Mapping[str, Query | Preferred]  # those with results
    seconds: float
    work: Mapping[str, Work] = field(default_factory=dict)  # of each stream
    spent: Mapping[str, float] = field(default_factory=dict)  # where the seconds went


class Watch:
    """Where the seconds of a batch go."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.spent[name], self._last = now - self._last, now


def say(loop: BatchLoop, report: BatchReport) -> None:
    """Log what a batch came to."""
    if log.isEnabledFor(logging.INFO):
        outcome, rejected = report.outcome, report.outcome.timeless + report.outcome.ahead
        log.info(
            f"{report.stream or 'control'}: {outcome.rows} rows, {outcome.late} late, "
            f"{rejected} rejected, {report.results.rows} results; {progress_of(loop)}"
        )


def tell(followers: Iterable[Callable[[BatchReport], None]], report: BatchReport) -> None:
    """Tell of a batch that is committed; whatever a follower does, it stays so."""
    for follower in list(followers):
        try:
            follower(report)
        except Exception:
            log.exception("a follower of batches failed")
