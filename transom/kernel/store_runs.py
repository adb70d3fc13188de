"""The tuples of a batch that on-demand stores keep, as one run per store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask
from transom.kernel.rows import Rows
from transom.kernel.shards import ShardStore, Shelf
from transom.ondemand.store_specs import StoreSet, StoreSpec
from transom.ondemand.structures.runs import Run, TupleBatch
from transom.storage.shard_refs import ShardRef
from transom.windows.intervals import HIGHEST, LOWEST


@dataclass(frozen=True)
class StoreInput:
    """The stores of a store set as a batch adds to them; tuples before `floor` are too old for any window.

    `readers` are the queries by length of their windows, each with the time before which tuples are late for them.
    """

    store_set: StoreSet
    floor: int = LOWEST
    on_executors: bool = False  # its groups are too many for the driver
    readers: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class StoreRun:
    """A run of `tuples` tuples that a batch adds to a store."""

    store: str
    run: Run
    tuples: int


def take(rows: Rows, store_input: StoreInput, clock: str, accepted: Mask) -> tuple[list[StoreRun], Mask]:
    """The runs of the rows that a store set selects, the store of the groups first; and the mask of these rows.

    `clock` is the column of the stores' clock.
    """
    matched, counted = in_time(rows, store_input, clock, accepted)
    at = np.flatnonzero(counted)
    found = list(_runs(rows, store_input.store_set, at, rows.numbers(clock)[0])) if len(at) else []
    return found, matched


def put_run(shelf: Shelf, run: Run) -> ShardRef:
    """Write a run to the shelf, one file per partition of its groups; the reference holds its range of times."""
    ref = ShardRef(f"{shelf.directory}/{uuid.uuid4().hex}", (), {0: ((run.base, run.high + 1),)})
    parts = []
    for place, part in run.by_partition(shelf.partitions):
        packed = pa.table({"run": pa.array([part.packed()], pa.large_binary())})
        parts.append((place, part.entries, shelf.store.put(ref.file(place), packed)))
    return replace(ref, parts=tuple(parts))


def fetched_runs(store: ShardStore, refs: Iterable[ShardRef], partition: int) -> list[Run]:
    """The runs of one partition, read from their files."""
    mine = (ref for ref in refs if any(place == partition for place, _, _ in ref.parts))
    return [read_run(store, ref.file(partition)) for ref in mine]


def read_run(store: ShardStore, file: str) -> Run:
    """The run in a file."""
    return Run.unpacked(store.get(file)["run"][0].as_py())


def in_time(rows: Rows, store_input: StoreInput, clock: str, accepted: Mask) -> tuple[Mask, Mask]:
    """The rows that a store set selects, and those of them that are not too old."""
    numbers, valid = rows.numbers(clock)
    usable = accepted & valid & (numbers > LOWEST) & (numbers < HIGHEST)
    matched = usable & rows.all_true(store_input.store_set.conjuncts)
    return matched, matched & (numbers >= store_input.floor)


def _runs(rows: Rows, store_set: StoreSet, at: Ints, numbers: Ints) -> Iterator[StoreRun]:
    at = rows.every if len(at) == len(numbers) else at
    groups, keys = rows.grouped(store_set.keys, at, None if at is rows.every else store_set.selection)
    codes = np.zeros(len(at), np.int64) if groups is None else groups.codes
    times = numbers if at is rows.every else numbers[at]
    for name, spec in store_set.stores.items():
        chosen = None if spec.where is None else rows.truth(spec.where)[at]
        tuples_of_store = slice(None) if chosen is None else chosen
        values = _values(rows, spec, at, times)
        if values is not None and chosen is not None:
            values = values.filter(pa.array(chosen))
        batch = TupleBatch(times[tuples_of_store], codes[tuples_of_store], tuple(keys), values)
        if len(batch.times) and (run := spec.structure.run(batch)).entries:
            yield StoreRun(name, run, len(batch.times))


def _values(rows: Rows, spec: StoreSpec, at: Ints, times: Ints) -> pa.Array | None:
    if spec.keeps_times:
        return pa.array(times)
    if spec.attribute is None:
        return None
    column = rows.column(spec.attribute)
    return column if at is rows.every else column.take(pa.array(at))
