"""The monitor: what it counts, the user's quality functions, and the curve."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tests.estimates.test_estimator import AT, KINDS, early_values, finals, observe, table, taught
from transom.elements import Emit
from transom.estimates import EarlyValues, EstimateLimits, Estimator, FinalValues, ItemKind

TEXT = (ItemKind("code", False), ItemKind("n", True))
LIKE = Emit(at=(0.5,), quality="alike")


def alike(early: object, final: object, seconds: float) -> float:
    """Of texts, the part of equal letters (Hamming); of numbers, whether they are equal."""
    if isinstance(early, str) and isinstance(final, str):
        return sum(a == b for a, b in zip(early, final, strict=True)) / len(final)
    return float(early == final)


def test_only_emitted_values_are_counted() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0)
    estimator, _ = observe(estimator, early_values([0], 0, 0.75, table([10], [1.0]), emitted=False))
    estimator, _ = observe(estimator, early_values([0], 0, 0.5, table([80], [2.0])))
    estimator, _ = observe(estimator, early_values([0], 0, 0.25, table([50], [4.0])))
    found = estimator.with_finals(finals([0], 0, table([100], [4.0]))).accuracy()
    n, x, who = found.items
    assert (n.name, n.total.pairs, n.total.raw, n.total.worst_raw) == ("n", 2, pytest.approx(0.65), 0.5)
    assert (x.total.pairs, x.total.raw, x.total.worst_raw) == (2, 0.75, 0.5)
    assert who.total.pairs == 0 and math.isnan(who.total.raw)
    assert n.total.projected == pytest.approx(((100 - 60) + (100 - 100 / 3)) / 200)  # 160 and 66.7: the prior
    assert found.total.pairs == 4 and found.total.raw == pytest.approx(0.7)
    assert found.total.worst_projected == pytest.approx(0.4)
    assert [mark.point for mark in n.curve] == [0.25, 0.5, 0.75]
    assert [mark.raw for mark in n.curve] == pytest.approx([0.1, 0.8, 0.5])


def test_the_last_windows_are_counted_separately() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0, EstimateLimits(recent_windows=4))
    for window in range(10):
        estimator, _ = observe(
            estimator, early_values([0], window, 0.5, table([50 if window < 6 else 90], [1.0]))
        )
        estimator = estimator.with_finals(finals([0], window, table([100], [1.0])))
    n = estimator.accuracy().items[0]
    assert n.total.pairs == 10 and n.total.worst_raw == 0.5
    assert n.recent.pairs == 4 and n.recent.raw == n.recent.worst_raw == pytest.approx(0.9)


def test_coverage_is_compared_with_the_confidence_asked_for() -> None:
    found = taught(60).accuracy()
    assert found.confidence == 0.9
    assert found.total.bounded == 2 * (60 - 11)
    assert 0.8 <= found.total.coverage <= 1.0
    assert found.target is None


def test_several_windows_in_one_closing_are_several_windows() -> None:
    estimator = Estimator.of(AT, KINDS, 1.0)
    for window in (0, 1, 2):
        estimator, _ = observe(estimator, early_values([0], window, 0.5, table([50], [1.0])))
    three = FinalValues(
        np.zeros(3, np.int64), np.arange(3), np.ones(3, np.int64), table([100] * 3, [1.0] * 3), 0
    )
    estimator = estimator.with_finals(three)
    assert estimator.accuracy().total.pairs == 6
    assert estimator.monitor.recent.shape[0] == 3
    assert estimator.experts.count.max() == 3


def test_a_quality_function_judges_texts() -> None:
    estimator = Estimator.of(LIKE, TEXT, 1.0)
    items = pa.table({"code": ["abcd", None], "n": [1, 2]})
    estimator, _ = observe(estimator, early_values([0, 1], 0, 0.5, items))
    estimator = Estimator.loads(estimator.dumps())  # values in their own types survive, too
    estimator = estimator.with_finals(
        finals([1, 0], 0, pa.table({"code": ["x", "abxx"], "n": [2, 5]})), alike
    )
    code, n = estimator.accuracy().items
    assert (code.total.pairs, code.total.raw, code.total.projected) == (1, 0.5, 0.5)
    assert (n.total.pairs, n.total.raw) == (2, 0.5)


def test_a_quality_function_receives_the_seconds_between_and_the_values_in_their_own_types() -> None:
    calls: list[tuple[object, object, float]] = []

    def quality(early: object, final: object, seconds: float) -> float:
        calls.append((early, final, seconds))
        return 1.0

    estimator = Estimator.of(LIKE, (ItemKind("who", False), ItemKind("n", True, grows=True)), 2.0)
    items = pa.table({"who": ["a"], "n": [10]})
    estimator, _ = observe(estimator, early_values([0], 0, 1.0, items, made=1_000_000))
    estimator.with_finals(finals([0], 0, pa.table({"who": ["b"], "n": [21]}), made=3_500_000), quality)
    assert calls == [("a", "b", 2.5), (10, 21, 2.5), (20.0, 21, 2.5)]  # raw, raw, and projected


def test_a_quality_function_sees_only_some_of_the_values_that_were_not_emitted() -> None:
    calls = 0

    def quality(early: object, final: object, seconds: float) -> float:
        nonlocal calls
        calls += 1
        return 0.0

    count = 2000
    estimator = Estimator.of(LIKE, (ItemKind("who", False),), 1.0)
    names = np.arange(count)
    texts = pa.table({"who": ["a"] * count})
    ones = np.ones(count, np.int64)
    for left in np.arange(20) / 20:
        seen = EarlyValues(names, ones, np.full(count, left), ones, texts, 0, np.zeros(count, np.bool_))
        estimator, _ = observe(estimator, seen)
    estimator.with_finals(FinalValues(names, ones, ones, texts, 0), quality)
    assert 0 < calls <= 512


def test_the_point_follows_the_users_quality() -> None:
    """Texts are equal in the second half of the slide only."""
    emit = Emit(accuracy=0.9, quality="alike")
    estimator = Estimator.of(emit, (ItemKind("code", False),), 1.0)
    for window in range(60):
        for left in np.arange(20) / 20:
            text = pa.table({"code": ["right" if left < 0.48 else "wrong"]})
            estimator, _ = observe(estimator, early_values([0], window, float(left), text))
        estimator = estimator.with_finals(finals([0], window, pa.table({"code": ["right"]})), alike)
    assert estimator.point == pytest.approx(0.55, abs=0.05)


def test_a_quality_function_of_a_query_that_names_none_is_refused() -> None:
    estimator, _ = observe(Estimator.of(AT, KINDS, 1.0), early_values([0], 0, 0.5, table([1], [1.0])))
    with pytest.raises(ValueError, match="names it"):
        estimator.with_finals(finals([0], 0, table([1], [1.0])), alike)
