"""Marks: comparable moments of windows, by the time left until the window's end, in slides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

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
AT_END = int(np.searchsorted(EDGES, 0.0))  # the mark of a window's end; the marks of its last slide follow
LAST_SLIDE = slice(AT_END, AT_END + PER_SLIDE + 1)


def marks(slides_left: Floats) -> Ints:
    """The mark of each moment.

    >>> marks(np.array([0.0, 0.049, 0.5, 1.0])) - AT_END
    array([ 0,  1, 10, 20])
    """
    return np.searchsorted(EDGES, slides_left, side="right")


def nearest(count: Floats) -> Ints:
    """For each mark, the nearest mark with a nonzero count; each mark itself if there is none."""
    filled = np.flatnonzero(count)
    every = np.arange(MARKS)
    if len(filled) in (0, MARKS):
        return every
    after = np.searchsorted(filled, every).clip(max=len(filled) - 1)
    before = (after - 1).clip(min=0)
    closer = np.abs(filled[before] - every) < np.abs(filled[after] - every)
    return np.where(closer, filled[before], filled[after])


@dataclass(frozen=True)
class MarkRuns:
    """The marks of pairs in ascending order: the pairs of a mark are one run."""

    mark: Ints

    @cached_property
    def _edges(self) -> Ints:
        return np.flatnonzero(np.r_[True, self.mark[1:] != self.mark[:-1], True])

    def sums(self, columns: Floats) -> Floats:
        """Sums over the pairs of each mark: columns x pairs x items become columns x marks x items."""
        found = np.zeros((columns.shape[0], MARKS, columns.shape[2]))
        starts = self._edges[:-1]
        found[:, self.mark[starts]] = np.add.reduceat(columns, starts, axis=1)
        return found

    def by_mark(self) -> Iterator[tuple[int, slice]]:
        """Each mark with the range of its pairs."""
        for first, last in pairwise(self._edges.tolist()):
            yield int(self.mark[first]), slice(first, last)
