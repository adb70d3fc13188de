"""Queries over a subquery in FROM, over a name that WITH defines, or over a view: the inner query is inlined.

The inner query filters and projects one stream, or one static table that is joined. Its expressions take the place of
the columns that the outer query reads, and its WHERE is added to the outer one, so that the query shares as if it was
written by hand. The stream's columns are then read by the alias of the subquery only; `Parsed.inlined` hides them
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from transom.aggregates.table import is_aggregate_name
from transom.errors import SQLError, near_miss
from transom.sql.binding.grouping_sets import EXPANDED, expand_grouping_sets
from transom.sql.binding.unions_and_explode import (
    GENERATORS,
    DerivedStreamBinder,
    common_types,
    flattened,
    generator_of,
    name_by_place,
    wrap_lateral_views,
)
from transom.sql.binding.window import is_window
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.clauses.query_parser import parse_view
from transom.sql.derived_stream import DerivedStream
from transom.sql.interpreter.types import TYPE_NAMES
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import (
    NAME_OF,
    NAMED,
    OF_COLUMN,
    OF_ITEM,
    OR_ITEM,
    WRITTEN,
    Bracket,
    Parsed,
)
from transom.sql.syntax.spark_forms import COPIED

_INNER_CLAUSES = ("expressions", "from_", "where")
_CLAUSE_WORDS = {
    "group": "GROUP BY",
    "having": "HAVING",
    "joins": "a join",
    "order": "ORDER BY",
    "limit": "LIMIT",
}
_MOST_PARTS = 4  # of a column's name
_MOST_NODES = 20_000  # of the expressions that are copied into a query
_MOST_UNION_PARTS = 256


@dataclass(frozen=True)
class _Derived:
    """An inlined inner query: its relation, its WHERE, and its columns by their names in lower case."""

    alias: str
    table: exp.Table
    where: exp.Expr | None
    columns: Mapping[str, tuple[str, exp.Expr]]
    stream: DerivedStream | None = None  # the relation, if it is a derived stream
    parts: tuple[_Derived, ...] = ()  # of a relation that is a union

    def without_positions(self, text: str) -> _Derived:
        """The inner query of a view, whose positions are not those of the query's text."""
        parts = [expression for _, expression in self.columns.values()]
        for part in [*parts, *([self.where] if self.where is not None else [])]:
            for node in part.walk():
                if isinstance(node, exp.Literal | exp.RawString | exp.HexString) and "start" in node.meta:
                    node.meta.setdefault(WRITTEN, text[node.meta["start"] : node.meta["end"] + 1])
                for place in ("start", "end", "line", "col"):
                    node.meta.pop(place, None)
                if isinstance(node, exp.Literal):
                    node.meta[COPIED] = True
        for each in self.parts:
            each.without_positions(text)
        return self


def inline_derived_streams(parsed: Parsed, catalog: Catalog, scalars: Scalars) -> Parsed:
    """A query over a stream in place of a query over a subquery; other queries stay as they are."""
    _refuse_column_lists(parsed)
    select = parsed.select
    wrap_lateral_views(parsed, select)
    relations = {**catalog.tables, **catalog.streams}
    expand_grouping_sets(parsed, {name: relation.columns for name, relation in relations.items()})
    views = {name.casefold() for name in catalog.views}
    if (
        select.args.get("with_") is None
        and select.find(exp.Subquery) is None
        and not (views and any(table.name.casefold() in views for table in select.find_all(exp.Table)))
    ):
        return parsed
    return _Inliner(parsed, catalog, scalars).query()


def view_columns(name: str, catalog: Catalog, scalars: Scalars) -> list[str]:
    """The columns of a view of the catalog, in order; an error points into the text of the view."""
    parsed = _parse_view(catalog.views[name])
    inner = _Inliner(parsed, catalog, scalars, (name,)).inner_query(name)
    return [shown for shown, _ in inner.columns.values()]


def _refuse_column_lists(parsed: Parsed) -> None:
    for alias in parsed.select.find_all(exp.TableAlias):
        if alias.args.get("columns") and not isinstance(alias.parent, exp.Lateral):
            parsed.fail(
                "a list of columns after an alias is not supported; rename columns with AS in SELECT", alias
            )


