"""The paper's metrics of an answer: size, histogram error, outliers and freshness (section 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reproduce.prodding.data import SECOND, Numbers

INTERVALS = 100  # of a histogram (section 5.2)
RARE = 0.05  # of the exact answer's tuples, those of the least frequent items

Floats = NDArray[np.float64]


def histogram(items: Numbers, numbered: int, intervals: int = INTERVALS) -> Floats:
    """The shares of tuples in intervals of item numbers, all of the same width; nothing if there are none.

    >>> histogram(np.array([0, 1, 9]), 10, 2).round(2).tolist()
    [0.67, 0.33]
    """
    counts = np.bincount(items * intervals // numbered, minlength=intervals)
    return counts / max(len(items), 1)


def hist_mse(exact: Numbers, obtained: Numbers, numbered: int, intervals: int = INTERVALS) -> float:
    """How far the items of an answer are from those of the exact one (equation 2).

    >>> hist_mse(np.array([0, 9]), np.array([0]), 10, 2)
    0.5
    """
    apart = histogram(exact, numbered, intervals) - histogram(obtained, numbered, intervals)
    return float(np.sum(apart**2))


def outliers(exact: Numbers, numbered: int, share: float = RARE) -> NDArray[np.bool_]:
    """Which items are outliers: the rarest of the exact answer, together at most a share of its tuples.

    An item's frequency is how many tuples of the exact answer have it. Items of the same frequency are
    outliers together or not at all. An item that the exact answer lacks is no outlier, and never produced.

    >>> outliers(np.repeat([0, 1, 2, 3], [1, 1, 2, 96]), 5).tolist()
    [True, True, True, False, False]
    """
    frequency = np.bincount(exact, minlength=numbered)
    levels, counts = np.unique(frequency[frequency > 0], return_counts=True)
    below = np.cumsum(levels * counts) <= share * len(exact)
    return (frequency > 0) & np.isin(frequency, levels[below])


def outlier_share(exact: Numbers, obtained: Numbers, numbered: int) -> float:
    """The share of an answer's tuples that are outliers; not a number if it is empty, or there are none."""
    rare = outliers(exact, numbered)
    return float(np.mean(rare[obtained])) if len(obtained) and rare.any() else float("nan")


def freshness(first: Numbers, second: Numbers) -> float:
    """The mean seconds between the two tuples of a pair, |ts1 - ts2|; not a number if there is none."""
    return float(np.mean(np.abs(first - second))) / SECOND if len(first) else float("nan")


def mean_square_error(exact: Floats, obtained: Floats) -> float:
    """The mean square error of aggregates (section 5.4).

    What has no exact answer does not count; an answer that was not found at all, not a number, counts as 0.

    >>> mean_square_error(np.array([10.0, 2.0, np.nan]), np.array([9.0, np.nan, 1.0]))
    2.5
    """
    known = ~np.isnan(exact)
    return (
        float(np.mean((np.nan_to_num(obtained[known], nan=0.0) - exact[known]) ** 2)) if known.any() else 0.0
    )
