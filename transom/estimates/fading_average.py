"""Fading averages over windows: plain averages at first, exponential averages later."""

from __future__ import annotations

import numpy as np

from transom.columns.arrays import Floats

SLOW = 1 / 64  # the minimal weight of the newest window in a long average
FAST = 1 / 8  # the same in an average over the last few windows


def newest_weight(count: Floats, fresh: Floats, least: float) -> Floats:
    """The weight of `fresh` windows next to `count` earlier ones, at least `least` per window."""
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = np.where(fresh > 0, fresh / (count + fresh), 0.0)
    return np.where(fresh > 0, np.maximum(plain, 1 - (1 - least) ** fresh), 0.0)


def moved_toward(old: Floats, new: Floats, weight: Floats) -> Floats:
    """Averages moved towards new values; a weight of 0 keeps the old one (the new one may be NaN)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(weight > 0, old + weight * (new - old), old)
