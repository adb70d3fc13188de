"""The delay of rows: how far a row is behind the newest time that its partition had before the row's batch.

Delays are counted in buckets whose bounds grow by 8 %, so that microseconds and days are counted equally well.
The bounds are integers: every machine puts a delay into the same bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transom.columns.arrays import Ints, Mask
from transom.windows.intervals import HIGHEST

BUCKET_GROWTH = 1.08


def _bounds() -> Ints:
    """The least delay of each bucket."""
    bounds, bound = [0, 1], 1.0
    while bound < HIGHEST / BUCKET_GROWTH:
        bound *= BUCKET_GROWTH
        if int(bound) > bounds[-1]:
            bounds.append(int(bound))
    return np.array(bounds, np.int64)


BOUNDS = _bounds()
BUCKETS = len(BOUNDS)


def delay_buckets(delays: Ints) -> Ints:
    """The bucket of each delay; negative delays are those of rows in order.

    >>> delay_buckets(np.array([-5, 0, 1, 2, 100])).tolist()
    [0, 0, 1, 2, 38]
    """
    return np.maximum(np.searchsorted(BOUNDS, delays, side="right") - 1, 0)


@dataclass(frozen=True, eq=False)
class DelayCounts:
    """The delays of a batch's rows, by number of the sketch that they belong to.

    `missed` are the rows behind the watermark, and `behind_own` those that the slack of their own partition is the
    reason for: a row of a partition that was idle may be behind the watermark only because of the others.
    """

    buckets: Ints  # sketches x BUCKETS
    missed: Ints
    behind_own: Ints

    @classmethod
    def of(cls, numbers: Ints, delays: Ints, missed: Mask, behind_own: Mask, sketches: int) -> DelayCounts:
        """The counts of some rows; each has the number of its sketch."""
        places = numbers * BUCKETS
        places[delays > 0] += delay_buckets(delays[delays > 0])
        counts = np.bincount(places, minlength=sketches * BUCKETS).reshape(sketches, BUCKETS)
        return cls(
            counts,
            np.bincount(numbers[missed], minlength=sketches),
            np.bincount(numbers[behind_own], minlength=sketches),
        )

    def __add__(self, other: DelayCounts) -> DelayCounts:
        return DelayCounts(
            self.buckets + other.buckets, self.missed + other.missed, self.behind_own + other.behind_own
        )

    @property
    def rows(self) -> Ints:
        """By sketch, how many rows were counted."""
        rows: Ints = self.buckets.sum(axis=1)
        return rows
