"""Exact aggregates over the values themselves: distinct values, percentiles, the median and the mode.

All of them read one state: the values of a group, with how often each occurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.table import (
    AggregateFunction,
    Lower,
    Parameter,
    Parameters,
    ResultType,
)
from transom.columns.groups import normalized
from transom.columns.sort_order import sort_codes
from transom.columns.type_ids import type_id
from transom.columns.types import is_number

GROWTH = "grows with the distinct values; approx_count_distinct and approx_percentile are bounded"


@dataclass(frozen=True)
class Multiset:
    """The values that are not null in their order, each once, and how often each occurs."""

    input: pa.DataType

    @property
    def traits(self) -> AccumulatorTraits:
        return AccumulatorTraits(growth=GROWTH)

    @property
    def label(self) -> str:
        return "multiset"

    @property
    def id(self) -> str:
        return f"multiset({type_id(self.input)})"

    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.input), pa.list_(pa.int64())]

    def identity(self) -> list[object]:
        return [None, None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        present = normalized(values.drop_null())
        return self._merged(present, np.ones(len(present), np.int64), codes[valid], groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        parents = pc.list_parent_indices(states[0]).to_numpy()
        counts = pc.list_flatten(states[1]).to_numpy()
        return self._merged(pc.list_flatten(states[0]), counts, codes[parents], groups)

    @staticmethod
    def _merged(values: pa.Array, counts: NDArray[np.int64], codes: Codes, groups: int) -> States:
        ranks = sort_codes(values)
        order = np.lexsort((ranks, codes))
        ranks, codes = ranks[order], codes[order]
        is_new = np.ones(len(codes), bool)
        is_new[1:] = (codes[1:] != codes[:-1]) | (ranks[1:] != ranks[:-1])
        firsts = np.flatnonzero(is_new)
        totals = np.add.reduceat(counts[order], firsts) if len(firsts) else np.zeros(0, np.int64)
        distinct = values.take(pa.array(order[firsts]))
        return lists_of([distinct, pa.array(totals.astype(np.int64))], codes[firsts], groups)


def lists_of(columns: Sequence[pa.Array], codes: Codes, groups: int) -> States:
    """Columns whose rows are sorted by group, as lists; null for a group without rows."""
    lengths = np.bincount(codes, minlength=groups)
    offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32(), mask=np.r_[lengths == 0, False])
    return [pa.ListArray.from_arrays(offsets, column) for column in columns]


# --- reading results off states --------------------------------------------------------------------


def _over_distinct(function: AggregateFunction) -> Lower:
    """The function over each value once."""

    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        lists = states[0][0]
        values, codes = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
        accumulators = function.accumulators(values.type, parameters)
        lifted = [accumulator.lift(values, codes, len(lists)) for accumulator in accumulators]
        return function.lower(lifted, type, parameters)

    return lower


def _counted_lists(states: States) -> Iterator[tuple[pa.Array, NDArray[np.int64]] | None]:
    """The values of each group and how often each occurs; None for a group without values."""
    lists, counts = states
    values, numbers = pc.list_flatten(lists), pc.list_flatten(counts).to_numpy()
    bounds = np.r_[0, np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy())].tolist()
    for start, stop in pairwise(bounds):
        yield (values.slice(start, stop - start), numbers[start:stop]) if start < stop else None


def _percentile(is_discrete: bool) -> Lower:
    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        wanted, is_descending = parameters
        fractions = wanted if isinstance(wanted, tuple) else (wanted,)
        found: list[Any] = []
        for counted in _counted_lists(states[0]):
            if counted is None:
                found.append(None)
                continue
            numbers = counted[0].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            counts = counted[1]
            if is_descending:
                numbers, counts = numbers[::-1], counts[::-1]
            upto = np.cumsum(counts)
            at = [_at_fraction(numbers, upto, fraction, is_discrete) for fraction in fractions]
            found.append(at if isinstance(wanted, tuple) else at[0])
        return pa.array(found, type, from_pandas=False)

    return lower


def _at_fraction(
    numbers: NDArray[np.float64], upto: NDArray[np.int64], fraction: float, is_discrete: bool
) -> float:
    """The value at a fraction of the rows, by Spark's rules; `upto` counts the rows up to each value."""
    if is_discrete:  # the first value up to which at least this fraction of the rows lies
        return float(numbers[np.searchsorted(upto, fraction * upto[-1])])
    position = fraction * (upto[-1] - 1)
    low, high = np.floor(position), np.ceil(position)
    below, above = (int(np.searchsorted(upto, end + 1)) for end in (low, high))
    if below == above:
        return float(numbers[below])
    return float((high - position) * numbers[below] + (position - low) * numbers[above])


