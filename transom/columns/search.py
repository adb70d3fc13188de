"""Binary search of many numbers among few: most of them are placed by one look into a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

BUCKETS = 1 << 16
FAR = 1 << 61  # whole numbers beyond are not put into buckets: their differences might overflow


def count_at_or_below(thresholds: NDArray[Any], numbers: NDArray[Any]) -> Numbers:
    """How many thresholds, which are in order, lie at or below each number.

    Numbers and thresholds are put into buckets by a function that never falls as numbers rise, rounding
    included. Thresholds in lower buckets than a number's are then below it, and those in higher ones above
    it: only numbers that share a bucket with a threshold need be searched for.

    >>> count_at_or_below(np.array([2, 5]), np.array([1, 2, 3, 7])).tolist()
    [0, 1, 1, 2]
    """
    put = _buckets(thresholds, numbers) if len(numbers) > BUCKETS // 2 else None
    if put is None:
        return np.searchsorted(thresholds, numbers, side="right")
    of_thresholds, of_numbers, is_exact = put
    counts = np.bincount(of_thresholds, minlength=BUCKETS + 2)
    table = np.cumsum(counts)
    if is_exact:
        return table[of_numbers]
    table[counts > 0] = -1
    found = table[of_numbers]
    unsure = np.flatnonzero(found < 0)
    found[unsure] = np.searchsorted(thresholds, numbers[unsure], side="right")
    return found


def _buckets(thresholds: NDArray[Any], numbers: NDArray[Any]) -> tuple[Numbers, Numbers, bool] | None:
    """The buckets of both, and whether none has room for two different numbers; None: there are none."""
    if not len(thresholds):
        return None
    low, high = thresholds[0].item(), thresholds[-1].item()
    if thresholds.dtype.kind == "f":
        span = high - low  # not finite if one of them is not, NaN included
        scale = (BUCKETS - 1) / span if span > 0 else np.inf
        if not (np.isfinite(span) and np.isfinite(scale)) or np.isnan(numbers).any():
            return None
        return _scaled(thresholds, low, scale), _scaled(numbers, low, scale), False
    if low < -FAR or high > FAR:
        return None
    shift = max(0, (high - low + 2).bit_length() - BUCKETS.bit_length() + 1)
    ends = low - 1, high + 1
    return (thresholds - ends[0]) >> shift, (np.clip(numbers, *ends) - ends[0]) >> shift, not shift


def _scaled(numbers: NDArray[Any], low: float, scale: float) -> Numbers:
    with np.errstate(over="ignore"):
        offsets = (numbers - low) * scale
    return np.clip(offsets, -1, BUCKETS, out=offsets).astype(np.int64) + 1
