"""Names for the types of NumPy arrays that annotations use throughout the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Keys = NDArray[np.uint64]  # join keys, hashed


def running_totals(counts: Ints) -> Ints:
    """The sum of all counts before each, and of all.

    >>> running_totals(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    totals = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=totals[1:])
    return totals
