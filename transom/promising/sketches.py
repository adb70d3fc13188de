"""Count-sketches of many cells as one array of counters (Charikar, Chen and Farach-Colton, 2002)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transom.columns import array_bytes
from transom.columns.arrays import Floats, Ints, Keys
from transom.columns.hashes import mix_bits
from transom.promising.summary_protocol import CellSummaries, likeness, trust

_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class CountSketches(CellSummaries):
    """In every row a key has a counter and a sign; its estimated count is the median over the rows.

    >>> one = CountSketches.empty(1, rows=5, width=16)
    >>> one = one.summarize(np.array([0, 0, 0]), np.array([7, 7, 9], np.uint64))
    >>> one.estimate(np.array([0]), np.array([7, 9, 11], np.uint64)).tolist()
    [2.0, 1.0, 0.0]
    """

    counts: Ints
    counters: Ints  # cells x rows x width

    @classmethod
    def empty(cls, cells: int, rows: int, width: int) -> Self:
        return cls(np.zeros(cells, np.int64), np.zeros((cells, rows, width), np.int64))

    def summarize(self, cell: Ints, key: Keys, count: Ints | None = None) -> Self:
        cells, rows, width = self.counters.shape
        if len(cell) < cells:
            return self._with_few(cell, mix_bits(key), count)
        base, words = cell * (2 * width), mix_bits(key)
        counters = np.empty_like(self.counters)
        for row in range(rows):
            # Counting both signs side by side is twice as fast as adding up signs.
            both = _totals(base + _slots(words, row, width), cells * width * 2, count).reshape(
                cells, width, 2
            )
            np.subtract(both[:, :, 0], both[:, :, 1], out=counters[:, row])
        counters += self.counters
        return type(self)(self.counts + _totals(cell, cells, count), counters)

    def _with_few(self, cell: Ints, words: Keys, count: Ints | None) -> Self:
        """The summaries with few tuples more, for which most counters stay as they are."""
        cells, rows, width = self.counters.shape
        counters = self.counters.copy()
        flat, more = counters.reshape(-1), 1 if count is None else np.asarray(count, np.int64)
        for row in range(rows):
            slot = _slots(words, row, width)
            np.add.at(flat, (cell * rows + row) * width + (slot >> 1), (1 - 2 * (slot & 1)) * more)
        return type(self)(self.counts + _totals(cell, cells, count), counters)

    def places(self, key: Keys) -> Ints:
        """For each row and key: twice the number of its counter, plus one if its sign is minus."""
        _, rows, width = self.counters.shape
        words = mix_bits(np.asarray(key))
        return np.stack([_slots(words, row, width) + 2 * row * width for row in range(rows)])

    def read(self, cell: Ints, places: Ints) -> Floats:
        _, rows, width = self.counters.shape
        more = (1,) * max(np.ndim(cell) - (places.ndim - 1), 0)
        places = places.reshape(
            rows, *more, *places.shape[1:]
        )  # rows stay first when keys are spread over cells
        found = self.counters.reshape(-1).take(cell * (rows * width) + (places >> 1))
        return _median(found * (1 - 2 * (places & 1)))

    def read_sum(self, others: Sequence[Self], cell: Ints, places: Ints) -> Floats:
        _, rows, width = self.counters.shape
        if places[0].size * len(others) > self.counters.size:
            return super().read_sum(others, cell, places)
        at = cell * (rows * width) + (places >> 1)  # counters are added, so only those of the keys are needed
        found = sum((one.counters.reshape(-1).take(at) for one in others), self.counters.reshape(-1).take(at))
        return _median(found * (1 - 2 * (places & 1)))

    def confidence(self, recent: Self | None = None) -> Floats:
        _, rows, width = self.counters.shape
        if recent is None:
            return trust(self._product(self), self.counts, width, rows)
        own, theirs = self._product(self), recent._product(recent)
        blur = 2 / (rows * width)
        return likeness(own, theirs, self._product(recent), self.counts, recent.counts, blur)

    def _product(self, other: Self) -> Floats:
        """For each cell, the estimated sum of the products of the values' counts: the mean over the rows."""
        rows = self.counters.shape[1]
        return np.einsum("crw,crw->c", self.counters, other.counters).astype(np.float64) / rows

    def add(self, other: Self) -> Self:
        return type(self)(self.counts + other.counts, self.counters + other.counters)

    def subtract(self, other: Self) -> Self:
        return type(self)(self.counts - other.counts, self.counters - other.counters)

    def take(self, cells: Ints) -> Self:
        return type(self)(self.counts[cells], self.counters[cells])

    def copy_range(self, since: int, until: int) -> Self:
        return type(self)(self.counts[since:until].copy(), self.counters[since:until].copy())

    def sum_groups(self, group: Ints, groups: int) -> Self:
        if groups == 1:
            return type(self)(self.counts.sum(keepdims=True), self.counters.sum(0, keepdims=True))
        order = np.argsort(group, kind="stable")
        firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
        counts = np.zeros(groups, np.int64)
        counters = np.zeros((groups, *self.counters.shape[1:]), np.int64)
        if len(firsts):
            filled = group[order[firsts]]
            counts[filled] = np.add.reduceat(self.counts[order], firsts)
            counters[filled] = np.add.reduceat(self.counters[order], firsts)
        return type(self)(counts, counters)

    def concat(self, others: Sequence[Self]) -> Self:
        every = [self, *others]
        return type(self)(
            np.concatenate([one.counts for one in every]), np.concatenate([one.counters for one in every])
        )

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes + self.counters.nbytes

    def packed(self) -> bytes:
        filled = np.flatnonzero(self.counters.any((1, 2)))
        shape = {"kind": "countsketch", "shape": self.counters.shape}
        return array_bytes.pack(
            shape, {"counts": self.counts, "filled": filled, "counters": _narrowed(self.counters[filled])}
        )

    def __reduce__(self) -> tuple:
        return _restored, (self.packed(),)  # a compact form: few cells have tuples, and counters are small

    @classmethod
    def unpacked(cls, meta: dict, parts: dict) -> Self:
        counters = np.zeros(meta["shape"], np.int64)
        counters[parts["filled"]] = parts["counters"]
        return cls(parts["counts"], counters)


