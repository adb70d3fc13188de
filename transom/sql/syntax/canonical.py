"""Syntax tree to Spark SQL text in one spelling, so that equal expressions are equal strings.

The text keeps the order and the parentheses of the source. Operators bind a little differently in
sqlglot and in Spark (`a | b & c`), so parentheses are dropped where they enclose an atom or a whole
expression, and never added: Spark reads what the user wrote.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Callable

from sqlglot import exp

from transom.aggregates.table import window_function_names
from transom.errors import near_miss
from transom.sql.functions import (
    ALLOWED,
    OTHER_NAMES,
    REFUSED_FUNCTIONS,
    TAKES_UNIT,
    UNIT_WORDS,
    UNSUPPORTED_AGGREGATES,
)
from transom.sql.syntax.parsed_query import WRITTEN, Parsed

LeafText = Callable[[exp.Expr], str | None]

OPERATOR_TEXTS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
}
# Nodes that bind tighter than any operator, in sqlglot and in Spark.
ATOMS = (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Case, exp.Null, exp.Boolean, exp.Paren)


def quote(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def bare(node: exp.Expr) -> exp.Expr:
    """A node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class Printer:
    """Prints the expressions of one query; `leaf` prints columns and other nodes that depend on the clause."""

    def __init__(self, parsed: Parsed, functions: frozenset[str], leaf: LeafText):
        self.parsed, self.leaf = parsed, leaf
        self.functions = {name.casefold(): name for name in functions}
        self.called: set[str] = set()  # the user-defined functions in the printed expressions

    def root(self, node: exp.Expr) -> str:
        """The text of a whole expression, without parentheses around it."""
        return self.text(bare(node))

    def text(self, node: exp.Expr) -> str:
        special = self.leaf(node)
        if special is not None:
            return special
        if (operator := OPERATOR_TEXTS.get(type(node))) is not None:
            return self._binary(node, operator)
        printer = _PRINTERS.get(type(node))
        if printer is None:
            self.parsed.fail(f"{_kind_of(node)} is not supported here", node)
        return printer(self, node)

    def _binary(self, node: exp.Expr, operator: str) -> str:
        left, right = node.this, node.expression
        if isinstance(right, (exp.Any, exp.All)):
            self.parsed.fail(f"{operator} {type(right).__name__.upper()} is not supported; use OR", node)
        negation = "NOT " if node.args.get("negate") else ""
        text = f"{self.text(left)} {negation}{operator} {self.text(right)}"
        # sqlglot reads INTERVAL 1 DAY 2 HOURS as a sum of two intervals, which must stay together.
        together = isinstance(node, exp.Add) and _all_intervals(left, right)
        return f"({text})" if together and not isinstance(node.parent, exp.Paren) else text

    def _list(self, nodes: list[exp.Expr]) -> str:
        return ", ".join(self.root(node) for node in nodes)

    def _literal(self, node: exp.Expr) -> str:
        if not node.is_string:
            return node.name.lower()
        return self._verbatim(node) if "'" in node.name else f"'{node.name}'"

    def _verbatim(self, node: exp.Expr) -> str:
        written = node.meta.get(WRITTEN)  # in the text of a view
        return written or self.parsed.text[node.meta["start"] : node.meta["end"] + 1]

    def _paren(self, node: exp.Expr) -> str:
        inner = node.this
        return self.text(inner) if isinstance(inner, ATOMS) else f"({self.text(inner)})"

    def _not(self, node: exp.Expr) -> str:
        inner = node.this
        if isinstance(inner, (exp.Is, exp.In, exp.Between)):
            return self._range(inner, "NOT ")
        return f"NOT {self.text(inner)}"

    def _range(self, node: exp.Expr, negation: str = "") -> str:
        this = self.text(node.this)
        if isinstance(node, exp.Is):
            return f"{this} IS {negation}{self.text(node.expression)}"
        if isinstance(node, exp.In):
            if node.args.get("query") is not None:
                self.parsed.fail("IN with a subquery is allowed in WHERE only", node)
            if not node.expressions:
                self.parsed.fail("IN needs a list of values", node)
            return f"{this} {negation}IN ({self._list(node.expressions)})"
        if node.args.get("symmetric"):
            self.parsed.fail("BETWEEN SYMMETRIC is not supported", node)
        return f"{this} {negation}BETWEEN {self.text(node.args['low'])} AND {self.text(node.args['high'])}"

    def _escape(self, node: exp.Expr) -> str:
        return f"{self.text(node.this)} ESCAPE {self.text(node.expression)}"

    def _cast(self, node: exp.Expr) -> str:
        function = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        if node.args.get("format"):
            self.parsed.fail("CAST ... FORMAT is not supported", node)
        kind = _type_text(node.args["to"])
        if kind is None:
            self.parsed.fail("not a type", node)
        return f"{function}({self.root(node.this)} AS {kind})"

    def _case(self, node: exp.Expr) -> str:
        parts = ["CASE"]
        if node.this is not None:
            parts.append(self.root(node.this))
        for branch in node.args["ifs"]:
            parts.append(f"WHEN {self.root(branch.this)} THEN {self.root(branch.args['true'])}")
        if node.args.get("default") is not None:
            parts.append(f"ELSE {self.root(node.args['default'])}")
        return " ".join([*parts, "END"])

    def _if(self, node: exp.Expr) -> str:
        if node.args.get("false") is None:
            self.parsed.fail("if() needs three arguments", node)
        return f"if({self._list([node.this, node.args['true'], node.args['false']])})"

    def _function(self, node: exp.Expr) -> str:
        written = node.this if isinstance(node.this, str) else node.this.name
        name = written.lower()
        if name in self.functions:
            self.called.add(self.functions[name])
            return f"{quote(self.functions[name])}({self._list(node.expressions)})"
        if name in UNSUPPORTED_AGGREGATES:
            # A name that is spelled alike is another aggregate with other values: it is no hint.
            self.parsed.fail(f"the aggregate {written} is not supported", node)
        if name in ("explode", "explode_outer", "posexplode", "posexplode_outer"):
            message = f"{name}() is allowed only in a subquery, in a view, or after LATERAL VIEW"
            self.parsed.fail(message, node)
        if name in ("grouping", "grouping_id"):
            self.parsed.fail(f"{name}() needs GROUPING SETS, ROLLUP or CUBE in GROUP BY", node)
        if name not in ALLOWED and name in REFUSED_FUNCTIONS:
            raise_at = exp.Anonymous(this=written).update_positions(node)
            self.parsed.fail(f"{written} {REFUSED_FUNCTIONS[name]}", raise_at)
        if name not in ALLOWED:
            known = [*ALLOWED, *window_function_names(), *self.functions.values()]
            raise_at = exp.Anonymous(this=written).update_positions(node)
            other = OTHER_NAMES.get(name)
            hint = f"; did you mean {other}?" if other else near_miss(name, known)
            self.parsed.fail(f"unknown function {written}{hint}", raise_at)
        if name in TAKES_UNIT and len(node.expressions) == 3 and isinstance(node.expressions[0], exp.Column):
            unit = self._unit(node.expressions[0])
            return f"{name}({unit}, {self._list(node.expressions[1:])})"
        return f"{name}({self._list(node.expressions)})"

    def _lambda(self, node: exp.Expr) -> str:
        variables = ", ".join(quote(variable.name) for variable in node.expressions)
        before = set(self.called)
        self.called.clear()
        body = self.root(node.this)
        if self.called:
            self.parsed.fail("a lambda can't call functions that the program registered", node)
        self.called |= before
        return f"({variables}) -> {body}" if len(node.expressions) > 1 else f"{variables} -> {body}"

    def _extract(self, node: exp.Expr) -> str:
        return f"extract({self._unit(node.this)} FROM {self.root(node.expression)})"

    def _unit(self, node: exp.Expr) -> str:
        """A word of time; it is printed as it is, so that it must be one that is known."""
        if node.name.lower() not in UNIT_WORDS:
            self.parsed.fail(f"unknown unit {node.name}{near_miss(node.name, UNIT_WORDS)}", node)
        return node.name.upper()

    def _trim(self, node: exp.Expr) -> str:
        where, what = node.args.get("position"), node.expression
        if not where and what is None:
            return f"trim({self.root(node.this)})"
        head = " ".join(filter(None, [where or "BOTH", self.root(what) if what is not None else ""]))
        return f"trim({head} FROM {self.root(node.this)})"

    def _position(self, node: exp.Expr) -> str:
        rest = [node.args["position"]] if node.args.get("position") is not None else []
        return f"position({self._list([node.args['substr'], node.this, *rest])})"

    def _substring(self, node: exp.Expr) -> str:
        parts = [node.this, node.args.get("start"), node.args.get("length")]
        return f"substring({self._list([part for part in parts if part is not None])})"

    def _bracket(self, node: exp.Expr) -> str:
        if len(node.expressions) != 1:
            self.parsed.fail("one index at a time", node)
        return f"{self.text(node.this)}[{self.root(node.expressions[0])}]"

    def _dot(self, node: exp.Expr) -> str:
        return f"{self.text(node.this)}.{quote(node.expression.name)}"

    def _interval(self, node: exp.Expr) -> str:
        if not isinstance(node.this, exp.Literal):
            self.parsed.fail("INTERVAL needs a constant", node)
        unit, length = node.args.get("unit"), node.this.name
        if not re.fullmatch(r"[\w :.+-]*", length):
            self.parsed.fail("this is not the length of an INTERVAL", node)
        ends = [unit.this, unit.expression] if isinstance(unit, exp.IntervalSpan) else [unit] if unit else []
        return " ".join([f"INTERVAL '{length}'", " TO ".join(self._unit(each) for each in ends)]).rstrip()


