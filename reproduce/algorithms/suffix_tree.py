"""An associative aggregate of any window that ends now: a tree that combines pairs of tuples, then pairs of pairs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from heapq import merge
from operator import itemgetter
from typing import Any

Combine = Callable[[Any, Any], Any]


class SuffixTree:
    """`levels[0]` has a value for each tuple, by time; `levels[k + 1][i]` combines two of `levels[k]`.

    `combine` need only be associative. The tree never subtracts, so that floats are safe: a huge value does not
    affect a window that it has left.

    >>> tree = SuffixTree(lambda a, b: a + b)
    >>> for time, value in enumerate([1e300, 7.0, 0.5]):
    ...     tree.insert(time, value)
    >>> tree.lookup(since=1)
    7.5
    """

    def __init__(self, combine: Combine) -> None:
        self.combine = combine
        self.times: list[int] = []
        self.levels: list[list[Any]] = [[]]

    def __len__(self) -> int:
        return len(self.times)

    def insert(self, time: int, value: Any) -> None:
        """Add a tuple: amortized one combination in order; out of order, one combination for each later tuple."""
        times, levels = self.times, self.levels
        if times and time < times[-1]:
            at = bisect_right(times, time)
            times.insert(at, time)
            levels[0].insert(at, value)
            self._build(at)
            return
        times.append(time)
        level = levels[0]
        level.append(value)
        height, count = 1, len(level)
        while not count & 1:
            if height == len(levels):
                levels.append([])
            above = levels[height]
            above.append(self.combine(level[-2], level[-1]))
            level, height, count = above, height + 1, count >> 1

    def _build(self, at: int) -> None:
        """Recompute the nodes that cover the tuple at a position or later tuples."""
        combine, level = self.combine, self.levels[0]
        height = 1
        while len(level) > 1:
            at >>= 1
            if height == len(self.levels):
                self.levels.append([])
            above = self.levels[height]
            above[at:] = [combine(level[i], level[i + 1]) for i in range(2 * at, len(level) - 1, 2)]
            level, height = above, height + 1

    def lookup(self, since: int) -> Any:
        """The combination of all tuples from `since` on, in O(log n); None if there are none."""
        start, end = bisect_left(self.times, since), len(self.times)
        if start == end:
            return None
        combine, levels = self.combine, self.levels
        first: list[Any] = []  # at most one of each level, from either side
        last: list[Any] = []
        height = 0
        while start < end:
            if start & 1:
                first.append(levels[height][start])
                start += 1
            if end & 1:
                end -= 1
                last.append(levels[height][end])
            start >>= 1
            end >>= 1
            height += 1
        parts = first + last[::-1]
        found = parts[0]
        for part in parts[1:]:
            found = combine(found, part)
        return found

    def count(self, since: int) -> int:
        """The number of tuples from `since` on."""
        return len(self.times) - bisect_left(self.times, since)

    def expire(self, before: int) -> None:
        """Drop the tuples before a time as soon as they are the majority; no later lookup may need them."""
        if self.times and self.times[len(self.times) // 2] < before:
            stale = bisect_left(self.times, before)
            self._fill(zip(self.times[stale:], self.levels[0][stale:], strict=True))

    def merge(self, other: SuffixTree) -> SuffixTree:
        """The tree of both trees' tuples, in linear time; for equal times, this tree's tuples come first."""
        both = SuffixTree(self.combine)
        ours = zip(self.times, self.levels[0], strict=True)
        theirs = zip(other.times, other.levels[0], strict=True)
        both._fill(merge(ours, theirs, key=itemgetter(0)))
        return both

    def _fill(self, tuples: Iterable[tuple[int, Any]]) -> None:
        pairs = list(tuples)
        self.times = [time for time, _ in pairs]
        self.levels = [[value for _, value in pairs]]
        self._build(0)
