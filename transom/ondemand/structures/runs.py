"""Runs: the columnar data of structures, and the interface of a structure.

The data of a structure is a few runs; small runs are merged into larger ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.numeric import expand_runs
from transom.columns.arrays import Ints
from transom.columns.hashes import row_hashes

GroupPattern = tuple[tuple[int, tuple[Any, ...]], ...]  # by group column: the wanted values
Ticks = NDArray[np.uint32] | NDArray[np.int64]


@dataclass(frozen=True)
class TupleBatch:
    """Tuples of a batch for a structure, in any order.

    `codes` are the groups of the tuples (all 0 without GROUP BY) and `keys` the groups' columns, one row
    per group; `values` is the attribute, or None if only times matter.
    """

    times: Ints
    codes: Ints
    keys: tuple[pa.Array, ...] = ()
    values: pa.Array | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """Immutable entries by group and time.

    Group g has entries `bounds[g]` to `bounds[g + 1]`, at least one, in ascending order of time. `keys` are
    the groups' columns; a structure that divides groups further, into buckets, repeats them. `columns` have
    a value per entry and `heads` one per group; the structure defines them. Times are kept as `ticks` after
    `base`, the least time: 32 bits each where that is enough. `derived` caches what lookups compute; it is
    never packed.
    """

    keys: tuple[pa.Array, ...]
    bounds: Ints
    base: int
    high: int  # the greatest time
    ticks: Ticks
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    heads: Mapping[str, pa.Array] = field(default_factory=dict)
    derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        keys: tuple[pa.Array, ...],
        bounds: Ints,
        times: Ints,
        columns: Mapping[str, pa.Array] | None = None,
        heads: Mapping[str, pa.Array] | None = None,
    ) -> Run:
        """A run of entries with the given times."""
        if not len(times):
            return cls(keys, bounds, 0, -1, np.zeros(0, np.uint32), columns or {}, heads or {})
        if len(bounds) == 2:
            base, high = int(times[0]), int(times[-1])
        else:
            base, high = int(times.min()), int(times.max())
        ticks: Ticks = (times - base).astype(np.uint32) if high - base < 1 << 32 else times - base
        return cls(keys, bounds, base, high, ticks, columns or {}, heads or {})

    @property
    def times(self) -> Ints:
        """The times of the entries."""
        return self.ticks.astype(np.int64) + self.base

    @property
    def groups(self) -> int:
        return len(self.bounds) - 1

    @property
    def entries(self) -> int:
        return len(self.ticks)

    @property
    def nbytes(self) -> int:
        """The bytes in memory, without derived data."""
        arrays = [*self.keys, *self.columns.values(), *self.heads.values()]
        return self.bounds.nbytes + self.ticks.nbytes + sum(int(array.nbytes) for array in arrays)

    def starts(self, since: int, groups: Ints | None = None) -> Ints:
        """Each group's first entry at or after `since`, or the group's end if there is none; of some groups, or all."""
        starts, stops = self.bounds[:-1], self.bounds[1:]
        if groups is not None:
            starts, stops = starts[groups], stops[groups]
        if since <= self.base:
            return starts
        if since > self.high:
            return stops
        tick = self.ticks.dtype.type(since - self.base)  # with another type NumPy would convert all ticks
        if self.groups == 1 and groups is None:
            return np.array([np.searchsorted(self.ticks, tick)])
        return first_not_below(self.ticks, starts, stops, tick)

    def packed(self) -> bytes:
        """The run as bytes: an Arrow IPC stream of one row of lists."""
        arrays = {"bounds": pa.array(self.bounds), "ticks": pa.array(self.ticks)}
        arrays |= {f"key {i}": key for i, key in enumerate(self.keys)}
        arrays |= {f"column {name}": column for name, column in self.columns.items()}
        arrays |= {f"head {name}": head for name, head in self.heads.items()}
        lists = [pa.LargeListArray.from_arrays(pa.array([0, len(a)], pa.int64()), a) for a in arrays.values()]
        row = pa.record_batch(lists, names=list(arrays))
        row = row.replace_schema_metadata({"base": str(self.base), "high": str(self.high)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, row.schema) as writer:
            writer.write_batch(row)
        return bytes(sink.getvalue())

    @classmethod
    def unpacked(cls, data: bytes) -> Run:
        """The run in bytes that `packed` returned."""
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            row = reader.read_next_batch()
        parts: dict[str, dict[str, pa.Array]] = {"key": {}, "column": {}, "head": {}}
        for name, column in zip(row.schema.names, row.columns, strict=True):
            part, _, own = name.partition(" ")
            parts.setdefault(part, {})[own] = column.values
        bounds, ticks = (parts[name][""].to_numpy() for name in ("bounds", "ticks"))
        base, high = (int(row.schema.metadata[name]) for name in (b"base", b"high"))
        return cls(tuple(parts["key"].values()), bounds, base, high, ticks, parts["column"], parts["head"])

    def take_groups(self, groups: Ints) -> Run:
        """The run with only some of the groups."""
        rows, which = expand_runs(self.bounds[groups], self.bounds[groups + 1])
        at, chosen = pa.array(rows), pa.array(groups)
        bounds = np.searchsorted(which, np.arange(len(groups) + 1))
        columns = {name: column.take(at) for name, column in self.columns.items()}
        heads = {name: head.take(chosen) for name, head in self.heads.items()}
        return Run.of(tuple(key.take(chosen) for key in self.keys), bounds, self.times[rows], columns, heads)

    def by_partition(self, partitions: int) -> Iterator[tuple[int, Run]]:
        """The run split by a hash of its groups: the same group is in the same partition in every run."""
        places = (row_hashes(self.keys, self.groups) % np.uint64(partitions)).astype(np.int64)
        for place in np.flatnonzero(np.bincount(places, minlength=partitions)).tolist():
            yield place, self.take_groups(np.flatnonzero(places == place))


def first_not_below(numbers: NDArray[Any], starts: Ints, stops: Ints, least: Any) -> Ints:
    """For each stretch of ascending numbers the position of the first that is not below `least`.

    >>> first_not_below(np.array([1, 5, 9, 2, 3]), np.array([0, 3]), np.array([3, 5]), 4).tolist()
    [1, 5]
    """
    starts, stops = starts.copy(), stops.copy()
    open_ones = np.arange(len(starts))
    while len(open_ones):
        middles = (starts[open_ones] + stops[open_ones]) >> 1
        below = numbers[middles] < least
        starts[open_ones[below]] = middles[below] + 1
        stops[open_ones[~below]] = middles[~below]
        open_ones = open_ones[starts[open_ones] < stops[open_ones]]
    return starts


@dataclass(frozen=True)
class GroupAnswers:
    """The result of a lookup: `count` groups with tuples in the window, and their answers by name."""

    keys: tuple[pa.Array, ...]
    count: int
    columns: Mapping[str, pa.Array]


class Structure(ABC):
    """An algorithm that turns tuples into runs, merges runs, and answers lookups; it holds no tuples itself."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the stored data in checkpoints; structures that store the same data have the same id."""

    @abstractmethod
    def run(self, batch: TupleBatch) -> Run:
        """A run of some tuples, made by the task that has them."""

    @abstractmethod
    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        """Several runs merged into one, without the entries before `floor`."""

    @abstractmethod
    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        """The answers over the tuples at or after `since`, of the groups that match a pattern."""
