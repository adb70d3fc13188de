"""Stores of on-demand queries with too many groups for the driver: tasks look them up and merge their files.

A task works on one partition of the groups: all stores of a query have a group's tuples in the same
partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
import pyarrow as pa

from transom.backends.arrow_types import plain_table
from transom.backends.base import RecordBatches, Task
from transom.kernel.shards import ShardStore
from transom.kernel.store_runs import fetched_runs, read_run
from transom.ondemand.finer_stores import combine_answers, concatenate_answers
from transom.ondemand.lookup import (
    Answer,
    Lookup,
    ReadStore,
    answer_from,
    answer_schema,
    look_up,
    regrouped_read,
)
from transom.ondemand.store_specs import StoreRead, StoreSet
from transom.ondemand.structures.group_index import can_be_hashed, combination_hashes
from transom.ondemand.structures.runs import GroupAnswers, Run, Structure
from transom.state.state import State, StoreState
from transom.storage.executor_files import ExecutorFiles, FileShards, numbers_in, packed_value, places_of
from transom.storage.shard_refs import ShardRef

MAX_DRIVER_BYTES = 64 << 20  # of files that a lookup reads in this process; beyond, tasks read them
MAX_CACHED_BYTES = 256 << 20  # of runs that this process keeps for the next lookups


class RunCache:
    """Runs of files that lookups have read in this process, up to some bytes; the least recently used leave first.

    Files never change, and no name is used twice.
    """

    def __init__(self, most_bytes: int = MAX_CACHED_BYTES):
        self._most, self._bytes = most_bytes, 0
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = Lock()

    def fetched(self, store: ShardStore, refs: Sequence[ShardRef], partition: int) -> list[Run]:
        """The runs of one partition."""
        files = [ref.file(partition) for ref in refs if any(one == partition for one, _, _ in ref.parts)]
        return [self._run(store, file) for file in files]

    def _run(self, store: ShardStore, file: str) -> Run:
        with self._lock:
            if (run := self._runs.get(file)) is not None:
                self._runs.move_to_end(file)
                return run
        run = read_run(store, file)
        with self._lock:
            if file not in self._runs:
                self._runs[file] = run
                self._bytes += run.nbytes
            while self._bytes > self._most:
                self._bytes -= self._runs.popitem(last=False)[1].nbytes
        return run


@dataclass(frozen=True)
class PartitionedStores:
    """Answers lookups from files, by tasks."""

    files: ExecutorFiles
    max_files: int  # of a store, before they are merged
    runs: RunCache = field(default_factory=RunCache)

    def answered(self, lookup: Lookup, state: State) -> Answer:
        """The answer of a lookup from the files of its stores.

        If the lookup names its groups, only the files of their partitions are read. If it names values of some group
        columns, and the files are small, this process reads them, so that no job is needed: it keeps what it has read
        with an index of these columns.
        """
        refs = {key: _since(state.stores[key].refs, lookup.start) for key in lookup.stores}
        places = places_of(ref for own in refs.values() for ref in own)
        schema = answer_schema(lookup.query.query)
        named = named_partitions(lookup, state.partitions or self.files.partitions)
        places = [place for place in places if named is None or place in named]
        if not places:
            return Answer(lookup, schema.empty_table())
        if has_index(lookup) and _bytes_of(refs, places) <= MAX_DRIVER_BYTES:
            return self._combined(lookup, [self._reads_here(lookup, refs, place) for place in places])
        if lookup.finer is not None and lookup.finer.combines:
            task = reads_task(lookup, refs, self.files.shards, places)
            return self._combined(lookup, self.files.run(task, len(places)))
        task = lookup_task(lookup, refs, self.files.shards, places)
        found = plain_table(self.files.backend.run(task, len(places), schema).to_table())
        return Answer(lookup, found.cast(schema).combine_chunks())

    def _reads_here(
        self, lookup: Lookup, refs: Mapping[str, Sequence[ShardRef]], place: int
    ) -> list[GroupAnswers]:
        """What a lookup reads from the files of one partition, in this process."""

        def read(key: str, store_read: StoreRead, since: int) -> GroupAnswers:
            runs = self.runs.fetched(self.files.shards, refs[key], place)
            return store_read.structure.lookup(runs, since, lookup.pattern)

        return [regrouped_read(lookup, read, one) for one in _reads(lookup)]

    @staticmethod
    def _combined(lookup: Lookup, parts: Sequence[Sequence[GroupAnswers]]) -> Answer:
        """The answer from what was read in several partitions; a group of the query may be in several of them."""
        found: dict[StoreRead, GroupAnswers] = {}
        for i, store_read in enumerate(_reads(lookup)):
            answers = concatenate_answers([part[i] for part in parts])
            is_combined = lookup.finer is not None and lookup.finer.combines and len(parts) > 1
            found[store_read] = combine_answers(answers, store_read.structure) if is_combined else answers
        return answer_from(lookup, found.__getitem__)

    def rolled_up(self, state: State, store_sets: Sequence[StoreSet]) -> State:
        """The state with the small files of a store merged, without evicted tuples."""
        stores = dict(state.stores)
        for store_set in store_sets:
            for key, spec in store_set.stores.items():
                if len(stores[key].refs) > self.max_files:
                    stores[key] = self._merged(stores[key], spec.structure, state.batch_id)
        return replace(state, stores=stores) if stores != state.stores else state

    def _merged(self, store: StoreState, structure: Structure, batch_id: int) -> StoreState:
        def task(refs: Sequence[ShardRef], target: ShardRef, places: Sequence[int]) -> Task:
            return merge_runs_task(refs, structure, store.floor, target, self.files.shards, places)

        return replace(store, refs=self.files.merged(store.refs, self.max_files, store.floor, batch_id, task))


def _key_types(lookup: Lookup) -> list[pa.DataType]:
    """The types of the group columns of the stores that a lookup reads."""
    keys = [key.scalar for key in lookup.query.query.keys] if lookup.finer is None else lookup.finer.keys
    return [key.type for key in keys]


def has_index(lookup: Lookup) -> bool:
    """Whether an index of some group columns finds the groups of a lookup."""
    fields = [pa.field("", type) for type in _key_types(lookup)]
    return bool(lookup.pattern) and can_be_hashed(fields, lookup.pattern)


def named_partitions(lookup: Lookup, partitions: int) -> set[int] | None:
    """The partitions of the groups that a lookup names; None if it does not name a value of every group column."""
    types, wanted = _key_types(lookup), dict(lookup.pattern)
    if len(wanted) < len(types) or not has_index(lookup):
        return None
    hashes = combination_hashes(types, [wanted[place] for place in range(len(types))])
    return set((hashes % np.uint64(partitions)).astype(np.int64).tolist())


def _bytes_of(refs: Mapping[str, Sequence[ShardRef]], places: Sequence[int]) -> int:
    chosen = set(places)
    parts = (part for own in refs.values() for ref in own for part in ref.parts)
    return sum(size for place, _, size in parts if place in chosen)


def _partition_reader(
    lookup: Lookup, refs: Mapping[str, Sequence[ShardRef]], shards: FileShards, place: int
) -> ReadStore:
    """Reads a store's part of one partition."""

    def read(key: str, store_read: StoreRead, since: int) -> GroupAnswers:
        runs = fetched_runs(shards, refs[key], place)
        return store_read.structure.lookup(runs, since, lookup.pattern)

    return read


