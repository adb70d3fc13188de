"""Summaries of tuples by step, before their insertion; tasks summarize parts, which are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transom.columns import array_bytes
from transom.columns.arrays import Ints, Keys
from transom.elements import Summary
from transom.promising.summary_kinds import empty_summaries, unpack_summaries
from transom.promising.summary_protocol import CellSummaries
from transom.promising.zones import ZoneReach, buckets_of, step_of


@dataclass(frozen=True, eq=False)
class StepSummaries:
    """The summaries of tuples by step and bucket, in ascending order of steps.

    Tuples that are too old for the first granularity are summarized under the first step of a block of
    steps.
    """

    steps: Ints
    summaries: CellSummaries

    @classmethod
    def none(cls, shape: Summary) -> StepSummaries:
        """The summaries of no tuples."""
        return cls(np.zeros(0, np.int64), empty_cells(shape, 0))

    @property
    def buckets(self) -> int:
        return self.summaries.cells // max(len(self.steps), 1)

    @property
    def counts(self) -> Ints:
        """The number of tuples by step and bucket."""
        return self.summaries.counts.reshape(len(self.steps), -1)

    @property
    def nbytes(self) -> int:
        return self.steps.nbytes + self.summaries.nbytes

    def packed(self) -> bytes:
        whole = np.frombuffer(self.summaries.packed(), np.uint8)
        return array_bytes.pack({}, {"steps": self.steps, "summaries": whole})

    @classmethod
    def unpacked(cls, data: bytes) -> StepSummaries:
        _, parts = array_bytes.unpack(data)
        return cls(parts["steps"], unpack_summaries(parts["summaries"].tobytes()))


def summary_kind(shape: Summary) -> str:
    """The kind of a summary's cells; `none` if its structure divides nothing."""
    return "none" if shape.structure == "none" else shape.kind


def empty_cells(shape: Summary, steps: int = 1) -> CellSummaries:
    """The cells of some steps without tuples."""
    return empty_summaries(summary_kind(shape), steps * buckets_of(shape), shape.rows, shape.width)


def summarize_steps(
    shape: Summary, times: Ints, keys: Keys, buckets: Ints, since: int | None = None
) -> StepSummaries:
    """The summaries of tuples, without those below the floor once the newest of them is inserted.

    With `since`, all tuples from that time on are kept.

    >>> shape = Summary("s", "stream", "column", granularity=16, structure="cells", buckets=2)
    >>> summarize_steps(shape, np.array([5, 7, 5]), np.zeros(3, np.uint64), np.array([0, 1, 0])).counts.tolist()
    [[2, 0], [0, 1]]
    """
    if not len(times):
        return StepSummaries.none(shape)
    steps = times // step_of(shape)
    reach = ZoneReach.of(shape, int(steps.max()) + 1, None if since is None else since // step_of(shape))
    if int(steps.min()) < reach.block_start:
        kept = steps >= reach.floor
        steps, keys, buckets = reach.rounded(steps[kept]), keys[kept], buckets[kept]
    found, place = _distinct(steps)
    cells = empty_cells(shape, len(found))
    return StepSummaries(found, cells.summarize(place * buckets_of(shape) + buckets, keys))


def _distinct(steps: Ints) -> tuple[Ints, Ints]:
    """The distinct steps, and the position of each step among them."""
    low = int(steps.min())
    if int(steps.max()) - low > 2 * len(steps) + 1000:
        return np.unique(steps, return_inverse=True)
    there = np.bincount(steps - low) > 0  # without a sort
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[steps - low]


def merge_steps(parts: Sequence[StepSummaries]) -> StepSummaries:
    """The summaries of the tuples of all parts."""
    filled = [part for part in parts if len(part.steps)]
    if len(filled) < 2:
        return (filled or list(parts))[0]
    steps = np.unique(np.concatenate([part.steps for part in filled]))
    whole = _spread(filled[0], steps)
    for part in filled[1:]:
        whole = whole.add(_spread(part, steps))
    return StepSummaries(steps, whole)


def _spread(part: StepSummaries, steps: Ints) -> CellSummaries:
    """The summaries of a part, with empty cells for the steps that are not in it."""
    if len(part.steps) == len(steps):
        return part.summaries
    group = np.searchsorted(steps, part.steps)[:, None] * part.buckets + np.arange(part.buckets)
    return part.summaries.sum_groups(group.reshape(-1), len(steps) * part.buckets)
