"""Buckets of values, as a TimeGram's: the number of the one in which a value is filed.

A bucket is a number and nothing more; the bounds of an answer come from the values that were filed in it,
so that a value outside of any range, or one that is rounded into its neighbour's bucket, breaks no promise.
NaN and the infinities always have buckets of their own.
Paper: Aggregate Sharing in Stream Databases, section 3.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Numbers = NDArray[np.int64]

FINEST = -1100  # an exponent below that of every double: each value has a bucket of its own
_APART = 4000  # an exponent above that of every double: these never meet in one bucket
_ABSENT = -3000  # the exponent of zero


@dataclass(frozen=True)
class FixedBuckets:
    """Buckets between given bounds, the last one closed; values outside go to one below and one above all.

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
    def _edges(self) -> Doubles:
        return np.array([*self.bounds[:-1], np.nextafter(self.bounds[-1], np.inf)])

    def numbers(self, values: Doubles) -> Numbers:
        """The bucket of each value, from 1; 0 is below all bounds."""
        return _apart(np.searchsorted(self._edges, values, side="right"), values)


@dataclass(frozen=True)
class GeometricBuckets:
    """Buckets whose values differ by at most the part `within` of any of them; the signs and zero apart.

    >>> GeometricBuckets(0.5).numbers(np.array([-4.0, 0.0, 4.0, 4.1])).tolist()
    [-1099511627779, 0, 1099511627779, 1099511627779]
    """

    within: float

    def __post_init__(self) -> None:
        if not 1e-9 <= self.within < np.inf:
            raise ValueError("the width of an interval is a positive part of the answer")

    def numbers(self, values: Doubles) -> Numbers:
        """The bucket of each value."""
        # A little finer than asked: room for the rounding of logarithms and of sums.
        step = np.log1p(self.within * (1 - 1e-6))
        finite = np.isfinite(values) & (values != 0)
        places = np.floor(np.log(np.where(finite, np.abs(values), 1.0)) / step)
        signed = np.where(values < 0, -1, 1) * (places.astype(np.int64) + (1 << 40))
        return _apart(np.where(finite, signed, 0), values)


def _apart(numbers: Numbers, values: Doubles) -> Numbers:
    """Numbers of buckets, but for NaN and the infinities numbers that no bucket else has."""
    finite = np.isfinite(values)
    return numbers if finite.all() else np.where(finite, numbers, _bits(values))


def dyadic_buckets(values: Doubles, exponents: Numbers | int) -> Numbers:
    """Buckets [i * 2**m, (i + 1) * 2**m), and the like below zero: by the value's bits down to 2**m.

    A grid lies within the next coarser one, so buckets are made coarser exactly, by what `floors` gives
    back. Numbers are the bits of a double: no range of values is too wide for them.

    >>> bucket_floors(dyadic_buckets(np.array([5.5, 7.0, 8.0, 1e300]), 2)).tolist()
    [4.0, 4.0, 8.0, 1e+300]
    """
    magnitudes = np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.ldexp(magnitudes, -np.asarray(exponents))
        coarse = np.ldexp(np.trunc(scaled), np.asarray(exponents))
    # Above 2**53 steps there is nothing to cut off, and scaling might run over.
    found = np.where(scaled < 2.0**53, coarse, magnitudes)
    return _bits(np.copysign(found, values))


def bucket_floors(numbers: Numbers) -> Doubles:
    """The least magnitude in each dyadic bucket, with the sign of its values."""
    return numbers.view(np.float64)


def _bits(values: Doubles) -> Numbers:
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def fitting_exponents(values: Doubles, codes: Numbers, groups: int, limit: int) -> Numbers:
    """For each group the least exponent with which its values fall into at most `limit` dyadic buckets.

    Positive and negative values never meet (-0.0 is negative here), so there may be two of one. Neighbours
    in the order of values meet at some exponent and stay together from there on: to be in `limit` buckets,
    all pairs but `limit - 1` must have met. No grid needs to be tried.
    """
    limit = max(limit, 2)
    found = np.full(groups, FINEST, np.int64)
    chosen = np.isfinite(values) & (np.bincount(codes, minlength=groups) > limit)[codes]
    values, codes = np.where(_is_minus_zero(values), -5e-324, values)[chosen], codes[chosen]
    order = np.argsort(values) if groups == 1 else np.lexsort((values, codes))
    values, codes = values[order], codes[order]
    meetings = _meetings(values[:-1], values[1:])
    within, codes = codes[1:] == codes[:-1], codes[1:]
    ranked = np.sort(codes[within] * 2 * _APART + (_APART - meetings[within]))  # late ones first
    starts = np.searchsorted(ranked, np.arange(groups + 1) * 2 * _APART)
    crowded = np.flatnonzero(np.diff(starts) >= limit)
    found[crowded] = np.maximum(_APART - ranked[starts[crowded] + limit - 1] % (2 * _APART), FINEST)
    return found


def _is_minus_zero(values: Doubles) -> NDArray[np.bool_]:
    return (values == 0) & np.signbit(values)


def _meetings(lower: Doubles, upper: Doubles) -> Numbers:
    """The least exponent at which two values are in one bucket."""
    parts, exponents = np.frexp(np.stack([np.abs(lower), np.abs(upper)]))
    whole = np.ldexp(parts, 53).astype(np.int64)
    exponents = np.where(whole == 0, _ABSENT, exponents).astype(np.int64)
    differing = np.frexp((whole[0] ^ whole[1]).astype(np.float64))[1].astype(np.int64)
    met = np.where(exponents[0] == exponents[1], exponents[0] - 53 + differing, exponents.max(axis=0))
    met = np.where(lower == upper, 2 * FINEST, met)
    return np.where((lower < 0) != (upper < 0), _APART, met)
