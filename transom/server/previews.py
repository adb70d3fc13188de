"""Previews: queries that are registered for a look, and leave when nobody looks any more."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.api.errors import LimitError, NotFound
from transom.errors import TransomError
from transom.sql.syntax.dialect import is_preferred

if TYPE_CHECKING:
    from transom.runtime.batch_report import BatchReport
    from transom.runtime.engine import Engine

PREFIX = "preview."
LOOKED_AT = 120.0  # seconds that a preview lives when nobody asks for it


def is_preview(name: str) -> bool:
    """Whether a query is there for a look only."""
    return name.startswith(PREFIX)


class Previews:
    """The previews of an engine, at most so many at a time."""

    def __init__(self, engine: Engine, most: int, left: Callable[[str], None] = lambda name: None):
        self.engine, self.most, self.left = engine, most, left
        self._asked: dict[str, float] = {}  # by name: when somebody last asked
        self._lock = threading.Lock()
        engine.follow(self._batch)

    def begin(self, sql: str) -> str:
        """Register a query that also reports windows of which it sees a part only."""
        self._tidy()
        name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
        with self._lock:
            if len(self._asked) >= self.most:
                raise LimitError(f"{self.most} queries are being previewed already: try again in a minute")
            self._asked[name] = time.monotonic()
        try:
            self.engine.register(sql, name, partial=not is_preferred(sql))
        except BaseException:
            with self._lock:
                self._asked.pop(name, None)
            raise
        return name

    def asked(self, name: str) -> None:
        """Somebody still looks."""
        with self._lock:
            if name in self._asked:
                self._asked[name] = time.monotonic()

    def end(self, name: str) -> None:
        """A preview leaves."""
        with self._lock:
            known = self._asked.pop(name, None)
        if known is None:
            raise NotFound(f"there is no preview named {name}")
        self._drop(name)

    def clear(self) -> None:
        """All leave, also those that an earlier run left behind."""
        with self._lock:
            self._asked.clear()
        for name in [name for name in self.engine.queries() if is_preview(name)]:
            self._drop(name)

    def _batch(self, report: BatchReport) -> None:
        if self._asked:
            self._tidy()

    def _tidy(self) -> None:
        oldest = time.monotonic() - LOOKED_AT
        with self._lock:
            gone = [name for name, asked in self._asked.items() if asked < oldest]
            for name in gone:
                del self._asked[name]
        for name in gone:
            self._drop(name)

    def _drop(self, name: str) -> None:
        try:
            self.engine.query(name).drop()
        except TransomError:  # it has left, or never came
            pass
        self.left(name)
