"""Marks: comparable moments of windows, by the time left until the window's end, in slides.

Statistics by mark are kept for one query or for several, one after the other: the marks of query `i` are
`i * MARKS` to `(i + 1) * MARKS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transom.columns.arrays import Floats, Ints

PER_SLIDE = 20
# Every 5 % of the last slide; before and after it, coarser with the distance.
EDGES: Floats = np.r_[
    [-4, -2.5, -1.75, -1.25, -0.875, -0.625, -0.375, -0.125],
    (np.arange(PER_SLIDE + 2) - 0.5) / PER_SLIDE,
    [1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 4, 6, 9],
]
MARKS = len(EDGES) + 1
MAX_MARK_DISTANCE = 2  # what was learned at a mark counts for marks up to this far away
AT_END = int(np.searchsorted(EDGES, 0.0))  # the mark of a window's end; the marks of its last slide follow
LAST_SLIDE = slice(AT_END, AT_END + PER_SLIDE + 1)


def marks(slides_left: Floats) -> Ints:
    """The mark of each moment.

    >>> marks(np.array([0.0, 0.049, 0.5, 1.0])) - AT_END
    array([ 0,  1, 10, 20])
    """
    return np.searchsorted(EDGES, slides_left, side="right")


def nearest(count: Floats) -> Ints:
    """For each mark, its query's nearest mark with a nonzero count; each mark itself if there is none."""
    filled = count.reshape(-1, MARKS) != 0
    every = np.arange(MARKS)
    before = np.maximum.accumulate(np.where(filled, every, -2 * MARKS), axis=1)
    after = np.minimum.accumulate(np.where(filled, every, 3 * MARKS)[:, ::-1], axis=1)[:, ::-1]
    closest = np.where(every - before < after - every, before, after)
    closest = np.where(filled.any(axis=1)[:, None], closest, every)
    return (closest + MARKS * np.arange(len(filled))[:, None]).ravel()


@dataclass(frozen=True)
class MarkRuns:
    """The marks of pairs in ascending order: the pairs of a mark are one run."""

    mark: Ints

    @cached_property
    def starts(self) -> Ints:
        """Where each run starts."""
        return np.flatnonzero(np.r_[True, self.mark[1:] != self.mark[:-1]])

    @cached_property
    def marks(self) -> Ints:
        """The mark of each run."""
        return self.mark[self.starts]

    @property
    def query(self) -> Ints:
        """The number of the query that each run is of."""
        return self.marks // MARKS

    @cached_property
    def sizes(self) -> Ints:
        """How many pairs each run has."""
        return np.diff(np.r_[self.starts, len(self.mark)])

    def sums(self, columns: Floats) -> Floats:
        """Sums over the pairs of each run: columns x pairs x items become columns x runs x items."""
        return np.add.reduceat(columns, self.starts, axis=1)
