"""The checkpoint's log: what a batch is bound to is written before it runs, its state commits it.

log/0000000012.json        what batch 12 reads, and the control that takes effect in it
state/0000000012.arrow     the state after batch 12: writing it commits the batch
runs/0000000012.arrow      what batch 12 brought to the stores of on-demand queries, or merged there
results/0000000012/        the batch's results; late/, rejected/, aside/ likewise, all overwritten on replay
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from transom.elements import Control, Drop, Forget, Prod, Punctuation, Register, Summarize, Tune
from transom.errors import StateError
from transom.runtime.file_store import Store
from transom.runtime.run_files import RunFiles
from transom.state import snapshot
from transom.state.state import State

KEPT = 3  # states; the last one counts, the others are for whoever has to look into an accident


@dataclass(frozen=True)
class BatchIntent:
    """What a batch is bound to before it runs: its rows, its control and its reading of the clock."""

    batch_id: int
    clock: int  # the batch's reading of the clock: current_timestamp of its queries
    stream: str | None = None  # whose rows it carries; none for a control batch
    reference: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[Control, ...] = ()
    ended: tuple[str, ...] = ()  # streams whose open windows close
    tables: Mapping[str, int] = field(default_factory=dict)  # versions
    budget: int | None = None  # rows that it may process at once; what is beyond is set aside, or shed
    aside: tuple[str, ...] = ()  # chunks of rows set aside that it takes in
    probes: Mapping[str, int] = field(default_factory=dict)  # of queries whose budget is a time
    resumes: bool = False  # whether it goes on with what budgets have put off


class BatchLog:
    """The intents and the committed states of batches under a checkpoint."""

    def __init__(self, store: Store):
        self.store, self.runs = store, RunFiles(store)

    def begin(self, intent: BatchIntent) -> None:
        stored = vars(intent) | {"control": [_control_out(element) for element in intent.control]}
        self.store.write(f"log/{intent.batch_id:010d}.json", json.dumps(stored).encode())

    def intent(self, batch_id: int) -> BatchIntent | None:
        """What was written ahead for a batch, perhaps by a process that died before it committed."""
        path = f"log/{batch_id:010d}.json"
        if not self.store.exists(path):
            return None
        with _readable(path):
            stored = json.loads(self.store.read(path))
            control = tuple(_control_in(element) for element in stored["control"])
            lists = {name: tuple(stored[name]) for name in ("ended", "aside")}
            return BatchIntent(**stored | {"control": control} | lists)

    def commit(self, state: State, extra: Mapping[str, Any]) -> int:
        """Commit a batch; the size of its snapshot in bytes, which is the state without the runs of stores."""
        self.runs.write(state)
        packed = snapshot.dumps(state, extra, self.runs)
        self.store.write(f"state/{state.batch_id:010d}.arrow", packed)
        self.runs.tidy(state)
        old = state.batch_id - KEPT
        if old >= 0:
            self.store.delete(f"state/{old:010d}.arrow")
            self.store.delete(f"log/{old:010d}.json")
        return len(packed)

    def last(self) -> tuple[State, dict[str, Any]] | None:
        """The last committed state."""
        batches = sorted(name for name in self.store.list("state") if name.endswith(".arrow"))
        if not batches:
            return None
        with _readable(f"state/{batches[-1]}"):
            state, extra = snapshot.loads(self.store.read(f"state/{batches[-1]}"), self.runs)
        self.runs.tidy(state)
        return state, extra


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Say which file of the checkpoint it is that can't be read."""
    try:
        yield
    except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
        raise StateError(f"{path} of the checkpoint can't be read: {error}") from error


def _control_out(element: Control) -> dict[str, Any]:
    match element:
        case Register(name, text, partial):
            return {"register": name, "text": text, "partial": partial}
        case Drop(name):
            return {"drop": name}
        case Summarize(name, text):
            return {"summarize": name, "text": text}
        case Forget(name):
            return {"forget": name}
        case Tune(name, point):
            return {"tune": name, "point": point}
        case Punctuation(clock, until, since, where):
            pattern = [[column, snapshot.value_out(value)] for column, value in where]
            return {"punctuate": snapshot.clock_out(clock), "until": until, "since": since, "where": pattern}
        case Prod(clock, until, exactly, where, queries):
            pattern = [[column, snapshot.value_out(value)] for column, value in where]
            stored = {"until": until, "exactly": exactly, "where": pattern, "queries": queries}
            return {"prod": snapshot.clock_out(clock), **stored}


def _control_in(stored: dict[str, Any]) -> Control:
    match stored:
        case {"register": name}:
            return Register(name, stored["text"], stored["partial"])
        case {"drop": name}:
            return Drop(name)
        case {"summarize": name}:
            return Summarize(name, stored["text"])
        case {"forget": name}:
            return Forget(name)
        case {"tune": name}:
            return Tune(name, stored["point"])
    pattern = tuple((column, snapshot.value_in(value)) for column, value in stored["where"])
    if "prod" in stored:
        queries = None if stored["queries"] is None else tuple(stored["queries"])
        clock = snapshot.clock_in(stored["prod"])
        return Prod(clock, stored["until"], stored["exactly"], pattern, queries)
    return Punctuation(snapshot.clock_in(stored["punctuate"]), stored["until"], stored["since"], pattern)
