"""What became of early decisions: how many were confirmed, withdrawn and missed, and how early they came."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from transom.columns.arrays import Floats, Mask

RECENT = 512  # outcomes that are also scored separately


@dataclass(frozen=True)
class DecisionScore:
    """The outcomes of some early decisions, and of windows that should have been decided."""

    confirmed: int
    withdrawn: int
    missed: int  # finals of which HAVING is true that were not announced
    certain: int  # announced because HAVING could not become false any more
    false_alarm_rate: float  # withdrawn / announced; NaN while there are none
    miss_rate: float  # missed / finals of which HAVING is true
    lead_slides: float  # how long before the window's end confirmed decisions came, on average, in slides
    lead_seconds: float  # how long before the final, by the engine's clock

    @classmethod
    def of(cls, counts: Floats) -> DecisionScore:
        confirmed, withdrawn, missed, certain, slides, seconds = counts.tolist()
        announced, true = confirmed + withdrawn, confirmed + missed
        nan = float("nan")
        return cls(
            int(confirmed),
            int(withdrawn),
            int(missed),
            int(certain),
            withdrawn / announced if announced else nan,
            missed / true if true else nan,
            slides / confirmed if confirmed else nan,
            seconds / confirmed if confirmed else nan,
        )


@dataclass(frozen=True)
class DecisionReport:
    """The early decisions of a query: all that became final, the last of them, and how many are open."""

    confidence: float
    total: DecisionScore
    recent: DecisionScore
    open: int

    def __str__(self) -> str:
        score = self.total
        if not score.confirmed + score.withdrawn + score.missed:
            return f"no window was decided yet; {self.open:,} announced"
        false = "" if np.isnan(score.false_alarm_rate) else f", {score.false_alarm_rate:.1%} false alarms"
        missed = "" if np.isnan(score.miss_rate) else f", {score.miss_rate:.1%} missed"
        lead = "" if np.isnan(score.lead_slides) else f", {score.lead_slides:.2f} slides before the end"
        return f"{score.confirmed + score.withdrawn:,} announced{false}{missed}{lead}"


@dataclass(frozen=True)
class DecisionTotals:
    """Running sums over outcomes, and the last outcomes one by one."""

    total: Floats = field(default_factory=lambda: np.zeros(6))
    recent: Floats = field(default_factory=lambda: np.empty((0, 6)))

    def with_outcomes(
        self,
        is_confirmed: Mask,
        is_withdrawn: Mask,
        is_missed: Mask,
        is_certain: Floats,
        slides: Floats,
        seconds: Floats,
    ) -> DecisionTotals:
        """The totals with more outcomes, one row each; leads count for confirmed decisions."""
        columns = (
            is_confirmed,
            is_withdrawn,
            is_missed,
            is_certain,
            slides * is_confirmed,
            seconds * is_confirmed,
        )
        rows = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
        return replace(
            self, total=self.total + rows.sum(axis=0), recent=np.concatenate([self.recent, rows])[-RECENT:]
        )

    def report(self, confidence: float, open_ones: int) -> DecisionReport:
        """The rates of all outcomes and of the last ones."""
        recent = self.recent.sum(axis=0)
        return DecisionReport(confidence, DecisionScore.of(self.total), DecisionScore.of(recent), open_ones)
