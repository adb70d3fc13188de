"""The FROM clause: one stream, and the tables joined to it by JOIN or by comma and WHERE."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Iterator, NoReturn

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.scope import FromItem, ResolvedColumn, Scope
from transom.sql.query import Join, Predicate, Scalar, Truth
from transom.sql.syntax.canonical import Printer, bare, quote


@dataclass
class _Pending:
    """A table that is joined as soon as all relations in its condition are joined."""

    source: FromItem
    node: exp.Join
    inner: bool
    comma: bool
    conjuncts: list[exp.Expr] = field(default_factory=list)


@dataclass
class BoundJoins:
    """The joins in order, the match flags that INNER JOINs require, and the rest of WHERE."""

    joins: list[tuple[FromItem, str, tuple[str, ...]]] = field(default_factory=list)
    flags: list[Predicate] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)

    def finish(self) -> tuple[Join, ...]:
        """The joins, with the columns that the query reads."""
        merged: dict[str, Join] = {}
        for source, on, keys in self.joins:
            assert source.id is not None
            read = set(source.used)
            if source.id in merged:
                read |= set(merged[source.id].columns)
            columns = tuple(name for name in source.relation.columns if name in read and name not in keys)
            merged[source.id] = Join(source.id, source.relation.name, on, keys, columns)
        return tuple(merged.values())


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that AND connects."""
    if node is None:
        return
    node = bare(node)
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def bind_joins(scope: Scope, printer: Printer) -> BoundJoins:
    """Read the FROM clause into the scope and join each table to the relations before it."""
    select = scope.parsed.select
    if select.args.get("from_") is None:
        scope.parsed.fail("expected FROM and the name of a stream", select)
    pending = _read(scope)
    if all(source.table for source in scope.sources):
        scope.parsed.fail("a query needs a stream; this is a static table", scope.sources[0].node)
    where = select.args.get("where")
    result = BoundJoins(where=list(conjuncts(where.this if where is not None else None)))
    placed = {scope.sources.index(scope.stream)}
    while pending:
        ready = next((table for table in pending if _link(scope, table, placed, result.where)), None)
        if ready is None:
            _no_link(scope, printer, pending[0], result.where)
        _place(scope, printer, ready, result)
        placed.add(scope.sources.index(ready.source))
        pending.remove(ready)
    return result


def _read(scope: Scope) -> list[_Pending]:
    select, pending = scope.parsed.select, []
    first = scope.add(select.args["from_"].this)
    joins = list(select.args.get("joins") or [])
    if first.table:
        pending.append(_Pending(first, exp.Join(this=first.node), inner=True, comma=True))
    for node in joins:
        source = scope.add(node.this)
        comma = node.args.get("kind") == "CROSS" or not (node.args.get("on") or node.args.get("using"))
        if not source.table:
            if not comma:
                scope.parsed.fail("the stream comes first, then the tables joined to it", node.this)
            continue
        pending.append(_Pending(source, node, inner=node.args.get("side") != "LEFT", comma=comma))
    for table in pending:
        table.conjuncts = _conditions(scope, table)
    return pending


def _conditions(scope: Scope, table: _Pending) -> list[exp.Expr]:
    """The conjuncts of ON; USING (a) is spelled out as an equality."""
    using = table.node.args.get("using")
    if not using:
        return list(conjuncts(table.node.args.get("on")))
    made: list[exp.Expr] = []
    for identifier in using:
        left = exp.Column(this=identifier.copy())
        own = exp.Column(this=identifier.copy(), table=exp.to_identifier(table.source.alias, quoted=True))
        table.source.hidden |= {scope.column(own).name}
        made.append(exp.EQ(this=own, expression=left))
    return made


def _own_key(
    scope: Scope, table: FromItem, node: exp.Expr, placed: set[int] | None = None
) -> tuple[ResolvedColumn, exp.Expr] | None:
    """The table's column and the other side, when a conjunct equates the two."""
    if not isinstance(node, exp.EQ):
        return None
    place = scope.sources.index(table)
    for this, other in ((node.this, node.expression), (node.expression, node.this)):
        this, other = bare(this), bare(other)
        if isinstance(this, exp.Column) and scope.reads(this) == {place}:
            column, reads = scope.column(this), scope.reads(other)
            if reads and place not in reads and not column.fields and (placed is None or reads <= placed):
                return column, other
    return None


def _link(scope: Scope, table: _Pending, placed: set[int], where: list[exp.Expr]) -> bool:
    """Whether a table can be joined now; after a comma, its conditions come from WHERE."""
    if table.comma:
        mine = [node for node in where if _own_key(scope, table.source, node, placed)]
        table.conjuncts = mine
        where[:] = [node for node in where if not any(node is taken for taken in mine)]
        return bool(mine)
    own = {scope.sources.index(table.source)}
    reads = set().union(*(scope.reads(node) for node in table.conjuncts))
    return reads <= placed | own and any(_own_key(scope, table.source, node) for node in table.conjuncts)


def _no_link(scope: Scope, printer: Printer, table: _Pending, where: list[exp.Expr]) -> NoReturn:
    # An unknown name is the cause of the missing condition, and the better error.
    for node in table.conjuncts:
        printer.text(node)
    for column in (part for node in where for part in node.find_all(exp.Column)):
        scope.column(column)
    name = table.source.alias
    example = f"for example ... = {name}.{next(iter(table.source.relation.columns), 'column')}"
    scope.parsed.fail(
        f"no equality links {name} to the stream or to a table before it; {example}", table.source.node
    )


def _place(scope: Scope, printer: Printer, table: _Pending, result: BoundJoins) -> None:
    source = table.source
    source.id = source.relation.name
    condition = _condition(scope, printer, table)
    digest = sha1(f"{source.relation.name}\n{condition}".encode()).hexdigest()[:8]
    source.id = f"{source.relation.name}#{digest}"
    pairs = [_own_key(scope, source, node) for node in table.conjuncts]
    keys = {pair[0].name for pair in pairs if pair}
    ordered = tuple(name for name in source.relation.columns if name in keys)
    result.joins.append((source, _condition(scope, printer, table), ordered))
    flag = Truth(Scalar(quote(source.id), pa.bool_()))
    if table.inner and flag not in result.flags:
        result.flags.append(flag)


def _condition(scope: Scope, printer: Printer, table: _Pending) -> str:
    """The canonical text of ON: the table's column first, conjuncts sorted, so that equal joins are equal strings."""
    parts = set()
    for node in table.conjuncts:
        pair = _own_key(scope, table.source, node)
        if pair:
            parts.add(f"{pair[0].sql} = {_operand(printer, pair[1])}")
        else:
            parts.add(_operand(printer, node) if isinstance(node, exp.Or) else printer.text(node))
    return " AND ".join(sorted(parts))


def _operand(printer: Printer, node: exp.Expr) -> str:
    text = printer.text(node)
    return f"({text})" if isinstance(node, (exp.Binary, exp.Not)) else text
