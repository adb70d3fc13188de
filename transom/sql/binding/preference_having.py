"""HAVING of queries WITH PREFERENCE: a condition over the keys and the aggregates of a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from transom.columns.table_columns import aggregate_column, group_column
from transom.errors import SQLError
from transom.sql.binding.expression_types import ScalarBinder, Typer, TypeTable
from transom.sql.binding.preference_aggregates import is_aggregate
from transom.sql.binding.scope import Scope
from transom.sql.binding.select import is_cut_from_chain
from transom.sql.catalog import Catalog
from transom.sql.preference_query import Figure, Output, PreferenceKey
from transom.sql.query import Scalar
from transom.sql.syntax.canonical import Printer, quote
from transom.sql.syntax.parsed_query import Parsed


class HavingBinder(ScalarBinder):
    """Reads HAVING. A name is that of a key first, then that of an item, as in window queries.

    Aggregates that are not in SELECT are added to `figures`, hidden.

    `figure` makes the aggregate of a call, `row_text` the text of an expression in which `keys` are given.
    """

    def __init__(
        self,
        parsed: Parsed,
        catalog: Catalog,
        scope: Scope,
        keys: Mapping[str, PreferenceKey],
        outputs: Sequence[Output],
        figures: Sequence[Figure],
        figure: Callable[[str, exp.Expr], Figure],
        row_text: Callable[[exp.Expr], str],
    ):
        super().__init__(parsed, catalog.utc)
        self.scope, self.keys, self.figures = scope, keys, list(figures)
        self.functions: Collection[str] = {name.casefold() for name in catalog.functions}
        self.printer = Printer(parsed, catalog.functions, self._leaf)
        self.typer: Typer | None = None
        self._figure, self._row_text = figure, row_text
        self._items = {
            output.name.casefold(): group_column(output.key) for output in outputs if output.key is not None
        }
        self._items |= {figure.name.casefold(): aggregate_column(at) for at, figure in enumerate(figures)}

    def text(self, node: exp.Expr) -> str:
        """The condition as text; all its aggregates are among `figures` then."""
        return self.printer.root(node)

    def use_types(self, table: TypeTable) -> None:
        """Look up types from now on, when those of all keys and aggregates are known."""
        columns: dict[str, pa.DataType] = {
            group_column(at): key.scalar.type for at, key in enumerate(self.keys.values())
        }
        columns |= {aggregate_column(at): figure.type for at, figure in enumerate(self.figures)}
        inputs = table.over(
            ("HAVING", *((name, str(kind)) for name, kind in columns.items())), lambda: columns
        )
        self.typer = Typer(self.parsed, inputs)

    @property
    def is_missing(self) -> bool:
        """Whether a type has to be resolved first."""
        return self.typer is None or self.typer.missing

    def scalar(self, node: exp.Expr) -> Scalar | None:
        text = self.text(node)
        kind = None if self.typer is None else self.typer.type(text, node)
        return None if kind is None else Scalar(text, kind)

    def _leaf(self, node: exp.Expr) -> str | None:
        if is_aggregate(node, self.functions):
            return quote(aggregate_column(self._number(node)))
        if isinstance(node, exp.Column):
            return self._column(node)
        return None if is_cut_from_chain(node) else self._key(node)

    def _column(self, node: exp.Column) -> str:
        item = self._items.get(node.name.casefold()) if len(node.parts) == 1 else None
        text = None
        with nullcontext() if item is None else suppress(SQLError):  # a name of both streams may be an item's
            text = self._key(node)
        if text is None:
            text = self.scope.without_parentheses(node) if item is None else quote(item)
        if text is None:
            self.scope.column(node)  # an unknown name is the better error
            self.parsed.fail(f"{node.name} is neither in GROUP BY nor in an aggregate", node)
        return text

    def _key(self, node: exp.Expr) -> str | None:
        """The key of GROUP BY that an expression equals."""
        columns = list(node.find_all(exp.Column))
        if not columns or any(is_aggregate(part, self.functions) for part in node.walk()):
            return None
        if any(
            (len(part.parts) == 1 and part.name.casefold() in self._items and part is not node)
            or self.scope.find(part) is None
            for part in columns
        ):
            return None
        text = self._row_text(node)
        return quote(group_column(list(self.keys).index(text))) if text in self.keys else None

    def _number(self, node: exp.Expr) -> int:
        """The place of an aggregate among the figures."""
        made = self._figure("", node)
        for place, figure in enumerate(self.figures):
            if replace(figure, name="", hidden=False) == made:
                return place
        self.figures.append(replace(made, hidden=True))
        return len(self.figures) - 1
