"""UNION ALL and explode in subqueries and views: the derived streams that hold their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError
from transom.sql.binding.select import SelectBinder
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.derived_stream import ELEMENT, ELEMENT_POSITION, KEY, VALUE, Branch, DerivedStream
from transom.sql.interpreter.types import TYPE_NAMES
from transom.sql.syntax.canonical import bare, quote
from transom.sql.syntax.parsed_query import Parsed

_BY_WIDTH = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
GENERATORS = ("explode", "explode_outer", "posexplode", "posexplode_outer")
InnerColumns = Mapping[
    str, tuple[str, exp.Expr]
]  # by their names in lower case: the name, and the expression


def generator_of(item: exp.Expr) -> exp.Anonymous | None:
    """The call of explode, if an item of SELECT is one."""
    node = bare(item.this if isinstance(item, exp.Alias | exp.Aliases) else item)
    is_generator = isinstance(node, exp.Anonymous) and node.name.lower() in GENERATORS
    return node if is_generator and isinstance(node, exp.Anonymous) else None


def wrap_lateral_views(parsed: Parsed, select: exp.Select) -> None:
    """Write `FROM s LATERAL VIEW explode(a) x AS item` as `FROM (SELECT *, explode(a) AS item FROM s) s`, in place."""
    laterals = select.args.get("laterals") or []
    select.set("laterals", None)
    for lateral in laterals:
        call, alias = lateral.this, lateral.args.get("alias")
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in GENERATORS:
            parsed.fail(f"LATERAL VIEW takes {', '.join(GENERATORS)}", lateral)
        name = call.name.lower()
        if lateral.args.get("outer") and not name.endswith("_outer"):
            name += "_outer"
        columns = alias.args.get("columns") or [] if alias is not None else []
        generated: exp.Expr = exp.Anonymous(this=name, expressions=call.expressions)
        generated.meta.update(call.meta)
        if len(columns) == 1:
            generated = exp.Alias(this=generated, alias=columns[0])
        elif columns:
            generated = exp.Aliases(this=generated, expressions=columns)
        source = select.args["from_"].this
        own = source.alias or (source.name if isinstance(source, exp.Table) else "") or "exploded"
        hidden = alias.name.casefold() if alias is not None and alias.this is not None else None
        for column in list(select.find_all(exp.Column)):
            if len(column.parts) > 1 and column.parts[0].name.casefold() == hidden:
                column.parts[0].replace(exp.to_identifier(own, quoted=True))
        inner = exp.Select(expressions=[exp.Star(), generated], from_=exp.From(this=source))
        named = exp.TableAlias(this=exp.to_identifier(own, quoted=True))
        select.set("from_", exp.From(this=exp.Subquery(this=inner, alias=named)))


class DerivedStreamBinder:
    """Builds the derived streams of the inner queries of one text."""

    def __init__(self, parsed: Parsed, catalog: Catalog, scalars: Scalars, what: str):
        self.parsed, self.catalog, self.scalars, self.what = parsed, catalog, scalars, what

    def exploded(
        self, select: exp.Select, table: exp.Table, own: str, derived_from: DerivedStream | None
    ) -> DerivedStream:
        """The stream with the elements of an array; its columns take the place of explode in SELECT."""
        items = [item for item in select.expressions if generator_of(item) is not None]
        item = items[0]
        call = generator_of(item)
        assert call is not None
        if len(items) > 1 or derived_from is not None:
            self.parsed.fail("a query can explode one expression of a stream, and none of a UNION ALL", call)
        if len(call.expressions) != 1:
            self.parsed.fail(f"{call.name.lower()}() takes an array or a map", call)
        relation = self._declared(table)
        texts = _RowTexts(self.parsed, self.catalog, table, own)
        sql = texts.text(call.expressions[0])
        (kind,) = self._types(relation.columns, [sql], [call.expressions[0]])
        if pa.types.is_map(kind):
            element_columns = {KEY: kind.key_type, VALUE: kind.item_type}
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            element_columns = {ELEMENT: kind.value_type}
        else:
            self.parsed.fail(f"{call.name.lower()}() takes an array or a map, and this is {kind}", call)
        columns = {**relation.columns, ELEMENT_POSITION: pa.int32(), **element_columns}
        branch = Branch(relation.name, tuple((name, quote(name)) for name in columns), None, sql)
        self._replace_item(select, item, call, own, list(element_columns))
        assert relation.time is not None
        return DerivedStream(tuple(columns.items()), relation.time, (branch,), frozenset(texts.called()))

    def _replace_item(
        self, select: exp.Select, item: exp.Expr, call: exp.Anonymous, own: str, element_columns: list[str]
    ) -> None:
        """Replace explode by the columns of the derived stream, and leave out rows without elements."""
        sources = (
            [ELEMENT_POSITION, *element_columns] if call.name.lower().startswith("pos") else element_columns
        )
        if isinstance(item, exp.Aliases):
            names = [each.name for each in item.expressions]
        elif isinstance(item, exp.Alias):
            names = [item.alias]
        else:
            names = [
                {ELEMENT_POSITION: "pos", ELEMENT: "col", KEY: "key", VALUE: "value"}[each]
                for each in sources
            ]
        if len(names) != len(sources):
            self.parsed.fail(
                f"{call.name.lower()}() returns {len(sources)} columns here; name them with AS (a, b)", item
            )
        shown = [
            exp.Alias(this=_column(own, source), alias=exp.to_identifier(name, quoted=True))
            for source, name in zip(sources, names, strict=True)
        ]
        items: list[exp.Expr] = []
        for each in select.expressions:
            items += shown if each is item else [each]
        select.set("expressions", items)
        if not call.name.lower().endswith("_outer"):
            has_element = exp.Not(this=exp.Is(this=_column(own, ELEMENT_POSITION), expression=exp.Null()))
            where = select.args.get("where")
            both: exp.Expr = has_element
            if where is not None:
                both = exp.And(this=exp.Paren(this=where.this), expression=has_element)
            select.set("where", exp.Where(this=both))

    def kinds(
        self,
        table: exp.Table,
        own: str,
        columns: InnerColumns,
        derived_from: DerivedStream | None,
        place: exp.Expr,
    ) -> tuple[list[pa.DataType], set[int]]:
        """The types of the columns of an inner query, and which of them are the stream's time."""
        _, kinds, times, _ = self._branch(table, own, columns, None, derived_from, place)
        return kinds, times

    def union(
        self,
        parts: Sequence[tuple[exp.Table, str, InnerColumns, exp.Expr | None, DerivedStream | None, exp.Expr]],
    ) -> DerivedStream:
        """The rows of several inner queries as one stream.

        A part is its relation, the relation's alias, the columns, the condition, the derived stream that the relation
        is, if it is one, and where the part is written.
        """
        branches: list[Branch] = []
        names, types, timed, called = list[str](), list[pa.DataType](), set[int](), set[str]()
        for number, (table, own, columns, where, derived_from, place) in enumerate(parts):
            branch, kinds, times, functions = self._branch(table, own, columns, where, derived_from, place)
            called |= functions
            if number == 0:
                names, types, timed = [shown for shown, _ in columns.values()], kinds, times
            if len(kinds) != len(types):
                self.parsed.fail(
                    f"the parts of UNION ALL have different numbers of columns: {len(types)} and {len(kinds)}",
                    place,
                )
            for name, first, kind in zip(names, types, kinds, strict=True):
                if first != kind:
                    message = f"{name} is {first} in the first part of UNION ALL and {kind} here; write CAST"
                    self.parsed.fail(message, place)
            timed &= times
            renamed = tuple(zip(names, (sql for _, sql in branch.columns), strict=True))
            branches.append(replace(branch, columns=renamed))
        if not timed:
            self.parsed.fail(
                "each part of UNION ALL must select the event time of its stream, in the same position",
                parts[0][-1],
            )
        return DerivedStream(
            tuple(zip(names, types, strict=True)), names[min(timed)], tuple(branches), frozenset(called)
        )

    def _branch(
        self,
        table: exp.Table,
        own: str,
        columns: InnerColumns,
        where: exp.Expr | None,
        derived_from: DerivedStream | None,
        place: exp.Expr,
    ) -> tuple[Branch, list[pa.DataType], set[int], set[str]]:
        catalog, unnest = self.catalog, None
        if derived_from is None:
            relation = self._declared(table)
            stream = relation.name
        elif derived_from.is_exploded:
            stream, unnest = derived_from.branches[0].stream, derived_from.branches[0].unnest
            relation = relation_of_derived(derived_from)
            catalog = replace(catalog, streams={**catalog.streams, derived_from.name: relation})
        else:
            raise AssertionError("a union of unions is one of their parts")
        texts = _RowTexts(self.parsed, catalog, table, own)
        sqls = [texts.text(expression) for _, expression in columns.values()]
        condition = None if where is None else texts.text(where)
        nodes = [expression for _, expression in columns.values()]
        kinds = self._types(relation.columns, sqls, nodes)
        if condition is not None and where is not None:
            (kind,) = self._types(relation.columns, [condition], [where])
            if not pa.types.is_boolean(kind):
                self.parsed.fail(f"expected a condition, and this is {kind}", where)
        assert relation.time is not None
        times = {at for at, sql in enumerate(sqls) if sql == quote(relation.time)}
        named = tuple((shown, sql) for (shown, _), sql in zip(columns.values(), sqls, strict=True))
        functions = texts.called() | (derived_from.functions if derived_from is not None else frozenset())
        return Branch(stream, named, condition, unnest), kinds, times, set(functions)

    def _declared(self, table: exp.Table) -> Relation:
        """The declared stream that rows are derived from."""
        folded = table.name.casefold()
        relation = next(
            (each for name, each in self.catalog.streams.items() if name.casefold() == folded), None
        )
        if relation is None or not relation.is_declared or relation.time is None:
            self.parsed.fail(
                f"UNION ALL and explode read declared streams, and {table.name} is not one", table
            )
        return relation

    def _types(
        self, columns: Mapping[str, pa.DataType], sqls: Sequence[str], nodes: Sequence[exp.Expr]
    ) -> list[pa.DataType]:
        kinds = []
        for kind, node in zip(self.scalars.types(columns, list(sqls)), nodes, strict=True):
            if isinstance(kind, SQLError):
                self.parsed.fail(kind.message, node)
            kinds.append(kind)
        return kinds