def lookup_task(
    lookup: Lookup, refs: Mapping[str, Sequence[ShardRef]], shards: FileShards, places: Sequence[int]
) -> Task:
    """A task that looks a query up in its partition of the groups."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            read = _partition_reader(lookup, refs, shards, places[number])
            yield from look_up(lookup, read).table.combine_chunks().to_batches()

    return task


def reads_task(
    lookup: Lookup, refs: Mapping[str, Sequence[ShardRef]], shards: FileShards, places: Sequence[int]
) -> Task:
    """A task that returns what a lookup reads from its partition, before groups of several partitions are combined."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            read = _partition_reader(lookup, refs, shards, places[number])
            yield packed_value([regrouped_read(lookup, read, one) for one in _reads(lookup)])

    return task


def _reads(lookup: Lookup) -> list[StoreRead]:
    """The distinct reads of a lookup."""
    return list(dict.fromkeys((lookup.query_stores.groups_read, *lookup.query_stores.reads)))


def merge_runs_task(
    refs: Sequence[ShardRef],
    structure: Structure,
    floor: int,
    target: ShardRef,
    shards: FileShards,
    places: Sequence[int],
) -> Task:
    """A task that merges the files of its partition into one, and returns its partition, entries and bytes."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            place = places[number]
            run = structure.merged(fetched_runs(shards, refs, place), floor)
            if run.entries:
                table = pa.table({"run": pa.array([run.packed()], pa.large_binary())})
                part = place, run.entries, shards.put(target.file(place), table)
                yield packed_value(part)

    return task


def _since(refs: Sequence[ShardRef], start: int) -> list[ShardRef]:
    """The files with tuples in a window."""
    return [ref for ref in refs if ref.held[0][0][1] > start]
