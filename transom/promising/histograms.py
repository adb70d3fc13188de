"""Exact summaries of cells: the count of each value, or only the number of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from transom.columns import array_bytes
from transom.columns.arrays import Floats, Ints, Keys
from transom.promising.summary_protocol import CellSummaries, likeness


@dataclass(frozen=True, eq=False)
class Histograms(CellSummaries):
    """The count of every key in every cell; `cell` and `key` are sorted and no count is 0.

    >>> one = Histograms.empty(1).summarize(np.array([0, 0, 0]), np.array([7, 7, 9], np.uint64))
    >>> one.estimate(np.array([0]), np.array([7, 9, 11], np.uint64)).tolist()
    [2.0, 1.0, 0.0]
    """

    counts: Ints
    cell: Ints
    key: Keys
    count: Ints

    @classmethod
    def empty(cls, cells: int) -> Self:
        none = np.zeros(0, np.int64)
        return cls(np.zeros(cells, np.int64), none, none.view(np.uint64), none)

    @classmethod
    def _of(cls, cells: int, cell: Ints, key: Keys, count: Ints) -> Self:
        """Histograms of entries in any order, several of which may have the same key."""
        order = np.lexsort((key, cell))
        cell, key, count = cell[order], key[order], count[order]
        new = np.ones(len(cell), bool)
        new[1:] = (cell[1:] != cell[:-1]) | (key[1:] != key[:-1])
        firsts = np.flatnonzero(new)
        cell, key = cell[firsts], key[firsts]
        count = np.add.reduceat(count, firsts) if len(firsts) else count
        kept = count != 0
        cell, key, count = cell[kept], key[kept], count[kept]
        counts = np.zeros(cells, np.int64)
        np.add.at(counts, cell, count)
        return cls(counts, cell, key, count)

    def summarize(self, cell: Ints, key: Keys, count: Ints | None = None) -> Self:
        more = np.ones(len(cell), np.int64) if count is None else np.asarray(count, np.int64)
        return self._of(
            self.cells,
            np.concatenate([self.cell, cell]),
            np.concatenate([self.key, key]),
            np.concatenate([self.count, more]),
        )

    def places(self, key: Keys) -> Keys:
        return key

    def read(self, cell: Ints, places: Keys) -> Floats:
        cell, key = np.broadcast_arrays(cell, places)
        starts = np.searchsorted(self.cell, np.arange(self.cells + 1))
        low, end = starts[cell], starts[cell + 1]
        high, last = end, max(len(self.key) - 1, 0)
        while len(self.key) and (low < high).any():  # one binary search for all keys
            middle = (low + high) // 2
            below = (low < high) & (self.key[np.minimum(middle, last)] < key)
            low, high = np.where(below, middle + 1, low), np.where(below, high, np.maximum(middle, low))
        counts = np.zeros(low.shape)
        there = low < end
        there[there] = self.key[low[there]] == key[there]
        counts[there] = self.count[low[there]]
        return counts

    def confidence(self, recent: Self | None = None) -> Floats:
        if recent is None:
            return np.ones(self.cells)
        own, theirs = self._product(self), recent._product(recent)
        return likeness(own, theirs, self._product(recent), self.counts, recent.counts)

    def _product(self, other: Self) -> Floats:
        """For each cell, the sum of the products of the keys' counts."""
        products = self.count * other.estimate(self.cell, self.key)
        return np.bincount(self.cell, products, minlength=self.cells).astype(np.float64)

    def add(self, other: Self) -> Self:
        return self.summarize(other.cell, other.key, other.count)

    def subtract(self, other: Self) -> Self:
        return self.summarize(other.cell, other.key, -other.count)

    def take(self, cells: Ints) -> Self:
        starts = np.searchsorted(self.cell, np.arange(self.cells + 1))
        lengths = starts[cells + 1] - starts[cells]
        begin = np.cumsum(lengths) - lengths
        rows = np.arange(lengths.sum()) + np.repeat(starts[cells] - begin, lengths)
        return type(self)(
            self.counts[cells], np.repeat(np.arange(len(cells)), lengths), self.key[rows], self.count[rows]
        )

    def copy_range(self, since: int, until: int) -> Self:
        start, end = np.searchsorted(self.cell, [since, until])
        return type(self)(
            self.counts[since:until].copy(),
            self.cell[start:end] - since,
            self.key[start:end].copy(),
            self.count[start:end].copy(),
        )

    def sum_groups(self, group: Ints, groups: int) -> Self:
        return self._of(groups, group[self.cell], self.key, self.count)

    def concat(self, others: Sequence[Self]) -> Self:
        every = [self, *others]
        bases = np.cumsum([0, *(part.cells for part in every)])
        return type(self)(
            np.concatenate([part.counts for part in every]),
            np.concatenate([part.cell + base for part, base in zip(every, bases, strict=False)]),
            np.concatenate([part.key for part in every]),
            np.concatenate([part.count for part in every]),
        )

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.counts, self.cell, self.key, self.count))

    def packed(self) -> bytes:
        parts = {"counts": self.counts, "cell": self.cell, "key": self.key, "count": self.count}
        return array_bytes.pack({"kind": "histogram"}, parts)

    @classmethod
    def unpacked(cls, meta: dict, parts: dict) -> Self:
        return cls(parts["counts"], parts["cell"], parts["key"], parts["count"])


@dataclass(frozen=True, eq=False)
class Tallies(CellSummaries):
    """The number of tuples in each cell, used as the estimate of every value's count: no summaries (T1 of 5.1).

    >>> one = Tallies.empty(1).summarize(np.array([0, 0]), np.array([7, 9], np.uint64))
    >>> one.estimate(np.array([0]), np.array([5], np.uint64)).tolist()
    [2.0]
    """

    counts: Ints

    @classmethod
    def empty(cls, cells: int) -> Self:
        return cls(np.zeros(cells, np.int64))

    def summarize(self, cell: Ints, key: Keys, count: Ints | None = None) -> Self:
        more = np.bincount(cell, weights=count, minlength=self.cells)
        return type(self)(self.counts + np.rint(more).astype(np.int64))

    def places(self, key: Keys) -> Keys:
        return key

    def read(self, cell: Ints, places: Keys) -> Floats:
        cell, _ = np.broadcast_arrays(cell, places)
        return np.asarray(self.counts[cell], np.float64)

    def confidence(self, recent: Self | None = None) -> Floats:
        return np.ones(self.cells)

    def add(self, other: Self) -> Self:
        return type(self)(self.counts + other.counts)

    def subtract(self, other: Self) -> Self:
        return type(self)(self.counts - other.counts)

    def take(self, cells: Ints) -> Self:
        return type(self)(self.counts[cells])

    def copy_range(self, since: int, until: int) -> Self:
        return type(self)(self.counts[since:until].copy())

    def sum_groups(self, group: Ints, groups: int) -> Self:
        return type(self).empty(groups).summarize(group, group.view(np.uint64), self.counts)

    def concat(self, others: Sequence[Self]) -> Self:
        return type(self)(np.concatenate([self.counts, *(one.counts for one in others)]))

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes

    def packed(self) -> bytes:
        return array_bytes.pack({"kind": "none"}, {"counts": self.counts})

    @classmethod
    def unpacked(cls, meta: dict, parts: dict) -> Self:
        return cls(parts["counts"])
