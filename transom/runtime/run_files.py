"""The runs of on-demand queries' stores and of summaries as files beside the snapshots: each is written once.

A batch writes one file with all the runs that it made. It is deleted when none of them is in use any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from transom.ondemand.structures.runs import Run
from transom.runtime.file_store import Store
from transom.state.promising import TupleRun
from transom.state.state import State

DIRECTORY = "runs"


class RunFiles:
    """Runs under a checkpoint; a run's place is its file and its number there."""

    def __init__(self, store: Store):
        self.store = store
        self._places: WeakKeyDictionary[Run | TupleRun, tuple[str, int]] = WeakKeyDictionary()
        self._read: dict[str, pa.ChunkedArray] = {}  # files that are being read
        self._files: set[str] | None = None  # that are there, once that is known

    def write(self, state: State) -> None:
        """Write the runs that no batch before has written."""
        new = [run for run in _runs(state) if run not in self._places]
        if not new:
            return
        name = f"{state.batch_id:010d}.arrow"
        packed = [run.packed() for run in new]
        self.store.write_table(f"{DIRECTORY}/{name}", pa.table({"run": pa.array(packed, pa.large_binary())}))
        self._places.update((run, (name, i)) for i, run in enumerate(new))
        if self._files is not None:
            self._files.add(name)

    def place(self, run: Run | TupleRun) -> list[Any]:
        return list(self._places[run])

    def run(self, place: list[Any]) -> Run:
        found = Run.unpacked(self._packed(*place))
        self._places[found] = place[0], place[1]
        return found

    def tuples(self, place: list[Any]) -> TupleRun:
        found = TupleRun.unpacked(self._packed(*place))
        self._places[found] = place[0], place[1]
        return found

    def _packed(self, name: str, number: int) -> bytes:
        if name not in self._read:
            self._read[name] = self.store.read_table(f"{DIRECTORY}/{name}")["run"]
        return self._read[name][number].as_py()

    def tidy(self, state: State) -> None:
        """Delete the files of which a state uses nothing."""
        self._read = {}
        if self._files is None:
            self._files = set(self.store.list(DIRECTORY))
        used = {self._places[run][0] for run in _runs(state)}
        for name in self._files - used:
            self.store.delete(f"{DIRECTORY}/{name}")
        self._files &= used


def _runs(state: State) -> Iterator[Run | TupleRun]:
    for store in state.stores.values():
        yield from store.kept.runs
    yield from state.preferring.runs
