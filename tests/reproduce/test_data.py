"""The streams of the experiments have the thesis's properties; the same seed gives the same stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproduce.prodding import data
from reproduce.prodding.data import SECOND
from transom.errors import SettingError


def test_nineteen_of_twenty_clumped_tuples_have_the_second_of_the_tuple_before() -> None:
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


def test_the_stream_depends_on_the_seed() -> None:
    first, again, other = (data.wireless(2000, seed) for seed in (1, 1, 2))
    assert first.rows.equals(again.rows) and not first.rows.equals(other.rows)


def test_bursts_exceed_the_rate_of_the_expensive_operator() -> None:
    served = data.wireless(14_000, 1).served(1 / 300)
    waits = served.arrivals - served.times
    assert waits.min() >= SECOND // 300 - 1
    assert np.median(waits) < SECOND < waits.max()


#   an operator of 10 per row:    arrivals  0 1 2          50
#                                 done        10 20 30        60
def test_an_expensive_operator_processes_rows_one_after_the_other() -> None:
    stream = data.recording(np.array([0, 1, 2, 50], np.int64))
    assert stream.served(10 / SECOND).arrivals.tolist() == [10, 20, 30, 60]


def test_a_flight_arrives_in_the_stream_when_it_departs() -> None:
    stream = data.departures(2)
    assert (stream.arrivals[1:] >= stream.arrivals[:-1]).all()
    assert (stream.arrivals != stream.times).mean() > 0.5


def test_a_missing_recording_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no recording"):
        data.freeway(tmp_path)
