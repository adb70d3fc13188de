"""Sketches of Apache DataSketches as accumulators: distinct counts and percentiles."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import hll_sketch, hll_union, kll_doubles_sketch, tgt_hll_type

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.columns.groups import group, normalized
from transom.columns.type_ids import type_id

GREATEST = sys.float_info.max
_EMPTY = 0x5EED0FE3  # stands for the empty text; the hash of a number is that of no text


@dataclass(frozen=True)
class Distinct:
    """A HyperLogLog sketch of the values that are not null; null when there are none."""

    traits: ClassVar = AccumulatorTraits(is_sketch=True)
    input: pa.DataType
    lg_k: int
    counts_empty: bool = True  # DataSketches ignores empty texts, and so does Spark's hll_sketch_agg

    @property
    def label(self) -> str:
        return "distinct"

    @property
    def id(self) -> str:
        return f"hll({type_id(self.input)},lg_k={self.lg_k},counts_empty={self.counts_empty})"

    @classmethod
    def with_error(cls, input: pa.DataType, relative: float) -> Distinct:
        """The smallest sketch whose relative standard error (1.04 / sqrt(2^lg_k)) is at most this."""
        needed = int(np.ceil(2 * np.log2(1.04 / relative)))
        return cls(input, min(21, max(7, needed)))

    def types(self) -> list[pa.DataType]:
        return [pa.binary()]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        present, codes = normalized(values.drop_null()), codes[valid]
        firsts = group(
            [codes, present], len(codes)
        ).firsts  # a value counts once a group: update with it once
        sketches: list[hll_sketch | None] = [None] * groups
        for code, value in zip(
            codes[firsts].tolist(), _hashable(present.take(pa.array(firsts))), strict=True
        ):
            sketch = sketches[code]
            if sketch is None:
                sketch = sketches[code] = hll_sketch(self.lg_k, tgt_hll_type.HLL_8)
            sketch.update(_EMPTY if value == "" and self.counts_empty else value)
        return [_packed(sketches, hll_sketch.serialize_updatable)]

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        unions: list[hll_union | None] = [None] * groups
        for code, sketch in _unpacked(states[0], codes, hll_sketch.deserialize):
            union = unions[code]
            if union is None:
                union = unions[code] = hll_union(self.lg_k)
            union.update(sketch)
        merged = [None if union is None else union.get_result(tgt_hll_type.HLL_8) for union in unions]
        return [_packed(merged, hll_sketch.serialize_updatable)]

    def sketches(self, state: pa.Array) -> pa.Array:
        """The sketches themselves, in the form of Spark's hll_sketch_agg: empty ones for no values."""
        empty = bytes(hll_sketch(self.lg_k, tgt_hll_type.HLL_8).serialize_updatable())
        return state.fill_null(pa.scalar(empty, pa.binary()))

    def estimates(self, state: pa.Array) -> pa.Array:
        """The distinct counts, 0 for no values."""
        return pa.array(
            [0 if s is None else round(hll_sketch.deserialize(s).get_estimate()) for s in state.to_pylist()],
            pa.int64(),
        )


def sketched_count(sketch: bytes) -> int | None:
    """The distinct count of a sketch that was read from a value; None if it is none."""
    try:
        return round(hll_sketch.deserialize(sketch).get_estimate())
    except (ValueError, RuntimeError, MemoryError, OverflowError, IndexError):
        return None


