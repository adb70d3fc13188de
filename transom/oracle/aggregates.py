"""Aggregates by the textbook: all values of a window at hand, nothing incremental."""

from __future__ import annotations

import math
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from functools import cmp_to_key
from typing import Any, Callable, Mapping, Sequence

import pyarrow as pa
from datasketches import hll_sketch, tgt_hll_type

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
    name = call.function if call.function in TEXTBOOK else call.function.removesuffix(DISTINCT)
    if name != call.function:
        values = list({sameness(value): value for value in values}.values())
    textbook = TEXTBOOK.get(name)
    if textbook is None:
        raise SQLError(f"the oracle has no textbook implementation of the aggregate {call.function}")
    return textbook(values, call) if values or name in OF_NOTHING else None


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


def interpolated(values: Sequence[Any], wanted: Any, is_descending: bool) -> Any:
    """The value at a fraction of the way from the first to the last, between two values if need be."""
    if isinstance(wanted, list | tuple):
        return [interpolated(values, fraction, is_descending) for fraction in wanted]
    ordered = [float(value) for value in sorted(values, key=cmp_to_key(order), reverse=is_descending)]
    position = (len(ordered) - 1) * wanted
    below, above = ordered[math.floor(position)], ordered[math.ceil(position)]
    if order(below, above) == 0:
        return below
    return (math.ceil(position) - position) * below + (position - math.floor(position)) * above


def discrete(values: Sequence[Any], wanted: Any, is_descending: bool) -> Any:
    """The first value up to which at least a fraction of the values lies."""
    if isinstance(wanted, list | tuple):
        return [discrete(values, fraction, is_descending) for fraction in wanted]
    ordered = [float(value) for value in sorted(values, key=cmp_to_key(order), reverse=is_descending)]
    return next(value for i, value in enumerate(ordered, 1) if i >= wanted * len(ordered))


def most_frequent(values: Sequence[Any], is_descending: bool) -> Any:
    """The value that occurs most often; of several, the first in their order."""
    counts = Counter(sameness(value) for value in values)
    ordered = sorted(values, key=cmp_to_key(order), reverse=is_descending)
    return next(value for value in ordered if counts[sameness(value)] == max(counts.values()))


def standardized(values: Sequence[Any], power: int) -> float | None:
    """The mean of a power of the distances from the mean, in units of the deviation; a constant has none."""
    numbers = [float(value) for value in values]
    middle = float_total(numbers) / len(numbers)
    spread = float_total([(number - middle) ** 2 for number in numbers]) / len(numbers)
    if spread == 0:
        return None
    return (
        float_total([(number - middle) ** power for number in numbers]) / len(numbers) / spread ** (power / 2)
    )


def regression(pairs: Sequence[Mapping[str, Any]], of: Callable[..., float | None]) -> float | None:
    """A function of the count, the means, the spreads and the products of (y, x) pairs without nulls."""
    both = [(float(pair["y"]), float(pair["x"])) for pair in pairs if None not in (pair["y"], pair["x"])]
    if not both:
        return None
    y, x = (float_total(side) / len(both) for side in zip(*both, strict=True))
    spreads = [
        float_total(parts)
        for parts in (
            [(a - y) ** 2 for a, _ in both],
            [(b - x) ** 2 for _, b in both],
            [(a - y) * (b - x) for a, b in both],
        )
    ]
    return of(len(both), y, x, *spreads)


def correlation(n: int, y: float, x: float, yy: float, xx: float, xy: float) -> float | None:
    """How far the points lie on one line: -1 to 1."""
    return None if n == 1 or yy == 0 or xx == 0 else xy / (math.sqrt(yy) * math.sqrt(xx))


def determination(n: int, y: float, x: float, yy: float, xx: float, xy: float) -> float | None:
    """The square of the correlation; points at one height lie on the line."""
    return None if xx == 0 else 1.0 if yy == 0 else (xy / (math.sqrt(yy) * math.sqrt(xx))) ** 2


def value_of_row(rows: Sequence[Mapping[str, Any]], key: str, is_last: bool) -> Any:
    """The value of the first or the last row by a key, then by the value itself; rows without a key don't count."""
    keyed = [row for row in rows if row[key] is not None]

    def compared(left: Mapping[str, Any], right: Mapping[str, Any]) -> int:
        return order_nulls(left[key], right[key]) or order_nulls(left["x"], right["x"])

    ordered = sorted(keyed, key=cmp_to_key(compared))
    return ordered[-1 if is_last else 0]["x"] if ordered else None


def collected(rows: Sequence[Mapping[str, Any]], is_descending: bool = False) -> list[Any]:
    """The values in the order of time or of another value, then in their own."""

    def compared(left: Mapping[str, Any], right: Mapping[str, Any]) -> int:
        return order_nulls(left["t"], right["t"]) or order(left["x"], right["x"])

    present = [row for row in rows if row["x"] is not None]
    return [row["x"] for row in sorted(present, key=cmp_to_key(compared), reverse=is_descending)]


def collected_text(values: Sequence[Any], call: Call) -> str | None:
    """The texts, one after the other."""
    delimiter, is_descending, _ = call.parameters
    if call.function.endswith(DISTINCT):
        texts = sorted(values, key=cmp_to_key(order), reverse=is_descending)
    else:
        texts = collected(values, is_descending)
    return delimiter.join(texts) if texts else None


