"""Previews: queries that run only while a user looks at them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from transom.api.errors import LimitError, NotFound
from transom.errors import TransomError
from transom.runtime.batch_report import BatchReport
from transom.runtime.engine import Engine
from transom.sql.bound_query import BoundQuery
from transom.sql.query import Query

PREVIEW_PREFIX = "preview."
IDLE_SECONDS = 120.0  # after which a preview that no client uses is dropped


def is_preview(name: str) -> bool:
    """Whether a query is a preview, by its name."""
    return name.startswith(PREVIEW_PREFIX)


def _has_partial_windows(query: BoundQuery) -> bool:
    """Whether a query can report windows that it sees only in part."""
    return isinstance(query, Query) and not query.is_row_query and query.stream_join is None


class Previews:
    """The previews of an engine; their number is limited, and idle ones are dropped."""

    def __init__(
        self,
        engine: Engine,
        limit: int,
        on_drop: Callable[[str], None] = lambda name: None,
        idle_seconds: float = IDLE_SECONDS,
    ):
        self.engine, self.limit, self.on_drop, self.idle_seconds = engine, limit, on_drop, idle_seconds
        self._last_used: dict[str, float] = {}
        self._lock = threading.Lock()
        engine.follow(self._after_batch)

    def begin(self, sql: str) -> str:
        """Register a preview and return its name; it also reports windows that it sees only in part."""
        self._drop_idle()
        name = f"{PREVIEW_PREFIX}{uuid.uuid4().hex[:12]}"
        with self._lock:
            if len(self._last_used) >= self.limit:
                raise LimitError(f"there are {self.limit} previews already: try again in a minute")
            self._last_used[name] = time.monotonic()
        try:
            self.engine.register(sql, name, partial=_has_partial_windows(self.engine.check(sql)))
        except BaseException:
            with self._lock:
                self._last_used.pop(name, None)
            raise
        return name

    def touch(self, name: str) -> None:
        """Note that a client uses a preview."""
        with self._lock:
            if name in self._last_used:
                self._last_used[name] = time.monotonic()

    def end(self, name: str) -> None:
        """Drop a preview."""
        with self._lock:
            last_used = self._last_used.pop(name, None)
        if last_used is None:
            raise NotFound(f"there is no preview named {name}")
        self._drop(name)

    def clear(self) -> None:
        """Drop all previews, also those of an earlier run that are in the checkpoint."""
        with self._lock:
            self._last_used.clear()
        for name in [name for name in self.engine.queries() if is_preview(name)]:
            self._drop(name)

    def _after_batch(self, report: BatchReport) -> None:
        if self._last_used:
            self._drop_idle()

    def _drop_idle(self) -> None:
        deadline = time.monotonic() - self.idle_seconds
        with self._lock:
            idle = [name for name, last_used in self._last_used.items() if last_used < deadline]
            for name in idle:
                del self._last_used[name]
        for name in idle:
            self._drop(name)

    def _drop(self, name: str) -> None:
        try:
            self.engine.query(name).drop()
        except TransomError:  # it is dropped already, or was never registered
            pass
        self.on_drop(name)
