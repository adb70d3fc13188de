"""The algebra of aggregation: `identity`, `lift`, `combine` and, per SQL function, `lower`.

An accumulator works on all groups at once. Its partial state is a few Arrow columns with one row for each
group. `lift` computes the rows from the values of tuples, `combine` merges rows of the same group, and the
identity is the state of no tuples. SQL functions with equal accumulators share them: AVG reads the states of
SUM and COUNT.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.columns.type_ids import type_id

Codes = NDArray[np.int64]
States = list[pa.Array]


class ExactStore(Enum):
    """How an on-demand store answers an accumulator exactly, for a window of any length."""

    COUNT = "the number of stored tuples"
    TOTAL = "the difference of two running totals in 64 bits"
    LEAST = "the least value, among those that no later value equals or beats"
    GREATEST = "the greatest value, among those that no later value equals or beats"
    STATES = "the combined states of blocks of tuples"


@dataclass(frozen=True)
class AccumulatorTraits:
    """What other packages read about an accumulator; the defaults are right for every accumulator."""

    store: ExactStore = ExactStore.STATES
    reads_values: bool = True  # False: it counts rows, and takes no argument
    # A state takes the memory of many values, and merging one the time of many updates.
    is_sketch: bool = False
    growth: str | None = None  # what a state grows with, and what is bounded instead; None: it is bounded


class Accumulator(Protocol):
    """A kind of partial aggregate; implementations are frozen and compare by value."""

    @property
    def traits(self) -> AccumulatorTraits:
        """Which structures can store it, and what its states cost."""
        ...

    @property
    def id(self) -> str:
        """The id in checkpoints: equal for equal accumulators, and independent of Python names."""
        ...

    @property
    def label(self) -> str:
        """What EXPLAIN calls it, before the argument in parentheses."""
        ...

    def types(self) -> list[pa.DataType]:
        """The types of the state's columns."""
        ...

    def identity(self) -> list[object]:
        """The state of no tuples, as one row."""
        ...

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        """The states of `groups` groups, from the value and the group of each tuple."""
        ...

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        """The states of `groups` groups, from rows of states and each row's group."""
        ...


def reduce_groups(values: pa.Array, codes: Codes, groups: int, function: str) -> pa.Array:
    """An aggregation by group, with results in the order of the codes; null where a group has no rows.

    It uses one thread, so that floats are added in the order of rows and a replayed batch gives the same bits.
    """
    if (function, values.type) in REDUCED_BY_NUMPY:
        return _reduce_by_numpy(values, codes, groups, function)
    return reduce_by_arrow(values, codes, groups, function)


def reduce_by_arrow(values: pa.Array, codes: Codes, groups: int, function: str) -> pa.Array:
    """The aggregation by group with Arrow, which has a function for every type."""
    table = pa.table({"code": codes, "value": values})
    grouped = table.group_by("code", use_threads=False).aggregate([("value", function)])
    slots = np.full(groups, -1, np.int64)
    slots[grouped["code"].to_numpy()] = np.arange(grouped.num_rows)
    return grouped[f"value_{function}"].combine_chunks().take(pa.array(slots, mask=slots < 0))


# Starting an aggregation of Arrow's takes as long as adding ten thousand numbers.
REDUCED_BY_NUMPY = {
    ("sum", pa.float64()),
    ("sum", pa.int64()),
    *((function, kind) for function in ("min", "max") for kind in (pa.int32(), pa.int64())),
}


def _reduce_by_numpy(values: pa.Array, codes: Codes, groups: int, function: str) -> pa.Array:
    """`reduce_groups` for integers and sums of doubles; sums of integers wrap around, as Arrow's do."""
    if values.null_count:
        codes, values = codes[values.is_valid().to_numpy(zero_copy_only=False)], values.drop_null()
    numbers = values.to_numpy()
    is_empty = np.bincount(codes, minlength=groups) == 0
    if function == "sum" and pa.types.is_floating(values.type):
        reduced = np.bincount(codes, numbers, groups)
    elif function == "sum":
        reduced = np.zeros(groups, np.int64)
        np.add.at(reduced, codes, numbers)
    else:
        limits, is_max = np.iinfo(numbers.dtype), function == "max"
        reduced = np.full(groups, limits.min if is_max else limits.max, numbers.dtype)
        (np.maximum if is_max else np.minimum).at(reduced, codes, numbers)
    return pa.array(reduced, values.type, mask=is_empty if is_empty.any() else None)


@dataclass(frozen=True)
class CountRows:
    """How many tuples there are, null or not."""

    traits: ClassVar = AccumulatorTraits(ExactStore.COUNT, reads_values=False)

    @property
    def label(self) -> str:
        return "count"

    @property
    def id(self) -> str:
        return "count(*)"

    def types(self) -> list[pa.DataType]:
        return [pa.int64()]

    def identity(self) -> list[object]:
        return [0]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        return [pa.array(np.bincount(codes, minlength=groups).astype(np.int64))]

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return [pc.fill_null(reduce_groups(states[0], codes, groups, "sum"), 0)]


@dataclass(frozen=True)
class Count:
    """How many values are not null."""

    traits: ClassVar = AccumulatorTraits(ExactStore.COUNT)

    @property
    def label(self) -> str:
        return "count"

    @property
    def id(self) -> str:
        return "count"

    def types(self) -> list[pa.DataType]:
        return [pa.int64()]

    def identity(self) -> list[object]:
        return [0]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return [pa.array(np.bincount(codes[valid], minlength=groups).astype(np.int64))]

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return [pc.fill_null(reduce_groups(states[0], codes, groups, "sum"), 0)]


