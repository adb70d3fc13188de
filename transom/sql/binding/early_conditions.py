"""HAVING ... WITH CONFIDENCE: the condition in the form from which margins follow."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from transom.columns.types import is_number
from transom.sql.binding.expression_types import ScalarBinder
from transom.sql.binding.predicates import COMPARISON_OPERATORS, UNTYPED, bind_predicate
from transom.sql.early_decision import is_estimated, is_fixed
from transom.sql.query import And, Comparison, Member, Not, Or, Predicate, Scalar, Truth, scalars_of
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import Parsed

_EARLIER = re.compile(r"`l\d+`")
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "<=>": "!="}


class EarlyConditionBinder:
    """Binds HAVING a second time.

    `typed` is the type of a text over the columns of results; None until it is resolved.
    """

    def __init__(
        self,
        parsed: Parsed,
        binder: ScalarBinder,
        typed: Callable[[str, exp.Expr], pa.DataType | None],
    ):
        self.parsed, self.binder, self.typed = parsed, binder, typed

    def bind(self, node: exp.Expr, is_negated: bool = False) -> Predicate | None:
        """The condition by AND and OR over leaves that can be decided early; None until all types are resolved."""
        node = bare(node)
        if isinstance(node, exp.Not):
            return self.bind(node.this, not is_negated)
        if isinstance(node, exp.And | exp.Or):
            found = [self.bind(part, is_negated) for part in (node.this, node.expression)]
            parts = tuple(part for part in found if part is not None)
            if len(parts) < len(found):
                return None
            return And(parts) if isinstance(node, exp.And) != is_negated else Or(parts)
        lowered = bind_predicate(node, self.binder)
        if isinstance(lowered, Truth) and type(node) in _COMPARED:
            lowered = self._difference(node) or lowered
        if isinstance(lowered, Truth) and not lowered.scalar.sql:
            return None
        leaf = _normal(lowered, is_negated)
        if leaf is not None and any(_EARLIER.search(scalar.sql) for scalar in scalars_of(leaf)):
            self.parsed.fail(
                "WITH CONFIDENCE can't decide LAG early: the window before may still be open", node
            )
        if leaf is None:
            self.parsed.fail(
                "WITH CONFIDENCE decides comparisons of numbers, such as sum(x) > 10 or avg(x) < avg(y), combined "
                "by AND, OR and NOT; this condition can't be decided early",
                node,
            )
        return leaf

    def _difference(self, node: exp.Expr) -> Predicate | None:
        """A comparison of two numbers as one of their difference with 0."""
        left, right = (self.binder.scalar(side) for side in (node.this, node.expression))
        if left is None or right is None:
            return UNTYPED
        if not is_number(left.type) or not is_number(right.type):
            return None
        text = f"({left.sql}) - ({right.sql})"
        kind = self.typed(text, node)
        return (
            UNTYPED if kind is None else Comparison(Scalar(text, kind), COMPARISON_OPERATORS[type(node)], 0)
        )


def _normal(leaf: Predicate, is_negated: bool) -> Predicate | None:
    """A leaf, perhaps negated, that can be decided early; None if it can't."""
    match leaf:
        case And(parts) | Or(parts):  # BETWEEN
            found = [_normal(part, is_negated) for part in parts]
            known = tuple(part for part in found if part is not None)
            if len(known) < len(found):
                return None
            return And(known) if isinstance(leaf, And) != is_negated else Or(known)
        case Not(part):
            return _normal(part, not is_negated)
    if is_fixed(leaf):
        return Not(leaf) if is_negated else leaf
    if isinstance(leaf, Member) and is_number(leaf.scalar.type) and not leaf.null:
        parts = tuple(Comparison(leaf.scalar, "!=" if is_negated else "=", value) for value in leaf.values)
        return And(parts) if is_negated else Or(parts)
    if not is_estimated(leaf) or not isinstance(leaf, Comparison):
        return None
    return Comparison(leaf.scalar, _NEGATED[leaf.op], leaf.value) if is_negated else leaf
