"""Aggregates by the textbook: all values of a window at hand, nothing incremental."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, Mapping, Sequence

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.interpreter.types import is_decimal, is_int
from transom.sql.interpreter.values import EXACT, TESTS, fit, order, order_nulls, sameness, wrap
from transom.sql.query import And, Call, Comparison, IsNull, Member, Not, Or, Predicate, Truth

Values = Mapping[str, Any]  # the value of each scalar of a query for one row, by its text


def holds(predicate: Predicate | None, values: Values) -> bool | None:
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
            found = values[scalar.sql]
            return None if found is None or value is None else TESTS[op](order(found, value))
        case Member(scalar, members, null):
            found = values[scalar.sql]
            if found is None:
                return None
            return True if any(order(found, value) == 0 for value in members) else None if null else False


def aggregate(call: Call, rows: Sequence[Values]) -> Any:
    """The value of one aggregate over the rows of one group of one window."""
    chosen = [row for row in rows if holds(call.where, row) is True]
    if call.function == "count_rows":
        return len(chosen)
    arguments = [[row[arg.sql] for arg in call.args] for row in chosen]
    present = [values for values in arguments if None not in values]
    if call.function == "count":
        return len(present)
    values = [first for first, *_ in present]
    if call.function == "approx_count_distinct":
        return len({sameness(value) for value in values})
    if not values:
        return None
    match call.function:
        case "sum":
            return total(values, call.type)
        case "avg":
            return mean(values, call.type)
        case "min":
            return min(values, key=cmp_to_key(order))
        case "max":
            return max(values, key=cmp_to_key(order))
        case "var_pop" | "var_samp":
            return variance(values, sample=call.function.endswith("samp"))
        case "stddev_pop" | "stddev_samp":
            spread = variance(values, sample=call.function.endswith("samp"))
            return None if spread is None else math.sqrt(spread)
        case "approx_percentile":
            return percentiles(values, call.parameters[0])
    raise SQLError(f"the oracle knows no aggregate {call.function}")


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
