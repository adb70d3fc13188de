"""The paper's metrics of an answer: size, histogram error, outliers and freshness (section 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reproduce.prodding.data import SECOND, Numbers

INTERVALS = 100  # intervals of a histogram (section 5.2)
RARE = 0.05  # the share of the exact answer's tuples, those of the rarest items

Floats = NDArray[np.float64]


def histogram(items: Numbers, numbered: int, intervals: int = INTERVALS) -> Floats:
    """The shares of tuples in intervals of item numbers, all of the same width; zeros if there are no tuples.

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
    """Which items are outliers: the rarest of the exact answer, which together have at most a share of its tuples.

    An item's frequency is how many tuples of the exact answer have it. Items of the same frequency are
    outliers together or not at all. An item that is not in the exact answer is no outlier.

    >>> outliers(np.repeat([0, 1, 2, 3], [1, 1, 2, 96]), 5).tolist()
    [True, True, True, False, False]
    """
    frequency = np.bincount(exact, minlength=numbered)
    levels, counts = np.unique(frequency[frequency > 0], return_counts=True)
    below = np.cumsum(levels * counts) <= share * len(exact)
    return (frequency > 0) & np.isin(frequency, levels[below])


def outlier_share(exact: Numbers, obtained: Numbers, numbered: int) -> float:
    """The share of an answer's tuples that are outliers; NaN if the answer is empty or there are no outliers."""
    rare = outliers(exact, numbered)
    return float(np.mean(rare[obtained])) if len(obtained) and rare.any() else float("nan")


def freshness(first: Numbers, second: Numbers) -> float:
    """The mean seconds between the two tuples of a pair, |ts1 - ts2|; NaN if there are no pairs."""
    return float(np.mean(np.abs(first - second))) / SECOND if len(first) else float("nan")


def mean_square_error(exact: Floats, obtained: Floats) -> float:
    """The mean square error of aggregates (section 5.4).

    Aggregates without an exact answer do not count; a NaN (no tuple was found) counts as 0.

    >>> mean_square_error(np.array([10.0, 2.0, np.nan]), np.array([9.0, np.nan, 1.0]))
    2.5
    """
    known = ~np.isnan(exact)
    return (
        float(np.mean((np.nan_to_num(obtained[known], nan=0.0) - exact[known]) ** 2)) if known.any() else 0.0
    )
