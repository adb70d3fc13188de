"""The states of values that occur several times, without repeating them: a pair of a join repeats both of its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import Accumulator, Codes, Count, CountRows, Extreme, States, Sum
from transom.aggregates.extreme_rows import ExtremeValue
from transom.aggregates.multisets import Multiset
from transom.columns.groups import normalized

Repeats = NDArray[np.int64]


def lift_repeated(
    accumulator: Accumulator, values: pa.Array, times: Repeats, codes: Codes, groups: int
) -> States:
    """The states of groups in which each value occurs so many times, at least once.

    >>> lift_repeated(Sum(pa.int64()), pa.array([5, 1]), np.array([3, 2]), np.array([0, 0]), 1)[0].to_pylist()
    [17]
    """
    match accumulator:
        case CountRows():
            return accumulator.combine([pa.array(times)], codes, groups)
        case Count():
            is_valid = values.is_valid().to_numpy(zero_copy_only=False)
            return accumulator.combine([pa.array(np.where(is_valid, times, 0))], codes, groups)
        case Sum():
            return accumulator.combine([_multiplied(accumulator, values, times)], codes, groups)
        case Extreme() | ExtremeValue():
            return accumulator.lift(values, codes, groups)
        case Multiset():
            is_valid = values.is_valid().to_numpy(zero_copy_only=False)
            single = [normalized(values.drop_null()), pa.array(times[is_valid])]
            offsets = pa.array(np.arange(len(single[0]) + 1), pa.int32())
            lists = [pa.ListArray.from_arrays(offsets, column) for column in single]
            return accumulator.combine(lists, codes[is_valid], groups)
    rows = np.repeat(np.arange(len(times)), times)
    return accumulator.lift(values.take(pa.array(rows)), codes[rows], groups)


def _multiplied(accumulator: Sum, values: pa.Array, times: Repeats) -> pa.Array:
    """Values times whole numbers, as states of sums; integers wrap, as their sums do."""
    kind = accumulator.types()[0]
    if not pa.types.is_decimal(kind):
        return pc.multiply(values.cast(kind, safe=False), pa.array(times).cast(kind, safe=False))
    wide = values.cast(pa.decimal256(38, kind.scale))  # the product has 58 digits, and 76 fit
    return pc.multiply(wide, pa.array(times).cast(pa.decimal256(19, 0))).cast(kind)
