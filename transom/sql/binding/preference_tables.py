"""Static tables of queries WITH PREFERENCE: each is joined to the tuples of one stream when they arrive."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.joins import PlacedTable, bind_tables
from transom.sql.binding.scope import FromItem, Scope
from transom.sql.catalog import Catalog
from transom.sql.query import Join, Predicate
from transom.sql.syntax.canonical import Printer


@dataclass(frozen=True)
class SideTables:
    """The static tables of a query, each with the side that it is joined to."""

    scope: Scope
    tables: tuple[tuple[PlacedTable, int], ...] = ()

    def side_of(self, source: FromItem) -> int:
        """The side whose tuples have the columns of a relation."""
        if not source.table:
            return self.scope.streams.index(source)
        return next(side for table, side in self.tables if table.source is source)

    def sides_of(self, node: exp.Expr) -> set[int]:
        """The sides that an expression reads."""
        return {self.side_of(self.scope.sources[place]) for place in self.scope.reads(node)}

    def columns(self, side: int) -> dict[str, pa.DataType]:
        """The columns that a side's tables add to its rows."""
        columns: dict[str, pa.DataType] = {}
        for table in self._of(side):
            columns[table.join.id] = pa.bool_()
            if not table.join.is_membership:
                relation = table.source.relation
                columns |= {f"{table.join.id}.{name}": kind for name, kind in relation.columns.items()}
        return columns

    def flags(self, side: int) -> list[Predicate]:
        """The conditions by which a side's tuples have the matches that inner joins need."""
        flags = [table.flag for table in self._of(side) if table.flag is not None]
        return [flag for place, flag in enumerate(flags) if flag not in flags[:place]]

    def joins(self, side: int, names: Collection[str]) -> tuple[Join, ...]:
        """The joins of a side, with the columns that the query reads: those named, and those in conditions of joins."""
        joins: dict[str, Join] = {}
        for table in self._of(side):
            join, source = table.join, table.source
            read = {name for name in source.relation.columns if f"{join.id}.{name}" in names} | source.used
            if join.id in joins:
                read |= set(joins[join.id].columns)
            columns = tuple(
                name for name in source.relation.columns if name in read and name not in join.keys
            )
            joins[join.id] = replace(join, columns=columns)
        return tuple(joins.values())

    def _of(self, side: int) -> list[PlacedTable]:
        return [table for table, other in self.tables if other == side]


def bind_side_tables(
    scope: Scope, catalog: Catalog, joined: Iterable[tuple[FromItem, exp.Join]], where: list[exp.Expr]
) -> tuple[SideTables, list[exp.Expr]]:
    """The static tables of a query, and the conditions of WHERE that do not join them."""

    def column_text(node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            return scope.without_parentheses(node) or scope.column(node).sql
        return None

    bound = bind_tables(scope, Printer(scope.parsed, catalog.functions, column_text), joined, where)
    tables = SideTables(scope)
    for table in bound.tables:
        sides = {tables.side_of(scope.sources[place]) for place in table.reads}
        if len(sides) > 1:
            message = (
                f"the condition of {table.source.shown} reads both streams; it can be joined to one of them"
            )
            scope.parsed.fail(message, table.source.node)
        tables = replace(tables, tables=(*tables.tables, (table, min(sides, default=0))))
        _check_matches(scope, catalog, table, tables.columns(min(sides, default=0)))
    return tables, bound.where


def _check_matches(
    scope: Scope, catalog: Catalog, table: PlacedTable, columns: dict[str, pa.DataType]
) -> None:
    """Refuse a table of which several rows may match a tuple: all queries over a summary share its tuples."""
    join, relation = table.join, table.source.relation
    if join.is_membership:
        return
    known = columns | {
        name: kind for source in scope.streams for name, kind in source.relation.columns.items()
    }
    for key in join.keys:
        column = f"`{join.id}.{key}`"
        others = re.findall(rf"{re.escape(column)} = `([^`]+)`(?= AND |$)", join.on)
        if not any(_are_compared_exactly(known.get(other), relation.columns[key]) for other in others):
            message = f"{key} of {table.source.shown} is compared with an expression or another type"
            message += "; WITH PREFERENCE, compare it with a column of the same type"
            scope.parsed.fail(message, table.source.node)
    if not join.keys or not catalog.is_unique(relation.name, join.keys):
        keys = ", ".join(join.keys)
        which = f"rows of {relation.name} have equal {keys}" if keys else "the condition has no equality"
        message = (
            f"a row of a stream may match several rows of {table.source.shown}: {which}; WITH PREFERENCE, a "
        )
        message += "static table has one row for each key"
        scope.parsed.fail(message, table.source.node)


def _are_compared_exactly(one: pa.DataType | None, other: pa.DataType) -> bool:
    """Whether a value of one type equals at most one value of the other: integers are widened, not rounded."""
    return one == other or (one is not None and pa.types.is_integer(one) and pa.types.is_integer(other))
