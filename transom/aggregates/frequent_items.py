"""The most frequent values with bounded memory: approx_top_k.

Mergeable Summaries (Agarwal et al., 2012), section 3: a group keeps a count for each of at most `tracked` values.
When there are more, the count of the first value beyond them is subtracted from all, and values without a count are
forgotten. What was subtracted is at most n / (tracked + 1) for n rows, in whatever order states are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.multisets import lists_of
from transom.aggregates.table import AggregateFunction, Parameter, Parameters
from transom.columns.groups import normalized
from transom.columns.sort_order import sort_codes
from transom.columns.type_ids import type_id

MOST_TRACKED = 1_000_000


@dataclass(frozen=True)
class FrequentItems:
    """The most frequent values, null among them, with a count each; and how much too low counts may be."""

    traits: ClassVar = AccumulatorTraits(is_sketch=True)
    input: pa.DataType  # of the value; it comes as a struct with one field, so that null is a value
    tracked: int

    @property
    def label(self) -> str:
        return "frequent items"

    @property
    def id(self) -> str:
        return f"frequent({type_id(self.input)},tracked={self.tracked})"

    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.input), pa.list_(pa.int64()), pa.int64()]

    def identity(self) -> list[object]:
        return [None, None, 0]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        present = normalized(values.drop_null().field(0))
        return self._merged(
            present, np.ones(len(present), np.int64), codes[valid], np.zeros(groups, np.int64)
        )

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        parents = pc.list_parent_indices(states[0]).to_numpy()
        counts = pc.list_flatten(states[1]).to_numpy()
        lost = np.zeros(groups, np.int64)
        np.add.at(lost, codes, states[2].to_numpy())
        return self._merged(pc.list_flatten(states[0]), counts, codes[parents], lost)

    def _merged(
        self, values: pa.Array, counts: NDArray[np.int64], codes: Codes, lost: NDArray[np.int64]
    ) -> States:
        ranks, groups = sort_codes(values), len(lost)
        order = np.lexsort((ranks, codes))
        ranks, codes = ranks[order], codes[order]
        is_new = np.ones(len(codes), bool)
        is_new[1:] = (codes[1:] != codes[:-1]) | (ranks[1:] != ranks[:-1])
        firsts = np.flatnonzero(is_new)
        totals = np.add.reduceat(counts[order], firsts) if len(firsts) else np.zeros(0, np.int64)
        at, codes = order[firsts], codes[firsts]
        if len(codes) and np.bincount(codes, minlength=groups).max() > self.tracked:
            by_count = np.lexsort((-totals, codes))
            starts = np.searchsorted(codes, np.arange(groups))
            is_first_beyond = np.arange(len(codes)) - starts[codes] == self.tracked
            subtracted = np.zeros(groups, np.int64)
            subtracted[codes[is_first_beyond]] = totals[by_count[is_first_beyond]]
            totals, lost = totals - subtracted[codes], lost + subtracted
            left = np.flatnonzero(totals > 0)
            at, codes, totals = at[left], codes[left], totals[left]
        columns = [values.take(pa.array(at)), pa.array(totals.astype(np.int64))]
        return [*lists_of(columns, codes, groups), pa.array(lost)]


def _top_k(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    """The k most frequent values; of those with the same count the least come first."""
    lists, counts, lost = states[0]
    codes, groups = pc.list_parent_indices(lists).to_numpy(), len(lists)
    values, numbers = pc.list_flatten(lists), pc.list_flatten(counts).to_numpy()
    numbers = numbers + lost.to_numpy()[codes]
    order = np.lexsort((sort_codes(values), -numbers, codes))
    starts = np.searchsorted(codes, np.arange(groups))
    chosen = order[np.arange(len(codes)) - starts[codes] < parameters[0]]
    lengths = np.bincount(codes[chosen], minlength=groups)
    fields = [values.take(pa.array(chosen)), pa.array(numbers[chosen].astype(np.int64))]
    items = pa.StructArray.from_arrays(fields, names=["item", "count"])
    offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, items).cast(type)


def _top_k_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not pa.types.is_struct(kind) or kind.num_fields != 1:
        return "takes one value"
    item = kind.field(0).type
    if pa.types.is_nested(item) or pa.types.is_binary(item):
        return f"can't count values of type {item}"
    if len(parameters) > 1 and parameters[1] < parameters[0]:
        return f"tracks {parameters[1]:,} values and can't find the first {parameters[0]:,}; track at least as many"
    return pa.list_(pa.struct([("item", item), ("count", pa.int64())]))


def _read_items(constant: Any) -> int | None:
    return constant if type(constant) is int and 0 < constant <= MOST_TRACKED else None


_RULE = f"is a positive whole constant of at most {MOST_TRACKED:,}"

FREQUENT_FUNCTIONS = (
    AggregateFunction(
        name="approx_top_k",
        packs=("x",),
        parameters=(
            Parameter(f"the number of items {_RULE}", _read_items, 5),
            Parameter(f"the number of tracked items {_RULE}", _read_items, 10_000),
        ),
        result_type=_top_k_type,
        accumulators=lambda kind, parameters: (FrequentItems(_item(kind), parameters[1]),),
        lower=_top_k,
        empty=[],
    ),
)


def _item(kind: pa.DataType | None) -> pa.DataType:
    assert kind is not None
    return kind.field(0).type
