"""Bounds of early results: split conformal prediction on the query's own history of early and final values.

The score of a pair is (final - projected) in the group's unit. Quantiles of the last scores at a mark bound
the next final. The level is corrected online by the misses (adaptive conformal inference: Gibbs and Candès
2021), so that coverage holds under drift and for overlapping sliding windows. The thesis says that a stream
system can't have such bounds (5.4, 6.2 c). That is true of bounds from sampling theory; these bounds come from
measured errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints
from transom.estimates.marks import MARKS, MarkRuns, nearest

KEPT = 256  # scores per mark
SHARE = 32  # scores of one closing at most, so that the groups of one window don't evict all others
PACE = 0.015  # of the correction of the level
WIDEST = 1e6  # larger scores are clipped
MAX_MARK_DISTANCE = 2  # scores are borrowed from marks up to this far away


@dataclass(frozen=True)
class ConformalBounds:
    """The last scores by mark and numeric item, and the current level."""

    miss: float  # the part of finals that may be out of bounds
    scores: NDArray[np.float32]  # marks x items x KEPT; NaN where there is none
    place: Ints  # by mark, the position of the next score
    windows: Ints  # by mark, how many windows have scores
    level: Floats  # marks x items

    @classmethod
    def empty(cls, items: int, confidence: float) -> ConformalBounds:
        miss = 1 - confidence
        scores = np.full((MARKS, items, KEPT), np.nan, np.float32)
        none = np.zeros(MARKS, np.int64)
        return cls(miss, scores, none, none, np.full((MARKS, items), miss))

    @property
    def least(self) -> int:
        """The minimal number of scores for bounds: 1 / (1 - confidence), but from 8 to 200.

        They must be of as many windows, or of 10: the scores of one window at one mark depend on each
        other.
        """
        return int(min(200, max(8, round(1 / max(self.miss, 1e-9)))))

    @cached_property
    def quantiles(self) -> tuple[Floats, Floats]:
        """By mark and item, the lowest and the highest expected score; NaN with too little history."""
        used = np.flatnonzero(self.place)
        low = np.full(self.level.shape, np.nan)
        high = low.copy()
        if not len(used):
            return low, high
        held = self.scores[used, :, : int(self.place.max())]
        scores = np.sort(held, axis=2).astype(np.float64)  # NaN last
        count = (~np.isnan(scores)).sum(axis=2)
        level = self.level[used]
        with np.errstate(invalid="ignore"):
            under = (scores < 0).sum(axis=2) / np.maximum(count, 1)
            over = (scores > 0).sum(axis=2) / np.maximum(count, 1)
        # Ties at zero (a MAX that had arrived): if one side can't be missed, the other side gets its share of misses.
        below = np.maximum(level / 2, level - over) * (count + 1)
        above = np.maximum(level / 2, level - under) * (count + 1)
        enough = (count >= self.least) & (self.windows[used] >= min(self.least, 10))[:, None]
        low[used] = np.where(enough, _ranked(scores, below, count) * _stretch(below), np.nan)
        high[used] = np.where(enough, _ranked(scores, count + 1 - above, count) * _stretch(above), np.nan)
        nearest_mark = nearest(np.isfinite(high).any(axis=1).astype(np.float64))
        low, high = low[nearest_mark], high[nearest_mark]
        low[np.abs(nearest_mark - np.arange(MARKS)) > MAX_MARK_DISTANCE] = np.nan
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    def around(self, projected: Floats, unit: Floats, mark: Ints) -> tuple[Floats, Floats]:
        """The lower and upper bounds of projections."""
        low, high = self.quantiles
        with np.errstate(over="ignore", invalid="ignore"):
            under, over = projected + unit * low[mark], projected + unit * high[mark]
        known = np.isfinite(under) & np.isfinite(over)
        return np.where(known, under, np.nan), np.where(known, over, np.nan)

    def with_pairs(self, runs: MarkRuns, windows: int, scores: Floats, missed: Floats) -> ConformalBounds:
        """The bounds with the scores of more windows; `missed` is 1 for a final out of bounds, NaN without bounds."""
        bounded = ~np.isnan(missed)
        count, misses = runs.sums(np.stack([bounded, bounded & (missed > 0)]).astype(np.float64))
        correction = PACE * (self.miss - misses / np.maximum(count, 1))
        level = np.where(count > 0, self.level + correction, self.level)
        new_scores, place, many = self.scores.copy(), self.place.copy(), self.windows.copy()
        for at, rows in runs.by_mark():
            some = _few(scores[rows].clip(-WIDEST, WIDEST))
            some = some[~np.isnan(some).all(axis=1)]
            new_scores[at, :, (place[at] + np.arange(len(some))) % KEPT] = some
            place[at] += len(some)
            many[at] += windows if len(some) else 0
        limits = self.miss / 20, min(4 * self.miss, 0.9)
        return replace(self, scores=new_scores, place=place, windows=many, level=level.clip(*limits))


def _few(scores: Floats) -> Floats:
    """At most SHARE of the scores of a closing, spread over their range."""
    if len(scores) == 1 or not scores.shape[1]:  # without numeric items there are no bounds
        return scores
    if len(scores) <= SHARE:
        return scores[np.lexsort(scores.T)]  # independent of the order of groups
    ordered = np.sort(scores, axis=0)
    count = (~np.isnan(ordered)).sum(axis=0)
    wanted = (np.arange(SHARE) + 0.5)[:, None] * count / SHARE
    return np.take_along_axis(ordered, wanted.astype(np.int64).clip(max=len(scores) - 1), axis=0)


def _ranked(scores: Floats, rank: Floats, count: Ints) -> Floats:
    """The score of a rank, 1 the smallest, interpolated for a fractional rank: n scores split the line into n
    + 1 equal parts.
    """
    rank = np.maximum(np.minimum(rank, count), 1)
    below = np.floor(rank)
    places = np.stack([below, np.minimum(below + 1, np.maximum(count, 1))], axis=2).astype(np.int64) - 1
    lower, upper = np.moveaxis(np.take_along_axis(scores, places, axis=2), 2, 0)
    return lower + (rank - below) * (upper - lower)


def _stretch(tail: Floats) -> Floats:
    """The distance beyond the outermost score, if less than one score may be outside."""
    return (1 / np.maximum(tail, 0.5)).clip(1.0, 2.0)
