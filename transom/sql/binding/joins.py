"""The FROM clause: one stream or a join of two, and the tables joined to it by JOIN or by comma and WHERE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Iterable, Iterator, NoReturn

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.scope import FromItem, ResolvedColumn, Scope
from transom.sql.binding.stream_joins import JoinedSides, PairStream, bind_stream_join
from transom.sql.binding.subquery_conditions import SearchKind, column_bounds, subquery_conditions
from transom.sql.query import ColumnBound, Join, JoinForm, Not, Predicate, Scalar, Truth
from transom.sql.syntax.canonical import Printer, bare, quote


@dataclass
class _Pending:
    """A table that is joined as soon as all relations in its condition are joined."""

    source: FromItem
    node: exp.Join
    inner: bool
    comma: bool
    conjuncts: list[exp.Expr] = field(default_factory=list)
    membership: SearchKind | None = None  # of a SEMI or ANTI JOIN, of IN and of EXISTS
    is_free: bool = False  # whether the condition may lack a link to the row


@dataclass(frozen=True)
class PlacedTable:
    """A table, its join without the columns that are read, and the flag that a row needs to be in the result.

    `reads` are the places in FROM of the relations that it is joined to.
    """

    source: FromItem
    join: Join
    flag: Predicate | None
    reads: frozenset[int]


@dataclass
class BoundJoins:
    """The joins in order, the match flags that INNER JOINs require, and the rest of WHERE."""

    tables: list[PlacedTable] = field(default_factory=list)
    flags: list[Predicate] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    pairs: PairStream | None = None  # of a join of two streams

    def finish(self) -> tuple[Join, ...]:
        """The joins, with the columns that the query reads."""
        merged: dict[str, Join] = {}
        for table in self.tables:
            source, join = table.source, table.join
            read = set(source.used)
            if join.id in merged:
                read |= set(merged[join.id].columns)
            columns = tuple(
                name for name in source.relation.columns if name in read and name not in join.keys
            )
            merged[join.id] = replace(join, columns=columns)
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
    pending, conditions, joined = _read(scope)
    if all(source.table for source in scope.sources):
        scope.parsed.fail("a query needs a stream; this is a static table", scope.sources[0].node)
    where = select.args.get("where")
    result = BoundJoins(where=list(conjuncts(where.this if where is not None else None)))
    pending += _memberships(scope, result.where)
    if len(scope.streams) > 1:
        result.pairs, result.where = bind_stream_join(scope, printer, conditions, result.where, joined)
    _place_all(scope, printer, pending, result)
    return result


def bind_tables(
    scope: Scope, printer: Printer, tables: Iterable[tuple[FromItem, exp.Join]], where: list[exp.Expr]
) -> BoundJoins:
    """Join static tables, given with their JOINs, to the streams of a scope; after a comma by conditions of WHERE."""
    pending = [_pending(scope, source, node) for source, node in tables]
    for table in pending:
        table.conjuncts = _conditions(scope, table)
    result = BoundJoins(where=where)
    pending += _memberships(scope, result.where)
    _place_all(scope, printer, pending, result)
    return result


def _place_all(scope: Scope, printer: Printer, pending: list[_Pending], result: BoundJoins) -> None:
    """Join tables in an order in which each has a link to those before it."""
    placed = {place for place, source in enumerate(scope.sources) if not source.table}
    while pending:
        ready = next((table for table in pending if _link(scope, table, placed, result.where)), None)
        if ready is None:
            _no_link(scope, printer, pending[0], result.where)
        _place(scope, printer, ready, result)
        placed.add(scope.sources.index(ready.source))
        pending.remove(ready)
    for source in scope.sources:
        source.is_closed = source.is_membership


def _memberships(scope: Scope, where: list[exp.Expr]) -> list[_Pending]:
    """The tables that IN and EXISTS search; their conditions are removed from WHERE."""
    pending = []
    for node in list(where):
        searches = subquery_conditions(scope, node)
        if searches is not None:
            where[:] = [other for other in where if other is not node]
            pending += [
                _Pending(
                    search.source,
                    exp.Join(this=search.source.node),
                    True,
                    False,
                    search.conjuncts,
                    search.kind,
                    search.is_free,
                )
                for search in searches
            ]
    return pending


def _read(scope: Scope) -> tuple[list[_Pending], list[exp.Expr], JoinedSides]:
    """The tables that are joined, and the conditions of a join with a second stream, and what the join preserves."""
    select, pending, streams = scope.parsed.select, list[_Pending](), list[_Pending]()
    first = scope.add(select.args["from_"].this)
    joins = list(select.args.get("joins") or [])
    if first.table:
        pending.append(_Pending(first, exp.Join(this=first.node), inner=True, comma=True))
    for node in joins:
        source = scope.add(node.this)
        (pending if source.table else streams).append(_pending(scope, source, node))
    for table in (*streams, *pending):
        table.conjuncts = _conditions(scope, table)
    joined = JoinedSides()
    for stream in streams:
        if all(source.table for source in scope.sources[: scope.sources.index(stream.source)]):
            if not stream.comma:
                scope.parsed.fail("the stream comes first, then the tables joined to it", stream.node.this)
        elif stream.membership is not None:
            joined = JoinedSides(JoinForm(stream.membership.name.lower()), (True, False))
        elif not stream.inner:
            side = stream.node.args["side"]
            joined = JoinedSides(JoinForm.OUTER, (side in ("LEFT", "FULL"), side in ("RIGHT", "FULL")))
        if joined.form is not JoinForm.INNER and stream.node.args.get("using"):
            message = (
                "an outer, semi or anti join of two streams needs ON: USING has no place for the time bound"
            )
            scope.parsed.fail(message, stream.node.this)
        if (
            joined.form is not JoinForm.INNER
            and pending
            and scope.sources.index(pending[0].source) < (scope.sources.index(stream.source))
        ):
            message = (
                f"the join of two streams comes first, then static tables such as {pending[0].source.shown}"
            )
            scope.parsed.fail(message, pending[0].source.node)
    return pending, [node for stream in streams for node in stream.conjuncts], joined


def _pending(scope: Scope, source: FromItem, node: exp.Join) -> _Pending:
    """A relation of a JOIN, without its conditions."""
    kind = node.args.get("kind")
    comma = kind == "CROSS" or not (node.args.get("on") or node.args.get("using"))
    membership = SearchKind[kind] if kind in ("SEMI", "ANTI") else None
    source.is_membership = membership is not None
    side = node.args.get("side")
    if source.table and side in ("RIGHT", "FULL"):
        message = (
            f"{side} JOIN of a static table is not supported: rows of the table without a match have no "
            "event time; use INNER JOIN or LEFT JOIN"
        )
        scope.parsed.fail(message, node.this)
    inner = membership is not None or side is None or side == ""
    return _Pending(source, node, inner, comma, membership=membership)


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
    if not reads <= placed | own:
        return False
    is_linked = any(_own_key(scope, table.source, node) for node in table.conjuncts)
    return is_linked or table.is_free or _is_range(scope, table)


def _is_range(scope: Scope, table: _Pending) -> bool:
    """Whether conditions give columns of a table a lower and an upper bound."""
    bounds = [bound for node in table.conjuncts for bound in column_bounds(scope, table.source, node)]
    return {is_least for _, is_least, _ in bounds} == {True, False}


def _no_link(scope: Scope, printer: Printer, table: _Pending, where: list[exp.Expr]) -> NoReturn:
    # An unknown name is the cause of the missing condition, and the better error.
    for node in table.conjuncts:
        printer.text(node)
    for column in (part for node in where for part in node.find_all(exp.Column)):
        scope.column(column)
    name = table.source.shown
    example = f"{name}.{next(iter(table.source.relation.columns), 'column')}"
    scope.parsed.fail(
        f"no equality links {name} to the stream or to a table before it; for example ... = {example}, "
        "or a range with both bounds, such as ... BETWEEN low AND high",
        table.source.node,
    )


def _place(scope: Scope, printer: Printer, table: _Pending, result: BoundJoins) -> None:
    source = table.source
    source.id = source.relation.name
    condition = _condition(scope, printer, table)
    kind = "\nmembership" if table.membership is not None else ""
    digest = sha1(f"{source.relation.name}\n{condition}{kind}".encode()).hexdigest()[:8]
    source.id = f"{source.relation.name}#{digest}"
    pairs = [_own_key(scope, source, node) for node in table.conjuncts]
    keys = {pair[0].name for pair in pairs if pair}
    ordered = tuple(name for name in source.relation.columns if name in keys)
    bounds = tuple(
        ColumnBound(column, is_least, printer.root(other))
        for node in table.conjuncts
        for column, is_least, other in column_bounds(scope, source, node)
    )
    apart = _apart(scope, printer, table) if table.is_free else None
    on = _condition(scope, printer, table)
    join = Join(source.id, source.relation.name, on, ordered, (), bounds, table.membership is not None, apart)
    flag: Predicate = Truth(Scalar(quote(source.id), pa.bool_()))
    if table.membership is SearchKind.ANTI:
        flag = Not(flag)
    reads = set[int]().union(*(scope.reads(node) for node in table.conjuncts)) - {scope.sources.index(source)}
    result.tables.append(PlacedTable(source, join, flag if table.inner else None, frozenset(reads)))
    if table.inner and flag not in result.flags:
        result.flags.append(flag)


def _apart(scope: Scope, printer: Printer, table: _Pending) -> tuple[str, str] | None:
    """The conditions over the row, and those over the table; None if one reads both."""
    place = scope.sources.index(table.source)
    parts: tuple[list[str], list[str]] = ([], [])
    for node in table.conjuncts:
        reads = scope.reads(node)
        if place in reads and len(reads) > 1:
            return None
        parts[scope.reads(node) == {place}].append(_operand(printer, node))
    row, own = (" AND ".join(sorted(texts)) or "true" for texts in parts)
    return row, own


def _condition(scope: Scope, printer: Printer, table: _Pending) -> str:
    """The canonical text of ON: the table's column first, conjuncts sorted, so that equal joins are equal strings."""
    parts = set()
    for node in table.conjuncts:
        pair = _own_key(scope, table.source, node)
        if pair:
            parts.add(f"{pair[0].sql} = {_operand(printer, pair[1])}")
        else:
            parts.add(_operand(printer, node) if isinstance(node, exp.Or) else printer.text(node))
    return " AND ".join(sorted(parts)) or "true"


def _operand(printer: Printer, node: exp.Expr) -> str:
    text = printer.text(node)
    return f"({text})" if isinstance(node, (exp.Binary, exp.Not)) else text
