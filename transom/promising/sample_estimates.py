"""Aggregates of an even sample: values for all tuples, with 95 % confidence intervals (Cochran, 1977).

A budget draws `drawn` of the `total` tuples of each batch, without replacement and by a permutation. So every batch is
a stratum, and each tuple that was drawn represents `total / drawn` tuples. A batch that is partly outside of the
window, or whose tuples do not all meet the conditions, is a domain of its stratum: other tuples count as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask

CONFIDENCE = 0.95
ESTIMATED_FUNCTIONS = ("count", "sum", "avg", "median")


@dataclass(frozen=True)
class SampleEstimate:
    """An estimated value and its bounds; None over no tuples, or if the sample is too small for bounds."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Strata:
    """The batches that a sample is drawn from, in order, and how many of how many tuples each drew."""

    batch_id: Ints
    drawn: Ints
    total: Ints


@dataclass(frozen=True)
class EvenSample:
    """The drawn tuples that are in the window: the batch of each, and how many of how many that batch drew.

    A domain of a sample has some of its tuples, and knows the `whole` sample's strata. How many tuples of its kind
    there are is an estimate, even if all that were drawn are of its kind.
    """

    batch_id: Ints
    drawn: Ints
    total: Ints
    whole: Strata | None = None

    def domain(self, rows: Ints) -> EvenSample:
        """The part of a sample whose tuples are of one kind, such as those of a group."""
        return EvenSample(self.batch_id[rows], self.drawn[rows], self.total[rows], self.strata)

    @cached_property
    def strata(self) -> Strata:
        """The batches of the whole sample."""
        if self.whole is not None:
            return self.whole
        batch_id, first = np.unique(self.batch_id, return_index=True)
        return Strata(batch_id, self.drawn[first], self.total[first])

    def within_window(self, cut: Mapping[int, int]) -> EvenSample:
        """The sample, given how many tuples of the batches that are cut by the window's start are in the window.

        The drawn tuples in the window are an even sample of these. If none was drawn, those of the oldest batch in the
        sample represent them: the strata are collapsed.
        """
        drawn, total = self.drawn.copy(), self.total.copy()
        for batch_id, count in cut.items():
            here = self.batch_id == batch_id
            if here.any():
                drawn[here], total[here] = here.sum(), count
            else:
                total[self.batch_id == self.batch_id.min()] += count
        return EvenSample(self.batch_id, drawn, total)

    @property
    def is_complete(self) -> bool:
        """Whether every tuple was drawn."""
        return bool((self.strata.drawn >= self.strata.total).all())

    @property
    def weights(self) -> Floats:
        """How many tuples each drawn one represents."""
        return np.maximum(self.total / np.maximum(self.drawn, 1), 1.0)

    def count(self, chosen: Mask) -> SampleEstimate:
        """The number of the tuples that a mask chooses.

        Its bounds are Wilson's: an interval around an estimated share near 0 or 1 is not symmetric.
        """
        made = self._total(chosen.astype(np.float64))
        error = self._error(chosen.astype(np.float64))
        whole = float(self.strata.total.sum())
        if error == 0 and self.whole is not None:
            return self._count_of_whole_strata(made.value or 0.0, chosen)
        if error == 0 and made.value is not None:  # all tuples of the batches were counted
            counted = float(round(made.value))
            return SampleEstimate(counted, counted, counted)
        if not made.value or not error or not 0 < made.value < whole:
            return made
        share, z = made.value / whole, self._quantile
        size = share * (1 - share) / (error / whole) ** 2  # as large as a simple sample with this error
        middle = share + z**2 / (2 * size)
        away = z * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
        low, high = ((middle + side * away) / (1 + z**2 / size) * whole for side in (-1, 1))
        return SampleEstimate(made.value, max(low, float(chosen.sum())), high)

    def _count_of_whole_strata(self, value: float, chosen: Mask) -> SampleEstimate:
        """The number of the tuples of a kind, if each batch drew either nothing else or nothing of it.

        Other tuples may not have been drawn: Wilson's bound for each batch.
        """
        strata = self.strata
        is_full = np.isin(strata.batch_id, self.batch_id[chosen])
        unsure = np.where(strata.drawn < strata.total, self._quantile**2, 0)
        doubt = strata.total * unsure / (strata.drawn + unsure)
        low = max(value - float(doubt[is_full].sum()), float(chosen.sum()))
        return SampleEstimate(float(round(value)), low, value + float(doubt[~is_full].sum()))

    def sum(self, values: Floats, chosen: Mask) -> SampleEstimate:
        """The sum of the values that a mask chooses."""
        return self._total(np.where(chosen, values, 0.0)) if chosen.any() else SampleEstimate(None)

    def avg(self, values: Floats, chosen: Mask) -> SampleEstimate:
        """The mean of the values that a mask chooses: a ratio of two estimated totals."""
        if not chosen.any():
            return SampleEstimate(None)
        weights = self.weights * chosen
        mean = float((weights * np.where(chosen, values, 0.0)).sum() / weights.sum())
        error = self._error(np.where(chosen, values - mean, 0.0))
        if error is None:
            return SampleEstimate(mean)
        # The mean is of the chosen tuples, which may be few: the deviations from it have one degree of freedom less.
        size = int(chosen.sum())
        error *= math.sqrt(size / max(size - 1, 1)) / float(weights.sum())
        return self._bounded(mean, error, self._quantile_of(size))

    def median(self, values: Floats, chosen: Mask) -> SampleEstimate:
        """The median of the values that a mask chooses; its bounds are quantiles (Woodruff, 1952)."""
        if not chosen.any():
            return SampleEstimate(None)
        weights = self.weights[chosen]
        order = np.argsort(values[chosen], kind="stable")
        ordered, weights = values[chosen][order], weights[order]
        # Half of a tuple's weight is below its own value: with equal weights, this is the usual median.
        ranks = (np.cumsum(weights) - weights / 2) / weights.sum()
        median = float(np.interp(0.5, ranks, ordered))
        below = np.where(chosen, (values <= median) - 0.5, 0.0)
        error = self._error(below)
        if error is None:
            return SampleEstimate(median)
        away = self._quantile * error / float(weights.sum())
        low, high = np.interp([0.5 - away, 0.5 + away], ranks, ordered).tolist()
        return SampleEstimate(median, low, high)

    def _total(self, amounts: Floats) -> SampleEstimate:
        return self._bounded(float((self.weights * amounts).sum()), self._error(amounts))

    def _bounded(self, value: float, error: float | None, quantile: float | None = None) -> SampleEstimate:
        if error is None or not math.isfinite(error):
            return SampleEstimate(value)
        away = (self._quantile if quantile is None else quantile) * error
        return SampleEstimate(value, value - away, value + away)

    def _error(self, amounts: Floats) -> float | None:
        """The standard error of the total of some amounts; None if no batch drew two tuples of an incomplete draw."""
        strata = self.strata
        stratum, size = np.searchsorted(strata.batch_id, self.batch_id), len(strata.batch_id)
        drawn, total = strata.drawn.astype(np.float64), strata.total.astype(np.float64)
        sums, squares = (np.bincount(stratum, numbers, size) for numbers in (amounts, amounts**2))
        spread = np.maximum(squares - sums**2 / drawn, 0)
        known = drawn > 1
        if not known.any():
            return 0.0 if self.is_complete else None
        pooled = spread[known].sum() / (drawn[known] - 1).sum()
        variance = np.where(known, spread / np.maximum(drawn - 1, 1), pooled)
        return math.sqrt(float((total**2 * np.clip(1 - drawn / total, 0, 1) * variance / drawn).sum()))

    @property
    def _quantile(self) -> float:
        return student_quantile((1 + CONFIDENCE) / 2, int((self.strata.drawn - 1).sum()))

    def _quantile_of(self, size: int) -> float:
        """The quantile for a mean of some of the drawn tuples."""
        freedom = min(int((self.strata.drawn - 1).sum()), size - 1)
        return student_quantile((1 + CONFIDENCE) / 2, freedom)

    def estimate(self, function: str, values: Floats | None, chosen: Mask) -> SampleEstimate:
        """The estimate of an aggregate function; without values, of the number of tuples."""
        if values is None or function == "count":
            return self.count(chosen)
        estimates: dict[str, Callable[[Floats, Mask], SampleEstimate]] = {
            "sum": self.sum,
            "avg": self.avg,
            "median": self.median,
        }
        return estimates[function](values, chosen)


def student_quantile(share: float, freedom: int) -> float:
    """A quantile of Student's distribution, by its expansion around the normal one.

    >>> round(student_quantile(0.975, 10), 2), round(student_quantile(0.975, 1000), 2)
    (2.23, 1.96)
    """
    z, n = NormalDist().inv_cdf(share), max(freedom, 1)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
