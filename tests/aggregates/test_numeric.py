"""Numeric forms on arrays give the results of the accumulators."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.aggregates.laws import SAMPLES, accumulators, alike, answers_of_groups, array, zeros
from transom.aggregates.accumulators import (
    REDUCED_BY_NUMPY,
    Accumulator,
    Extreme,
    Sum,
    reduce_by_arrow,
    reduce_groups,
)
from transom.aggregates.numeric import combine_runs, contributions, numeric_form, reduce_runs

EVERY = [
    pytest.param(
        accumulator, kind, id=f"{type(accumulator).__name__} {getattr(accumulator, 'function', '')} of {kind}"
    )
    for accumulator, kind in accumulators()
]
every = pytest.mark.parametrize(("accumulator", "kind"), EVERY)


def values(kind: pa.DataType, rng: random.Random) -> list[Any]:
    return [rng.choice([*SAMPLES[kind], None]) for _ in range(12)]


@every
def test_combining_runs_equals_combining_each_run(accumulator: Accumulator, kind: pa.DataType) -> None:
    rng = random.Random(3)
    for _ in range(6):
        states = accumulator.lift(array(values(kind, rng), kind), np.arange(12) // 2, 8)  # 6 and 7 are empty
        pairs = sorted({tuple(sorted(rng.sample(range(9), 2))) for _ in range(6)} | {(0, 8), (6, 8)})
        starts, stops = np.array(pairs).T
        combined = combine_runs(accumulator, states, (starts, stops))
        assert [column.type for column in combined] == accumulator.types()
        alone = [
            accumulator.combine(
                [state.slice(start, stop - start) for state in states], zeros(stop - start), 1
            )
            for start, stop in pairs
        ]
        expected = [pa.concat_arrays(column) for column in zip(*alone, strict=True)]
        ours, theirs = (answers_of_groups(accumulator, kind, both) for both in (combined, expected))
        for pair, our, their in zip(pairs, ours, theirs, strict=True):
            assert alike(our, their), (pair, our)


@every
def test_numbers_gathered_by_cell_equal_lifted_states(accumulator: Accumulator, kind: pa.DataType) -> None:
    form = numeric_form(accumulator)
    if form is None or pa.types.is_null(kind):
        return
    rng = random.Random(4)
    for _ in range(6):
        drawn = array(values(kind, rng), kind)
        codes = np.array([rng.randrange(4) for _ in range(12)])
        numbers, valid = contributions(form, accumulator, drawn)
        present = None
        if valid is not None:
            numbers, codes_of = numbers[valid], codes[valid]
            present = np.bincount(codes_of, minlength=5) > 0
        else:
            codes_of = codes
            present = None if form.counts else np.bincount(codes, minlength=5) > 0
        combined = form.column(form.gathered(numbers, codes_of, 5), present)
        (expected,) = accumulator.lift(drawn, codes, 5)
        assert combined.type == expected.type
        assert alike(combined.to_pylist(), expected.to_pylist()), drawn


@pytest.mark.parametrize(
    ("function", "numbers", "answer"),
    [
        pytest.param("max", [1.0, math.nan, 2.0], math.nan, id="NaN is above every number"),
        pytest.param("min", [1.0, math.nan, 2.0], 1.0, id="min ignores NaN beside numbers"),
        pytest.param("min", [math.nan, math.nan], math.nan, id="the min of NaN alone is NaN"),
        pytest.param("min", [math.inf, None], math.inf, id="infinity is a number, not the identity"),
        pytest.param("max", [-math.inf, None], -math.inf, id="minus infinity is a number, too"),
        pytest.param("max", [None, None], None, id="no value has no extreme"),
    ],
)
def test_extremes_of_doubles(function: str, numbers: list[float | None], answer: float | None) -> None:
    states = [pa.array(numbers, pa.float64(), from_pandas=False)]
    runs = np.array([0]), np.array([len(numbers)])
    (combined,) = combine_runs(Extreme(pa.float64(), function), states, runs)
    assert alike(combined.to_pylist(), [answer])


def test_a_huge_neighbour_does_not_disturb_a_small_sum() -> None:
    """Sums of runs by subtracting sums from the start would lose the 7 beside 1e300."""
    states = [pa.array([1e300, 3.0, 4.0, -1e300, math.nan, 5.0])]
    starts, stops = np.array([0, 1, 1, 3, 4, 5]), np.array([1, 3, 2, 4, 5, 6])
    (combined,) = combine_runs(Sum(pa.float64()), states, (starts, stops))
    assert alike(combined.to_pylist(), [1e300, 7.0, 3.0, -1e300, math.nan, 5.0])


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.fmin])
def test_runs_may_overlap_touch_and_lie_apart(ufunc: np.ufunc) -> None:
    rng = random.Random(5)
    numbers = np.array([rng.uniform(-9, 9) for _ in range(20)])
    pairs = sorted(tuple(sorted(rng.sample(range(21), 2))) for _ in range(30))
    starts, stops = np.array(pairs).T
    expected = [ufunc.reduce(numbers[start:stop]) for start, stop in pairs]
    assert reduce_runs(ufunc, numbers, (starts, stops)).tolist() == pytest.approx(expected)
    nothing = np.empty(0, np.int64)
    assert reduce_runs(ufunc, numbers, (nothing, nothing)).tolist() == []


@pytest.mark.parametrize(("function", "kind"), sorted(REDUCED_BY_NUMPY, key=str), ids=str)
def test_groups_of_numbers_are_reduced_to_the_bits_that_arrow_gives(function: str, kind: pa.DataType) -> None:
    dice = np.random.default_rng(7)
    doubles = [1.5, -0.0, 0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 0.1]
    for size in (0, 1, 5, 40):
        for nulls in (0.0, 0.3, 1.0):
            codes = dice.integers(0, 6, size)
            integers = dice.integers(-(2**30), 2**30, size) * (1 if kind == pa.int32() else 2**33)
            numbers = dice.choice(doubles, size) if pa.types.is_floating(kind) else integers
            some = pa.array(numbers, kind, mask=dice.random(size) < nulls)
            reduced = reduce_groups(some, codes, 7, function)
            expected = reduce_by_arrow(some, codes, 7, function)
            assert reduced.type == expected.type
            assert list(map(repr, reduced.to_pylist())) == list(map(repr, expected.to_pylist()))
