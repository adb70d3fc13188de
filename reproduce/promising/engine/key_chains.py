"""Symmetric hash join with key chains: the strong baseline of joins.

An arriving tuple scans only the tuples that have its key, the chain, instead of a bucket's list. With a budget, each
tuple has an equal share of the batch's budget and scans its chain from the oldest tuple in the window, or from the
newest. It is vectorized: the chains of a batch's tuples are found, and their pairs produced, by a few calls of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time
from typing import Literal

import numpy as np

from reproduce.prodding.data import Numbers
from reproduce.promising.baselines import equal_shares
from reproduce.promising.engine.runs import StoreBatch

Scan = Literal["oldest first", "newest first"]


@dataclass(frozen=True)
class ChainPairs:
    """The pairs that a join with key chains found, as row numbers, and the seconds of each batch."""

    left: Numbers
    right: Numbers
    seconds: tuple[float, ...]
    needs: tuple[int, ...]  # the pairs of each batch's exact answer

    def __len__(self) -> int:
        return len(self.left)


SPAN = 1 << 40  # microseconds: twelve days, more than a stream has


class _Chains:
    """The tuples of one stream in the window, by key and within a key by time."""

    def __init__(self, window: int | None):
        self.window = window
        self.key, self.time, self.row = (np.zeros(0, np.int64) for _ in range(3))
        self.base, self.code = 0, np.zeros(0, np.int64)

    def insert(self, batch: StoreBatch) -> None:
        """Add a batch's tuples."""
        key, time, row = (
            np.concatenate(both)
            for both in ((self.key, batch.items), (self.time, batch.times), (self.row, batch.rows))
        )
        order = np.lexsort((time, key))
        self.key, self.time, self.row = key[order], time[order], row[order]
        self.base = int(time.min())
        self.code = self.key * SPAN + (self.time - self.base)

    def evict(self, before: int) -> None:
        """Remove the tuples that are older than some time."""
        fresh = self.time >= before
        self.key, self.time, self.row = self.key[fresh], self.time[fresh], self.row[fresh]
        self.code = self.code[fresh]

    def between(self, batch: StoreBatch) -> tuple[Numbers, Numbers]:
        """Where the chain of each tuple of the other stream starts and stops; the streams are in order of time."""
        code = batch.items * SPAN
        if self.window is None:
            return np.searchsorted(self.code, code), np.searchsorted(self.code, code + SPAN)
        self.evict(int(batch.times[0]) - self.window)
        since = np.clip(batch.times - self.window - self.base, 0, SPAN - 1)
        until = np.clip(batch.times + self.window - self.base + 1, 0, SPAN - 1)
        return np.searchsorted(self.code, code + since), np.searchsorted(self.code, code + until)


def chain_join(
    batches: Sequence[StoreBatch],
    window: int | None,
    budget: int | None = None,
    scan: Scan = "oldest first",
) -> ChainPairs:
    """Join two stores batch by batch; `budget` is the number of pairs that a batch may produce."""
    chains = _Chains(window), _Chains(window)
    found: list[tuple[Numbers, Numbers]] = []
    seconds, needs = [], []
    for batch in batches:
        began = process_time()
        chains[batch.store].insert(batch)
        other = chains[1 - batch.store]
        start, stop = other.between(batch)
        used = need = stop - start
        if budget is not None:
            used = equal_shares(need, budget)
        first = start if scan == "oldest first" else stop - used
        mine = np.repeat(np.arange(len(batch)), used)
        place = np.arange(len(mine)) - np.repeat(np.cumsum(used) - used, used)
        pair = batch.rows[mine], other.row[first[mine] + place]
        seconds.append(process_time() - began)
        found.append(pair if batch.store == 0 else pair[::-1])
        needs.append(int(need.sum()))
    left, right = (np.concatenate(part) for part in zip(*found, strict=True))
    return ChainPairs(left, right, tuple(seconds), tuple(needs))
