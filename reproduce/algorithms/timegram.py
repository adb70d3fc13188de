"""TimeGram: tuples' times in buckets by value, and answers as intervals (Wang and Freschl, section 3).

This is the paper's structure, tuple by tuple, with three differences. An average is divided by the number of
tuples in the window, not in the whole structure. Values outside the range, NaN and the infinities have buckets
of their own. Rounding never narrows an interval.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import merge
from itertools import pairwise, repeat
from math import inf, isfinite, isnan, nan, nextafter
from operator import mul, sub
from typing import NamedTuple

EPSILON = 2.0**-52
WHOLE = 2**53  # doubles represent every integer below it
FEWEST = 64  # below this number of stored times, `expire` does not look for old ones


class Interval(NamedTuple):
    """An interval that contains the exact answer; `low` and `high` are NaN if the answer is NaN."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= value <= self.high or (isnan(value) and isnan(self.low) and isnan(self.high))


class TimeGram:
    """The times of tuples in buckets of values.

    A bucket lies between two bounds and includes the lower one; the last bucket includes both.

    >>> gram = TimeGram([-10, -6, -2, 4, 6, 10])
    >>> for time, value in enumerate([3, -10, -9, 5, 2, 7, -3], start=1):
    ...     gram.insert(time, value)
    >>> gram.max(since=5), gram.sum(since=4)
    (Interval(low=6, high=10), Interval(low=2, high=18))
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        if len(bounds) < 2 or any(not low < high for low, high in pairwise(bounds)):
            raise ValueError("the bounds of buckets are at least two numbers, in ascending order")
        self.bounds = list(bounds)
        # Buckets in the order of values: minus infinity, values below the bounds, the buckets between the bounds,
        # values above, infinity, NaN. The buckets below and above are bounded by the values seen there.
        self._lows = [-inf, bounds[0], *bounds, inf, nan]
        self._highs = [-inf, *bounds, bounds[-1], inf, nan]
        self._reaches = [max(abs(low), abs(high)) for low, high in zip(self._lows, self._highs, strict=True)]
        self._times: list[list[int]] = [[] for _ in self._lows]
        self._downward = range(len(self._times))[::-1]
        self._odd = False  # whether a value was not finite
        self._stored, self._sweep_at = 0, FEWEST

    @classmethod
    def evenly(cls, low: float, high: float, count: int) -> TimeGram:
        """Buckets of equal width (3.2.2 c)."""
        return cls([low + (high - low) * i / count for i in range(count)] + [high])

    def __len__(self) -> int:
        return self._stored

    def insert(self, time: int, value: float) -> None:
        """Insert a tuple: O(log K) to find its bucket, and O(1) in the bucket if it is in order."""
        at = bisect_right(self.bounds, value)
        if not 0 < at < len(self.bounds):
            at = self._outside(at, value)
        times = self._times[at + 1]
        if times and time < times[-1]:
            insort(times, time)
        else:
            times.append(time)
        self._stored += 1

    def _outside(self, at: int, value: float) -> int:
        """The index of the bucket of a value that is not between the bounds."""
        if value == self.bounds[-1]:
            return at - 1
        if not isfinite(value):
            self._odd = True
            return len(self.bounds) + 2 if isnan(value) else -1 if value < 0 else len(self.bounds) + 1
        self._widen(at + 1, value, value)
        return at

    def _widen(self, at: int, low: float, high: float) -> None:
        if self._times[at]:
            low, high = min(low, self._lows[at]), max(high, self._highs[at])
        self._lows[at], self._highs[at], self._reaches[at] = low, high, max(abs(low), abs(high))

    def max(self, since: int) -> Interval | None:
        """The highest bucket that has a tuple in the window (3.2.3 a); None if the window is empty."""
        for at in self._downward:
            times = self._times[at]
            if times and times[-1] >= since:
                return Interval(self._lows[at], self._highs[at])
        return None

    def min(self, since: int) -> Interval | None:
        """The lowest bucket that has a tuple in the window (3.2.3 b); NaN is above all numbers."""
        for at, times in enumerate(self._times):
            if times and times[-1] >= since:
                return Interval(self._lows[at], self._highs[at])
        return None

    def count(self, since: int) -> Interval:
        """The exact number of tuples from `since` on (3.2.3 c)."""
        count = self._stored - sum(map(bisect_left, self._times, repeat(since)))
        return Interval(count, count)

    def _counts(self, since: int) -> list[int]:
        """The number of the window's tuples in each bucket, by a binary search in each."""
        return list(map(sub, map(len, self._times), map(bisect_left, self._times, repeat(since))))

    def sum(self, since: int) -> Interval | None:
        """The sum of each bucket's bounds times the number of its tuples in the window (3.2.3 d)."""
        return self._sum(since)[0]

    def avg(self, since: int) -> Interval | None:
        """The sum divided by the number of tuples in the window (3.2.3 e, corrected)."""
        total, count = self._sum(since)
        if total is None or isnan(total.low):
            return total
        return Interval(_quotient(total.low, count, -inf), _quotient(total.high, count, inf))

    def _sum(self, since: int) -> tuple[Interval | None, int]:
        """The sum, and the number of tuples."""
        counts = self._counts(since)
        count = sum(counts)
        if self._odd and (counts[0] or counts[-2] or counts[-1]):
            total = counts[0] * -inf if counts[0] else 0.0  # infinities of both signs add up to NaN
            total += counts[-2] * inf if counts[-2] else 0.0
            total += nan if counts[-1] else 0.0
            return Interval(total, total), count
        if not count:
            return None, 0
        finite = counts[1:-2]
        low, high, reach = (
            sum(map(mul, column[1:-2], finite)) for column in (self._lows, self._highs, self._reaches)
        )
        return self._rounded(low, high, reach, count), count

    def _rounded(self, low: float, high: float, reach: float, count: int) -> Interval:
        """An interval that contains the exact sum and every order of adding it up in doubles."""
        if type(low) is int and type(high) is int and reach < WHOLE:
            return Interval(low, high)
        if reach == inf:
            return Interval(-inf, inf)
        margin = (count + len(self.bounds) + 4) * EPSILON * reach
        return Interval(nextafter(low - margin, -inf), nextafter(high + margin, inf))

    def expire(self, before: int) -> None:
        """Drop times before a time, once twice as many times are stored as after the last drop."""
        if self._stored < self._sweep_at:
            return
        for times in self._times:
            del times[: bisect_left(times, before)]
        self._stored = sum(map(len, self._times))
        self._sweep_at = max(FEWEST, 2 * self._stored)

    def contents(self, since: int) -> list[list[int]]:
        """The times in each bucket between two bounds (figure 2)."""
        return [times[bisect_left(times, since) :] for times in self._times[2:-3]]

    def merge(self, other: TimeGram) -> TimeGram:
        """The TimeGram of both structures' tuples; their bounds must be equal."""
        if self.bounds != other.bounds:
            raise ValueError("timegrams with different bounds cannot be merged")
        both = TimeGram(self.bounds)
        for part in (self, other):
            for at in (1, len(self.bounds) + 1):
                if part._times[at]:
                    both._widen(at, part._lows[at], part._highs[at])
            both._times = [list(merge(*pair)) for pair in zip(both._times, part._times, strict=True)]
        both._odd = self._odd or other._odd
        both._stored = len(self) + len(other)
        return both


def _quotient(total: float, count: int, toward: float) -> float:
    """The quotient, or the next double in the given direction if the quotient may be rounded."""
    exact = not isfinite(total) or (abs(total) < WHOLE and total % count == 0)
    return total / count if exact else nextafter(total / count, toward)
