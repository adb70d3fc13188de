"""Skewness, kurtosis, covariance, correlation and regression: from central moments, which merge without cancellation.

Sums of powers would cancel digits where values are far from zero. The moments of a group are sums of powers of the
distances from the group's mean; states merge by the formulas of Pébay (Sandia report SAND2008-6212).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.table import AggregateFunction, Lower, Parameters
from transom.columns.types import is_number

Doubles = NDArray[np.float64]


def _mean(counts: Doubles, means: Doubles, codes: Codes, groups: int) -> Doubles:
    """The means of groups from the counts and means of their parts.

    Distances are measured from a mean of the group itself, so that a constant group has a spread of exactly 0.
    """
    origin, is_filled = np.zeros(groups), (counts > 0) & np.isfinite(means)
    origin[codes[is_filled]] = means[is_filled]
    total = np.maximum(_sums(codes, counts, groups), 1)
    return origin + _sums(codes, counts * (means - origin[codes]), groups) / total


def _sums(codes: Codes, numbers: Doubles, groups: int) -> Doubles:
    # Without rows, bincount returns integers.
    return np.bincount(codes, numbers, groups).astype(np.float64, copy=False)


def _columns(states: States) -> list[Doubles]:
    return [state.to_numpy(zero_copy_only=False).astype(np.float64) for state in states]


def _state(counts: Doubles, *others: Doubles) -> States:
    return [pa.array(counts.astype(np.int64)), *map(pa.array, others)]


@dataclass(frozen=True)
class CentralMoments:
    """Count, mean, and the sums of squared, cubed and fourth powers of distances from the mean."""

    traits: ClassVar = AccumulatorTraits()

    @property
    def label(self) -> str:
        return "central_moments"

    @property
    def id(self) -> str:
        return "central_moments"

    def types(self) -> list[pa.DataType]:
        return [pa.int64(), *[pa.float64()] * 4]

    def identity(self) -> list[object]:
        return [0, 0.0, 0.0, 0.0, 0.0]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = values.drop_null().cast(pa.float64(), safe=False).to_numpy()
        zeros = np.zeros(len(numbers))
        return self._merged([np.ones(len(numbers)), numbers, zeros, zeros, zeros], codes[valid], groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return self._merged(_columns(states), codes, groups)

    @staticmethod
    def _merged(parts: Sequence[Doubles], codes: Codes, groups: int) -> States:
        n, means, m2, m3, m4 = parts
        with np.errstate(invalid="ignore", over="ignore"):
            mean = _mean(n, means, codes, groups)
            d = means - mean[codes]
            third = m3 + 3 * d * m2 + n * d**3
            fourth = m4 + 4 * d * m3 + 6 * d**2 * m2 + n * d**4
            sums = [_sums(codes, each, groups) for each in (n, m2 + n * d**2, third, fourth)]
        return _state(sums[0], mean, *sums[1:])


@dataclass(frozen=True)
class Comoments:
    """Of pairs (y, x) of which neither is null: count, means, spreads, and the sum of products of distances."""

    traits: ClassVar = AccumulatorTraits()

    @property
    def label(self) -> str:
        return "comoments"

    @property
    def id(self) -> str:
        return "comoments"

    def types(self) -> list[pa.DataType]:
        return [pa.int64(), *[pa.float64()] * 5]

    def identity(self) -> list[object]:
        return [0, 0.0, 0.0, 0.0, 0.0, 0.0]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        fields = values.flatten()
        valid = np.logical_and(*(field.is_valid().to_numpy(zero_copy_only=False) for field in fields))
        y, x = (
            field.filter(pa.array(valid)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            for field in fields
        )
        zeros = np.zeros(len(y))
        return self._merged([np.ones(len(y)), y, x, zeros, zeros, zeros], codes[valid], groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return self._merged(_columns(states), codes, groups)

    @staticmethod
    def _merged(parts: Sequence[Doubles], codes: Codes, groups: int) -> States:
        n, y, x, yy, xx, xy = parts
        with np.errstate(invalid="ignore", over="ignore"):
            mean_y, mean_x = (_mean(n, means, codes, groups) for means in (y, x))
            dy, dx = y - mean_y[codes], x - mean_x[codes]
            spreads = (yy + n * dy**2, xx + n * dx**2, xy + n * dy * dx)
            sums = [_sums(codes, each, groups) for each in (n, *spreads)]
        return _state(sums[0], mean_y, mean_x, *sums[1:])


# --- reading results off states --------------------------------------------------------------------


def _lower(of: Callable[..., Doubles], exists: Callable[..., NDArray[np.bool_]]) -> Lower:
    """A function of the columns of a state; null where it does not exist, and where it divides by zero."""

    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        columns = _columns(states[0])
        with np.errstate(all="ignore"):
            return pa.array(of(*columns), mask=~exists(*columns))

    return lower


def _number_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    is_taken = kind is not None and is_number(kind)
    return pa.float64() if is_taken else f"needs a number, and this is {kind}; a cast can make it one"


def _pair_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not pa.types.is_struct(kind) or [field.name for field in kind] != ["y", "x"]:
        return "needs two numbers"
    for field in kind:
        if not is_number(field.type) and not pa.types.is_null(field.type):
            return f"needs two numbers, and one is {field.type}; a cast can make it one"
    return pa.float64()


def _of_one(name: str, lower: Lower) -> AggregateFunction:
    return AggregateFunction(
        name=name,
        result_type=_number_type,
        accumulators=lambda kind, parameters: (CentralMoments(),),
        lower=lower,
    )


def _of_pairs(name: str, lower: Lower) -> AggregateFunction:
    return AggregateFunction(
        name=name,
        packs=("y", "x"),
        result_type=_pair_type,
        accumulators=lambda kind, parameters: (Comoments(),),
        lower=lower,
    )


MOMENT_FUNCTIONS = (
    _of_one(
        "skewness",
        _lower(
            lambda n, mean, m2, m3, m4: np.sqrt(n) * m3 / np.sqrt(m2**3),
            lambda n, mean, m2, m3, m4: (n > 0) & (m2 != 0),
        ),
    ),
    _of_one(
        "kurtosis",
        _lower(
            lambda n, mean, m2, m3, m4: n * m4 / (m2 * m2) - 3.0,
            lambda n, mean, m2, m3, m4: (n > 0) & (m2 != 0),
        ),
    ),
    _of_pairs("covar_pop", _lower(lambda n, y, x, yy, xx, xy: xy / n, lambda n, *rest: n > 0)),
    _of_pairs("covar_samp", _lower(lambda n, y, x, yy, xx, xy: xy / (n - 1), lambda n, *rest: n > 1)),
    _of_pairs(
        "corr",
        _lower(
            lambda n, y, x, yy, xx, xy: xy / (np.sqrt(yy) * np.sqrt(xx)),
            lambda n, y, x, yy, xx, xy: (n > 1) & (yy != 0) & (xx != 0),
        ),
    ),
    _of_pairs(
        "regr_slope",
        _lower(lambda n, y, x, yy, xx, xy: xy / xx, lambda n, y, x, yy, xx, xy: (n > 0) & (xx != 0)),
    ),
    _of_pairs(
        "regr_intercept",
        _lower(lambda n, y, x, yy, xx, xy: y - xy / xx * x, lambda n, y, x, yy, xx, xy: (n > 0) & (xx != 0)),
    ),
    _of_pairs(
        "regr_r2",
        _lower(
            lambda n, y, x, yy, xx, xy: np.where(yy == 0, 1.0, (xy / (np.sqrt(yy) * np.sqrt(xx))) ** 2),
            lambda n, y, x, yy, xx, xy: (n > 0) & (xx != 0),
        ),
    ),
    _of_pairs("regr_sxx", _lower(lambda n, y, x, yy, xx, xy: xx, lambda n, *rest: n > 0)),
    _of_pairs("regr_syy", _lower(lambda n, y, x, yy, xx, xy: yy, lambda n, *rest: n > 0)),
    _of_pairs("regr_sxy", _lower(lambda n, y, x, yy, xx, xy: xy, lambda n, *rest: n > 0)),
)
