"""Exact MAX and MIN of any window that ends now: the tuples that no later tuple exceeds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import merge
from operator import ge, itemgetter, le
from typing import Any

from transom.columns.nan_order import TOP, from_orderable


class Staircase:
    """Ascending times with descending values (for MAX): the first value in a window is its maximum.

    The caller leaves out nulls.

    >>> stairs = Staircase()
    >>> for time, value in enumerate([3, 9, 4, 7]):
    ...     stairs.insert(time, value)
    >>> stairs.lookup(since=0), stairs.lookup(since=2), stairs.lookup(since=4)
    (9, 7, None)
    """

    def __init__(self, greatest: bool = True) -> None:
        self.greatest = greatest
        self._gives_way = le if greatest else ge
        self.times: list[int] = []
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.times)

    def insert(self, time: int, value: Any) -> None:
        """Add a tuple: amortized O(1) in order, and a binary search if it is out of order."""
        times, values = self.times, self.values
        if value != value:
            value = TOP
        if times and time <= times[-1]:
            self._insert_late(time, value)
            return
        gives_way = self._gives_way
        while values and gives_way(values[-1], value):
            values.pop()
            times.pop()
        values.append(value)
        times.append(time)

    def _insert_late(self, time: int, value: Any) -> None:
        """Add the tuple unless a tuple of that time or later exceeds it; remove earlier tuples that it exceeds."""
        times, values, gives_way = self.times, self.values, self._gives_way
        end = bisect_left(times, time)
        if gives_way(value, values[end]):  # the best of that time or later exists
            return
        start = end
        while start and gives_way(values[start - 1], value):
            start -= 1
        if times[end] == time:
            end += 1
        times[start:end] = [time]
        values[start:end] = [value]

    def lookup(self, since: int) -> Any:
        """The answer for the tuples from `since` on, in O(log n); None if there are none."""
        at = bisect_left(self.times, since)
        return from_orderable(self.values[at]) if at < len(self.values) else None

    def expire(self, before: int) -> None:
        """Drop the tuples before a time as soon as they are the majority; no later lookup may need them."""
        if self.times and self.times[len(self.times) // 2] < before:
            stale = bisect_left(self.times, before)
            del self.times[:stale], self.values[:stale]

    def merge(self, other: Staircase) -> Staircase:
        """The staircase of both staircases' tuples, in linear time."""
        both = Staircase(self.greatest)
        steps: Iterable[tuple[int, Any]] = merge(
            zip(self.times, self.values, strict=True),
            zip(other.times, other.values, strict=True),
            key=itemgetter(0),
        )
        for time, value in steps:
            both.insert(time, value)
        return both
