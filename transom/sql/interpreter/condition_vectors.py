"""Comparisons, three-valued logic and choices of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.interpreter.decimal_vectors import decimal_comparison
from transom.sql.interpreter.types import is_decimal, is_float, is_text
from transom.sql.interpreter.vectors import (
    NullMask,
    Vector,
    VectorTable,
    array_of,
    constant_vector,
    dtype_of,
    either,
    vector_of,
)

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TEXT_ORDERS = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def vector_comparison(operator: str, type: pa.DataType) -> Callable[[Any, Any], Any] | None:
    """The comparison of two arrays of a type; None if there is only the row form."""
    if is_text(type):
        compare = _TEXT_ORDERS[operator]
        return lambda left, right: text_comparison(compare, left, right)
    if is_decimal(type):
        return lambda left, right: decimal_comparison(_ORDERS[operator], left, right)
    if dtype_of(type) is None:
        return None
    if is_float(type):
        return lambda left, right: float_comparison(operator, left, right)
    return _ORDERS[operator]


def text_comparison(compare: Callable[[Any, Any], Any], left: pa.Array, right: pa.Array) -> np.ndarray:
    """Texts by code points, which is the order of their UTF-8 bytes."""
    if len(left) != len(right):
        left, right = (side[0] if len(side) == 1 else side for side in (left, right))
    return vector_of(compare(left, right)).values


def float_comparison(operator: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """NaN equals NaN and is above all else."""
    found = _ORDERS[operator](left, right)
    if len(right) == 1 and not np.isnan(right[0]):
        return ~_ORDERS[_OPPOSITE[operator]](left, right) if operator in (">", ">=") else found
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    match operator:
        case "=":
            return found | (left_nan & right_nan)
        case "!=":
            return found & ~(left_nan & right_nan)
        case "<":
            return found | (~left_nan & right_nan)
        case "<=":
            return found | right_nan
        case ">":
            return found | (left_nan & ~right_nan)
        case _:
            return found | left_nan


def null_safe_equality(equal: Vector, left: Vector, right: Vector) -> Vector:
    """`<=>`: null equals null."""
    if equal.nulls is None:
        return equal
    both = _mask(left.nulls) & _mask(right.nulls)
    return Vector((equal.values & ~equal.nulls) | both, None, equal.by_row)


def text_membership(constants: Sequence[str]) -> Callable[[Any], np.ndarray]:
    """Which texts are among some constants."""
    texts = pa.array(constants, pa.string())

    def contained(values: Any) -> np.ndarray:
        return vector_of(pc.is_in(values, texts)).values

    return contained


def number_membership(type: pa.DataType, constants: Sequence[Any]) -> Callable[[Any], np.ndarray]:
    """Which numbers, dates or times are among some constants; NaN equals NaN."""
    wanted = [constant_vector(value, type).values for value in constants]
    numbers = np.concatenate(wanted) if wanted else np.zeros(0, dtype_of(type))
    has_nan = is_float(type) and bool(np.isnan(numbers).any())

    def contained(values: Any) -> np.ndarray:
        return np.isin(values, numbers) | np.isnan(values) if has_nan else np.isin(values, numbers)

    return contained


def membership(
    type: pa.DataType, constants: Sequence[Any], has_null: bool
) -> Callable[[Vector], Vector] | None:
    """`x IN (constants)`: null for what is not found if there is a null among them."""
    if not is_text(type) and dtype_of(type) is None:
        return None
    contained = text_membership(constants) if is_text(type) else number_membership(type, constants)

    def compute(vector: Vector) -> Vector:
        found = contained(vector.values)
        return Vector(found, either(vector.nulls, ~found) if has_null else vector.nulls, vector.by_row)

    return compute


def conjunction_vector(parts: Sequence[Vector]) -> Vector:
    """Kleene's AND: false if any part is false, else null if any part is null."""
    values, nulls, by_row = parts[0]
    values = values if nulls is None else values | nulls
    for part in parts[1:]:
        values = values & (part.values if part.nulls is None else part.values | part.nulls)
        nulls, by_row = either(nulls, part.nulls), either(by_row, part.by_row)
    return Vector(values, None if nulls is None else nulls & values, by_row)


def disjunction_vector(parts: Sequence[Vector]) -> Vector:
    """Kleene's OR: true if any part is true, else null if any part is null."""
    values, nulls, by_row = parts[0]
    values = values if nulls is None else values & ~nulls
    for part in parts[1:]:
        values = values | (part.values if part.nulls is None else part.values & ~part.nulls)
        nulls, by_row = either(nulls, part.nulls), either(by_row, part.by_row)
    return Vector(values, None if nulls is None else nulls & ~values, by_row)


def is_true(condition: Vector) -> np.ndarray:
    """Where a condition is true, and not null."""
    return condition.values if condition.nulls is None else condition.values & ~condition.nulls


def chosen(
    type: pa.DataType, table: VectorTable, conditions: Sequence[np.ndarray], branches: Sequence[Vector]
) -> Vector:
    """For each row the branch of the first condition that holds; the last branch has no condition."""
    by_row: NullMask = None
    for branch in branches:
        by_row = either(by_row, branch.by_row)
    if dtype_of(type) is None:
        return chosen_arrays(type, table, conditions, branches, by_row)
    *others, (values, nulls, _) = branches
    for condition, branch in zip(reversed(conditions), reversed(others), strict=True):
        values = np.where(condition, branch.values, values)
        if nulls is not None or branch.nulls is not None:
            nulls = np.where(condition, _mask(branch.nulls), _mask(nulls))
    return Vector(values, nulls, by_row)


def _mask(nulls: NullMask) -> np.ndarray:
    return np.zeros(1, np.bool_) if nulls is None else nulls


def chosen_arrays(
    type: pa.DataType,
    table: VectorTable,
    conditions: Sequence[np.ndarray],
    branches: Sequence[Vector],
    by_row: NullMask,
) -> Vector:
    """The same for columns that stay Arrow arrays: the places of the values among those of all branches."""
    rows = np.arange(table.num_rows)
    arrays = [array_of(branch, type, len(branch.values)) for branch in branches]
    starts = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
    spots = [start + (rows if len(array) != 1 else 0) for start, array in zip(starts, arrays, strict=False)]
    places = np.broadcast_to(spots[-1], table.num_rows)
    for condition, spot in zip(reversed(conditions), reversed(spots[:-1]), strict=True):
        places = np.where(condition, spot, places)
    found = vector_of(pa.concat_arrays(arrays).take(pa.array(places)))
    return Vector(found.values, found.nulls, by_row)


def extreme_vector(
    is_better: Callable[[Any, Any], Any], type: pa.DataType, table: VectorTable, parts: Sequence[Vector]
) -> Vector:
    """`greatest` and `least`: the first of the best values that are not null."""
    best = parts[0]
    for part in parts[1:]:
        takes_part = is_better(part.values, best.values)
        if best.nulls is not None:
            takes_part = takes_part | best.nulls
        if part.nulls is not None:
            takes_part = takes_part & ~part.nulls
        best = chosen(type, table, [takes_part], [part, best])
    return best
