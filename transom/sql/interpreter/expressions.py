"""From the syntax tree of a scalar expression to a typed Python function of a row.

Every kind of node has one builder. What has none raises an `SQLError`: nothing is computed in another way than
Spark would compute it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from transom.columns.types import Columns
from transom.errors import SQLError, near_miss
from transom.sql.interpreter import arithmetic as numbers
from transom.sql.interpreter import conditions, nested_values
from transom.sql.interpreter import text_functions as texts
from transom.sql.interpreter import time_functions as times
from transom.sql.interpreter.casts import try_cast
from transom.sql.interpreter.function_table import FUNCTIONS
from transom.sql.interpreter.lambdas import LAMBDA_FUNCTIONS, lambda_call, variable_key
from transom.sql.interpreter.string_literals import string_value
from transom.sql.interpreter.subtrees import Subtree, Subtrees
from transom.sql.interpreter.typed_expression import (
    TypedExpression,
    column_expression,
    converted,
    literal,
    strict,
)
from transom.sql.interpreter.types import BOOL, BY_NAME, DOUBLE, INT, LONG, NULL, STRING, is_int, unsupported
from transom.sql.interpreter.values import wrap
from transom.sql.syntax.canonical import whole_number
from transom.sql.syntax.spark_parser import parse_expression

Functions = Mapping[str, Callable[[Sequence[TypedExpression]], TypedExpression]]

parsed = lru_cache(maxsize=1024)(parse_expression)


@dataclass
class Compiler:
    """Compiles the expressions of one text over some columns; `used` are the columns that they read."""

    text: str
    columns: Columns
    functions: Functions  # that the program registered, by their names in lower case
    subtrees: Subtrees
    used: set[str] = field(default_factory=set)
    keys: dict[int, int] = field(default_factory=dict)  # of syntax trees, see `Subtrees`
    variables: dict[str, pa.DataType] = field(
        default_factory=dict
    )  # of the lambdas around, by lower-case names

    def build(self, node: exp.Expr) -> TypedExpression:
        """The typed function of one node, its children first; equal nodes have the same function."""
        builder = BUILDERS.get(type(node))
        if builder is None:
            raise unsupported(node.key.upper())
        key = self.subtrees.key(node, self.text, self.keys)
        known = self.subtrees.find(key)
        if known is not None:
            self.used |= known.used
            return known.typed
        outside, self.used = self.used, set()
        typed = builder(self, node)
        self.subtrees.add(key, Subtree(typed, frozenset(self.used)))
        self.used |= outside
        return typed

    def build_inside(self, node: exp.Expr, variables: dict[str, pa.DataType]) -> TypedExpression:
        """The typed function of the body of a lambda, or of any node if there are no variables."""
        outside, self.variables = self.variables, self.variables | variables
        try:
            return self.build(node)
        finally:
            self.variables = outside

    def column(self, name: str) -> TypedExpression:
        """A column, in any case of its name."""
        same = (each for each in self.columns if each.casefold() == name.casefold())
        stored = name if name in self.columns else next(same, None)
        if stored is None:
            raise SQLError(f"unknown column {name}{near_miss(name, self.columns)}")
        self.used.add(stored)
        return column_expression(stored, in_microseconds(self.columns[stored]))


def in_microseconds(type: pa.DataType) -> pa.DataType:
    """The type of a column in an expression: the values of timestamps and intervals are microseconds."""
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    return pa.duration("us") if pa.types.is_duration(type) else type


Builder = Callable[[Compiler, Any], TypedExpression]


# --- names and literals ----------------------------------------------------------------------


def build_column(compiler: Compiler, node: exp.Column) -> TypedExpression:
    """A column, or a field of a struct column: `a`.`b`."""
    first, *fields = (part.name for part in node.parts)
    typed = compiler.column(first)
    for name in fields:
        typed = nested_values.field_of(typed, name)
    return typed


def build_literal(compiler: Compiler, node: exp.Literal) -> TypedExpression:
    """A string, or a number: an int, a long or a decimal as it fits, a double if it has an exponent."""
    return literal(node.this, STRING) if node.is_string else number_literal(node.this)


def build_string(compiler: Compiler, node: exp.RawString) -> TypedExpression:
    """A string with backslashes or doubled quotes."""
    return literal(string_value(compiler.text[node.meta["start"] : node.meta["end"] + 1]), STRING)


def number_literal(text: str) -> TypedExpression:
    """The number that a text without suffix stands for."""
    if "e" in text.lower():
        return literal(float(text), DOUBLE)
    value = Decimal(text)
    if "." not in text and wrap(int(value), 64) == value:
        return literal(int(value), INT if wrap(int(value), 32) == value else LONG)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    return literal(value, pa.decimal128(max(len(digits), scale), scale))


def build_negation(compiler: Compiler, node: exp.Neg) -> TypedExpression:
    """`-x`; before a literal the sign belongs to the literal."""
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number_literal("-" + node.this.this)
    return numbers.negative(compiler.build(node.this))


def build_cast(compiler: Compiler, node: exp.Cast) -> TypedExpression:
    """`CAST(x AS type)`, also the literals DATE '...' and 1.5D."""
    return converted(compiler.build(node.this), cast_type(node))


def build_try_cast(compiler: Compiler, node: exp.TryCast) -> TypedExpression:
    """`TRY_CAST(x AS type)`."""
    arg, target = compiler.build(node.this), cast_type(node)
    plain = converted(arg, target)
    source = arg.type
    if not is_int(target) or source in (target, NULL):
        return plain
    return strict(target, lambda value: try_cast(value, source, target), arg, is_exact=plain.is_exact)


def cast_type(node: exp.Cast) -> pa.DataType:
    """The type to which a cast casts."""
    name, parameters = (
        node.to.this.name,
        [whole_number(part.name) for part in node.to.expressions if part.name.isdigit()],
    )
    if name == "DECIMAL":
        precision, scale = [*parameters, *(10, 0)[len(parameters) :]][:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise unsupported(f"a cast to {node.to.sql('spark')}: a decimal has 1 to 38 digits")
        return pa.decimal128(precision, scale)
    if name not in BY_NAME:
        raise unsupported(f"a cast to {node.to.sql('spark')}")
    return BY_NAME[name]


# --- operators -------------------------------------------------------------------------------


def binary_builder(function: Callable[[TypedExpression, TypedExpression], TypedExpression]) -> Builder:
    """A node with a left and a right side."""
    return lambda compiler, node: function(compiler.build(node.this), compiler.build(node.expression))


def unary_builder(function: Callable[[TypedExpression], TypedExpression]) -> Builder:
    """A node with one argument."""
    return lambda compiler, node: function(compiler.build(node.this))


def arithmetic_builder(symbol: str) -> Builder:
    """An operator on numbers, and `+` and `-` on times too."""

    def function(left: TypedExpression, right: TypedExpression) -> TypedExpression:
        if times.is_time(left.type) or times.is_time(right.type):
            return times.time_arithmetic(symbol, left, right)
        return numbers.arithmetic(symbol, left, right)

    return binary_builder(function)


def bitwise_builder(compute: Callable[[int, int], int]) -> Builder:
    """An operator on bits.

    Spark binds `&` before `^` before `|`, and sqlglot does not, so a mixture needs parentheses.
    """
    build = binary_builder(partial(numbers.bitwise, compute))

    def builder(compiler: Compiler, node: exp.Binary) -> TypedExpression:
        for side in (node.this, node.expression):
            if isinstance(side, BITWISE) and type(side) is not type(node):
                raise SQLError("a mixture of &, | and ^ needs parentheses to be evaluated without Spark")
        return build(compiler, node)

    return builder


BITWISE = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def logical_builder(function: Callable[..., TypedExpression]) -> Builder:
    """AND and OR."""
    return binary_builder(lambda left, right: function(conditions.boolean(left), conditions.boolean(right)))


def build_case(compiler: Compiler, node: exp.Case) -> TypedExpression:
    """CASE with conditions, or with values to compare with."""
    default = node.args.get("default")
    otherwise = compiler.build(default) if default else literal(None, NULL)
    branches = [(compiler.build(each.this), compiler.build(each.args["true"])) for each in node.args["ifs"]]
    if node.this:
        subject = compiler.build(node.this)
        branches = [(conditions.comparison("=", subject, value), then) for value, then in branches]
    return conditions.case(branches, otherwise)


def build_if(compiler: Compiler, node: exp.If) -> TypedExpression:
    """`if(condition, x, y)`."""
    parts = (node.this, node.args["true"], node.args.get("false"))
    return FUNCTIONS["if"].call("if", [compiler.build(part) for part in parts if part is not None])


def build_between(compiler: Compiler, node: exp.Between) -> TypedExpression:
    """`x BETWEEN low AND high`."""
    return conditions.between(*map(compiler.build, (node.this, node.args["low"], node.args["high"])))


def build_in(compiler: Compiler, node: exp.In) -> TypedExpression:
    """`x IN (...)`."""
    if not node.expressions:
        raise SQLError("IN takes a list of values: subqueries are not supported")
    return conditions.member(compiler.build(node.this), [compiler.build(value) for value in node.expressions])


def build_escaped_like(compiler: Compiler, node: exp.Escape) -> TypedExpression:
    """`x LIKE pattern ESCAPE '/'`."""
    escape, inner = compiler.build(node.expression).constant, node.this
    if not isinstance(escape, str) or len(escape) != 1 or not isinstance(inner, exp.Like | exp.ILike):
        raise SQLError("ESCAPE takes one character, after a LIKE pattern")
    return negated_if_written(
        inner,
        texts.like(
            compiler.build(inner.this), compiler.build(inner.expression), escape, isinstance(inner, exp.ILike)
        ),
    )


def build_like(compiler: Compiler, node: exp.Like | exp.ILike) -> TypedExpression:
    """`x LIKE pattern`, `x NOT LIKE pattern`, and the same with ILIKE."""
    sides = compiler.build(node.this), compiler.build(node.expression)
    return negated_if_written(node, texts.like(*sides, ignore_case=isinstance(node, exp.ILike)))


def negated_if_written(node: exp.Expr, typed: TypedExpression) -> TypedExpression:
    """An expression, or its negation if the node was written with NOT in it, as in `x NOT LIKE pattern`."""
    return conditions.inverse(typed) if node.args.get("negate") else typed


def build_subscript(compiler: Compiler, node: exp.Bracket) -> TypedExpression:
    """`array[index]` and `map[key]`."""
    if len(node.expressions) != 1:
        raise SQLError("brackets take one index")
    return nested_values.subscript(compiler.build(node.this), compiler.build(node.expressions[0]))


def build_field(compiler: Compiler, node: exp.Dot) -> TypedExpression:
    """`(expression).name`."""
    return nested_values.field_of(compiler.build(node.this), node.expression.name)


def build_interval(compiler: Compiler, node: exp.Interval) -> TypedExpression:
    """`INTERVAL '5' MINUTES`."""
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        raise unsupported("this INTERVAL")
    return times.interval(node.this.name, unit.name if unit else "")


# --- functions -------------------------------------------------------------------------------


def build_call(compiler: Compiler, node: exp.Anonymous) -> TypedExpression:
    """A call of a function that the program registered, or of one of Spark's."""
    name = (node.this if isinstance(node.this, str) else node.this.name).lower()
    if name in compiler.functions:
        return compiler.functions[name]([compiler.build(arg) for arg in node.expressions])
    if name == "struct":
        return build_struct(compiler, node.expressions)
    if name in LAMBDA_FUNCTIONS:
        return lambda_call(name, node.expressions, compiler.build_inside)
    if name not in FUNCTIONS:
        raise unsupported(f"the function {name}")
    return FUNCTIONS[name].call(name, [compiler.build(arg) for arg in node.expressions])


