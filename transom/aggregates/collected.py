"""Values in a list or a text: `collect_list`, `collect_set`, `string_agg`; bounded, with an error beyond the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.multisets import DESCENDING, Multiset, lists_of
from transom.aggregates.table import AggregateFunction, Lower, Parameter, Parameters
from transom.columns.sort_order import sort_codes
from transom.columns.type_ids import type_id
from transom.columns.types import has_sort_order
from transom.errors import CostError

MOST_COLLECTED = 10_000


@dataclass(frozen=True)
class Collected:
    """The values that are not null with what orders them, in this order; at most one more than is allowed.

    One more, so that a list that is too long is known to be.
    """

    order: pa.DataType
    value: pa.DataType
    most: int

    @property
    def traits(self) -> AccumulatorTraits:
        return AccumulatorTraits(growth=f"grows with the rows, up to {self.most:,} values")

    @property
    def label(self) -> str:
        return "collected"

    @property
    def id(self) -> str:
        return f"collected({type_id(self.order)},{type_id(self.value)},most={self.most})"

    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.order), pa.list_(self.value)]

    def identity(self) -> list[object]:
        return [None, None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        valid = fields["x"].is_valid().to_numpy(zero_copy_only=False)
        order, own = (fields[name].filter(pa.array(valid)) for name in ("t", "x"))
        return self._merged(order, own, codes[valid], groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        parents = pc.list_parent_indices(states[1]).to_numpy()
        return self._merged(pc.list_flatten(states[0]), pc.list_flatten(states[1]), codes[parents], groups)

    def _merged(self, order: pa.Array, values: pa.Array, codes: Codes, groups: int) -> States:
        sequence = np.lexsort((sort_codes(values), sort_codes(order), codes))
        codes = codes[sequence]
        starts = np.searchsorted(codes, np.arange(groups))
        is_kept = np.arange(len(codes)) - starts[codes] <= self.most
        at = pa.array(sequence[is_kept])
        return lists_of([order.take(at), values.take(at)], codes[is_kept], groups)


def _lists(lists: pa.Array, most: int, name: str) -> pa.Array:
    """The lists of groups; an error if one is too long."""
    longest = pc.max(pc.list_value_length(lists)).as_py() or 0
    if longest > most:
        raise CostError(
            f"{name} has more than {most:,} values in a group of a window; group or filter the rows further, or set "
            "Limits(collected_values=...)"
        )
    return lists


def _reversed(lists: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    ends = np.cumsum(lengths)
    at = np.repeat(2 * ends - lengths - 1, lengths) - np.arange(int(lengths.sum()))
    codes = np.repeat(np.arange(len(lists)), lengths)
    return lists_of([pc.list_flatten(lists).take(pa.array(at))], codes, len(lists))[0]


def _list(name: str, place: int) -> Lower:
    """The list in a column of the state; empty where there is no value, as in Spark."""

    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        lists = _lists(states[0][place], parameters[-1], name)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
        return pa.ListArray.from_arrays(offsets, pc.list_flatten(lists)).cast(type)

    return lower


def _text(name: str, place: int) -> Lower:
    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        delimiter, is_descending, most = parameters
        lists = _lists(states[0][place], most, name)
        return pc.binary_join(_reversed(lists) if is_descending else lists, delimiter).cast(type)

    return lower


def _timed_value(kind: pa.DataType | None) -> pa.DataType | None:
    is_timed = kind is not None and pa.types.is_struct(kind) and [field.name for field in kind] == ["t", "x"]
    return kind.field("x").type if kind is not None and is_timed else None


def _list_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    value = _timed_value(kind)
    if value is None:
        return "needs a value of a row with a time"
    return pa.list_(value) if has_sort_order(value) else f"can't order values of type {value}"


def _set_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    is_ordered = kind is not None and has_sort_order(kind)
    return pa.list_(kind) if is_ordered else f"can't compare values of type {kind}"


def _text_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    value = _timed_value(kind)
    return "needs a text of a row with a time" if value is None else _plain_text_type(value, parameters)


def _plain_text_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    is_text = kind is not None and pa.types.is_string(kind)
    return pa.string() if is_text else f"needs text, and this is {kind}; a cast can make it text"


def _collected(kind: pa.DataType | None, parameters: Parameters) -> tuple[Collected]:
    assert kind is not None
    return (Collected(kind.field("t").type, kind.field("x").type, parameters[-1]),)


def _distinct(kind: pa.DataType | None, parameters: Parameters) -> tuple[Multiset]:
    assert kind is not None
    return (Multiset(kind),)


def _read_count(constant: object) -> int | None:
    return constant if type(constant) is int and constant > 0 else None


def _read_text(constant: object) -> str | None:
    return constant if isinstance(constant, str) else None


MOST = Parameter("", _read_count, MOST_COLLECTED, is_written=False, setting="collected_values")
DELIMITER = Parameter("the delimiter is a constant text", _read_text, "")

COLLECT_FUNCTIONS = (
    AggregateFunction(
        name="collect_list",
        aliases=("array_agg",),
        packs=("x",),
        by_time=True,
        parameters=(MOST,),
        result_type=_list_type,
        accumulators=_collected,
        lower=_list("collect_list", 1),
        empty=[],
    ),
    AggregateFunction(
        name="collect_set",
        parameters=(MOST,),
        result_type=_set_type,
        accumulators=_distinct,
        lower=_list("collect_set", 0),
        empty=[],
        ignores_repeats=True,
    ),
    AggregateFunction(
        name="collect_list_distinct",
        distinct_of="collect_list",
        parameters=(MOST,),
        result_type=_set_type,
        accumulators=_distinct,
        lower=_list("collect_list", 0),
        empty=[],
    ),
    AggregateFunction(
        name="string_agg",
        aliases=("listagg",),
        packs=("x",),
        by_time=True,
        within_group=("string_agg", "listagg"),
        parameters=(DELIMITER, DESCENDING, MOST),
        result_type=_text_type,
        accumulators=_collected,
        lower=_text("string_agg", 1),
    ),
    AggregateFunction(
        name="string_agg_distinct",
        distinct_of="string_agg",
        parameters=(DELIMITER, DESCENDING, MOST),
        result_type=_plain_text_type,
        accumulators=_distinct,
        lower=_text("string_agg", 0),
    ),
)
