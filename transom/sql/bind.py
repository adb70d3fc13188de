"""Text to bound queries, thousands at a time."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError
from transom.sql.calls import Draft, result_type
from transom.sql.canonical import bare
from transom.sql.catalog import Catalog, Scalars
from transom.sql.dialect import parse
from transom.sql.joins import join
from transom.sql.predicates import both, lower
from transom.sql.query import Call, Item, Key, Predicate, Query, Scalar
from transom.sql.select import WINDOW_STRUCT, Selection
from transom.sql.types import Steps, Typer, TypeTable


def bind(texts: Mapping[str, str], catalog: Catalog, scalars: Scalars) -> dict[str, Query | SQLError]:
    """Bind named queries; each gives a query or its own error, and none hinders another."""
    with _collector_paused():
        outcome = _bind(texts, catalog, scalars)
    return {name: outcome[name] for name in texts}


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Thousands of syntax trees live at once; searching them for garbage again and again doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _bind(texts: Mapping[str, str], catalog: Catalog, scalars: Scalars) -> dict[str, Query | SQLError]:
    table = TypeTable(scalars)
    outcome: dict[str, Query | SQLError] = {}
    running = {name: _Binder(text, catalog, table).steps() for name, text in texts.items()}
    while running:
        for name, steps in list(running.items()):
            try:
                next(steps)
                continue
            except StopIteration as done:
                outcome[name] = done.value
            except SQLError as error:
                outcome[name] = error
            except RecursionError:
                outcome[name] = SQLError("the query is nested too deeply", texts[name])
            del running[name]
        table.ask()
    return outcome


def bind_one(text: str, catalog: Catalog, scalars: Scalars) -> Query:
    """Bind one query or raise what is wrong with it."""
    bound = bind({"": text}, catalog, scalars)[""]
    if isinstance(bound, SQLError):
        raise bound
    return bound


class _Binder:
    """Binds one query in steps; between two steps the types that it asked for are found out."""

    def __init__(self, text: str, catalog: Catalog, table: TypeTable):
        self.text, self.catalog, self.table = text, catalog, table

    @property
    def utc(self) -> bool:
        return self.catalog.utc

    def steps(self) -> Steps[Query]:
        self.parsed = parse(self.text)
        self.selection = Selection(self.parsed, self.catalog)
        self.scope = self.selection.scope
        with self.selection.inside("ON"):
            self.joined = join(self.scope, self.selection.rows)
        self.selection.read()
        ids = tuple(source.id for source in self.scope.sources if source.table)
        inputs = self.table.over((self.scope.stream.relation.name, ids), self.scope.inputs)
        self.row = Typer(self.parsed, inputs)
        where, keys, calls = yield from self.row.until_known(self._rows)
        columns = self._result_columns(keys, calls)
        signature = tuple((name, str(kind)) for name, kind in columns.items())
        results = Typer(self.parsed, self.table.over(signature, lambda: columns))
        items = yield from results.until_known(lambda: self._items(results, columns))
        return Query(
            text=self.text,
            stream=self.scope.stream.relation.name,
            clock=self.selection.windowing.clock,
            clock_type=self.selection.windowing.type,
            window=self.selection.windowing.spec,
            joins=self.joined.finish(),
            where=where,
            keys=keys,
            calls=calls,
            items=items,
            having=self.selection.having,
            functions=frozenset(self.selection.called()),
        )

    # --- what is computed for a row ----------------------------------------------------------

    def scalar(self, node: exp.Expr) -> Scalar | None:
        """The scalar that a node is, once its type is known."""
        node = bare(node)
        if isinstance(node, exp.Column) and (column := self.scope.find(node)) is not None:
            self.scope.column(node)
            return Scalar(column.sql, column.type, column.name if column.plain else None)
        text = self.selection.row_text(node)
        kind = self.row.type(text, node)
        return None if kind is None else Scalar(text, kind)

    def truth(self, node: exp.Expr) -> Scalar:
        """A condition that Spark evaluates."""
        scalar = self.scalar(node)
        if scalar is None:
            return Scalar("", pa.bool_())  # not known yet: this build is thrown away
        if not (pa.types.is_boolean(scalar.type) or pa.types.is_null(scalar.type)):
            self.parsed.fail(f"expected a condition, and this is {scalar.type}", node)
        return Scalar(scalar.sql, pa.bool_(), scalar.column)

    def _rows(self) -> tuple[Predicate | None, tuple[Key, ...], tuple[Call, ...]]:
        with self.selection.inside("WHERE"):
            parts = [lower(node, self) for node in self.joined.where]
        with self.selection.inside("GROUP BY"):
            keys = [self._key(name, node) for name, node in self.selection.named_keys()]
        calls = [self._call(draft) for draft in self.selection.drafts]
        return both([*self.joined.flags, *parts]), tuple(keys), tuple(calls)

    def _key(self, name: str, node: exp.Expr) -> Key:
        scalar = self.scalar(node)
        if scalar is None:
            return Key(name, Scalar("", pa.null()))
        if pa.types.is_map(scalar.type):
            self.parsed.fail("a map can't be grouped by", node)
        return Key(name, scalar)

    def _call(self, draft: Draft) -> Call:
        with self.selection.inside("another aggregate"):
            args = [self.scalar(arg) for arg in draft.args]
        with self.selection.inside("FILTER"):
            where = None if draft.where is None else lower(draft.where, self)
        known = tuple(arg for arg in args if arg is not None)
        if len(known) < len(args):
            return Call(draft.function, known, pa.null())
        kind = result_type(draft.function, [arg.type for arg in known], draft.parameters)
        if isinstance(kind, str):
            self.parsed.fail(kind, draft.args[0])
        return Call(draft.function, known, kind, where, draft.parameters)

    # --- what is computed for a result -------------------------------------------------------

    def _result_columns(self, keys: tuple[Key, ...], calls: tuple[Call, ...]) -> dict[str, pa.DataType]:
        kind = self.selection.windowing.type
        columns = {f"k{at}": key.scalar.type for at, key in enumerate(keys)}
        columns |= {f"a{at}": call.type for at, call in enumerate(calls)}
        return columns | {"window_start": kind, "window_end": kind}

    def _items(self, results: Typer, columns: dict[str, pa.DataType]) -> tuple[Item, ...]:
        known = {f"`{name}`": kind for name, kind in columns.items()}
        window = self.selection.windowing.type
        known[WINDOW_STRUCT] = pa.struct([("start", window), ("end", window)])
        made = []
        for name, sql, node in self.selection.result_items():
            kind = known.get(sql) or results.type(sql, node)
            made.append(Item(name, sql, kind if kind is not None else pa.null()))
        if self.selection.having is not None:
            node = self.parsed.select.args["having"].this
            kind = known.get(self.selection.having) or results.type(self.selection.having, node)
            if kind is not None and not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
                self.parsed.fail(f"expected a condition, and this is {kind}", node)
        return tuple(made)