class _RowTexts:
    """Canonical texts of expressions over the rows of a stream."""

    def __init__(self, parsed: Parsed, catalog: Catalog, table: exp.Table, own: str):
        node = table.copy()
        node.set("alias", exp.TableAlias(this=exp.to_identifier(own, quoted=True)))
        alone = replace(parsed, bracket=None, derived=None, inlined=frozenset())
        self.binder = SelectBinder(alone, catalog)
        self.binder.scope.add(node)
        self._nodes: list[exp.Expr] = []  # held, so that the ids of the nodes stay their own

    def text(self, node: exp.Expr) -> str:
        self._nodes.append(node)
        return self.binder.row_text(node)

    def called(self) -> set[str]:
        return self.binder.called()


def relation_of_derived(derived: DerivedStream) -> Relation:
    """A derived stream as queries read it."""
    why = "it is the result of UNION ALL or explode; join the streams themselves"
    return Relation(derived.name, dict(derived.columns), derived.time, why, is_declared=False)


def common_types(parts: Sequence[Sequence[pa.DataType]]) -> list[pa.DataType | None]:
    """The types that hold the values of all parts of a union, as in Spark; None where there is none."""
    return [_common_type(types) for types in zip(*parts, strict=False)]


def _common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    kinds = list(dict.fromkeys(kind for kind in types if not pa.types.is_null(kind)))
    if len(kinds) > 1 and all(kind in _BY_WIDTH for kind in kinds):
        kinds = [max(kinds, key=_BY_WIDTH.index)]
    return kinds[0] if len(kinds) == 1 and kinds[0] in TYPE_NAMES else None


def flattened(parsed: Parsed, node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a chain of UNION ALL."""
    if isinstance(node, exp.Subquery):
        node = node.this
    if not isinstance(node, exp.Union):
        yield node
        return
    for clause in ("order", "limit", "offset"):
        if node.args.get(clause) is not None:
            parsed.fail(f"{clause.upper()} can't follow UNION ALL", node.args[clause])
    yield from flattened(parsed, node.this)
    yield from flattened(parsed, node.expression)


def name_by_place(select: exp.Expr) -> None:
    """Give each item of a SELECT a name of its own, unless it stands for several columns."""
    if not isinstance(select, exp.Select) or any(
        item.find(exp.Star) is not None or isinstance(item, exp.Aliases) or generator_of(item) is not None
        for item in select.expressions
    ):
        return
    items = [
        exp.Alias(this=item.unalias(), alias=exp.to_identifier(f"column {place}", quoted=True))
        for place, item in enumerate(select.expressions, 1)
    ]
    select.set("expressions", items)


def _column(own: str, name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(own, quoted=True))
