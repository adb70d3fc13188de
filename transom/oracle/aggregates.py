"""Aggregates by the textbook: all values of a window at hand, nothing incremental."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.interpreter.types import is_decimal, is_int
from transom.sql.interpreter.values import EXACT, ORDER_TESTS, fit, order, order_nulls, sameness, wrap
from transom.sql.query import And, Call, Comparison, IsNull, Member, Not, Or, Predicate, Truth

ScalarValues = Mapping[str, Any]  # the value of each scalar of a query for one row, by its text


def holds(predicate: Predicate | None, values: ScalarValues) -> bool | None:
    """Whether a predicate is true, false or unknown for a row; none at all is true."""
    match predicate:
        case None:
            return True
        case And(parts):
            truths = [holds(part, values) for part in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [holds(part, values) for part in parts]
            return True if True in truths else None if None in truths else False
        case Not(part):
            truth = holds(part, values)
            return None if truth is None else not truth
        case IsNull(scalar):
            return values[scalar.sql] is None
        case Truth(scalar):
            return values[scalar.sql]
        case Comparison(scalar, "<=>", value):
            return order_nulls(values[scalar.sql], value) == 0
        case Comparison(scalar, op, value):
            compared = values[scalar.sql]
            return None if compared is None or value is None else ORDER_TESTS[op](order(compared, value))
        case Member(scalar, members, null):
            compared = values[scalar.sql]
            if compared is None:
                return None
            return True if any(order(compared, value) == 0 for value in members) else None if null else False


def aggregate(call: Call, rows: Sequence[ScalarValues]) -> Any:
    """The value of one aggregate over the rows of one group of one window."""
    chosen = [row for row in rows if holds(call.where, row) is True]
    if call.function == "count_rows":
        return len(chosen)
    arguments = [[row[arg.sql] for arg in call.args] for row in chosen]
    values = [values[0] for values in arguments if None not in values]
    textbook = TEXTBOOK.get(call.function)
    if textbook is None:
        raise SQLError(f"the oracle has no textbook implementation of the aggregate {call.function}")
    return textbook(values, call) if values or call.function in OF_NOTHING else None


def float_total(values: Sequence[float]) -> float:
    """The correctly rounded sum of doubles, infinite or NaN where it must be."""
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return sum(special)
    try:
        return math.fsum(values)
    except OverflowError:  # a partial sum, or the sum itself, is beyond the largest double
        return sum(values)


def total(values: Sequence[Any], type: pa.DataType) -> Any:
    """Integers wrap at 64 bits, a decimal beyond its digits is null, floats sum as doubles."""
    if is_int(type):
        return wrap(sum(values), 64)
    if is_decimal(type):
        return fit(decimal_total(values), type)
    return float_total([float(value) for value in values])


def decimal_total(values: Sequence[Decimal]) -> Decimal:
    """The exact sum of decimals."""
    result = Decimal(0)
    for value in values:
        result = EXACT.add(result, value)
    return result


def mean(values: Sequence[Any], type: pa.DataType) -> Any:
    """The mean: decimals stay decimals, everything else is a double."""
    if is_decimal(type):
        if type.precision <= 15:  # Spark averages the unscaled values of short decimals as doubles
            scale = type.scale - 4
            mean = float(decimal_total(values).scaleb(scale)) / len(values)
            return fit(Decimal(str(mean / 10.0**scale)), type)
        return fit(EXACT.divide(decimal_total(values), Decimal(len(values))), type)
    return float_total([float(value) for value in values]) / len(values)


def variance(values: Sequence[Any], sample: bool) -> float | None:
    """The mean square distance from the mean, in two passes; of a sample of one there is none."""
    if sample and len(values) == 1:
        return None
    numbers = [float(value) for value in values]
    middle = float_total(numbers) / len(numbers)
    squares = [(number - middle) * (number - middle) for number in numbers]
    return float_total(squares) / (len(numbers) - sample)


def percentiles(values: Sequence[Any], wanted: Any) -> Any:
    """The value of nearest rank for one fraction, or one for each of several."""
    if isinstance(wanted, list | tuple):
        return [percentiles(values, fraction) for fraction in wanted]
    ordered = sorted(values, key=cmp_to_key(order))
    return ordered[max(math.ceil(Decimal(str(wanted)) * len(ordered)), 1) - 1]


def median(values: Sequence[Any]) -> float:
    """The mean of the two values in the middle."""
    ordered = [float(value) for value in sorted(values, key=cmp_to_key(order))]
    return ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2


def deviation(values: Sequence[Any], sample: bool) -> float | None:
    """The square root of the variance."""
    spread = variance(values, sample)
    return None if spread is None else math.sqrt(spread)


# By the name of the function: its value over the values of a group, none of them null.
TEXTBOOK: dict[str, Callable[[Sequence[Any], Call], Any]] = {
    "count": lambda values, call: len(values),
    "sum": lambda values, call: total(values, call.type),
    "avg": lambda values, call: mean(values, call.type),
    "min": lambda values, call: min(values, key=cmp_to_key(order)),
    "max": lambda values, call: max(values, key=cmp_to_key(order)),
    "median": lambda values, call: median(values),
    "var_pop": lambda values, call: variance(values, sample=False),
    "var_samp": lambda values, call: variance(values, sample=True),
    "stddev_pop": lambda values, call: deviation(values, sample=False),
    "stddev_samp": lambda values, call: deviation(values, sample=True),
    "approx_count_distinct": lambda values, call: len({sameness(value) for value in values}),
    "approx_percentile": lambda values, call: percentiles(values, call.parameters[0]),
}
OF_NOTHING = frozenset({"count", "approx_count_distinct"})  # not null over no values
