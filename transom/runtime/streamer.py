"""When the rows of a recording arrive: the thesis's Streamer, as arithmetic on arrays (section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from transom.durations import parse_duration
from transom.errors import SettingError, near_miss
from transom.windows.ids import Times

DELAYS = ("uniform", "exponential")


@dataclass(frozen=True)
class Streamer:
    """Delivers rows by their times, each delayed at random, or held until a burst.

    A row is `delay` late at most if delays are uniform, and on average if they are exponential. Of every
    `burst_every` the last `burst_for` is a silence: what would arrive in it arrives together at its end.

    >>> times = np.array([0, 5, 12, 19, 25])
    >>> Streamer(burst_every=10, burst_for=4).arrivals(times).tolist()
    [0, 5, 12, 20, 25]
    """

    delay: int = 0
    delays: str = "uniform"
    burst_every: int = 0
    burst_for: int = 0
    seed: int = 0

    @classmethod
    def of(cls, delay: Any = None, delays: str = "uniform", burst: Any = None, seed: int = 0) -> Streamer:
        """A streamer from options as a program or a person writes them.

        >>> Streamer.of("20 seconds", burst=("1 minute", "10 seconds"))
        Streamer(delay=20000000, delays='uniform', burst_every=60000000, burst_for=10000000, seed=0)
        """
        if delays not in DELAYS:
            raise SettingError(f"unknown delays {delays!r}: {' or '.join(DELAYS)}{near_miss(delays, DELAYS)}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise SettingError(f"the seed is a whole number of at least 0, not {seed!r}")
        every, long = 0, 0
        if burst is not None:
            if not isinstance(burst, (tuple, list)) or len(burst) != 2:
                raise SettingError(f"burst is a pair, such as ('1 minute', '10 seconds'), not {burst!r}")
            every, long = _positive("burst", burst[0]), _positive("burst", burst[1])
            if long > every:
                raise SettingError(
                    f"a burst holds rows for {burst[1]}, longer than the {burst[0]} between two"
                )
        return cls(0 if delay is None else _positive("delay", delay), delays, every, long, seed)

    def arrivals(self, times: Times) -> Times:
        """When each row arrives, in the recording's own time; the same for the same seed."""
        arrivals = times
        if self.delay:
            draw = np.random.default_rng(self.seed)
            sizes = draw.random(len(times)) if self.delays == "uniform" else draw.exponential(size=len(times))
            arrivals = times + (sizes * self.delay).astype(np.int64)
        if self.burst_for:
            ends = -(-arrivals // self.burst_every) * self.burst_every
            arrivals = np.where(ends - arrivals < self.burst_for, ends, arrivals)
        return arrivals


def _positive(what: str, value: Any) -> int:
    length = parse_duration(value)
    if length <= 0:
        raise SettingError(f"{what} must be a positive duration, not {value!r}")
    return length
