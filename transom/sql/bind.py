"""Text to bound queries, thousands at a time."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import Hashable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from transom.elements import Demand, Emit
from transom.errors import SQLError
from transom.sql.calls import Draft, result_type
from transom.sql.canonical import bare
from transom.sql.catalog import Catalog, Scalars
from transom.sql.dialect import EndClause, Parsed, parse, parse_end
from transom.sql.emit import EmitClause
from transom.sql.joins import join
from transom.sql.lookups import check_clause, check_structure
from transom.sql.predicates import both, lower
from transom.sql.query import Call, Item, Key, Predicate, Query, Scalar
from transom.sql.select import WINDOW_STRUCT, Selection
from transom.sql.templates import Cut, Template, cut
from transom.sql.types import Steps, Typer, TypeTable

MAX_ALIKE = 8  # templates of one text without its constants; more would hardly be used again
MAX_TEMPLATES = 1_000
MAX_ENDS = 1_000  # different clauses at the end (EMIT EARLY, USING, WITHIN) of one template
MAX_TYPES = 100_000  # remembered; queries that come and go must not fill the memory


def bind(texts: Mapping[str, str], catalog: Catalog, scalars: Scalars) -> dict[str, Query | SQLError]:
    """Bind named queries; each gives a query or its own error, and none hinders another."""
    return Binding(catalog, scalars).bind(texts)


def bind_one(text: str, catalog: Catalog, scalars: Scalars) -> Query:
    """Bind one query or raise what is wrong with it."""
    bound = bind({"": text}, catalog, scalars)[""]
    if isinstance(bound, SQLError):
        raise bound
    return bound


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


class Binding:
    """Binds queries over one catalog, and remembers what they have in common: templates and types."""

    def __init__(self, catalog: Catalog, scalars: Scalars):
        self.catalog, self.table = catalog, TypeTable(scalars)
        self._readers: dict[Hashable, list[_Reader]] = {}
        self._lock = threading.Lock()  # a template holds one query's constants at a time

    def bind(self, texts: Mapping[str, str]) -> dict[str, Query | SQLError]:
        """Bind named queries; each gives a query or its own error, and none hinders another."""
        with self._lock, _collector_paused():
            outcome = self._bind(texts)
            self.table.tidy(MAX_TYPES)
        return {name: outcome[name] for name in texts}

    def _bind(self, texts: Mapping[str, str]) -> dict[str, Query | SQLError]:
        outcome: dict[str, Query | SQLError] = {}
        running = {name: self._steps(text) for name, text in texts.items()}
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
            self.table.ask()
        return outcome

    def _steps(self, text: str) -> Steps[Query]:
        whole = cut(text)
        alike = self._readers.get(whole.key, [])
        reader = next((one for one in alike if one.template.fits(whole.constants)), None)
        if reader is not None:
            if not reader.is_typed:
                yield  # the first of its kind asks for what all will want to know
            try:
                return (yield from reader.steps(text, whole))
            except SQLError:  # read alone, the query says it again and points into its own text
                return (yield from _Reader(text, whole, self.catalog, self.table).steps(text, whole))
        reader = _Reader(text, whole, self.catalog, self.table)
        if len(self._readers) >= MAX_TEMPLATES:
            self._readers.clear()
        self._readers[whole.key] = [*alike[1 - MAX_ALIKE :], reader]
        return (yield from reader.steps(text, whole))


class _Typed:
    """Expressions with their types, over a row or over a result."""

    def __init__(self, parsed: Parsed, utc: bool):
        self.parsed, self.utc = parsed, utc

    def scalar(self, node: exp.Expr) -> Scalar | None:
        """The scalar that a node is, once its type is known."""
        raise NotImplementedError

    def truth(self, node: exp.Expr) -> Scalar:
        """A condition that Spark evaluates."""
        scalar = self.scalar(node)
        if scalar is None:
            return Scalar("", pa.bool_())  # not known yet: this build is thrown away
        if pa.types.is_boolean(scalar.type):
            return scalar
        if not pa.types.is_null(scalar.type):
            self.parsed.fail(f"expected a condition, and this is {scalar.type}", node)
        return Scalar(scalar.sql, pa.bool_(), scalar.column)


class _Reader(_Typed):
    """A query that is read once and bound in steps, for its own constants or for those of others like it.

    Between two steps the types that it asked for are found out, and other queries may put their constants in.
    """

    def __init__(self, text: str, whole: Cut, catalog: Catalog, table: TypeTable):
        super().__init__(parse(text), catalog.utc)
        self.table = table
        self.selection = Selection(self.parsed, catalog)
        self.scope = self.selection.scope
        with self.selection.inside("ON"):
            self.joined = join(self.scope, self.selection.rows)
        self.selection.read()
        check_clause(self.parsed, self.selection)
        ids = tuple(source.id for source in self.scope.sources if source.table)
        inputs = table.over((self.scope.stream.relation.name, ids), self.scope.inputs)
        self.row = Typer(self.parsed, inputs)
        self.template = Template(whole, self.parsed, self.selection, self.joined)
        self._qualities = catalog.qualities
        self._none = table.shared(Demand()) if self.selection.windowing.on_demand else None
        self._ends: dict[str, Emit | Demand | None] = {"": self._none}  # by the clause's text
        if self.parsed.end is not None:
            self._ends[self.template.end_text(whole)] = self._known(text, self.parsed.end)
        self.is_typed = False

    def steps(self, text: str, whole: Cut) -> Steps[Query]:
        """Bind a query that fits the template."""
        where, keys, calls = yield from self.row.until_known(lambda: self._rows(whole))
        end = self._end(whole)
        if isinstance(end, Demand):
            check_structure(self.parsed, self.selection, end, calls)
        columns = self._result_columns(keys, calls)
        signature = tuple((name, str(kind)) for name, kind in columns.items())
        results = Typer(self.parsed, self.table.over(signature, lambda: columns))
        result = _Result(self, results, columns)
        items, kept = yield from results.until_known(lambda: result.build(whole))
        self.is_typed = True
        windowing = self.selection.windowing
        return Query(
            text=text,
            stream=self.scope.stream.relation.name,
            clock=self.table.shared(windowing.clock),
            clock_type=windowing.type,
            window=self.table.shared(windowing.spec),
            joins=self.table.shared(self.joined.finish()),
            where=where,
            keys=self.table.shared(keys),
            calls=self.table.shared(calls),
            items=self.table.shared(items),
            having=self.selection.having_text(),
            kept=kept,
            functions=self.table.shared(frozenset(self.selection.called())),
            emit=end if isinstance(end, Emit) else None,
            demand=end if isinstance(end, Demand) else None,
        )

    def _end(self, whole: Cut) -> Emit | Demand | None:
        """What the clause at the end says; few clauses are written by many queries."""
        text = self.template.end_text(whole)
        if text not in self._ends:
            if len(self._ends) >= MAX_ENDS:
                self._ends = {"": self._none}
            self._ends[text] = self._known(text, parse_end(text))
        return self._ends[text]

    def _known(self, text: str, clause: EndClause) -> Emit | Demand:
        if isinstance(clause, EmitClause):
            return self.table.shared(clause.known(text, self._qualities))
        return self.table.shared(clause.known(text, self.selection.windowing.clock.kind))

    def scalar(self, node: exp.Expr) -> Scalar | None:
        node = bare(node)
        if isinstance(node, exp.Column) and (column := self.scope.find(node)) is not None:
            self.scope.column(node)
            name = column.name if column.plain else None
            return self.table.shared(Scalar(column.sql, column.type, name))
        text = self.selection.row_text(node)
        kind = self.row.type(text, node)
        return None if kind is None else self.table.shared(Scalar(text, kind))

    def _rows(self, whole: Cut) -> tuple[Predicate | None, tuple[Key, ...], tuple[Call, ...]]:
        self.template.put(whole.constants)
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

    def _result_columns(self, keys: tuple[Key, ...], calls: tuple[Call, ...]) -> dict[str, pa.DataType]:
        kind = self.selection.windowing.type
        columns = {f"k{at}": key.scalar.type for at, key in enumerate(keys)}
        columns |= {f"a{at}": call.type for at, call in enumerate(calls)}
        return columns | {"window_start": kind, "window_end": kind}


class _Result(_Typed):
    """What is computed for a result: the columns of the SELECT list, and whether HAVING keeps it."""

    def __init__(self, reader: _Reader, typer: Typer, columns: Mapping[str, pa.DataType]):
        super().__init__(reader.parsed, reader.utc)
        self.selection, self.template, self.table = reader.selection, reader.template, reader.table
        self.typer = typer
        self.known = {f"`{name}`": kind for name, kind in columns.items()}
        window = columns["window_start"]
        self.known[WINDOW_STRUCT] = pa.struct([("start", window), ("end", window)])

    def build(self, whole: Cut) -> tuple[tuple[Item, ...], Predicate | None]:
        """The result's columns, and HAVING as a predicate over them."""
        self.template.put(whole.constants)
        made = []
        for name, sql, node in self.selection.result_items():
            kind = self._type(sql, node)
            made.append(Item(name, sql, kind if kind is not None else pa.null()))
        having = self.selection.having
        with self.selection.inside("HAVING"):
            kept = None if having is None else lower(having, self)
        return tuple(made), kept

    def scalar(self, node: exp.Expr) -> Scalar | None:
        text = self.selection.results.root(node)
        kind = self._type(text, node)
        return None if kind is None else self.table.shared(Scalar(text, kind))

    def _type(self, text: str, node: exp.Expr) -> pa.DataType | None:
        return self.known.get(text) or self.typer.type(text, node)
