"""Conditions that search a static table: IN and EXISTS with a subquery, and the bounds of range joins.

`x IN (SELECT k FROM t)` is a SEMI JOIN for an equal key. `x NOT IN (SELECT k FROM t)` is three ANTI JOINs: for an equal
key, for a null key, and, if x is null, for any row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from transom.sql.binding.scope import FromItem, Scope
from transom.sql.syntax.canonical import bare

_AT_LEAST: dict[type[exp.Expr], bool] = {exp.GT: True, exp.GTE: True, exp.LT: False, exp.LTE: False}
_Condition = Callable[
    [exp.Expr, exp.Expr], exp.Expr
]  # over the key of the table and the value that is sought


class SearchKind(Enum):
    """Whether a row is kept if some row of the table satisfies the condition, or if none does."""

    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True)
class SubqueryCondition:
    """A search in a table: the table, and the conjuncts of its condition."""

    source: FromItem
    conjuncts: list[exp.Expr]
    kind: SearchKind
    is_free: bool


def subquery_conditions(scope: Scope, node: exp.Expr) -> list[SubqueryCondition] | None:
    """The searches of a condition of WHERE; None if it has no subquery."""
    inner, is_negated = bare(node), False
    while isinstance(inner, exp.Not):
        inner, is_negated = bare(inner.this), not is_negated
    if isinstance(inner, exp.Exists):
        return _Reader(scope, inner, inner.this).exists(is_negated)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return _Reader(scope, inner, inner.args["query"].this).member(inner.this, is_negated)
    for part in node.find_all(exp.Exists, exp.In):
        if isinstance(part, exp.Exists) or part.args.get("query") is not None:
            message = "a subquery must be a whole condition of WHERE; connect it with others by AND only"
            scope.parsed.fail(message, part)
    return None


class _Reader:
    """Reads a subquery in WHERE."""

    def __init__(self, scope: Scope, place: exp.Expr, select: exp.Expr):
        self.scope, self.parsed, self.place = scope, scope.parsed, place
        if not isinstance(select, exp.Select):
            self.parsed.fail("expected SELECT in the subquery", place)
        self.select = select
        for clause, value in select.args.items():
            if value and clause not in ("expressions", "from_", "where", "distinct", "operation_modifiers"):
                word = clause.upper().rstrip("_")
                self.parsed.fail(f"{word} is not supported in a subquery of WHERE", select.expressions[0])
        if select.args.get("from_") is None:
            self.parsed.fail("the subquery needs FROM and the name of a static table", select.expressions[0])

    def exists(self, is_negated: bool) -> list[SubqueryCondition]:
        kind = SearchKind.ANTI if is_negated else SearchKind.SEMI
        source = self._source()
        return [SubqueryCondition(source, self._where(source), kind, is_free=False)]

    def member(self, sought: exp.Expr, is_negated: bool) -> list[SubqueryCondition]:
        if len(self.select.expressions) != 1 or isinstance(bare(sought), exp.Tuple):
            self.parsed.fail("a subquery after IN selects one column", self.select.expressions[-1])
        item = self.select.expressions[0]
        if not isinstance(bare(item.unalias()), exp.Column) or isinstance(
            bare(item.unalias()).this, exp.Star
        ):
            self.parsed.fail(
                "a subquery after IN selects a column of the table, not an expression", self.place
            )
        kind = SearchKind.ANTI if is_negated else SearchKind.SEMI
        first = self._with(sought, item, lambda key, value: exp.EQ(this=key, expression=value), kind)
        if not is_negated:
            return [first]
        null_key = self._with(sought, item, lambda key, _: _is_null(key), kind)
        null_value = self._with(sought, item, lambda _, value: _is_null(value), kind)
        return [first, null_key, null_value]

    def _with(
        self, sought: exp.Expr, item: exp.Expr, condition: _Condition, kind: SearchKind
    ) -> SubqueryCondition:
        """A search with one more condition, over the selected key and the sought value."""
        source = self._source()
        key = self._qualified(bare(item.unalias()).copy(), source)
        comparison = condition(key, bare(sought).copy())
        is_free = not isinstance(comparison, exp.EQ)
        return SubqueryCondition(source, [comparison, *self._where(source)], kind, is_free)

    def _source(self) -> FromItem:
        """The table, under a name of its own; its columns are found by that name only."""
        source = self.scope.add_searched(self.select.args["from_"].this)
        source.hidden |= set(source.relation.columns)
        return source

    def _where(self, source: FromItem) -> list[exp.Expr]:
        where = self.select.args.get("where")
        return (
            [] if where is None else [self._qualified(part.copy(), source) for part in _conjuncts(where.this)]
        )

    def _qualified(self, node: exp.Expr, source: FromItem) -> exp.Expr:
        """An expression of the subquery: names are those of its table first, then those of the query around it."""
        if isinstance(node, exp.Column):
            node = exp.Paren(this=node)  # so that it can be replaced
        for column in list(node.find_all(exp.Column)):
            parts = [part.name.casefold() for part in column.parts]
            own = source.shown.casefold()
            is_own = parts[0] == own and len(parts) > 1 if parts[0] == own else parts[0] in source.folded
            if is_own:
                rest = column.parts[1:] if parts[0] == own and len(parts) > 1 else column.parts
                name: exp.Expr = exp.Column(
                    this=rest[0].copy(), table=exp.to_identifier(source.alias, quoted=True)
                ).update_positions(column)
                for field in rest[1:]:
                    name = exp.Dot(this=name, expression=field.copy())
                column.replace(name)
        return bare(node)


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=node, expression=exp.Null())


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = bare(node)
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def column_bounds(scope: Scope, table: FromItem, node: exp.Expr) -> Iterator[tuple[str, bool, exp.Expr]]:
    """The columns of a table that a condition bounds: the column, whether it is at least the other side, and that."""
    node = bare(node)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        comparisons = [(node.this, node.args["low"], True), (node.this, node.args["high"], False)]
    elif type(node) in _AT_LEAST:
        comparisons = [(node.this, node.expression, _AT_LEAST[type(node)])]
    else:
        return
    place = scope.sources.index(table)
    for left, right, is_least in comparisons:
        for this, other, at_least in ((left, right, is_least), (right, left, not is_least)):
            this, other = bare(this), bare(other)
            if not isinstance(this, exp.Column) or scope.reads(this) != {place}:
                continue
            reads, column = scope.reads(other), scope.column(this)
            if reads and place not in reads and not column.fields:
                yield column.name, at_least, other
