"""Evaluate predicates over columns, with SQL's nulls and Spark's order of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth

ColumnReader = Callable[[Scalar], pa.Array]

_EXACT = Context(prec=120)  # wide enough for any constant next to any 38 digits
_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate(predicate: Predicate, columns: ColumnReader) -> pa.Array:
    """True, false or null for each row."""
    match predicate:
        case And(parts):
            return reduce(pc.and_kleene, (evaluate(part, columns) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (evaluate(part, columns) for part in parts))
        case Not(part):
            return pc.invert(evaluate(part, columns))
        case IsNull(scalar):
            return pc.is_null(columns(scalar))
        case Truth(scalar):
            return columns(scalar).cast(pa.bool_())  # a bare NULL has a type of its own
        case Member(scalar, values, null):
            column = columns(scalar)
            found = reduce(pc.or_kleene, (compare(column, "=", v) for v in values), _constant(column, False))
            return pc.or_kleene(found, pa.scalar(None, pa.bool_())) if null else found
        case Comparison(scalar, op, value):
            return compare(columns(scalar), op, value)
    raise TypeError(f"not a predicate: {predicate!r}")


def compare(column: pa.Array, op: str, value: Any) -> pa.Array:
    """A column against a constant of its own kind."""
    if op == "<=>":
        return pc.fill_null(compare(column, "=", value), False)
    kind = column.type
    if pa.types.is_floating(kind) or (isinstance(value, float) and not isinstance(value, bool)):
        return _compare_doubles(column.cast(pa.float64(), safe=False), op, float(value))
    if pa.types.is_integer(kind):
        return _compare_exact(column, op, value, 0)
    if pa.types.is_decimal(kind):
        return _compare_exact(column, op, value, kind.scale)
    return _COMPARE[op](column, pa.scalar(value, kind))


def _compare_doubles(column: pa.Array, op: str, value: float) -> pa.Array:
    nan = pc.is_nan(column)
    if math.isnan(value):
        truth = {"=": nan, ">=": nan, "!=": pc.invert(nan), "<": pc.invert(nan)}
        return truth.get(op, _constant(column, op == "<="))
    found = _COMPARE[op](column, pa.scalar(value))
    return pc.or_(found, nan) if op in (">", ">=", "!=") else found


def _compare_exact(column: pa.Array, op: str, value: int | Decimal, scale: int) -> pa.Array:
    """Integers and decimals, exactly: the constant is moved to the column's grid of `10 ** -scale`."""
    shifted = _EXACT.scaleb(Decimal(value), scale)
    grid = int(shifted.to_integral_value(ROUND_FLOOR))
    if shifted != grid:
        if op in ("=", "!="):
            return _constant(column, op == "!=")
        if op in (">", ">="):
            op, grid = ">=", grid + 1
        else:
            op = "<="
    is_whole = pa.types.is_integer(column.type)
    if not (-(2**63) <= grid < 2**63 if is_whole else -(10**38) < grid < 10**38):
        is_far_above = grid > 0
        return _constant(column, {"=": False, "!=": True}.get(op, is_far_above == (op in ("<", "<="))))
    kind = pa.int64() if is_whole else pa.decimal128(38, scale)
    constant = grid if is_whole else _EXACT.scaleb(Decimal(grid), -scale)
    return _COMPARE[op](column.cast(kind), pa.scalar(constant, kind))


def _constant(column: pa.Array, truth: bool) -> pa.Array:
    """One answer for every value, and null for null."""
    return pc.if_else(pc.is_valid(column), pa.scalar(truth), pa.scalar(None, pa.bool_()))
