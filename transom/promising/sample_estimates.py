"""Aggregates of an even sample: values for all tuples, with 95 % confidence intervals (Cochran, 1977).

A budget draws `drawn` of the `total` tuples of each batch, without replacement and by a permutation. So every batch is
a stratum, and each tuple that was drawn represents `total / drawn` tuples. A batch that is partly outside of the
window, or whose tuples do not all meet the conditions, is a domain of its stratum: other tuples count as zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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
class GroupEstimates:
    """An estimate for each group; NaN where a `SampleEstimate` has None."""

    value: Floats
    low: Floats
    high: Floats

    def at(self, group: int) -> SampleEstimate:
        """The estimate of one group."""
        numbers = (column[group] for column in (self.value, self.low, self.high))
        return SampleEstimate(*(None if np.isnan(number) else float(number) for number in numbers))


@dataclass(frozen=True)
class EvenSample:
    """The drawn tuples that are in the window: the batch of each, and how many of how many that batch drew."""

    batch_id: Ints
    drawn: Ints
    total: Ints

    @cached_property
    def strata(self) -> Strata:
        """The batches of the sample."""
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

    @cached_property
    def weights(self) -> Floats:
        """How many tuples each drawn one represents."""
        return np.maximum(self.total / np.maximum(self.drawn, 1), 1.0)

    def estimate(self, function: str, values: Floats | None, chosen: Mask) -> SampleEstimate:
        """The estimate of an aggregate function; without values, of the number of tuples."""
        alone = GroupedSample(self, np.zeros(len(self.batch_id), np.int64), 1)
        return alone.estimates(function, values, chosen).at(0)


@dataclass(frozen=True)
class GroupedSample:
    """A sample, and the group of each of its tuples.

    A group is a domain of the sample. How many tuples of it there are is an estimate, even if all that were drawn are
    of it; `counts_all` says that there is one group, which has all tuples that could be drawn.
    """

    sample: EvenSample
    codes: Ints
    size: int
    counts_all: bool = True

    def estimates(self, function: str, values: Floats | None, chosen: Mask) -> GroupEstimates:
        """The estimates of an aggregate function for each group; without values, of the number of tuples."""
        if values is None or function == "count":
            return self._counts(chosen)
        estimates: dict[str, Callable[[Floats, Mask], GroupEstimates]] = {
            "sum": self._sums,
            "avg": self._means,
            "median": self._medians,
        }
        return estimates[function](values, chosen)

    def _counts(self, chosen: Mask) -> GroupEstimates:
        """The number of the tuples that a mask chooses.

        Its bounds are Wilson's: an interval around an estimated share near 0 or 1 is not symmetric.
        """
        amounts = chosen.astype(np.float64)
        counted, errors = self._sum(amounts), self._errors(amounts)
        made = _bounded(self._sum(self.sample.weights * amounts), self._quantile * errors)
        value = made.value
        strata = self.sample.strata
        whole = float(strata.total.sum())
        value, low, high = value.copy(), made.low.copy(), made.high.copy()
        inner = np.flatnonzero((errors > 0) & (value > 0) & (value < whole))
        share, z = value[inner] / whole, self._quantile
        size = (
            share * (1 - share) / (errors[inner] / whole) ** 2
        )  # as large as a simple sample with this error
        middle = share + z**2 / (2 * size)
        away = z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
        low[inner] = np.maximum((middle - away) / (1 + z**2 / size) * whole, counted[inner])
        high[inner] = (middle + away) / (1 + z**2 / size) * whole
        certain = np.flatnonzero(errors == 0)  # each batch drew either nothing else or nothing of the group
        value[certain] = np.round(value[certain])
        low[certain] = high[certain] = value[certain]
        if not self.counts_all:  # others may not have been drawn: Wilson's bound for each batch
            unsure = np.where(strata.drawn < strata.total, z**2, 0)
            doubt = strata.total * unsure / (strata.drawn + unsure)
            cell, place = self._distinct_cells
            cells = cell if chosen.all() else cell[np.bincount(place[chosen], minlength=len(cell)) > 0]
            of_group = np.bincount(cells // len(doubt), doubt[cells % len(doubt)], self.size)
            low[certain] = np.maximum(value - of_group, counted)[certain]
            high[certain] = (value + doubt.sum() - of_group)[certain]
        return GroupEstimates(value, low, high)

    def _sums(self, values: Floats, chosen: Mask) -> GroupEstimates:
        """The sum of the values that a mask chooses."""
        return self._where_any(chosen, self._totals(np.where(chosen, values, 0.0)))

    def _means(self, values: Floats, chosen: Mask) -> GroupEstimates:
        """The mean of the values that a mask chooses: a ratio of two estimated totals."""
        weights = self.sample.weights * chosen
        represented = np.maximum(self._sum(weights), 1.0)
        means = self._sum(weights * np.where(chosen, values, 0.0)) / represented
        errors = self._errors(np.where(chosen, values - means[self.codes], 0.0))
        # The mean is of the chosen tuples, which may be few: the deviations from it have one degree of freedom less.
        sizes = self._sum(chosen.astype(np.float64))
        errors = errors * np.sqrt(sizes / np.maximum(sizes - 1, 1)) / represented
        freedom = np.minimum(float((self.sample.strata.drawn - 1).sum()), sizes - 1)
        away = student_quantiles((1 + CONFIDENCE) / 2, freedom) * errors
        return self._where_any(chosen, _bounded(means, away))

    def _medians(self, values: Floats, chosen: Mask) -> GroupEstimates:
        """The median of the values that a mask chooses; its bounds are quantiles (Woodruff, 1952)."""
        order = np.flatnonzero(chosen)
        order = order[np.lexsort((values[order], self.codes[order]))]
        bounds = np.searchsorted(self.codes[order], np.arange(self.size + 1))
        parts = [order[start:stop] for start, stop in pairwise(bounds.tolist())]
        ranks = [self._ranks(part) for part in parts]
        medians = np.array(
            [
                np.interp(0.5, rank, values[part]) if len(part) else np.nan
                for rank, part in zip(ranks, parts, strict=True)
            ]
        )
        below = np.where(chosen, (values <= medians[self.codes]) - 0.5, 0.0)
        away = self._quantile * self._errors(below) / np.maximum(self._sum(self.sample.weights * chosen), 1.0)
        low, high = medians.copy(), medians.copy()
        for group, (rank, part) in enumerate(zip(ranks, parts, strict=True)):
            if len(part):
                ends = [0.5 - away[group], 0.5 + away[group]]
                low[group], high[group] = np.interp(ends, rank, values[part])
        is_unknown = ~np.isfinite(away)
        low[is_unknown] = high[is_unknown] = np.nan
        return self._where_any(chosen, GroupEstimates(medians, low, high))

    def _ranks(self, rows: Ints) -> Floats:
        """The rank of each of some tuples, from 0 to 1.

        Half of a tuple's weight is below its own value: with equal weights, this gives the usual median.
        """
        weights = self.sample.weights[rows]
        return (np.cumsum(weights) - weights / 2) / weights.sum()

    def _totals(self, amounts: Floats) -> GroupEstimates:
        return _bounded(self._sum(self.sample.weights * amounts), self._quantile * self._errors(amounts))

    def _where_any(self, chosen: Mask, made: GroupEstimates) -> GroupEstimates:
        """The estimates of groups with a chosen tuple; others have none."""
        is_empty = np.bincount(self.codes[chosen], minlength=self.size) == 0
        return GroupEstimates(*(np.where(is_empty, np.nan, part) for part in vars(made).values()))

    def _sum(self, amounts: Floats) -> Floats:
        return np.bincount(self.codes, amounts, self.size).astype(np.float64)

    @cached_property
    def _cells(self) -> Ints:
        """The group and the batch of each tuple, as one number."""
        strata = self.sample.strata
        return self.codes * len(strata.batch_id) + np.searchsorted(strata.batch_id, self.sample.batch_id)

    @cached_property
    def _distinct_cells(self) -> tuple[Ints, Ints]:
        """The cells with a tuple, in order, and the place of each tuple's cell among them."""
        cells, most = self._cells, self.size * len(self.sample.strata.batch_id)
        if most > 4 * len(cells) + 1024:
            return np.unique(cells, return_inverse=True)
        occupied = np.bincount(cells, minlength=most) > 0
        return np.flatnonzero(occupied), (np.cumsum(occupied) - 1)[cells]

    def _errors(self, amounts: Floats) -> Floats:
        """The standard error of the total of some amounts; NaN if no batch drew two tuples of an incomplete draw."""
        strata = self.sample.strata
        drawn, total = strata.drawn.astype(np.float64), strata.total.astype(np.float64)
        is_known = drawn > 1
        if not is_known.any():
            return np.full(self.size, 0.0 if self.sample.is_complete else np.nan)
        cell, place = self._distinct_cells
        group, stratum = cell // len(drawn), cell % len(drawn)
        sums, squares = (np.bincount(place, numbers, len(cell)) for numbers in (amounts, amounts**2))
        spread = np.maximum(squares - sums**2 / drawn[stratum], 0)
        factor = total**2 * np.clip(1 - drawn / total, 0, 1) / drawn
        some = np.flatnonzero(is_known[stratum])
        group, stratum, spread = group[some], stratum[some], spread[some]
        variance = np.bincount(group, factor[stratum] * spread / (drawn[stratum] - 1), self.size)
        # A batch that drew one tuple is taken to be like the others.
        pooled = np.bincount(group, spread, self.size) / (drawn[is_known] - 1).sum()
        return np.sqrt(variance + pooled * factor[~is_known].sum())

    @cached_property
    def _quantile(self) -> float:
        return student_quantile((1 + CONFIDENCE) / 2, int((self.sample.strata.drawn - 1).sum()))


def _bounded(value: Floats, away: Floats) -> GroupEstimates:
    """Estimates with bounds that are so far away, where that is known."""
    away = np.where(np.isfinite(away), away, np.nan)
    return GroupEstimates(value, value - away, value + away)


def student_quantile(share: float, freedom: int) -> float:
    """A quantile of Student's distribution, by its expansion around the normal one.

    >>> round(student_quantile(0.975, 10), 2), round(student_quantile(0.975, 1000), 2)
    (2.23, 1.96)
    """
    return float(student_quantiles(share, np.array([freedom], np.float64))[0])


def student_quantiles(share: float, freedom: Floats) -> Floats:
    """The same quantile for several degrees of freedom."""
    z, n = NormalDist().inv_cdf(share), np.maximum(freedom, 1)
    return np.asarray(
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
