"""Scalar expressions evaluated in Python with Spark's semantics (ANSI mode off): the `Scalars` without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql.interpreter.expressions import Compiler, Functions, parsed
from transom.sql.interpreter.python_functions import PythonFunction
from transom.sql.interpreter.subtrees import Subtrees
from transom.sql.interpreter.typed_expression import Row, TypedExpression, column_expression
from transom.sql.interpreter.values import column_values
from transom.sql.interpreter.vectors import VectorTable, array_of, full

ColumnKey = tuple[tuple[str, pa.DataType], ...]

# A day of queries that come and go must not fill the memory: a compiled expression holds its syntax tree and functions.
CACHED_EXPRESSIONS = 500  # over some columns; more, if a projection has more than half of them
MAX_CACHED_EXPRESSIONS = 100_000
MAX_CACHED_PLANS = 200
MAX_RECENT_SCHEMAS = 16
LARGE_TABLE = 1 << 28  # bytes


@dataclass(frozen=True)
class Compiled:
    """A compiled expression; `column` is the column that it is, if it is nothing else."""

    typed: TypedExpression
    used: tuple[str, ...]
    column: str | None

    @property
    def is_vectorized(self) -> bool:
        """Whether its time per row is small, whatever the values are: Arrow and NumPy compute all of it."""
        return self.typed.is_vectorized

    @property
    def is_exact(self) -> bool:
        """Whether its values are Spark's to the last digit; Java's logarithms, for example, differ from C's."""
        return self.typed.is_exact


@dataclass(frozen=True)
class ProjectionPlan:
    """The compiled expressions of a projection, and the schema of its table."""

    compiled: tuple[Compiled, ...]
    schema: pa.Schema

    def table(self, table: pa.Table, evaluate: Callable[[Compiled], pa.Array | pa.ChunkedArray]) -> pa.Table:
        """The table of the projection, with each expression evaluated."""
        if not self.compiled:
            return table.select([])
        return pa.Table.from_arrays([evaluate(each) for each in self.compiled], schema=self.schema)


class ColumnScope:
    """The expressions that were compiled over some columns."""

    def __init__(self, columns: Columns, functions: Functions):
        self._columns, self._functions = columns, functions
        self._compiled: dict[str, Compiled] = {}
        self._plans: dict[tuple[tuple[str, str], ...], ProjectionPlan] = {}
        self._subtrees = Subtrees()
        self._most = CACHED_EXPRESSIONS
        self._projected = 0  # expressions of the largest projection

    def __len__(self) -> int:
        return len(self._compiled)

    def plan(self, expressions: Mapping[str, str]) -> ProjectionPlan:
        """The projection of some named expressions."""
        key = tuple(expressions.items())
        known = self._plans.get(key)
        if known is not None:
            return known
        self._projected = max(self._projected, len(expressions))
        compiled = tuple(self.compiled(text) for text in expressions.values())
        fields = [pa.field(name, each.typed.type) for name, each in zip(expressions, compiled, strict=True)]
        plan = ProjectionPlan(compiled, pa.schema(fields))
        if len(self._plans) >= MAX_CACHED_PLANS:
            self._plans = {}
        self._plans[key] = plan
        return plan

    def compiled(self, text: str) -> Compiled:
        """A compiled expression, or an error that says why it is none."""
        known = self._compiled.get(text)
        if known is None:
            if len(self._compiled) >= self._most:
                self._make_room()
            known = self._compiled[text] = self._compile(text)
        return known

    def _make_room(self) -> None:
        """Forget all expressions if most are of queries that left; otherwise keep twice as many.

        Queries whose rows have not come yet are in no projection.
        """
        count = len(self._compiled)
        if 0 < 2 * self._projected <= count or count >= MAX_CACHED_EXPRESSIONS:
            self._compiled, self._plans, self._subtrees = {}, {}, Subtrees()
            self._most, self._projected = CACHED_EXPRESSIONS, 0
        else:
            self._most = min(2 * self._most, MAX_CACHED_EXPRESSIONS)

    def _compile(self, text: str) -> Compiled:
        compiler = Compiler(text, self._columns, self._functions, self._subtrees)
        try:
            tree = parsed(text)
            typed = compiler.build(tree)
        except SQLError as error:
            raise SQLError(error.message, text) from None
        except (ArithmeticError, RecursionError, ValueError) as error:  # a literal or a type that is none
            raise SQLError(f"not an expression: {error}", text) from error
        used = tuple(sorted(compiler.used))
        if not (isinstance(tree, exp.Column) and len(tree.parts) == 1):
            return Compiled(typed, used, None)
        return Compiled(column_expression(used[0], self._columns[used[0]]), used, used[0])  # as it is stored


