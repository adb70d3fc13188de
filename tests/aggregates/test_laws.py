"""The laws of the algebra, for every accumulator over every input type that it takes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.aggregates.laws import (
    PARAMETERS,
    SAMPLES,
    accumulators,
    alike,
    answers,
    array,
    combine,
    lift,
    uses,
    zeros,
)
from transom.aggregates.accumulators import Accumulator, lift_where
from transom.aggregates.repeated_values import lift_repeated
from transom.aggregates.table import aggregate_function, aggregate_functions

EVERY = [
    pytest.param(
        accumulator, kind, id=f"{type(accumulator).__name__} {getattr(accumulator, 'function', '')} of {kind}"
    )
    for accumulator, kind in accumulators()
]
every = pytest.mark.parametrize(("accumulator", "kind"), EVERY)


def draws(kind: pa.DataType, most: int = 9, count: int = 6) -> list[list[Any]]:
    """Lists of values with nulls and repeats: always the empty list, one null, and all samples."""
    rng = random.Random(7)
    choices = [*SAMPLES[kind], None]
    drawn = [[rng.choice(choices) for _ in range(rng.randint(1, most))] for _ in range(count)]
    return [[], [None], list(SAMPLES[kind]), *drawn]


def test_every_registered_function_takes_some_input_type() -> None:
    assert {function for function, *_ in uses()} == {function.name for function in aggregate_functions()}
    assert set(PARAMETERS) == {function.name for function in aggregate_functions() if function.parameters}


def test_the_value_over_no_rows_is_lowered_from_the_identities() -> None:
    for name, kind, parameters, type in uses():
        function = aggregate_function(name)
        nothing = [lift(accumulator, [], kind) for accumulator in function.accumulators(kind, parameters)]
        empty = function.empty
        if name == "hll_sketch_agg":  # an empty sketch of its size
            empty = function.lower([[pa.nulls(1, pa.binary())]], type, parameters)[0].as_py()
        assert function.lower(nothing, type, parameters).to_pylist() == [empty], name
        assert function.over(array([], kind), type, parameters) == empty, name


@every
def test_states_have_the_declared_types(accumulator: Accumulator, kind: pa.DataType) -> None:
    for values in draws(kind):
        lifted_state = lift(accumulator, values, kind)
        assert [column.type for column in lifted_state] == accumulator.types()
        assert [
            column.type for column in combine(accumulator, lifted_state, lifted_state)
        ] == accumulator.types()


@every
def test_the_identity_is_the_state_of_no_tuples(accumulator: Accumulator, kind: pa.DataType) -> None:
    assert [column[0].as_py() for column in lift(accumulator, [], kind)] == accumulator.identity()


@every
def test_the_identity_changes_nothing(accumulator: Accumulator, kind: pa.DataType) -> None:
    nothing = [pa.array([v], t) for v, t in zip(accumulator.identity(), accumulator.types(), strict=True)]
    for values in draws(kind):
        state = lift(accumulator, values, kind)
        expected = answers(accumulator, kind, state)
        for combined in (combine(accumulator, nothing, state), combine(accumulator, state, nothing)):
            assert alike(answers(accumulator, kind, combined), expected), values


@every
def test_combining_is_associative_and_commutative(accumulator: Accumulator, kind: pa.DataType) -> None:
    first, second, third = (lift(accumulator, values, kind) for values in draws(kind)[-3:])
    left = combine(accumulator, combine(accumulator, first, second), third)
    right = combine(accumulator, first, combine(accumulator, second, third))
    reordered = combine(accumulator, third, first, second)
    assert alike(answers(accumulator, kind, left), answers(accumulator, kind, right))
    assert alike(answers(accumulator, kind, left), answers(accumulator, kind, reordered))


@every
def test_combined_parts_equal_the_whole(accumulator: Accumulator, kind: pa.DataType) -> None:
    for values in draws(kind):
        whole = answers(accumulator, kind, lift(accumulator, values, kind))
        for parts in (1, 2, 3):
            states = [lift(accumulator, values[start::parts], kind) for start in range(parts)]
            assert alike(answers(accumulator, kind, combine(accumulator, *states)), whole), values


@every
def test_groups_are_independent_and_may_be_empty(accumulator: Accumulator, kind: pa.DataType) -> None:
    lists = draws(kind)
    rows = [(code, value) for code, values in enumerate(lists) for value in values]
    random.Random(8).shuffle(rows)
    codes = np.array([code for code, _ in rows], np.int64)
    states = accumulator.lift(array([value for _, value in rows], kind), codes, len(lists) + 1)
    again = accumulator.combine(states, np.arange(len(lists) + 1), len(lists) + 2)
    alone = [answers(accumulator, kind, lift(accumulator, values, kind)) for values in [*lists, []]]
    for grouped in (states, again):
        for code, expected in enumerate(alone):
            assert alike(answers(accumulator, kind, [column.slice(code, 1) for column in grouped]), expected)
    assert [column[-1].as_py() for column in again] == accumulator.identity()


@every
def test_a_filter_selects_tuples(accumulator: Accumulator, kind: pa.DataType) -> None:
    for values in draws(kind):
        mask = np.arange(len(values)) % 3 != 1
        filtered = lift_where(accumulator, array(values, kind), mask, zeros(len(values)), 1)
        shown = [value for value, chosen in zip(values, mask, strict=True) if chosen]
        assert alike(
            answers(accumulator, kind, filtered), answers(accumulator, kind, lift(accumulator, shown, kind))
        )


@every
def test_accumulators_compare_by_value(accumulator: Accumulator, kind: pa.DataType) -> None:
    again = [other for other, input in accumulators() if input == kind and other == accumulator]
    assert again == [accumulator]
    assert hash(again[0]) == hash(accumulator)


@every
def test_a_value_that_occurs_several_times_is_lifted_like_its_repetitions(
    accumulator: Accumulator, kind: pa.DataType
) -> None:
    rng = random.Random(11)
    for values in draws(kind):
        times = [rng.randint(1, 4) for _ in values]
        codes = np.array([rng.randrange(3) for _ in values], np.int64)
        repeated = [value for value, count in zip(values, times, strict=True) for _ in range(count)]
        lifted = accumulator.lift(array(repeated, kind), np.repeat(codes, times), 3)
        once = lift_repeated(accumulator, array(values, kind), np.array(times, np.int64), codes, 3)
        assert [state.type for state in once] == [state.type for state in lifted]
        mine, theirs = ([state.to_pylist() for state in states] for states in (once, lifted))
        assert alike(mine, theirs), (values, times, codes.tolist())
