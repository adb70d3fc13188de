from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.promising.streams import shaped
from transom.promising.structure_choice import (
    SUMMARY_STRUCTURES,
    Costs,
    best_structure,
    expected_output,
    trial,
)

COSTS = Costs({"none": 0, "time": 10, "cells": 20, "adjusting": 40}, dict.fromkeys(SUMMARY_STRUCTURES, 1.0))
HITS = {"none": 16.0, "time": 8.0, "cells": 4.0, "adjusting": 3.0}


@pytest.mark.parametrize(
    ("tau", "best", "why"),
    [
        (0, "none", "nothing can be done, and it is the cheapest"),
        (10, "none", "the others spend all on inserting"),
        (25, "time", "(25 - 10) / 8 = 1.9 is above 25 / 16 = 1.6 and (25 - 20) / 4 = 1.3"),
        (60, "cells", "(60 - 20) / 4 = 10 is above (60 - 40) / 3 = 6.7"),
        (1000, "adjusting", "there is time for the finest"),
    ],
)
def test_less_time_per_tuple_gives_a_plainer_structure(tau: float, best: str, why: str) -> None:
    assert best_structure(tau, HITS, costs=COSTS) == best, why


def test_planning_counts_as_a_cost_of_insertion() -> None:
    assert expected_output("cells", 60, 4, COSTS, regions=10) == (60 - 20 - 10) / 4


def test_if_every_structure_finds_everything_the_cheapest_is_best() -> None:
    assert best_structure(10_000, HITS, costs=COSTS, most=3.0) == "none"


@given(
    st.floats(0, 1e6),
    st.tuples(*[st.floats(1, 1000)] * 4),
    st.sampled_from(SUMMARY_STRUCTURES),
    st.floats(0, 20),
)
def test_the_choice_is_at_most_5_percent_worse_than_the_best(
    tau: float, hits: tuple[float, ...], present: str, regions: float
) -> None:
    found = dict(zip(SUMMARY_STRUCTURES, hits, strict=True))
    chosen = best_structure(tau, found, present, COSTS, regions)
    outputs = {one: expected_output(one, tau, found[one], COSTS, regions) for one in SUMMARY_STRUCTURES}
    assert outputs[chosen] >= max(outputs.values()) / 1.05
    if outputs[present] and outputs[present] >= max(outputs.values()) / 1.049:
        assert chosen == present


def _stream(rng: np.random.Generator, rows: int, changing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Zipf values; if changing, they are other ones after every so many tuples."""
    weights = np.arange(1, 301) ** -1.0
    keys = rng.choice(300, rows, p=weights / weights.sum())
    if changing:
        keys = keys + np.arange(rows) // 700 * 1000
    return np.arange(rows), keys.astype(np.uint64)


def test_a_trial_finds_that_cells_save_probes_and_none_needs_one_over_the_selectivity() -> None:
    rng = np.random.default_rng(2)
    times, keys = _stream(rng, 5000, changing=False)
    arriving = np.unique(_stream(rng, 1000, changing=False)[1], return_counts=True)
    found = trial(shaped(granularity=1600, buckets=64), (times, keys), arriving)
    shares = np.bincount(keys.astype(np.int64), minlength=300) / 5000
    selectivity = (shares[arriving[0].astype(np.int64)] * arriving[1]).sum() / 1000
    assert found["none"] == pytest.approx(1 / selectivity, rel=0.1)
    assert found["cells"] < found["time"] < found["none"]
    assert found["adjusting"] < found["time"]


def test_a_trial_prefers_adjusting_zones_when_behaviour_changes() -> None:
    rng = np.random.default_rng(2)
    times, keys = _stream(rng, 2800, changing=True)
    values, counts = np.unique(keys, return_counts=True)
    found = trial(shaped(granularity=3200, buckets=8), (times, keys), (values, counts))
    assert found["adjusting"] < found["cells"]


def test_a_trial_of_values_in_buckets_between_two_numbers() -> None:
    rng = np.random.default_rng(2)
    times, keys = _stream(rng, 2000, changing=False)
    arriving, counts = np.unique(keys, return_counts=True)
    shape = shaped(granularity=1600, buckets=64, between=(0.0, 300.0))
    values = (keys.astype(np.float64), arriving.astype(np.float64))
    found = trial(shape, (times, keys), (arriving, counts), values)
    assert found["cells"] < found["none"]


def test_a_trial_without_matches_or_without_tuples() -> None:
    some = np.arange(10, dtype=np.uint64)
    apart = trial(shaped(), (np.arange(10), some), (some + np.uint64(100), np.ones(10, np.int64)))
    assert set(apart.values()) == {math.inf}
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.uint64))
    assert set(trial(shaped(), nothing, (some, np.ones(10, np.int64))).values()) == {1.0}
