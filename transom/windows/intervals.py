"""Sets of integers as sorted, disjoint, half-open intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

# The ends of time, far enough inside int64 that adding the range of a window does not overflow.
LOWEST = -(2**62)
HIGHEST = 2**62


@dataclass(frozen=True)
class IntervalSet:
    """A set of integers; intervals that touch are one interval.

    >>> IntervalSet.of((0, 5), (5, 7), (9, 9), (20, 30))
    IntervalSet([0, 7) [20, 30))
    """

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> IntervalSet:
        """The union of some half-open intervals, in any order, overlapping or empty as they may be."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(pair for pair in pairs if pair[0] < pair[1]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, stop))
        return cls(tuple(merged))

    def __repr__(self) -> str:
        return f"IntervalSet({' '.join(f'[{start}, {stop})' for start, stop in self.pairs)})"

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        """The integers of either set.

        A long set grows by a few intervals with each batch, so only the intervals between the first and the
        last of the shorter set are merged.
        """
        long, short = (self.pairs, other.pairs) if len(self) >= len(other) else (other.pairs, self.pairs)
        if not short or long == short:
            return IntervalSet(long)
        first = bisect_left(long, short[0][0], key=lambda pair: pair[1])
        last = bisect_right(long, short[-1][1], key=lambda pair: pair[0])
        return IntervalSet(long[:first] + IntervalSet.of(*long[first:last], *short).pairs + long[last:])

    def __and__(self, other: IntervalSet) -> IntervalSet:
        """The integers of both sets."""
        long, short = (self.pairs, other.pairs) if len(self) >= len(other) else (other.pairs, self.pairs)
        if long == short:
            return IntervalSet(long)
        shared: list[tuple[int, int]] = []
        for start, stop in short:
            first = bisect_right(long, start, key=lambda pair: pair[1])
            last = bisect_left(long, stop, key=lambda pair: pair[0])
            if first < last:  # of the intervals that overlap this one, only the outermost can reach beyond it
                met = len(shared)
                shared += long[first:last]
                shared[met] = max(start, shared[met][0]), shared[met][1]
                shared[-1] = shared[-1][0], min(stop, shared[-1][1])
        return IntervalSet(tuple(shared))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        """The integers of this set that are not in the other.

        >>> IntervalSet.of((0, 10)) - IntervalSet.of((2, 3), (8, 12))
        IntervalSet([0, 2) [3, 8))
        """
        left: list[tuple[int, int]] = []
        for start, stop in self.pairs:
            for hole_start, hole_stop in other.pairs:
                if hole_stop <= start or hole_start >= stop:
                    continue
                if start < hole_start:
                    left.append((start, hole_start))
                start = hole_stop
            if start < stop:
                left.append((start, stop))
        return IntervalSet(tuple(left))

    def covers(self, firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the runs `firsts..lasts` (both ends included) lie wholly inside the set."""
        if not self.pairs:
            return np.zeros(len(firsts), bool)
        starts, stops = self.arrays()
        at = np.searchsorted(starts, firsts, side="right") - 1
        return (at >= 0) & (lasts < stops[np.maximum(at, 0)])

    def meets(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the half-open intervals overlap the set."""
        if not self.pairs:
            return np.zeros(len(starts), bool)
        own_starts, own_stops = self.arrays()
        first_ending_after = np.searchsorted(own_stops, starts, side="right")
        exists = first_ending_after < len(own_starts)
        return exists & (own_starts[np.minimum(first_ending_after, len(own_starts) - 1)] < stops)

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The starts and the stops; callers do not change them."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        flat = chain.from_iterable(self.pairs)
        both = np.fromiter(flat, np.int64, 2 * len(self.pairs)).reshape(-1, 2)  # much faster than np.array
        return both[:, 0], both[:, 1]

    def __reduce__(self) -> tuple[type[IntervalSet], tuple[object, ...]]:
        return IntervalSet, (self.pairs,)  # without the arrays

    def without_gaps(self, shorter_than: int) -> IntervalSet:
        """A superset in which short gaps are filled.

        A window that is longer than a gap, and lies in it, also meets the interval before or after the gap. So the set
        meets the same windows of a length if the gaps that are shorter than this length are filled.

        >>> IntervalSet.of((0, 1), (3, 4), (9, 10)).without_gaps(shorter_than=5)
        IntervalSet([0, 4) [9, 10))
        """
        if len(self.pairs) < 2:
            return self
        starts, stops = self.arrays()
        edges = np.flatnonzero(starts[1:] - stops[:-1] >= shorter_than)
        firsts, lasts = starts[np.r_[0, edges + 1]], stops[np.r_[edges, len(stops) - 1]]
        return IntervalSet(tuple(zip(firsts.tolist(), lasts.tolist(), strict=True)))

    def coarsened(self, most: int, slack: int = 0) -> IntervalSet:
        """A superset of at most `most` intervals: the smallest gaps are filled.

        Up to `slack` more are left, so that a set that grows by a few intervals is coarsened now and then only.
        """
        if len(self.pairs) <= most + slack:
            return self
        starts, stops = self.arrays()
        gaps = starts[1:] - stops[:-1]
        largest = np.sort(np.argsort(gaps, kind="stable")[len(gaps) - (most - 1) :])
        return IntervalSet(
            tuple(
                zip(
                    starts[np.r_[0, largest + 1]].tolist(),
                    stops[np.r_[largest, len(stops) - 1]].tolist(),
                    strict=True,
                )
            )
        )


def union(sets: Iterable[IntervalSet]) -> IntervalSet:
    """The union of any number of sets."""
    return IntervalSet.of(*(pair for one in sets for pair in one.pairs))
