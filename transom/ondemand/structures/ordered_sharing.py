"""OrderedSharing: MAX and MIN of many windows from few ordered answers.

Paper: Aggregate Sharing in Stream Databases (Wang and Freschl), section 6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import gt, itemgetter, lt
from typing import Any, NamedTuple

from sortedcontainers import SortedDict, SortedKeyList

from transom.columns.nan_order import TOP, from_orderable, orderable

_NOTHING: Any = object()
Rescan = Callable[
    [int], tuple[Sequence[int], Sequence[Any]]
]  # reads the tuples from a time on: times and orderable values


MIN_SWEEP = 64  # below this number of tuples, old ones are not evicted


class WindowAnswer(NamedTuple):
    """A window's size, its answer, and the time of the newest tuple with this answer."""

    size: int
    answer: Any
    time: int

    def valid(self, now: int) -> bool:
        """Whether the tuple lies in the window."""
        return self.time > now - self.size


@dataclass
class Counters:
    """The work done so far; a lookup is a hit unless it needed a recalculation."""

    inserts: int = 0
    lookups: int = 0
    hits: int = 0
    recalculations: int = 0
    scanned: int = 0


class WindowSizes:
    """The sizes of registered windows with the number of queries of each; groups may share an instance."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._queries = SortedDict()
        for size in sizes:
            self.add(size)

    def add(self, size: int) -> None:
        """A query with a window of this size joins."""
        if size <= 0:
            raise ValueError("a window's size must be positive")
        self._queries[size] = self._queries.get(size, 0) + 1

    def remove(self, size: int) -> None:
        """A query with a window of this size leaves."""
        self._queries[size] -= 1
        if not self._queries[size]:
            del self._queries[size]

    def largest(self, most: float = inf) -> int:
        """The largest size up to `most`; 0 if there is none."""
        upto = self._queries.bisect_right(most)
        return self._queries.keys()[upto - 1] if upto else 0


class OrderedSharing:
    """The answers of windows in the order of their sizes, which is also the order of the answers.

    A window of size s holds the tuples with times in `(now - s, now]`, on a clock of microseconds or of
    rows. An entry is *valid* while its tuple lies in its window. Every valid entry is right, and a window
    without an entry may use the entry of the next larger window whose tuple lies in it. All else is
    recalculated at lookup. Equal answers need one entry: that of the largest window.

    Tuples are kept as long as the largest registered window needs them, unless `rescan` reads them from
    elsewhere. The caller leaves out nulls.

    >>> shared = OrderedSharing([2, 4])
    >>> for time, value in enumerate([9, 5, 3, 4]):
    ...     shared.insert(time, value)
    >>> shared.lookup(4), shared.lookup(2), shared.lookup(3)
    (9, 4, 5)
    >>> shared.counters.recalculations
    2
    """

    def __init__(
        self, windows: WindowSizes | Iterable[int] = (), greatest: bool = True, rescan: Rescan | None = None
    ) -> None:
        self.windows = windows if isinstance(windows, WindowSizes) else WindowSizes(windows)
        self.entries = SortedKeyList(key=itemgetter(0))
        self._least: Any = _NOTHING  # the smallest window's answer
        self.now: int | None = None
        self.counters = Counters()
        self._beats = gt if greatest else lt
        self._tuples = _Tuples() if rescan is None else None
        self.rescan = self._tuples.since if self._tuples is not None else rescan

    def advance(self, now: int) -> None:
        """Move `now` forward without a tuple."""
        if self.now is None or now > self.now:
            self.now = now

    def insert(self, time: int, value: Any) -> None:
        """Add a tuple, in O(log |w|) amortised (6.3.2.1)."""
        self.counters.inserts += 1
        if value != value:
            value = TOP
        if self._tuples is not None:
            self._tuples.insert(time, value)
        self._insert(time, value)
        if self._tuples is not None and len(self._tuples.times) >= self._tuples.sweep_at:
            self._expire()

    def insert_all(self, times: Sequence[int], values: Sequence[Any]) -> None:
        """Add tuples in ascending order of time: only those that no later one among them beats matter."""
        self.counters.inserts += len(times)
        values = list(map(orderable, values))
        if self._tuples is not None:
            self._tuples.insert_all(times, values)
        beats = self._beats
        steps: list[tuple[int, Any]] = []
        for time, value in zip(reversed(times), reversed(values), strict=True):
            if not steps or beats(value, steps[-1][1]):
                steps.append((time, value))
        for time, value in reversed(steps):
            self._insert(time, value)
        if self._tuples is not None and len(self._tuples.times) >= self._tuples.sweep_at:
            self._expire()

    def _insert(self, time: int, value: Any) -> None:
        before = self.now
        if before is None or time > before:
            self.now = time
        # Mostly, even the smallest answer beats the value, and no search is needed.
        if self._least is not _NOTHING and not self._beats(self._least, value):
            assert before is not None
            self._take(time, value, before)
            self._least = self.entries[0].answer if self.entries else _NOTHING

    def _take(self, time: int, value: Any, before: int) -> None:
        """Give the value to the largest valid entry whose answer does not beat it, and drop smaller entries.

        Validity is judged at the time `before`: an answer that was right then gives way to the value even
        if its own tuple leaves the window as this one arrives.
        """
        assert self.now is not None
        entries, end = self.entries, self._count_not_beating(value)
        while end and not entries[end - 1].valid(before):
            end -= 1
            del entries[end]
        reach = self.now - time + 1  # smaller windows do not contain a tuple that is out of order
        if not end or entries[end - 1].size < reach:
            return
        taker = entries[end - 1]
        newest = max(time, taker.time) if taker.answer == value else time
        del entries[entries.bisect_key_left(reach) : end]
        entries.add(WindowAnswer(taker.size, value, newest))

    def _count_not_beating(self, value: Any) -> int:
        """How many entries, from the smallest window on, have answers that do not beat the value."""
        beats = self._beats
        return bisect_left(self.entries, True, key=lambda entry: beats(entry.answer, value))

    def lookup(self, size: int) -> Any:
        """The answer of a window, registered or not; None if the window is empty (6.3.2.2)."""
        self.counters.lookups += 1
        if self.now is None:
            return None
        since = self.now - size + 1
        if self._tuples is not None and since < self._tuples.floor:
            raise ValueError(f"a window of {size} reaches back to tuples that are not kept")
        entry = self._usable(size, since)
        if entry is None:
            return self._recalculated(size)
        self.counters.hits += 1
        return from_orderable(entry.answer)

    def has_answer(self, size: int) -> bool:
        """Whether a lookup of a window needs no tuples."""
        return self.now is not None and self._usable(size, self.now - size + 1) is not None

    def _usable(self, size: int, since: int) -> WindowAnswer | None:
        """The entry of the smallest window that is at least as large, if its tuple lies in this window."""
        at = self.entries.bisect_key_left(size)
        if at == len(self.entries):
            return None
        entry: WindowAnswer = self.entries[at]
        return entry if entry.time >= since else None

    def _expire(self) -> None:
        """Evict the tuples before the largest registered window."""
        assert self._tuples is not None and self.now is not None
        self._tuples.expire(self.now + 1 - self.windows.largest())

    def _recalculated(self, size: int) -> Any:
        """Scan a window's tuples, and rebuild its entry and those of all smaller windows."""
        self.counters.recalculations += 1
        rebuilt = self._rebuilt_entries(size)
        # No larger window has an equal or worse answer: the tuple that is the answer took or removed its entry.
        del self.entries[: self.entries.bisect_key_right(size)]
        self.entries.update(rebuilt)
        self._least = self.entries[0].answer if self.entries else _NOTHING
        return from_orderable(rebuilt[-1].answer) if rebuilt else None

    def _rebuilt_entries(self, size: int) -> list[WindowAnswer]:
        """The entries of a window and of the smaller registered ones, by size."""
        assert self.now is not None and self.rescan is not None
        now, beats = self.now, self._beats
        times, values = self.rescan(now - size + 1)
        self.counters.scanned += len(times)
        if not times:
            return []
        rebuilt: list[WindowAnswer] = []
        best, newest = values[-1], times[-1]
        for back, value in enumerate(reversed(values), start=1):
            if beats(value, best):
                # Windows that do not contain this tuple have the best answer so far.
                smaller = self.windows.largest(now - times[-back])
                if smaller > now - newest:
                    rebuilt.append(WindowAnswer(smaller, best, newest))
                best, newest = value, times[-back]
        return [*rebuilt, WindowAnswer(size, best, newest)]


