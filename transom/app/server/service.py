"""A running engine as a service: what its API, its page and its metrics are made of, without HTTP.

Every method may be called from any thread. Some wait for Spark (check, register, prod, lookup, late, rejected
or results that are no longer in memory): whoever serves many calls them in threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.app.server.status import Checked, Chunk, Limits, QueryStatus, Status, StreamStatus, Trend
from transom.estimates.monitor import Accuracy

if TYPE_CHECKING:
    from transom.spark.engine import Engine
    from transom.spark.progress import Progress
    from transom.spark.summarized import SummaryInfo
    from transom.state.preferring import Coverage


class Service:
    """An engine, its limits, and what is remembered of it for those who look."""

    def __init__(self, engine: Engine, limits: Limits | None = None):
        self.engine, self.limits = engine, limits or Limits()

    # --- life ---

    def start(self) -> None:
        """Let the engine process pages; drop previews that an earlier run left behind."""
        raise NotImplementedError

    def stop(self) -> None:
        """End previews, and stop the engine after the page at hand."""
        raise NotImplementedError

    def status(self) -> Status:
        raise NotImplementedError

    def progress(self) -> Progress:
        """The engine's own account, at most a second old."""
        raise NotImplementedError

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, in the engine's thread, after every page and prod; returns how to end it."""
        raise NotImplementedError

    # --- streams ---

    def streams(self) -> list[StreamStatus]:
        raise NotImplementedError

    def stream(self, name: str) -> StreamStatus:
        raise NotImplementedError

    def late(self, stream: str, limit: int) -> pa.Table:
        """The newest rows that came too late, with the reason and the page, the newest last."""
        raise NotImplementedError

    def rejected(self, stream: str, limit: int) -> pa.Table:
        """The newest rows without a usable time, likewise."""
        raise NotImplementedError

    # --- queries ---

    def queries(self) -> list[QueryStatus]:
        """All queries but previews, in the order in which they were registered."""
        raise NotImplementedError

    def query(self, name: str) -> QueryStatus:
        raise NotImplementedError

    def check(self, sql: str) -> Checked:
        """What a query would be; raises what is wrong with it."""
        raise NotImplementedError

    def register(self, sql: str, name: str | None = None, partial: bool = False) -> QueryStatus:
        raise NotImplementedError

    def drop(self, name: str) -> None:
        raise NotImplementedError

    def results(self, name: str, cursor: str | None = None, limit: int | None = None) -> Chunk:
        """Results behind a cursor, the oldest first; without one from the beginning. `end` is a cursor too:
        behind all there is."""
        raise NotImplementedError

    def is_recent(self, name: str, cursor: str) -> bool:
        """Whether what is behind a cursor is in memory, so that reading it waits for nothing."""
        raise NotImplementedError

    def recent(self, name: str, limit: int) -> pa.Table:
        """The newest results that are in memory, the oldest of them first."""
        raise NotImplementedError

    def trend(self, name: str, points: int = 40) -> Trend | None:
        """The first numeric value of the newest finals, summed over groups; None if there is none."""
        raise NotImplementedError

    def prod(
        self, name: str, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None
    ) -> pa.Table:
        raise NotImplementedError

    def lookup(
        self,
        name: str,
        range: str | int | None = None,
        rows: int | None = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        raise NotImplementedError

    def lookup_text(self, sql: str, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        raise NotImplementedError

    def explain(self, name: str | None = None, format: str = "text", verbose: bool = False) -> str:
        """How one query, or all of them, are computed: as text, json or mermaid."""
        raise NotImplementedError

    def accuracy(self, name: str) -> Accuracy:
        raise NotImplementedError

    def tune(self, name: str, aggressiveness: float | None) -> None:
        """Tell a query's windows when this part of their last slide is still to come (0.25: after three
        quarters); None: when the query itself says."""
        raise NotImplementedError

    def coverage(self, name: str) -> Coverage:
        raise NotImplementedError

    def preview(self, sql: str) -> str:
        """Register a query for a look only, and return its name: `results`, `prod`, `lookup` and `query` take
        it. It is in no list, and leaves with `end_preview`, or after two minutes in which nobody asked."""
        raise NotImplementedError

    def end_preview(self, name: str) -> None:
        raise NotImplementedError

    # --- summaries ---

    def summaries(self) -> dict[str, SummaryInfo]:
        raise NotImplementedError

    def summarize(self, sql: str) -> None:
        """Run CREATE SUMMARY."""
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """Drop a summary."""
        raise NotImplementedError