@dataclass(frozen=True)
class Quantiles:
    """A KLL sketch of the values that are not null; exact while a group has no more than `k` values.

    Values are doubles. KLL ignores NaN, which Spark sorts above infinity. So in the sketch infinity stands for
    NaN, and the greatest finite double for infinity.
    """

    traits: ClassVar = AccumulatorTraits(is_sketch=True)
    input: pa.DataType
    k: int

    @property
    def label(self) -> str:
        return "quantiles"

    @property
    def id(self) -> str:
        return f"kll({type_id(self.input)},k={self.k})"

    @classmethod
    def with_accuracy(cls, input: pa.DataType, accuracy: int) -> Quantiles:
        """The sketch for an accuracy of Spark: the rank error is 1 / accuracy there, and about 2.3 / k^0.9 in KLL."""
        return cls(input, int(min(8192, max(200, np.ceil((2.3 * accuracy) ** (1 / 0.9) / 8)))))

    def types(self) -> list[pa.DataType]:
        return [pa.binary()]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers, codes = _as_doubles(values.drop_null()), codes[valid]
        order = np.argsort(codes, kind="stable")
        numbers, bounds = numbers[order], np.searchsorted(codes[order], np.arange(groups + 1))
        sketches: list[kll_doubles_sketch | None] = []
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            sketch = kll_doubles_sketch(self.k) if start < stop else None
            if sketch is not None:
                sketch.update(np.ascontiguousarray(numbers[start:stop]))
            sketches.append(sketch)
        return [_packed(sketches, kll_doubles_sketch.serialize)]

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        merged: list[kll_doubles_sketch | None] = [None] * groups
        for code, sketch in _unpacked(states[0], codes, kll_doubles_sketch.deserialize):
            union = merged[code]
            if union is None:
                merged[code] = sketch
            else:
                union.merge(sketch)
        return [_packed(merged, kll_doubles_sketch.serialize)]

    def percentiles(self, state: pa.Array, ranks: tuple[float, ...]) -> list[list[float] | None]:
        """The values of each group at some ranks; None for a group without values."""
        sketches = (None if s is None else kll_doubles_sketch.deserialize(s) for s in state.to_pylist())
        return [None if s is None else [_unshifted(s.get_quantile(p, True)) for p in ranks] for s in sketches]


def _unshifted(value: float) -> float:
    return math.nan if value == math.inf else math.inf if value == GREATEST else value


def _as_doubles(values: pa.Array) -> Any:
    if pa.types.is_temporal(values.type):
        wide = pa.int32() if values.type.bit_width == 32 else pa.int64()
        values = values.cast(wide)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(values.type):
        return numbers
    return np.where(np.isnan(numbers), np.inf, np.minimum(numbers, GREATEST))


def _hashable(values: pa.Array) -> list[int | float | str]:
    """Values as integers, floats or strings, which a sketch hashes; decimals and other types as text."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    elif pa.types.is_binary(values.type):
        return [value.hex() for value in values.to_pylist()]
    elif pa.types.is_nested(values.type):
        return [nested_text(value) for value in values.to_pylist()]
    elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = pc.cast(values, pa.string())
    hashable: list[int | float | str] = values.to_pylist()
    return hashable


def nested_text(value: object) -> str:
    """A struct, list or map as a text that only equal values have; stored sketches depend on it.

    Every part has a letter for its type, and texts have their length, so that no two values run together. A
    negative zero is a zero, as in SQL.

    >>> nested_text({"a": 1, "b": ["x", None, -0.0]})
    '(i1,(s1:x,n,d0x0.0p+0))'
    """
    match value:
        case None:
            return "n"
        case dict():
            return f"({','.join(map(nested_text, value.values()))})"
        case list() | tuple():
            return f"({','.join(map(nested_text, value))})"
        case bool():
            return f"b{int(value)}"
        case int():
            return f"i{value}"
        case float():
            return f"d{(value + 0.0).hex()}"
        case Decimal():
            return f"e{value:f}"  # the type of the column gives all values the same number of digits
        case str():
            return f"s{len(value)}:{value}"
        case bytes():
            return f"x{value.hex()}"
        case datetime() | date() | time():
            return f"t{value.isoformat()}"
        case timedelta():
            return f"u{value // timedelta(microseconds=1)}"
    raise TypeError(f"not a value that a sketch takes: {value!r}")


def _packed(sketches: list[Any], serialize: Callable[[Any], Any]) -> pa.Array:
    return pa.array([None if s is None else bytes(serialize(s)) for s in sketches], pa.binary())


def _unpacked(
    state: pa.Array, codes: Codes, deserialize: Callable[[bytes], Any]
) -> Iterator[tuple[int, Any]]:
    for code, packed in zip(codes.tolist(), state.to_pylist(), strict=True):
        if packed is not None:
            yield code, deserialize(packed)
