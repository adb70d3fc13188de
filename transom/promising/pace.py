"""How long probes take, so that a budget of time becomes a number of probes when a batch begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

PACE_BATCHES = 8  # the last batches from which the pace is determined
FIRST_PROBES = 100_000  # of a budget of time, while no pace is known
LEAST_PROBES = 1_024  # however short the time is
LEAST_TIME = 0.1  # the part of a budget that is left for probes, however long insertion and planning take


@dataclass
class Pace:
    """The cost of a batch as a fixed part and a part for each probe.

    `fixed` are the seconds to insert tuples and to plan, which a batch takes whatever its budget. If they counted
    as time for probes, a smaller budget would make probes look slower, and the next budget smaller still.

    >>> pace = Pace()
    >>> for probes in (1_000, 10_000):
    ...     pace.note(probes, seconds=probes / 1e6, fixed=0.05)
    >>> pace.probes(200_000)
    150000
    """

    probed: list[tuple[int, float]] = field(default_factory=list)
    fixed: float = 0.0

    def note(self, probes: int, seconds: float, fixed: float) -> None:
        """Record a batch: its probes, the seconds that they took, and the seconds of everything else."""
        if probes:
            self.probed = [*self.probed, (probes, seconds)][-PACE_BATCHES:]
        if fixed:
            self.fixed = (self.fixed + fixed) / 2 if self.fixed else fixed

    def probes(self, micros: int) -> int:
        """How many probes fit a budget of time after its fixed part."""
        return self._within(max(micros / 1e6 - self.fixed, micros / 1e6 * LEAST_TIME))

    def whole(self, micros: int) -> int:
        """How many probes would fit a budget of time without its fixed part."""
        return self._within(micros / 1e6)

    def _within(self, left: float) -> int:
        seconds = sum(seconds for _, seconds in self.probed)
        if seconds <= 0:
            return FIRST_PROBES
        # All probes by all seconds: batches with many probes show the pace, small ones mostly their overhead.
        return max(LEAST_PROBES, round(sum(probes for probes, _ in self.probed) / seconds * left))

    @classmethod
    def of(cls, probed: Sequence[tuple[int, float]] = (), fixed: float = 0.0) -> Pace:
        """The pace of a checkpoint."""
        return cls([(probes, seconds) for probes, seconds in probed], fixed)
