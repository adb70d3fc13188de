"""Experts: ways to project a final value from an early one, and the choice of the best at each mark.

All work in the group's unit, its level (the usual size of its finals), so that one group's pairs teach all
groups. Beyond the thesis, which reports the raw early values (3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.early_values import value_accuracy
from transom.estimates.fading_average import FAST, SLOW, moved_toward, newest_weight
from transom.estimates.group_profiles import GroupProfiles
from transom.estimates.marks import MARKS, MarkRuns, nearest


class Expert(IntEnum):
    """The amount that an expert adds to an early value."""

    RAW = 0  # nothing
    PRIOR = 1  # for growing values: the rest if tuples arrive evenly
    ADDED = 2  # the usual increment, in levels: right if the rest is independent of what arrived
    OWN_ADDED = 3  # the same, times the group's usual factor
    RECENT_ADDED = 4  # the increment of the last few windows
    RECENT_LEVEL = 5  # the usual increment, in the group's recent level
    RATIO = 6  # the usual ratio: right where rates drift
    OWN_RATIO = 7
    RECENT_RATIO = 8
    LINE = 9  # the regression of final on early: pulls averages towards history


_RAW, _RATIO = Expert.RAW, Expert.RATIO
EXPERTS = len(Expert)
NEEDS_GROUP = [x for x in Expert if x not in (Expert.RAW, Expert.PRIOR, Expert.RATIO, Expert.RECENT_RATIO)]
# After one test, an expert with more parameters must be better by this much.
HANDICAP = np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5, 0.5])
JUDGED = 1 / 48  # the newest window's weight in an expert's loss
TESTED_WINDOWS = 2.0  # windows of tests before the best expert is used
WILD = 1000.0  # values are clipped here, in levels
WORST_LOSS = 4.0  # of one pair, in levels: an outlier can't decide alone
TIES = 0.1  # weight of the error in levels next to the accuracy, which is 0 for all wild projections


@dataclass(frozen=True)
class ProjectionInput:
    """The early values to project; arrays of equal length."""

    early: Floats  # by numeric item
    slides_left: Floats
    mark: Ints
    at: Ints  # the group's row, -1 for an unknown group
    even_arrival_factor: Floats  # the rest if tuples arrive evenly, as a part of what arrived


@dataclass(frozen=True)
class Experts:
    """The statistics over all groups from which experts project: arrays of marks x numeric items."""

    count: Floats  # windows
    slides_left: Floats  # average
    early: Floats  # averages of early and final, of early squared and of early times final, in levels
    final: Floats
    square: Floats
    cross: Floats
    recent_early: Floats  # of the last few windows
    recent_final: Floats
    tested: Floats  # windows on which experts were tested
    loss: Floats  # average |final - projection|, in levels; experts x marks x items
    error: Floats  # of the chosen expert: average |final - projected|, in levels

    @classmethod
    def empty(cls, items: int) -> Experts:
        none = np.zeros((MARKS, items))
        loss = np.zeros((EXPERTS, MARKS, items))
        return cls(none, none, none, none, none, none, none, none, none, loss, none)

    @cached_property
    def nearest_mark(self) -> Ints:
        """For each mark, the nearest one with pairs."""
        return nearest(self.count.max(axis=1, initial=0))

    @cached_property
    def coefficients(self) -> tuple[Floats, ...]:
        """By mark and item: increment, recent increment, ratio - 1, recent ratio - 1, slope - 1, intercept."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(np.abs(self.early) > 1e-9, self.final / self.early - 1, 0.0)
            recent = np.where(
                np.abs(self.recent_early) > 1e-9, self.recent_final / self.recent_early - 1, 0.0
            )
            spread = np.maximum(self.square - self.early**2, 0.0)
            together = self.cross - self.early * self.final
            ridge = (
                spread * 4 / np.maximum(self.count, 1) + 1e-12
            )  # with few windows the slope is near 1, as in ADDED
            slope = ((together + ridge) / (spread + ridge)).clip(0.0, 3.0)
        made = (
            self.final - self.early,
            self.recent_final - self.recent_early,
            ratio,
            recent,
            slope - 1,
            self.final - slope * self.early,
        )
        return tuple(np.ascontiguousarray(values[self.nearest_mark]) for values in made)

    def best(self, grows: Mask) -> tuple[Ints, Ints]:
        """By mark and item, the best expert, and the best one for unknown groups."""
        key = grows.tobytes()
        if key not in self._chosen:
            self._chosen[key] = self._best(grows)
        return self._chosen[key]

    @cached_property
    def _chosen(self) -> dict[bytes, tuple[Ints, Ints]]:
        return {}

    def _best(self, grows: Mask) -> tuple[Ints, Ints]:
        first = np.where(grows, Expert.ADDED, _RAW)
        handicap = 1 + HANDICAP[:, None, None] / np.maximum(self.tested, 1)
        loss = np.where(self.tested > 0, self.loss * handicap, np.inf)
        without_group = loss.copy()
        without_group[NEEDS_GROUP] = np.inf
        ready, taught = self.tested >= TESTED_WINDOWS, self.count > 0
        best = np.where(ready, loss.argmin(axis=0), np.where(taught, first, Expert.PRIOR))
        free = np.where(ready, without_group.argmin(axis=0), np.where(taught & grows, _RATIO, Expert.PRIOR))
        return best[self.nearest_mark], free[self.nearest_mark]

    def projected(self, given: ProjectionInput, groups: GroupProfiles, grows: Mask) -> Floats:
        """The best expert's projection of each value."""
        best, best_without_group = self.best(grows)
        choice = np.where((given.at >= 0)[:, None], best[given.mark], best_without_group[given.mark])
        projections = ExpertProjections(self, groups, given)
        projected = given.early
        for expert in np.unique(choice).tolist():
            if expert != _RAW:
                projected = np.where(choice == expert, projections.of(expert), projected)
        return np.where(np.isfinite(projected), projected, given.early)

    def with_pairs(
        self,
        runs: MarkRuns,
        windows: int,
        given: ProjectionInput,
        final: Floats,
        level: Floats,
        projections: Floats,
        error: Floats,
    ) -> Experts:
        """The experts after learning from pairs of early and final values.

        `projections` are those that the experts made before they learned from these pairs; `error` is the
        absolute error of the values that were projected.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            x, y = (given.early / level).clip(-WILD, WILD), (final / level).clip(-WILD, WILD)
            loss = (
                1
                - value_accuracy(projections, final)
                + TIES * np.minimum(np.abs(final - projections) / level, WORST_LOSS)
            )
            error = np.minimum(error / level, WORST_LOSS)
        valid = np.isfinite(x) & np.isfinite(y)
        # An expert without a projection for a group counts as the ratio does, neither better nor worse.
        loss = np.where(
            np.isfinite(loss), loss, np.where(np.isfinite(loss[_RATIO]), loss[_RATIO], loss[_RAW])
        )
        columns = np.stack(
            [valid, _wide(given.slides_left, x), x, y, x * x, x * y, np.nan_to_num(error), *loss]
        )
        sums = runs.sums(np.where(valid, columns, 0.0))
        pairs = sums[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1:] / pairs
        fresh = np.where(pairs > 0, float(windows), 0.0)
        slow, fast = newest_weight(self.count, fresh, SLOW), newest_weight(self.count, fresh, FAST)
        tested = np.where(self.count > 0, fresh, 0.0)  # before the first window there is nothing to test
        judged = newest_weight(self.tested, tested, JUDGED)
        return replace(
            self,
            count=self.count + fresh,
            slides_left=moved_toward(self.slides_left, mean[0], slow),
            early=moved_toward(self.early, mean[1], slow),
            final=moved_toward(self.final, mean[2], slow),
            square=moved_toward(self.square, mean[3], slow),
            cross=moved_toward(self.cross, mean[4], slow),
            recent_early=moved_toward(self.recent_early, mean[1], fast),
            recent_final=moved_toward(self.recent_final, mean[2], fast),
            tested=self.tested + tested,
            error=moved_toward(self.error, mean[5], judged),
            loss=moved_toward(self.loss, mean[6:], judged),
        )


@dataclass(frozen=True)
class ExpertProjections:
    """The experts' projections of early values; arrays of values x items, NaN where an expert has none."""

    experts: Experts
    groups: GroupProfiles
    given: ProjectionInput

    def all(self) -> Floats:
        """The projections of all experts: experts x values x items."""
        return np.stack([self.of(expert) for expert in range(EXPERTS)])

    def of(self, expert: int) -> Floats:
        """The projections of one expert."""
        early = self.given.early
        with np.errstate(over="ignore", invalid="ignore"):
            if expert == _RAW:
                return early
            if expert == Expert.PRIOR:
                return early + early * self.given.even_arrival_factor
            return early + self._increment(expert) * self._stretch

    def _increment(self, expert: int) -> Floats:
        """The expected increment after the mark."""
        early, mark = self.given.early, self.given.mark
        increment, recent, ratio, recent_ratio, slope, intercept = self.experts.coefficients
        match expert:
            case Expert.ADDED:
                return self._level * increment[mark]
            case Expert.OWN_ADDED:
                return self._level * increment[mark] * self._of_group(self.groups.own_added)
            case Expert.RECENT_ADDED:
                return self._level * recent[mark]
            case Expert.RECENT_LEVEL:
                return self._of_group(self.groups.recent) * increment[mark]
            case Expert.RATIO:
                return early * ratio[mark]
            case Expert.OWN_RATIO:
                return early * ratio[mark] * self._of_group(self.groups.own_ratio)
            case Expert.RECENT_RATIO:
                return early * recent_ratio[mark]
            case _:
                return early * slope[mark] + self._level * intercept[mark]

    @cached_property
    def _level(self) -> Floats:
        return self._of_group(self.groups.level)

    @cached_property
    def _stretch(self) -> Floats:
        """The factor by which more is expected if more of the window is left than usual at the mark."""
        slides_left, usual = (
            self.given.slides_left[:, None],
            self.experts.slides_left[self.experts.nearest_mark][self.given.mark],
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            part = (slides_left / usual).clip(0.25, 4.0)
        return np.where((slides_left > 0.02) & (usual > 0.02), part, 1.0)

    def _of_group(self, values: Floats) -> Floats:
        if not len(values):
            return np.full(self.given.early.shape, np.nan)
        return np.where((self.given.at >= 0)[:, None], values[self.given.at], np.nan)


def _wide(column: Floats, like: Floats) -> Floats:
    return np.broadcast_to(column[:, None], like.shape)


def even_arrival_factor(slides_left: Floats, range_in_slides: float, grows: Mask) -> Floats:
    """The rest of a growing value, as a part of what arrived, if tuples arrive evenly.

    >>> even_arrival_factor(np.array([0.5]), 3.0, np.array([True, False]))
    array([[0.2, 0. ]])
    """
    inside = (slides_left > 0) & (slides_left < range_in_slides)
    lacking = np.where(inside, slides_left, 0.0) / np.where(inside, range_in_slides - slides_left, 1.0)
    return np.where(grows, lacking[:, None], 0.0)
