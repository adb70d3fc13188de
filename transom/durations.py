"""Durations and instants in integer microseconds, read from and written as text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache
from zoneinfo import ZoneInfo

from transom.errors import SettingError, near_miss

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND

_UNITS = {
    1: "microsecond microseconds us µs micros usec",
    1_000: "millisecond milliseconds ms millis msec",
    SECOND: "second seconds s sec secs",
    MINUTE: "minute minutes min mins m",
    HOUR: "hour hours h hr hrs",
    DAY: "day days d",
    7 * DAY: "week weeks w",
}
_MICROSECONDS = {name: size for size, names in _UNITS.items() for name in names.split()}
_NOT_FIXED = {"month", "months", "mon", "year", "years", "y", "yr", "yrs", "quarter", "quarters"}
_CALENDAR_UNITS = {
    name: unit
    for unit, names in {
        ("days", 1): _UNITS[DAY],
        ("days", 7): _UNITS[7 * DAY],
        ("months", 1): "month months mon",
        ("months", 3): "quarter quarters",
        ("months", 12): "year years y yr yrs",
    }.items()
    for name in names.split()
}
_PART = re.compile(r"\s*([+-]?\s*\d+(?:\.\d*)?|[+-]?\s*\.\d+)\s*([^\W\d_]+)\s*,?")
_INSTANT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?",
    re.IGNORECASE,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_MOST_DIGITS = 10_000  # of a number of units: numbers of a million digits take seconds to read
MOST_OFFSET = 18 * HOUR  # from UTC, as in Spark
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(value: str | int | timedelta) -> int:
    """Microseconds of a duration; an integer already is that many.

    >>> parse_duration("1 hour 30 minutes"), parse_duration("250 ms"), parse_duration("INTERVAL '5' MINUTES")
    (5400000000, 250000, 300000000)
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, timedelta)):
        raise SettingError(f"{value!r} is not a duration; write one like '5 minutes'")
    if isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    text = re.sub(r"(?i)^\s*interval\b", "", value).replace("'", " ").replace('"', " ").strip()
    total, at = 0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise SettingError(_not_a_duration(value, text))
        total += _part_microseconds(value, part[1].replace(" ", ""), part[2])
        at = part.end()
    if not text:
        raise SettingError(f"{value!r} is not a duration; write one like '5 minutes'")
    return total


def _part_microseconds(value: str, number: str, unit: str) -> int:
    name = unit.lower()
    if len(number) > _MOST_DIGITS:
        raise SettingError(_too_many_digits(number))
    if name in _NOT_FIXED:
        raise SettingError(f"{value!r}: a {name.rstrip('s')} has no fixed length; use days or weeks")
    if name not in _MICROSECONDS:
        raise SettingError(f"{value!r}: unknown unit {unit}{near_miss(unit, _MICROSECONDS)}")
    exact = Decimal(number) * _MICROSECONDS[name]
    if exact != int(exact):
        raise SettingError(f"{value!r} is finer than a microsecond")
    return int(exact)


def parse_calendar_length(value: str) -> tuple[int, int, bool]:
    """The months or days of a length in whole days, weeks, months, quarters or years, and whether it is in weeks.

    >>> parse_calendar_length("1 year 6 months"), parse_calendar_length("2 weeks"), parse_calendar_length("'1' DAY")
    ((18, 0, False), (0, 14, True), (0, 1, False))
    """
    text = re.sub(r"(?i)^\s*interval\b", "", value).replace("'", " ").replace('"', " ").strip()
    totals, units, at = {"months": 0, "days": 0}, set[str](), 0
    while at < len(text):
        part = _PART.match(text, at)
        name, size = ("", 0) if part is None else _CALENDAR_UNITS.get(part[2].lower(), ("", 0))
        if part is None or not size or not part[1].isdigit():
            message = f"{value!r} is not a whole number of days, weeks, months, quarters or years"
            raise SettingError(message)
        if len(part[1]) > _MOST_DIGITS:
            raise SettingError(_too_many_digits(part[1]))
        totals[name] += int(Decimal(part[1])) * size  # an int is read from some thousands of digits only
        units.add(f"{size} {name}")
        at = part.end()
    if totals["months"] and totals["days"]:
        raise SettingError(f"{value!r} has months and days; write one of them")
    return totals["months"], totals["days"], units == {"7 days"}


