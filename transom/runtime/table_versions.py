"""Versions of static tables: declared by the program, or read again while the engine runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from transom.backends.secrets import without_secrets
from transom.errors import SettingError, near_miss
from transom.ingest.source_description import SourceDescription
from transom.runtime.loop import BatchLoop

log = logging.getLogger("transom")


class TableVersions:
    """Gives static tables the versions that batches see, and reads tables again at intervals."""

    def __init__(self, loop: BatchLoop):
        self.loop = loop
        self._sources: dict[str, SourceDescription] = {}
        self._refresh = TableRefresh(self.refresh)

    def declare(self, source: SourceDescription, seconds: float | None) -> None:
        """Give a table a new version; with an interval, the table is read again from then on."""
        self._adopt(source.name, self.loop.declared.tables.write(source))
        self._sources[source.name] = source
        self._refresh.schedule(source.name, seconds)

    def refresh(self, name: str) -> bool:
        """Read a table again, from the source that it was declared with; whether it has changed."""
        if name not in self._sources:
            raise SettingError(f"there is no table named {name}{near_miss(name, self._sources)}")
        version = self.loop.declared.tables.write_changed(self._sources[name])
        if version is not None:
            self._adopt(name, version)
        return version is not None

    def start_refreshing(self) -> None:
        """Begin to read tables again, if any has an interval."""
        self._refresh.start()

    def stop_refreshing(self) -> None:
        """Read no more tables again; waits for one that is being read."""
        self._refresh.stop()

    def _adopt(self, name: str, version: int) -> None:
        """Let batches from now on see a version of a table; the one before is deleted when no batch needs it."""
        loop, declared = self.loop, self.loop.declared
        with loop.lock:
            known, preferred = loop.directory.known_queries(), loop.directory.known_preference_queries()
            declared.check_version(name, version, known.values(), preferred.values())
            before = declared.versions.get(name)
            declared.versions[name] = version
            if before is not None and before != version:
                loop.log.discard([declared.tables.forget(name, before)], loop.state.batch_id + 1)


class TableRefresh:
    """Calls a function for each table when its interval has passed, in a thread of its own.

    A table that can't be read stays as it is; the next attempt comes after the interval.
    """

    def __init__(self, refresh: Callable[[str], object]):
        self._refresh = refresh
        self._seconds: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def schedule(self, table: str, seconds: float | None) -> None:
        """Refresh a table at this interval from now on; None: not any more."""
        with self._lock:
            self._seconds.pop(table, None)
            self._due.pop(table, None)
            if seconds is not None:
                self._seconds[table], self._due[table] = seconds, time.monotonic() + seconds

    def start(self) -> None:
        """Begin to refresh tables, if any has an interval."""
        if not self._seconds or self._thread is not None:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="transom tables", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refresh no more tables; waits for one that is being read."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause()):
            for table in self._overdue():
                if self._stopping.is_set():
                    return
                try:
                    self._refresh(table)
                except Exception as error:
                    reason = without_secrets(str(error).split("\n")[0])
                    log.warning("table %s could not be read again, and stays as it is: %s", table, reason)

    def _pause(self) -> float:
        with self._lock:
            return max(0.0, min(self._due.values(), default=60.0) - time.monotonic())

    def _overdue(self) -> list[str]:
        now = time.monotonic()
        with self._lock:
            overdue = [table for table, due in self._due.items() if due <= now]
            self._due |= {table: now + self._seconds[table] for table in overdue}
        return overdue
