"""Answers as intervals, from the bounds of the values in buckets, for all groups at once.

An interval contains the answer in SQL's order: NaN is above infinity. It also contains every result that
adding doubles can have, in any order of addition, with rounding and overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.table import AnswerInterval
from transom.columns.arrays import Floats, Ints, Mask

Interval = tuple[NDArray[Any], NDArray[Any]]

UNIT = 2.0**-53
_MOST = np.finfo(np.float64).max
_LEAST = 5e-324
_ROUNDS = 20  # of the search for the greatest average; a handful is usual


@dataclass(frozen=True)
class BucketTuples:
    """The tuples of a window by bucket: group `codes` has `least` to `most` tuples with values in `low`..`high`.

    `least` is at least 1: a bucket is listed only if it certainly has a tuple in the window.
    """

    codes: Ints
    groups: int
    least: Ints
    most: Ints
    low: NDArray[Any] | None = None  # integers or doubles; None: only counts are needed
    high: NDArray[Any] | None = None

    @property
    def hull(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The least and the greatest value of each bucket."""
        assert self.low is not None and self.high is not None
        return self.low, self.high

    @property
    def is_whole(self) -> bool:
        """Whether the values are integers."""
        return self.hull[0].dtype.kind == "i"

    def summed(self, numbers: Floats) -> Floats:
        """Sums of doubles by group."""
        return np.bincount(self.codes, numbers, self.groups).astype(np.float64, copy=False)

    def counted(self, numbers: Ints) -> Ints:
        """Sums of whole numbers by group; they wrap."""
        found = np.zeros(self.groups, np.int64)
        np.add.at(found, self.codes, numbers)
        return found

    def any(self, mask: Mask) -> Mask:
        """The groups that have a bucket in the mask."""
        return np.bincount(self.codes[mask], minlength=self.groups) > 0


class AnswerIntervals(Mapping[str, pa.Array]):
    """The ends of intervals by name, as `sum_low`; each aggregate's interval is computed at first use.

    An average is rounded to `grain`, the last digit of a decimal.
    """

    def __init__(self, filed: BucketTuples, grain: float = 0.0) -> None:
        self._filed, self._grain = filed, grain
        self._known: dict[str, Interval] = {}
        self._names = (AnswerInterval.COUNT,) if filed.low is None else tuple(AnswerInterval)

    def __getitem__(self, name: str) -> pa.Array:
        kind, _, side = name.rpartition("_")
        if kind not in self._names or side not in ("low", "high"):
            raise KeyError(name)
        if kind not in self._known:
            with np.errstate(all="ignore"):
                self._known[kind] = self._interval(kind)
        return pa.array(self._known[kind][side == "high"])

    def __iter__(self) -> Iterator[str]:
        return (f"{kind}_{side}" for kind in self._names for side in ("low", "high"))

    def __len__(self) -> int:
        return 2 * len(self._names)

    @cached_property
    def _sums(self) -> _Sums:
        return _Sums(self._filed)

    def _interval(self, kind: str) -> Interval:
        match AnswerInterval(kind):
            case AnswerInterval.COUNT:
                return self._filed.counted(self._filed.least), self._filed.counted(self._filed.most)
            case AnswerInterval.SUM:
                return _whole(self._filed, self._sums) if self._filed.is_whole else self._sums.interval()
            case AnswerInterval.AVERAGE:
                return _averages(self._filed, self._sums, self._grain)
            case AnswerInterval.LEAST | AnswerInterval.GREATEST as extreme:
                return _extremes(self._filed, extreme)


def _whole(filed: BucketTuples, sums: _Sums) -> Interval:
    """Sums of whole numbers; the full 64-bit range where a sum might wrap."""
    low, high = filed.hull
    least = filed.counted(np.where(low >= 0, filed.least, filed.most) * low)
    most = filed.counted(np.where(high >= 0, filed.most, filed.least) * high)
    # These two wrap as well; they are exact wherever the sums fit.
    limits = np.iinfo(np.int64)
    fits = (sums.low - sums.slack > limits.min) & (sums.high + sums.slack < limits.max)
    return np.where(fits, least, limits.min), np.where(fits, most, limits.max)


def _extremes(filed: BucketTuples, kind: AnswerInterval) -> Interval:
    """MIN or MAX: each bucket has a tuple in the window, with a value in the bucket's hull; NaN is above all."""
    low, high = (
        _reduced(np.fmin if kind is AnswerInterval.LEAST else np.fmax, filed, side) for side in filed.hull
    )
    if kind is AnswerInterval.LEAST or filed.is_whole:
        return low, high
    has_nan = filed.any(np.isnan(filed.hull[0]))
    return np.where(has_nan, np.nan, low), np.where(has_nan, np.nan, high)


def _reduced(ufunc: np.ufunc, filed: BucketTuples, numbers: NDArray[Any]) -> NDArray[Any]:
    """A ufunc's reduction by group; each group has a bucket at least."""
    found = np.empty(filed.groups, numbers.dtype)
    found[filed.codes] = numbers
    ufunc.at(found, filed.codes, numbers)
    return found


