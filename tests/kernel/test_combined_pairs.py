"""Ranges of values combined by blocks, against adding them up one by one."""

from __future__ import annotations

import numpy as np
import pytest

from transom.kernel.combined_pairs import RangeBlocks


@pytest.mark.parametrize("size", [0, 1, 2, 7, 64, 100])
@pytest.mark.parametrize(
    ("combine", "identity"),
    [(np.add, 0), (np.fmin, np.nan), (np.maximum, -np.inf)],
    ids=["sum", "min", "max"],
)
def test_ranges_of_blocks(size: int, combine: np.ufunc, identity: float, seed: int) -> None:
    dice = np.random.default_rng(seed)
    values = dice.choice([1.5, -2.0, 3.25, np.nan, np.inf, 1e300], size)
    starts = dice.integers(0, size + 1, 200)
    stops = np.minimum(size, starts + dice.integers(0, size + 1, 200))
    found = RangeBlocks(values, combine, identity).between(starts, stops)
    expected = [
        combine.reduce(np.append(values[start:stop], identity))
        for start, stop in zip(starts, stops, strict=True)
    ]
    np.testing.assert_allclose(found, expected)


def test_a_value_does_not_change_the_sums_of_other_ranges() -> None:
    values = np.array([1.0, 1e300, np.nan, np.inf, 2.0, 3.0])
    blocks = RangeBlocks(values, np.add, 0)
    assert blocks.between(np.array([0, 4]), np.array([1, 6])).tolist() == [1.0, 5.0]
