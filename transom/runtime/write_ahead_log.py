"""The write-ahead log: a batch's intent is written before it runs, its state commits it.

log/0000000012.json        the intent of batch 12: what it reads, and the control that takes effect in it
state/0000000012.arrow     the state after batch 12: writing it commits the batch
runs/0000000012.arrow      what batch 12 brought to the stores of on-demand queries, or merged there
results/0000000012/        the batch's results; late/, rejected/, sidelined/ likewise, all overwritten on replay
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from transom.errors import StateError
from transom.runtime.run_files import RunFiles
from transom.state import snapshot
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord
from transom.state.state import State
from transom.storage.file_store import Store

RETAINED_STATES = 3  # the last one counts, the others help to investigate an accident


class BatchLog:
    """The intents and the committed states of batches under a checkpoint."""

    def __init__(self, store: Store):
        self.store, self.runs = store, RunFiles(store)

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

    def commit(self, state: State, record: CommitRecord) -> int:
        """Commit a batch; the size of its snapshot in bytes, which excludes the runs of stores."""
        self.runs.write(state)
        packed = snapshot.dumps(state, record, self.runs)
        self.store.write(_state_file(state.batch_id), packed)
        self.runs.tidy(state)
        old = state.batch_id - RETAINED_STATES
        if old >= 0:
            self.store.delete(_state_file(old))
            self.store.delete(_log_file(old))
        return len(packed)

    def last(self) -> tuple[State, CommitRecord] | None:
        """The last committed state and its commit record."""
        batches = sorted(name for name in self.store.list("state") if name.endswith(".arrow"))
        if not batches:
            return None
        with _readable(f"state/{batches[-1]}"):
            state, record = snapshot.loads(self.store.read(f"state/{batches[-1]}"), self.runs)
        self.runs.tidy(state)
        return state, record


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
        raise StateError(f"{path} of the checkpoint can't be read: {error}") from error
