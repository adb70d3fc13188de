"""Binds queries WITH PREFERENCE: a selection of one stream or a join of two, and aggregates over either."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from transom.durations import format_duration
from transom.elements import Summary
from transom.errors import SQLError
from transom.sql.binding.expression_types import ScalarBinder, Steps, Typer, TypeTable, run_steps
from transom.sql.binding.joins import conjuncts
from transom.sql.binding.predicates import bind_predicate, conjunction
from transom.sql.binding.preference_aggregates import bound_figure, is_aggregate
from transom.sql.binding.preference_having import HavingBinder
from transom.sql.binding.preference_summaries import Equality, Guides, find_guides
from transom.sql.binding.preference_tables import bind_side_tables
from transom.sql.binding.promises import bound_promise, leaves_of, stream_column
from transom.sql.binding.scope import FromItem, ResolvedColumn, Scope
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.clauses.past_times import AsOfClause, BackfillClause
from transom.sql.clauses.preference import PreferenceClause
from transom.sql.clauses.query_parser import parse
from transom.sql.preference_query import Figure, OuterJoin, Output, PreferenceKey, PreferenceQuery, Side
from transom.sql.query import Scalar
from transom.sql.syntax.canonical import Printer, bare, quote, whole_number
from transom.sql.syntax.parsed_query import Parsed


def bind_preference_query(
    text: str, catalog: Catalog, scalars: Scalars, summaries: Mapping[str, Summary]
) -> PreferenceQuery:
    """Bind a query WITH PREFERENCE to streams and their summaries, or raise its error."""
    bound = bind_preference_queries({"": text}, catalog, scalars, summaries)[""]
    if isinstance(bound, SQLError):
        raise bound
    return bound


def bind_preference_queries(
    texts: Mapping[str, str], catalog: Catalog, scalars: Scalars, summaries: Mapping[str, Summary]
) -> dict[str, PreferenceQuery | SQLError]:
    """Bind named queries WITH PREFERENCE, with one call for all their types; each gives a query or its own error."""
    table = TypeTable(scalars)
    running = {name: _steps(text, catalog, table, summaries) for name, text in texts.items()}
    outcome = run_steps(running, texts, table)
    return {name: outcome[name] for name in texts}


def _steps(
    text: str, catalog: Catalog, table: TypeTable, summaries: Mapping[str, Summary]
) -> Steps[PreferenceQuery]:
    parsed = parse(text)
    clause = next((each for each in parsed.clauses if isinstance(each, PreferenceClause)), None)
    if clause is None:
        raise SQLError("expected WITH PREFERENCE at the end of the query", text, len(text.rstrip()) - 1)
    return (yield from _Reader(parsed, clause, catalog, table, summaries).steps())


_PRESERVED = {"LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}  # sides, by the word
_BOUNDED = "a window query over a join within a time bound"


class _Streams(Scope):
    """The one or two streams of a query, and the static tables that are joined to them."""

    def _admit(self, node: exp.Table, relation: Relation, table: bool) -> None:
        if table and not self.sources:
            message = (
                "a query WITH PREFERENCE reads a stream first, then the static tables that are joined to it"
            )
            self.parsed.fail(f"{message}; {node.name} is a table", node)
        if not table and len(self.streams) == 2:
            self.parsed.fail("a query WITH PREFERENCE reads one stream or joins two", node)

    def _unknown_relation(self, name: str, place: exp.Expr) -> NoReturn:
        if name.casefold() in {query.casefold() for query in self.catalog.queries}:
            self.parsed.fail(f"a query WITH PREFERENCE reads streams, and {name} is a query", place)
        super()._unknown_relation(name, place)


class _Over(ScalarBinder):
    """Expressions over one side's own columns, or over the columns of all sides, named by their side."""

    def __init__(self, reader: _Reader, columns: Mapping[str, pa.DataType], key: Hashable, numbered: bool):
        super().__init__(reader.parsed, reader.catalog.utc)
        self.reader, self.scope, self.place, self.numbered = reader, reader.scope, "SELECT", numbered
        self.typer = Typer(self.parsed, reader.table.over(key, lambda: columns))
        self.functions = {name.casefold() for name in reader.catalog.functions}
        self.printer = Printer(self.parsed, reader.catalog.functions, self._leaf)

    def scalar(self, node: exp.Expr) -> Scalar | None:
        node = bare(node)
        if isinstance(node, exp.Column) and (column := self.scope.find(node)) is not None:
            return Scalar(self._column(column), column.type, column.name if column.plain else None)
        text = self.printer.root(node)
        kind = self.typer.type(text, node)
        return None if kind is None else Scalar(text, kind)

    def _column(self, column: ResolvedColumn) -> str:
        if not self.numbered:
            return column.sql
        name = f"{self.reader.tables.side_of(column.source)}.{column.row_name}"
        return ".".join(map(quote, [name, *column.fields]))

    def _leaf(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            return self.scope.without_parentheses(node) or self._column(self.scope.column(node))
        if is_aggregate(node, self.functions):
            self.parsed.fail(f"an aggregate is not allowed in {self.place}", node)
        return None


class _Reader:
    """A query that is read once, and rebuilt until the types of all its expressions are resolved."""

    def __init__(
        self,
        parsed: Parsed,
        clause: PreferenceClause,
        catalog: Catalog,
        table: TypeTable,
        summaries: Mapping[str, Summary],
    ):
        self.parsed, self.clause, self.catalog, self.table = parsed, clause, catalog, table
        self._refuse()
        self.scope = _Streams(parsed, catalog)
        self.outer: exp.Join | None = None  # where the query joins two streams by an outer join
        self.preserved = (False, False)
        self.on, self.where = self._read_from()
        self.conditions = [*self.on, *self.where]
        self._check_outer()
        self._check_names()
        columns = [self._column_types(side) for side in range(len(self.scope.streams))]
        joined = [
            (source.relation.name, *self.tables.columns(side))
            for side, source in enumerate(self.scope.streams)
        ]
        self.own = [
            _Over(self, known, ("tuples", *names), numbered=False)
            for names, known in zip(joined, columns, strict=True)
        ]
        both_sides = {
            f"{at}.{name}": kind for at, known in enumerate(columns) for name, kind in known.items()
        }
        self.pairs = _Over(self, both_sides, tuple(joined), numbered=True)
        self._has_having_types = True
        self.guides: Guides = find_guides(
            parsed, self.scope, clause, self.conditions if self.outer is None else self.on, summaries
        )
        self.promise = bound_promise(clause.promise, self.guides.column_of)
        self._check_window()

    def steps(self) -> Steps[PreferenceQuery]:
        """Rebuild the query after each round of type resolution, until all types are resolved."""
        views = [*self.own, self.pairs]
        while True:
            for view in views:
                view.typer.missing = False
            made = self._build()
            if not any(view.typer.missing for view in views) and self._has_having_types:
                return made
            yield

    # --- reading -------------------------------------------------------------------------

    def _refuse(self) -> None:
        """Refuse clauses that only window queries have."""
        parsed, select = self.parsed, self.parsed.select
        for clause in parsed.clauses:
            if isinstance(clause, BackfillClause | AsOfClause):
                parsed.fail_at("a query WITH PREFERENCE can't ask for the past: it has no windows", clause)
        if parsed.bracket is not None:
            length = parsed.bracket.range.text if parsed.bracket.range is not None else "1 minute"
            message = f"a query WITH PREFERENCE has no bracket; write WINDOW '{length}' at its end"
            raise SQLError(message, parsed.text, parsed.bracket.start, parsed.bracket.end)
        for kind, what in (("order", "ORDER BY"), ("limit", "LIMIT")):
            if (node := select.args.get(kind)) is not None:
                instead = f"; {_BOUNDED} can have it" if select.args.get("joins") else ""
                parsed.fail(f"{what} is not supported WITH PREFERENCE{instead}", node)
        if select.args.get("from_") is None:
            parsed.fail("expected FROM and the name of a stream", select)

    def _read_from(self) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """Read the streams of FROM; the conjuncts of ON and USING, and of WHERE, are the conditions on tuples.

        Those that join static tables are not among them. All conditions of an inner join are returned as if they were
        in WHERE.
        """
        select = self.parsed.select
        self.scope.add(select.args["from_"].this)
        on: list[exp.Expr] = []
        tables: list[tuple[FromItem, exp.Join]] = []
        for node in select.args.get("joins") or []:
            source = self.scope.add(node.this)
            if source.table:
                tables.append((source, node))
                continue
            self._read_form(node)
            on += self._using(node) if node.args.get("using") else conjuncts(node.args.get("on"))
        where = select.args.get("where")
        conditions = list(conjuncts(None if where is None else where.this))
        if self.outer is None:
            on, conditions = [], [*on, *conditions]
        self.tables, conditions = bind_side_tables(self.scope, self.catalog, tables, conditions)
        # A JOIN without a condition comes with TRUE for one.
        plain_on, plain_where = (
            [node for node in nodes if not (isinstance(node, exp.Boolean) and node.this)]
            for nodes in (on, conditions)
        )
        return plain_on, plain_where

    def _read_form(self, node: exp.Join) -> None:
        """Read how a stream is joined; an outer join preserves the tuples of one side, or of both."""
        kind, side = node.args.get("kind"), node.args.get("side")
        if kind in ("SEMI", "ANTI"):
            message = f"{kind} JOIN is not supported WITH PREFERENCE; {_BOUNDED} can be a {kind} JOIN"
            self.parsed.fail(message, node.this)
        if side not in _PRESERVED:
            return
        self.outer, self.preserved = node, _PRESERVED[side]
        if node.args.get("using") and side != "LEFT":
            message = f"a {side} JOIN WITH PREFERENCE has no USING; write ON with the columns of both streams"
            self.parsed.fail(message, node.this)

    def _check_outer(self) -> None:
        """Refuse what an outer join can't have; aggregates and pairs under a budget are checked when they are bound."""
        if self.outer is None:
            return
        form = f"a {self.outer.args['side']} JOIN WITH PREFERENCE"
        if self.clause.preference.window is None:
            message = (
                f"{form} needs a WINDOW: a tuple without a partner is returned when its window has passed"
            )
            self.parsed.fail(f"{message}; add WINDOW '1 minute' at the end of the query", self.outer.this)
        for table, side in self.tables.tables:
            if table.flag is not None and not self._is_pushed(side):
                stream = self.scope.streams[side].alias
                message = (
                    f"{form} can have {table.source.shown} only by a LEFT JOIN: {stream} may have no partner"
                )
                self.parsed.fail(f"{message}; put conditions on the table in WHERE", table.source.node)

    def _is_pushed(self, side: int) -> bool:
        """Whether conditions of WHERE on a side are conditions on its tuples, before they are joined.

        Those of an outer join are only if no tuple of the other side can be without a partner because of them.
        """
        return self.outer is None or (self.preserved[side] and not self.preserved[1 - side])

    def _using(self, node: exp.Expr) -> Iterator[exp.Expr]:
        first, second = self.scope.streams
        for name in node.args["using"]:
            columns = [
                exp.Column(this=name.copy(), table=exp.to_identifier(source.alias, quoted=True))
                for source in (first, second)
            ]
            second.hidden.add(self.scope.column(columns[1]).name)
            yield exp.EQ(this=columns[0], expression=columns[1])

    def _check_names(self) -> None:
        """Report unknown names in conditions first, before the errors that they cause."""
        for node in self.conditions:
            for column in node.find_all(exp.Column):
                if self.scope.without_parentheses(column) is None:
                    self.scope.column(column)
        for leaf in leaves_of(self.clause.promise):
            stream_column(self.parsed, self.scope, leaf)

    def _check_window(self) -> None:
        window = self.clause.preference.window
        for summary in self.guides.summaries:
            if window is not None and window > summary.reach and self.clause.window is not None:
                kept = format_duration(summary.reach)
                message = f"WINDOW is {format_duration(window)}, and the summary {summary.name} keeps {kept}"
                message += "; a longer GRANULARITY or a deeper COLLAPSE keeps more"
                raise SQLError(message, self.parsed.text, *self.clause.window)

    # --- building --------------------------------------------------------------------

    def _build(self) -> PreferenceQuery:
        keys = self._keys()
        outputs, figures, names = self._items(keys)
        sides = tuple(self._side(at) for at in range(len(self.own)))
        on, after = self._rest()
        both = [text for text in (on, after) if text is not None]
        having, figures = self._having(keys, outputs, figures)
        return PreferenceQuery(
            sides=sides,
            preference=self.clause.preference,
            promise=self.promise,
            outputs=outputs,
            figures=figures,
            rest=_all_of(both),
            functions=frozenset(name for view in (*self.own, self.pairs) for name in view.printer.called),
            keys=tuple(keys.values()),
            names=names if outputs and figures else (),
            having=having,
            outer=self._outer(on, after, sides),
        )

    def _alone(self, at: int) -> list[exp.Expr]:
        """The conditions that select the tuples of one side; conditions that read no column belong to the first."""
        pushed = self.where if self._is_pushed(at) else []
        return [node for node in self._without_link([*self.on, *pushed]) if self._owner(node) == at]

    def _owner(self, node: exp.Expr) -> int | None:
        """The side that a condition reads; None if it reads both."""
        sides = self.tables.sides_of(node)
        return None if len(sides) > 1 else min(sides, default=0)

    def _conditions(self) -> list[exp.Expr]:
        return self._without_link(self.conditions)

    def _without_link(self, nodes: list[exp.Expr]) -> list[exp.Expr]:
        """The conditions without the equality that joins the streams."""
        link: Equality | None = self.guides.link
        return [node for node in nodes if link is None or node is not link.node]

    def _side(self, at: int) -> Side:
        summary, view, conditions = self.guides.summaries[at], self.own[at], self._alone(at)
        view.place = "WHERE"
        guided = [node for node in conditions if self._reads(at, node) == {summary.column}]
        columns, relation = self._needed(at), self.scope.streams[at].relation
        return Side(
            stream=relation.name,
            summary=summary.name,
            where=conjunction([*self.tables.flags(at), *(bind_predicate(node, view) for node in conditions)]),
            guide=conjunction([bind_predicate(node, view) for node in guided]),
            columns=tuple(name for name in (*relation.columns, *self.tables.columns(at)) if name in columns),
            joins=self.tables.joins(at, columns),
        )

    def _reads(self, at: int, node: exp.Expr) -> set[str]:
        """The columns of a side, and of its tables, that an expression reads."""
        found = [self.scope.find(column) for column in node.find_all(exp.Column)]
        return {
            column.row_name
            for column in found
            if column is not None and self.tables.side_of(column.source) == at
        }

    def _needed(self, at: int) -> set[str]:
        expressions = [*self._conditions(), *self.parsed.select.expressions, *self._key_nodes()]
        expressions += self._having_calls()
        promised = (self.guides.column_of(leaf) for leaf in leaves_of(self.clause.promise))
        source = self.scope.streams[at]
        return {name for node in expressions for name in self._reads(at, node)} | {
            column.name for column in promised if column.source is source
        }

    def _rest(self) -> tuple[str | None, str | None]:
        """The conditions on a pair without the equality that joins it: those of ON in an outer join, and others."""
        across = [node for node in self._without_link(self.on) if self._owner(node) is None]
        owners = [(node, self._owner(node)) for node in self._without_link(self.where)]
        after = [node for node, owner in owners if owner is None or not self._is_pushed(owner)]
        return self._pair_condition(across, "ON"), self._pair_condition(after, "WHERE")

    def _pair_condition(self, nodes: list[exp.Expr], place: str) -> str | None:
        self.pairs.place = place
        texts = []
        for node in nodes:
            text = self.pairs.truth(node).sql
            texts.append(f"({text})" if isinstance(node, exp.Or) and len(nodes) > 1 else text)
        return " AND ".join(texts) or None

    def _outer(self, on: str | None, after: str | None, sides: tuple[Side, ...]) -> OuterJoin | None:
        if self.outer is None:
            return None
        if on is not None and (self.clause.preference.probes or self.clause.preference.time):
            node = next(node for node in self._without_link(self.on) if self._owner(node) is None)
            message = (
                "a condition of ON over both streams says which tuples have a partner, so it needs all pairs"
            )
            self.parsed.fail(f"{message}; leave out BUDGET, or put the condition in WHERE", node)
        keeps = []
        for at in range(2):
            self.own[at].place = "WHERE"
            nodes = [node for node in self.where if self._is_pushed(at) and self._owner(node) == at]
            flags = self.tables.flags(at) if self._is_pushed(at) else []
            keeps.append(conjunction([*flags, *(bind_predicate(node, self.own[at]) for node in nodes)]))
        types = [
            tuple(self._column_types(at)[name] for name in side.columns) for at, side in enumerate(sides)
        ]
        return OuterJoin(self.preserved, (keeps[0], keeps[1]), on, after, (types[0], types[1]))

    def _column_types(self, at: int) -> dict[str, pa.DataType]:
        return {**self.scope.streams[at].relation.columns, **self.tables.columns(at)}

    def _key_nodes(self) -> list[exp.Expr]:
        """The expressions of GROUP BY; a position or an alias refers to an item of SELECT."""
        group, items = self.parsed.select.args.get("group"), self.parsed.select.expressions
        if group is None:
            return []
        for node in group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets):
            message = (
                "ROLLUP, CUBE and GROUPING SETS are not supported; register a query for each set of keys"
            )
            self.parsed.fail(message, node)
        if group.args.get("all"):
            written = [bare(item.unalias()) for item in items]
            return [node for node in written if not self._has_aggregate(node)]
        aliases = {item.alias.casefold(): item.this for item in items if isinstance(item, exp.Alias)}
        nodes = []
        for node in map(bare, group.expressions):
            if isinstance(node, exp.Literal) and not node.is_string:
                if not node.name.isdigit() or not 1 <= whole_number(node.name) <= len(items):
                    self.parsed.fail(f"GROUP BY position {node.name} is not in the SELECT list", node)
                node = items[whole_number(node.name) - 1].unalias()
            elif isinstance(node, exp.Column) and len(node.parts) == 1 and self.scope.find(node) is None:
                node = aliases.get(node.name.casefold(), node)
            nodes.append(bare(node))
        return nodes

    def _keys(self) -> dict[str, PreferenceKey]:
        """The keys of GROUP BY, by their text over a pair."""
        keys: dict[str, PreferenceKey] = {}
        for node in self._key_nodes():
            if self._has_aggregate(node):
                self.parsed.fail("GROUP BY can't have an aggregate", node)
            view, side = self._view(node)
            view.place = self.pairs.place = "GROUP BY"
            scalar, over_pairs = view.scalar(node), self.pairs.scalar(node)
            if scalar is not None and over_pairs is not None:
                keys.setdefault(over_pairs.sql, PreferenceKey(scalar, side))
        return keys

    def _view(self, node: exp.Expr) -> tuple[_Over, int | None]:
        """The columns that an expression reads: those of one side, or of pairs."""
        sides = self.tables.sides_of(node)
        if len(sides) > 1:
            return self.pairs, None
        side = min(sides, default=0)
        return self.own[side], side

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return any(is_aggregate(part, self.pairs.functions) for part in node.walk())

    def _items(
        self, keys: Mapping[str, PreferenceKey]
    ) -> tuple[tuple[Output, ...], tuple[Figure, ...], tuple[str, ...]]:
        outputs: list[Output] = []
        figures: list[Figure] = []
        names: dict[str, str] = {}
        for item in self.parsed.select.expressions:
            node = bare(item.this if isinstance(item, exp.Alias) else item)
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                self.parsed.fail("SELECT * is not supported; name the columns", node)
            name = item.alias if isinstance(item, exp.Alias) else self._auto_name(node)
            if name.casefold() in names:
                self.parsed.fail(f"two columns of the result are called {name}; give one another alias", item)
            names[name.casefold()] = name
            if is_aggregate(node, self.pairs.functions):
                figures.append(self._figure(name, node))
            else:
                outputs.append(self._output(name, node, keys))
        group = self.parsed.select.args.get("group")
        if outputs and figures and group is None:
            message = (
                f"{outputs[0].name} is not in an aggregate; GROUP BY {outputs[0].name} makes groups of it"
            )
            self.parsed.fail(message, self.parsed.select.expressions[self._first_output()])
        if group is not None and not figures:
            self.parsed.fail("GROUP BY needs an aggregate in SELECT", self.parsed.select.expressions[0])
        return tuple(outputs), tuple(figures), tuple(names.values())

    def _first_output(self) -> int:
        items = [bare(item.unalias()) for item in self.parsed.select.expressions]
        return next(at for at, node in enumerate(items) if not is_aggregate(node, self.pairs.functions))

    def _output(self, name: str, node: exp.Expr, keys: Mapping[str, PreferenceKey]) -> Output:
        if self._has_aggregate(node):
            self.parsed.fail("an expression over an aggregate is not supported WITH PREFERENCE", node)
        self.pairs.place = "SELECT"
        scalar = self.pairs.scalar(node)
        if scalar is None:
            return Output(name, "", pa.null())
        if self.parsed.select.args.get("group") is None:
            return Output(name, scalar.sql, scalar.type)
        if scalar.sql not in keys and not self.pairs.typer.missing:
            self.parsed.fail(f"{name} is neither in GROUP BY nor in an aggregate", node)
        return Output(name, scalar.sql, scalar.type, [*keys, scalar.sql].index(scalar.sql))

    def _figure(self, name: str, node: exp.Expr) -> Figure:
        if self.outer is not None:
            form = f"a {self.outer.args['side']} JOIN WITH PREFERENCE"
            self.parsed.fail(f"{form} has no aggregates; a window query over its results can have them", node)
        view, side = self._view(node)
        view.place = "another aggregate"
        return replace(bound_figure(self.parsed, name, node, view.scalar), side=side)

    def _having_calls(self) -> list[exp.Expr]:
        """The aggregates in HAVING."""
        having = self.parsed.select.args.get("having")
        nodes = [] if having is None else having.walk()
        return [node for node in nodes if is_aggregate(node, self.pairs.functions)]

    def _having(
        self, keys: Mapping[str, PreferenceKey], outputs: tuple[Output, ...], figures: tuple[Figure, ...]
    ) -> tuple[str | None, tuple[Figure, ...]]:
        """The condition of HAVING, and the figures with those that are in it only."""
        having = self.parsed.select.args.get("having")
        if having is None:
            return None, figures
        if not figures:
            self.parsed.fail("HAVING needs an aggregate in SELECT; put the condition in WHERE", having.this)
        views = (*self.own, self.pairs)
        for node in self._having_calls():
            self._figure("", node)
        if any(view.typer.missing for view in views):
            return None, figures  # the keys are not all there yet
        binder = HavingBinder(
            self.parsed,
            self.catalog,
            self.scope,
            keys,
            outputs,
            figures,
            self._figure,
            self.pairs.printer.root,
        )
        binder.text(having.this)  # adds the aggregates, whose types are read next
        binder.use_types(self.table)
        text = binder.truth(having.this).sql
        self._has_having_types = not binder.is_missing
        self.pairs.printer.called |= binder.printer.called
        return text, tuple(binder.figures)

    def _auto_name(self, node: exp.Expr) -> str:
        """The name of a result's column without an alias: the column's name, or the expression's text."""
        if isinstance(node, exp.Column) and (column := self.scope.find(node)) is not None:
            return [column.name, *column.fields][-1]
        return Printer(self.parsed, self.catalog.functions, self._name_leaf).root(node)

    def _name_leaf(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            column = self.scope.find(node)
            return node.name.lower() if column is None else ".".join([column.name, *column.fields])
        if isinstance(node, exp.Star):
            return "*"
        if is_aggregate(node, self.pairs.functions) and isinstance(node, exp.Anonymous):
            return f"{node.name.lower()}({', '.join(self._auto_name(arg) for arg in node.expressions)})"
        return None


def _all_of(texts: list[str]) -> str | None:
    """A condition that holds if all of the given ones do."""
    if len(texts) == 1:
        return texts[0]
    return " AND ".join(f"({text})" for text in texts) or None