_PRINTERS: dict[type[exp.Expr], Callable[[Printer, exp.Expr], str]] = {
    exp.Literal: Printer._literal,
    exp.RawString: Printer._verbatim,
    exp.HexString: Printer._verbatim,
    exp.Null: lambda printer, node: "NULL",
    exp.Boolean: lambda printer, node: "true" if node.this else "false",
    exp.Paren: Printer._paren,
    exp.Neg: lambda printer, node: (
        f"-{printer.text(node.this)}"
        if not isinstance(node.this, exp.Neg)
        else f"- {printer.text(node.this)}"
    ),  # two hyphens would open a comment
    exp.BitwiseNot: lambda printer, node: f"~{printer.text(node.this)}",
    exp.Not: Printer._not,
    exp.Is: Printer._range,
    exp.In: Printer._range,
    exp.Between: Printer._range,
    exp.Escape: Printer._escape,
    exp.Cast: Printer._cast,
    exp.TryCast: Printer._cast,
    exp.Case: Printer._case,
    exp.If: Printer._if,
    exp.Anonymous: Printer._function,
    exp.Lambda: Printer._lambda,
    exp.Identifier: lambda printer, node: quote(node.name),  # a variable of a lambda
    exp.Extract: Printer._extract,
    exp.Trim: Printer._trim,
    exp.StrPosition: Printer._position,
    exp.Substring: Printer._substring,
    exp.Bracket: Printer._bracket,
    exp.Dot: Printer._dot,
    exp.Interval: Printer._interval,
}


@lru_cache(maxsize=1024)
def _type_text(kind: exp.DataType) -> str | None:
    """A type as Spark writes it; None if it contains anything but types, numbers and plain names."""
    sizes = (size.this for size in kind.find_all(exp.DataTypeParam))
    names = (name.name for name in kind.find_all(exp.Identifier))
    is_plain = (
        all(each.this is not exp.DataType.Type.USERDEFINED for each in kind.find_all(exp.DataType))
        and all(isinstance(size, exp.Literal) and size.is_int for size in sizes)
        and all(re.fullmatch(r"\w+", name) for name in names)
    )
    return kind.sql("spark") if is_plain else None


def _all_intervals(*nodes: exp.Expr) -> bool:
    return all(
        isinstance(node, exp.Interval)
        or (isinstance(node, exp.Add) and _all_intervals(node.this, node.expression))
        for node in nodes
    )


def _kind_of(node: exp.Expr) -> str:
    """The name of a node in an error: `WithinGroup` is WITHIN GROUP."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


def whole_number(digits: str) -> int:
    """The number that digits spell; 10**18 for a larger one, because Python refuses thousands of digits.

    >>> whole_number("007"), whole_number("9" * 5000) == 10**18
    (7, True)
    """
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 18 else 10**18