class _Tuples:
    """The tuples of the largest window, by time."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.values: list[Any] = []
        self.floor: float = -inf  # older tuples are evicted
        self.sweep_at = MIN_SWEEP

    def insert(self, time: int, value: Any) -> None:
        if time < self.floor:
            return
        if self.times and time < self.times[-1]:
            at = bisect_right(self.times, time)
            self.times.insert(at, time)
            self.values.insert(at, value)
        else:
            self.times.append(time)
            self.values.append(value)

    def insert_all(self, times: Sequence[int], values: Sequence[Any]) -> None:
        start = bisect_left(times, self.floor)
        if start < len(times) and self.times and times[start] < self.times[-1]:
            for time, value in zip(times[start:], values[start:], strict=True):
                self.insert(time, value)
        else:
            self.times.extend(times[start:])
            self.values.extend(values[start:])

    def expire(self, before: int) -> None:
        """Evict tuples before a time; sweep again when there are twice as many."""
        stale = bisect_left(self.times, before)
        del self.times[:stale], self.values[:stale]
        self.floor = max(self.floor, before)
        self.sweep_at = max(MIN_SWEEP, 2 * len(self.times))

    def since(self, time: int) -> tuple[list[int], list[Any]]:
        start = bisect_left(self.times, time)
        return self.times[start:], self.values[start:]
