"""The tuples of a batch that on-demand queries ask for, as a run for each of their stores."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transom.kernel.rows import Rows
from transom.kernel.shards import ShardStore, Shelf
from transom.kernel.tuples import Mask, Numbers
from transom.ondemand.needs import Gathering, Want
from transom.ondemand.structures.runs import Batch, Run
from transom.state.shards import ShardRef
from transom.windows.intervals import HIGHEST, LOWEST


@dataclass(frozen=True)
class Taking:
    """Stores that a batch adds to; tuples before `floor` are too old for the longest of their windows."""

    gathering: Gathering
    floor: int = LOWEST
    far: bool = False  # its groups are too many for the driver


@dataclass(frozen=True)
class Brought:
    """A run of so many tuples on its way to a store."""

    store: str
    run: Run
    tuples: int


def take(rows: Rows, taking: Taking, clock: str, accepted: Mask) -> tuple[list[Brought], Mask]:
    """Summarize the rows that stores ask for: a run for each, that of the groups first; and which they were.

    `clock` is the column of the stores' clock.
    """
    matched, counted = in_time(rows, taking, clock, accepted)
    at = np.flatnonzero(counted)
    found = list(_runs(rows, taking.gathering, at, rows.numbers(clock)[0])) if len(at) else []
    return found, matched


def put_run(shelf: Shelf, run: Run) -> ShardRef:
    """Put a run away by partition of its groups, with the stretch of time that it spans."""
    found = ShardRef(f"{shelf.directory}/{uuid.uuid4().hex}", (), {0: ((run.base, run.high + 1),)})
    parts = []
    for place, part in run.dealt(shelf.partitions):
        packed = pa.table({"run": pa.array([part.packed()], pa.large_binary())})
        parts.append((place, part.entries, shelf.store.put(found.file(place), packed)))
    return replace(found, parts=tuple(parts))


def fetched_runs(store: ShardStore, refs: Iterable[ShardRef], partition: int) -> list[Run]:
    """The runs of one partition."""
    mine = (ref for ref in refs if any(place == partition for place, _, _ in ref.parts))
    return [Run.unpacked(store.get(ref.file(partition))["run"][0].as_py()) for ref in mine]


def in_time(rows: Rows, taking: Taking, clock: str, accepted: Mask) -> tuple[Mask, Mask]:
    """Which rows are asked for, and which of them are not too old."""
    numbers, valid = rows.numbers(clock)
    usable = accepted & valid & (numbers > LOWEST) & (numbers < HIGHEST)
    matched = usable & rows.all_true(taking.gathering.conjuncts)
    return matched, matched & (numbers >= taking.floor)


def _runs(rows: Rows, gathering: Gathering, at: Numbers, numbers: Numbers) -> Iterator[Brought]:
    at = rows.every if len(at) == len(numbers) else at
    groups, keys = rows.grouped(gathering.keys, at, None if at is rows.every else gathering.selection)
    codes = np.zeros(len(at), np.int64) if groups is None else groups.codes
    times = numbers if at is rows.every else numbers[at]
    for name, want in gathering.stores.items():
        chosen = None if want.shown is None else rows.truth(want.shown)[at]
        own = slice(None) if chosen is None else chosen
        values = _values(rows, want, at, times)
        if values is not None and chosen is not None:
            values = values.filter(pa.array(chosen))
        batch = Batch(times[own], codes[own], tuple(keys), values)
        if len(batch.times) and (run := want.recipe.run(batch)).entries:
            yield Brought(name, run, len(batch.times))


def _values(rows: Rows, want: Want, at: Numbers, times: Numbers) -> pa.Array | None:
    if want.timed:
        return pa.array(times)
    if want.attribute is None:
        return None
    column = rows.column(want.attribute)
    return column if at is rows.every else column.take(pa.array(at))
