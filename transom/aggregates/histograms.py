"""Histograms with bins that follow the values: histogram_numeric.

A Streaming Parallel Decision Tree Algorithm (Ben-Haim and Tom-Tov, 2010), section 2.1: a histogram is a list of bins,
each with the mean and the number of its values. When there are too many, the bins that are closest become one. So the
number and the mean of all values are exact, and a bin holds values that are next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.multisets import lists_of
from transom.aggregates.table import AggregateFunction, Parameter, Parameters
from transom.columns.types import is_number

_Doubles = NDArray[np.float64]
MOST_BINS = 100_000
_EXACT = Context(prec=160, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class Histogram:
    """The bins of the finite values in their order: the mean and the number of values of each."""

    traits: ClassVar = AccumulatorTraits(is_sketch=True)
    bins: int

    @property
    def label(self) -> str:
        return "histogram"

    @property
    def id(self) -> str:
        return f"histogram(bins={self.bins})"

    def types(self) -> list[pa.DataType]:
        return [pa.list_(pa.float64()), pa.list_(pa.float64())]

    def identity(self) -> list[object]:
        return [None, None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers, codes = _doubles(values.drop_null()), codes[valid]
        is_finite = np.isfinite(numbers)
        numbers, codes = numbers[is_finite], codes[is_finite]
        return self._merged(numbers, np.ones(len(numbers)), codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        parents = pc.list_parent_indices(states[0]).to_numpy()
        means, counts = (pc.list_flatten(state).to_numpy(zero_copy_only=False) for state in states)
        return self._merged(means, counts, codes[parents], groups)

    def _merged(self, means: _Doubles, counts: _Doubles, codes: Codes, groups: int) -> States:
        order = np.lexsort((means, codes))
        means, counts, codes = means[order] + 0.0, counts[order], codes[order]
        is_new = np.ones(len(codes), bool)
        is_new[1:] = (codes[1:] != codes[:-1]) | (means[1:] != means[:-1])
        firsts = np.flatnonzero(is_new)
        if len(firsts):
            means, counts, codes = means[firsts], np.add.reduceat(counts, firsts), codes[firsts]
        lengths = np.bincount(codes, minlength=groups)
        if len(codes) and lengths.max() > self.bins:
            bounds = np.r_[0, np.cumsum(lengths)].tolist()
            parts = [
                _closest_merged(means[start:stop], counts[start:stop], self.bins)
                for start, stop in pairwise(bounds)
            ]
            codes = np.repeat(np.arange(groups), [len(part[0]) for part in parts])
            means, counts = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        return lists_of([pa.array(means), pa.array(counts)], codes, groups)


def _closest_merged(means: _Doubles, counts: _Doubles, most: int) -> tuple[_Doubles, _Doubles]:
    """At most `most` bins: each round merges the closest neighbours, for half of the surplus."""
    while len(means) > most:
        surplus = len(means) - most
        gaps = np.diff(means)
        is_merged = np.zeros(len(gaps), bool)
        is_merged[np.argsort(gaps, kind="stable")[: (surplus + 1) // 2]] = True
        firsts = np.flatnonzero(np.r_[True, ~is_merged])
        totals = np.add.reduceat(counts, firsts)
        shares = counts / np.repeat(totals, np.diff(np.r_[firsts, len(means)]))  # a sum of all could overflow
        means, counts = np.add.reduceat(means * shares, firsts), totals
    return means, counts


def _doubles(values: pa.Array) -> _Doubles:
    numbers: _Doubles = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _histogram(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    """The bins, each as a struct; their means in the type of the values, as Spark converts them."""
    lists, counts = states[0]
    means = _of_kind(pc.list_flatten(lists), type.value_type.field(0).type)
    bins = pa.StructArray.from_arrays([means, pc.list_flatten(counts)], names=["x", "y"])
    codes = pc.list_parent_indices(lists).to_numpy()
    return lists_of([bins], codes, len(lists))[0].cast(type)


def _of_kind(means: pa.Array, kind: pa.DataType) -> pa.Array:
    """Doubles in the type of the values: integers are cut off, decimals rounded, and both stay in their range."""
    if pa.types.is_floating(kind):
        return means.cast(kind)
    if pa.types.is_decimal(kind):
        unit, most = Decimal(1).scaleb(-kind.scale), Decimal(10**kind.precision - 1)
        most = _EXACT.scaleb(most, -kind.scale)
        exact = (Decimal(repr(value)).quantize(unit, context=_EXACT) for value in means.to_pylist())
        return pa.array([max(most.copy_negate(), min(value, most)) for value in exact], kind)
    least, most_whole = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    return pa.array([max(least, min(int(value), most_whole)) for value in means.to_pylist()], kind)


def _histogram_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not is_number(kind):
        return f"needs a number, and this is {kind}; a cast can make it one"
    return pa.list_(pa.struct([("x", kind), ("y", pa.float64())]))


def _read_bins(constant: Any) -> int | None:
    return constant if type(constant) is int and 2 <= constant <= MOST_BINS else None


HISTOGRAM_FUNCTIONS = (
    AggregateFunction(
        name="histogram_numeric",
        parameters=(Parameter(f"the number of bins is a whole constant, 2 to {MOST_BINS:,}", _read_bins),),
        result_type=_histogram_type,
        accumulators=lambda kind, parameters: (Histogram(parameters[0]),),
        lower=_histogram,
    ),
)
