"""Aggregate calls: how they are written, what they take, and the types Spark gives them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Sequence

import pyarrow as pa
from sqlglot import exp

from transom.sql.binding.constants import literal
from transom.sql.functions import AGGREGATES
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.dialect import Parsed

DEFAULT_RSD = 0.05
DEFAULT_ACCURACY = 10_000


@dataclass(frozen=True)
class Draft:
    """An aggregate call as it was written: arguments and FILTER are still syntax trees."""

    function: str
    args: tuple[exp.Expr, ...]
    where: exp.Expr | None
    parameters: tuple[Any, ...]
    node: exp.Expr


def read_call(parsed: Parsed, node: exp.Expr) -> Draft:
    """What an aggregate call asks for, with its constant parameters taken out of the arguments."""
    where = None
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in AGGREGATES:
        parsed.fail("FILTER belongs to an aggregate", node)
    name, args = node.name.lower(), list(node.expressions)
    function = AGGREGATES[name]
    for arg in args:
        if isinstance(arg, exp.Distinct):
            parsed.fail(f"{name}(DISTINCT ...) is not supported; use approx_count_distinct", node)
    if function == "count":
        if len(args) == 1 and (isinstance(args[0], exp.Star) or literal(args[0]) is not None):
            return Draft("count_rows", (), where, (), node)
        _expect(parsed, node, 1, 99)
        return Draft("count", tuple(args), where, (), node)
    if function == "approx_count_distinct":
        _expect(parsed, node, 1, 2)
        return Draft(function, (args[0],), where, (_rsd(parsed, args[1:]),), node)
    if function == "approx_percentile":
        _expect(parsed, node, 2, 3)
        parameters = (_percentages(parsed, args[1]), _accuracy(parsed, args[2:]))
        return Draft(function, (args[0],), where, parameters, node)
    _expect(parsed, node, 1, 1)
    return Draft(function, (args[0],), where, (), node)


def _expect(parsed: Parsed, node: exp.Expr, least: int, most: int) -> None:
    found = len(node.expressions)
    if any(isinstance(arg, exp.Star) for arg in node.expressions):
        parsed.fail(f"{node.name.lower()}(*) means nothing; only count takes *", node)
    if not least <= found <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}" if most < 99 else f"at least {least}"
        parsed.fail(
            f"{node.name.lower()} takes {wanted} argument{'s' * (wanted != '1')}, found {found}", node
        )


def _rsd(parsed: Parsed, args: list[exp.Expr]) -> float:
    value = _number(args[0]) if args else DEFAULT_RSD
    if value is None or not 0 < value < 1:
        parsed.fail("the relative error is a constant between 0 and 1", args[0])
    return float(value)


def _accuracy(parsed: Parsed, args: list[exp.Expr]) -> int:
    value = _number(args[0]) if args else DEFAULT_ACCURACY
    if not isinstance(value, int) or value <= 0:
        parsed.fail("the accuracy is a positive whole constant", args[0])
    return value


def _percentages(parsed: Parsed, node: exp.Expr) -> float | tuple[float, ...]:
    many = isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    values = [_number(part) for part in (node.expressions if many else [node])]
    checked = [float(value) for value in values if value is not None and 0 <= value <= 1]
    if not checked or len(checked) < len(values):
        parsed.fail("a percentage is a constant between 0 and 1, or an array of such", node)
    return tuple(checked) if many else checked[0]


def _number(node: exp.Expr) -> int | float | Decimal | None:
    constant = literal(bare(node))
    value = constant.value if constant is not None else None
    return value if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else None


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of Spark's numeric types."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def result_type(
    function: str, types: Sequence[pa.DataType], parameters: tuple[Any, ...]
) -> pa.DataType | str:
    """The type of an aggregate by Spark's rules, or what is wrong with its argument."""
    if function in ("count_rows", "count"):
        return pa.int64()
    (kind,) = types
    if pa.types.is_map(kind):
        return f"{function} can't compare maps"
    if function == "approx_count_distinct":
        return pa.int64()
    if function in ("min", "max"):
        orderable = not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_duration(kind))
        return kind if orderable else f"{function} can't compare values of type {kind}"
    if function == "approx_percentile":
        if not (is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return f"approx_percentile needs a number or a time, and this is {kind}"
        return pa.list_(kind) if isinstance(parameters[0], tuple) else kind
    if not is_number(kind):
        return f"{function} needs a number, and this is {kind}; a cast can make it one"
    if pa.types.is_decimal(kind) and function in ("sum", "avg"):
        more = 10 if function == "sum" else 4
        scale = kind.scale if function == "sum" else min(38, kind.scale + 4)
        return pa.decimal128(min(38, kind.precision + more), scale)
    return pa.int64() if function == "sum" and pa.types.is_integer(kind) else pa.float64()
