"""Quantiles of scores, ties, the level's correction, and how many scores one closing may leave."""

from __future__ import annotations

import numpy as np
import pytest

from transom.estimates.conformal_bounds import KEPT, SHARE, ConformalBounds
from transom.estimates.marks import AT_END, MARKS, MarkRuns

MARK = AT_END + 10
ONE = np.array([1])  # window


def with_scores(scores: list[float], confidence: float = 0.9) -> ConformalBounds:
    """A window a score, none of them bounded before."""
    bounds = ConformalBounds.empty(1, confidence)
    for score in scores:
        bounds = bounds.with_pairs(MarkRuns(np.array([MARK])), ONE, np.array([[score]]), np.array([[np.nan]]))
    return bounds


def limits(bounds: ConformalBounds, mark: int = MARK) -> tuple[float, float]:
    low, high = bounds.around(np.array([[0.0]]), np.array([[1.0]]), np.array([mark]))
    return float(low[0, 0]), float(high[0, 0])


@pytest.mark.parametrize(
    ("scores", "low", "high"),
    [
        pytest.param(range(-19, 20), -18, 18, id="39 scores: the second from either end is a 5 % quantile"),
        pytest.param(range(-10, 11), -10 + 0.1, 10 - 0.1, id="21 scores: between the outermost two"),
        pytest.param([0.0] * 40, 0, 0, id="what never erred is certain"),
        pytest.param([0.0] * 35 + [1, 2, 3, 4], 0, 1, id="ties at zero: all the misses may be above"),
        pytest.param([0.0] * 35 + [-1, -2, -3, -4], -1, 0, id="or below"),
        pytest.param([0.0] * 97 + [5, 6], 0, 0, id="more ties than confidence: the few others may be missed"),
        pytest.param(range(5, 44), 0, 40, id="a projection that was always too low is still within"),
        pytest.param([float("nan")] * 30 + list(range(-19, 20)), -18, 18, id="nulls are no scores"),
    ],
)  # fmt: skip
def test_limits(scores: list[float], low: float, high: float) -> None:
    assert limits(with_scores(list(scores))) == pytest.approx((low, high), abs=1e-6)


def test_beyond_the_outermost_score_bounds_are_stretched() -> None:
    scores = [-1.0, 1.0] * 5
    assert limits(with_scores(scores)) == pytest.approx((-20 / 11, 20 / 11))
    assert np.isnan(limits(with_scores(scores[1:]))).all()


def test_new_scores_replace_the_oldest() -> None:
    assert limits(with_scores([1000.0] * 50 + [1.0, -1.0] * (KEPT // 2))) == (-1, 1)


@pytest.mark.parametrize(("away", "known"), [(1, True), (2, True), (3, False)])
def test_a_mark_without_scores_borrows_those_of_near_marks(away: int, known: bool) -> None:
    bounds = with_scores([1.0, -1.0] * 20)
    for mark in (MARK - away, MARK + away):
        assert np.isnan(limits(bounds, mark)).any() != known


def test_misses_widen_and_hits_narrow() -> None:
    before = with_scores(list(range(-19, 20)))
    runs = MarkRuns(np.array([MARK]))
    none = np.array([[np.nan]])
    wider, narrower = before, before
    for _ in range(3):
        wider = wider.with_pairs(runs, ONE, none, np.array([[1.0]]))
        narrower = narrower.with_pairs(runs, ONE, none, np.array([[0.0]]))
    assert limits(wider)[1] > limits(before)[1] > limits(narrower)[1]
    assert (wider.level[MARK + 1] == before.level[MARK + 1]).all()  # other marks learn nothing of it


def test_the_level_stays_within_limits() -> None:
    bounds = with_scores(list(range(-19, 20)))
    runs = MarkRuns(np.array([MARK]))
    for _ in range(500):
        bounds = bounds.with_pairs(runs, ONE, np.array([[np.nan]]), np.array([[1.0]]))
    assert 0 < bounds.level[MARK, 0] < 0.01
    assert np.isfinite(limits(bounds)).all()


def test_many_groups_leave_a_few_scores_that_stand_for_all() -> None:
    scores = np.random.default_rng(1).permutation(np.linspace(-1, 1, 1001))[:, None]
    runs, none = MarkRuns(np.full(1001, MARK)), np.full((1001, 1), np.nan)
    bounds = ConformalBounds.empty(1, 0.9)
    for _ in range(10):
        bounds = bounds.with_pairs(runs, ONE, scores, none)
    assert bounds.place[MARK] == 10 * SHARE
    assert limits(bounds) == pytest.approx((-0.9, 0.9), abs=0.05)


def test_windows_count_not_only_scores() -> None:
    runs = MarkRuns(np.full(50, MARK))
    scores = np.linspace(-1, 1, 50)[:, None]
    bounds = ConformalBounds.empty(1, 0.9)
    for window in range(10):
        assert np.isnan(limits(bounds)).all(), window
        bounds = bounds.with_pairs(runs, ONE, scores, np.full((50, 1), np.nan))
    assert np.isfinite(limits(bounds)).all()
    assert bounds.level.shape == (MARKS, 1)
