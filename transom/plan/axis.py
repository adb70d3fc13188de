"""An axis: the values of one scalar, cut at the constants that predicates compare it with.

Between two neighbouring constants all values satisfy the same predicates, so one binary search of a tuple's value
evaluates all of them: the grouped filter. Every comparison with a constant becomes thresholds `value >= t`.
Code `i` stands for the values with `i` thresholds at or below them; null has the last code.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.search import count_at_or_below
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth, scalars_of
from transom.windows.intervals import IntervalSet

_EXACT = Context(prec=120)


class AxisKind(Enum):
    """The representation of an axis's values for the search."""

    WHOLE = "whole"  # int64: integers, short decimals in units of their last digit, times, booleans
    DOUBLE = "double"
    BYTES = "bytes"  # texts in UTF-8, in the order that Spark compares them


def axis_kind(type: pa.DataType) -> AxisKind | None:
    """The kind of axis for a scalar of some type; None if its values can't be searched."""
    if pa.types.is_floating(type):
        return AxisKind.DOUBLE
    if pa.types.is_decimal(type):
        return AxisKind.WHOLE if type.precision <= 18 else None
    if pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_date32(type):
        return AxisKind.WHOLE
    if pa.types.is_timestamp(type) and type.unit == "us":
        return AxisKind.WHOLE
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_binary(type):
        return AxisKind.BYTES
    return None


