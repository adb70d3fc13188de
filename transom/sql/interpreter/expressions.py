"""Scalar expressions in plain Python: a useful part of Spark SQL, with ANSI mode off.

sqlglot parses the text; every node becomes a `Typed` function of a row. What is not here raises an
`SQLError` that says so, so that nothing is quietly computed another way than Spark would.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp

from transom.errors import SQLError, near_miss
from transom.sql.interpreter import functions as f
from transom.sql.interpreter.casts import cast
from transom.sql.interpreter.functions import Typed
from transom.sql.interpreter.types import BOOL, BY_NAME, DOUBLE, INT, LONG, NULL, STRING
from transom.sql.interpreter.values import rows_of, wrap

Columns = Mapping[str, pa.DataType]


class PythonScalars:
    """Types and evaluates expressions without Spark, slowly and obviously.

    >>> table = pa.table({"price": [10, None], "volume": [3, 4]})
    >>> PythonScalars().project(table, {"x": "`price` / `volume`"}).to_pylist()
    [{'x': 3.3333333333333335}, {'x': None}]
    """

    def types(self, columns: Columns, expressions: Sequence[str]) -> list[pa.DataType | SQLError]:
        """The type of each expression over such columns, or why it has none."""
        answers: list[pa.DataType | SQLError] = []
        for text in expressions:
            try:
                answers.append(compiled(text, columns).type)
            except SQLError as error:
                answers.append(error)
        return answers

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """A table with one column for each named expression, row by row."""
        columns = dict(zip(table.column_names, table.schema.types, strict=True))
        typed = {name: compiled(text, columns) for name, text in expressions.items()}
        rows = rows_of(table)
        arrays = [pa.array([each.of(row) for row in rows], each.type) for each in typed.values()]
        schema = pa.schema([pa.field(name, each.type) for name, each in typed.items()])
        return pa.Table.from_arrays(arrays, schema=schema)


def compiled(text: str, columns: Columns) -> Typed:
    """The expression in the text, typed over these columns."""
    try:
        return build(parsed(text), columns)
    except SQLError as error:
        raise SQLError(error.message, text) from None


@lru_cache(maxsize=4096)
def parsed(text: str) -> exp.Expr:
    """sqlglot's tree of an expression in Spark's dialect."""
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise SQLError(f"not an expression: {error}", text) from None


def build(node: exp.Expr, columns: Columns) -> Typed:
    """The typed function of one node, its children first."""
    builder = BUILDERS.get(type(node))
    if builder is None:
        name = node.name if isinstance(node, exp.Anonymous) else node.key
        raise SQLError(f"the oracle does not evaluate {name}")
    return builder(node, lambda child: build(child, columns), columns)


# --- names and literals ----------------------------------------------------------------------

Build = Callable[[exp.Expr], Typed]
Builder = Callable[[Any, Build, Columns], Typed]


def column(node: exp.Column, of: Build, columns: Columns) -> Typed:
    """A column, or a field of a struct column: `a`.`b`."""
    first, *fields = (part.name for part in node.parts)
    alike = [name for name in columns if name.casefold() == first.casefold()]
    named = first if first in columns else next(iter(alike), None)
    if named is None:
        raise SQLError(f"unknown column {first}{near_miss(first, columns)}")
    typed = Typed(columns[named], lambda row: row[named])
    for name in fields:
        typed = f.field_of(typed, name)
    return typed


def constant(node: exp.Literal, of: Build, columns: Columns) -> Typed:
    """A string or a number: an int, a long or a decimal as it fits, a double if written with an exponent."""
    return f.literal(node.this, STRING) if node.is_string else number(node.this)


def number(text: str) -> Typed:
    """The number that a text without suffix stands for."""
    if "e" in text.lower():
        return f.literal(float(text), DOUBLE)
    value = Decimal(text)
    if "." not in text and wrap(int(value), 64) == value:
        return f.literal(int(value), INT if wrap(int(value), 32) == value else LONG)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    return f.literal(value, pa.decimal128(max(len(digits), scale), scale))


def negation(node: exp.Neg, of: Build, columns: Columns) -> Typed:
    """`-x`; before a literal the sign belongs to the literal."""
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number("-" + node.this.this)
    return f.negative(of(node.this))


def conversion(node: exp.Cast, of: Build, columns: Columns) -> Typed:
    """`CAST(x AS type)`, also the literals DATE '...' and 1.5D."""
    name, parameters = node.to.this.name, [int(part.name) for part in node.to.expressions]
    if name == "DECIMAL":
        precision, scale = [*parameters, *(10, 0)[len(parameters) :]]
        target = pa.decimal128(precision, scale)
    elif name in BY_NAME:
        target = BY_NAME[name]
    else:
        raise SQLError(f"the oracle can't cast to {node.to.sql('spark')}")
    arg = of(node.this)
    known = None if arg.constant is None else cast(arg.constant, arg.type, target)
    return Typed(target, f.converted(arg, target).of, known)


# --- the rest --------------------------------------------------------------------------------


def binary(function: Callable[[Typed, Typed], Typed]) -> Builder:
    """A node with a left and a right side."""
    return lambda node, of, columns: function(of(node.this), of(node.expression))


def unary(function: Callable[[Typed], Typed]) -> Builder:
    """A node with one argument."""
    return lambda node, of, columns: function(of(node.this))


def listed(function: Callable[[Sequence[Typed]], Typed]) -> Builder:
    """A node with a list of arguments, some of which sqlglot keeps apart from the others."""

    def builder(node: exp.Expr, of: Build, columns: Columns) -> Typed:
        first = [] if node.this is None or node.this == "" else [node.this]
        return function([of(arg) for arg in [*first, *node.expressions]])

    return builder


def case(node: exp.Case, of: Build, columns: Columns) -> Typed:
    """CASE with conditions, or with values to compare with."""
    otherwise = of(node.args["default"]) if node.args.get("default") else f.literal(None, NULL)
    subject = of(node.this) if node.this else None
    branches = [(of(branch.this), of(branch.args["true"])) for branch in node.args["ifs"]]
    if subject is not None:
        branches = [(f.comparison("=", subject, value), then) for value, then in branches]
    return f.case(branches, otherwise)


def choice(node: exp.If, of: Build, columns: Columns) -> Typed:
    """`if(condition, x, y)`."""
    otherwise = of(node.args["false"]) if node.args.get("false") else f.literal(None, NULL)
    return f.case([(of(node.this), of(node.args["true"]))], otherwise)


def null_if(left: Typed, right: Typed) -> Typed:
    """`nullif(x, y)`: null where they are equal, else x."""
    return f.case([(f.comparison("=", left, right), f.literal(None, NULL))], left)


def is_test(left: Typed, right: Typed) -> Typed:
    """`x IS NULL`, `x IS TRUE`, `x IS FALSE`."""
    if right.type == NULL:
        return Typed(BOOL, lambda row: left.of(row) is None)
    return f.comparison("<=>", f.boolean(left), right)


def between(node: exp.Between, of: Build, columns: Columns) -> Typed:
    """`x BETWEEN low AND high` is two comparisons."""
    value, low, high = of(node.this), of(node.args["low"]), of(node.args["high"])
    return f.all_of(f.comparison(">=", value, low), f.comparison("<=", value, high))


def membership(node: exp.In, of: Build, columns: Columns) -> Typed:
    """`x IN (...)`."""
    if not node.expressions:
        raise SQLError("the oracle evaluates IN with a list of values only")
    return f.member(of(node.this), [of(value) for value in node.expressions])


def rounding(node: exp.Round, of: Build, columns: Columns) -> Typed:
    """`round(x)` and `round(x, digits)`."""
    digits = node.args.get("decimals")
    return f.rounded(of(node.this), of(digits) if digits else None)


def part_of_text(node: exp.Substring, of: Build, columns: Columns) -> Typed:
    """`substring(text, start, length)`."""
    size = node.args.get("length")
    return f.substring(of(node.this), of(node.args["start"]), of(size) if size else None)


def structure(node: exp.Struct, of: Build, columns: Columns) -> Typed:
    """`named_struct('a', x, ...)` and `struct(x, ...)`."""
    pairs = [(p.this.name, p.expression) if isinstance(p, exp.PropertyEQ) else (f"col{i}", p)
             for i, p in enumerate(node.expressions, start=1)]  # fmt: skip
    return f.structure([name for name, _ in pairs], [of(part) for _, part in pairs])


def field_access(node: exp.Dot, of: Build, columns: Columns) -> Typed:
    """`(expression).name`."""
    return f.field_of(of(node.this), node.expression.name)


def conditions(function: Callable[..., Typed]) -> Builder:
    """AND and OR."""
    return binary(lambda left, right: function(f.boolean(left), f.boolean(right)))


def text_function(function: Callable[[str], str]) -> Builder:
    """A function from text to text."""
    return unary(lambda arg: f.strict(STRING, function, f.converted(arg, STRING)))


BUILDERS: dict[type, Builder] = {
    exp.Column: column,
    exp.Literal: constant,
    exp.Boolean: lambda node, of, columns: f.literal(bool(node.this), BOOL),
    exp.Null: lambda node, of, columns: f.literal(None, NULL),
    exp.Paren: lambda node, of, columns: of(node.this),
    exp.Cast: conversion,
    exp.TryCast: conversion,
    exp.Neg: negation,
    exp.Add: binary(partial(f.arithmetic, "+")),
    exp.Sub: binary(partial(f.arithmetic, "-")),
    exp.Mul: binary(partial(f.arithmetic, "*")),
    exp.Div: binary(partial(f.arithmetic, "/")),
    exp.Mod: binary(partial(f.arithmetic, "%")),
    exp.IntDiv: binary(f.whole_quotient),
    exp.EQ: binary(partial(f.comparison, "=")),
    exp.NEQ: binary(partial(f.comparison, "!=")),
    exp.LT: binary(partial(f.comparison, "<")),
    exp.LTE: binary(partial(f.comparison, "<=")),
    exp.GT: binary(partial(f.comparison, ">")),
    exp.GTE: binary(partial(f.comparison, ">=")),
    exp.NullSafeEQ: binary(partial(f.comparison, "<=>")),
    exp.And: conditions(f.all_of),
    exp.Or: conditions(f.any_of),
    exp.Not: unary(f.inverse),
    exp.Is: binary(is_test),
    exp.Between: between,
    exp.In: membership,
    exp.Like: binary(f.like),
    exp.Case: case,
    exp.If: choice,
    exp.Coalesce: listed(f.coalesce),
    exp.Nullif: binary(null_if),
    exp.Greatest: listed(partial(f.extreme, 1)),
    exp.Least: listed(partial(f.extreme, -1)),
    exp.Abs: unary(f.absolute),
    exp.Floor: unary(partial(f.stepped, math.floor)),
    exp.Ceil: unary(partial(f.stepped, math.ceil)),
    exp.Round: rounding,
    exp.Sqrt: unary(partial(f.of_doubles, f.square_root)),
    exp.Ln: unary(partial(f.of_doubles, f.natural_logarithm)),
    exp.Exp: unary(partial(f.of_doubles, f.exponential)),
    exp.Pow: binary(partial(f.of_doubles, f.power)),
    exp.IsNan: unary(f.is_nan),
    exp.Length: unary(f.length),
    exp.Upper: text_function(str.upper),
    exp.Lower: text_function(str.lower),
    exp.Concat: listed(f.concatenated),
    exp.DPipe: binary(lambda left, right: f.concatenated([left, right])),
    exp.Substring: part_of_text,
    exp.Struct: structure,
    exp.Dot: field_access,
}
