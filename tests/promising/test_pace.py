"""A budget of time holds: batches take about as long as it, and probes are not cut because planning takes long."""

from __future__ import annotations

import numpy as np
import pytest

from transom.promising.pace import FIRST_PROBES, LEAST_PROBES, Pace


@pytest.mark.parametrize("fixed", [0.0, 0.02, 0.1, 0.17])
@pytest.mark.parametrize("probe", [1e-8, 1e-7, 2e-6])
def test_batches_at_three_times_capacity_take_as_long_as_the_budget(fixed: float, probe: float) -> None:
    """200 batches with 20 % noise; each has three times the probes that fit, and an overhead of its own."""
    rng, pace, spent = np.random.default_rng(3), Pace(), []
    capacity = (0.2 - fixed) / probe
    for _ in range(200):
        made = int(min(pace.probes(200_000), 3 * capacity))
        planning, probing = fixed * rng.uniform(0.8, 1.2), (made * probe + 2e-4) * rng.uniform(0.8, 1.2)
        pace.note(made, probing, planning)
        spent.append(planning + probing)
    assert np.mean(spent[10:]) == pytest.approx(0.2, rel=0.2)
    assert np.mean(np.abs(np.array(spent[10:]) - 0.2) <= 0.2 * 0.25) > 0.9


@pytest.mark.parametrize("overhead", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("noise", [0.02, 0.2])
@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_the_overhead_of_probes_is_not_mistaken_for_slow_probes(
    overhead: float, noise: float, slower: float
) -> None:
    """200 batches at three times capacity. Half way, the machine gets slower."""
    rng, pace, spent, output, best = np.random.default_rng(5), Pace(), [], [], []
    for number in range(200):
        factor = 1.0 if number < 100 else slower
        probe, fixed = 4e-7 * factor, 0.02 * factor
        capacity = (0.2 - fixed - overhead * factor) / probe
        if capacity <= 0:
            return
        made = int(min(pace.probes(200_000), 3 * capacity))
        planning = fixed * rng.uniform(1 - noise, 1 + noise)
        probing = (overhead * factor + made * probe) * rng.uniform(1 - noise, 1 + noise)
        pace.note(made, probing, planning)
        spent.append(planning + probing)
        output.append(made)
        best.append(capacity)
    settled = np.r_[10:100, 110:200]
    assert np.mean(np.array(spent)[settled]) == pytest.approx(0.2, rel=0.1)
    assert np.mean(np.abs(np.array(spent)[settled] - 0.2) <= 0.2 * (0.2 + noise / 2)) > 0.9
    assert np.sum(output) >= 0.8 * np.sum(best)


@pytest.mark.parametrize("overhead", [0.03, 0.1])
def test_batches_with_little_to_probe_show_the_overhead(overhead: float) -> None:
    """Every second batch has a tenth of the probes that fit, the others three times as many."""
    rng, pace, spent, output = np.random.default_rng(7), Pace(), [], []
    probe, fixed = 4e-7, 0.02
    capacity = (0.2 - fixed - overhead) / probe
    for number in range(200):
        made = int(min(pace.probes(200_000), (0.1 if number % 2 else 3) * capacity))
        probing = (overhead + made * probe) * rng.uniform(0.95, 1.05)
        pace.note(made, probing, fixed)
        spent.append(fixed + probing)
        output.append(made)
    busy = np.arange(10, 200, 2)
    assert np.abs(np.array(spent)[busy] - 0.2).max() < 0.2 * 0.2
    assert np.mean(np.array(output)[busy]) >= 0.8 * capacity


@pytest.mark.parametrize("factor", [3.0, 8.0])
@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_a_batch_that_stalls_does_not_cut_the_budgets_of_the_next_ones(factor: float, slower: float) -> None:
    """One batch in twenty takes several times as long. Half way, the machine gets slower."""
    rng, pace, spent, output, best = np.random.default_rng(11), Pace(), [], [], []
    stalls = rng.random(200) < 0.05
    for number in range(200):
        speed = 1.0 if number < 100 else slower
        made = pace.probes(200_000)
        times = rng.uniform(0.92, 1.08, 2) * speed * (factor if stalls[number] else 1.0)
        planning, probing = 0.03 * times[0], made * 2e-7 * times[1]
        pace.note(made, probing, planning)
        spent.append(planning + probing)
        output.append(made)
        best.append((0.2 - 0.03 * speed) / (2e-7 * speed))
    settled = np.r_[10:100, 110:200]
    others = settled[~stalls[settled]]
    assert np.mean(np.abs(np.array(spent)[others] / 0.2 - 1) <= 0.2) > 0.95
    assert np.sum(output) >= 0.9 * np.sum(best)


def test_small_batches_do_not_make_probes_look_slow() -> None:
    pace = Pace()
    pace.note(1_000_000, 0.1, 0.05)
    for _ in range(7):
        pace.note(10, 0.001, 0.05)
    assert pace.probes(200_000) > 1_000_000


def test_a_time_shorter_than_insertion_leaves_a_tenth_for_probes() -> None:
    pace = Pace()
    assert pace.probes(200_000) == FIRST_PROBES
    pace.note(1_000_000, 1.0, 5.0)
    assert (pace.probes(200_000), pace.whole(200_000)) == (20_000, 200_000)
    assert pace.probes(10) == LEAST_PROBES
    assert Pace.of(pace.probed, pace.fixed) == pace