def _median(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    return _percentile(is_discrete=False)(states, type, (0.5, False))


def _mode(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    """The most frequent value; of several, the first in their order."""
    is_descending = parameters[1]
    chosen: list[int | None] = []
    start = 0
    for counted in _counted_lists(states[0]):
        if counted is None:
            chosen.append(None)
            continue
        counts = counted[1]
        place = len(counts) - 1 - int(np.argmax(counts[::-1])) if is_descending else int(np.argmax(counts))
        chosen.append(start + place)
        start += len(counts)
    return pc.list_flatten(states[0][0]).take(pa.array(chosen, pa.int64())).cast(type)


# --- types and parameters --------------------------------------------------------------------------


def _percentile_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not is_number(kind):
        return f"needs a number, and this is {kind}; a cast can make it one"
    is_list = bool(parameters) and isinstance(parameters[0], tuple)
    return pa.list_(pa.float64()) if is_list else pa.float64()


def _mode_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    return "can't compare maps" if kind is None or pa.types.is_map(kind) else kind


def _without_maps(result_type: ResultType) -> ResultType:
    def distinct_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
        return "can't compare maps" if pa.types.is_map(kind) else result_type(kind, parameters)

    return distinct_type


def read_fractions(constant: Any) -> float | tuple[float, ...] | None:
    """A fraction between 0 and 1, or several."""
    values = constant if isinstance(constant, tuple) else (constant,)
    if not values or not all(not isinstance(value, bool | str) and 0 <= value <= 1 for value in values):
        return None
    fractions = tuple(map(float, values))
    return fractions if isinstance(constant, tuple) else fractions[0]


def read_flag(constant: Any) -> bool | None:
    """true or false."""
    return constant if isinstance(constant, bool) else None


FRACTIONS = Parameter("a percentage is a constant between 0 and 1, or an array of such", read_fractions)
DESCENDING = Parameter(
    "descending is true or false", read_flag, False, is_written=False, setting="descending"
)
DETERMINISTIC = Parameter("the second argument of mode is true or false", read_flag, True)


# --- the functions ---------------------------------------------------------------------------------


def _multiset(kind: pa.DataType | None, parameters: Parameters) -> tuple[Multiset]:
    assert kind is not None
    return (Multiset(kind),)


def distinct_form(function: AggregateFunction) -> AggregateFunction:
    """The function over each value once, as in `sum(DISTINCT x)`."""
    return AggregateFunction(
        name=f"{function.name}_distinct",
        distinct_of=function.name,
        result_type=_without_maps(function.result_type),
        accumulators=_multiset,
        lower=_over_distinct(function),
        parameters=function.parameters,
        empty=function.empty,
    )


MULTISET_FUNCTIONS = (
    AggregateFunction(
        name="median",
        result_type=_percentile_type,
        accumulators=_multiset,
        lower=_median,
        with_preference=True,
    ),
    AggregateFunction(
        name="percentile",
        aliases=("percentile_cont",),
        within_group=("percentile_cont",),
        parameters=(FRACTIONS, DESCENDING),
        result_type=_percentile_type,
        accumulators=_multiset,
        lower=_percentile(is_discrete=False),
    ),
    AggregateFunction(
        name="percentile_disc",
        within_group=("percentile_disc",),
        parameters=(FRACTIONS, DESCENDING),
        result_type=_percentile_type,
        accumulators=_multiset,
        lower=_percentile(is_discrete=True),
    ),
    AggregateFunction(
        name="mode",
        within_group=("mode",),
        parameters=(DETERMINISTIC, DESCENDING),
        result_type=_mode_type,
        accumulators=_multiset,
        lower=_mode,
    ),
)
