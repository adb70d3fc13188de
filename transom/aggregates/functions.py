"""SQL's built-in aggregate functions, as entries of the table.

A function is an entry in `BUILT_IN`: the type of its result by Spark's rules, the accumulators that it needs, how
it is read off them (`lower`), and its traits. Functions that need equal accumulators share their states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import (
    Accumulator,
    Count,
    CountRows,
    Extreme,
    Moments,
    States,
    Sum,
)
from transom.aggregates.central_moments import MOMENT_FUNCTIONS
from transom.aggregates.collected import COLLECT_FUNCTIONS
from transom.aggregates.extreme_rows import ROW_FUNCTIONS, ExtremeValue
from transom.aggregates.frequent_items import FREQUENT_FUNCTIONS
from transom.aggregates.histograms import HISTOGRAM_FUNCTIONS
from transom.aggregates.multisets import FRACTIONS, MULTISET_FUNCTIONS, distinct_form
from transom.aggregates.sketches import Distinct, Quantiles
from transom.aggregates.table import (
    Accumulators,
    AggregateFunction,
    AnswerInterval,
    ExactForm,
    Lower,
    Parameter,
    Parameters,
    ResultType,
    Spelling,
    register_aggregate,
    register_spelling,
)
from transom.columns.types import has_sort_order, is_number

DEFAULT_RELATIVE_ERROR = 0.05
DEFAULT_ACCURACY = 10_000
_EXACT = Context(prec=160, rounding=ROUND_HALF_UP)

# --- reading results off states --------------------------------------------------------------------


def _first(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    return states[0][0].cast(type)


def _sum(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    total = states[0][0]
    if not pa.types.is_decimal(type):
        return total.cast(type)
    return pa.array([None if v is None or not _fits(v, type) else v for v in total.to_pylist()], type)


def _fits(value: Decimal, type: pa.DataType) -> bool:
    limit = Decimal(10) ** (type.precision - type.scale)
    return -limit < value < limit  # abs() would round to 28 digits first


def _average(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    total, count = states[0][0], states[1][0]
    if pa.types.is_decimal(type):
        pairs = zip(total.to_pylist(), count.to_pylist(), strict=True)
        return pa.array([None if not n else _decimal_quotient(v, n, type) for v, n in pairs], type)
    return pc.divide(
        total.cast(pa.float64(), safe=False),
        pc.replace_with_mask(count.cast(pa.float64()), pc.equal(count, 0), pa.scalar(None, pa.float64())),
    )


def _decimal_quotient(total: Decimal | None, count: int, type: pa.DataType) -> Decimal | None:
    """The exact quotient; results of at most 15 digits are divided as doubles, because Spark does so."""
    if total is None:
        return None
    if type.precision <= 15:
        scale = type.scale - 4  # of the input
        quotient = Decimal(repr(float(total.scaleb(scale)) / count / 10.0**scale))
    else:
        quotient = _EXACT.divide(total, Decimal(count))
    rounded = quotient.quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP, context=_EXACT)
    return rounded if _fits(rounded, type) else None


def _spread(sample: int, root: bool) -> Lower:
    def lower(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        count, _, squares, _ = (state.to_numpy(zero_copy_only=False) for state in states[0])
        enough = count > sample
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = squares / np.where(enough, count - sample, 1)
            values = np.sqrt(variance) if root else variance
        return pa.array(values, mask=~enough)

    return lower


def _distinct(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    return Distinct(pa.null(), 12).estimates(states[0][0])


def _percentile(states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
    wanted = parameters[0]
    ranks = tuple(wanted) if isinstance(wanted, (tuple, list)) else (wanted,)
    quantiles = Quantiles(pa.null(), 200).percentiles(states[0][0], ranks)
    if pa.types.is_list(type):
        flat = _of_type(
            [value for values in quantiles if values is not None for value in values], type.value_type
        )
        widths = [0 if values is None else len(values) for values in quantiles]
        offsets = pa.array(
            np.r_[0, np.cumsum(widths)], pa.int32(), mask=np.r_[[v is None for v in quantiles], False]
        )
        return pa.ListArray.from_arrays(offsets, flat).cast(type)
    return _of_type([None if values is None else values[0] for values in quantiles], type)


def _of_type(values: Sequence[float | None], type: pa.DataType) -> pa.Array:
    """Doubles in the type of the argument; one that rounding moved out of the range of the type is clipped."""
    if pa.types.is_floating(type):
        return pa.array(values, pa.float64()).cast(type)
    if pa.types.is_decimal(type):
        most = _EXACT.scaleb(Decimal(10**type.precision - 1), -type.scale)
        least = most.copy_negate()  # a minus sign would round to 28 digits
        unit = Decimal(1).scaleb(-type.scale)
        exact = (None if v is None else Decimal(repr(v)).quantize(unit, context=_EXACT) for v in values)
        return pa.array([None if v is None else max(least, min(v, most)) for v in exact], type)
    whole = pa.array([None if v is None else min(round(v), 2**63 - 1) for v in values], pa.int64())
    return whole.cast(pa.int32()).cast(type) if pa.types.is_date(type) else whole.cast(type)


# --- result types, by Spark's rules ----------------------------------------------------------------


def _always(type: pa.DataType) -> ResultType:
    return lambda kind, parameters: type


def _of_number(of: Callable[[pa.DataType], pa.DataType]) -> ResultType:
    """The type of a function that takes nothing but numbers."""

    def result_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
        if kind is None or not is_number(kind):
            return f"needs a number, and this is {kind}; a cast can make it one"
        return of(kind)

    return result_type


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 10), kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _average_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return pa.float64()


def _extreme_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or pa.types.is_map(kind):
        return "can't compare maps"
    return kind if has_sort_order(kind) else f"can't compare values of type {kind}"


def _distinct_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    return "can't compare maps" if pa.types.is_map(kind) else pa.int64()


def _sketch_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return f"needs an integer or a text, and this is {kind}; a cast can make it one"
    return pa.binary()


def _sketch(kind: pa.DataType | None, lg_k: int) -> Distinct:
    """The sketch itself has Spark's bytes; numbers share it with approx_count_distinct."""
    assert kind is not None
    return Distinct(kind, lg_k, counts_empty=not pa.types.is_string(kind))


