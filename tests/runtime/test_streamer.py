"""When the rows of a recording arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transom.errors import SettingError
from transom.runtime.streamer import Streamer

TIMES = np.arange(0, 100_000, 7, dtype=np.int64)


def test_without_delays_rows_arrive_at_their_times() -> None:
    assert Streamer().arrivals(TIMES).tolist() == TIMES.tolist()


def test_uniform_delays_are_up_to_their_limit_and_disorder_the_rows() -> None:
    delays = Streamer(delay=500, seed=3).arrivals(TIMES) - TIMES
    assert delays.min() >= 0 and 490 <= delays.max() < 500
    assert 230 < delays.mean() < 270
    assert (np.diff(delays + TIMES) < 0).any()


def test_exponential_delays_have_their_mean() -> None:
    delays = Streamer(delay=500, delays="exponential", seed=3).arrivals(TIMES) - TIMES
    assert 480 < delays.mean() < 520 and delays.max() > 2000


def test_the_seed_decides() -> None:
    first, again, other = (Streamer(delay=500, seed=seed).arrivals(TIMES) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


#   every 100, for 30:   |----- as they come -----|-- held --|----- as they come ---
#                        0                        70         100
HELD = [
    ("before the silence", 69, 69),
    ("at its beginning, which is open", 70, 70),
    ("in it", 71, 100),
    ("at its end", 100, 100),
    ("after it", 101, 101),
    ("before the epoch", -20, 0),
]


@pytest.mark.parametrize(("time", "arrival"), [c[1:] for c in HELD], ids=[c[0] for c in HELD])
def test_bursts(time: int, arrival: int) -> None:
    assert Streamer(burst_every=100, burst_for=30).arrivals(np.array([time])).tolist() == [arrival]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no time at all", {"delay": "0 seconds"}, "delay must be a positive duration"),
    ("no unit", {"delay": "20"}, "did you mean '20 seconds'"),
    ("an unknown distribution", {"delays": "unifrom"}, "did you mean uniform"),
    ("a burst without a length", {"burst": "1 minute"}, "burst is a pair"),
    ("a burst longer than its period", {"burst": ("1 s", "2 s")}, "longer than the 1 s between two"),
    ("a seed that is no number", {"seed": "x"}, "the seed is a whole number"),
]


@pytest.mark.parametrize(("given", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Streamer.of(**given)
