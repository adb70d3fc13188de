"""Scalar expressions evaluated in Python with Spark's semantics (ANSI mode off): the `Scalars` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql.interpreter.expressions import Compiler, parsed
from transom.sql.interpreter.python_functions import PythonFunction
from transom.sql.interpreter.typed_expression import Row, TypedExpression, column_expression
from transom.sql.interpreter.values import column_values
from transom.sql.interpreter.vectors import VectorTable, array_of, full

MAX_CACHED_EXPRESSIONS = (
    100_000  # compiled expressions; a day of queries that come and go must not fill the memory
)


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
        self._compiled: dict[tuple[tuple[tuple[str, pa.DataType], ...], str], Compiled] = {}
        for name, (function, type) in (functions or {}).items():
            self.register(name, function, type)

    def register(self, name: str, function: Callable[..., Any], type: pa.DataType) -> None:
        """Add a Python function, or replace the one of this name; names are the same in any case."""
        self._functions = self._functions | {name.lower(): PythonFunction(function, type)}
        self._compiled = {}

    def failures(self, name: str) -> int:
        """How many calls of a function raised an exception since it was registered."""
        function = self._functions.get(name.lower())
        return 0 if function is None else function.failures

    def types(self, columns: Columns, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        """The type of each expression over such columns, or why it has none."""
        key = tuple(columns.items())
        answers: list[pa.DataType | SQLError] = []
        for text in expressions:
            try:
                answers.append(self._compile(text, key).typed.type)
            except SQLError as error:
                answers.append(error)
        return answers

    def compiled(self, columns: Columns, text: str) -> Compiled | None:
        """The compiled expression over such columns; None if only Spark can evaluate it."""
        try:
            return self._compile(text, tuple(columns.items()))
        except SQLError:
            return None

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """A table with one column for each named expression: by vectors if they have vector forms, else row by row."""
        return self._projected(Evaluation(table).array, table, expressions)

    def project_by_row(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """The same by the row forms alone: the reference with which vector forms are compared."""
        return self._projected(Evaluation(table).array_by_row, table, expressions)

    def _projected(
        self,
        evaluate: Callable[[Compiled], pa.Array | pa.ChunkedArray],
        table: pa.Table,
        expressions: Mapping[str, str],
    ) -> pa.Table:
        key = tuple(zip(table.column_names, table.schema.types, strict=True))
        compiled = {name: self._compile(text, key) for name, text in expressions.items()}
        arrays = [evaluate(each) for each in compiled.values()]
        fields = [pa.field(name, each.typed.type) for name, each in compiled.items()]
        if not arrays:
            return table.select([])
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def calls_python(self, text: str) -> bool:
        """Whether an expression may call a Python function of the program."""
        return any(name in text.lower() for name in self._functions)

    def used_columns(self, table: pa.Table, texts: Iterable[str]) -> list[str]:
        """The columns of a table that expressions read."""
        key = tuple(zip(table.column_names, table.schema.types, strict=True))
        return sorted({name for text in texts for name in self._compile(text, key).used})

    def _compile(self, text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> Compiled:
        known = self._compiled.get((columns, text))
        if known is not None:
            return known
        calls = {name: function.call for name, function in self._functions.items()}
        compiler = Compiler(text, dict(columns), calls)
        try:
            tree = parsed(text)
            typed = compiler.build(tree)
        except SQLError as error:
            raise SQLError(error.message, text) from None
        except (ArithmeticError, RecursionError, ValueError) as error:  # a literal or a type that is none
            raise SQLError(f"not an expression: {error}", text) from error
        used = tuple(sorted(compiler.used))
        is_column = isinstance(tree, exp.Column) and len(tree.parts) == 1
        if is_column:  # it passes through as it is stored
            typed = column_expression(used[0], dict(columns)[used[0]])
        compiled = Compiled(typed, used, used[0] if is_column else None)
        if len(self._compiled) >= MAX_CACHED_EXPRESSIONS:
            self._compiled = {}
        self._compiled[columns, text] = compiled
        return compiled


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
        with np.errstate(all="ignore"):
            vector = self._vectors.value(compiled.typed)
            found = array_of(vector, compiled.typed.type, self._table.num_rows)
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
