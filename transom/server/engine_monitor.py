"""The state and progress of the engine behind a service."""

from __future__ import annotations

import threading
import time

from transom.api.records import EngineState, ServiceStatus
from transom.runtime.engine import Engine
from transom.runtime.progress import Progress
from transom.server.batch_history import BatchHistory
from transom.server.previews import is_preview
from transom.version import __version__

PROGRESS_SECONDS = 0.5  # how old a progress report may be; the engine takes a while to make one


class EngineMonitor:
    """Starts and stops an engine, and reports its state."""

    def __init__(self, engine: Engine, history: BatchHistory):
        self.engine, self.history = engine, history
        self._state: EngineState = "starting"
        self._lock = threading.Lock()
        self._progress: tuple[float, Progress] | None = None

    def start(self) -> None:
        """Start the engine."""
        self.engine.start()
        self._state = "running"

    def stop(self) -> None:
        """Stop the engine after the current batch."""
        self.engine.stop()
        self._state = "stopped"
        self.history.stop()

    @property
    def failure(self) -> str | None:
        """Why the engine failed, or None."""
        error = self.engine.failure
        return None if error is None else str(error) or type(error).__name__

    @property
    def failure_kind(self) -> str | None:
        """The same without values of rows: the class of the error, or that a batch is overdue."""
        error = self.engine.failure
        if error is not None:
            return type(error).__name__
        return None if self.engine.overdue is None else "overdue"

    @property
    def overdue(self) -> str | None:
        """That a batch takes longer than its deadline, if it does."""
        seconds = self.engine.overdue
        return None if seconds is None else f"a batch is overdue: {seconds:.0f} s beyond its deadline"

    @property
    def state(self) -> EngineState:
        """The engine's state."""
        return "failed" if self.failure is not None else self._state

    def progress(self) -> Progress:
        """The engine's progress report, at most half a second old."""
        with self._lock:
            now, cached = time.monotonic(), self._progress
            if cached is None or now - cached[0] > PROGRESS_SECONDS:
                cached = self._progress = now, self.engine.progress()
            return cached[1]

    def status(self, subscribers: int) -> ServiceStatus:
        """The state of the whole service."""
        progress = self.progress()
        # The rows of derived streams are those of others, which are counted already.
        declared = {name for name, info in self.engine.streams().items() if not info.derived_from}
        streams = {name: stream for name, stream in progress.streams.items() if name in declared}
        return ServiceStatus(
            state=self.state,
            failure=self.failure,
            version=__version__,
            uptime=self.history.uptime,
            batch=progress.batch_id,
            batch_seconds=progress.batch_seconds,
            spent=dict(progress.spent),
            queries=sum(not is_preview(name) for name in self.engine.queries()),
            suspended=len(progress.suspended),
            streams=len(streams),
            subscribers=subscribers,
            state_bytes=progress.state_bytes,
            executor_bytes=progress.executor_bytes,
            rows=sum(stream.rows for stream in streams.values()),
            rate=sum(self.history.rate(name) for name in streams),
            saved=progress.sharing.work.ratio,
            warning=self.engine.warning,
        )
