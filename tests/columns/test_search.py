"""Counting thresholds with buckets gives what a binary search gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.columns.search import count_at_or_below, rising_buckets

FEW = 64  # buckets, so that few numbers are put into buckets, too, and share them
WHOLE = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300), st.integers(-(2**20), 2**20))
DOUBLE = st.one_of(
    st.floats(), st.floats(-10, 10), st.sampled_from([0.1, 0.2, 0.30000000000000004, -0.0, math.inf])
)


def repeated(values: list[Any], dtype: type) -> np.ndarray:
    return np.array(values * 40, dtype)


@given(thresholds=st.sets(WHOLE, max_size=8), numbers=st.lists(WHOLE, min_size=1))
def test_integers_are_counted_as_by_a_binary_search(thresholds: set[int], numbers: list[int]) -> None:
    edges, wanted = np.array(sorted(thresholds), np.int64), repeated([*numbers, *thresholds], np.int64)
    found = count_at_or_below(edges, wanted, FEW)
    assert found.tolist() == np.searchsorted(edges, wanted, side="right").tolist()


@given(thresholds=st.lists(DOUBLE, max_size=8), numbers=st.lists(DOUBLE, min_size=1))
def test_doubles_are_counted_as_by_a_binary_search(thresholds: list[float], numbers: list[float]) -> None:
    edges = np.unique(np.array(thresholds, np.float64))
    beside = [math.nextafter(t, to) for t in thresholds for to in (-math.inf, math.inf)]
    wanted = repeated([*numbers, *thresholds, *beside], np.float64)
    found = count_at_or_below(edges, wanted, FEW)
    assert found.tolist() == np.searchsorted(edges, wanted, side="right").tolist()


@pytest.mark.parametrize(
    "numbers, is_exact",
    [
        pytest.param(np.arange(3, 60), True, id="whole numbers close together need no search"),
        pytest.param(np.arange(3, 6_000), False, id="whole numbers far apart share buckets"),
        pytest.param(np.linspace(0.0, 1.0, 90), False, id="doubles share buckets"),
    ],
)
def test_buckets_rise_with_numbers(numbers: np.ndarray, is_exact: bool) -> None:
    put = rising_buckets(numbers, numbers, FEW)
    assert put is not None
    of_thresholds, of_numbers, found = put
    assert found == is_exact
    assert of_thresholds.tolist() == of_numbers.tolist()
    assert of_numbers.min() >= 0
    assert of_numbers.max() <= FEW + 1
    assert (np.diff(of_numbers) >= 0).all()