class _Sums:
    """Bounds of sums of doubles: `low` and `high` of the finite values, exact to within `slack`."""

    def __init__(self, filed: BucketTuples) -> None:
        low, high = (side.astype(np.float64, copy=False) for side in filed.hull)
        self.filed, self.infinite = filed, ~(np.isfinite(low) & np.isfinite(high))
        self.nan = filed.any(np.isnan(low))
        self.above, self.below = filed.any(low == np.inf), filed.any(high == -np.inf)
        self.lows, self.highs = np.where(self.infinite, 0.0, low), np.where(self.infinite, 0.0, high)
        least, most = filed.least.astype(np.float64), filed.most.astype(np.float64)
        self.low = filed.summed(np.where(self.lows >= 0, least, most) * self.lows)
        self.high = filed.summed(np.where(self.highs >= 0, most, least) * self.highs)
        # Adding n doubles in any order errs by less than n units of their magnitudes. So do the sums here.
        self.errors = (2 * filed.summed(most) + 16) * UNIT
        self.magnitude = filed.summed(most * np.maximum(np.abs(self.lows), np.abs(self.highs)))
        self.slack = self.errors * self.magnitude + 4 * _LEAST
        self.positive = filed.summed(most * np.maximum(self.highs, 0.0)) * (1 + self.errors)
        self.negative = filed.summed(most * np.maximum(-self.lows, 0.0)) * (1 + self.errors)

    def interval(self) -> Interval:
        """The intervals of the sums, with NaN and infinities."""
        low, high = self.low - self.slack, self.high + self.slack
        # A sum that overflows on the way stays infinite; if both signs can overflow, it can end in NaN.
        over, under = self.positive * (1 + UNIT) >= _MOST, self.negative * (1 + UNIT) >= _MOST
        low = np.where(over, -self.negative, low)
        high = np.where(under, self.positive, high)
        low, high = np.where(under, -np.inf, low), np.where(over, np.inf, high)
        high = np.where(over & under, np.nan, high)
        low, high = (
            np.where(self.above, np.inf, np.where(self.below, -np.inf, low)),
            np.where(
                self.above,
                np.where(under, np.nan, np.inf),
                np.where(self.below, np.where(over, np.nan, -np.inf), high),
            ),
        )
        poisoned = self.nan | (self.above & self.below)
        return np.where(poisoned, np.nan, low), np.where(poisoned, np.nan, high)


def _averages(filed: BucketTuples, sums: _Sums, grain: float) -> Interval:
    """Intervals of averages over the window's tuples (the paper divides by the count of the whole structure)."""
    total = sums.interval()
    if (filed.least == filed.most).all():
        count = filed.counted(filed.most)
        low, high = total[0] / count, total[1] / count
    else:
        slack = sums.errors * _reduced(np.maximum, filed, np.maximum(np.abs(sums.lows), np.abs(sums.highs)))
        low = -_greatest(filed, -sums.lows, ~sums.infinite, slack) - slack
        high = _greatest(filed, sums.highs, ~sums.infinite, slack) + slack
        low = np.where(np.isfinite(total[0]), low, total[0])
        high = np.where(np.isfinite(total[1]), high, total[1])
    return _rounded(low, -1.0, grain), _rounded(high, 1.0, grain)


def _rounded(bounds: Floats, side: float, grain: float) -> Floats:
    """The ends of quotients, moved outward by the rounding error of a division."""
    moved = bounds + side * (np.abs(bounds) * 4 * UNIT + grain + _LEAST)
    return np.where(np.isfinite(bounds), moved, bounds)


def _greatest(filed: BucketTuples, tops: Floats, finite: Mask, slack: Floats) -> Floats:
    """An upper bound of the averages of `least` to `most` tuples per bucket, all at the bucket's top.

    The greatest average takes `most` tuples of the buckets above it and `least` of the others. Choosing so
    from any average on gives a greater one, until there is none (Dinkelbach's method). After each step, the
    greatest average exceeds the current one by at most the gain times the ratio of possible to certain
    tuples.
    """
    least = np.where(finite, filed.least, 0).astype(np.float64)
    most = np.where(finite, filed.most, 0).astype(np.float64)
    certain = np.maximum(filed.summed(least), 1.0)
    average = filed.summed(least * tops) / certain
    for _ in range(_ROUNDS):
        taken = np.where(tops > average[filed.codes], most, least)
        better = filed.summed(taken * tops) / np.maximum(filed.summed(taken), 1.0)
        gain = np.maximum(better - average, 0.0)
        if (gain <= slack).all():
            break
        average += gain
    bound = average + (gain + slack) * (filed.summed(most) / certain)
    # The greatest top is a bound too, and the only one where sums overflow.
    return np.fmin(bound, _reduced(np.maximum, filed, np.where(finite, tops, -np.inf)))
