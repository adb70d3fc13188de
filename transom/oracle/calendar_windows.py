"""The calendar windows that contain a time, found date by date, without the arithmetic of `transom.windows`."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Iterator
from zoneinfo import ZoneInfo

from transom.elements import Calendar, CalendarLength, WindowSpec

_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def calendar_windows(value: int, spec: WindowSpec) -> list[tuple[int, int]]:
    """Every window with start <= value < end."""
    calendar = spec.calendar
    assert calendar is not None
    if spec.is_cumulative:
        start, ends = _period(value, spec)
        return [(start, end) for end in ends if end > value]
    assert calendar.slide is not None
    margin = calendar.range.most_days + calendar.slide.most_days + 3
    found = []
    for day in _edges(calendar, calendar.slide, value, margin):
        window = _begin(calendar, _back(day, calendar.range)), _begin(calendar, day)
        if window[0] <= value < window[1]:
            found.append(window)
    return found


def last_end(until: int, spec: WindowSpec) -> int:
    """The end of the last window that ends at or before a time."""
    calendar = spec.calendar
    assert calendar is not None
    if spec.is_cumulative:
        start, ends = _period(until - 1, spec)
        return max((end for end in ends if end <= until), default=start)
    assert calendar.slide is not None
    days = _edges(calendar, calendar.slide, until, 2 * calendar.slide.most_days + 3)
    return max(end for end in (_begin(calendar, day) for day in days) if end <= until)


def _period(value: int, spec: WindowSpec) -> tuple[int, list[int]]:
    """The start of the period that holds a time, and where its cumulative windows end."""
    calendar = spec.calendar
    assert calendar is not None
    days = list(_edges(calendar, calendar.range, value, 2 * calendar.range.most_days + 3))
    first = max(day for day in days if _begin(calendar, day) <= value)
    following = days[days.index(first) + 1]
    start, stop = _begin(calendar, first), _begin(calendar, following)
    ends, step = list[int](), 0
    while not ends or ends[-1] < stop:
        step += 1
        if calendar.slide is None:
            end = start + step * spec.slide
        else:
            months, length = step * calendar.slide.months, step * calendar.slide.days
            end = _begin(calendar, _back(first, CalendarLength(months=-months)) + timedelta(length))
        ends.append(min(end, stop))
    return start, ends


def _edges(calendar: Calendar, length: CalendarLength, value: int, margin: int) -> Iterator[date]:
    """The days at which lengths begin, counted from the origin, within so many days of a time."""
    origin = (datetime(1970, 1, 1) + timedelta(microseconds=calendar.origin)).date()
    around = (_EPOCH + timedelta(microseconds=value)).date()
    if length.days:
        first = (around - origin).days // length.days
        numbers = range(first - margin // length.days - 1, first + margin // length.days + 2)
        yield from (origin + timedelta(number * length.days) for number in numbers)
        return
    first = ((around.year - origin.year) * 12 + around.month - origin.month) // length.months
    reach = margin // (28 * length.months) + 2
    yield from (
        _back(origin, CalendarLength(months=-number * length.months))
        for number in range(first - reach, first + reach)
    )


def _back(day: date, length: CalendarLength) -> date:
    """A day so much earlier; the last of its month if the month is too short."""
    if length.days:
        return day - timedelta(length.days)
    year, month = divmod(day.year * 12 + day.month - 1 - length.months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _begin(calendar: Calendar, day: date) -> int:
    return _first_instant(calendar.zone, day, calendar.origin % 86_400_000_000)


@lru_cache(maxsize=65_536)
def _first_instant(zone: str, day: date, time_of_day: int) -> int:
    """The first instant at which the zone's clocks show a time of a day, or a later one."""
    wanted, info = (
        datetime(day.year, day.month, day.day) + timedelta(microseconds=time_of_day),
        ZoneInfo(zone),
    )
    both = (wanted.replace(tzinfo=info, fold=fold).astimezone(UTC) for fold in (0, 1))
    shown = [instant for instant in both if instant.astimezone(info).replace(tzinfo=None) == wanted]
    instant = min(shown, default=None)
    if instant is None:  # the clocks skip it
        instant = wanted.replace(tzinfo=UTC) - timedelta(hours=26)
        while instant.astimezone(info).replace(tzinfo=None) < wanted:
            instant += _MINUTE
    return (instant - _EPOCH) // _MICROSECOND
