"""The write-ahead log: a batch's intent is written before it runs, its state commits it.

log/0000000012.json        the intent of batch 12: what it reads, and the control that takes effect in it
state/0000000012.arrow     the state after batch 12: writing it commits the batch
runs/0000000012.arrow      what batch 12 brought to the stores of on-demand queries, or merged there
results/0000000012/        the batch's results; late/, rejected/, sidelined/ likewise, all overwritten on replay
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from transom.errors import CheckpointError
from transom.runtime.run_files import RunFiles
from transom.state import snapshot
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord
from transom.state.state import State
from transom.storage.file_store import Store
from transom.storage.framed_file import damaged, missing

log = logging.getLogger("transom")

# The last one counts. If it is damaged, its batch is replayed from the one before. The third helps to investigate.
RETAINED_STATES = 3


class BatchLog:
    """The intents and the committed states of batches under a checkpoint.

    Files that a state does not need any more are deleted with the commit after it: until then the state before it
    may be the one to continue from.
    """

    def __init__(self, store: Store):
        self.store, self.runs = store, RunFiles(store)
        self.last_begun = max(_numbers(store, "log"), default=0)  # when the engine started
        self._lasting = snapshot.LastingParts()
        self._obsolete: list[tuple[int, str]] = []  # files, and the first state that does not need them

    def begin(self, intent: BatchIntent) -> None:
        """Write a batch's intent ahead."""
        self.store.write(_log_file(intent.batch_id), json.dumps(intent.to_json()).encode())

    def intent(self, batch_id: int) -> BatchIntent | None:
        """What was written ahead for a batch, perhaps by a process that died before it committed."""
        path = _log_file(batch_id)
        if not self.store.exists(path):
            return None
        with _readable(path):
            return BatchIntent.from_json(json.loads(self.store.read(path)))

    def begun_after(self, batch_id: int) -> BatchIntent | None:
        """The batch after one if an earlier process began it: it comes before all others."""
        return self.intent(batch_id + 1) if batch_id < self.last_begun else None

    def commit(self, state: State, record: CommitRecord) -> int:
        """Commit a batch; the size of its snapshot in bytes, which excludes the runs of stores."""
        self.runs.write(state)
        packed = snapshot.dumps(state, record, self.runs, self._lasting)
        self.store.flush()  # before the state refers to it
        self.store.write(_state_file(state.batch_id), packed)
        self.store.flush()
        self._delete_obsolete(state.batch_id)
        self.discard(self.runs.unused(state), state.batch_id)
        old = state.batch_id - RETAINED_STATES
        if old >= 0:
            self.store.delete(_state_file(old))
            self.store.delete(_log_file(old))
        return len(packed)

    def rewrite(self, state: State, record: CommitRecord) -> None:
        """Write the last committed state again, with another record."""
        self.store.write(_state_file(state.batch_id), snapshot.dumps(state, record, self.runs))

    def discard(self, names: Iterable[str], batch_id: int) -> None:
        """Delete files that the state after a batch does not need, once the batch after it is committed."""
        self._obsolete += [(batch_id, name) for name in names]

    def _delete_obsolete(self, batch_id: int) -> None:
        for name in dict.fromkeys(name for since, name in self._obsolete if since < batch_id):
            self.store.delete(name)
        self._obsolete = [(since, name) for since, name in self._obsolete if since >= batch_id]

    def last(self) -> tuple[State, CommitRecord] | None:
        """The last committed state and its commit record.

        A state that is damaged or missing is replaced by the one before it if its batch can be replayed exactly.
        """
        batches = sorted(_numbers(self.store, "state"))
        first_error: CheckpointError | None = None
        for batch_id in reversed(batches[-2:]):
            try:
                state, record = self._load(batch_id)
            except CheckpointError as error:
                first_error = first_error or error
                continue
            if first_error is not None and not self._can_replay(batch_id + 1):
                raise first_error
            if first_error is not None:
                log.warning("%s; batch %d is replayed instead", first_error, batch_id + 1)
            self._check_begun(batch_id)
            self.discard(self.runs.unused(state), batch_id)
            return state, record
        if first_error is not None and (batches != [1] or not self._can_replay(1)):
            raise first_error
        if first_error is not None:
            log.warning("%s; batch 1 is replayed instead", first_error)
        self._check_begun(0)
        return None

    def _load(self, batch_id: int) -> tuple[State, CommitRecord]:
        path = _state_file(batch_id)
        with _readable(path):
            state, record = snapshot.loads(self.store.read(path), self.runs)
        return state, record

    def _can_replay(self, batch_id: int) -> bool:
        """Whether a batch's rows can be had again: a streaming source brings no batch that it committed."""
        try:
            intent = self.intent(batch_id)
        except CheckpointError:
            return False
        if intent is None:
            return False
        number = intent.reference.get("stream")
        if number is None or intent.stream is None:
            return True
        return not self.store.exists(f"{streaming_checkpoint(intent.stream)}/commits/{number}")

    def _check_begun(self, batch_id: int) -> None:
        """Refuse a log that goes on after a state that is missing."""
        after = [number for number in _numbers(self.store, "log") if number > batch_id]
        if after and min(after) != batch_id + 1:
            raise missing(_state_file(min(after) - 1))


def _numbers(store: Store, directory: str) -> Iterator[int]:
    """The batches that the names of the files in a directory tell."""
    for name in store.list(directory):
        number = name.split(".")[0]
        if not number.isdigit():
            raise damaged(f"{directory}/{name}", "it is not a file of Transom's")
        yield int(number)


def streaming_checkpoint(stream: str) -> str:
    """The directory in which the system of a streaming source notes the batches that it committed."""
    return f"streaming/{stream}"


def _log_file(batch_id: int) -> str:
    return f"log/{batch_id:010d}.json"


def _state_file(batch_id: int) -> str:
    return f"state/{batch_id:010d}.arrow"


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Name the file of the checkpoint that can't be read."""
    try:
        yield
    except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
        raise damaged(path, str(error)) from error
