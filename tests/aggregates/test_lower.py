"""`lower`: the results of each SQL function against plain Python."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal as D
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.aggregates.laws import SAMPLES, alike, array, combine, lift, uses, zeros
from transom.aggregates.accumulators import (
    Accumulator,
    Count,
    CountRows,
    Extreme,
    Moments,
    Sum,
    columns_in_moments,
)
from transom.aggregates.sketches import Distinct, Quantiles
from transom.aggregates.table import aggregate_function
from transom.oracle.aggregates import aggregate
from transom.sql.binding.aggregate_calls import result_type
from transom.sql.query import Call, Scalar

NAN, INF = math.nan, math.inf
WIDE = pa.decimal128(38, 0)
NINES = D("9" * 38)


def answer_of(function: str, kind: pa.DataType, values: list[Any], *parameters: Any, parts: int = 1) -> Any:
    """The function's answer over one group, lifted in parts and combined."""
    type = result_type(function, [kind], parameters)
    assert isinstance(type, pa.DataType)
    states = [
        combine(accumulator, *(lift(accumulator, values[start::parts], kind) for start in range(parts)))
        for accumulator in aggregate_function(function).accumulators(kind, parameters)
    ]
    (answer,) = aggregate_function(function).lower(states, type, parameters).cast(type).to_pylist()
    return answer


I64, F64, F32, D10 = pa.int64(), pa.float64(), pa.float32(), pa.decimal128(10, 2)


