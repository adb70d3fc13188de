"""The streams of the experiments are what the thesis says, and the same from the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproduce.prodding import data
from reproduce.prodding.data import SECOND
from transom.errors import SettingError


def test_clumped_tuples_share_whole_seconds_nineteen_times_in_twenty() -> None:
    times = data.clumped(np.random.default_rng(1), 2000)
    assert not (times % SECOND).any() and times.max() < 2000 * SECOND
    assert 0.94 < np.mean(np.diff(times) == 0) < 0.96
    assert 540 < len(times) / 2000 * 30 < 660


def test_poisson_tuples_have_the_same_rate() -> None:
    times = data.poisson(np.random.default_rng(1), 2000)
    assert 580 < len(times) / 2000 * 30 < 620 and (np.diff(times) >= 0).all()


def test_values_are_distributed_as_named() -> None:
    draw = np.random.default_rng(1)
    uniform = data.VALUES["uniform"](draw, 10_000)
    assert uniform.min() >= 0 and uniform.max() <= 999
    assert abs(data.VALUES["normal_400"](draw, 10_000).std() - 400) < 20


def test_the_seed_decides() -> None:
    first, again, other = (data.wireless(2000, seed) for seed in (1, 1, 2))
    assert first.rows.equals(again.rows) and not first.rows.equals(other.rows)


def test_bursts_are_more_than_an_expensive_operator_can_take() -> None:
    served = data.wireless(14_000, 1).served(1 / 300)
    waits = served.arrivals - served.times
    assert waits.min() >= SECOND // 300 - 1
    assert np.median(waits) < SECOND < waits.max()


#   an operator of 10 for each:   arrivals  0 1 2          50
#                                 done        10 20 30        60
def test_an_expensive_operator_takes_one_after_the_other() -> None:
    stream = data.recording(np.array([0, 1, 2, 50], np.int64))
    assert stream.served(10 / SECOND).arrivals.tolist() == [10, 20, 30, 60]


def test_flights_arrive_when_they_leave() -> None:
    stream = data.departures(2)
    assert (stream.arrivals[1:] >= stream.arrivals[:-1]).all()
    assert (stream.arrivals != stream.times).mean() > 0.5


def test_a_recording_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no recording"):
        data.freeway(tmp_path)
