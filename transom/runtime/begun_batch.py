"""A batch that was begun and is not committed: its intent, which may still grow.

A query can end the process: it exhausts the memory, or calls a library that crashes. No exception tells which query it
was. So attempts at a batch that an earlier process left behind are counted in the log before they run. A count that was
never taken back is an attempt that the process did not survive. Processes are also killed from outside, and no query
must suffer for that: only a batch that ended many processes in a row has a culprit. The search for it takes an attempt
that ended one process as a failure and continues where the process ended, so restarted processes get past the batch.
Before it accuses a query, the attempt that accuses it must have ended as many processes in a row. An attempt that
passes, or fails with an error that a query can cause, ends no process: its count begins again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from transom.runtime.query_directory import QueryDirectory
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent

log = logging.getLogger("transom")


class ProcessEndedError(Exception):
    """An attempt at a batch that an earlier process did not survive."""


@dataclass
class BegunBatch:
    """The intent of a batch. Each change is written to the log first, so that a replay does the same work.

    `is_replay` says whether an earlier process began the batch. `most_ends` processes may end in it before a culprit is
    looked for. `is_fatal` recognises failures after which this process can't go on, because the backend is gone; two
    of them are enough, because nobody kills the backend alone. `is_external` recognises failures that no query causes.
    """

    intent: BatchIntent
    log: BatchLog
    directory: QueryDirectory
    is_replay: bool
    is_fatal: Callable[[BaseException], bool]
    most_ends: int
    is_external: Callable[[BaseException], bool] = lambda error: False
    _ends: dict[str, int] = field(default_factory=dict)  # of earlier processes, by attempt

    def __post_init__(self) -> None:
        if self.is_replay:
            if not self.intent.unfinished:  # the first attempt of a batch is not counted ahead
                self._count(self._key(()), 1)
            self._ends = dict(self.intent.unfinished)

    def suspend(self, key: str, reason: str) -> None:
        """Leave a query or a summary out of the batch, and of all later ones."""
        self._write(replace(self.intent, suspended={**self.intent.suspended, key: reason}))
        name = key if " " in key else f"query {key}"
        log.warning("%s is suspended: %s", name, reason)

    def read_from(self, reference: Mapping[str, Any]) -> None:
        """Read other rows than those that the batch was begun with: some of its files can't be read."""
        self._write(replace(self.intent, reference=dict(reference)))

    def without(self, excluded: Mapping[str, str]) -> BatchIntent:
        """The intent with more left out, for an attempt."""
        return replace(self.intent, suspended={**self.intent.suspended, **excluded})

    def take_drops(self) -> None:
        """Let queries that were dropped since the batch was begun leave with it."""
        with self.directory.lock:
            dropped = self.directory.take_drops()
            if dropped:
                self._write(replace(self.intent, control=(*self.intent.control, *dropped)))
                self.forget_attempts()

    # --- attempts that end the process ---

    @contextmanager
    def attempt(self, excluded: Collection[str], confirms: bool = False) -> Iterator[None]:
        """Count an attempt while it runs; ProcessEndedError instead if earlier processes ended in it.

        An attempt that `confirms` accuses a query unless it passes. The search begins because the batch as it is ended
        many processes; it must have ended another one since then.
        """
        key = self._key(excluded)
        if confirms:
            enough = self.most_ends if excluded else self.most_ends + 1
        else:
            enough = 1 if excluded else self.most_ends
        if self._ends.get(key, 0) >= enough:
            raise ProcessEndedError("the process ended while the batch ran")
        is_counted = self.is_replay or bool(excluded)
        before = self.intent.unfinished.get(key, 0)
        if is_counted:
            self._count(key, before + 1)
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # what the attempt failed with is more important
                if self.is_fatal(error):
                    self._count(key, before + (self.most_ends + 1) // 2)
                elif not isinstance(error, Exception) or self.is_external(error):
                    self._count(key, before)
                else:
                    self._survived(key)
            raise
        if is_counted:
            self._survived(key)

    def _survived(self, key: str) -> None:
        """An attempt had a result, so processes that ended in it were killed from outside."""
        self._ends.pop(key, None)
        self._count(key, 0)

    def forget_attempts(self) -> None:
        """Let the next process try the batch as if no process had ended in it."""
        self._ends.clear()
        self._write(replace(self.intent, unfinished={self._key(()): 0}))

    def _count(self, key: str, attempts: int) -> None:
        self._write(replace(self.intent, unfinished={**self.intent.unfinished, key: attempts}))

    def _key(self, excluded: Collection[str]) -> str:
        """A short name for all that an attempt leaves out."""
        names = sorted({*self.intent.suspended, *excluded})
        return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] if names else "nothing"

    def _write(self, intent: BatchIntent) -> None:
        self.log.begin(intent)
        self.intent = self.directory.intent = intent
