"""Files beside the snapshots that hold the runs of stores and of summaries: each run is written once.

A batch writes one file with all the runs that it made. The file is deleted once no run in it is in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pyarrow as pa

from transom.ondemand.structures.runs import Run
from transom.state.promising import TupleRun
from transom.state.snapshot import RunLocation
from transom.state.state import State
from transom.storage.file_store import Store, is_of_batches_to

DIRECTORY = "runs"


class RunFiles:
    """Runs under a checkpoint; the place of a run is its file and its number in the file."""

    def __init__(self, store: Store):
        self.store = store
        self._places: WeakKeyDictionary[Run | TupleRun, tuple[str, int]] = WeakKeyDictionary()
        self._open_files: dict[str, pa.ChunkedArray] = {}  # while a state is loaded
        self._files: set[str] | None = None  # that exist; None until they are listed

    def write(self, state: State) -> None:
        """Write the runs of a state that are not written yet."""
        new = [run for run in _runs(state) if run not in self._places]
        if not new:
            return
        name = f"{state.batch_id:010d}.arrow"
        packed = [run.packed() for run in new]
        self.store.write_table(f"{DIRECTORY}/{name}", pa.table({"run": pa.array(packed, pa.large_binary())}))
        self._places.update((run, (name, i)) for i, run in enumerate(new))
        if self._files is not None:
            self._files.add(name)

    def place(self, run: Run | TupleRun) -> RunLocation:
        """Where a run is stored."""
        file, number = self._places[run]
        return {"file": file, "number": number}

    def run(self, place: RunLocation) -> Run:
        """The run at a place."""
        run = Run.unpacked(self._packed(place))
        self._places[run] = place["file"], place["number"]
        return run

    def tuples(self, place: RunLocation) -> TupleRun:
        """The tuples of a summary at a place."""
        run = TupleRun.unpacked(self._packed(place))
        self._places[run] = place["file"], place["number"]
        return run

    def _packed(self, place: RunLocation) -> bytes:
        file = place["file"]
        if file not in self._open_files:
            self._open_files[file] = self.store.read_table(f"{DIRECTORY}/{file}")["run"]
        return self._open_files[file][place["number"]].as_py()

    def unused(self, state: State) -> list[str]:
        """The files of which a state uses no run; each is named once.

        A file of a later batch, of which an attempt was not committed, is not among them: the batch writes it again.
        """
        self._open_files = {}
        if self._files is None:
            self._files = set(self.store.list(DIRECTORY))
        used = {self._places[run][0] for run in _runs(state)}
        unused = sorted(name for name in self._files - used if is_of_batches_to(state.batch_id, name))
        self._files.difference_update(unused)
        return [f"{DIRECTORY}/{name}" for name in unused]


def _runs(state: State) -> Iterator[Run | TupleRun]:
    for store in state.stores.values():
        yield from store.tiers.runs
    yield from state.promising.runs
