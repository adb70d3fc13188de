"""A batch that was begun and is not committed: its intent, which may still grow, and its rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transom.backends.base import Frame
from transom.backends.file_problems import UnreadableFiles
from transom.ingest.streams import Stream
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

    def _write(self, intent: BatchIntent) -> None:
        self.log.begin(intent)
        self.intent = self.directory.intent = intent


class BatchRows:
    """The rows of a batch. A streaming source brings them (`given`); other sources read them by reference."""

    def __init__(self, begun: BegunBatch, stream: Stream | None, given: Frame | None):
        self._begun, self._given = begun, given
        self._stream = stream if given is None and begun.intent.reference else None
        self._frame = given
        self._is_searched = False  # whether the batch's files were searched for unreadable ones

    def frame(self) -> Frame | None:
        """The rows, or None if the batch brings none."""
        while self._frame is None and self._stream is not None:
            try:
                rows = self._stream.source.read(self._begun.intent.reference)
                self._frame = self._stream.with_time(rows)
            except Exception as error:
                if not self.leave_out_unreadable(error):
                    raise
        return self._frame

    def leave_out_unreadable(self, error: Exception) -> bool:
        """Leave out the files that made an attempt fail, if there are any; the decision is written ahead."""
        if self._stream is None or (self._is_searched and not isinstance(error, UnreadableFiles)):
            return False
        self._is_searched = True
        reference = self._stream.source.without_unreadable(self._begun.intent.reference, error)
        if reference is None:
            return False
        self._begun.read_from(reference)
        self._frame = None
        return True
