"""A batch that was begun and is not committed: what it leaves out may still grow, and is written ahead."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from transom.runtime.query_directory import QueryDirectory
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent

log = logging.getLogger("transom")


@dataclass
class BegunBatch:
    """The intent of a batch. Each change is written to the log first, so that a replay does the same work."""

    intent: BatchIntent
    log: BatchLog
    directory: QueryDirectory

    def suspend(self, key: str, reason: str) -> None:
        """Leave a query or a summary out of the batch, and of all later ones."""
        self._write(replace(self.intent, suspended={**self.intent.suspended, key: reason}))
        name = key if " " in key else f"query {key}"
        log.warning("%s is suspended: %s", name, reason)

    def without(self, excluded: Mapping[str, str]) -> BatchIntent:
        """The intent with more left out, for an attempt."""
        return replace(self.intent, suspended={**self.intent.suspended, **excluded})

    def take_drops(self) -> None:
        """Let queries that were dropped since the batch was begun leave with it."""
        with self.directory.lock:
            dropped = self.directory.take_drops()
            if dropped:
                self._write(replace(self.intent, control=(*self.intent.control, *dropped)))

    def _write(self, intent: BatchIntent) -> None:
        self.log.begin(intent)
        self.intent = self.directory.intent = intent
