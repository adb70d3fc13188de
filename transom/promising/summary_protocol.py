"""The summary ADT: the protocol of summaries of many cells, for every technique (3.2)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints, Keys

SURE = 3.0  # a difference counts if it exceeds this many standard deviations of the noise


class CellSummaries(ABC):
    """Summaries of the tuples in cells 0, 1, ...; a tuple is represented by the key of its value.

    Immutable. All cells have one kind and shape, so that any two can be added and subtracted. `counts` are
    the exact numbers of tuples of each cell.
    """

    counts: Ints

    @property
    def cells(self) -> int:
        return len(self.counts)

    @abstractmethod
    def summarize(self, cell: Ints, key: Keys, count: Ints | None = None) -> Self:
        """The summaries with more tuples; `count` is the number of each (None: one)."""

    def estimate(self, cell: Ints, key: Keys) -> Floats:
        """The estimated count of each key in a cell; the two arrays broadcast."""
        return self.read(cell, self.places(key))

    @abstractmethod
    def places(self, key: Keys) -> NDArray:
        """The places of keys in all summaries of this shape; keys are the last dimensions."""

    @abstractmethod
    def read(self, cell: Ints, places: NDArray) -> Floats:
        """The estimates at the places of keys."""

    def read_sum(self, others: Sequence[Self], cell: Ints, places: NDArray) -> Floats:
        """The estimates at the places of keys in the sum of these summaries and others."""
        whole = self
        for other in others:
            whole = whole.add(other)
        return whole.read(cell, places)

    @abstractmethod
    def confidence(self, recent: Self | None = None) -> Floats:
        """How far to trust each cell's estimates, from 0 to 1; with `recent`, as a description of those tuples.

        Alone it is 1 less the relative standard error of a tuple's estimate. With `recent` it is
        `likeness`.
        """

    @abstractmethod
    def add(self, other: Self) -> Self:
        """The summaries of both sets of tuples, cell by cell."""

    @abstractmethod
    def subtract(self, other: Self) -> Self:
        """The summaries without the tuples of the other, cell by cell."""

    @abstractmethod
    def take(self, cells: Ints) -> Self:
        """The given cells, in this order."""

    @abstractmethod
    def copy_range(self, since: int, until: int) -> Self:
        """A copy of the cells from `since` to before `until`."""

    @abstractmethod
    def sum_groups(self, group: Ints, groups: int) -> Self:
        """The sums of the cells of each group."""

    @abstractmethod
    def concat(self, others: Sequence[Self]) -> Self:
        """The cells of this object, then those of the others."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def packed(self) -> bytes:
        """The summaries as bytes, which `unpack_summaries` reads."""


def likeness(earlier: Floats, recent: Floats, both: Floats, n: Ints, m: Ints, blur: float = 0.0) -> Floats:
    """How alike the relative frequencies p of n tuples and q of m are: 1 the same, 0 nothing in common.

    `earlier` and `recent` are the sums of the squared counts of values and `both` that of their products, each
    with a relative variance of `blur`. It is 1 - |p - q|² / (|p|² + |q|²), where |p - q|² is reduced by
    what sampling adds to it, and by three standard deviations of that: few tuples are no evidence of
    change.

    >>> n, m = np.array([1000]), np.array([500])
    >>> likeness(np.array([500_000.0]), np.array([125_000.0]), np.array([250_000.0]), n, m).tolist()
    [1.0]
    >>> likeness(np.array([1_000_000.0]), np.array([250_000.0]), np.array([0.0]), n, m).tolist()
    [0.0]
    """
    n, m = np.maximum(n, 1), np.maximum(m, 1)
    apart = earlier / n**2 + recent / m**2 - 2 * both / (n * m)
    # An unbiased |p|² leaves out the pairs of a tuple with itself.
    p = np.clip((earlier - n) / np.maximum(n * (n - 1), 1), 0, 1)
    q = np.clip((recent - m) / np.maximum(m * (m - 1), 1), 0, 1)
    sampling = (1 - p) / n + (1 - q) / m
    excess = apart - sampling * (1 + SURE * np.sqrt(blur + p + q))
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = 1 - np.clip(excess / (p + q), 0, 1)
    return np.where((excess > 0) & (p + q > 0), alike, 1.0)


def trust(squares: Floats, counts: Ints, width: float, rows: int) -> Floats:
    """1 less the relative standard error of a tuple's estimate by the median of rows of `width` counters.

    A tuple's value occurs F2/N times on average; the F2 of the other values, spread over the counters, is
    the variance of a row's estimate.

    >>> trust(np.array([100.0, 20.0, 10.0]), np.array([10, 10, 10]), 16, 5).round(2).tolist()
    [1.0, 0.72, 0.58]
    """
    usual = squares / np.maximum(counts, 1)
    error = np.sqrt(np.maximum(squares - usual**2, 0) / width) * min(1.0, math.sqrt(math.pi / 2 / rows))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(usual > 0, np.clip(1 - error / usual, 0, 1), 1.0)
