"""Calendar windows: `[RANGE 1 month SLIDE 1 day IN TIME ZONE 'Europe/Berlin']`."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, timedelta
from zoneinfo import ZoneInfo, available_timezones

from transom.durations import DAY, parse_calendar_length, parse_duration, parse_instant
from transom.elements import Calendar, CalendarLength, ClockKind, WindowSpec
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.syntax.parsed_query import Bracket
from transom.sql.syntax.token_reader import Piece, read_length

_UP_TO = re.compile(r"(?i)up\s+to\s+")
_MONTHS = re.compile(r"(?i)\b(months?|mon|quarters?|years?|yrs?|y)\b")
_OFFSET = re.compile(r"(?i)(Z|UTC|:\d{2}(\.\d+)?\s*[+-]\d{2}:?\d{2})$")
_MONDAY = 4 * DAY  # 1970-01-05
_MOST_DAYS = 3_652_059  # of the years 1 to 9999


def upper_bound(size: Piece) -> tuple[Piece, bool]:
    """The length in RANGE, and whether it is an upper bound: `RANGE UP TO 1 day`."""
    opening = _UP_TO.match(size.text)
    return (size, False) if opening is None else (replace(size, text=size.text[opening.end() :]), True)


def has_months(text: str) -> bool:
    """Whether a length is in months, quarters or years."""
    return _MONTHS.search(text) is not None


def calendar_zone(text: str, zone: Piece, kind: ClockKind, has_zone: bool) -> str:
    """The name of a window's zone."""
    if kind is not ClockKind.TIME:
        raise SQLError("IN TIME ZONE needs a window over time", text, zone.start, zone.end)
    try:
        ZoneInfo(zone.text)
    except (KeyError, ValueError, OSError):
        hint = near_miss(zone.text, sorted(available_timezones()))
        message = f"unknown time zone {zone.text!r}{hint}; write a region like 'Europe/Berlin', or 'UTC'"
        raise SQLError(message, text, zone.start, zone.end) from None
    if not has_zone and zone.text != "UTC":
        message = "the times of this column have no time zone; its windows can only be IN TIME ZONE 'UTC'"
        raise SQLError(message, text, zone.start, zone.end)
    return zone.text


def calendar_spec(text: str, bracket: Bracket, size: Piece, zone: str) -> WindowSpec:
    """The windows of a bracket with a time zone."""
    return _CalendarReader(text, bracket, size).read(zone)


class _CalendarReader:
    """Reads the lengths of a bracket with a time zone; an error points at its part."""

    def __init__(self, text: str, bracket: Bracket, size: Piece):
        self.text, self.bracket, self.size = text, bracket, size

    def read(self, zone: str) -> WindowSpec:
        size, is_cumulative = upper_bound(self.size)
        length, in_weeks = self._length(size, "RANGE")
        piece = self.bracket.slide
        if piece is None:
            message = "IN TIME ZONE needs SLIDE: windows of an on-demand query end at the newest row"
            raise self._error(message, self.bracket.zone)
        if is_cumulative and not self._is_calendar(piece):
            step = read_length(self.text, piece, ClockKind.TIME, "SLIDE")
            if DAY % step:
                raise self._error("SLIDE of cumulative windows must divide a day", piece)
            return WindowSpec.following(
                Calendar(zone, length, None, self._origin(length, in_weeks)), True, step
            )
        slide, slides_in_weeks = self._length(piece, "SLIDE")
        if not is_cumulative:
            return WindowSpec.following(Calendar(zone, length, slide, self._origin(slide, slides_in_weeks)))
        if slide.months and (length.days or length.months % slide.months):
            raise self._error("the range of cumulative windows must be a multiple of SLIDE", self.size)
        if slide.days and length.days % slide.days:
            raise self._error("the range of cumulative windows must be a multiple of SLIDE", self.size)
        if slide.days > length.fewest_days:
            raise self._error("SLIDE is longer than the shortest range", piece)
        return WindowSpec.following(Calendar(zone, length, slide, self._origin(length, in_weeks)), True)

    def _error(self, message: str, piece: Piece | None) -> SQLError:
        place = piece or self.bracket
        return SQLError(message, self.text, place.start, place.end)

    def _is_calendar(self, piece: Piece) -> bool:
        try:
            parse_calendar_length(piece.text)
        except SettingError:
            return has_months(piece.text)
        return True

    def _length(self, piece: Piece, word: str) -> tuple[CalendarLength, bool]:
        """The length in a piece, and whether it is in weeks."""
        try:
            months, days, in_weeks = parse_calendar_length(piece.text)
        except SettingError as error:
            advice = (
                "; windows of hours or less need no time zone: leave out IN TIME ZONE, or use RANGE UP TO"
            )
            raise self._error(f"{word} in a time zone: {error}{advice}", piece) from None
        if not months and not days:
            raise self._error(f"{word} must be positive", piece)
        length = CalendarLength(months, days)
        if length.most_days > _MOST_DAYS:
            raise self._error(f"{word} is longer than any stream", piece)
        return length, in_weeks

    def _origin(self, slide: CalendarLength, in_weeks: bool) -> int:
        """The local time from which slides are counted; by default weeks begin on Mondays, months on the first."""
        piece = self.bracket.origin
        if piece is None:
            return _MONDAY if in_weeks else 0
        text = re.sub(r"(?i)^(timestamp|date)\s*'(.*)'$", r"\2", piece.text)
        if _OFFSET.search(text):
            raise self._error("ORIGIN is a local time of the window's time zone; leave out the offset", piece)
        for read in (parse_instant, parse_duration):
            try:
                origin = read(text)
                break
            except SettingError:
                continue
        else:
            raise self._error(f"ORIGIN is a time or a duration, not {piece.text!r}", piece)
        try:
            day = date(1970, 1, 1) + timedelta(origin // DAY)
        except OverflowError:
            raise self._error("ORIGIN must be in the years 1 to 9999", piece) from None
        if slide.months and day.day > 28:
            raise self._error(
                "ORIGIN of windows in months must be one of the first 28 days of a month", piece
            )
        return origin
