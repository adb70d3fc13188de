"""Calendar windows: days, weeks and months of a time zone, whose lengths differ.

A day begins at the first instant at which the local time is the start of the day, or later if the clocks skip it. So
a day has 23 or 25 hours where daylight saving begins or ends, and none at all where a zone skipped it. Days are
numbered from 1970-01-01 and months from January 1970; only the instants at which days begin come from the zone. They
are computed in blocks, when a time needs them.

Cumulative calendar windows have as many numbers for each period as the longest period needs. The last numbers of a
shorter period are empty windows.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from transom.columns.arrays import Ints
from transom.durations import DAY
from transom.elements import CalendarLength, WindowSpec

DAYS_OF_BLOCK = 1024  # days whose beginnings are computed at once
MOST_BLOCKS = 64  # that are kept: 179 years
LEAST_DAY, GREATEST_DAY = -719_160, 2_932_894  # a few days inside of the years 1 to 9999
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=256)
def local_days(zone: str, time_of_day: int) -> LocalDays:
    """The days of a zone that begin at a time of day; one object for all windows, so that they share its blocks."""
    return LocalDays(zone, time_of_day)


class LocalDays:
    """When the days of a zone begin.

    >>> berlin = LocalDays("Europe/Berlin")
    >>> begins = berlin.instants(np.array([19_812, 19_813, 19_814]))  # summer time began on 2024-03-31
    >>> (np.diff(begins) // 3_600_000_000).tolist()
    [24, 23]
    >>> berlin.days(begins - 1).tolist(), berlin.days(begins).tolist()
    ([19811, 19812, 19813], [19812, 19813, 19814])
    """

    def __init__(self, zone: str, time_of_day: int = 0):
        self.zone, self.time_of_day = ZoneInfo(zone), time_of_day
        self._blocks: dict[int, Ints] = {}

    def instants(self, days: Ints) -> Ints:
        """When days begin."""
        days = np.clip(days, LEAST_DAY, GREATEST_DAY)
        if not days.size:
            return days
        first, last = int(days.min()) // DAYS_OF_BLOCK, int(days.max()) // DAYS_OF_BLOCK
        if first == last:
            return self._block(first)[days - first * DAYS_OF_BLOCK]
        begins = np.empty_like(days)
        blocks = days // DAYS_OF_BLOCK
        for block in np.unique(blocks).tolist():
            inside = blocks == block
            begins[inside] = self._block(block)[days[inside] - block * DAYS_OF_BLOCK]
        return begins

    def days(self, times: Ints) -> Ints:
        """The days that hold times."""
        # Zones are less than a day from UTC.
        around = np.clip((times - self.time_of_day) // DAY, LEAST_DAY, GREATEST_DAY)
        return around - 1 + (times >= self.instants(around)) + (times >= self.instants(around + 1))

    def _block(self, number: int) -> Ints:
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.clear()
            days = range(number * DAYS_OF_BLOCK, (number + 1) * DAYS_OF_BLOCK)
            begins = [self._begin(min(max(day, LEAST_DAY), GREATEST_DAY)) for day in days]
            block = self._blocks[number] = np.maximum.accumulate(np.array(begins, np.int64))
        return block

    def _begin(self, day: int) -> int:
        moment = _EPOCH + timedelta(days=day, microseconds=self.time_of_day)
        local = moment.replace(tzinfo=self.zone)
        begin = local.astimezone(UTC)
        if begin.astimezone(self.zone).replace(tzinfo=None) > moment:  # clocks skip this moment
            begin = self._after_gap(local.replace(fold=1).astimezone(UTC), begin, moment)
        return (begin - _EPOCH_UTC) // _MICROSECOND

    def _after_gap(self, before: datetime, after: datetime, moment: datetime) -> datetime:
        """The first instant between two at which clocks show a later moment."""
        while after - before > _MICROSECOND:
            middle = before + (after - before) // 2
            is_after = middle.astimezone(self.zone).replace(tzinfo=None) >= moment
            before, after = (before, middle) if is_after else (middle, after)
        return after


@lru_cache(maxsize=4096)
def extents(spec: WindowSpec) -> Extents:
    """Where calendar windows start and end."""
    return Extents(spec)


class Extents:
    """The windows of a specification with a calendar: the functions of `ids`, for arrays."""

    def __init__(self, spec: WindowSpec):
        assert spec.calendar is not None
        calendar = spec.calendar
        self.spec, self.range, self.slide = spec, calendar.range, calendar.slide
        self._origin_day, time_of_day = divmod(calendar.origin, DAY)
        self._origin_month = int(_months(np.array(self._origin_day)))
        self._day_of_month = self._origin_day - int(_first_days(np.array(self._origin_month)))
        self._local = local_days(calendar.zone, time_of_day)

    @cached_property
    def has_gaps(self) -> bool:
        """Whether there can be times that are in no window."""
        if self.spec.is_cumulative or self.slide is None or self.range == self.slide:
            return False
        if self.range.months and self.slide.months:
            return self.range.months < self.slide.months
        return self.range.fewest_days < self.slide.most_days

    def wid_from(self, times: Ints) -> Ints:
        """The first windows that end after times."""
        if self.spec.is_cumulative:
            periods, days = self._periods(times)
            return periods * self._most_steps + self._steps_since(periods, days, times)
        assert self.slide is not None
        return self._number(self.slide, self._local.days(times))

    def wid_to(self, times: Ints) -> Ints:
        """The last windows that start at or before times."""
        if self.spec.is_cumulative:
            periods = self._periods(times)[0]
            return periods * self._most_steps + self._step_count(periods) - 1
        assert self.slide is not None
        return self._number(self.slide, self._last_end(self._local.days(times))) - 1

    def end(self, wids: Ints) -> Ints:
        """Where windows end."""
        if self.spec.is_cumulative:
            periods, steps = np.divmod(self._usable(wids), self._most_steps)
            return self._step_end(periods, steps + 1)
        return self._local.instants(self._end_day(wids))

    def start(self, wids: Ints) -> Ints:
        """Where windows start."""
        if self.spec.is_cumulative:
            periods, steps = np.divmod(self._usable(wids), self._most_steps)
            return self._period_start(periods + (steps >= self._step_count(periods)))
        return self._local.instants(self._start_day(self._end_day(wids)))

    # --- days, and the slides that are counted from the origin ---

    def _day(self, length: CalendarLength, numbers: Ints) -> Ints:
        """The first day of the lengths with these numbers."""
        if length.months:
            return _first_days(self._origin_month + numbers * length.months) + self._day_of_month
        return self._origin_day + numbers * length.days

    def _number(self, length: CalendarLength, days: Ints) -> Ints:
        """The numbers of the lengths that hold days."""
        if length.months:
            return (_months(days - self._day_of_month) - self._origin_month) // length.months
        return (days - self._origin_day) // length.days

    def _end_day(self, wids: Ints) -> Ints:
        assert self.slide is not None
        return np.clip(self._day(self.slide, self._usable(wids) + 1), LEAST_DAY, GREATEST_DAY)

    def _usable(self, wids: Ints) -> Ints:
        first, last = self._wid_bounds
        return np.clip(wids, first, last)

    @cached_property
    def _wid_bounds(self) -> tuple[int, int]:
        """The least and the greatest window of the years that SQL's timestamps have."""
        length = self.range if self.spec.is_cumulative else self.slide
        assert length is not None
        room = self._most_steps if self.spec.is_cumulative else 1
        margin = np.array([LEAST_DAY, GREATEST_DAY])
        first, last = (self._number(length, margin) * room).tolist()
        return first, last

    def _start_day(self, days: Ints) -> Ints:
        """The days on which windows start that end before days."""
        if not self.range.months:
            return days - self.range.days
        return _plus_months(days, -self.range.months)

    def _last_end(self, days: Ints) -> Ints:
        """The last days before which windows end that start on or before days."""
        if not self.range.months:
            return days + self.range.days
        months = _months(days) + self.range.months
        last_of_month = _first_days(_months(days) + 1) - 1
        # The last day of a month is where windows start that end on this day of another month, or on a later one.
        return np.where(
            days == last_of_month, _first_days(months + 1) - 1, _plus_months(days, self.range.months)
        )

    # --- cumulative windows: periods, and the steps in them ---

    def _periods(self, times: Ints) -> tuple[Ints, Ints]:
        """The periods that hold times, and the days."""
        days = self._local.days(times)
        return self._number(self.range, days), days

    def _period_start(self, periods: Ints) -> Ints:
        return self._local.instants(self._day(self.range, periods))

    @cached_property
    def _most_steps(self) -> int:
        """The steps of the longest period."""
        if self.slide is None:
            return -(-self.spec.range // self.spec.slide)
        if self.slide.months:
            return -(-self.range.months // self.slide.months)
        return -(-self.range.most_days // self.slide.days)

    def _step_count(self, periods: Ints) -> Ints:
        """The steps of periods; the last is shorter if the others leave less than a step."""
        if self.slide is None:
            lengths = self._period_start(periods + 1) - self._period_start(periods)
            return -(-lengths // self.spec.slide)
        if self.slide.months:
            return np.full_like(periods, self._most_steps)
        days = self._day(self.range, periods + 1) - self._day(self.range, periods)
        return -(-days // self.slide.days)

    def _steps_since(self, periods: Ints, days: Ints, times: Ints) -> Ints:
        """The whole steps between the starts of periods and times in them."""
        if self.slide is None:
            return (times - self._period_start(periods)) // self.spec.slide
        if self.slide.months:
            first = self._origin_month + periods * self.range.months
            return (_months(days - self._day_of_month) - first) // self.slide.months
        return (days - self._day(self.range, periods)) // self.slide.days

    def _step_end(self, periods: Ints, steps: Ints) -> Ints:
        """When periods are so many steps old, or when they end."""
        if self.slide is None:
            ends = self._period_start(periods) + steps * self.spec.slide
            return np.minimum(ends, self._period_start(periods + 1))
        if self.slide.months:
            first = self._origin_month + periods * self.range.months
            return self._local.instants(_first_days(first + steps * self.slide.months) + self._day_of_month)
        days = self._day(self.range, periods) + steps * self.slide.days
        return self._local.instants(np.minimum(days, self._day(self.range, periods + 1)))


def _months(days: Ints) -> Ints:
    """The months of days."""
    return np.asarray(days).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_days(months: Ints) -> Ints:
    """The first days of months."""
    return np.asarray(months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _plus_months(days: Ints, count: int) -> Ints:
    """The same day of another month; its last day if it has no such day."""
    months = _months(days)
    others = _first_days(months + count)
    return np.minimum(others + (days - _first_days(months)), _first_days(months + count + 1) - 1)
