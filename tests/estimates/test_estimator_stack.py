"""Queries that learn together learn exactly what each of them learns alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimates.test_estimator import NUMBERS, early_values, ends, finals, observe
from transom.columns.array_bytes import unpack
from transom.elements import Emit, WindowSpec
from transom.estimates import EstimateLimits, Estimates, Estimator, ItemKind, Quality
from transom.estimates.batch_stacks import BatchStacks
from transom.estimates.estimator import split_stack, stack_of
from transom.estimates.estimator_stack import EarlyRows, EstimatorStack, FinalRows
from transom.estimates.result_values import ResultValues
from transom.results.result_rows import ResultBatch
from transom.windows.ids import WindowSpecs

KINDS = (ItemKind("n", True, grows=True), ItemKind("x", True))
OTHERS = (ItemKind("x", True), ItemKind("n", True, grows=True))
FEW = EstimateLimits(groups=3, observed_groups=4, pending_rows=30, pending_parts=2, recent_windows=4)
QUERIES = (
    Estimator.of(Emit(at=(0.5,)), KINDS, 1.0, FEW),
    Estimator.of(Emit(accuracy=0.9), OTHERS, 3.0, FEW),
    Estimator.of(Emit(at=(0.5,), confidence=0.5), KINDS, 2.4, FEW),
)
ROWS = st.lists(st.tuples(st.integers(0, 6), NUMBERS, NUMBERS), max_size=6, unique_by=lambda row: row[0])
LEFT = st.sampled_from([2.5, 1.0, 0.5, 0.47, 0.0, -0.3])
# For each query: early values at a moment, or none, and the finals of the window, or none.
STEP = st.tuples(*[st.tuples(LEFT, ROWS, ROWS)] * len(QUERIES))


def table(rows: list[Any]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[i] for row in rows], pa.float64()) for i, name in ((1, "n"), (2, "x"))}
    )


def columns(rows: list[list[Any]]) -> tuple[Any, Any, Any]:
    """The number of the query, the group and the values of each row."""
    query = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
    flat = [row for own in rows for row in own]
    values = np.array([[np.nan if one is None else one for one in row[1:]] for row in flat], np.float64)
    values = values.reshape(len(flat), 2)
    values[~(np.abs(values) <= 1e150)] = np.nan
    return query, np.array([row[0] for row in flat], np.int64), values


def stored(estimator: Estimator) -> tuple[Mapping[str, Any], dict[str, Any]]:
    return unpack(estimator.dumps())


def assert_equal(one: Estimator, other: Estimator) -> None:
    """Equal bit by bit, but for sums of accuracies, which are added in another order."""
    (meta, arrays), (other_meta, others) = stored(one), stored(other)
    assert meta == other_meta and arrays.keys() == others.keys()
    for name, array in arrays.items():
        if name in ("monitor.total", "monitor.recent"):
            np.testing.assert_allclose(array, others[name], rtol=1e-12)
        else:
            np.testing.assert_array_equal(array, others[name], err_msg=name)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=15))
def test_a_stack_learns_and_estimates_as_its_queries_do_alone(steps: list[Any]) -> None:
    alone, stack = list(QUERIES), stack_of(QUERIES)
    for window, step in enumerate(steps):
        query, group, values = columns([rows for _, rows, _ in step])
        count = len(query)
        left = np.array([left for left, _, _ in step])[query] if count else np.empty(0)
        early = EarlyRows(
            query,
            group,
            np.full(count, window),
            left,
            values,
            0,
            np.ones(count, np.bool_),
            end=ends(count, window),
        )
        together = stack.estimate(early)
        stack = stack.with_early(early, together)
        bounds = np.searchsorted(query, np.arange(len(QUERIES) + 1)).tolist()
        for i, (start, stop) in enumerate(pairwise(bounds)):
            moment, rows, _ = step[i]
            seen = early_values([row[0] for row in rows], window, moment, table(rows))
            if rows:
                alone[i], found = observe(alone[i], seen)
                assert_same(found, together.take(slice(start, stop)))
        query, group, values = columns([rows for _, _, rows in step])
        count = len(query)
        finals_of_all = FinalRows(query, group, np.full(count, window), values, 0, end=ends(count, window))
        stack = stack.with_finals(finals_of_all)
        for i, (_, _, rows) in enumerate(step):
            if rows:
                alone[i] = alone[i].with_finals(finals([row[0] for row in rows], window, table(rows)))
        for one, other in zip(alone, split_stack(stack), strict=True):
            assert_equal(one, other)
        stack = stack_of(list(split_stack(stack)))


def assert_same(one: Estimates, other: Estimates) -> None:
    for name in ("projected", "low", "high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_queries_whose_items_differ_in_kind_are_not_in_one_stack() -> None:
    text = Estimator.of(Emit(), (ItemKind("n", True), ItemKind("t", False)), 1.0)
    judged = [Estimator.of(Emit(quality="alike"), KINDS, 1.0) for _ in range(2)]
    keys = [one.query.stack_key for one in (QUERIES[0], text, *judged)]
    assert len(set(keys)) == 4
    assert len({one.query.stack_key for one in QUERIES}) == 1


@pytest.mark.parametrize("windows", [0, 12])
def test_an_estimator_is_the_same_in_a_stack_that_grows(windows: int) -> None:
    """A query that joins others starts from nothing, and does not disturb them."""
    first = Estimator.of(Emit(at=(0.5,)), KINDS, 1.0)
    for window in range(windows):
        first, _ = observe(first, early_values([1, 2], window, 0.5, table([(1, 5.0, 1.0), (2, 6.0, 2.0)])))
        first = first.with_finals(finals([1, 2], window, table([(1, 10.0, 1.5), (2, 12.0, 2.5)])))
    joined = stack_of([Estimator.of(Emit(at=(0.5,)), KINDS, 1.0), first])
    newcomer, again = split_stack(joined)
    assert_equal(again, first)
    assert_equal(newcomer, Estimator.of(Emit(at=(0.5,)), KINDS, 1.0))


def test_only_the_query_whose_numbers_fail_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a stack fails to learn, its queries learn one by one."""
    learn = EstimatorStack.with_finals

    def failing(stack: EstimatorStack, rows: FinalRows, quality: Quality | None = None) -> EstimatorStack:
        if (rows.numbers == 13).any():
            raise ArithmeticError("13")
        return learn(stack, rows, quality)

    monkeypatch.setattr(EstimatorStack, "with_finals", failing)
    taught, _ = observe(QUERIES[0], early_values([1], 0, 0.5, table([(1, 5.0, 1.0)])))
    stacks = BatchStacks({"good": taught, "bad": taught}, ["good", "bad"], lambda name: QUERIES[0])
    values = table([(1, 10.0, 1.0), (1, 13.0, 1.0)])
    batch = ResultBatch(["good", "bad"], np.array([0, 1, 2]), values)
    group, window = np.ones(2, np.int64), np.zeros(2, np.int64)
    numbers = np.array([[10.0, 1.0], [13.0, 1.0]])
    specs = WindowSpecs.of([WindowSpec(1, 1)] * 2)
    end = ends(2, 0)
    results = ResultValues(batch, np.arange(2), specs, group, window, end, numbers, values)
    stacks.learn([results], 0, {}, {})
    after = dict(stacks.estimators())
    assert_equal(after["good"], taught.with_finals(finals([1], 0, table([(1, 10.0, 1.0)]))))
    assert_equal(after["bad"], QUERIES[0])