def build_variable(compiler: Compiler, node: exp.Identifier) -> TypedExpression:
    """A variable of a lambda."""
    type = compiler.variables.get(node.name.casefold())
    if type is None:
        raise SQLError(f"unknown variable {node.name}")
    return TypedExpression(in_microseconds(type), itemgetter(variable_key(node.name)))


def build_struct(compiler: Compiler, parts: Sequence[exp.Expr]) -> TypedExpression:
    """`struct(x, y AS z, ...)`: a field is named by its column or alias, else by its place."""
    names = [part.alias_or_name if isinstance(part, exp.Alias | exp.Column) else f"col{place}"
             for place, part in enumerate(parts, start=1)]  # fmt: skip
    return nested_values.structure(names, [compiler.build(part.unalias()) for part in parts])


def build_trim(compiler: Compiler, node: exp.Trim) -> TypedExpression:
    """`trim(x)` and `trim(BOTH characters FROM x)`."""
    characters = compiler.build(node.expression) if node.expression else None
    return texts.trimmed((node.args.get("position") or "BOTH").upper(), compiler.build(node.this), characters)


def build_position(compiler: Compiler, node: exp.StrPosition) -> TypedExpression:
    """`position(search IN text)`."""
    parts = (node.args["substr"], node.this, node.args.get("position"))
    return texts.located_from([compiler.build(part) for part in parts if part is not None])


