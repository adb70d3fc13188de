"""The baselines for promising tuples: symmetric hash join and simple selection under the same budget,
and the exact answer (sections 5.2 and 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Ints, Keys, Mask
from transom.promising.tuples import KeyRuns, run_positions


@dataclass(frozen=True)
class Stream:
    """A whole stream in order of arrival: the batch, time, key and value bucket of each tuple."""

    batch_id: Ints
    time: Ints
    key: Keys
    bucket: Ints

    def __len__(self) -> int:
        return len(self.batch_id)


@dataclass(frozen=True)
class Pairs:
    """The pairs that a join found, as rows of the streams, with their batches and each batch's cost in probes."""

    left: Ints
    right: Ints
    batch_id: Ints
    probes: dict[int, int]

    def __len__(self) -> int:
        return len(self.left)

    @property
    def cost(self) -> int:
        """The probes of all batches."""
        return sum(self.probes.values())


Budget = Callable[[int], int | None]


@dataclass(frozen=True)
class _Scans:
    """For each tuple of one stream, the part of its bucket's list in the other stream that it scans."""

    order: Ints  # the other stream's rows by bucket, batch and arrival
    start: Ints
    stop: Ints

    @staticmethod
    def of(own: Stream, other: Stream, window: int | None) -> _Scans:
        """The scans from the oldest tuple in the window to the last tuple of an earlier batch."""
        order = np.lexsort((other.batch_id, other.bucket))
        bucket, batch_id, time = other.bucket[order], other.batch_id[order], other.time[order]
        stop = _search_pairs((bucket, batch_id), (own.bucket, own.batch_id))
        if window is None:
            return _Scans(order, np.searchsorted(bucket, own.bucket), stop)
        latest = np.zeros_like(time)  # so far in the bucket: the first tuple in the window raises it
        edges = np.flatnonzero(np.diff(bucket, prepend=-1))
        for since, until in zip(edges, np.append(edges, len(bucket))[1:], strict=True):
            latest[since:until] = np.maximum.accumulate(time[since:until])
        start = _search_pairs((bucket, latest), (own.bucket, own.time - window))
        return _Scans(order, np.minimum(start, stop), stop)


def _search_pairs(within: tuple[Ints, Ints], wanted: tuple[Ints, Ints]) -> Ints:
    """np.searchsorted for pairs of numbers."""
    if not len(within[1]):
        return np.zeros(len(wanted[0]), np.int64)
    first, last = int(within[1].min()), int(within[1].max())
    span = last - first + 2
    return np.searchsorted(
        within[0] * span + within[1] - first, wanted[0] * span + np.clip(wanted[1] - first, 0, span - 1)
    )


@dataclass(frozen=True)
class SymmetricHashJoin:
    """The symmetric hash join of [33]: an arriving tuple scans the other stream's tuples in its bucket.

    A batch's budget is divided among its tuples in order of arrival; each scans its bucket's list from the
    oldest tuple in the window on, until its share is used up: the time-out when the next tuple arrives. The
    unused part of a share passes to the tuples after it. No scan is resumed.
    """

    streams: tuple[Stream, Stream]
    window: int | None

    @cached_property
    def scans(self) -> tuple[_Scans, _Scans]:
        one, two = self.streams
        return _Scans.of(one, two, self.window), _Scans.of(two, one, self.window)

    @cached_property
    def needs(self) -> dict[int, int]:
        """The cost of each batch without a budget; budgets are percentages of it."""
        found: dict[int, int] = {}
        for stream, scans in zip(self.streams, self.scans, strict=True):
            batches, number = np.unique(stream.batch_id, return_inverse=True)
            needed = np.bincount(number, scans.stop - scans.start, len(batches)).astype(np.int64)
            found.update(zip(batches.tolist(), needed.tolist(), strict=True))
        return found

    def run(self, budget: Budget = lambda batch_id: None) -> Pairs:
        """The pairs found when each batch has its budget."""
        one = self._pairs_found(0, budget)
        two = self._pairs_found(1, budget)
        return Pairs(
            np.concatenate([one[0], two[1]]),
            np.concatenate([one[1], two[0]]),
            np.concatenate([one[2], two[2]]),
            one[3] | two[3],
        )

    def _pairs_found(self, side: int, budget: Budget) -> tuple[Ints, Ints, Ints, dict[int, int]]:
        """The pairs that the tuples of one stream find in the other stream."""
        own, other, scans = self.streams[side], self.streams[1 - side], self.scans[side]
        need = scans.stop - scans.start
        used = need.copy()
        edges = np.flatnonzero(np.diff(own.batch_id, prepend=-1))
        for since, until in zip(edges.tolist(), np.append(edges, len(own))[1:].tolist(), strict=True):
            allowed = budget(int(own.batch_id[since]))
            if allowed is not None:
                used[since:until] = equal_shares(need[since:until], allowed)
        cost = np.add.reduceat(used, edges) if len(own) else used
        probes = dict(zip(own.batch_id[edges].tolist(), cost.tolist(), strict=True))
        runs = KeyRuns.of(other.key[scans.order])
        begin, end = runs.between(own.key, scans.start, scans.start + used)
        mine, place = run_positions(end - begin)
        theirs = scans.order[runs.rows[begin[mine] + place]]
        if self.window is not None:
            match = np.abs(own.time[mine] - other.time[theirs]) <= self.window
            mine, theirs = mine[match], theirs[match]
        return mine, theirs, own.batch_id[mine], probes


def equal_shares(need: Ints, budget: int) -> Ints:
    """Divide a budget into equal shares; the unused part of a share passes to those after it.

    >>> equal_shares(np.array([1, 9, 9]), 9).tolist()
    [1, 5, 3]
    """
    allowed = budget * np.arange(1, len(need) + 1) // max(len(need), 1)
    total = np.cumsum(need)
    spent = total + np.minimum(np.minimum.accumulate(allowed - total), 0)
    return np.diff(spent, prepend=0)


def exact_join(streams: tuple[Stream, Stream], window: int | None) -> Pairs:
    """All pairs, and the probes that symmetric hash join needs to find them."""
    return SymmetricHashJoin(streams, window).run()


def simple_selection(rows: int, queries: int, budget: int) -> NDArray[np.int64]:
    """How many of a batch's tuples each query probes, in order of arrival.

    All queries probe a tuple before the next one, until the budget is used; they skip the rest of the batch.

    >>> simple_selection(rows=10, queries=3, budget=8).tolist()
    [3, 3, 2]
    """
    whole, rest = divmod(min(budget, rows * queries), max(queries, 1))
    return whole + (np.arange(queries) < rest).astype(np.int64)


def first_matches(matches: Mask, probed: int) -> Ints:
    """The rows that a query selects if it probes only the first ones."""
    return np.flatnonzero(matches[:probed])
