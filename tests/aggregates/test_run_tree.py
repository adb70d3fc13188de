"""Overlapping runs combined by a tree of nodes: the states of combining each run row by row, with fewer steps."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.aggregates.laws import SAMPLES, accumulators, alike, answers_of_groups, array
from transom.aggregates.accumulators import Accumulator, Moments, Sum
from transom.aggregates.numeric import combine_runs
from transom.aggregates.run_tree import RunTree
from transom.aggregates.sketches import Distinct

EVERY = [
    pytest.param(
        accumulator, kind, id=f"{type(accumulator).__name__} {getattr(accumulator, 'function', '')} of {kind}"
    )
    for accumulator, kind in accumulators()
]
ROWS = 60


def sliding(length: int, slide: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    starts = np.arange(0, rows - length + 1, slide)
    return starts, starts + length


@pytest.mark.parametrize(("accumulator", "kind"), EVERY)
@pytest.mark.parametrize(("length", "slide"), [(16, 1), (33, 2)])
def test_a_tree_gives_what_combining_each_run_gives(
    accumulator: Accumulator, kind: pa.DataType, length: int, slide: int
) -> None:
    rng = random.Random(length)
    values: list[Any] = [rng.choice([*SAMPLES[kind], None]) for _ in range(2 * ROWS)]
    states = accumulator.lift(array(values, kind), np.arange(2 * ROWS) // 2, ROWS)
    starts, stops = sliding(length, slide)
    extra = np.array([[0, ROWS], [3, 4], [ROWS - 9, ROWS]]).T
    starts, stops = np.r_[starts, extra[0]], np.r_[stops, extra[1]]
    found = RunTree(starts, stops).combine(accumulator, states, least_shared=1)
    assert [column.type for column in found] == accumulator.types()
    expected = combine_runs(accumulator, states, (starts, stops))
    ours, theirs = (answers_of_groups(accumulator, kind, both) for both in (found, expected))
    assert len(ours) == len(theirs) == len(starts)
    for run, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert alike(our, their), (int(starts[run]), int(stops[run]), our)


def test_windows_of_many_slices_are_combined_from_a_logarithmic_number_of_nodes() -> None:
    tree = RunTree(*sliding(3_600, 1, 7_200))
    *_, owners = tree._nodes
    assert np.bincount(owners).max() <= 2 * math.log2(3_600)
    assert sum(len(level.numbers) for level in tree._levels) <= 2 * 7_200


SKETCH, MOMENTS, NUMBER = Distinct(pa.int64(), 9), Moments(), Sum(pa.float64())


@pytest.mark.parametrize(
    ("runs", "accumulator", "pays"),
    [
        pytest.param(sliding(16, 16), SKETCH, False, id="no two runs have a row in common"),
        pytest.param(sliding(16, 8), SKETCH, False, id="a row is in two runs"),
        pytest.param(sliding(16, 1), SKETCH, True, id="a row is in many runs"),
        pytest.param(sliding(16, 1), MOMENTS, False, id="combining two states is cheap"),
        pytest.param(sliding(200, 1, 400), MOMENTS, True, id="cheap, but very many"),
        pytest.param(sliding(200, 1, 400), NUMBER, False, id="numbers are added row by row"),
    ],
)
def test_nodes_are_made_only_where_they_pay(
    runs: tuple[np.ndarray, np.ndarray], accumulator: Accumulator, pays: bool
) -> None:
    assert RunTree(*runs).pays_for(accumulator) is pays