@dataclass(frozen=True)
class Axis:
    """A scalar and its thresholds, in order."""

    scalar: Scalar
    kind: AxisKind
    thresholds: tuple[Any, ...]

    @classmethod
    def merged(cls, axes: Sequence[Axis]) -> Axis:
        """One axis with the thresholds of several axes over the same scalar."""
        if len(axes) == 1:
            return axes[0]
        first = axes[0]
        if first.kind is AxisKind.BYTES:
            return cls._over(first.scalar, first.kind, {t for axis in axes for t in axis.thresholds})
        thresholds = [threshold for axis in axes for threshold in axis.thresholds]
        numbers = np.unique(np.array(thresholds, first.numbers.dtype))
        return cls(first.scalar, first.kind, tuple(numbers.tolist()))

    def translation(self, finer: Axis) -> np.ndarray:
        """This axis's code for each code of a finer axis, which has all thresholds of this one."""
        known = self.__dict__.get("_translation")
        if known is None or known[0] is not finer:
            known = self.__dict__["_translation"] = finer, self._translated(finer)
        codes: np.ndarray = known[1]
        return codes

    def _translated(self, finer: Axis) -> np.ndarray:
        if self.kind is AxisKind.BYTES:
            own = np.array([finer.places[t] for t in self.thresholds], np.int64)
        else:
            own = np.searchsorted(finer.numbers, self.numbers)
        return np.r_[np.searchsorted(own, np.arange(finer.null)), self.null]

    @classmethod
    def of(cls, scalar: Scalar, predicates: Iterable[Predicate]) -> Axis:
        """The axis that evaluates some predicates over the scalar."""
        kind = axis_kind(scalar.type)
        assert kind is not None
        found = {
            t for predicate in predicates for leaf in _leaves(predicate) for t in _thresholds(leaf, kind)
        }
        return cls._over(scalar, kind, found)

    @classmethod
    def _over(cls, scalar: Scalar, kind: AxisKind, thresholds: Iterable[Any]) -> Axis:
        return cls(scalar, kind, tuple(sorted(thresholds, key=_order)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}  # the rest is found anew

    @cached_property
    def places(self) -> dict[Any, int]:
        """The place of each threshold."""
        return {_name(t): i for i, t in enumerate(self.thresholds)}

    def place(self, threshold: Any) -> int:
        """The place of a threshold."""
        return self.places[_name(threshold)]

    def places_of(self, thresholds: Sequence[Any]) -> Ints:
        """The places of some thresholds."""
        if self.kind is AxisKind.BYTES:
            return np.array([self.places[threshold] for threshold in thresholds], np.int64)
        return np.searchsorted(self.numbers, np.array(thresholds, self.numbers.dtype))

    @cached_property
    def numbers(self) -> np.ndarray:
        """The thresholds as an array; texts have none."""
        return np.array(self.thresholds, np.float64 if self.kind is AxisKind.DOUBLE else np.int64)

    @property
    def null(self) -> int:
        """The code of null."""
        return len(self.thresholds) + 1

    @property
    def size(self) -> int:
        return len(self.thresholds) + 2

    def true(self, predicate: Predicate) -> IntervalSet:
        """The codes of the values for which a predicate is true."""
        return self._truth(predicate)[0]

    def _truth(self, predicate: Predicate) -> tuple[IntervalSet, IntervalSet]:
        """The codes for which a predicate is true, and those for which it is false; for the others it is null."""
        match predicate:
            case And(parts):
                true, false = self._truth(parts[0])
                for part in parts[1:]:
                    more_true, more_false = self._truth(part)
                    true, false = true & more_true, false | more_false
                return true, false
            case Or(parts):
                false, true = self._truth(And(tuple(Not(part) for part in parts)))
                return true, false
            case Not(part):
                true, false = self._truth(part)
                return false, true
            case IsNull():
                return IntervalSet.of((self.null, self.null + 1)), self._values
            case Truth():
                return self._at_least(1), self._values - self._at_least(1)
            case Member(_, values, null):
                true = IntervalSet.of(*(pair for value in values for pair in self._equal(value)))
                return true, IntervalSet() if null else self._values - true
            case Comparison(_, op, value):
                return self._compared(op, value)
        raise TypeError(f"not a predicate: {predicate!r}")

    @property
    def _values(self) -> IntervalSet:
        return IntervalSet.of((0, self.null))

    def _compared(self, op: str, value: Any) -> tuple[IntervalSet, IntervalSet]:
        if op in ("=", "!=", "<=>"):
            equal = self._equal(value)
            other = self._values - equal
            if op == "<=>":
                return equal, other | IntervalSet.of((self.null, self.null + 1))
            return (equal, other) if op == "=" else (other, equal)
        above = self._at_least(_threshold(value, op in (">", "<="), self.scalar.type, self.kind))
        return (above, self._values - above) if op in (">", ">=") else (self._values - above, above)

    def _equal(self, value: Any) -> IntervalSet:
        from_here = self._at_least(_threshold(value, False, self.scalar.type, self.kind))
        return from_here - self._at_least(_threshold(value, True, self.scalar.type, self.kind))

    def _at_least(self, threshold: Any) -> IntervalSet:
        if threshold is None:  # above everything
            return IntervalSet()
        return IntervalSet.of((self.place(threshold) + 1, self.null))

    def codes(self, column: pa.Array) -> np.ndarray:
        """The code of each value of the scalar's column."""
        if self.kind is AxisKind.BYTES:
            return self._codes_of_texts(column)
        codes = count_at_or_below(self.numbers, numbers_of(column, self.kind))
        if column.null_count:
            codes[column.is_null().to_numpy(zero_copy_only=False)] = self.null
        return codes

    def _codes_of_texts(self, column: pa.Array) -> np.ndarray:
        distinct = column.dictionary_encode()
        texts = distinct.dictionary.cast(pa.large_binary()).to_pylist()
        places = np.array([_place(self.thresholds, text) for text in texts] + [self.null], np.int64)
        return places[distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]


def numbers_of(column: pa.Array, kind: AxisKind) -> np.ndarray:
    """A column's values in the representation of an axis; null is any value."""
    type = column.type
    if kind is AxisKind.DOUBLE:
        return column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(type):
        if type.bit_width != 128:
            column = column.cast(pa.decimal128(type.precision, type.scale))
        words = np.frombuffer(column.buffers()[1], np.int64)  # low and high half of each
        return words[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    if pa.types.is_boolean(type):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(type):
        column = column.view(pa.int64() if type.bit_width == 64 else pa.int32())
    return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def is_searchable(predicate: Predicate) -> bool:
    """Whether an axis can evaluate a predicate: it compares one scalar with constants of its kind."""
    if not isinstance(predicate, And | Or | Not):
        kind = axis_kind(predicate.scalar.type)
        return kind is not None and _is_like(predicate, kind)
    scalars = list(scalars_of(predicate))
    if any(scalar.sql != scalars[0].sql for scalar in scalars):
        return False
    kind = axis_kind(scalars[0].type)
    return kind is not None and all(_is_like(leaf, kind) for leaf in _leaves(predicate))


def one_sided(comparison: Comparison, kind: AxisKind) -> tuple[Axis, IntervalSet]:
    """The axis of a single `<`, `<=`, `>` or `>=`, and the codes for which it is true: what `Axis` finds, faster."""
    scalar, op = comparison.scalar, comparison.op
    threshold = _threshold(comparison.value, op in (">", "<="), scalar.type, kind)
    axis = Axis(scalar, kind, () if threshold is None else (threshold,))
    if op in ("<", "<="):
        return axis, IntervalSet(((0, 1),))
    return axis, IntervalSet(() if threshold is None else ((1, 2),))


def _leaves(predicate: Predicate) -> Iterable[Predicate]:
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case _:
            yield predicate


def _is_like(leaf: Predicate, kind: AxisKind) -> bool:
    """An integer next to a double is compared as a double: such a comparison has no place on its axis."""
    match leaf:
        case Comparison(_, _, value):
            return kind is AxisKind.DOUBLE or not isinstance(value, float)
        case Member(_, values):
            return all(kind is AxisKind.DOUBLE or not isinstance(value, float) for value in values)
    return True


def _thresholds(leaf: Predicate, kind: AxisKind) -> Iterable[Any]:
    match leaf:
        case Truth():
            yield 1
        case Member(scalar, values):
            for value in values:
                yield from _both(value, scalar.type, kind)
        case Comparison(scalar, op, value) if op in ("=", "!=", "<=>"):
            yield from _both(value, scalar.type, kind)
        case Comparison(scalar, op, value):
            found = _threshold(value, op in (">", "<="), scalar.type, kind)
            if found is not None:
                yield found


def _both(value: Any, type: pa.DataType, kind: AxisKind) -> Iterable[Any]:
    found = (_threshold(value, after, type, kind) for after in (False, True))
    return [threshold for threshold in found if threshold is not None]


def _threshold(value: Any, after: bool, type: pa.DataType, kind: AxisKind) -> Any:
    """The least value at or above a constant; None if there is none."""
    if kind is AxisKind.DOUBLE:
        number = float(value) + 0.0
        if not after:
            return number
        return (
            None
            if math.isnan(number)
            else math.nan
            if number == math.inf
            else math.nextafter(number, math.inf)
        )
    if kind is AxisKind.BYTES:
        text = value.encode() if isinstance(value, str) else bytes(value)
        return text + b"\0" if after else text
    whole = _whole(value, after, type)
    return max(whole, -(2**63)) if whole < 2**63 else None


def _whole(value: Any, after: bool, type: pa.DataType) -> int:
    if isinstance(value, Decimal) or pa.types.is_decimal(type):
        shifted = _EXACT.scaleb(Decimal(value), type.scale if pa.types.is_decimal(type) else 0)
        if after:
            return int(shifted.to_integral_value(ROUND_FLOOR)) + 1
        return int(shifted.to_integral_value(ROUND_CEILING))
    if isinstance(value, date) or pa.types.is_temporal(type):
        value = pa.scalar(value, type).value
    return int(value) + after


def _order(threshold: Any) -> tuple[bool, Any]:
    is_nan = isinstance(threshold, float) and math.isnan(threshold)
    return is_nan, 0.0 if is_nan else threshold


def _name(threshold: Any) -> Any:
    """The key of a threshold: NaN is not equal to itself."""
    return "nan" if isinstance(threshold, float) and math.isnan(threshold) else threshold


def _place(thresholds: Sequence[bytes], text: bytes) -> int:
    at = bisect_left(thresholds, text)
    return at + (at < len(thresholds) and thresholds[at] == text)
