"""Streams of tuples for the tests, and the exact counts that a representation should estimate."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from transom.elements import Summary
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.zones import bucket_of

STRUCTURES = ("none", "time", "cells", "adjusting")
KINDS = ("countsketch", "histogram")

Tuple = tuple[int, int]  # time and key


def shaped(structure: str = "cells", granularity: int = 16, **more: object) -> Summary:
    return Summary("items", "store", "item", granularity, structure=structure, **more)  # type: ignore[arg-type]


@dataclass
class Plain:
    """All tuples of a stream, and the representation that contains them."""

    shape: Summary
    kept: Representation = field(init=False)
    tuples: list[Tuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = Representation.new(self.shape)

    def batch(self, tuples: list[Tuple]) -> None:
        times = np.array([time for time, _ in tuples], np.int64)
        keys = np.array([key for _, key in tuples], np.uint64)
        some = summarize_steps(self.shape, times, keys, bucket_of(self.shape, keys))
        self.kept = self.kept.inserted(some, max((time for time, _ in tuples), default=-(10**9)))
        # Evicted tuples do not come back, and late ones are not inserted.
        self.tuples = [one for one in self.tuples + tuples if one[0] >= self.floor]

    @property
    def floor(self) -> int:
        assert self.kept.floor is not None
        return self.kept.floor

    def counts(self, since: int, until: int) -> list[int]:
        """By bucket, the tuples of a zone."""
        keys = np.array([key for time, key in self.tuples if since <= time < until], np.uint64)
        return np.bincount(bucket_of(self.shape, keys), minlength=self.kept.zones().counts.shape[1]).tolist()

    def count(self, key: int, since: int, until: int) -> int:
        return sum(since <= time < until for time, other in self.tuples if other == key)


shapes = st.builds(
    shaped,
    st.sampled_from(STRUCTURES),
    granularity=st.sampled_from([1, 7, 16, 40, 67]),
    rate=st.integers(2, 4),
    depth=st.integers(1, 3),
    buckets=st.integers(1, 5),
    kind=st.just("histogram"),
)
times = st.one_of(st.integers(-50, 200), st.integers(-3000, 3000))
tuples = st.tuples(times, st.integers(0, 6))
batches = st.lists(st.lists(tuples, min_size=1, max_size=8), min_size=1, max_size=8)
