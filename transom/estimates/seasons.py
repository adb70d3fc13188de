"""Seasons: how what is still to come of a window, and the errors of projections, differ by the hour of the week.

The hour is that of the window's last moment, in UTC. What is learned of an hour is the part by which it differs from
what experts expect without knowing the hour. With few days it is shrunk: an hour of the week towards the same hour of
all days, that towards the same hour and its neighbours, and these towards no difference. Statistics are of one query
or of several; all groups of a query share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.durations import DAY, HOUR
from transom.estimates.fading_average import FAST, SLOW, moved_toward, newest_weight

HOURS_OF_DAY = 24
HOURS = 7 * HOURS_OF_DAY
NO_TIME = int(np.iinfo(np.int64).min)  # the end of a window whose clock does not tell the time
KEPT_PART = 0.8  # of what was learned of an hour, a week later
# Days that must be outweighed before an hour and its neighbours differ from all hours, the hour from its neighbours,
# and the hour of a day of the week from that hour of other days.
DAYS_OF_TRUST = (2.0, 2.0, 4.0)
MOST_FACTOR = 20.0
EXTREME = 10.0  # values are clipped here, in levels: one of them must not decide about an hour for weeks
ERROR_NOISE = 4.0  # an error says less about its hour than an increment does: trust is so many times as large
LEAST_WIDTH, MOST_WIDTH = 0.1, 10.0
WIDTH_WINDOWS = 24.0  # windows of tests before the width of an hour is used
WIDTH_GAIN = 0.02  # the log likelihood that it must bring
WORST_RELATIVE_ERROR = 20.0
# Of an average window, what recent windows must outweigh before they differ from usual ones.
RECENT_TRUST = 0.25
LEAST_RECENT, MOST_RECENT = 0.3, 3.0


@dataclass(frozen=True)
class HourPairs:
    """Pairs of early and final values; arrays of pairs x numeric items, in levels."""

    final: Floats
    usual: Floats  # at the hour: of growing items the increment, of others the final
    increment: Floats
    added: Floats  # the increment that the additive expert projects
    scaled: Floats  # the same of the ratio
    error: Floats  # NaN if nothing was learned before
    relative_error: Floats  # as a part of the usual error at the mark, in the units of errors


@dataclass(frozen=True)
class Seasons:
    """The statistics by hour of the week; arrays of hours x numeric items, unless they say otherwise."""

    last: Ints  # by hour, the last day on which it was seen
    days: Floats  # by hour, the number of these days
    actual: Floats  # sums over pairs: of growing items the increment, of others the final
    expected: Floats  # the increments that the additive expert expects; of others the number of pairs
    scaled: Floats  # the increments that the ratio expects
    error: Floats  # errors
    judged: Floats  # the number of errors
    recent_actual: Floats  # by query and item, the average of `actual` in the last few windows
    recent_usual: Floats  # and of what is usual at their hours
    tested: Floats  # by query and item, the windows on which the width was tested
    loss: Floats  # by query and item, the average log likelihood that the width loses

    @classmethod
    def empty(cls, items: int) -> Seasons:
        none, by_query = np.zeros((HOURS, items)), np.zeros((1, items))
        return cls(np.zeros(HOURS, np.int64), np.zeros(HOURS), *([none] * 5), *([by_query] * 4))

    @classmethod
    def stacked(cls, parts: Sequence[Seasons]) -> Seasons:
        """The seasons of several queries, each of which is a part."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES))

    def split(self, queries: int) -> Iterator[Seasons]:
        """The seasons of each of several queries."""
        for i in range(queries):
            hours, query = slice(i * HOURS, (i + 1) * HOURS), slice(i, i + 1)
            parts = (getattr(self, name)[hours if name in _BY_HOUR else query] for name in _NAMES)
            yield Seasons(*parts)

    @property
    def uses_width(self) -> Mask:
        """By query and item, whether errors are measured in units of the hour's."""
        return (self.tested >= WIDTH_WINDOWS) & (self.loss < -WIDTH_GAIN)

    def with_pairs(self, before: HourFactors, windows: Ints, pairs: HourPairs) -> Seasons:
        """The seasons with pairs of windows; `before` is what was known of their hours.

        `windows` is how many windows the pairs of each query are of.
        """
        query = before.query
        cells, place = before.cells
        some = np.flatnonzero(cells >= 0)
        if not len(some):
            return self
        at = cells[some]
        last, days, kept = self._with_days(at, _greatest(place, before.end, len(cells))[some])
        final, increment, added, scaled = (
            column.clip(-EXTREME, EXTREME)
            for column in (pairs.final, pairs.increment, pairs.added, pairs.scaled)
        )
        valid = (cells >= 0)[place][:, None] & ~np.isnan(final + increment + added + scaled)
        judged = valid & ~np.isnan(pairs.error)

        def added_up(old: Floats, values: Floats, given: Mask) -> Floats:
            sums = old.copy()
            fresh = _sums(place, len(cells), np.where(given, values, 0.0))
            sums[at] = kept[:, None] * old[at] + fresh[some]
            return sums

        growing = before.grows[query]
        actual, usual = np.where(growing, increment, final), pairs.usual.clip(-EXTREME, EXTREME)
        expected = judged & np.isfinite(usual)
        recent_actual, recent_usual = (
            self._moved(old, self.tested, FAST, query, windows, values, expected)
            for old, values in ((self.recent_actual, actual), (self.recent_usual, usual))
        )
        tested, loss = self._with_test(query, windows, pairs.relative_error, before.width, judged)
        return Seasons(
            last,
            days,
            added_up(self.actual, actual, valid),
            added_up(self.expected, np.where(growing, added, 1.0), valid),
            added_up(self.scaled, scaled, valid),
            added_up(self.error, pairs.error.clip(0, EXTREME), judged),
            added_up(self.judged, np.ones(judged.shape), judged),
            recent_actual,
            recent_usual,
            tested,
            loss,
        )

    def _with_days(self, at: Ints, end: Ints) -> tuple[Ints, Floats, Floats]:
        """By hour, its last day and the number of days after windows end at some; and the part of its sums to keep."""
        day = (end - 1) // DAY
        is_new = (self.days[at] == 0) | (day > self.last[at])
        last, days = self.last.copy(), self.days.copy()
        last[at] = np.where(is_new, day, last[at])
        days[at] = np.where(is_new, KEPT_PART * days[at] + 1, days[at])
        return last, days, np.where(is_new, KEPT_PART, 1.0)

    def _with_test(
        self, query: Ints, windows: Ints, relative: Floats, width: Floats, judged: Mask
    ) -> tuple[Floats, Floats]:
        """By query and item, the windows of tests and the loss, after errors have tested the width of their hours."""
        valid = judged & np.isfinite(relative)
        relative = relative.clip(0, WORST_RELATIVE_ERROR)
        # Laplace's distribution with and without the width; where the width is in use, errors are in units of it.
        used = self.uses_width[query]
        with np.errstate(invalid="ignore"):
            with_width = np.where(used, relative, relative / width) + np.log(width)
            lost = with_width - np.where(used, relative * width, relative)
        loss = self._moved(self.loss, self.tested, SLOW, query, windows, lost, valid)
        some = _sums(query, len(self.tested), valid.astype(np.float64)) > 0
        return self.tested + np.where(some, windows[:, None], 0.0), loss

    @staticmethod
    def _moved(
        old: Floats, count: Floats, least: float, query: Ints, windows: Ints, values: Floats, valid: Mask
    ) -> Floats:
        """Averages by query and item after pairs of more windows, next to `count` earlier ones."""
        pairs = _sums(query, len(old), valid.astype(np.float64))
        fresh = np.where(pairs > 0, windows.astype(np.float64)[:, None], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = _sums(query, len(old), np.where(valid, values, 0.0)) / pairs
        return moved_toward(old, mean, newest_weight(count, fresh, least))


_NAMES = tuple(field.name for field in fields(Seasons))
_BY_HOUR = frozenset(_NAMES[:7])


@dataclass(frozen=True)
class HourFactors:
    """What was learned of the hours of some windows; arrays of windows x numeric items."""

    seasons: Seasons
    query: Ints
    end: Ints  # of each window
    grows: Mask  # by query and item

    @cached_property
    def usual(self) -> Floats:
        """Of growing items the increment as a part of the expected one; of others the final, in levels."""
        own = self.seasons
        no_difference = np.ones(self._shape)
        if not self.grows.all():
            mean = self._hours.overall(own.actual, own.expected, 0.0)
            no_difference = np.where(self.grows[self._hours.query], 1.0, mean)
        return self._by_window(self._hours.parts(own.actual, own.expected, no_difference), no_difference)

    @cached_property
    def recent(self) -> Floats:
        """The last few windows as a part of what is usual at their hours."""
        own = self.seasons
        average = np.abs(self._hours.overall(own.actual, own.judged, 0.0))[self._back]
        actual, usual = own.recent_actual[self.query], own.recent_usual[self.query]
        one = np.ones(average.shape)
        return _quotient(actual + RECENT_TRUST * average, usual + RECENT_TRUST * average, one).clip(
            LEAST_RECENT, MOST_RECENT
        )

    @cached_property
    def ratio(self) -> Floats:
        """The increment as a part of the one that the ratio expects."""
        one = np.ones(self._shape)
        return self._by_window(self._hours.parts(self.seasons.actual, self.seasons.scaled, one), one)

    @cached_property
    def width(self) -> Floats:
        """The error as a part of the average one."""
        mean = self._hours.overall(self.seasons.error, self.seasons.judged, 1.0)
        error = self._hours.parts(self.seasons.error, self.seasons.judged, mean, ERROR_NOISE)
        with np.errstate(invalid="ignore", divide="ignore"):
            width = np.where(mean > 0, error / mean, 1.0).clip(LEAST_WIDTH, MOST_WIDTH)
        return self._by_window(width, np.ones(self._shape))

    @cached_property
    def used_width(self) -> Floats:
        """The unit in which errors are measured: the width, where bounds are better with it."""
        used = self.seasons.uses_width
        if not used.any():
            return np.ones((len(self.query), used.shape[1]))
        return np.where(used[self.query], self.width, 1.0)

    def _by_window(self, by_hour: Floats, no_difference: Floats) -> Floats:
        return np.where(self._is_known[:, None], by_hour, no_difference)[self._back]

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self._is_known), self.grows.shape[1]

    @cached_property
    def cells(self) -> tuple[Ints, Ints]:
        """The places of these hours in the arrays, -1 where the clock tells no time, and which is of each window."""
        hour = self.query * HOURS + (self.end - 1) // HOUR % HOURS
        cells, place = np.unique(np.where(self.end == NO_TIME, -1, hour), return_inverse=True)
        return cells, place

    @property
    def _back(self) -> Ints:
        return self.cells[1]

    @cached_property
    def _is_known(self) -> Mask:
        return self.cells[0] >= 0

    @cached_property
    def _hours(self) -> _Hours:
        return _Hours(self.seasons.days, np.maximum(self.cells[0], 0))


