"""Experts: ways to tell a final value from an early one, and which of them to believe at which mark.

All speak in the group's own unit, its level (the usual size of its finals), so that what is learned of one
group helps the others. Beyond the thesis, which reports what has arrived (3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from transom.estimates.groups import FAST, SLOW, Groups, step, toward
from transom.estimates.marks import MARKS, Runs, nearest
from transom.estimates.sightings import Flags, Floats, Ints, accuracy


class Expert(IntEnum):
    """What is said to come on top of an early value."""

    RAW = 0  # nothing
    PRIOR = 1  # for growing values: what comes if tuples come evenly
    ADDED = 2  # the usual increment, in levels: right where what comes does not depend on what came
    OWN_ADDED = 3  # the same, times what the group usually gets more than that
    RECENT_ADDED = 4  # the increment of the last few windows
    RECENT_LEVEL = 5  # the usual increment of the group's last few levels
    RATIO = 6  # the usual ratio: right where rates drift
    OWN_RATIO = 7
    RECENT_RATIO = 8
    LINE = 9  # the regression of final on early: for averages, a pull towards history


RAW, RATIO = Expert.RAW, Expert.RATIO
EXPERTS = len(Expert)
NEEDS_GROUP = [x for x in Expert if x not in (Expert.RAW, Expert.PRIOR, Expert.RATIO, Expert.RECENT_RATIO)]
# An expert with more parameters has to be better by this much, while it has been tested once.
HANDICAP = np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5, 0.5])
JUDGED = 1 / 48  # how fast old errors are forgotten
TESTS = 2.0  # windows that experts are tested on before the best is believed
WILD = 1000.0  # no value counts for more, in levels
WORST_LOSS = 4.0  # of one pair, in levels: a wild one can't decide alone
TIES = 0.1  # weight of the error in levels beside the accuracy that users see, which is 0 for all wild ones


@dataclass(frozen=True)
class Asked:
    """Early values to be projected; arrays of equal length."""

    early: Floats  # by numeric item
    left: Floats
    mark: Ints
    at: Ints  # the group's row, -1 for a group unknown
    prior: Floats  # what a growing value lacks if tuples come evenly, as a part of what is there


@dataclass(frozen=True)
class Experts:
    """What all groups have in common: arrays of marks x numeric items."""

    count: Floats  # windows learned from
    left: Floats  # average of what was left
    early: Floats  # averages of early and final, of early squared and of early times final, in levels
    final: Floats
    square: Floats
    cross: Floats
    recent_early: Floats  # of the last few windows
    recent_final: Floats
    tested: Floats  # windows that the experts were tested on
    loss: Floats  # of the experts: average |final - told|, in levels; experts x marks x items
    error: Floats  # of what was told to the user or kept: average |final - projected|, in levels

    @classmethod
    def empty(cls, items: int) -> Experts:
        none = np.zeros((MARKS, items))
        loss = np.zeros((EXPERTS, MARKS, items))
        return cls(none, none, none, none, none, none, none, none, none, loss, none)

    @cached_property
    def near(self) -> Ints:
        """For each mark, the one that it is judged by."""
        return nearest(self.count.max(axis=1, initial=0))

    @cached_property
    def coefficients(self) -> tuple[Floats, ...]:
        """By mark and item: increment, that of late, ratio - 1, that of late, slope - 1, intercept."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(np.abs(self.early) > 1e-9, self.final / self.early - 1, 0.0)
            recent = np.where(
                np.abs(self.recent_early) > 1e-9, self.recent_final / self.recent_early - 1, 0.0
            )
            spread = np.maximum(self.square - self.early**2, 0.0)
            together = self.cross - self.early * self.final
            ridge = spread * 4 / np.maximum(self.count, 1) + 1e-12  # few windows: a slope of 1, as ADDED's
            slope = ((together + ridge) / (spread + ridge)).clip(0.0, 3.0)
        made = (
            self.final - self.early,
            self.recent_final - self.recent_early,
            ratio,
            recent,
            slope - 1,
            self.final - slope * self.early,
        )
        return tuple(np.ascontiguousarray(values[self.near]) for values in made)

    def best(self, grows: Flags) -> tuple[Ints, Ints]:
        """By mark and item, the expert to believe, and the one for groups that are unknown."""
        key = grows.tobytes()
        if key not in self._chosen:
            self._chosen[key] = self._best(grows)
        return self._chosen[key]

    @cached_property
    def _chosen(self) -> dict[bytes, tuple[Ints, Ints]]:
        return {}

    def _best(self, grows: Flags) -> tuple[Ints, Ints]:
        first = np.where(grows, Expert.ADDED, RAW)
        handicap = 1 + HANDICAP[:, None, None] / np.maximum(self.tested, 1)
        loss = np.where(self.tested > 0, self.loss * handicap, np.inf)
        alone = loss.copy()
        alone[NEEDS_GROUP] = np.inf
        ready, learned = self.tested >= TESTS, self.count > 0
        best = np.where(ready, loss.argmin(axis=0), np.where(learned, first, Expert.PRIOR))
        free = np.where(ready, alone.argmin(axis=0), np.where(learned & grows, RATIO, Expert.PRIOR))
        return best[self.near], free[self.near]

    def projected(self, asked: Asked, groups: Groups, grows: Flags) -> Floats:
        """What the best expert says of each value."""
        best, free = self.best(grows)
        choice = np.where((asked.at >= 0)[:, None], best[asked.mark], free[asked.mark])
        voices = Voices(self, groups, asked)
        found = asked.early
        for expert in np.unique(choice).tolist():
            if expert != RAW:
                found = np.where(choice == expert, voices.says(expert), found)
        return np.where(np.isfinite(found), found, asked.early)

    def learned(
        self,
        runs: Runs,
        windows: int,
        asked: Asked,
        final: Floats,
        level: Floats,
        told: Floats,
        error: Floats,
    ) -> Experts:
        """With pairs of early and final; `told` is what the experts say of them without having seen them,
        `error` the size of the error of what was projected."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            x, y = (asked.early / level).clip(-WILD, WILD), (final / level).clip(-WILD, WILD)
            loss = 1 - accuracy(told, final) + TIES * np.minimum(np.abs(final - told) / level, WORST_LOSS)
            error = np.minimum(error / level, WORST_LOSS)
        valid = np.isfinite(x) & np.isfinite(y)
        # An expert that can't tell yet of a group is not to be better or worse than the rest for it.
        loss = np.where(np.isfinite(loss), loss, np.where(np.isfinite(loss[RATIO]), loss[RATIO], loss[RAW]))
        columns = np.stack([valid, _wide(asked.left, x), x, y, x * x, x * y, np.nan_to_num(error), *loss])
        sums = runs.sums(np.where(valid, columns, 0.0))
        pairs = sums[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1:] / pairs
        fresh = np.where(pairs > 0, float(windows), 0.0)
        slow, fast = step(self.count, fresh, SLOW), step(self.count, fresh, FAST)
        tested = np.where(self.count > 0, fresh, 0.0)  # before the first window, experts know nothing
        judged = step(self.tested, tested, JUDGED)
        return replace(
            self,
            count=self.count + fresh,
            left=toward(self.left, mean[0], slow),
            early=toward(self.early, mean[1], slow),
            final=toward(self.final, mean[2], slow),
            square=toward(self.square, mean[3], slow),
            cross=toward(self.cross, mean[4], slow),
            recent_early=toward(self.recent_early, mean[1], fast),
            recent_final=toward(self.recent_final, mean[2], fast),
            tested=self.tested + tested,
            error=toward(self.error, mean[5], judged),
            loss=toward(self.loss, mean[6:], judged),
        )


@dataclass(frozen=True)
class Voices:
    """The experts asked about some early values; arrays of values x items, NaN where one can't tell."""

    experts: Experts
    groups: Groups
    asked: Asked

    def all(self) -> Floats:
        """What every expert says: experts x values x items."""
        return np.stack([self.says(expert) for expert in range(EXPERTS)])

    def says(self, expert: int) -> Floats:
        """What one expert says."""
        early = self.asked.early
        with np.errstate(over="ignore", invalid="ignore"):
            if expert == RAW:
                return early
            if expert == Expert.PRIOR:
                return early + early * self.asked.prior
            return early + self._more(expert) * self._stretch

    def _more(self, expert: int) -> Floats:
        """What is still to come at the mark."""
        early, mark = self.asked.early, self.asked.mark
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
        """More is to come if more is left than was on average at the mark."""
        left, usual = self.asked.left[:, None], self.experts.left[self.experts.near][self.asked.mark]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = (left / usual).clip(0.25, 4.0)
        return np.where((left > 0.02) & (usual > 0.02), part, 1.0)

    def _of_group(self, values: Floats) -> Floats:
        if not len(values):
            return np.full(self.asked.early.shape, np.nan)
        return np.where((self.asked.at >= 0)[:, None], values[self.asked.at], np.nan)


def _wide(column: Floats, like: Floats) -> Floats:
    return np.broadcast_to(column[:, None], like.shape)


def prior(left: Floats, range_in_slides: float, grows: Flags) -> Floats:
    """What a growing value lacks of its end, as a part of what is there, if tuples come evenly.

    >>> prior(np.array([0.5]), 3.0, np.array([True, False]))
    array([[0.2, 0. ]])
    """
    inside = (left > 0) & (left < range_in_slides)
    lacking = np.where(inside, left, 0.0) / np.where(inside, range_in_slides - left, 1.0)
    return np.where(grows, lacking[:, None], 0.0)
