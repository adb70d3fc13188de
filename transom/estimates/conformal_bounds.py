"""Bounds of early results: split conformal prediction on the query's own history of early and final values.

The score of a pair is (final - projected) in the group's unit. Quantiles of the last scores at a mark bound
the next final. The level is corrected online by the misses (adaptive conformal inference: Gibbs and Candès
2021), so that coverage holds under drift and for overlapping sliding windows. The thesis says that a stream
system can't have such bounds (5.4, 6.2 c). That is true of bounds from sampling theory; these bounds come from
measured errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints
from transom.estimates.marks import AT_END, MARKS, MAX_MARK_DISTANCE, PER_SLIDE, MarkRuns, nearest

KEPT = 256  # scores per mark
SHARE = 32  # scores of one closing at most, so that the groups of one window don't evict all others
PACE = 0.015  # of the correction of the level
WIDEST = 1e6  # larger scores are clipped
LEAST_WINDOWS = 10  # that scores must be of
MAX_POOL = PER_SLIDE // 4  # scores of marks up to this far away are pooled, if no mark has enough


@dataclass(frozen=True)
class ConformalBounds:
    """The last scores by mark and numeric item, and the current level, of one query or of several."""

    miss: Floats  # by query, the part of finals that may be out of bounds
    scores: NDArray[np.float32]  # marks that have some x items x KEPT; NaN where there is none
    place: Ints  # by mark, the position of the next score
    windows: Ints  # by mark, how many windows have scores
    level: Floats  # marks x items

    @classmethod
    def empty(cls, items: int, confidence: float) -> ConformalBounds:
        miss = 1 - confidence
        scores = np.empty((0, items, KEPT), np.float32)
        none = np.zeros(MARKS, np.int64)
        return cls(np.array([miss]), scores, none, none, np.full((MARKS, items), miss))

    @classmethod
    def stacked(cls, parts: Sequence[ConformalBounds]) -> ConformalBounds:
        """The bounds of several queries, each of which is a part."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))

    def split(self, queries: int) -> Iterator[ConformalBounds]:
        """The bounds of each of several queries."""
        firsts = np.searchsorted(np.flatnonzero(self.place), np.arange(queries + 1) * MARKS).tolist()
        for i in range(queries):
            mine = slice(i * MARKS, (i + 1) * MARKS)
            yield ConformalBounds(
                self.miss[i : i + 1],
                self.scores[firsts[i] : firsts[i + 1]],
                self.place[mine],
                self.windows[mine],
                self.level[mine],
            )

    @property
    def least(self) -> Ints:
        """By query, the minimal number of scores for bounds: 1 / (1 - confidence), but from 8 to 200.

        They must be of as many windows, or of 10: the scores of one window at one mark depend on each
        other.
        """
        return np.rint(1 / np.maximum(self.miss, 1e-9)).clip(8, 200).astype(np.int64)

    def quantiles(self, mark: Ints, finals: Ints | None = None) -> tuple[Floats, Floats]:
        """By mark and item, the lowest and the highest expected score; NaN with too little history.

        `finals` is how many windows of each query have become final.
        """
        low = np.full((len(mark), self.level.shape[1]), np.nan)
        high = low.copy()
        used = np.flatnonzero(self.place)
        count = (~np.isnan(self.scores)).sum(axis=2)
        least = self.least[used // MARKS]
        enough = (count >= least[:, None]) & (self.windows[used] >= np.minimum(least, LEAST_WINDOWS))[:, None]
        has_bounds = np.zeros(len(self.place))
        has_bounds[used] = enough.any(axis=1)
        near = nearest(has_bounds)[mark]
        bounded = (has_bounds[near] > 0) & (np.abs(near - mark) <= MAX_MARK_DISTANCE)
        if bounded.any():
            wanted, back = np.unique(near[bounded], return_inverse=True)
            rows = np.searchsorted(used, wanted)
            held = self.scores[rows, :, : int(self.place[wanted].max())]
            lowest, highest = _quantiles(held, self.level[wanted], count[rows])
            low[bounded] = np.where(enough[rows], lowest, np.nan)[back]
            high[bounded] = np.where(enough[rows], highest, np.nan)[back]
        if not bounded.all() and len(used):
            wanted, back = np.unique(mark[~bounded], return_inverse=True)
            lowest, highest = self._pooled_quantiles(wanted, used, count, finals)
            low[~bounded], high[~bounded] = lowest[back], highest[back]
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    def _pooled_quantiles(
        self, mark: Ints, used: Ints, count: Ints, finals: Ints | None
    ) -> tuple[Floats, Floats]:
        """The quantiles of marks that have too few scores, from the scores of as many neighbours as it takes.

        `used` are the marks with scores, `count` how many there are by item. Marks are pooled within the last
        slide only, where they are equally far from each other, and from both sides: the errors of earlier and
        later ones are larger and smaller, and even out.
        """
        low = np.full((len(mark), self.level.shape[1]), np.nan)
        high = low.copy()
        query, point = mark // MARKS, mark % MARKS - AT_END
        least = self.least[query]
        few = np.minimum(least, LEAST_WINDOWS)
        waiting = (point >= 0) & (point <= PER_SLIDE)
        if (
            finals is not None
        ):  # a window that was seen at several marks is one window; the first has no scores
            waiting &= finals[query] > few
        for reach in range(1, MAX_POOL + 1):
            at = np.flatnonzero(waiting)
            if not len(at):
                break
            first = query[at] * MARKS + AT_END
            begin = np.searchsorted(used, first + np.maximum(point[at] - reach, 0))
            end = np.searchsorted(used, first + np.minimum(point[at] + reach, PER_SLIDE), side="right")
            windows = _sums_of_runs(self.windows[used], begin, end)
            pooled = _sums_of_runs(count, begin, end)
            enough = (pooled >= least[at][:, None]) & (windows >= few[at])[:, None]
            from_both_sides = (np.searchsorted(used, mark[at], side="right") > begin) & (
                np.searchsorted(used, mark[at]) < end
            )
            ready = enough.any(axis=1) & from_both_sides
            if ready.any():
                at = at[ready]
                scores = self._pool(begin[ready], end[ready])
                lowest, highest = _quantiles(scores, self.level[mark[at]], pooled[ready])
                low[at] = np.where(enough[ready], lowest, np.nan)
                high[at] = np.where(enough[ready], highest, np.nan)
                waiting[at] = False
        return low, high

    def _pool(self, begin: Ints, end: Ints) -> NDArray[np.float32]:
        """The scores of runs of marks: runs x items x scores, NaN where there is none."""
        most, (items, kept) = int((end - begin).max()), self.scores.shape[1:]
        rows = begin[:, None] + np.arange(most)
        scores = self.scores[rows.clip(max=len(self.scores) - 1)]
        scores[rows >= end[:, None]] = np.nan
        return scores.transpose(0, 2, 1, 3).reshape(len(begin), items, most * kept)

    def around(
        self, projected: Floats, unit: Floats, mark: Ints, finals: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """The lower and upper bounds of projections; `finals` is how many windows of each query became final."""
        low, high = self.quantiles(mark, finals)
        with np.errstate(over="ignore", invalid="ignore"):
            under, over = projected + unit * low, projected + unit * high
        known = np.isfinite(under) & np.isfinite(over)
        return np.where(known, under, np.nan), np.where(known, over, np.nan)

    def with_pairs(self, runs: MarkRuns, windows: Ints, scores: Floats, missed: Floats) -> ConformalBounds:
        """The bounds with the scores of more windows; `missed` is 1 for a final out of bounds, NaN without bounds.

        `windows` is how many windows the pairs of each run are of.
        """
        at = runs.marks
        run, some = _few(runs, scores.clip(-WIDEST, WIDEST))
        fresh = np.bincount(run, minlength=len(at))
        offset = np.arange(len(run)) - (np.cumsum(fresh) - fresh)[run]
        place, many = self.place.copy(), self.windows.copy()
        place[at] += fresh
        many[at] += np.where(fresh > 0, windows, 0)
        used = np.flatnonzero(place)
        new_scores = np.full((len(used), *self.scores.shape[1:]), np.nan, np.float32)
        new_scores[np.searchsorted(used, np.flatnonzero(self.place))] = self.scores
        position = (self.place[at][run] + offset) % KEPT
        new_scores[np.searchsorted(used, at[run]), :, position] = some
        level = self._levels(runs, missed)
        return replace(self, scores=new_scores, place=place, windows=many, level=level)

    def _levels(self, runs: MarkRuns, missed: Floats) -> Floats:
        """The levels after some finals were within or out of bounds."""
        bounded = ~np.isnan(missed)
        count, misses = runs.sums(np.stack([bounded, bounded & (missed > 0)]).astype(np.float64))
        old = self.level[runs.marks]
        correction = PACE * (self.miss[runs.query][:, None] - misses / np.maximum(count, 1))
        level = self.level.copy()
        level[runs.marks] = np.where(count > 0, old + correction, old)
        queries = np.unique(runs.query)
        miss = self.miss[queries][:, None, None]
        by_query = level.reshape(len(self.miss), MARKS, level.shape[1])
        by_query[queries] = by_query[queries].clip(miss / 20, np.minimum(4 * miss, 0.9))
        return level


_FIELDS = tuple(field.name for field in fields(ConformalBounds))


def _few(runs: MarkRuns, scores: Floats) -> tuple[Ints, Floats]:
    """At most SHARE of the scores of each run of a closing, spread over their range, with the run of each."""
    run = np.repeat(np.arange(len(runs.marks)), runs.sizes)
    order = np.lexsort((*scores.T, run))  # independent of the order of groups
    order = order[(runs.sizes <= SHARE)[run[order]]]
    numbers, parts = [run[order]], [scores[order]]
    for large in np.flatnonzero(runs.sizes > SHARE).tolist():
        start = int(runs.starts[large])
        numbers.append(np.full(SHARE, large))
        parts.append(_spread(scores[start : start + int(runs.sizes[large])]))
    run, some = np.concatenate(numbers), np.concatenate(parts)
    given = ~np.isnan(some).all(axis=1)
    run, some = run[given], some[given]
    order = np.argsort(run, kind="stable")
    return run[order], some[order]


def _spread(scores: Floats) -> Floats:
    """SHARE of more scores, by item, spread over their range."""
    ordered = np.sort(scores, axis=0)
    count = (~np.isnan(ordered)).sum(axis=0)
    wanted = (np.arange(SHARE) + 0.5)[:, None] * count / SHARE
    return np.take_along_axis(ordered, wanted.astype(np.int64).clip(max=len(scores) - 1), axis=0)


def _sums_of_runs(values: Ints, begin: Ints, end: Ints) -> Ints:
    """Sums of the rows of runs, which may be empty."""
    sums = np.concatenate([np.zeros((1, *values.shape[1:]), np.int64), np.cumsum(values, axis=0)])
    return sums[end] - sums[begin]


def _quantiles(scores: NDArray[np.float32], level: Floats, count: Ints) -> tuple[Floats, Floats]:
    """The lowest and the highest expected score, by row and item, given how many scores there are."""
    ordered = np.sort(scores, axis=2).astype(np.float64)  # NaN last
    with np.errstate(invalid="ignore"):
        under = (ordered < 0).sum(axis=2) / np.maximum(count, 1)
        over = (ordered > 0).sum(axis=2) / np.maximum(count, 1)
    # Ties at zero (a MAX that had arrived): if one side can't be missed, the other side gets its share of misses.
    below = np.maximum(level / 2, level - over) * (count + 1)
    above = np.maximum(level / 2, level - under) * (count + 1)
    return (
        _ranked(ordered, below, count) * _stretch(below),
        _ranked(ordered, count + 1 - above, count) * _stretch(above),
    )


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