def _restored(data: bytes) -> CountSketches:
    return CountSketches.unpacked(*array_bytes.unpack(data))


def _slots(words: Keys, row: int, width: int) -> Ints:
    """The slot of each mixed key among a row's 2 x width: the number of its counter, then a bit for its sign."""
    return (((words * _factor(row)) >> _HALF) * np.uint64(2 * width) >> _HALF).view(np.int64)


@lru_cache(64)
def _factor(row: int) -> np.uint64:
    return np.uint64(mix_bits(np.array([0x5EED + row], np.uint64))[0] | np.uint64(1))


def _totals(place: Ints, places: int, count: Ints | None) -> Ints:
    if count is None:
        return np.bincount(place, minlength=places)
    return np.rint(np.bincount(place, weights=count, minlength=places)).astype(np.int64)


def _median(rows: NDArray) -> Floats:
    """The median over the rows; for five rows, the usual number, without sorting."""
    if len(rows) != 5:
        return np.median(rows, 0)
    a, b, c, d, e = rows
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))  # the median of five is that of low, high and e
    return np.maximum(np.minimum(low, high), np.minimum(e, np.maximum(low, high))).astype(np.float64)


def _narrowed(numbers: Ints) -> NDArray:
    """Numbers in the narrowest integer type that holds them all."""
    most = int(np.abs(numbers).max(initial=0))
    return numbers.astype(
        next(type for type in (np.int8, np.int16, np.int32, np.int64) if most <= np.iinfo(type).max)
    )
