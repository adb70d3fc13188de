"""COUNT, SUM and AVG of whole numbers in any window that ends now: a difference of two running sums."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise


class PrefixSums:
    """The times of all tuples, and for each tuple the sum of those before it.

    Floats are refused, because the difference of two rounded sums is not the sum between them.

    >>> sums = PrefixSums()
    >>> for time, value in enumerate([5, -2, 4]):
    ...     sums.insert(time, value)
    >>> sums.lookup(since=1)
    (2, 2)
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.before: list[int] = []
        self.total = 0

    def __len__(self) -> int:
        return len(self.times)

    def insert(self, time: int, value: int) -> None:
        """Add a tuple: O(1) in order; out of order, an addition for each later tuple."""
        if isinstance(value, float):
            raise TypeError("running sums are for whole numbers; a suffix tree adds floats")
        times, before = self.times, self.before
        if times and time < times[-1]:
            at = bisect_right(times, time)
            times.insert(at, time)
            before[at:] = [before[at], *(earlier + value for earlier in before[at:])]
        else:
            times.append(time)
            before.append(self.total)
        self.total += value

    def lookup(self, since: int) -> tuple[int, int]:
        """The number of tuples from `since` on and their sum, in O(log n)."""
        at = bisect_left(self.times, since)
        count = len(self.times) - at
        return (count, self.total - self.before[at]) if count else (0, 0)

    def expire(self, before: int) -> None:
        """Drop the tuples before a time as soon as they are the majority; no later lookup may need them."""
        if self.times and self.times[len(self.times) // 2] < before:
            stale = bisect_left(self.times, before)
            del self.times[:stale], self.before[:stale]

    def merge(self, other: PrefixSums) -> PrefixSums:
        """The prefix sums of both structures' tuples."""
        both = PrefixSums()
        for time, value in sorted(self.tuples() + other.tuples()):
            both.insert(time, value)
        return both

    def tuples(self) -> list[tuple[int, int]]:
        """The tuples that are stored, by time."""
        values = (after - before for before, after in pairwise([*self.before, self.total]))
        return list(zip(self.times, values, strict=True))
