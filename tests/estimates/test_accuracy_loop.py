"""The point at which windows are emitted: the earliest that is accurate enough, moved cautiously."""

from __future__ import annotations

import numpy as np
import pytest

from transom.estimates.accuracy_loop import MAX_EARLIER, MAX_LATER, PATIENCE, next_point
from transom.estimates.marks import PER_SLIDE

POINTS = np.arange(PER_SLIDE + 1) / PER_SLIDE
ANYWHERE = (0.05, 1.0)


def settled(
    curve: np.ndarray, target: float, between: tuple[float, float] = ANYWHERE, seen: float = 99
) -> float:
    point = between[1]
    for _ in range(50):
        point = next_point(point, np.full(curve.shape, seen), curve, target, between)
    return point


def test_the_point_settles_where_the_curve_reaches_the_target() -> None:
    assert settled((0.8 + 0.2 * POINTS)[:, None], 0.9) == pytest.approx(0.5, abs=0.02)


def test_every_item_has_to_reach_the_target() -> None:
    curves = np.column_stack([np.ones(PER_SLIDE + 1), 0.8 + 0.2 * POINTS, 0.6 + 0.4 * POINTS])
    assert settled(curves, 0.9) == pytest.approx(0.75, abs=0.02)


def test_an_item_that_was_never_compared_does_not_count() -> None:
    seen = np.column_stack([np.full(PER_SLIDE + 1, 50.0), np.zeros(PER_SLIDE + 1)])
    curves = np.column_stack([np.ones(PER_SLIDE + 1), np.full(PER_SLIDE + 1, np.nan)])
    assert next_point(0.5, seen, curves, 0.9, ANYWHERE) == pytest.approx(0.45)


@pytest.mark.parametrize(("target", "expected"), [(0.5, 0.3), (0.9999, 0.8)])
def test_the_point_stays_within_its_limits(target: float, expected: float) -> None:
    assert settled((0.8 + 0.19 * POINTS)[:, None], target, (0.3, 0.8)) == pytest.approx(expected)


def test_the_point_moves_only_after_enough_windows_at_a_mark() -> None:
    curve = np.ones((PER_SLIDE + 1, 1))
    assert settled(curve, 0.9, seen=PATIENCE - 1) == 1.0
    assert settled(curve, 0.9, seen=PATIENCE) == 0.05


def test_the_point_moves_later_faster_than_earlier_and_ignores_small_gains() -> None:
    seen, curve = np.full((PER_SLIDE + 1, 1), 99.0), (0.8 + 0.2 * POINTS)[:, None]
    assert next_point(1.0, seen, curve, 0.9, ANYWHERE) == pytest.approx(1.0 - MAX_EARLIER)
    assert next_point(0.1, seen, curve, 0.9, ANYWHERE) == pytest.approx(0.1 + MAX_LATER)
    assert next_point(0.51, seen, curve, 0.9, ANYWHERE) == 0.51


def test_a_local_dip_of_the_curve_does_not_move_the_point_earlier() -> None:
    curve = 0.8 + 0.2 * POINTS
    curve[3] = 0.91  # luck at one mark
    assert settled(curve[:, None], 0.9) == pytest.approx(0.5, abs=0.02)


def test_marks_that_were_never_seen_are_bridged() -> None:
    seen = np.zeros((PER_SLIDE + 1, 1))
    seen[[4, 12, 20]] = 99
    curve = np.full((PER_SLIDE + 1, 1), np.nan)
    curve[[4, 12, 20], 0] = 0.8, 0.9, 1.0
    point = 1.0
    for _ in range(30):
        point = next_point(point, seen, curve, 0.85, ANYWHERE)
    assert point == pytest.approx(0.4, abs=0.02)
