"""How time is cut into steps and granularities, and values into buckets (3.1, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from transom.columns.arrays import Floats, Ints, Keys
from transom.columns.hashes import mix_bits
from transom.elements import Summary

ZONES_PER_GRANULARITY = 16  # if the length of the granularity allows
MOST_STEPS = 64


def step_of(shape: Summary) -> int:
    """The length of the steps of zones: about a 16th of the granularity, which it divides.

    >>> step_of(Summary("s", "stream", "column", granularity=10_000_000))
    625000
    >>> step_of(Summary("s", "stream", "column", granularity=1_000))
    50
    """
    return shape.granularity // steps_of(shape)


def steps_of(shape: Summary) -> int:
    """The number of steps of a granularity: 16, or the nearest number that divides it."""
    return _divisor(shape.granularity)


@lru_cache(1024)
def _divisor(granularity: int) -> int:
    numbers = (n for n in range(1, MOST_STEPS + 1) if granularity % n == 0)
    return min(numbers, key=lambda n: abs(n - ZONES_PER_GRANULARITY))


def buckets_of(shape: Summary) -> int:
    """The number of value buckets: one where only time is divided."""
    return 1 if shape.structure in ("none", "time") else shape.buckets


def bucket_of(shape: Summary, keys: Keys, values: Floats | None = None) -> Ints:
    """The bucket of each value: by a hash of its key, or by its position between two numbers (NaN: bucket 0).

    >>> evenly = Summary("s", "stream", "column", 1, structure="cells", buckets=10, between=(0, 100))
    >>> bucket_of(evenly, np.zeros(4, np.uint64), np.array([-5.0, 5.0, 10.0, 100.0])).tolist()
    [0, 0, 1, 9]
    """
    buckets = buckets_of(shape)
    if buckets == 1:
        return np.zeros(len(keys), np.int64)
    if shape.between is None:
        half = np.uint64(32)
        return ((mix_bits(keys) >> half) * np.uint64(buckets) >> half).view(np.int64)
    if values is None:
        raise ValueError(f"summary {shape.name} has buckets between two numbers, and needs the values")
    low, high = shape.between
    places = np.nan_to_num((values - low) / (high - low) * buckets)
    return np.clip(places, 0, buckets - 1).astype(np.int64)


@dataclass(frozen=True)
class ZoneReach:
    """The steps that the granularities cover when the newest step is `end` - 1.

    G1 reaches back to `g1_start`. Before `block_start`, steps lie in blocks as long as G1 that it does not
    reach at all. The coarser granularities have aligned zones of `lengths`, back to `backs`; the last ends
    at `floor`.
    """

    end: int
    steps: int
    g1_start: int
    block_start: int
    lengths: tuple[int, ...]
    backs: tuple[int, ...]

    @classmethod
    def of(cls, shape: Summary, end: int, since: int | None = None) -> ZoneReach:
        """The reach for a newest step; the last granularity is extended back to step `since`."""
        steps = steps_of(shape)
        lengths = [steps * shape.rate ** (i - 1) for i in range(1, shape.depth)]
        reached = end - steps
        g1_start, block_start = reached, reached // steps * steps
        backs = []
        for length in lengths:
            reached -= length * shape.rate
            backs.append(reached // length * length)
        if since is not None and not lengths and since < block_start:  # before the only granularity
            lengths, backs = [steps], [block_start]
        if since is not None and lengths:
            backs[-1] = min(backs[-1], since // lengths[-1] * lengths[-1])
        return cls(
            end, steps, g1_start if lengths else block_start, block_start, tuple(lengths), tuple(backs)
        )

    @property
    def floor(self) -> int:
        return self.backs[-1] if self.backs else self.block_start

    def coarse(self, step: int) -> tuple[int, int] | None:
        """The granularity and the zone start of a step before G1; None if the step is evicted."""
        for i, (length, back) in enumerate(zip(self.lengths, self.backs, strict=True), 2):
            if step >= back:
                return i, step // length * length
        return None

    def rounded(self, steps: Ints) -> Ints:
        """Steps before G1, rounded to the start of their coarser zone, so that a batch has few distinct ones."""
        rounded, before = steps, self.block_start
        for length, back in zip(self.lengths, self.backs, strict=True):
            if int(steps.min(initial=before)) >= before:
                break
            rounded = np.where(steps < before, steps // length * length, rounded)
            before = back
        return rounded
