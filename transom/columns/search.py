"""Binary search of many numbers among few: most numbers need one lookup in a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Ints

SEARCH_BUCKETS = 1 << 16
FAR = 1 << 61  # integers beyond are not put into buckets, because their differences may overflow


def count_at_or_below(thresholds: NDArray[Any], numbers: NDArray[Any], buckets: int = SEARCH_BUCKETS) -> Ints:
    """How many of the sorted thresholds are at or below each number.

    Numbers and thresholds are put into buckets by a monotonic function, rounding included. Thresholds in
    lower buckets than a number's are below it, and those in higher buckets above it. So a search is needed
    only for numbers that share a bucket with a threshold.

    >>> count_at_or_below(np.array([2, 5]), np.array([1, 2, 3, 7])).tolist()
    [0, 1, 1, 2]
    """
    put = rising_buckets(thresholds, numbers, buckets) if len(numbers) > buckets // 2 else None
    if put is None:
        return np.searchsorted(thresholds, numbers, side="right")
    of_thresholds, of_numbers, is_exact = put
    counts = np.bincount(of_thresholds, minlength=buckets + 2)
    table = np.cumsum(counts)
    if is_exact:
        return table[of_numbers]
    table[counts > 0] = -1
    counted = table[of_numbers]
    unsure = np.flatnonzero(counted < 0)
    counted[unsure] = np.searchsorted(thresholds, numbers[unsure], side="right")
    return counted


def rising_buckets(
    thresholds: NDArray[Any], numbers: NDArray[Any], count: int
) -> tuple[Ints, Ints, bool] | None:
    """The buckets of both, and whether each holds one number only; None: buckets can't be used."""
    if not len(thresholds):
        return None
    low, high = thresholds[0].item(), thresholds[-1].item()
    if thresholds.dtype.kind == "f":
        span = high - low  # not finite if one of them is not, NaN included
        scale = (count - 1) / span if span > 0 else np.inf
        if not (np.isfinite(span) and np.isfinite(scale)) or np.isnan(numbers).any():
            return None
        return _scaled(thresholds, low, scale, count), _scaled(numbers, low, scale, count), False
    if low < -FAR or high > FAR:
        return None
    shift = max(0, (high - low + 2).bit_length() - count.bit_length() + 1)
    ends = low - 1, high + 1
    return (thresholds - ends[0]) >> shift, (np.clip(numbers, *ends) - ends[0]) >> shift, not shift


def _scaled(numbers: NDArray[Any], low: float, scale: float, count: int) -> Ints:
    with np.errstate(over="ignore"):
        offsets = (numbers - low) * scale
    return np.clip(offsets, -1, count, out=offsets).astype(np.int64) + 1
