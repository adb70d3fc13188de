"""Buckets: every value has one, grids nest, and the limit of buckets is kept."""

from __future__ import annotations

import numpy as np
import pytest

from transom.ondemand.structures.buckets import (
    FixedBuckets,
    GeometricBuckets,
    bucket_floors,
    dyadic_buckets,
    fitting_exponents,
)

EDGES = [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-300, -1e-300, 1.0, -1.0, 2.0**53 + 2, 1e300, -1e300]
EXTREMES = [np.finfo(float).max, -np.finfo(float).max, np.nan, np.inf, -np.inf]


def random_values(rng: np.random.Generator, count: int) -> np.ndarray:
    kinds = [
        rng.normal(100, 1, count),
        rng.uniform(-1, 1, count) * 10.0 ** rng.integers(-300, 300, count),
        rng.integers(-5, 5, count).astype(float),
        rng.choice(EDGES, count),
    ]
    return np.choose(rng.integers(0, len(kinds), count), kinds)


def test_the_papers_buckets_hold_their_values() -> None:
    buckets = FixedBuckets((-10, -6, -2, 4, 6, 10))
    # The paper files T5, whose value is 2, in bucket 4, which is [4, 6]; it belongs into bucket 3, [-2, 4].
    assert buckets.numbers(np.array([3.0, -10, -9, 5, 2, 7, -3])).tolist() == [3, 1, 1, 4, 3, 5, 2]


def test_values_outside_the_bounds_have_their_own_buckets() -> None:
    numbers = FixedBuckets.evenly(0, 10, 5).numbers(np.array([-0.1, 0, 10, 10.1, np.inf, -np.inf, np.nan]))
    assert numbers[:4].tolist() == [0, 1, 5, 6]
    assert len(set(numbers.tolist())) == 7


@pytest.mark.parametrize("bounds", [(), (1.0,), (1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_bounds_that_do_not_ascend_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        FixedBuckets(bounds)


@pytest.mark.parametrize("within", [0.0, -0.1, np.nan, np.inf])
def test_an_invalid_width_is_refused(within: float) -> None:
    with pytest.raises(ValueError, match="positive part"):
        GeometricBuckets(within)


@pytest.mark.parametrize("within", [0.001, 0.05, 1.0, 3.0])
def test_geometric_buckets_are_no_wider_than_their_part(within: float) -> None:
    rng = np.random.default_rng(7)
    values = np.r_[random_values(rng, 20_000), EDGES, EXTREMES]
    numbers = GeometricBuckets(within).numbers(values)
    for number in np.unique(numbers):
        own = values[numbers == number]
        if np.isfinite(own).all():
            assert own.max() / 4 - own.min() / 4 <= within * (np.abs(own).min() / 4)
        else:
            assert len(np.unique(own)) == 1


def test_a_coarser_dyadic_bucket_is_made_of_whole_finer_ones() -> None:
    rng = np.random.default_rng(8)
    values = np.r_[random_values(rng, 5_000), EDGES, EXTREMES]
    for fine, coarse in [(-1100, -1074), (-1074, 3), (-2, 0), (0, 1), (4, 40), (900, 1030)]:
        again = dyadic_buckets(bucket_floors(dyadic_buckets(values, fine)), coarse)
        assert (again == dyadic_buckets(values, coarse)).all()


def test_the_coarsest_exponent_leaves_as_many_buckets_as_asked_and_none_finer_does() -> None:
    rng = np.random.default_rng(9)
    for limit in (2, 3, 16, 64):
        values, codes = random_values(rng, 3_000), rng.integers(0, 8, 3_000)
        exponents = fitting_exponents(values, codes, 9, limit)
        for code in range(8):
            own, exponent = values[codes == code], int(exponents[code])
            assert len(np.unique(dyadic_buckets(own, exponent))) <= limit
            assert len(np.unique(dyadic_buckets(own, exponent - 1))) > limit
        assert exponents[8] == -1100


def test_few_values_have_a_bucket_each_whatever_lies_between_them() -> None:
    values = np.array([1e300, 1e-300, -5e-324, 0.0, 7.0, np.inf, np.nan])
    exponents = fitting_exponents(values, np.zeros(7, np.int64), 1, 6)
    assert len(np.unique(dyadic_buckets(values, exponents[0]))) == 7


def test_one_requested_bucket_becomes_one_per_sign() -> None:
    values = np.array([-3.0, -1e9, 4.0, 1e200, 0.0])
    numbers = dyadic_buckets(values, fitting_exponents(values, np.zeros(5, np.int64), 1, 1)[0])
    assert len(np.unique(numbers[:2])) == len(np.unique(numbers[2:])) == 1
