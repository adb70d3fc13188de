"""The engine behind a service: its life, how it fares, and its streams."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

import transom
from transom.api.errors import NotFound
from transom.api.records import EngineState, QueryStatus, ServiceStatus, StreamStatus
from transom.durations import format_duration
from transom.errors import SettingError, near_miss
from transom.server.batch_history import BatchTimes, Watching
from transom.server.limits import ServiceLimits
from transom.server.previews import Previews, is_preview
from transom.server.query_description import sql_type

if TYPE_CHECKING:
    from transom.runtime.engine import Engine
    from transom.runtime.progress import Progress, StreamProgress
    from transom.runtime.streams import StreamInfo

STALE = 0.5  # seconds for which an account of the engine will do
LONG_AGO = 366 * 24 * 3600.0  # seconds: a stream that far behind is a recording, and has no lag


class Hosted(ABC):
    """An engine that others look at, and what is remembered of it for them."""

    def __init__(self, engine: Engine, limits: ServiceLimits | None = None):
        self.engine, self.limits = engine, limits or ServiceLimits()
        self.journal = engine.journal(self.limits.recent)
        self.watching = Watching(engine)
        self.previews = Previews(engine, self.limits.previews, self.forgotten)
        self.subscribers = 0  # who tail results; counted by those who serve them
        self._state: EngineState = "starting"
        self._lock = threading.Lock()
        self._progress: tuple[float, Progress] | None = None

    # --- life ---

    def start(self) -> None:
        """Let the engine process batches; drop previews that an earlier run left behind."""
        self.previews.clear()
        self.engine.start()
        self._state = "running"

    def stop(self) -> None:
        """End previews, and stop the engine after the batch at hand."""
        self.previews.clear()
        self.engine.stop()
        self._state = "stopped"
        self.watching.stop()

    @property
    def failure(self) -> str | None:
        """Why the engine stopped by itself, if it did."""
        error = self.engine.failure
        return None if error is None else str(error) or type(error).__name__

    @property
    def state(self) -> EngineState:
        """starting, running, stopped or failed."""
        return "failed" if self.failure is not None else self._state

    def status(self) -> ServiceStatus:
        """The service as a whole."""
        progress = self.progress()
        return ServiceStatus(
            state=self.state,
            failure=self.failure,
            version=transom.__version__,
            uptime=self.watching.uptime,
            batch=progress.batch_id,
            batch_seconds=progress.batch_seconds,
            spent=dict(progress.spent),
            queries=sum(not is_preview(name) for name in self.engine.queries()),
            suspended=len(progress.suspended),
            streams=len(progress.streams),
            subscribers=self.subscribers,
            state_bytes=progress.state_bytes,
            far_bytes=progress.far_bytes,
            rows=sum(stream.rows for stream in progress.streams.values()),
            rate=sum(self.watching.rate(name) for name in progress.streams),
            saved=progress.sharing.work.ratio,
        )

    def progress(self) -> Progress:
        """The engine's own account, hardly older than the moment."""
        with self._lock:
            now, known = time.monotonic(), self._progress
            if known is None or now - known[0] > STALE:
                known = self._progress = now, self.engine.progress()
            return known[1]

    @property
    def batch_times(self) -> BatchTimes:
        """How long batches took, since the service started."""
        return self.watching.batches

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, in the engine's thread, after every batch and prod; returns how to end it."""
        return self.journal.listen(callback)

    @abstractmethod
    def queries(self) -> list[QueryStatus]:
        """The queries that people registered."""

    def forgotten(self, name: str) -> None:
        """A query leaves: nothing is remembered of it."""
        self.watching.forget(name)

    # --- streams ---

    def streams(self) -> list[StreamStatus]:
        """All streams that queries can read."""
        progress = self.progress().streams
        readers = Counter(stream for query in self.queries() for stream in query.streams)
        return [
            self._stream(info, progress[name], readers[name])
            for name, info in self.engine.streams().items()
            if name in progress
        ]

    def stream(self, name: str) -> StreamStatus:
        """One of them."""
        found = {one.name: one for one in self.streams()}
        if name not in found:
            raise NotFound(f"there is no stream named {name}{near_miss(name, found)}")
        return found[name]

    def _stream(self, info: StreamInfo, own: StreamProgress, readers: int) -> StreamStatus:
        slack, name = info.rules.slack, info.name
        unit = 1e6 if own.is_time else 1
        lag = delay = None
        if own.high is not None and own.watermark is not None:
            delay = max(own.high - own.watermark, 0) / unit
        if own.is_time and own.high is not None and info.now is not None:
            lag = max(info.now - own.high, 0) / 1e6
        words = "none" if slack is None else format_duration(slack) if own.is_time else f"{slack:,}"
        return StreamStatus(
            name,
            {column: sql_type(kind) for column, kind in info.columns.items()},
            info.rules.clock.attribute,
            own.is_time,
            words,
            readers,
            own.rows,
            own.counted,
            own.unasked,
            own.late,
            own.rejected,
            own.aside,
            own.shed,
            own.high,
            own.watermark,
            delay,
            None if lag is None or lag > LONG_AGO else lag,
            own.open_windows,
            self.watching.rate(name),
            self.watching.rates(name),
            info.finished,
        )

    def late(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows that came too late, with the reason and the batch, the newest last."""
        self._check_stream(stream)
        return self._newest(self.engine.late(stream), limit)

    def rejected(self, stream: str, limit: int | None = None) -> pa.Table:
        """The newest rows without a usable time, likewise."""
        self._check_stream(stream)
        return self._newest(self.engine.rejected(stream), limit)

    def _check_stream(self, name: str) -> None:
        known = self.engine.streams()
        if name not in known:
            raise NotFound(f"there is no stream named {name}{near_miss(name, known)}")

    def _newest(self, table: pa.Table, limit: int | None) -> pa.Table:
        return table.slice(max(table.num_rows - self._most(limit), 0))

    def _most(self, limit: int | None) -> int:
        if limit is not None and limit < 1:
            raise SettingError(f"a limit is at least 1, not {limit}")
        return min(limit or self.limits.rows, self.limits.rows)
