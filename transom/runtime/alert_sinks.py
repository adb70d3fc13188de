"""Sinks of alerts that a batch writes to: files, exactly once, and topics of Kafka, at least once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ContextManager, Protocol

import pyarrow as pa

from transom.alerts.events import AlertEvent
from transom.backends.base import Backend, Sink
from transom.errors import SettingError, WriteError
from transom.runtime.alert_log import event_lines, event_text
from transom.storage.failpoints import failpoint
from transom.storage.file_store import sync_paths
from transom.storage.write_errors import writable

log = logging.getLogger("transom")

_UNFINISHED = ".unfinished-"


class AlertSink(Protocol):
    """Gets the events of alerts."""

    name: str
    kind: str

    def write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        """Write the events of a batch before it is committed; a replayed batch is written again."""
        ...


class AlertFiles:
    """A directory with one file of JSON lines for each batch with events; a replayed batch overwrites its file.

    Silenced events are in it too: the field `silenced` says so.
    """

    kind = "file"

    def __init__(self, name: str, path: str):
        if "://" in path:
            raise SettingError(f"a sink of alerts writes to a directory of this machine, not to {path}")
        if not path.strip() or "\0" in path:
            raise SettingError(f"the sink of alerts {name} needs the path of a directory, not {path!r}")
        self.name, self.path = name, Path(path)
        self.guarded: Callable[[], ContextManager[Any]] = nullcontext
        self.sync = False  # whether a batch waits until its file is on disk

    def make_directory(self) -> None:
        """Make the directory when the sink is declared; SettingError if that is not possible."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"{self._cannot_write(error)}; choose another directory") from None

    def _cannot_write(self, error: OSError) -> str:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"the sink of alerts {self.name} can't write to {self.path}: {reason}"

    def write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        try:
            self._write(batch_id, events)
        except OSError as error:
            raise WriteError(
                f"{self._cannot_write(error)}; make the directory writable, and start the engine again: nothing is lost"
            ) from error

    def _write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        target = self.path / f"{batch_id:010d}.jsonl"
        mine = [event for event in events if is_for(self.name, event)]
        if not mine:
            if target.exists():  # of an attempt with other queries
                with self.guarded():
                    target.unlink()
            return
        with writable(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            unfinished = self.path / f"{_UNFINISHED}{target.name}"
            failpoint("sink", "create")
            unfinished.write_bytes(event_lines(mine))
            if self.sync:
                sync_paths([str(unfinished)])
            with self.guarded():
                failpoint("sink", "rename")
                unfinished.replace(target)
            if self.sync:
                sync_paths([str(self.path)])
            failpoint("sink", "renamed")


class AlertTopic:
    """A topic of Kafka with a message for each event; a replayed batch sends its events again.

    The key is the alert's id, so that the events of an alert are in one partition, in their order. Silenced events are
    in it too.
    """

    kind = "topic"

    def __init__(self, name: str, sink: Sink, backend: Backend):
        self.name, self._sink, self._backend = name, sink, backend

    def write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        mine = [event for event in events if is_for(self.name, event)]
        if mine:
            messages = {"key": [event.id for event in mine], "value": [event_text(event) for event in mine]}
            self._sink.write_messages(self._backend.frame(pa.table(messages)))


def is_for(sink: str, event: AlertEvent) -> bool:
    """Whether a sink gets an event: an alert may name its sinks."""
    return event.sinks is None or sink in event.sinks
