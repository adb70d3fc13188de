"""The baseline: every arrival recomputes each query separately (Wang and Freschl, figure 1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Fold = Callable[[Iterable[Any]], Any]


@dataclass
class _Query:
    """The queue of one query, and its latest answer."""

    size: int
    fold: Fold
    times: deque[int] = field(default_factory=deque)
    values: deque[Any] = field(default_factory=deque)
    answer: Any = None


class NaiveWindows:
    """A queue for each query: an arriving tuple is appended to all queues, and every answer is recomputed.

    A window of size s holds the tuples with times in `(now - s, now]`; tuples arrive in the order of time.

    >>> naive = NaiveWindows([(2, sum), (3, max)])
    >>> for time, value in enumerate([9, 5, 3, 4]):
    ...     naive.insert(time, value)
    >>> naive.lookup(0), naive.lookup(1)
    (7, 5)
    """

    def __init__(self, queries: Iterable[tuple[int, Fold]]) -> None:
        self.queries = [_Query(size, fold) for size, fold in queries]

    def insert(self, time: int, value: Any) -> None:
        """Store a tuple and recompute every answer."""
        self.store(time, value)
        for query in self.queries:
            query.answer = query.fold(query.values)

    def store(self, time: int, value: Any) -> None:
        """Append a tuple to every queue, and drop tuples that have left the window."""
        for query in self.queries:
            times, values = query.times, query.values
            times.append(time)
            values.append(value)
            oldest = time - query.size
            while times[0] <= oldest:
                times.popleft()
                values.popleft()

    def lookup(self, query: int) -> Any:
        """The answer of a query as of the last arrival; None before the first."""
        return self.queries[query].answer
