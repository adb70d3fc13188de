"""An index of the intervals in two columns: which of them can hold a value.

    intervals     [--a--)   [---b---)     sorted by their starts, in classes of similar lengths
                     [--c--)    [d)
    value                   ^             candidates: from the first that reaches it to the last that starts before it

Within a class, lengths differ by a factor of two at most, so that few of the intervals between the two places do not
hold the value. The index finds candidates: it counts starts and ends as parts of an interval, and its caller compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.columns.arrays import Ints

Numbers = tuple[NDArray, NDArray[np.bool_]]  # values, and where they are not null


def is_ordered_by_numbers(kind: pa.DataType) -> bool:
    """Whether values are ordered as numbers of 64 bits are."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date32(kind)
    )


def are_ordered_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether numbers made of two columns are compared as the values are."""
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.unit, one.tz is None) == (other.unit, other.tz is None)
    are_numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))
    return are_numbers or (is_ordered_by_numbers(one) and one == other)


def ordered_numbers(column: pa.ChunkedArray) -> Numbers:
    """The values of a column as numbers; NaN is above all others, as in SQL."""
    array = column.combine_chunks()
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(array.type):
        numbers = pc.fill_null(array, 0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(numbers), np.inf, numbers), is_valid
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), is_valid


@dataclass(frozen=True)
class IntervalMatches:
    """For each class of intervals, the range of its places that may hold each value."""

    values: Ints  # the places of the values that are not null
    classes: list[
        tuple[Ints, Ints, Ints]
    ]  # rows of intervals by start, and the first and last place for each value

    @property
    def count(self) -> int:
        """How many candidates there are."""
        return sum(int((stops - starts).sum()) for _, starts, stops in self.classes)

    def pairs(self) -> tuple[Ints, Ints]:
        """The places of values, and the rows of the intervals that may hold them."""
        mine, theirs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for rows, starts, stops in self.classes:
            counts = stops - starts
            mine.append(np.repeat(self.values, counts))
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            theirs.append(rows[np.repeat(starts, counts) + within])
        return np.concatenate(mine), np.concatenate(theirs)


class IntervalIndex:
    """Intervals from `lows` to `highs`; those with a null hold nothing."""

    def __init__(self, lows: Numbers, highs: Numbers):
        rows = np.flatnonzero(lows[1] & highs[1])
        low, high = lows[0][rows], highs[0][rows]
        with np.errstate(invalid="ignore", over="ignore"):
            lengths = np.nan_to_num(np.maximum(high.astype(float) - low.astype(float), 0.0))
        sizes = np.frexp(lengths)[1]
        order = np.lexsort((low, sizes))
        rows, low, high, sizes = rows[order], low[order], high[order], sizes[order]
        edges = np.flatnonzero(np.r_[True, sizes[1:] != sizes[:-1], True]) if len(rows) else np.zeros(1, int)
        self._classes = [
            (rows[start:stop], low[start:stop], np.maximum.accumulate(high[start:stop]))
            for start, stop in pairwise(edges.tolist())
        ]

    def matches(self, upper: Numbers, lower: Numbers) -> IntervalMatches:
        """The intervals that start at or before `upper`, and end at or after `lower`."""
        values = np.flatnonzero(upper[1] & lower[1])
        above, below = upper[0][values], lower[0][values]
        classes = []
        for rows, low, reach in self._classes:
            stops = np.searchsorted(low, above, "right")
            classes.append((rows, np.minimum(np.searchsorted(reach, below, "left"), stops), stops))
        return IntervalMatches(values, classes)
