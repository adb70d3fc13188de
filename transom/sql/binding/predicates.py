"""Lowers conditions to comparisons that the kernel evaluates; Spark evaluates the rest as `Truth`."""

from __future__ import annotations

from typing import Callable

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.constants import comparable, constant_of
from transom.sql.binding.expression_types import ScalarBinder
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth
from transom.sql.syntax.canonical import bare

COMPARISON_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<=>",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Without parentheses, these operands have another precedence in sqlglot than in Spark.
_LOOSE = (
    *COMPARISON_OPERATORS,
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
    exp.RegexpLike,
    exp.Not,
    exp.Escape,
)


# A placeholder for an expression whose type is not resolved yet; the predicate is built again afterwards.
UNTYPED = Truth(Scalar("", pa.bool_()))


def bind_predicate(node: exp.Expr, binder: ScalarBinder) -> Predicate:
    """The predicate of a condition."""
    node = bare(node)
    if binder.is_whole(node):
        return Truth(binder.truth(node))
    if isinstance(node, (exp.And, exp.Or)):
        parts = tuple(_flatten(node, type(node), binder))
        return And(parts) if isinstance(node, exp.And) else Or(parts)
    if isinstance(node, exp.Not):
        return Not(bind_predicate(node.this, binder))
    lowered = _lower_leaf(node, binder)
    return lowered if lowered is not None else Truth(binder.truth(node))


def conjunction(parts: list[Predicate]) -> Predicate | None:
    """The conjunction of predicates; None if there are none."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, And) else (part,))]
    return None if not flat else flat[0] if len(flat) == 1 else And(tuple(flat))


def _flatten(node: exp.Expr, kind: type[exp.Expr], binder: ScalarBinder) -> list[Predicate]:
    inner = bare(node)
    if isinstance(inner, kind) and not binder.is_whole(inner):
        return [*_flatten(inner.this, kind, binder), *_flatten(inner.expression, kind, binder)]
    lowered = bind_predicate(inner, binder)
    same = isinstance(lowered, And) if kind is exp.And else isinstance(lowered, Or)
    return list(lowered.parts) if same and isinstance(lowered, (And, Or)) else [lowered]


def _lower_leaf(node: exp.Expr, binder: ScalarBinder) -> Predicate | None:
    operator = COMPARISON_OPERATORS.get(type(node))
    if operator is not None:
        if isinstance(node.this, _LOOSE) or isinstance(node.expression, _LOOSE):
            return None
        compared = _compare(node.this, operator, node.expression, binder)
        return Not(compared) if compared is not None and isinstance(node, exp.NullSafeNEQ) else compared
    lowering = _LEAVES.get(type(node))
    if lowering is None or isinstance(node.this, _LOOSE):
        return None
    return lowering(node, binder)


def _compare(left: exp.Expr, operator: str, right: exp.Expr, binder: ScalarBinder) -> Predicate | None:
    if operator == "<=>" and isinstance(bare(right), exp.Null):
        scalar = binder.scalar(left)
        return UNTYPED if scalar is None else IsNull(scalar)
    constant = constant_of(right)
    if constant is None:
        constant = constant_of(left)
        if constant is None:
            return None
        left, operator = right, _MIRRORED.get(operator, operator)
    if constant_of(left) is not None:
        return None
    scalar = binder.scalar(left)
    if scalar is None:
        return UNTYPED
    value = comparable(constant, scalar.type, binder.utc)
    return None if value is None else Comparison(scalar, operator, value)


def _between(node: exp.Expr, binder: ScalarBinder) -> Predicate | None:
    low = _compare(node.this, ">=", node.args["low"], binder)
    high = _compare(node.this, "<=", node.args["high"], binder)
    if low is UNTYPED or high is UNTYPED:
        return UNTYPED
    if not isinstance(low, Comparison) or not isinstance(high, Comparison) or node.args.get("symmetric"):
        return None
    return And((low, high))


def _member(node: exp.Expr, binder: ScalarBinder) -> Predicate | None:
    values = [bare(value) for value in node.expressions]
    constants = [constant_of(value) for value in values if not isinstance(value, exp.Null)]
    if not constants or None in constants or constant_of(node.this) is not None:
        return None
    scalar = binder.scalar(node.this)
    if scalar is None:
        return UNTYPED
    members = [
        comparable(constant, scalar.type, binder.utc) for constant in constants if constant is not None
    ]
    if None in members or (pa.types.is_integer(scalar.type) and len({type(m) is float for m in members}) > 1):
        return None
    return Member(scalar, tuple(dict.fromkeys(members)), null=len(constants) < len(values))


def _is(node: exp.Expr, binder: ScalarBinder) -> Predicate | None:
    scalar = binder.scalar(node.this)
    if scalar is None:
        return UNTYPED
    if isinstance(node.expression, exp.Null):
        return IsNull(scalar)
    boolean = isinstance(node.expression, exp.Boolean) and pa.types.is_boolean(scalar.type)
    return Comparison(scalar, "<=>", bool(node.expression.this)) if boolean else None


_LEAVES: dict[type[exp.Expr], Callable[[exp.Expr, ScalarBinder], Predicate | None]] = {
    exp.Between: _between,
    exp.In: _member,
    exp.Is: _is,
}