def _percentile_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    if kind is None or not (is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return f"needs a number or a time, and this is {kind}"
    return pa.list_(kind) if isinstance(parameters[0], tuple) else kind


# --- parameters: constants after the argument ------------------------------------------------------


def _read_relative_error(constant: Any) -> float | None:
    is_number = not isinstance(constant, tuple | bool | str)
    return float(constant) if is_number and 0 < constant < 1 else None


def _read_accuracy(constant: Any) -> int | None:
    return constant if type(constant) is int and constant > 0 else None


RELATIVE_ERROR = Parameter(
    "the relative error is a constant between 0 and 1", _read_relative_error, DEFAULT_RELATIVE_ERROR
)


def _read_sketch_size(constant: Any) -> int | None:
    return constant if type(constant) is int and 4 <= constant <= 21 else None


SKETCH_SIZE = Parameter("lgConfigK is a whole constant, 4 to 21", _read_sketch_size, 12)
ACCURACY = Parameter("the accuracy is a positive whole constant", _read_accuracy, DEFAULT_ACCURACY)


# --- the functions ---------------------------------------------------------------------------------


def _needs(*makers: Callable[[pa.DataType], Accumulator]) -> Accumulators:
    return lambda kind, parameters: tuple(maker(kind) for maker in makers)


def _extreme(kind: pa.DataType, function: str) -> Accumulator:
    is_nested = pa.types.is_nested(kind)
    return ExtremeValue(kind, function) if is_nested else Extreme(kind, function)


def _sum_for_average(kind: pa.DataType) -> Accumulator:
    """The sum that an average is read off: that of SUM, but one that can't wrap where SUM's could.

    Spark adds up doubles here. Added exactly, the answer is the same to within its rounding, and does not
    depend on the order of the rows.
    """
    return Sum(pa.decimal128(19, 0) if kind == pa.int64() else kind)


def _spread_function(name: str, sample: int, root: bool, aliases: tuple[str, ...] = ()) -> AggregateFunction:
    return AggregateFunction(
        name=name,
        aliases=aliases,
        result_type=_of_number(lambda kind: pa.float64()),
        accumulators=_needs(lambda kind: Moments()),
        lower=_spread(sample, root),
    )


def _truth_type(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    is_condition = kind is not None and (pa.types.is_boolean(kind) or pa.types.is_null(kind))
    return pa.bool_() if is_condition else f"needs a condition, and this is {kind}"


def _truth_function(name: str, extreme: str, aliases: tuple[str, ...]) -> AggregateFunction:
    """Whether all or some conditions are true; false is below true."""
    return AggregateFunction(
        name=name,
        aliases=aliases,
        result_type=_truth_type,
        accumulators=_needs(lambda kind: Extreme(kind, extreme)),
        lower=_first,
        ignores_repeats=True,
    )


BUILT_IN = (
    AggregateFunction(
        name="count_rows",
        star_of="count",
        result_type=_always(pa.int64()),
        accumulators=_needs(lambda kind: CountRows()),
        lower=_first,
        empty=0,
        with_preference=True,
        is_additive=True,
        grows=True,
        interval=AnswerInterval.COUNT,
    ),
    AggregateFunction(
        name="count",
        takes_more=True,
        result_type=_always(pa.int64()),
        accumulators=_needs(lambda kind: Count()),
        lower=_first,
        empty=0,
        with_preference=True,
        is_additive=True,
        grows=True,
        interval=AnswerInterval.COUNT,
    ),
    AggregateFunction(
        name="sum",
        result_type=_of_number(_sum_type),
        accumulators=_needs(Sum),
        lower=_sum,
        with_preference=True,
        is_additive=True,
        grows=True,
        interval=AnswerInterval.SUM,
    ),
    AggregateFunction(
        name="avg",
        aliases=("mean",),
        result_type=_of_number(_average_type),
        accumulators=_needs(_sum_for_average, lambda kind: Count()),
        lower=_average,
        with_preference=True,
        interval=AnswerInterval.AVERAGE,
    ),
    AggregateFunction(
        name="min",
        result_type=_extreme_type,
        accumulators=_needs(lambda kind: _extreme(kind, "min")),
        lower=_first,
        with_preference=True,
        is_extreme=True,
        ignores_repeats=True,
        interval=AnswerInterval.LEAST,
    ),
    AggregateFunction(
        name="max",
        result_type=_extreme_type,
        accumulators=_needs(lambda kind: _extreme(kind, "max")),
        lower=_first,
        with_preference=True,
        is_extreme=True,
        ignores_repeats=True,
        interval=AnswerInterval.GREATEST,
    ),
    _spread_function("var_pop", 0, root=False),
    _spread_function("var_samp", 1, root=False, aliases=("variance",)),
    _spread_function("stddev_pop", 0, root=True),
    _spread_function("stddev_samp", 1, root=True, aliases=("stddev", "std")),
    AggregateFunction(
        name="approx_count_distinct",
        parameters=(RELATIVE_ERROR,),
        result_type=_distinct_type,
        accumulators=lambda kind, parameters: (Distinct.with_error(kind, parameters[0]),),
        lower=_distinct,
        empty=0,
        grows=True,
        ignores_repeats=True,
    ),
    AggregateFunction(
        name="approx_percentile",
        aliases=("percentile_approx",),
        parameters=(FRACTIONS, ACCURACY),
        result_type=_percentile_type,
        accumulators=lambda kind, parameters: (Quantiles.with_accuracy(kind, parameters[1]),),
        lower=_percentile,
        exact_form=ExactForm(
            0.5, "median", "the only percentile that is supported WITH PREFERENCE is the median, 0.5"
        ),
    ),
    _truth_function("bool_and", "min", aliases=("every",)),
    _truth_function("bool_or", "max", aliases=("some", "any")),
    *MULTISET_FUNCTIONS,
    *MOMENT_FUNCTIONS,
    *ROW_FUNCTIONS,
    *COLLECT_FUNCTIONS,
    *FREQUENT_FUNCTIONS,
    *HISTOGRAM_FUNCTIONS,
    AggregateFunction(
        name="hll_sketch_agg",
        parameters=(SKETCH_SIZE,),
        result_type=_sketch_type,
        accumulators=lambda kind, parameters: (_sketch(kind, parameters[0]),),
        lower=lambda states, type, parameters: Distinct(pa.null(), parameters[0]).sketches(states[0][0]),
        ignores_repeats=True,
    ),
)

# Each value once: `count(DISTINCT x)`, and so on.
DISTINCT_FORMS = tuple(
    distinct_form(function)
    for function in BUILT_IN
    if function.name in ("count", "sum", "avg", "median", "percentile", "percentile_disc")
    or function.name.startswith(("var_", "stddev_"))
)

SPELLINGS = (
    Spelling("count_if", "count_rows", 1, condition=0),
    Spelling("regr_count", "count", 2, arguments=(0, 1)),
    Spelling(
        "regr_avgx", "avg", 2, arguments=(1, 0)
    ),  # the first argument is averaged, no argument may be null
    Spelling("regr_avgy", "avg", 2, arguments=(0, 1)),
)

for _function in (*BUILT_IN, *DISTINCT_FORMS):
    register_aggregate(_function)
for _spelling in SPELLINGS:
    register_spelling(_spelling)