@pytest.mark.parametrize(
    ("function", "kind", "values", "expected"),
    [
        pytest.param("count_rows", I64, [1, None, 3], 3, id="count(*) counts nulls"),
        pytest.param("count", I64, [1, None, 3], 2, id="count(x) does not"),
        pytest.param("count", F64, [NAN, None], 1, id="NaN is a value"),
        pytest.param("sum", I64, [1, None, 3], 4, id="sum ignores nulls"),
        pytest.param("sum", I64, [None], None, id="the sum of nothing is null"),
        pytest.param("sum", I64, [2**63 - 1, 1], -(2**63), id="integers wrap at 64 bits"),
        pytest.param("sum", pa.int8(), [127, 127], 254, id="small integers sum to long"),
        pytest.param("sum", F32, [0.5, 0.25], 0.75, id="floats sum to double"),
        pytest.param("sum", F64, [1.0, NAN], NAN, id="a NaN spoils a sum"),
        pytest.param("sum", F64, [INF, -INF], NAN, id="two infinities make NaN"),
        pytest.param("sum", D10, [D("1.10"), None, D("2.05")], D("3.15"), id="decimals are exact"),
        pytest.param("sum", D10, [D("99999999.99")] * 3, D("299999999.97"), id="and gain ten digits"),
        pytest.param("sum", WIDE, [NINES], NINES, id="38 digits fit"),
        pytest.param("sum", WIDE, [NINES, D(1)], None, id="39 digits are null"),
        pytest.param("sum", WIDE, [NINES] * 5, None, id="a sum that overflows several times is null"),
        pytest.param("sum", WIDE, [NINES, D(1), D(-1)], NINES, id="an overflow on the way does no harm"),
        pytest.param("avg", I64, [1, None, 4], 2.5, id="avg divides by what is not null"),
        pytest.param("avg", I64, [None], None, id="the average of nothing is null"),
        pytest.param("avg", D10, [D("1.00"), D("0.00"), D("0.00")], D("0.333333"),
                     id="the average of decimals has four digits more"),
        pytest.param("avg", D10, [D("0.05"), D("0.00")], D("0.025000"), id="avg halves up"),
        pytest.param("avg", WIDE, [NINES], None, id="38 digits and four more do not fit"),
        pytest.param("min", F64, [NAN, 1.0, None], 1.0, id="NaN is above every number"),
        pytest.param("max", F64, [NAN, 1.0, INF], NAN, id="also above infinity"),
        pytest.param("min", F64, [NAN, NAN], NAN, id="and the least when there is nothing else"),
        pytest.param("min", pa.string(), ["é", "z", "a"], "a", id="the least string"),
        pytest.param("max", pa.string(), ["\uffff", "😀"], "😀", id="strings are ordered by their UTF-8"),
        pytest.param("max", pa.bool_(), [False, None, True], True, id="true is above false"),
        pytest.param("max", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], date(9999, 12, 31), id="dates"),
        pytest.param("max", pa.null(), [None], None, id="the greatest of untyped nulls"),
        pytest.param("var_samp", I64, [5], None, id="one value is no sample"),
        pytest.param("var_pop", I64, [5], 0.0, id="one value has a population variance of 0"),
        pytest.param("stddev_samp", I64, [2, 4, 4, 4, 5, 5, 7, 9, None], math.sqrt(32 / 7),
                     id="a sample's deviation"),
        pytest.param("stddev_pop", I64, [2, 4, 4, 4, 5, 5, 7, 9], 2.0, id="a population's deviation"),
        pytest.param("var_pop", F64, [1.0, NAN], NAN, id="a NaN spoils a variance"),
        pytest.param("var_pop", F64, [], None, id="the variance of nothing is null"),
        pytest.param("var_pop", F64, [1e9, 1e9 + 1, 1e9 + 2], 2 / 3, id="nothing is lost to cancellation"),
        pytest.param("var_pop", F64, [1e308, 1e308], 0.0, id="a sum that overflows does not spoil a variance"),
        pytest.param("var_pop", D10, [D("1.50"), D("2.50")], 0.25, id="decimals vary as doubles"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("parts", [1, 2])
def test_exact_functions(
    function: str, kind: pa.DataType, values: list[Any], expected: Any, parts: int
) -> None:
    assert alike(answer_of(function, kind, values, parts=parts), expected)


def test_a_constant_group_has_no_spread_at_all_in_any_order_of_combining() -> None:
    states = [lift(Moments(), [0.1] * size, F64) for size in (1, 3, 10)]
    assert combine(Moments(), *states, lift(Moments(), [], F64))[2].to_pylist() == [0.0]


@pytest.mark.parametrize("seed", range(5))
def test_every_function_gives_what_the_oracle_gives(seed: int) -> None:
    rng = random.Random(seed)
    samples = {
        I64: [rng.randint(-50, 50) for _ in range(6)],
        F64: [rng.choice([1.5, -2.25, 0.0, 99.0, NAN]) for _ in range(6)],
        D10: [D(rng.randint(-999, 999)).scaleb(-2) for _ in range(6)],
        pa.string(): ["a", "é", "zz"],
        **{kind: values for kind, values in SAMPLES.items() if pa.types.is_nested(kind)},
    }
    for function, kind, parameters, type in uses():
        if kind not in samples:
            continue
        values = [rng.choice([*samples[kind], None]) for _ in range(rng.randint(0, 12))]
        args = () if function == "count_rows" else (Scalar("x", kind),)
        expected = aggregate(
            Call(function, args, type, parameters=parameters), [{"x": value} for value in values]
        )
        assert alike(answer_of(function, kind, values, *parameters, parts=2), expected), (
            function,
            kind,
            values,
        )


# --- sketches --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "fraction", "expected"),
    [
        pytest.param(I64, [3, 1, None, 2], 0.5, 2, id="the value of nearest rank"),
        pytest.param(I64, [3, 1, 2], 0.0, 1, id="the least"),
        pytest.param(I64, [3, 1, 2], 1.0, 3, id="the greatest"),
        pytest.param(I64, [3, 1, 2], (0.0, 1.0), [1, 3], id="several at once"),
        pytest.param(I64, [None], 0.5, None, id="of nothing there is none"),
        pytest.param(I64, [None], (0.5,), None, id="nor are there several"),
        pytest.param(I64, [2**63 - 1], 0.5, 2**63 - 1, id="the end of 64 bits stays inside"),
        pytest.param(pa.decimal128(38, 2), [D("9" * 36 + ".99")], 0.5, D("9" * 36 + ".99"),
                     id="the end of 38 digits stays inside"),
        pytest.param(pa.decimal128(38, 2), [D("-" + "9" * 36 + ".99")], 0.5, D("-" + "9" * 36 + ".99"),
                     id="the other end too"),
        pytest.param(D10, [D("1.10"), D("2.20")], 0.5, D("1.10"), id="decimals come back exactly"),
        pytest.param(F64, [NAN, 1.0, 2.0], 1.0, NAN, id="NaN is above every number"),
        pytest.param(F64, [NAN, INF, 2.0], 0.5, INF, id="and above infinity"),
        pytest.param(F32, [-INF, 0.5], 0.0, -INF, id="minus infinity is below"),
        pytest.param(pa.date32(), [date(2013, 1, 1), date(1969, 1, 1)], 0.5, date(1969, 1, 1), id="dates"),
    ],
)  # fmt: skip
def test_percentiles_of_few_values_are_exact(
    kind: pa.DataType, values: list[Any], fraction: Any, expected: Any
) -> None:
    assert alike(answer_of("approx_percentile", kind, values, fraction, 10_000), expected)


def test_percentiles_of_many_values_are_within_the_given_accuracy() -> None:
    numbers = list(range(100_000))
    random.Random(11).shuffle(numbers)
    fractions = (0.01, 0.25, 0.5, 0.99)
    result = answer_of("approx_percentile", I64, numbers, fractions, 100, parts=4)
    for fraction, value in zip(fractions, result, strict=True):
        assert abs(value / 100_000 - fraction) < 3 / 100


@pytest.mark.parametrize(("error", "allowed"), [(0.05, 0.2), (0.01, 0.04)])
def test_distinct_counts_are_within_four_standard_errors(error: float, allowed: float) -> None:
    values = [f"user {number % 20_000}" for number in range(40_000)]
    result = answer_of("approx_count_distinct", pa.string(), values, error, parts=3)
    assert abs(result / 20_000 - 1) < allowed


def test_few_distinct_values_are_counted_exactly() -> None:
    for size in (0, 1, 2, 10, 50):
        assert answer_of("approx_count_distinct", I64, [*range(size), None, *range(size)], 0.05) == size
    assert answer_of("approx_count_distinct", F64, [0.0, -0.0, NAN, -NAN], 0.05) == 2
    assert (
        answer_of("approx_count_distinct", pa.struct([("a", I64)]), [{"a": 1}, {"a": 2}, {"a": 1}], 0.05) == 2
    )


@pytest.mark.parametrize(("error", "lg_k"), [(0.05, 9), (0.02, 12), (0.99, 7), (1e-9, 21)])
def test_the_relative_error_decides_the_size_of_a_sketch(error: float, lg_k: int) -> None:
    assert Distinct.with_error(I64, error).lg_k == lg_k


@pytest.mark.parametrize(("accuracy", "k"), [(1, 200), (10_000, 8192), (2**31, 8192)])
def test_a_quantile_sketch_is_within_bounds(accuracy: int, k: int) -> None:
    assert Quantiles.with_accuracy(I64, accuracy).k == k


def test_floats_are_never_subtracted() -> None:
    # A huge neighbour in another group or an earlier slice must not turn 7.0 into 0.0.
    codes = np.array([0, 1, 0, 1])
    (state,) = Sum(F64).lift(array([1e300, 7.0, -1e300, 0.0], F64), codes, 2)
    assert Sum(F64).combine([state], zeros(2) + np.array([0, 1]), 2)[0].to_pylist() == [0.0, 7.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([math.inf, 1.0], math.inf, id="infinity first"),
        pytest.param([1.0, math.inf], math.inf, id="infinity last"),
        pytest.param([math.inf, -math.inf], math.nan, id="both infinities"),
        pytest.param([math.nan, 1.0], math.nan, id="not a number"),
        pytest.param([1.5, None, 2.5], 2.0, id="numbers and a null"),
        pytest.param([None], None, id="nothing but nulls"),
    ],
)
def test_an_average_from_moments_is_the_sum_divided_by_the_count(
    values: list[float | None], expected: float | None
) -> None:
    state = lift(Moments(), values, F64)
    served = [
        [state[i] for i in columns_in_moments(accumulator) or ()] for accumulator in (Sum(F64), Count())
    ]
    assert [[column.type for column in states] for states in served] == [Sum(F64).types(), Count().types()]
    (result,) = aggregate_function("avg").lower(served, F64, ()).to_pylist()
    assert result == expected or (math.isnan(result) and math.isnan(expected))


@pytest.mark.parametrize("kind", [pa.float32(), F64])
@pytest.mark.parametrize("parts", [1, 2])
def test_moments_have_the_states_of_the_accumulators_they_serve(kind: pa.DataType, parts: int) -> None:
    for values in ([], [None], [1e308] * 4, [0.1, 0.2, None, -0.0], [NAN, 1.0], [math.inf, -math.inf]):
        halves = [values[i::parts] for i in range(parts)]
        moments = combine(Moments(), *(lift(Moments(), half, kind) for half in halves))
        for accumulator in (Sum(kind), Count()):
            states = combine(accumulator, *(lift(accumulator, half, kind) for half in halves))
            served = [moments[i].to_pylist() for i in columns_in_moments(accumulator) or ()]
            assert alike(served, [column.to_pylist() for column in states])


@pytest.mark.parametrize("accumulator", [Sum(I64), Sum(D10), CountRows(), Extreme(F64, "max"), Moments()])
def test_moments_serve_no_accumulator_whose_state_they_do_not_have(accumulator: Accumulator) -> None:
    assert columns_in_moments(accumulator) is None
