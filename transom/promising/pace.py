"""How long probes take, so that a budget of time becomes a number of probes when a batch begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

PACE_BATCHES = 8  # the batches from which the pace is determined
FORGETTING = 0.8  # the weight of a batch beside that of the next one
ALIKE = 1.25  # batches whose probes differ by less than this factor show the same part of the cost line
LEAST_SLOPE = 0.1  # of a probe's average cost: so much of it at least is not overhead
FIRST_PROBES = 100_000  # of a budget of time, while no pace is known
LEAST_PROBES = 1_024  # however short the time is
STALL = 1.5  # a batch counts as at most so many times as long as expected
LEAST_TIME = 0.1  # the part of a budget that is left for probes, however long insertion and planning take


@dataclass
class Pace:
    """The cost of a batch as a line over its probes: an intercept, and a slope for each probe.

    `fixed` are the seconds to insert tuples and to plan, which a batch takes whatever its budget. Making probes has
    an overhead too, which is the intercept of the line through the batches in `probed`. If these counted as time
    for probes, a smaller budget would make probes look slower, and the next budget smaller still.

    A batch that stalls, because something else uses the machine, says little about the next one. It is recorded as
    `STALL` times as long as expected. If the machine is slower, the next batches show it.

    >>> pace = Pace()
    >>> for probes in (1_000, 10_000):
    ...     pace.note(probes, seconds=0.01 + probes / 1e6, fixed=0.05)
    >>> pace.probes(200_000)
    140000
    """

    probed: list[tuple[int, float]] = field(default_factory=list)
    fixed: float = 0.0

    def note(self, probes: int, seconds: float, fixed: float) -> None:
        """Record a batch: its probes, the seconds that they took, and the seconds of everything else."""
        if probes:
            expected = self._expected(probes)
            seconds = min(seconds, STALL * expected) if expected > 0 else seconds
            self.probed = _retained([*self.probed, (probes, seconds)])
        if fixed:
            self.fixed = (self.fixed + min(fixed, STALL * self.fixed)) / 2 if self.fixed else fixed

    def _expected(self, probes: int) -> float:
        """The seconds that some probes take by the batches so far; 0 while there are too few to tell."""
        if len(self.probed) < 2 or sum(seconds for _, seconds in self.probed) <= 0:
            return 0.0
        intercept, slope = self.line
        return intercept + slope * probes

    def probes(self, micros: int) -> int:
        """How many probes fit a budget of time after its fixed part."""
        return self._within(max(micros / 1e6 - self.fixed, micros / 1e6 * LEAST_TIME))

    def whole(self, micros: int) -> int:
        """How many probes would fit a budget of time without its fixed part."""
        return self._within(micros / 1e6)

    def _within(self, left: float) -> int:
        if sum(seconds for _, seconds in self.probed) <= 0:
            return FIRST_PROBES
        intercept, slope = self.line
        return max(LEAST_PROBES, round((left - intercept) / slope))

    @property
    def line(self) -> tuple[float, float]:
        """The intercept and the slope of the batches' seconds over their probes, by weighted least squares."""
        probes, seconds = np.array(self.probed, np.float64).T
        weights = FORGETTING ** np.arange(len(probes))[::-1]
        x, y = (np.average(numbers, weights=weights) for numbers in (probes, seconds))
        spread = np.average((probes - x) ** 2, weights=weights)
        average = y / x
        if spread < (x * (ALIKE - 1) / 2) ** 2:  # all have about as many probes: noise would make the slope
            slope = average
        else:
            slope = np.average((probes - x) * (seconds - y), weights=weights) / spread
        slope = min(max(slope, average * LEAST_SLOPE), average)
        return float(y - slope * x), float(slope)

    @classmethod
    def of(cls, probed: Sequence[tuple[int, float]] = (), fixed: float = 0.0) -> Pace:
        """The pace of a checkpoint."""
        return cls([(probes, seconds) for probes, seconds in probed], fixed)


def _retained(probed: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The last batches, and older ones with far more or fewer probes, without which a line has no slope.

    An older batch that stalled is not among them: it would make probes look slow for good.
    """
    if len(probed) <= PACE_BATCHES:
        return probed
    least, most = min(probed)[0], max(probed)[0]
    for number, (probes, seconds) in enumerate(probed[:-1]):
        others = [other for other, _ in probed[number + 1 :]]
        is_end = probes * ALIKE < min(others, default=0) or probes > ALIKE * max(others, default=0)
        longest = max(time for _, time in probed[number + 1 :]) * max(1, probes / max(others))
        if not (is_end and probes in (least, most)) or seconds > STALL * longest:
            return probed[:number] + probed[number + 1 :]
    return probed[1:]
