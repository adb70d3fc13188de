"""Forms of Spark SQL that are written with simpler ones: LIKE ANY, LIKE ALL, and IN with tuples.

They become comparisons with AND and OR, so that queries share them like all comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from transom.errors import SQLError
from transom.sql.syntax.parsed_query import span

FORM_TOKENS = frozenset(
    {TokenType.LIKE, TokenType.ILIKE, TokenType.IN}
)  # a text without them has no such form
COPIED = "copied"  # marks literals that occur more than once in the tree: a template does not replace them


def rewrite_spark_forms(text: str, tree: exp.Expr) -> None:
    """Rewrite the forms in a syntax tree, in place."""
    for node in list(tree.find_all(exp.Like, exp.ILike, exp.In)):
        if isinstance(node, exp.In):
            if isinstance(node.this, exp.Tuple):
                node.replace(_tuple_member(text, node))
        elif isinstance(node.expression, exp.Any | exp.All):
            node.replace(_quantified(text, node))


def _quantified(text: str, node: exp.Expr) -> exp.Expr:
    """`a LIKE ANY (p, q)` is `(a LIKE p OR a LIKE q)`; NOT LIKE ANY is true if one pattern does not match."""
    quantifier = node.expression
    if isinstance(node.parent, exp.Escape):
        _fail(text, "ESCAPE can't follow LIKE ANY or LIKE ALL", node.parent)
    listed = quantifier.this
    patterns = (
        listed.expressions
        if isinstance(listed, exp.Tuple)
        else [listed.this]
        if isinstance(listed, exp.Paren)
        else []
    )
    if not patterns:
        word = type(quantifier).__name__.upper()
        _fail(text, f"LIKE {word} needs a list of patterns: LIKE {word} ('a%', 'b%')", node)
    lefts = _copies(node.this, len(patterns))
    parts = [
        type(node)(this=left, expression=pattern, negate=node.args.get("negate"))
        for left, pattern in zip(lefts, patterns, strict=True)
    ]
    return exp.Paren(this=_joined(exp.Or if isinstance(quantifier, exp.Any) else exp.And, parts))


def _tuple_member(text: str, node: exp.In) -> exp.Expr:
    """`(a, b) IN ((1, 2), (3, 4))`: equal tuples have equal values at each place, where null equals null."""
    names, rows = node.this.expressions, node.expressions
    if not rows:
        _fail(text, "IN needs a list of tuples: (a, b) IN ((1, 2), (3, 4))", node)
    for row in rows:
        if not isinstance(row, exp.Tuple) or len(row.expressions) != len(names):
            _fail(text, f"expected a tuple of {len(names)} values", row)
        for value in row.expressions:
            if isinstance(value, exp.Null):
                _fail(text, "NULL in a tuple is not supported: Spark refuses it, because it has no type", row)
    lefts = [_copies(name, len(rows)) for name in names]
    parts = [
        exp.Paren(
            this=_joined(
                exp.And,
                [
                    exp.NullSafeEQ(this=_operand(left[at]), expression=_operand(value))
                    for left, value in zip(lefts, row.expressions, strict=True)
                ],
            )
        )
        for at, row in enumerate(rows)
    ]
    return exp.Paren(this=_joined(exp.Or, parts))


def _operand(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Binary | exp.Not | exp.Between | exp.In) else node


def _copies(node: exp.Expr, count: int) -> list[exp.Expr]:
    """A node as often as it is needed; its literals are marked if there are several."""
    if count > 1:
        for literal in node.find_all(exp.Literal):
            literal.meta[COPIED] = True
    return [node.copy() for _ in range(count)]


def _joined(kind: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    """The parts connected by AND or OR, as a balanced tree: thousands of them don't make it deep."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return kind(this=_joined(kind, parts[:middle]), expression=_joined(kind, parts[middle:]))


def _fail(text: str, message: str, node: exp.Expr) -> NoReturn:
    raise SQLError(message, text, *span(text, node))
