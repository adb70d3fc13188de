"""Buckets of values, as in a TimeGram: from a value to the number of its bucket.

A bucket is only a number. The interval of an answer comes from the values in the bucket, so it is correct even
if a value lies outside of the given range or is rounded into the next bucket. NaN and the
infinities have buckets of their own. Paper: Aggregate Sharing in Stream Databases, section 3.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints

FINEST = -1100  # below the exponent of every double: each value has a bucket of its own
_NEVER = 4000  # above the exponent of every double: such values never share a bucket
_ZERO_EXPONENT = -3000  # used as the exponent of zero


@dataclass(frozen=True)
class FixedBuckets:
    """Buckets between given bounds, the last one closed; one more below all bounds and one above.

    >>> FixedBuckets((-10.0, -6.0, -2.0, 4.0, 6.0, 10.0)).numbers(np.array([3.0, -10.0, 2.0, 10.0, 11.0])).tolist()
    [3, 1, 3, 5, 6]
    """

    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.bounds) < 2 or not np.isfinite(self.bounds).all() or (np.diff(self.bounds) <= 0).any():
            raise ValueError("the bounds of buckets are at least two numbers, in ascending order")

    @classmethod
    def evenly(cls, low: float, high: float, count: int) -> FixedBuckets:
        """Buckets of equal width."""
        return cls(tuple(np.unique(np.linspace(low, high, count + 1)).tolist()))

    @cached_property
    def _edges(self) -> Floats:
        return np.array([*self.bounds[:-1], np.nextafter(self.bounds[-1], np.inf)])

    def numbers(self, values: Floats) -> Ints:
        """The bucket of each value, counted from 1; bucket 0 is below all bounds."""
        return _apart(np.searchsorted(self._edges, values, side="right"), values)


@dataclass(frozen=True)
class GeometricBuckets:
    """Buckets in which values differ by at most the fraction `within`; signs and zero have separate buckets.

    >>> GeometricBuckets(0.5).numbers(np.array([-4.0, 0.0, 4.0, 4.1])).tolist()
    [-1099511627779, 0, 1099511627779, 1099511627779]
    """

    within: float

    def __post_init__(self) -> None:
        if not 1e-9 <= self.within < np.inf:
            raise ValueError("the width of an interval is a positive part of the answer")

    def numbers(self, values: Floats) -> Ints:
        """The bucket of each value."""
        # A little finer than requested, to allow for the rounding of logarithms and of sums.
        step = np.log1p(self.within * (1 - 1e-6))
        finite = np.isfinite(values) & (values != 0)
        places = np.floor(np.log(np.where(finite, np.abs(values), 1.0)) / step)
        signed = np.where(values < 0, -1, 1) * (places.astype(np.int64) + (1 << 40))
        return _apart(np.where(finite, signed, 0), values)


def _apart(numbers: Ints, values: Floats) -> Ints:
    """Numbers of buckets, but for NaN and the infinities numbers that no bucket else has."""
    finite = np.isfinite(values)
    return numbers if finite.all() else np.where(finite, numbers, _bits(values))


def dyadic_buckets(values: Floats, exponents: Ints | int) -> Ints:
    """Buckets [i * 2**m, (i + 1) * 2**m), mirrored below zero: a value's bits down to 2**m.

    Each bucket lies within one of the next coarser grid, so `bucket_floors` and this function coarsen
    buckets exactly. A bucket's number is the bits of a double, so any range of values fits.

    >>> bucket_floors(dyadic_buckets(np.array([5.5, 7.0, 8.0, 1e300]), 2)).tolist()
    [4.0, 4.0, 8.0, 1e+300]
    """
    magnitudes = np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(magnitudes, -np.asarray(exponents))
        coarse = np.ldexp(np.trunc(scaled), np.asarray(exponents))
    # Above 2**53 steps there are no bits to cut off, and scaling might overflow.
    found = np.where(scaled < 2.0**53, coarse, magnitudes)
    return _bits(np.copysign(found, values))


def bucket_floors(numbers: Ints) -> Floats:
    """The least magnitude in each dyadic bucket, with the sign of its values."""
    return numbers.view(np.float64)


def _bits(values: Floats) -> Ints:
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def fitting_exponents(values: Floats, codes: Ints, groups: int, limit: int) -> Ints:
    """For each group the least exponent at which its values fall into at most `limit` dyadic buckets.

    Positive and negative values never share a bucket (-0.0 counts as negative), so at least two buckets are
    allowed. Neighbours in the order of values share a bucket from some exponent on: for `limit` buckets all
    pairs but `limit - 1` must do so. No grid needs to be tried.
    """
    limit = max(limit, 2)
    exponents = np.full(groups, FINEST, np.int64)
    chosen = np.isfinite(values) & (np.bincount(codes, minlength=groups) > limit)[codes]
    values, codes = np.where(_is_minus_zero(values), -5e-324, values)[chosen], codes[chosen]
    order = np.argsort(values) if groups == 1 else np.lexsort((values, codes))
    values, codes = values[order], codes[order]
    meetings = _meetings(values[:-1], values[1:])
    within, codes = codes[1:] == codes[:-1], codes[1:]
    ranked = np.sort(codes[within] * 2 * _NEVER + (_NEVER - meetings[within]))  # the highest exponents first
    starts = np.searchsorted(ranked, np.arange(groups + 1) * 2 * _NEVER)
    crowded = np.flatnonzero(np.diff(starts) >= limit)
    exponents[crowded] = np.maximum(_NEVER - ranked[starts[crowded] + limit - 1] % (2 * _NEVER), FINEST)
    return exponents


def _is_minus_zero(values: Floats) -> NDArray[np.bool_]:
    return (values == 0) & np.signbit(values)


def _meetings(lower: Floats, upper: Floats) -> Ints:
    """The least exponent at which two values are in one bucket."""
    parts, exponents = np.frexp(np.stack([np.abs(lower), np.abs(upper)]))
    whole = np.ldexp(parts, 53).astype(np.int64)
    exponents = np.where(whole == 0, _ZERO_EXPONENT, exponents).astype(np.int64)
    differing = np.frexp((whole[0] ^ whole[1]).astype(np.float64))[1].astype(np.int64)
    met = np.where(exponents[0] == exponents[1], exponents[0] - 53 + differing, exponents.max(axis=0))
    met = np.where(lower == upper, 2 * FINEST, met)
    return np.where((lower < 0) != (upper < 0), _NEVER, met)