def _parse_view(text: str) -> Parsed:
    """The SELECT of a view; windows and the clauses at the end belong to the queries that read it."""
    parsed = parse_view(text)
    _refuse_column_lists(parsed)
    if parsed.bracket is not None:
        message = (
            "a view has no window: move the window to the queries that read the view, or register a query"
        )
        raise SQLError(message, text, parsed.bracket.start, parsed.bracket.end)
    for clause in parsed.clauses:
        parsed.fail_at("this clause belongs to the queries that read the view", clause)
    return parsed


class _CopiedNodes:
    """Counts what is copied into a query: each of a chain of definitions may double what it copies."""

    def __init__(self) -> None:
        self._nodes = 0

    def add(self, parsed: Parsed, expressions: Iterable[exp.Expr], place: exp.Expr) -> None:
        """Refuse copies of some expressions that are too many."""
        self._nodes += sum(1 for expression in expressions for _ in expression.walk())
        if self._nodes > _MOST_NODES:
            parsed.fail(
                f"the expressions of its subqueries and views have more than {_MOST_NODES:,} parts when they are "
                "written out",
                place,
            )


class _Inliner:
    """Inlines the inner queries of one text: of a query, or of a view that is read within others (`views`)."""

    def __init__(
        self,
        parsed: Parsed,
        catalog: Catalog,
        scalars: Scalars,
        views: tuple[str, ...] = (),
        copied: _CopiedNodes | None = None,
    ):
        self.parsed, self.catalog, self.scalars, self.opened = parsed, catalog, scalars, views
        self.copied = copied or _CopiedNodes()
        self.kind = "view" if views else "subquery"
        self.what = f"a {self.kind}"
        self.derived_binder = DerivedStreamBinder(parsed, catalog, scalars, self.what)
        self.named: dict[str, exp.CTE] = {}
        named = parsed.select.args.get("with_")
        if named is not None:
            if named.args.get("recursive"):
                parsed.fail("WITH RECURSIVE is not supported", named)
            parsed.select.set("with_", None)
            for each in named.expressions:
                if each.alias.casefold() in self.named:
                    parsed.fail(f"WITH defines {each.alias} twice", each.args["alias"])
                self.named[each.alias.casefold()] = each

    def query(self) -> Parsed:
        """The outer query, over the stream itself."""
        select = self.parsed.select
        joins = list(select.args.get("joins") or ())
        derived = self._of(select, frozenset(self.named))
        joined = {place: self._joined(join) for place, join in enumerate(joins)}
        inner = [each for each in (derived, *joined.values()) if each is not None]
        if not inner:
            return self.parsed
        for join in joins if derived is not None else ():
            if (side := join.args.get("side")) in ("RIGHT", "FULL"):
                message = (
                    f"{side} JOIN needs the name of a stream before it, not {self.what} or a view: their WHERE and "
                    "expressions would be evaluated after the join; write the condition in ON"
                )
                self.parsed.fail(message, join.this)
        self._refuse_expanded(select, joins, joined)
        others = self._others(select, derived, joins, joined)
        if derived is not None:
            select.set("from_", exp.From(this=_aliased(derived)))
        for place, each in joined.items():
            if each is not None:
                joins[place].set("this", _aliased(each))
        self._write_out_using(select, derived, joins, joined)
        if self.parsed.bracket is None and select.args.get("group") is None:
            self._write_out_stars(select, inner, others)
        self._substitute(select, inner, others)
        for each in inner:
            self._add_where(select, each.where)
        return replace(
            self.parsed,
            bracket=self.parsed.bracket if derived is None else self._bracket(derived),
            inlined=frozenset(each.alias.casefold() for each in inner),
            derived=None if derived is None else derived.stream,
        )

    def _write_out_stars(
        self, select: exp.Select, inner: Sequence[_Derived], others: Mapping[str, frozenset[str]]
    ) -> None:
        """Write the columns of the inner query in place of `*`, in a query that selects rows."""
        items: list[exp.Expr] = []
        for item in select.expressions:
            node = bare(item.unalias())
            is_qualified = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            alias = str(node.args["table"].name).casefold() if is_qualified else None
            named = [each for each in inner if alias in (None, each.alias.casefold())]
            if (not is_qualified and not isinstance(node, exp.Star)) or not named:
                items.append(item)
                continue
            if alias is None and (others or len(inner) > 1):
                self.parsed.fail("* is ambiguous in a join with a subquery or a view; name the columns", node)
            before = [exp.to_identifier(named[0].alias, quoted=True)] if named[0].alias else []
            items += [
                _column([*before, exp.to_identifier(name, quoted=True)])
                for name, _ in named[0].columns.values()
            ]
        select.set("expressions", items)

    def _refuse_expanded(
        self, select: exp.Select, joins: list[exp.Join], joined: Mapping[int, _Derived | None]
    ) -> None:
        streams = {name.casefold() for name in self.catalog.streams}
        for place, join in enumerate(joins if select.meta.get(EXPANDED) else ()):
            table = join.this if (inner := joined[place]) is None else inner.table
            if table.name.casefold() in streams:
                message = "a join of two streams has no GROUPING SETS, ROLLUP or CUBE: register a query for each set"
                self.parsed.fail(message, join.this)

    def _joined(self, join: exp.Join) -> _Derived | None:
        """The inner query that is joined; None if a stream or a table is."""
        derived = self._of_source(join.this, frozenset(self.named))
        if derived is None:
            return None
        what = "a view" if self._view_named(join.this) is not None else "a subquery"
        if join.args.get("side") or join.args.get("kind") not in (None, "", "INNER", "CROSS"):
            self.parsed.fail(f"{what} is joined by an inner JOIN only", join.this)
        if derived.stream is not None:
            self.parsed.fail(
                f"{what} with UNION ALL or explode can't be joined; it can take the place of the stream",
                join.this,
            )
        if not derived.alias:
            self.parsed.fail("a subquery that is joined needs an alias", join.this)
        return derived

    def _others(
        self,
        select: exp.Select,
        derived: _Derived | None,
        joins: list[exp.Join],
        joined: Mapping[int, _Derived | None],
    ) -> dict[str, frozenset[str]]:
        """The relations in FROM that are not inner queries, by alias, with the names of their columns."""
        tables = [] if derived is not None else [select.args["from_"].this]
        tables += [join.this for place, join in enumerate(joins) if joined[place] is None]
        found = {}
        for table in tables:
            if isinstance(table, exp.Table):
                relation = self._relation(table)
                names = () if relation is None else relation.columns
                found[(table.alias or table.name).casefold()] = frozenset(map(str.casefold, names))
        return found

    def _relation(self, table: exp.Table) -> Relation | None:
        relations = {**self.catalog.tables, **self.catalog.streams}
        same = (each for name, each in relations.items() if name.casefold() == table.name.casefold())
        return next(same, None)

    def _write_out_using(
        self,
        select: exp.Select,
        derived: _Derived | None,
        joins: list[exp.Join],
        joined: Mapping[int, _Derived | None],
    ) -> None:
        """Write `USING (k)` as the equality that it is; `k` alone is then the column of the first relation with it."""
        aliases = {item.alias.casefold() for item in select.expressions if isinstance(item, exp.Alias)}
        for place, join in enumerate(joins):
            if not join.args.get("using"):
                continue
            own = join.this.alias if joined[place] is None else joined[place].alias  # type: ignore[union-attr]
            own = own or join.this.name
            before = self._before(select, derived, joins[:place], joined)
            conditions: list[exp.Expr] = []
            for identifier in join.args["using"]:
                name = identifier.name.casefold()
                first = next((alias for alias, names in before.items() if name in names), None)
                if first is None:
                    self.parsed.fail(
                        f"no relation before {own} has the column {identifier.name} of USING", identifier
                    )
                for clause in ("expressions", "joins", "where", "group", "having", "order"):
                    value = select.args.get(clause)
                    for node in value if isinstance(value, list) else [value] if value is not None else []:
                        taken = aliases if clause in ("having", "order") else set()
                        for column in list(node.find_all(exp.Column)):
                            if (
                                len(column.parts) == 1
                                and column.name.casefold() == name
                                and name not in taken
                            ):
                                made = _column([exp.to_identifier(first, quoted=True), column.this.copy()])
                                made.meta[NAMED] = (column._meta or {}).get(NAMED, column.name)
                                column.replace(made)
                sides = (
                    _column([exp.to_identifier(alias, quoted=True), identifier.copy()])
                    for alias in (first, own)
                )
                conditions.append(exp.EQ(this=next(sides), expression=next(sides)))
            join.set("using", None)
            join.set("on", reduce(lambda one, other: exp.And(this=one, expression=other), conditions))

    def _before(
        self,
        select: exp.Select,
        derived: _Derived | None,
        joins: list[exp.Join],
        joined: Mapping[int, _Derived | None],
    ) -> dict[str, frozenset[str]]:
        """The first relation and some joined ones, by alias in the order of FROM, with the names of their columns."""
        plain = self._others(select, derived, joins, joined)
        inner = [each for each in (derived, *(joined[at] for at in range(len(joins)))) if each is not None]
        found = plain | {each.alias.casefold(): frozenset(each.columns) for each in inner}
        first = derived.alias if derived is not None else select.args["from_"].this.alias_or_name
        rest = (
            join.this.alias_or_name if (each := joined[at]) is None else each.alias
            for at, join in enumerate(joins)
        )
        return {
            alias.casefold(): found[alias.casefold()] for alias in (first, *rest) if alias.casefold() in found
        }

    def inner_query(self, alias: str) -> _Derived:
        """The text as the inner query of another one."""
        select = self.parsed.select
        return self._inner(select, alias, select, frozenset(self.named))

    def _view_named(self, source: exp.Expr) -> str | None:
        """The view that a relation in FROM names; definitions of WITH hide views."""
        if not isinstance(source, exp.Table) or source.name.casefold() in self.named:
            return None
        return next((name for name in self.catalog.views if name.casefold() == source.name.casefold()), None)

    def _view(self, name: str, source: exp.Expr) -> _Derived:
        if name in self.opened:
            path = ", which reads ".join([*self.opened[self.opened.index(name) + 1 :], name])
            self.parsed.fail(f"the view {name} can't read itself: it reads {path}", source)
        text = self.catalog.views[name]
        inside = _Inliner(_parse_view(text), self.catalog, self.scalars, (*self.opened, name), self.copied)
        derived = inside.inner_query(source.alias or source.name).without_positions(text)
        table = derived.table.copy()
        table.this.meta.update(source.this.meta)  # errors about it point at the name of the view
        return replace(derived, table=table)

    def _of(self, select: exp.Select, known: frozenset[str]) -> _Derived | None:
        """The inner query in a FROM clause; None if it is the name of a stream, a table or a registered query."""
        source = select.args["from_"].this if select.args.get("from_") is not None else None
        return None if source is None else self._of_source(source, known)

    def _of_source(self, source: exp.Expr, known: frozenset[str]) -> _Derived | None:
        """The inner query that a relation is."""
        if isinstance(source, exp.Subquery):
            return self._inner(source.this, source.alias, source, known)
        if isinstance(source, exp.Table) and source.name.casefold() in known:
            defined = self.named[source.name.casefold()]
            # A definition can use those before it.
            before = frozenset(list(self.named)[: list(self.named).index(source.name.casefold())])
            return self._inner(defined.this.copy(), source.alias or source.name, source, before)
        if (view := self._view_named(source)) is not None:
            return self._view(view, source)
        return None

    def _inner(self, select: exp.Expr, alias: str, place: exp.Expr, known: frozenset[str]) -> _Derived:
        if isinstance(select, exp.Union):
            return self._union(select, alias, known)
        if not isinstance(select, exp.Select):
            self.parsed.fail(f"expected SELECT in {self.what}", place)
        wrap_lateral_views(self.parsed, select)
        self._check_clauses(select)
        inside = self._of(select, known)
        if inside is not None:
            alias = alias or inside.alias
            self._substitute(select, [inside], {})
            table, own = inside.table, inside.alias
            self._add_where(select, inside.where)
        else:
            if select.args.get("from_") is None or not isinstance(select.args["from_"].this, exp.Table):
                self.parsed.fail(f"{self.what} needs FROM and the name of a stream", place)
            table = select.args["from_"].this
            own = table.alias or table.name
        alias = alias or own
        read, stream = table, inside.stream if inside is not None else None
        if any(generator_of(item) is not None for item in select.expressions):
            stream = self.derived_binder.exploded(select, table, own, stream)
            table = _table(stream, table)
        columns = dict(self._columns(select, inside, read))
        parts = [expression for _, expression in columns.values()]
        where = select.args.get("where")
        condition = None if where is None else where.this
        for part in [*parts, *([condition] if condition is not None else [])]:
            self._check_scalar(part)
        # A definition is read anew for each query, so its nodes can be changed.
        qualified = {
            name: (shown, self._qualified(part, own, alias)) for name, (shown, part) in columns.items()
        }
        where_text = self._qualified(condition, own, alias) if condition is not None else None
        parts_of_union = inside.parts if inside is not None else ()
        return _Derived(alias, table, where_text, qualified, stream, parts_of_union)

    def _union(self, node: exp.Union, alias: str, known: frozenset[str]) -> _Derived:
        """The rows of several inner queries as one stream."""
        parts = list(flattened(self.parsed, node))
        for part in parts[1:]:  # their columns are matched by position
            name_by_place(part)
        pieces = []  # with the place in the text of each
        for part in parts:
            one = self._inner(part, "", part, known)
            pieces += [(each, part) for each in (self._through(one, part) if one.parts else [one])]
            if len(pieces) > _MOST_UNION_PARTS:
                self.parsed.fail(f"UNION ALL has more than {_MOST_UNION_PARTS} parts", part)
        kinds = [
            self.derived_binder.kinds(one.table, one.alias, one.columns, one.stream, part)
            for one, part in pieces
        ]
        widest = common_types([types for types, _ in kinds])
        inner = [
            replace(one, columns=_widened(one.columns, types, times, widest))
            for (one, _), (types, times) in zip(pieces, kinds, strict=True)
        ]
        stream = self.derived_binder.union(
            [
                (one.table, one.alias, one.columns, one.where, one.stream, part)
                for one, (_, part) in zip(inner, pieces, strict=True)
            ]
        )
        alias = alias or inner[0].alias
        columns = {
            name.casefold(): (
                name,
                _column([exp.to_identifier(alias, quoted=True), exp.to_identifier(name, quoted=True)]),
            )
            for name, _ in stream.columns
        }
        return _Derived(alias, _table(stream, inner[0].table), None, columns, stream, tuple(inner))

    def _check_clauses(self, select: exp.Select) -> None:
        for clause, value in select.args.items():
            if value and clause not in _INNER_CLAUSES:
                word = _CLAUSE_WORDS.get(clause, clause.upper().rstrip("_"))
                node = value[0] if isinstance(value, list) else value
                self.parsed.fail(
                    f"{word} is not supported in {self.what}, which filters and projects a stream; "
                    "a registered query can be read by its name",
                    node if isinstance(node, exp.Expr) else select,
                )

    def _check_scalar(self, node: exp.Expr) -> None:
        for call in node.find_all(exp.Anonymous):
            name = call.name.lower()
            if is_aggregate_name(name) or is_window(call):
                self.parsed.fail(
                    f"{name}() is not supported in {self.what}, which filters and projects a stream; "
                    "a registered query can be read by its name",
                    call,
                )
            if name in GENERATORS:
                self.parsed.fail(f"{name}() must be a whole item of SELECT, or follow LATERAL VIEW", call)
            if name in ("inline", "inline_outer", "stack"):
                self.parsed.fail(
                    f"{name}() is not supported; explode() returns a row for each element of an array", call
                )

    def _columns(
        self, select: exp.Select, inside: _Derived | None, table: exp.Table
    ) -> Iterator[tuple[str, tuple[str, exp.Expr]]]:
        """The columns of an inner query: the name in lower case, the name, and the expression."""
        seen: set[str] = set()
        for item in select.expressions:
            node = bare(item.unalias())
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                found = list(self._all_columns(inside, table))
            elif isinstance(item, exp.Aliases):
                self.parsed.fail(
                    "several names after AS are allowed only for posexplode() and for explode() of a map",
                    item,
                )
            elif isinstance(item, exp.Alias):
                found = [(item.alias, item.this)]
            elif (named := (node._meta or {}).get(NAMED)) is not None:  # a column of the query inside
                found = [(str(named), node)]
            elif isinstance(node, exp.Column):
                found = [(node.name, node)]
            else:
                self.parsed.fail(f"an expression in {self.what} needs a name: write AS and a name", item)
            for name, expression in found:
                if name.casefold() in seen:
                    self.parsed.fail(f"two columns of the {self.kind} are called {name}", item)
                seen.add(name.casefold())
                yield name.casefold(), (name, expression)

    def _all_columns(self, inside: _Derived | None, table: exp.Table) -> Iterator[tuple[str, exp.Expr]]:
        """The columns that * stands for."""
        if inside is not None:
            yield from ((name, expression.copy()) for name, expression in inside.columns.values())
            return
        relation = self._relation(table)
        for name in relation.columns if relation is not None else ():
            yield name, exp.Column(this=exp.to_identifier(name, quoted=True))

    def _qualified(self, node: exp.Expr, own: str, alias: str) -> exp.Expr:
        """An inner expression whose columns are written with the alias of the subquery."""
        root = exp.Paren(this=node.copy())
        for column in list(root.find_all(exp.Column)):
            parts = list(column.parts)
            if len(parts) > 1 and parts[0].name.casefold() == own.casefold():
                parts = parts[1:]
            if len(parts) >= _MOST_PARTS:
                self.parsed.fail(f"a name of so many parts is not supported in {self.what}", column)
            column.replace(_column([exp.to_identifier(alias, quoted=True), *(part.copy() for part in parts)]))
        inner: exp.Expr = root.this
        inner.pop()
        return inner

    def _substitute(
        self, select: exp.Select, inner: list[_Derived], others: Mapping[str, frozenset[str]]
    ) -> None:
        """Put the inner expressions in place of the columns of the outer query, which may have other relations."""
        aliases = {item.alias.casefold() for item in select.expressions if isinstance(item, exp.Alias)}
        for clause in ("expressions", "joins", "where", "group", "having", "order"):
            value = select.args.get(clause)
            for node in value if isinstance(value, list) else [value] if value is not None else []:
                # In GROUP BY, a name is an alias if it is not the name of one column.
                taken = aliases if clause in ("having", "order", "group") else set()
                for column in list(node.find_all(exp.Column)):
                    if not isinstance(column.this, exp.Star) and not self._is_searched(column, select):
                        self._replace(column, inner, others, taken, clause)

    def _is_searched(self, column: exp.Column, select: exp.Select) -> bool:
        """Whether a column is of the table that a subquery in WHERE searches: its names come first there."""
        around = column.find_ancestor(exp.Select)
        if around is None or around is select or around.args.get("from_") is None:
            return False
        table = around.args["from_"].this
        relation = self._relation(table) if isinstance(table, exp.Table) else None
        if relation is None:
            return False
        first = column.parts[0].name.casefold()
        if len(column.parts) > 1 and first == (table.alias or table.name).casefold():
            return True
        return first in map(str.casefold, relation.columns)

    def _through(self, derived: _Derived, place: exp.Expr) -> Iterator[_Derived]:
        """An inner query over a union, as one over each part of the union."""
        names = [] if derived.stream is None else [name.casefold() for name, _ in derived.stream.columns]
        own = [expression for _, expression in derived.columns.values()]
        own += [] if derived.where is None else [derived.where]
        for part in derived.parts:
            expressions = [expression for _, expression in part.columns.values()]
            self.copied.add(self.parsed, [*own, *expressions], place)
            by_name = dict(zip(names, expressions, strict=True))
            columns = {
                key: (shown, _composed(each, by_name)) for key, (shown, each) in derived.columns.items()
            }
            where = None if derived.where is None else _composed(derived.where, by_name)
            if where is not None and part.where is not None:
                where = exp.And(this=exp.Paren(this=part.where.copy()), expression=exp.Paren(this=where))
            yield replace(part, columns=columns, where=part.where if where is None else where)

    def _replace(
        self,
        column: exp.Column,
        inner: list[_Derived],
        others: Mapping[str, frozenset[str]],
        aliases: set[str],
        clause: str,
    ) -> None:
        parts = list(column.parts)
        names = [part.name for part in parts]
        first, or_item = names[0].casefold(), False
        derived = next((each for each in inner if len(names) > 1 and first == each.alias.casefold()), None)
        if derived is not None:
            if names[1].casefold() not in derived.columns:
                hint = near_miss(names[1], [name for name, _ in derived.columns.values()])
                self.parsed.fail(f"unknown column {names[1]}{hint}", column)
            names, parts = names[1:], parts[1:]
        else:
            having = [each for each in inner if first in each.columns]
            is_alias = len(names) == 1 and first in aliases
            name_of = (column._meta or {}).get(NAME_OF, OF_COLUMN if clause == "group" else None)
            or_item = is_alias and name_of is None
            is_item = is_alias and (name_of == OF_ITEM or (or_item and clause != "having"))
            if not having or (len(names) > 1 and first in others) or is_item:
                return
            options = [each.alias for each in having] + [
                alias for alias, known in others.items() if first in known
            ]
            if len(options) > 1:
                if is_alias:
                    return
                listed = " or ".join(f"{alias}.{names[0]}" for alias in options)
                self.parsed.fail(f"{names[0]} is ambiguous: {listed}", column)
            derived = having[0]
        inlined = derived.columns[names[0].casefold()][1]
        self.copied.add(self.parsed, [inlined], column)
        expression: exp.Expr = inlined.copy()
        for literal in expression.find_all(exp.Literal):
            literal.meta[COPIED] = True
        if not isinstance(expression, exp.Column):
            expression = exp.Paren(this=bare(expression))
        for field in parts[1:]:
            expression = exp.Dot(this=expression, expression=field.copy())
        for node in (expression, bare(expression)):
            node.meta[NAMED] = (column._meta or {}).get(NAMED, names[-1])
        if or_item:
            bare(expression).meta[OR_ITEM] = first
        column.replace(expression)

    def _add_where(self, select: exp.Select, condition: exp.Expr | None) -> None:
        if condition is None:
            return
        own, added = select.args.get("where"), exp.Paren(this=condition.copy())
        both = added if own is None else exp.And(this=added, expression=exp.Paren(this=own.this))
        select.set("where", exp.Where(this=both))

    def _bracket(self, derived: _Derived) -> Bracket | None:
        """The window's bracket with WATTR as a column of the stream."""
        bracket = self.parsed.bracket
        if bracket is None or bracket.wattr is None:
            return bracket
        piece = bracket.wattr
        name = piece.text if piece.quoted else piece.text.replace(" ", "").replace("`", "").rpartition(".")[2]
        if name.casefold() not in derived.columns:
            hint = near_miss(name, [each for each, _ in derived.columns.values()])
            raise SQLError(f"unknown column {name}{hint}", self.parsed.text, piece.start, piece.end)
        expression = bare(derived.columns[name.casefold()][1])
        if not isinstance(expression, exp.Column) or len(expression.parts) != 2:
            message = f"WATTR is a column of the stream, and {name} is an expression"
            raise SQLError(message, self.parsed.text, piece.start, piece.end)
        return replace(bracket, wattr=replace(piece, text=expression.name, quoted=True))


