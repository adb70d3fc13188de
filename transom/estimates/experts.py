"""Experts: ways to tell a final value from an early one, and which of them to believe at which mark.

All speak in the group's own unit, its level (the usual size of its finals), so that what is learned of one
group helps the others. Beyond the thesis, which reports what has arrived (3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transom.estimates.groups import FAST, SLOW, Groups, step, toward
from transom.estimates.marks import MARKS, Runs, nearest
from transom.estimates.sight import Flags, Floats, Ints, accuracy

RAW, PRIOR, ADDED, OWN_ADDED, RECENT_ADDED, RECENT_LEVEL, RATIO, OWN_RATIO, RECENT_RATIO, LINE = range(10)
EXPERTS = 10
NEEDS_GROUP = np.array([OWN_ADDED, OWN_RATIO, ADDED, RECENT_ADDED, RECENT_LEVEL, LINE])
# An expert with more parameters has to be better by this much, while it has been tested once.
HANDICAP = np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5, 0.5])
JUDGED = 1 / 48  # how fast old errors are forgotten
TESTS = 2.0  # windows that experts are tested on before the best is believed
WORST_LOSS = 4.0  # of one pair, in levels: a wild one can't decide alone


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
        return cls(*([none] * 9), np.zeros((EXPERTS, MARKS, items)), none)

    @cached_property
    def near(self) -> Ints:
        """For each mark, the one that it is judged by."""
        return nearest(self.count.max(axis=1, initial=0))

    @cached_property
    def coefficients(self) -> tuple[Floats, ...]:
        """By mark and item: increment, ratio - 1, both of the last few, and slope - 1 and intercept of the line."""
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

    def told(
        self, early: Floats, left: Floats, mark: Ints, groups: Groups, at: Ints, prior: Floats
    ) -> Floats:
        """What every expert says of some early values: experts x values x items; NaN where one can't tell."""
        increment, recent, ratio, recent_ratio, slope, intercept = (c[mark] for c in self.coefficients)
        found = np.empty((EXPERTS, *early.shape))
        known = at >= 0
        level, latest, own_added, own_ratio = (
            _taken(values, at, known)
            for values in (groups.level, groups.recent, groups.own_added, groups.own_ratio)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            found[RAW] = 0.0
            found[PRIOR] = early * prior
            found[ADDED] = level * increment
            found[OWN_ADDED] = found[ADDED] * own_added
            found[RECENT_ADDED] = level * recent
            found[RECENT_LEVEL] = latest * increment
            found[RATIO] = early * ratio
            found[OWN_RATIO] = found[RATIO] * own_ratio
            found[RECENT_RATIO] = early * recent_ratio
            found[LINE] = early * slope + level * intercept
            found[ADDED:] *= self._stretch(left, mark)
            found += early
        return found

    def best(self, grows: Flags) -> tuple[Ints, Ints]:
        """By mark and item, the expert to believe, and the one for groups that are unknown."""
        first = np.where(grows, ADDED, RAW)
        handicap = 1 + HANDICAP[:, None, None] / np.maximum(self.tested, 1)
        loss = np.where(self.tested > 0, self.loss * handicap, np.inf)
        alone = loss.copy()
        alone[NEEDS_GROUP] = np.inf
        ready, learned = self.tested >= TESTS, self.count > 0
        best = np.where(ready, loss.argmin(axis=0), np.where(learned, first, PRIOR))
        free = np.where(ready, alone.argmin(axis=0), np.where(learned & grows, RATIO, PRIOR))
        return best[self.near], free[self.near]

    @cached_property
    def _growing(self) -> dict[bytes, tuple[Ints, Ints]]:
        return {}

    def projected(
        self, early: Floats, left: Floats, mark: Ints, groups: Groups, at: Ints, prior: Floats, grows: Flags
    ) -> Floats:
        """What the best expert says of each value."""
        told = self.told(early, left, mark, groups, at, prior)
        if (made := self._growing.get(grows.tobytes())) is None:
            made = self._growing[grows.tobytes()] = self.best(grows)
        best, free = made
        choice = np.where((at >= 0)[:, None], best[mark], free[mark])
        found = np.take_along_axis(told, choice[None], axis=0)[0]
        return np.where(np.isfinite(found), found, early)

    def learned(
        self,
        runs: Runs,
        windows: int,
        early: Floats,
        final: Floats,
        left: Floats,
        level: Floats,
        told: Floats,
        projected: Floats,
    ) -> Experts:
        """With pairs of early and final; `told` is what the experts say of them without having seen them."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            x, y = early / level, final / level
            loss = 1 - accuracy(told, final) + 0.1*np.minimum(np.abs(final - told) / level, WORST_LOSS)
            error = np.minimum(np.abs(final - projected) / level, WORST_LOSS)
        valid = np.isfinite(x) & np.isfinite(y)
        # An expert that can't tell yet of a group is not to be better or worse than the rest for it.
        loss = np.where(np.isfinite(loss), loss, np.where(np.isfinite(loss[RATIO]), loss[RATIO], loss[RAW]))
        columns = np.stack([valid, _wide(left, x), x, y, x * x, x * y, np.nan_to_num(error), *loss])
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

    def _stretch(self, left: Floats, mark: Ints) -> Floats:
        """More is to come if more is left than was on average at the mark."""
        usual = self.left[self.near][mark]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = (left[:, None] / usual).clip(0.25, 4.0)
        return np.where((left[:, None] > 0.02) & (usual > 0.02), part, 1.0)


def _taken(values: Floats, at: Ints, known: Flags) -> Floats:
    if not len(values):
        return np.full((len(at), values.shape[1]), np.nan)
    return np.where(known[:, None], values[at], np.nan)


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
