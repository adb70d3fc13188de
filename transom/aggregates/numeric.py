"""Counts, sums and extremes of numbers as plain NumPy arrays.

A numeric form is an array of values that a ufunc combines, and an array with the number of values in each cell:
a cell without values is null. Cells are added up along any axis of an array at memory speed. Nothing is ever
subtracted: a huge float in one cell must not change a small sum in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import (
    Accumulator,
    Codes,
    Count,
    CountRows,
    Extreme,
    States,
    Sum,
    lift_where,
)
from transom.columns.arrays import plain_column

Values = NDArray[Any]
Runs = tuple[Codes, Codes]  # starts and stops, half-open
_PLAIN_TYPES = frozenset((pa.int64(), pa.float64()))


@dataclass(frozen=True)
class NumericForm:
    """How an accumulator's state is kept in arrays: `ufunc` over `dtype`, from `identity`."""

    ufunc: np.ufunc
    dtype: np.dtype
    identity: object
    type: pa.DataType  # of the state's column
    counts: bool = False  # a state that is never null: a count

    def values(self, array: pa.Array) -> tuple[Values, NDArray[np.bool_] | None]:
        """A column as numbers with the identity in place of nulls; and where it is not null, None if everywhere."""
        if array.type in _PLAIN_TYPES and array.type == self.type and not array.null_count:
            return array.to_numpy(), None
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        elif pa.types.is_temporal(array.type):
            array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
        if valid is not None:
            array = array.fill_null(pa.scalar(0, array.type))
        numbers = array.to_numpy(zero_copy_only=False).astype(self.dtype, copy=valid is not None)
        if valid is not None:
            numbers[~valid] = self.identity
        return numbers, valid

    def gathered(self, numbers: Values, codes: Codes, cells: int) -> Values:
        """The numbers of each cell, combined."""
        if self.ufunc is np.add and self.dtype == np.float64:
            return np.bincount(codes, numbers, cells).astype(np.float64, copy=False)
        combined = np.full(cells, self.identity, self.dtype)
        with np.errstate(invalid="ignore"):  # NaN is a number like others here
            self.ufunc.at(combined, codes, numbers)
        return combined

    def column(self, numbers: Values, present: NDArray[np.bool_] | None) -> pa.Array:
        """Numbers as the column of a state; null where no value is present."""
        mask = None if present is None or present.all() else ~present
        plain = plain_column(numbers) if mask is None else pa.array(numbers, mask=mask)
        if plain.type == self.type:
            return plain
        if pa.types.is_boolean(self.type):
            return plain.cast(self.type)
        if pa.types.is_temporal(self.type):
            return plain.view(self.type)
        return plain.cast(self.type, safe=False)


def numeric_form(accumulator: Accumulator) -> NumericForm | None:
    """The numeric form of an accumulator, if it has one."""
    return _form(accumulator) if isinstance(accumulator, CountRows | Count | Sum | Extreme) else None


@lru_cache(maxsize=1024)
def _form(accumulator: CountRows | Count | Sum | Extreme) -> NumericForm | None:
    match accumulator:
        case CountRows() | Count():
            return NumericForm(np.add, np.dtype(np.int64), 0, pa.int64(), counts=True)
        case Sum(input) if not pa.types.is_decimal(input):
            type = accumulator.types()[0]
            return NumericForm(np.add, np.dtype(type.to_pandas_dtype()), 0, type)
        case Extreme(input, function):
            return _extreme(input, function)
    return None


def _extreme(input: pa.DataType, function: str) -> NumericForm | None:
    if pa.types.is_boolean(input):
        dtype: np.dtype = np.dtype(np.int8)
    elif pa.types.is_temporal(input):
        dtype = np.dtype(np.int64 if input.bit_width == 64 else np.int32)
    elif pa.types.is_integer(input) or input in (pa.float32(), pa.float64()):
        dtype = np.dtype(input.to_pandas_dtype())
    else:
        return None
    is_max = function == "max"
    if dtype.kind == "f":
        # NaN is above every number: `maximum` returns it, `fmin` ignores it.
        return NumericForm(np.maximum if is_max else np.fmin, dtype, -np.inf if is_max else np.nan, input)
    limits = np.iinfo(dtype)
    return NumericForm(
        np.maximum if is_max else np.minimum, dtype, limits.min if is_max else limits.max, input
    )


