"""Aggregates of even samples: unbiased, and 95 % intervals that contain the truth 95 % of the time."""

from __future__ import annotations

import numpy as np
import pytest

from transom.promising.key_matches import permuted
from transom.promising.sample_estimates import ESTIMATED_FUNCTIONS, EvenSample, GroupedSample

SEEDS = 2_000


def drawn_sample(
    rng: np.random.Generator, batches: list[np.ndarray], share: float
) -> tuple[EvenSample, np.ndarray]:
    """A sample of each batch without replacement."""
    parts = [rng.permutation(batch)[: max(int(len(batch) * share), 2)] for batch in batches]
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    drawn, total = np.array([len(part) for part in parts]), np.array([len(batch) for batch in batches])
    return EvenSample(numbers, drawn[numbers], total[numbers]), np.concatenate(parts)


def truth(function: str, values: np.ndarray) -> float:
    some = values[values > 1]  # a condition, or a window that cuts the batches
    return float({"count": len, "sum": np.sum, "avg": np.mean, "median": np.median}[function](some))


@pytest.mark.parametrize("function", ESTIMATED_FUNCTIONS)
@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("sizes", [(600,), (300, 500, 200)])
def test_intervals_contain_the_truth_95_times_in_a_hundred(
    function: str, share: float, sizes: tuple[int, ...]
) -> None:
    rng, hits, estimates = np.random.default_rng(11), 0, []
    batches = [rng.gamma(2 + number, 2.0, size) for number, size in enumerate(sizes)]
    exact = truth(function, np.concatenate(batches))
    for _ in range(SEEDS):
        sample, values = drawn_sample(rng, batches, share)
        made = sample.estimate(function, values, values > 1)
        assert made.value is not None and made.low is not None and made.high is not None
        hits += made.low <= exact <= made.high
        estimates.append(made.value)
    assert 0.92 <= hits / SEEDS <= 0.98
    assert np.mean(estimates) == pytest.approx(exact, rel=0.01)


def test_a_complete_sample_is_exact() -> None:
    sample = EvenSample(np.zeros(4, np.int64), np.full(4, 4), np.full(4, 4))
    values, every = np.array([1.0, 2.0, 3.0, 10.0]), np.ones(4, bool)
    assert [sample.estimate(name, values, every).value for name in ESTIMATED_FUNCTIONS] == [4, 16, 4, 2.5]
    total = sample.estimate("sum", values, every)
    assert total.low == total.high == 16


def test_a_sample_of_one_tuple_has_no_bounds() -> None:
    sample = EvenSample(np.zeros(1, np.int64), np.ones(1, np.int64), np.full(1, 7))
    made = sample.estimate("sum", np.array([3.0]), np.ones(1, bool))
    assert (made.value, made.low, made.high) == (21.0, None, None)
    assert sample.estimate("avg", np.array([3.0]), np.zeros(1, bool)).value is None


@pytest.mark.parametrize("function", ESTIMATED_FUNCTIONS)
@pytest.mark.parametrize("group", [0, 2])
def test_intervals_of_a_group_contain_the_truth_95_times_in_a_hundred(function: str, group: int) -> None:
    """The samples are drawn by permutations of lines, as a join draws its pairs; the last group is a tenth."""
    rng, hits, estimates = np.random.default_rng(3), 0, []
    sizes = np.array([900, 1_400])
    values = [rng.gamma(2.0, 2.0, size) for size in sizes.tolist()]
    groups = [rng.choice(3, size, p=[0.6, 0.3, 0.1]) for size in sizes.tolist()]
    whole = np.concatenate([part[kind == group] for part, kind in zip(values, groups, strict=True)])
    exact = float({"count": len, "sum": np.sum, "avg": np.mean, "median": np.median}[function](whole))
    seeds = 500
    for seed in range(seeds):
        places = [
            permuted(np.arange(250), np.full(250, size), 2 * seed + number)
            for number, size in enumerate(sizes.tolist())
        ]
        batch = np.repeat([0, 1], 250)
        drawn = np.concatenate([part[place] for part, place in zip(values, places, strict=True)])
        kinds = np.concatenate([part[place] for part, place in zip(groups, places, strict=True)])
        sample = EvenSample(batch, np.full(500, 250), sizes[batch])
        grouped = GroupedSample(sample, kinds, 3, counts_all=False)
        made = grouped.estimates(function, drawn, np.ones(500, bool)).at(group)
        assert made.value is not None and made.low is not None and made.high is not None
        hits += made.low <= exact <= made.high
        estimates.append(made.value)
    assert 0.92 <= hits / seeds <= 0.98
    assert np.mean(estimates) == pytest.approx(exact, rel=0.02)


def test_the_count_of_a_group_is_an_estimate_even_if_nothing_else_was_drawn() -> None:
    sample = EvenSample(np.zeros(20, np.int64), np.full(20, 20), np.full(20, 400))
    every = np.ones(20, bool)
    made = (
        GroupedSample(sample, np.zeros(20, np.int64), 1, counts_all=False)
        .estimates("count", None, every)
        .at(0)
    )
    assert (made.value, made.high) == (400, 400) and made.low is not None and 300 < made.low < 380
    certain = sample.estimate("count", None, every)
    assert certain.low == certain.high == 400


def test_a_permutation_of_a_line_has_each_place_once_and_no_pattern() -> None:
    for length in (1, 2, 3, 17, 256, 1_000):
        places = permuted(np.arange(length), np.full(length, length), seed=9)
        assert sorted(places.tolist()) == list(range(length))
    places = permuted(np.arange(1_000), np.full(1_000, 1_000), seed=9)
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.1
    assert abs(np.corrcoef(places, np.arange(1_000))[0, 1]) < 0.1