def _too_many_digits(number: str) -> str:
    return f"{number[:10]}... has {len(number):,} digits; no stream is that long"


def _not_a_duration(value: str, text: str) -> str:
    if re.fullmatch(r"[+-]?\d+(\.\d*)?", text):
        return f"{value!r} has no unit; did you mean '{text} seconds'?"
    return f"{value!r} is not a duration; write one like '5 minutes'"


def parse_instant(value: str | int | date | datetime, zone: str = "UTC") -> int:
    """Microseconds since 1970 of a point in time; one without an offset is in a zone.

    As in Spark, a time that the zone's clocks skip is moved forward by the gap; an ambiguous one is the first of two.

    >>> parse_instant("1970-01-01 00:01"), parse_instant("1970-01-01 02:00:00.5+02:00")
    (60000000, 500000)
    >>> parse_instant("1970-01-01 01:00", "Europe/Berlin")
    0
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, date)):
        raise SettingError(f"{value!r} is not a time; write one like '2013-01-01 12:05'")
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return _microseconds(value if value.tzinfo else value.replace(tzinfo=zone_info(zone)))
    if isinstance(value, date):
        return _microseconds(datetime(value.year, value.month, value.day, tzinfo=zone_info(zone)))
    match = _INSTANT.fullmatch(value.strip())
    if match is None:
        raise SettingError(f"{value!r} is not a time; write one like '2013-01-01 12:05'")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or "0").ljust(6, "0")[:6])
    has_time = match[4] is not None
    offset = zone_info(zone) if match[8] is None or not has_time else UTC
    try:
        aware = datetime(year, month, day, hour, minute, second, fraction, offset)
    except ValueError as error:
        raise SettingError(f"{value!r} is not a time: {error}") from None
    offset_of_text = _zone_microseconds(match[8])
    if abs(offset_of_text) > MOST_OFFSET:
        raise SettingError(f"{value!r} is not a time: its offset is more than 18 hours")
    return _microseconds(aware) - offset_of_text


def _microseconds(aware: datetime) -> int:
    try:
        return (aware.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except OverflowError:  # the zone's offset leads out of the years 1 to 9999
        naive = aware.replace(tzinfo=UTC) - _EPOCH
        return (naive - (aware.utcoffset() or timedelta())) // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def zone_info(zone: str) -> tzinfo:
    """A time zone by its name; an offset such as +02:00 is one, too."""
    if zone == "UTC":
        return UTC
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise SettingError(f"the time zone {zone!r} is not known: write times with an offset") from None


def _zone_microseconds(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return minutes * (-MINUTE if zone[0] == "-" else MINUTE)


def format_instant(microseconds: int) -> str:
    """A point in time as text, in UTC, with only as many decimals as it needs.

    >>> format_instant(60_500_000)
    '1970-01-01 00:01:00.5'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} microseconds"
    text = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
    return f"{text}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else text


def format_duration(microseconds: int) -> str:
    """A duration as text that `parse_duration` reads back.

    >>> format_duration(5_400_000_000), format_duration(-250_000)
    ('1 hour 30 minutes', '-250 milliseconds')
    """
    if microseconds == 0:
        return "0 seconds"
    sign, rest, parts = "-" if microseconds < 0 else "", abs(microseconds), []
    for size, names in reversed(_UNITS.items()):
        count, rest = divmod(rest, size)
        if count:
            singular, plural = names.split()[:2]
            parts.append(f"{sign}{count} {singular if count == 1 else plural}")
    return " ".join(parts)