def most_frequent_items(values: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """The most frequent values with their exact counts; of those that are equally frequent the least."""
    counts: dict[Any, tuple[Any, int]] = {}
    for row in values:
        known = counts.get(sameness(row["x"]), (row["x"], 0))
        counts[sameness(row["x"])] = known[0], known[1] + 1

    def compared(left: tuple[Any, int], right: tuple[Any, int]) -> int:
        return right[1] - left[1] or order_nulls(left[0], right[0])

    ordered = sorted(counts.values(), key=cmp_to_key(compared))
    return [{"item": item, "count": count} for item, count in ordered[:most]]


def histogram(values: Sequence[Any], call: Call) -> list[dict[str, Any]] | None:
    """A bin for each finite value as a double; only for as many values as there are bins."""
    counts = Counter(float(value) + 0.0 for value in values if math.isfinite(value))
    if len(counts) > call.parameters[0]:
        raise SQLError("the oracle has no histogram with fewer bins than values")
    kind = call.type.value_type.field(0).type
    bins = [{"x": from_double(value, kind), "y": float(counts[value])} for value in sorted(counts)]
    return bins or None


def from_double(value: float, kind: pa.DataType) -> Any:
    """A double in a type of numbers; integers are cut off, and what is out of range is the last in range."""
    if is_decimal(kind):
        most = EXACT.scaleb(Decimal(10**kind.precision - 1), -kind.scale)
        rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, context=EXACT)
        return max(most.copy_negate(), min(rounded, most))
    if is_int(kind):
        return max(-(2 ** (kind.bit_width - 1)), min(int(value), 2 ** (kind.bit_width - 1) - 1))
    return value


def sketch_of(values: Sequence[Any], size: int) -> bytes:
    """The sketch itself: its bytes are part of the answer."""
    sketch = hll_sketch(size, tgt_hll_type.HLL_8)
    for value in sorted(set(values)):
        sketch.update(value)
    return bytes(sketch.serialize_updatable())


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
    "bool_and": lambda values, call: all(values),
    "bool_or": lambda values, call: any(values),
    "median": lambda values, call: interpolated(values, 0.5, is_descending=False),
    "percentile": lambda values, call: interpolated(values, *call.parameters),
    "percentile_disc": lambda values, call: discrete(values, *call.parameters),
    "mode": lambda values, call: most_frequent(values, call.parameters[1]),
    "first": lambda values, call: value_of_row(values, "t", is_last=False),
    "last": lambda values, call: value_of_row(values, "t", is_last=True),
    "min_by": lambda values, call: value_of_row(values, "o", is_last=False),
    "max_by": lambda values, call: value_of_row(values, "o", is_last=True),
    "collect_list": lambda values, call: (
        sorted(values, key=cmp_to_key(order)) if call.function.endswith(DISTINCT) else collected(values)
    ),
    "collect_set": lambda values, call: sorted(
        {sameness(value): value for value in values}.values(), key=cmp_to_key(order)
    ),
    "string_agg": collected_text,
    "skewness": lambda values, call: standardized(values, 3),
    "kurtosis": lambda values, call: None if (found := standardized(values, 4)) is None else found - 3.0,
    "covar_pop": lambda values, call: regression(values, lambda n, y, x, yy, xx, xy: xy / n),
    "covar_samp": lambda values, call: regression(
        values, lambda n, y, x, yy, xx, xy: None if n == 1 else xy / (n - 1)
    ),
    "corr": lambda values, call: regression(values, correlation),
    "regr_slope": lambda values, call: regression(
        values, lambda n, y, x, yy, xx, xy: None if xx == 0 else xy / xx
    ),
    "regr_intercept": lambda values, call: regression(
        values, lambda n, y, x, yy, xx, xy: None if xx == 0 else y - xy / xx * x
    ),
    "regr_r2": lambda values, call: regression(values, determination),
    "regr_sxx": lambda values, call: regression(values, lambda n, y, x, yy, xx, xy: xx),
    "regr_syy": lambda values, call: regression(values, lambda n, y, x, yy, xx, xy: yy),
    "regr_sxy": lambda values, call: regression(values, lambda n, y, x, yy, xx, xy: xy),
    "var_pop": lambda values, call: variance(values, sample=False),
    "var_samp": lambda values, call: variance(values, sample=True),
    "stddev_pop": lambda values, call: deviation(values, sample=False),
    "stddev_samp": lambda values, call: deviation(values, sample=True),
    "approx_count_distinct": lambda values, call: len({sameness(value) for value in values}),
    "approx_percentile": lambda values, call: percentiles(values, call.parameters[0]),
    "approx_top_k": lambda values, call: most_frequent_items(values, call.parameters[0]),
    "histogram_numeric": histogram,
    "hll_sketch_agg": lambda values, call: sketch_of(values, call.parameters[0]),
}
DISTINCT = "_distinct"  # after the name of a function that takes each value once
OF_NOTHING = frozenset(
    {"count", "approx_count_distinct", "collect_list", "collect_set", "approx_top_k", "hll_sketch_agg"}
)  # not null over no values