class InterpretedScalars:
    """Types and evaluates expressions in this process, without Spark.

    >>> table = pa.table({"price": [10, None], "volume": [3, 4]})
    >>> InterpretedScalars().project(table, {"x": "`price` / `volume`"}).to_pylist()
    [{'x': 3.3333333333333335}, {'x': None}]

    `functions` are Python functions with the types of their results, by name. A call that raises is null:

    >>> scalars = InterpretedScalars({"inverse": (lambda x: 1 / x, pa.float64())})
    >>> scalars.project(pa.table({"x": [4, 0]}), {"y": "inverse(x)"})["y"].to_pylist(), scalars.failures("inverse")
    ([0.25, None], 1)
    """

    def __init__(self, functions: Mapping[str, tuple[Callable[..., Any], pa.DataType]] | None = None):
        self._functions: dict[str, PythonFunction] = {}
        self._scopes: dict[ColumnKey, ColumnScope] = {}
        self._recent: list[
            tuple[pa.Schema, ColumnScope]
        ] = []  # comparing schemas is faster than hashing types
        for name, (function, type) in (functions or {}).items():
            self.register(name, function, type)

    def register(
        self,
        name: str,
        function: Callable[..., Any],
        type: pa.DataType,
        takes: Callable[[pa.DataType], bool] = lambda kind: True,
    ) -> None:
        """Add a Python function, or replace the one of this name; names are the same in any case."""
        self._functions = self._functions | {name.lower(): PythonFunction(function, type, takes)}
        self._scopes, self._recent = {}, []

    def unregister(self, name: str) -> None:
        """Forget the Python function of this name, if there is one."""
        self._functions = {n: function for n, function in self._functions.items() if n != name.lower()}
        self._scopes, self._recent = {}, []

    def failures(self, name: str) -> int:
        """How many calls of a function raised an exception since it was registered."""
        function = self._functions.get(name.lower())
        return 0 if function is None else function.failures

    def all_failures(self) -> dict[str, int]:
        """How many calls of each function raised an exception since it was registered."""
        return {name: function.failures for name, function in self._functions.items()}

    def types(self, columns: Columns, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        """The type of each expression over such columns, or why it has none."""
        scope = self._scope(tuple(columns.items()))
        answers: list[pa.DataType | SQLError] = []
        for text in expressions:
            try:
                answers.append(scope.compiled(text).typed.type)
            except SQLError as error:
                answers.append(error)
        return answers

    def compiled(self, columns: Columns, text: str) -> Compiled | None:
        """The compiled expression over such columns; None if only Spark can evaluate it."""
        try:
            return self._scope(tuple(columns.items())).compiled(text)
        except SQLError:
            return None

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """A table with one column for each named expression: by vectors if they have vector forms, else row by row."""
        scope = self._scope_of(table.schema)
        with np.errstate(all="ignore"):
            return scope.plan(expressions).table(table, Evaluation(table).array)

    def project_by_row(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """The same by the row forms alone: the reference with which vector forms are compared."""
        plan = self._scope_of(table.schema).plan(expressions)
        return plan.table(table, Evaluation(table).array_by_row)

    def calls_python(self, text: str) -> bool:
        """Whether an expression may call a Python function of the program."""
        lower = text.lower()
        return any(re.search(rf"\b{re.escape(name)}\b`?\s*\(", lower) for name in self._functions)

    def used_columns(self, table: pa.Table, texts: Iterable[str]) -> list[str]:
        """The columns of a table that expressions read."""
        scope = self._scope_of(table.schema)
        return sorted({name for text in texts for name in scope.compiled(text).used})

    def _scope(self, columns: ColumnKey) -> ColumnScope:
        scope = self._scopes.get(columns)
        if scope is None:
            if sum(map(len, self._scopes.values())) >= MAX_CACHED_EXPRESSIONS:
                self._scopes, self._recent = {}, []
            calls = {name: function.call for name, function in self._functions.items()}
            scope = self._scopes[columns] = ColumnScope(dict(columns), calls)
        return scope

    def _scope_of(self, schema: pa.Schema) -> ColumnScope:
        for known, scope in self._recent:
            if known.equals(schema):
                return scope
        scope = self._scope(tuple(zip(schema.names, schema.types, strict=True)))
        self._recent = [(schema, scope), *self._recent[: MAX_RECENT_SCHEMAS - 1]]
        return scope


class Evaluation:
    """The evaluation of expressions over one table."""

    def __init__(self, table: pa.Table):
        self._table = table
        self._vectors = VectorTable(table)
        self._rows: dict[tuple[str, ...], list[Row]] = {}

    def array(self, compiled: Compiled) -> pa.Array | pa.ChunkedArray:
        """The values of an expression."""
        if compiled.column is not None:
            return self._table[compiled.column]
        if compiled.typed.vector is None:
            return self.array_by_row(compiled)
        try:
            vector = self._vectors.value(compiled.typed)
            found = array_of(vector, compiled.typed.type, self._table.num_rows)
        except pa.ArrowException:  # texts of more than 2 GB do not fit into one array
            if self._table.nbytes < LARGE_TABLE:
                raise
            return self.array_by_row(compiled)
        return found if vector.by_row is None else self._with_rows(found, vector.by_row, compiled)

    def array_by_row(self, compiled: Compiled) -> pa.Array | pa.ChunkedArray:
        """The values of an expression, by its row form."""
        if compiled.column is not None:
            return self._table[compiled.column]
        names = compiled.used
        if names not in self._rows:
            self._rows[names] = _rows(self._table, names)
        return _array(compiled.typed, self._rows[names])

    def _with_rows(self, found: pa.Array, by_row: np.ndarray, compiled: Compiled) -> pa.Array:
        """The values, with those of some rows computed by the row form."""
        size = self._table.num_rows
        places = np.flatnonzero(full(by_row, size))
        rows = _rows(self._table.take(pa.array(places)), compiled.used)
        sources = np.arange(size)
        sources[places] = size + np.arange(len(places))
        return pa.concat_arrays([found, _array(compiled.typed, rows)]).take(pa.array(sources))


def _rows(table: pa.Table, names: tuple[str, ...]) -> list[Row]:
    """The rows of some columns."""
    if not names:
        return [{}] * table.num_rows
    columns = [column_values(table[name]) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _array(typed: TypedExpression, rows: Sequence[Row]) -> pa.Array:
    """An expression's value for each row; null where Python or Arrow has none, as for a date after the year 9999."""
    try:
        return pa.array(list(map(typed.of, rows)), typed.type)
    except (ArithmeticError, ValueError):
        values = [_value_or_null(typed, row) for row in rows]
        return pa.array(values, typed.type)


def _value_or_null(typed: TypedExpression, row: Row) -> Any:
    try:
        value = typed.of(row)
        pa.scalar(value, typed.type)
    except (ArithmeticError, ValueError):
        return None
    return value
