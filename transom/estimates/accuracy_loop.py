"""The closed loop: the earliest point of the slide at which early results are accurate enough (6.2 c)."""

from __future__ import annotations

import numpy as np

from transom.estimates.early_values import Floats
from transom.estimates.marks import PER_SLIDE

PATIENCE = 8  # a mark's accuracy counts after this many windows
DEAD_ZONE = 0.02  # smaller moves are ignored
EARLIER, LATER = 0.05, 0.1  # the largest moves per closing: smaller in the direction of less accuracy


def next_point(
    point: float, seen: Floats, accuracy: Floats, target: float, between: tuple[float, float]
) -> float:
    """The point at which to emit windows from now on, given the accuracy by mark and item, the earliest mark first.

    `seen` is how many windows were compared at each mark.

    >>> curve = np.linspace(0.8, 1.0, PER_SLIDE + 1)[:, None]
    >>> point = 1.0
    >>> for _ in range(10):
    ...     point = next_point(point, np.full_like(curve, 20.0), curve, 0.95, (0.05, 1.0))
    >>> round(point, 2)
    0.75
    """
    wanted = _earliest(seen, accuracy, target)
    if wanted is None:
        return point
    move = min(max(wanted, between[0]), between[1]) - point
    if abs(move) < DEAD_ZONE:
        return point
    return point + min(max(move, -EARLIER), LATER)


def _earliest(seen: Floats, accuracy: Floats, target: float) -> float | None:
    """The point where a rising curve first reaches the target; 1 if it never does, None if it is unknown."""
    compared = (seen > 0).any(axis=0)  # an item that was never compared does not count
    measured = np.flatnonzero((seen[:, compared] >= PATIENCE).all(axis=1))
    if not compared.any() or not len(measured):
        return None
    worst = _rising(accuracy[measured][:, compared].min(axis=1))  # every item must reach the target
    points = measured / PER_SLIDE
    reached = np.flatnonzero(worst >= target)
    if not len(reached):
        return 1.0
    at = int(reached[0])
    if at == 0:
        return float(points[0])
    part = (target - worst[at - 1]) / (worst[at] - worst[at - 1])
    return float(points[at - 1] + part * (points[at] - points[at - 1]))


def _rising(values: Floats) -> Floats:
    """The nearest curve that never falls: falling neighbours are averaged (isotonic regression).

    >>> _rising(np.array([1.0, 3.0, 2.0, 4.0]))
    array([1. , 2.5, 2.5, 4. ])
    """
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, size = (mean * size + before * many) / (size + many), size + many
        blocks.append((mean, size))
    return np.array([mean for mean, size in blocks for _ in range(size)])