def _column(parts: list[exp.Expr]) -> exp.Column:
    places = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(places, reversed(parts), strict=False)))


def _composed(node: exp.Expr, by_name: Mapping[str, exp.Expr]) -> exp.Expr:
    """An expression over a union's columns, over the rows of a part; the union's alias is before each column."""
    root = exp.Paren(this=node.copy())
    for column in list(root.find_all(exp.Column)):
        made: exp.Expr = by_name[column.parts[1].name.casefold()].copy()
        if not isinstance(made, exp.Column):
            made = exp.Paren(this=bare(made))
        for literal in made.find_all(exp.Literal):
            literal.meta[COPIED] = True
        for field in column.parts[2:]:
            made = exp.Dot(this=made, expression=field.copy())
        column.replace(made)
    inner: exp.Expr = root.this
    inner.pop()
    return inner


def _widened(
    columns: Mapping[str, tuple[str, exp.Expr]],
    types: Sequence[pa.DataType],
    times: Collection[int],
    widest: Sequence[pa.DataType | None],
) -> dict[str, tuple[str, exp.Expr]]:
    """The columns in the types of the union; times stay as they are."""
    widened = dict(columns)
    for place, (kind, (key, (shown, expression))) in enumerate(zip(widest, columns.items(), strict=False)):
        if kind is not None and types[place] != kind and place not in times:
            to = exp.DataType.build(TYPE_NAMES[kind], dialect="spark")
            expression = exp.Cast(this=exp.Paren(this=expression.copy()), to=to)
        widened[key] = (shown, expression)
    return widened


def _aliased(derived: _Derived) -> exp.Table:
    """The relation of an inner query, under the alias of the query."""
    table = derived.table.copy()
    table.set("alias", exp.TableAlias(this=exp.to_identifier(derived.alias, quoted=True)))
    return table


def _table(stream: DerivedStream, place: exp.Table) -> exp.Table:
    """A derived stream as the relation of a query; errors about it point at a relation that was written."""
    table = exp.Table(this=exp.to_identifier(stream.name, quoted=True))
    table.this.meta.update(place.this.meta)
    return table