@dataclass(frozen=True)
class Sum:
    """The sum of the values that are not null; null when there are none.

    Integers add up in 64 bits and wrap as in Spark, floats add up as doubles. Decimals add up exactly, in 76
    digits where 38 may not be enough; `lower` checks whether the sum fits.
    """

    input: pa.DataType

    @property
    def traits(self) -> AccumulatorTraits:
        # A difference of rounded sums is not the sum in between, and decimals do not fit into 64 bits.
        is_integer = pa.types.is_integer(self.input)
        return AccumulatorTraits(ExactStore.TOTAL if is_integer else ExactStore.STATES)

    @property
    def label(self) -> str:
        return "sum"

    @property
    def id(self) -> str:
        return f"sum({type_id(self.input)})"

    def types(self) -> list[pa.DataType]:
        if pa.types.is_decimal(self.input):
            scale = self.input.scale
            return [pa.decimal128(38, scale) if self.input.precision <= 28 else pa.decimal256(76, scale)]
        return [pa.float64() if pa.types.is_floating(self.input) else pa.int64()]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        return self.combine([values.cast(self.types()[0], safe=False)], codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return [reduce_groups(states[0], codes, groups, "sum").cast(self.types()[0])]


@dataclass(frozen=True)
class Extreme:
    """The least or the greatest value that is not null; NaN is above every number."""

    input: pa.DataType
    function: str  # "min" or "max"

    @property
    def traits(self) -> AccumulatorTraits:
        return AccumulatorTraits(ExactStore.LEAST if self.function == "min" else ExactStore.GREATEST)

    @property
    def label(self) -> str:
        return self.function

    @property
    def id(self) -> str:
        return f"{self.function}({type_id(self.input)})"

    def types(self) -> list[pa.DataType]:
        return [self.input]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        return self.combine([values], codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        values = states[0]
        if pa.types.is_null(values.type):
            return [pa.nulls(groups)]
        extremes = reduce_groups(values, codes, groups, self.function)
        if self.function == "max" and pa.types.is_floating(values.type):
            # Arrow's max ignores NaN; its min already prefers any number to NaN.
            has_nan = reduce_groups(pc.is_nan(values), codes, groups, "max")
            nan = pa.scalar(float("nan"), values.type)
            extremes = pc.if_else(pc.fill_null(has_nan, False), nan, extremes)
        return [extremes]


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations, and sum of the values that are not null.

    States merge by Chan's formula, which does not cancel digits as sums of squares do. The sum serves SUM and
    AVG of the same values; the mean would not do, because it is finite where a sum overflows.
    """

    traits: ClassVar = AccumulatorTraits()

    @property
    def label(self) -> str:
        return "moments"

    @property
    def id(self) -> str:
        return "moments"

    def types(self) -> list[pa.DataType]:
        return [pa.int64(), pa.float64(), pa.float64(), pa.float64()]

    def identity(self) -> list[object]:
        return [0, 0.0, 0.0, None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers = values.drop_null().cast(pa.float64(), safe=False).to_numpy()
        ones, zeros = np.ones(len(numbers), np.int64), np.zeros(len(numbers))
        return self._merged(ones, numbers, zeros, numbers, codes[valid], groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        filled = [*states[:3], states[3].fill_null(0.0)]
        counts, means, squares, sums = (state.to_numpy(zero_copy_only=False) for state in filled)
        return self._merged(counts, means, squares, sums, codes, groups)

    @staticmethod
    def _merged(
        counts: NDArray[np.int64],
        means: NDArray[np.float64],
        squares: NDArray[np.float64],
        sums: NDArray[np.float64],
        codes: Codes,
        groups: int,
    ) -> States:
        total = np.bincount(codes, counts, groups)
        origin, filled = np.zeros(groups), (counts > 0) & np.isfinite(means)
        origin[codes[filled]] = means[
            filled
        ]  # a mean of the group itself, so that a constant group has a spread of exactly 0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            mean = origin + np.bincount(codes, counts * (means - origin[codes]), groups) / np.maximum(
                total, 1
            )
            spread = np.bincount(codes, squares + counts * (means - mean[codes]) ** 2, groups)
            summed = np.bincount(codes, sums, groups)
        # Without rows, bincount returns integers.
        return [
            pa.array(total.astype(np.int64)),
            pa.array(mean),
            pa.array(spread.astype(np.float64)),
            pa.array(summed.astype(np.float64), mask=total == 0),
        ]


def columns_in_moments(accumulator: Accumulator) -> tuple[int, ...] | None:
    """The columns of `Moments` that are the state of another accumulator over the same values; None: none."""
    match accumulator:
        case Count():
            return (0,)
        case Sum(input) if pa.types.is_floating(input):
            return (3,)
    return None


def lift_where(
    accumulator: Accumulator, values: pa.Array, mask: NDArray[np.bool_] | None, codes: Codes, groups: int
) -> States:
    """`lift` over the tuples that pass the FILTER of an aggregate."""
    if mask is None:
        return accumulator.lift(values, codes, groups)
    return accumulator.lift(values.filter(pa.array(mask)), codes[mask], groups)
