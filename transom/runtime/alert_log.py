"""The history of alerts under the checkpoint: one file for each batch with events, which a replay overwrites."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transom.alerts.events import AlertEvent
from transom.errors import CheckpointError, SettingError
from transom.state.commit_record import AlertBatch
from transom.storage.file_store import Store, is_of_batches_to

MOST_EVENTS = 10_000  # that are retained; the files of older ones are deleted
LONGEST_CURSOR = 64  # characters
MOST_DROPPED = 10_000  # batches whose files were deleted that are remembered


@dataclass(frozen=True, order=True)
class EventCursor:
    """A place in the history: the events before `event` of a batch, and all of earlier batches, come before it."""

    batch_id: int = 0
    event: int = 0

    def __str__(self) -> str:
        return f"{self.batch_id}.{self.event}"

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """The cursor that was written as a text.

        >>> EventCursor.parse("12.3")
        EventCursor(batch_id=12, event=3)
        """
        batch, _, event = str(text).partition(".")
        if (
            not isinstance(text, str)
            or not (batch.isdecimal() and event.isdecimal())
            or len(text) > LONGEST_CURSOR
        ):
            raise SettingError(f"not a cursor: {str(text)[:50]!r}; use the one of an earlier answer")
        return cls(int(batch), int(event))


class AlertLog:
    """Writes the events of batches, and reads those that are committed."""

    def __init__(self, store: Store, batches: Sequence[AlertBatch] = ()):
        self.store, self.batches = store, tuple(batches)
        self.dropped: deque[AlertBatch] = deque(maxlen=MOST_DROPPED)  # since the engine started
        self._made: dict[int, tuple[AlertEvent, ...]] = {}  # of the batch that is not committed yet

    def strays(self, batch_id: int) -> list[str]:
        """Files that no commit lists."""
        listed = {_file(batch.batch_id) for batch in self.batches}
        names = (name for name in self.store.list("alerts") if is_of_batches_to(batch_id, name))
        return [path for name in names if (path := f"alerts/{name}") not in listed]

    def write(self, batch_id: int, events: Sequence[AlertEvent]) -> None:
        """Write the events of a batch, in place of those of an earlier attempt."""
        self._made = {batch_id: tuple(events)} if events else {}
        if not events:
            return
        lines = [json.dumps(_stored(event), ensure_ascii=False) for event in events]
        self.store.write(_file(batch_id), "\n".join(lines).encode("utf-8", "replace"))

    def after(self, batch_id: int) -> tuple[AlertBatch, ...]:
        """The batches that the commit of a batch lists."""
        batches = self.batches
        if made := self._made.get(batch_id):
            batches = (*batches, AlertBatch(batch_id, len(made)))
        kept, events = len(batches), 0
        while kept and events + batches[kept - 1].events <= MOST_EVENTS:
            kept -= 1
            events += batches[kept].events
        return batches[min(kept, len(batches) - 1) :] if batches else ()

    def commit(self, batches: Sequence[AlertBatch]) -> list[str]:
        """Take over the batches of a commit; the files that can be deleted."""
        gone = sorted(set(self.batches) - set(batches))
        self.dropped += gone
        self.batches = tuple(batches)
        return [_file(batch.batch_id) for batch in gone]

    @property
    def end(self) -> EventCursor:
        """The place after the newest event."""
        return EventCursor(self.batches[-1].batch_id + 1) if self.batches else EventCursor()

    def count_after(self, cursor: EventCursor) -> int:
        """How many retained events come after a place."""
        batches = self.batches
        first = bisect_left(batches, cursor.batch_id, key=lambda batch: batch.batch_id)
        count = sum(batch.events for batch in batches[first:])
        if first < len(batches) and batches[first].batch_id == cursor.batch_id:
            count -= min(cursor.event, batches[first].events)
        return count

    def read(self, cursor: EventCursor, limit: int) -> Iterator[tuple[EventCursor, AlertEvent]]:
        """The events after a place, the oldest first, each with the place after it."""
        batches = self.batches
        first = bisect_left(batches, cursor.batch_id, key=lambda batch: batch.batch_id)
        for batch in batches[first:]:
            skipped = cursor.event if batch.batch_id == cursor.batch_id else 0
            for number, event in enumerate(self._events(batch)):
                if number < skipped:
                    continue
                if limit <= 0:
                    return
                limit -= 1
                yield EventCursor(batch.batch_id, number + 1), event

    def newest(self, limit: int) -> list[AlertEvent]:
        """The newest events, the newest first."""
        events: list[AlertEvent] = []
        for batch in reversed(self.batches):
            if len(events) >= limit:
                break
            events += reversed(self._events(batch))
        return events[:limit]

    def _events(self, batch: AlertBatch) -> Sequence[AlertEvent]:
        if batch.batch_id in self._made:
            return self._made[batch.batch_id]
        try:
            lines = self.store.read(_file(batch.batch_id)).decode().split("\n")
        except CheckpointError:
            if batch in self.batches:
                raise
            return ()  # deleted meanwhile
        return [_restored(json.loads(line)) for line in lines]


def _file(batch_id: int) -> str:
    return f"alerts/{batch_id:010d}.json"


def _stored(event: AlertEvent) -> dict[str, object]:
    return {**event.to_json(), "sinks": None if event.sinks is None else list(event.sinks)}


def _restored(stored: dict[str, object]) -> AlertEvent:
    sinks = stored.pop("sinks")
    return AlertEvent(**stored, sinks=None if sinks is None else tuple(sinks))  # type: ignore[arg-type]


def event_text(event: AlertEvent) -> str:
    """An event as JSON."""
    text = json.dumps(event.to_json(), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def event_lines(events: Iterable[AlertEvent]) -> bytes:
    """Events as JSON lines."""
    return "".join(f"{event_text(event)}\n" for event in events).encode()