def build_substring(compiler: Compiler, node: exp.Substring) -> TypedExpression:
    """`substring(text, start, length)`."""
    parts = (node.this, node.args.get("start"), node.args.get("length"))
    return FUNCTIONS["substring"].call(
        "substring", [compiler.build(part) for part in parts if part is not None]
    )


def build_extract(compiler: Compiler, node: exp.Extract) -> TypedExpression:
    """`extract(unit FROM x)`."""
    return times.extracted(node.this.name, compiler.build(node.expression))


BUILDERS: dict[type, Builder] = {
    exp.Column: build_column,
    exp.Identifier: build_variable,
    exp.Literal: build_literal,
    exp.RawString: build_string,
    exp.Boolean: lambda compiler, node: literal(bool(node.this), BOOL),
    exp.Null: lambda compiler, node: literal(None, NULL),
    exp.Paren: lambda compiler, node: compiler.build(node.this),
    exp.Cast: build_cast,
    exp.TryCast: build_try_cast,
    exp.Interval: build_interval,
    exp.Neg: build_negation,
    exp.Add: arithmetic_builder("+"),
    exp.Sub: arithmetic_builder("-"),
    exp.Mul: arithmetic_builder("*"),
    exp.Div: arithmetic_builder("/"),
    exp.Mod: arithmetic_builder("%"),
    exp.IntDiv: binary_builder(numbers.whole_quotient),
    exp.BitwiseAnd: bitwise_builder(operator.and_),
    exp.BitwiseOr: bitwise_builder(operator.or_),
    exp.BitwiseXor: bitwise_builder(operator.xor),
    exp.BitwiseNot: unary_builder(numbers.bit_complement),
    exp.BitwiseLeftShift: binary_builder(lambda left, right: FUNCTIONS["shiftleft"].build([left, right])),
    exp.BitwiseRightShift: binary_builder(lambda left, right: FUNCTIONS["shiftright"].build([left, right])),
    exp.EQ: binary_builder(partial(conditions.comparison, "=")),
    exp.NEQ: binary_builder(partial(conditions.comparison, "!=")),
    exp.LT: binary_builder(partial(conditions.comparison, "<")),
    exp.LTE: binary_builder(partial(conditions.comparison, "<=")),
    exp.GT: binary_builder(partial(conditions.comparison, ">")),
    exp.GTE: binary_builder(partial(conditions.comparison, ">=")),
    exp.NullSafeEQ: binary_builder(partial(conditions.comparison, "<=>")),
    exp.NullSafeNEQ: binary_builder(
        lambda left, right: conditions.inverse(conditions.comparison("<=>", left, right))
    ),
    exp.And: logical_builder(conditions.all_of),
    exp.Or: logical_builder(conditions.any_of),
    exp.Not: unary_builder(conditions.inverse),
    exp.Is: binary_builder(conditions.is_truth),
    exp.Between: build_between,
    exp.In: build_in,
    exp.Like: build_like,
    exp.ILike: build_like,
    exp.Escape: build_escaped_like,
    exp.RegexpLike: binary_builder(texts.matches),
    exp.Case: build_case,
    exp.If: build_if,
    exp.DPipe: binary_builder(lambda left, right: texts.concatenated([left, right])),
    exp.Bracket: build_subscript,
    exp.Dot: build_field,
    exp.Anonymous: build_call,
    exp.Trim: build_trim,
    exp.StrPosition: build_position,
    exp.Substring: build_substring,
    exp.Extract: build_extract,
}
