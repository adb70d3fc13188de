"""Tasks over shards: close windows, write results, merge shards.

A task works on one partition of the groups. It writes where its data is, and returns names and counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.backends.arrow_types import plain_table
from transom.backends.base import RecordBatches, Task
from transom.columns.record_batches import in_large_tables
from transom.kernel.shards import fetched, rolled
from transom.plan.compiled_query import Slot
from transom.results.result_rows import LoweredWindows, Moment, ResultBatch, result_batch
from transom.results.shard_windows import close_shards
from transom.results.shard_work import ShardWork
from transom.runtime.fixed_schema import FixedLayout, fixed_rows
from transom.runtime.outputs import QUERY_COLUMN, rows_of_query, with_names
from transom.sql.bound_query import BoundQuery
from transom.storage.executor_files import FileShards, numbers_in, packed_value
from transom.storage.file_store import Store
from transom.storage.shard_refs import ShardRef


@dataclass
class Written:
    """What a task wrote: for each file the rows of each query in it; and how many cells it combined."""

    files: dict[str, dict[str, int]] = field(default_factory=dict)
    steps: int = 0


@dataclass(frozen=True)
class ResultTarget:
    """Where a batch's results are written, and under which names queries go there."""

    store: Store
    directory: str
    moment: Moment
    identities: Mapping[str, str]


class _Writer:
    """Writes results as they are made, one file for each schema."""

    def __init__(self, target: ResultTarget):
        self.target, self.written = target, Written()
        self._stack = ExitStack()
        self._open: dict[pa.Schema, tuple[str, Any]] = {}

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)
        self.target.store.flush()

    def write(self, batch: ResultBatch) -> None:
        if not batch.table.num_rows:
            return
        table = with_names(batch, self.target.identities.__getitem__)
        if table.schema not in self._open:
            name = f"task-{uuid.uuid4().hex}.arrow"
            writer = self._stack.enter_context(
                self.target.store.writer(f"{self.target.directory}/{name}", table.schema)
            )
            self._open[table.schema] = name, writer
            self.written.files[name] = {}
        name, writer = self._open[table.schema]
        writer.write_table(table)
        counts = self.written.files[name]
        for query, rows in zip(batch.names, np.diff(batch.bounds).tolist(), strict=True):
            counts[query] = counts.get(query, 0) + rows


def close_task(
    works: Sequence[ShardWork], shards: FileShards, places: Sequence[int], target: ResultTarget
) -> Task:
    """A task that closes windows over its partition and writes their results, which need no computing."""

    def task(batches: RecordBatches) -> RecordBatches:
        for place in numbers_in(batches):
            with _Writer(target) as writer:
                for one, steps in _closed(works, shards, places[place]):
                    writer.write(result_batch(one, {}, target.moment))
                    writer.written.steps += steps
            yield packed_value(writer.written)

    return task


def lower_task(work: ShardWork, shards: FileShards, places: Sequence[int]) -> Task:
    """A task that returns the aggregates of its partition's closed windows: the backend evaluates SELECT lists.

    Column `which` says which query a row is of; `steps` adds up to the number of cells combined.
    """
    numbers = {reader.query.name: i for i, reader in enumerate(work.readers)}

    def task(batches: RecordBatches) -> RecordBatches:
        for place in numbers_in(batches):
            for one, steps in _closed([work], shards, places[place]):
                which = np.array([numbers[query.name] for query in one.queries])[one.which]
                counts = np.zeros(len(which), np.int64)
                counts[:1] = steps
                table = one.table.append_column("which", pa.array(which, pa.int64()))
                yield from table.append_column("steps", pa.array(counts)).combine_chunks().to_batches()

    return task


def write_task(work: ShardWork, texts: Sequence[str], target: ResultTarget) -> Task:
    """A task that writes the results of rows of `lower_task` with the computed `texts` as x0, x1, ..."""
    queries = [reader.query for reader in work.readers]
    partial = [query.name in work.partial for query in queries]

    def task(batches: RecordBatches) -> RecordBatches:
        with _Writer(target) as writer:
            for table in in_large_tables(batches):
                table = plain_table(table)
                which = table["which"].to_numpy()
                order = np.argsort(which, kind="stable")
                table = table.take(pa.array(order))
                computed = {text: table[f"x{i}"] for i, text in enumerate(texts)}
                one = LoweredWindows(
                    queries, which[order], table, work.unseen, partial, work.arrivals, work.late
                )
                writer.write(result_batch(one, computed, target.moment))
                writer.written.steps += int(pc.sum(table["steps"]).as_py())
        yield packed_value(writer.written)

    return task


def roll_task(
    refs: Sequence[ShardRef],
    slots: Sequence[Slot],
    target: ShardRef,
    shards: FileShards,
    places: Sequence[int],
) -> Task:
    """A task that makes one file of its partition's many: its place, rows and bytes."""
    starts = {start for slices in target.held.values() for start, _ in slices}

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            place = places[number]
            shard = rolled(fetched(shards, refs, place), slots, list(target.held), starts)
            if shard is not None and shard.table.num_rows:
                size = shards.put(target.file(place), shard.packed())
                yield packed_value((place, shard.table.num_rows, size))

    return task


def read_task(store: Store, files: Sequence[str], identity: str, schema: pa.Schema) -> Task:
    """A task that reads back the results of one query from files."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            yield from rows_of_query(store, files[number], identity, schema)

    return task


def fixed_task(
    store: Store,
    files: Sequence[str],
    names: Mapping[str, str],
    queries: Mapping[str, BoundQuery],
    layout: FixedLayout,
) -> Task:
    """A task that reads back the results of all queries from files, in the schema that fits all."""

    def task(batches: RecordBatches) -> RecordBatches:
        for number in numbers_in(batches):
            with store.batches(files[number]) as reader:
                for i in range(reader.num_record_batches):
                    batch = pa.Table.from_batches([reader.get_batch(i)])
                    for identity in batch[QUERY_COLUMN].unique().to_pylist():
                        mine = batch.filter(pc.equal(batch[QUERY_COLUMN], identity)).drop_columns(
                            QUERY_COLUMN
                        )
                        rows = fixed_rows({names[identity]: mine}, queries, layout)
                        yield from rows.combine_chunks().to_batches()

    return task


def _closed(
    works: Iterable[ShardWork], shards: FileShards, place: int
) -> Iterator[tuple[LoweredWindows, int]]:
    for work in works:
        yield from close_shards(fetched(shards, work.refs, place), work)
