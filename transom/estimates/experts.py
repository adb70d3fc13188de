"""Experts: ways to project a final value from an early one, and the choice of the best at each mark.

All work in the group's unit, its level (the usual size of its finals), so that one group's pairs teach all
groups. Beyond the thesis, which reports the raw early values (3.4). Statistics are of one query or of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.early_values import value_accuracy
from transom.estimates.fading_average import FAST, SLOW, moved_toward, newest_weight
from transom.estimates.group_profiles import GroupProfiles
from transom.estimates.marks import MARKS, MAX_MARK_DISTANCE, MarkRuns, nearest
from transom.estimates.seasons import HourFactors


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
    HOUR_ADDED = 10  # the usual increment at this hour of the week; of items that don't grow, the usual final
    HOUR_RATIO = 11
    HOUR_RECENT = 12  # the usual at this hour, times how much more than usual came lately
    HOUR_LINE = 13  # the regression of final on early and on one of these


_RAW, _RATIO = Expert.RAW, Expert.RATIO
EXPERTS = len(Expert)
WITHOUT_GROUP = (Expert.RAW, Expert.PRIOR, Expert.RATIO, Expert.RECENT_RATIO, Expert.HOUR_RATIO)
NEEDS_GROUP = np.array([expert for expert in Expert if expert not in WITHOUT_GROUP], np.int64)
# After one test, an expert with more parameters must be better by this much.
HANDICAP = np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0])
JUDGED = 1 / 48  # the newest window's weight in an expert's loss
TESTED_WINDOWS = 2.0  # windows of tests before the best expert is used
HOUR_RIDGE = 4.0  # windows
WILD = 1000.0  # values are clipped here, in levels
WORST_LOSS = 4.0  # of one pair, in levels: an outlier can't decide alone
LEAST_ERROR = 0.05  # of the usual error at a mark, as a part of the largest one
TIES = 0.1  # weight of the error in levels next to the accuracy, which is 0 for all wild projections


@dataclass(frozen=True)
class ProjectionInput:
    """The early values to project; arrays of equal length."""

    early: Floats  # by numeric item
    slides_left: Floats
    mark: Ints
    at: Ints  # the group's row, -1 for an unknown group
    grows: Mask  # by numeric item
    even_arrival_factor: Floats  # the rest if tuples arrive evenly, as a part of what arrived
    hour: HourFactors


@dataclass(frozen=True)
class Coefficients:
    """What experts have learned of each value's mark; arrays of values x numeric items."""

    increment: Floats
    recent_increment: Floats
    ratio: Floats  # less 1, as are the next two
    recent_ratio: Floats
    slope: Floats
    intercept: Floats


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
    hour_square: Floats  # averages of `usual_of_line` squared, times early, and times final
    hour_early: Floats
    hour_final: Floats
    tested: Floats  # windows on which experts were tested
    loss: Floats  # average |final - projection|, in levels; experts x marks x items
    error: Floats  # of the chosen expert: average |final - projected|, in levels

    @classmethod
    def empty(cls, items: int) -> Experts:
        none = np.zeros((MARKS, items))
        loss = np.zeros((EXPERTS, MARKS, items))
        return cls(**dict.fromkeys(_BY_MARK, none), loss=loss)

    @classmethod
    def of_stored(cls, arrays: Mapping[str, Any]) -> Experts:
        """The experts of a checkpoint; experts that an older version did not have begin with the worst loss."""
        stored = arrays["loss"]
        empty = cls.empty(stored.shape[2])
        loss = np.full(empty.loss.shape, 1 + TIES * WORST_LOSS)
        loss[: len(stored)] = stored
        return replace(empty, **{**arrays, "loss": loss})

    @classmethod
    def stacked(cls, parts: Sequence[Experts]) -> Experts:
        """The experts of several queries, each of which is a part."""
        if len(parts) == 1:
            return parts[0]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_MARK}
        return cls(**arrays, loss=np.concatenate([part.loss for part in parts], axis=1))

    def split(self, queries: int) -> Iterator[Experts]:
        """The experts of each of several queries."""
        arrays = {name: getattr(self, name) for name in _BY_MARK}
        for start in range(0, queries * MARKS, MARKS):
            mine = slice(start, start + MARKS)
            yield Experts(**{name: array[mine] for name, array in arrays.items()}, loss=self.loss[:, mine])

    @cached_property
    def nearest_mark(self) -> Ints:
        """For each mark, the nearest one with pairs."""
        return nearest(self.count.max(axis=1, initial=0))

    def is_taught(self, mark: Ints) -> Mask:
        """By mark and item, whether there were pairs, or pairs at a mark that is near enough."""
        near = self.nearest_mark[mark]
        return (self.count[near] > 0) & (np.abs(near - mark) <= MAX_MARK_DISTANCE)[:, None]

    def usual_errors(self, mark: Ints) -> Floats:
        """By mark and item, the usual error of the chosen expert in levels; NaN where none was tested."""
        near = self.nearest_mark[mark]
        is_known = (self.tested[near] > 0) & (np.abs(near - mark) <= MAX_MARK_DISTANCE)[:, None]
        # Next to a window's end errors are rare, but they occur: a margin in units of nothing means nothing.
        largest = self.error.reshape(len(self.error) // MARKS, MARKS, self.error.shape[1]).max(axis=1)
        least = LEAST_ERROR * largest[near // MARKS]
        return np.where(is_known, np.maximum(self.error[near], least), np.nan)

    def coefficients(self, mark: Ints) -> Coefficients:
        """The coefficients at marks, or at the nearest ones with pairs."""
        marks, back = np.unique(self.nearest_mark[mark], return_inverse=True)
        early, final = self.early[marks], self.final[marks]
        recent_early, recent_final = self.recent_early[marks], self.recent_final[marks]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(np.abs(early) > 1e-9, final / early - 1, 0.0)
            recent = np.where(np.abs(recent_early) > 1e-9, recent_final / recent_early - 1, 0.0)
            spread = np.maximum(self.square[marks] - early**2, 0.0)
            together = self.cross[marks] - early * final
            ridge = (
                spread * 4 / np.maximum(self.count[marks], 1) + 1e-12
            )  # with few windows the slope is near 1, as in ADDED
            slope = ((together + ridge) / (spread + ridge)).clip(0.0, 3.0)
        made = (
            final - early,
            recent_final - recent_early,
            ratio,
            recent,
            slope - 1,
            final - slope * early,
        )
        return Coefficients(*(values[back] for values in made))

    def hour_regression(self, mark: Ints, grows: Mask) -> tuple[Floats, Floats]:
        """The slopes of the increment on the early value and on the usual at the hour.

        With few windows, the increment is the usual one, or nothing for values that don't grow.
        """
        marks, first, back = np.unique(self.nearest_mark[mark], return_index=True, return_inverse=True)
        first_part = grows[first].astype(np.float64)
        ridge = 1 + HOUR_RIDGE / np.maximum(self.count[marks], 1)
        square, usual = self.square[marks], self.hour_square[marks]
        both = self.hour_early[marks]
        rest_early = self.cross[marks] - square - first_part * both
        rest_usual = self.hour_final[marks] - both - first_part * usual
        square, usual = square * ridge + 1e-12, usual * ridge + 1e-12
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            scale = square * usual - both * both
            slope = (rest_early * usual - rest_usual * both) / scale
            part = (rest_usual * square - rest_early * both) / scale
        slope, part = (np.where(np.isfinite(one), one, 0.0).clip(-3.0, 3.0) for one in (slope, part))
        return slope[back], (first_part + part)[back]

    def best(self, mark: Ints, is_known: Mask, grows: Mask) -> Ints:
        """The best expert for each value and item; experts that need a group's profile are for known groups."""
        near = self.nearest_mark[mark]
        count, tested = self.count[near], self.tested[near]
        handicap = 1 + HANDICAP[:, None, None] / np.maximum(tested, 1)
        loss = np.where(tested > 0, self.loss[:, near] * handicap, np.inf)
        loss[np.ix_(NEEDS_GROUP, np.flatnonzero(~is_known))] = np.inf
        ready, is_taught, known = tested >= TESTED_WINDOWS, count > 0, is_known[:, None]
        first = np.where(known, np.where(grows, Expert.ADDED, _RAW), np.where(grows, _RATIO, Expert.PRIOR))
        return np.where(ready, loss.argmin(axis=0), np.where(is_taught, first, Expert.PRIOR))

    def projected(self, given: ProjectionInput, groups: GroupProfiles) -> Floats:
        """The best expert's projection of each value."""
        choice = self.best(given.mark, given.at >= 0, given.grows)
        projections = ExpertProjections(self, groups, given)
        projected = given.early
        for expert in np.unique(choice).tolist():
            if expert != _RAW:
                projected = np.where(choice == expert, projections.of(expert), projected)
        return np.where(np.isfinite(projected), projected, given.early)

    def with_pairs(
        self,
        runs: MarkRuns,
        windows: Ints,
        given: ProjectionInput,
        final: Floats,
        level: Floats,
        projections: Floats,
        usual: Floats,
        error: Floats,
    ) -> Experts:
        """The experts after learning from pairs of early and final values.

        `windows` is how many windows the pairs of each run are of. `projections` are those that the experts made before
        they learned from these pairs; `usual` is the one of the regression; `error` is the absolute error of the
        values that were projected, in the units in which errors are measured.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            x, y = (given.early / level).clip(-WILD, WILD), (final / level).clip(-WILD, WILD)
            loss = (
                1
                - value_accuracy(projections, final)
                + TIES * np.minimum(np.abs(final - projections) / level, WORST_LOSS)
            )
            error, usual = np.minimum(error, WORST_LOSS), usual.clip(-WILD, WILD)
        valid = np.isfinite(x) & np.isfinite(y)
        # An expert without a projection for a group counts as the ratio does, neither better nor worse.
        loss = np.where(
            np.isfinite(loss), loss, np.where(np.isfinite(loss[_RATIO]), loss[_RATIO], loss[_RAW])
        )
        columns = np.stack(
            [
                valid,
                _wide(given.slides_left, x),
                x,
                y,
                x * x,
                x * y,
                usual * usual,
                usual * x,
                usual * y,
                np.nan_to_num(error),
                *loss,
            ]
        )
        sums = runs.sums(np.where(valid, columns, 0.0))
        pairs = sums[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1:] / pairs
        at = runs.marks
        fresh = np.where(pairs > 0, windows.astype(np.float64)[:, None], 0.0)
        count = self.count[at]
        slow, fast = newest_weight(count, fresh, SLOW), newest_weight(count, fresh, FAST)
        tested = np.where(count > 0, fresh, 0.0)  # before the first window there is nothing to test
        judged = newest_weight(self.tested[at], tested, JUDGED)

        def moved(old: Floats, new: Floats, weight: Floats) -> Floats:
            return _changed(old, at, moved_toward(old[at], new, weight))

        loss_after = self.loss.copy()
        loss_after[:, at] = moved_toward(self.loss[:, at], mean[9:], judged)
        return replace(
            self,
            count=_changed(self.count, at, count + fresh),
            slides_left=moved(self.slides_left, mean[0], slow),
            early=moved(self.early, mean[1], slow),
            final=moved(self.final, mean[2], slow),
            square=moved(self.square, mean[3], slow),
            cross=moved(self.cross, mean[4], slow),
            hour_square=moved(self.hour_square, mean[5], slow),
            hour_early=moved(self.hour_early, mean[6], slow),
            hour_final=moved(self.hour_final, mean[7], slow),
            recent_early=moved(self.recent_early, mean[1], fast),
            recent_final=moved(self.recent_final, mean[2], fast),
            tested=_changed(self.tested, at, self.tested[at] + tested),
            error=moved(self.error, mean[8], judged),
            loss=loss_after,
        )


_BY_MARK = tuple(field.name for field in fields(Experts) if field.name != "loss")


def _changed(old: Floats, at: Ints, new: Floats) -> Floats:
    after = old.copy()
    after[at] = new
    return after


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
        early, learned = self.given.early, self._coefficients
        match expert:
            case Expert.ADDED:
                return self._level * learned.increment
            case Expert.OWN_ADDED:
                return self._level * learned.increment * self._of_group(self.groups.own_added)
            case Expert.RECENT_ADDED:
                return self._level * learned.recent_increment
            case Expert.RECENT_LEVEL:
                return self._of_group(self.groups.recent) * learned.increment
            case Expert.RATIO:
                return early * learned.ratio
            case Expert.OWN_RATIO:
                return early * learned.ratio * self._of_group(self.groups.own_ratio)
            case Expert.RECENT_RATIO:
                return early * learned.recent_ratio
            case Expert.LINE:
                return early * learned.slope + self._level * learned.intercept
            case Expert.HOUR_ADDED:
                return self._level * self.usual_at_hour - np.where(self.given.grows, 0.0, early)
            case Expert.HOUR_RATIO:
                return early * learned.ratio * self.given.hour.ratio
            case Expert.HOUR_RECENT:
                usual = self._level * self.usual_at_hour * self.given.hour.recent
                return usual - np.where(self.given.grows, 0.0, early)
            case _:
                slope, part = self.experts.hour_regression(self.given.mark, self.given.grows)
                return early * slope + self._level * self.usual_of_line * part

    @cached_property
    def usual_at_hour(self) -> Floats:
        """What is usual at the hour, in levels: of growing items the increment, of others the final."""
        usual = self.given.hour.usual
        return np.where(self.given.grows, self._coefficients.increment * usual, usual)

    @cached_property
    def usual_of_line(self) -> Floats:
        """The same as the regression reads it: of growing items times how much more than usual came lately."""
        return self.usual_at_hour * np.where(self.given.grows, self.given.hour.recent, 1.0)

    @cached_property
    def _coefficients(self) -> Coefficients:
        return self.experts.coefficients(self.given.mark)

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


def even_arrival_factor(slides_left: Floats, range_in_slides: Floats | float, grows: Mask) -> Floats:
    """The rest of a growing value, as a part of what arrived, if tuples arrive evenly.

    >>> even_arrival_factor(np.array([0.5]), 3.0, np.array([True, False]))
    array([[0.2, 0. ]])
    """
    inside = (slides_left > 0) & (slides_left < range_in_slides)
    lacking = np.where(inside, slides_left, 0.0) / np.where(inside, range_in_slides - slides_left, 1.0)
    return np.where(grows, lacking[:, None], 0.0)
