"""Stores of on-demand queries with too many groups for the driver: tasks look them up and merge their files.

A task works on one partition of the groups: all stores of a query have a group's tuples in the same
partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.backends.arrow_types import plain_table
from transom.backends.base import RecordBatches, Task
from transom.kernel.store_runs import fetched_runs
from transom.ondemand.lookup import Answer, Lookup, answer_schema, look_up
from transom.ondemand.store_specs import StoreRead, StoreSet
from transom.ondemand.structures.runs import GroupAnswers, Structure
from transom.state.state import State, StoreState
from transom.storage.executor_files import ExecutorFiles, FileShards, numbers_in, packed_value, places_of
from transom.storage.shard_refs import ShardRef


@dataclass(frozen=True)
class PartitionedStores:
    """Answers lookups from files, by tasks."""

    files: ExecutorFiles
    max_files: int  # of a store, before they are merged

    def answered(self, lookup: Lookup, state: State) -> Answer:
        """The answer of a lookup from the files of its stores."""
        refs = {key: _since(state.stores[key].refs, lookup.start) for key in lookup.stores}
        places = places_of(ref for own in refs.values() for ref in own)
        schema = answer_schema(lookup.query.query)
        if not places:
            return Answer(lookup, schema.empty_table())
        task = lookup_task(lookup, refs, self.files.shards, places)
        found = plain_table(self.files.backend.run(task, len(places), schema).to_table())
        return Answer(lookup, found.cast(schema).combine_chunks())

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


def lookup_task(
    lookup: Lookup, refs: Mapping[str, Sequence[ShardRef]], shards: FileShards, places: Sequence[int]
) -> Task:
    """A task that looks a query up in its partition of the groups."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            place = places[number]

            def read(key: str, store_read: StoreRead, since: int) -> GroupAnswers:
                return store_read.structure.lookup(fetched_runs(shards, refs[key], place), since)  # noqa: B023

            yield from look_up(lookup, read).table.combine_chunks().to_batches()

    return task


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
