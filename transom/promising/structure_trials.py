"""What each structure of a summary has produced in the running engine: the judge of the structure that was chosen.

A trial on a sample predicts which structure is best, with constants for what it can't measure. The engine then runs
that structure. If it produces less per second than the one before did, the engine returns to that one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from transom.promising.structure_choice import BETTER

MEASURED_BATCHES = 4  # a structure that was used for fewer batches is not judged
MEMORY = 1_000  # batches after which a structure that is not used may be tried again


@dataclass
class Period:
    """The batches in which a summary had a structure: how many, what they produced and how long they took."""

    batches: int = 0
    produced: int = 0
    seconds: float = 0.0
    last: int = 0

    @property
    def rate(self) -> float:
        """The output per second."""
        return self.produced / self.seconds if self.seconds else 0.0


@dataclass
class MeasuredStructures:
    """The last period of each structure of a summary; what an engine measures is not kept over a restart.

    >>> measured = MeasuredStructures()
    >>> for batch_id in range(8):
    ...     measured.note("adjusting" if batch_id < 4 else "none", batch_id, 1000 if batch_id < 4 else 100, 0.1)
    >>> measured.judged("none", "none", 8)
    'adjusting'
    """

    periods: dict[str, Period] = field(default_factory=dict)
    present: str | None = None

    def note(self, structure: str, batch_id: int, produced: int, seconds: float) -> None:
        """Record a batch; a structure that the summary has again starts a new period."""
        if structure != self.present:
            self.present, self.periods[structure] = structure, Period()
        period = self.periods[structure]
        period.batches, period.last = period.batches + 1, batch_id
        period.produced, period.seconds = period.produced + produced, period.seconds + seconds

    def judged(self, present: str, candidate: str, batch_id: int) -> str:
        """The structure to use: the candidate of a trial, unless what was measured says otherwise.

        The present structure is measured first, so that there is something to compare with. The candidate is used if
        it was not measured yet. A measured structure replaces the present one only if it produced over 5 % more per
        second.
        """
        if present not in self.periods:  # nothing is measured
            return candidate
        rates = {
            structure: period.rate
            for structure, period in self.periods.items()
            if period.batches >= MEASURED_BATCHES and batch_id - period.last <= MEMORY
        }
        if present not in rates:
            return present
        if candidate not in rates:
            return candidate
        best = max(rates, key=lambda structure: rates[structure])
        return best if rates[best] > BETTER * rates[present] else present