class _Hours:
    """Some hours of the week, each with the hours of other days that are like it."""

    def __init__(self, days: Floats, cells: Ints):
        self.query = cells // HOURS
        first, hour = (self.query * HOURS)[:, None, None], (cells % HOURS_OF_DAY)[:, None, None]
        days_of_week = np.arange(0, HOURS, HOURS_OF_DAY)[:, None]
        # From the least to the most alike: the hour and its neighbours on all days, the hour on all days, itself.
        self._alike = [
            (first + days_of_week + (hour + near) % HOURS_OF_DAY).reshape(len(cells), -1)
            for near in (np.array([-1, 0, 1]), np.array([0]))
        ] + [cells[:, None]]
        self._days = [days[alike].sum(axis=1)[:, None] for alike in self._alike]

    def overall(self, above: Floats, below: Floats, otherwise: float) -> Floats:
        """The quotient of the sums over all hours of the query."""
        queries, place = np.unique(self.query, return_inverse=True)
        all_hours = (len(above) // HOURS, HOURS, above.shape[1])
        total, count = (column.reshape(all_hours)[queries].sum(axis=1) for column in (above, below))
        return _quotient(total, count, np.full(total.shape, otherwise))[place]

    def parts(self, above: Floats, below: Floats, no_difference: Floats, noise: float = 1.0) -> Floats:
        """The quotient of the sums of each hour, shrunk while few days were seen; the more so, the larger `noise`."""
        part = no_difference
        for alike, days, trust in zip(self._alike, self._days, DAYS_OF_TRUST, strict=True):
            own = _quotient(above[alike].sum(axis=1), below[alike].sum(axis=1), part)
            part = (days * own + noise * trust * part) / (days + noise * trust)
        return part


def _quotient(above: Floats, below: Floats, otherwise: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient = above / below
    return np.where(np.abs(below) > 1e-9, quotient, otherwise).clip(-MOST_FACTOR, MOST_FACTOR)


def _greatest(place: Ints, values: Ints, size: int) -> Ints:
    """The greatest value of each place."""
    greatest = np.full(size, NO_TIME)
    np.maximum.at(greatest, place, values)
    return greatest


def _sums(place: Ints, size: int, values: Floats) -> Any:
    """Sums of rows by place."""
    items = values.shape[1]
    cells = (place[:, None] * items + np.arange(items)).ravel()
    return np.bincount(cells, values.ravel(), size * items).reshape(size, items)
