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
