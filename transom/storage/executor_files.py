"""Files of state that executors keep under the checkpoint, and the tasks that work on them.

shards/0000000012/         what batch 12 brought or rolled up, a file for each partition

A batch's directory is emptied when the batch is tried again. What a batch no longer needs is deleted after it is
committed: until then the engine may have to continue from the state before it.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from transom.backends.base import Backend, Frame, RecordBatches, Task
from transom.storage.file_store import Store, packed_table
from transom.storage.framed_file import FRAME_OVERHEAD, damaged, missing
from transom.storage.shard_refs import ShardRef

PACKED = pa.schema([("packed", pa.binary())])


@dataclass(frozen=True)
class FileShards:
    """Shards as files under a checkpoint."""

    store: Store

    def put(self, name: str, table: pa.Table) -> int:
        packed = packed_table(table, "lz4")
        self.store.write(name, packed)
        self.store.flush()
        return packed.size + FRAME_OVERHEAD

    def get(self, name: str) -> pa.Table:
        return self.store.read_table(name)


class ExecutorFiles:
    """The files that executors keep; small ones are merged by tasks."""

    def __init__(self, backend: Backend, store: Store):
        self.backend, self.store = backend, store
        self.shards = FileShards(store)
        self.partitions = 2 * backend.parallelism

    def run(self, task: Task, partitions: int) -> list[Any]:
        """The values that a task packs, of all partitions."""
        return unpacked(self.backend.run(task, partitions, PACKED))

    def begin(self, batch_id: int) -> None:
        """Delete what an earlier attempt at a batch left."""
        self.store.delete(directory_of(batch_id))

    def unused(self, before: Iterable[ShardRef], after: Sequence[ShardRef], batch_id: int) -> list[str]:
        """The files that a state had and the next one, which batch `batch_id` committed, has not."""
        names_kept = {ref.name for ref in after}
        directories = {_parent(name) for name in names_kept}
        old, unused = {directory_of(batch_id)}, []
        for ref in before:
            old.add(_parent(ref.name))
            if ref.name not in names_kept and _parent(ref.name) in directories:
                unused += ref.files
        self.tidy(ref for ref in after if _parent(ref.name) == directory_of(batch_id))
        return [*unused, *sorted(old - directories)]

    def strays(self, refs: Iterable[ShardRef], batch_id: int) -> Iterator[str]:
        """Files that nothing refers to: failed tasks and a process that died leave some behind.

        CheckpointError if a file that is referred to is missing, or has lost bytes.
        """
        used = {file: size for ref in refs for file, size in zip(ref.files, ref.sizes, strict=True)}
        found = {f"shards/{file}": size for file, size in self.store.files("shards").items()}
        for file, size in used.items():
            if file not in found:
                raise missing(file)
            if found[file] != size:
                raise damaged(file, "it is truncated")
        for directory in self.store.list("shards"):
            if int(directory) > batch_id:  # begun, perhaps by another engine
                continue
            files = [file for file in found if file.startswith(f"shards/{directory}/")]
            strays = [file for file in files if file not in used]
            yield from [f"shards/{directory}"] if len(strays) == len(files) else strays

    def tidy(self, refs: Iterable[ShardRef]) -> None:
        """Delete files beside those of a batch's shards: tasks that were tried again left them."""
        used = {file for ref in refs for file in ref.files}
        for directory in {_parent(file) for file in used}:
            for file in self.store.list(directory):
                if f"{directory}/{file}" not in used:
                    self.store.delete(f"{directory}/{file}")

    def merged(
        self,
        refs: Sequence[ShardRef],
        most: int,
        floor: int | None,
        batch_id: int,
        task: Callable[[Sequence[ShardRef], ShardRef, Sequence[int]], Task],
    ) -> tuple[ShardRef, ...]:
        """Files with the small ones made into one by tasks, without what lies before a floor.

        They say under 0 from when to when their entries are.
        """
        small = smaller(refs, most)
        spans = [span for ref in small for span in ref.held[0]]
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        held = {0: ((low if floor is None else max(floor, low), high),)}
        target = ShardRef(f"{directory_of(batch_id)}/{uuid.uuid4().hex}", (), held)
        places = places_of(small)
        parts = sorted(self.run(task(small, target, places), len(places)))
        gone = {ref.name for ref in small}
        kept = [ref for ref in refs if ref.name not in gone]
        return (*kept, *([replace(target, parts=tuple(parts))] if parts else []))


def smaller(refs: Sequence[ShardRef], most: int) -> list[ShardRef]:
    """The files to merge when there are more than `most`: all but those as large as all smaller ones together.

    So an entry is not moved too often.
    """
    chosen: list[ShardRef] = []
    total = 0
    for ref in sorted(refs, key=lambda ref: ref.rows):
        if len(chosen) > most // 2 and ref.rows >= total:
            break
        chosen.append(ref)
        total += ref.rows
    return chosen


def places_of(refs: Iterable[ShardRef]) -> list[int]:
    """The partitions that hold anything."""
    return sorted({place for ref in refs for place, _, _ in ref.parts})


def directory_of(batch_id: int) -> str:
    """The directory of a batch's files."""
    return f"shards/{batch_id:010d}"


def _parent(file: str) -> str:
    return file.rpartition("/")[0]


def numbers_in(batches: RecordBatches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def packed_value(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(value)], pa.binary())], ["packed"])


def unpacked(frame: Frame) -> list[Any]:
    """The values that tasks packed."""
    return [pickle.loads(packed) for packed in frame.to_table()["packed"].to_pylist()]