def combine_runs(accumulator: Accumulator, states: States, runs: Runs) -> States:
    """Combine the states of each run of rows; no run is empty.

    It is fastest when runs are sorted by their starts.
    """
    form = numeric_form(accumulator)
    if form is None:
        starts, stops = runs
        rows, codes = expand_runs(starts, stops)
        return accumulator.combine([state.take(pa.array(rows)) for state in states], codes, len(starts))
    numbers, valid = form.values(states[0])
    present = None
    if valid is not None:
        present = reduce_runs(np.add, valid.astype(np.int64), runs) > 0
    return [form.column(reduce_runs(form.ufunc, numbers, runs), present)]


def reduce_runs(ufunc: np.ufunc, numbers: Values, runs: Runs) -> Values:
    """A ufunc over runs of an array.

    >>> reduce_runs(np.add, np.arange(5), (np.array([0, 1]), np.array([2, 5]))).tolist()
    [1, 10]
    """
    starts, stops = runs
    if not len(starts):
        return numbers[:0]
    # Every second result is that of the rows between one run and the next.
    ends = np.empty(2 * len(starts), np.int64)
    ends[0::2], ends[1::2] = starts, stops
    return ufunc.reduceat(np.append(numbers, numbers[-1:]), ends)[::2]


def expand_runs(starts: Codes, stops: Codes) -> tuple[Codes, Codes]:
    """Every number of some runs, and the run of each.

    >>> [numbers.tolist() for numbers in expand_runs(np.array([3, 8]), np.array([5, 9]))]
    [[3, 4, 8], [0, 0, 1]]
    """
    lengths = np.maximum(stops - starts, 0)
    which = np.repeat(np.arange(len(starts)), lengths)
    offsets = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return starts[which] + offsets, which


def is_numeric(accumulators: Sequence[Accumulator]) -> bool:
    """Whether all have a numeric form."""
    return all(numeric_form(accumulator) is not None for accumulator in accumulators)


def lift_where_numeric(
    accumulator: Accumulator, values: pa.Array, shown: NDArray[np.bool_] | None, codes: Codes, groups: int
) -> States:
    """`lift` over the tuples that pass the FILTER of an aggregate, on arrays where it has a numeric form."""
    form = numeric_form(accumulator)
    if form is None:
        return lift_where(accumulator, values, shown, codes, groups)
    if isinstance(accumulator, CountRows | Count):
        present = None if isinstance(accumulator, CountRows) or not values.null_count else _valid(values)
        numbers = None
    else:
        numbers, present = contributions(form, accumulator, values)
    if shown is not None:
        present = shown if present is None else shown & present
    if present is not None:
        codes = codes[present]
    counts = np.bincount(codes, minlength=groups)
    if numbers is None:
        return [pa.array(counts)]
    if present is not None:
        numbers = numbers[present]
    return [form.column(form.gathered(numbers, codes, groups), counts > 0)]


def _valid(values: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return mask


def contributions(
    form: NumericForm, accumulator: Accumulator, values: pa.Array
) -> tuple[Values, NDArray[np.bool_] | None]:
    """The numbers that tuples contribute, and which tuples contribute one if not all do."""
    if isinstance(accumulator, CountRows):
        return np.ones(len(values), np.int64), None
    if isinstance(accumulator, Count):
        valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
        return (np.ones(len(values), np.int64) if valid is None else valid.astype(np.int64)), None
    if isinstance(accumulator, Sum):
        values = values.cast(form.type, safe=False) if values.type != form.type else values
    elif pa.types.is_null(values.type):
        values = pc.cast(values, form.type)
    return form.values(values)
