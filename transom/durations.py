"""Durations and instants in integer microseconds, read from and written as text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

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
_PART = re.compile(r"\s*([+-]?\s*\d+(?:\.\d*)?|[+-]?\s*\.\d+)\s*([^\W\d_]+)\s*,?")
_INSTANT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?",
    re.IGNORECASE,
)
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
    if name in _NOT_FIXED:
        raise SettingError(f"{value!r}: a {name.rstrip('s')} has no fixed length; use days or weeks")
    if name not in _MICROSECONDS:
        raise SettingError(f"{value!r}: unknown unit {unit}{near_miss(unit, _MICROSECONDS)}")
    exact = Decimal(number) * _MICROSECONDS[name]
    if exact != int(exact):
        raise SettingError(f"{value!r} is finer than a microsecond")
    return int(exact)


def _not_a_duration(value: str, text: str) -> str:
    if re.fullmatch(r"[+-]?\d+(\.\d*)?", text):
        return f"{value!r} has no unit; did you mean '{text} seconds'?"
    return f"{value!r} is not a duration; write one like '5 minutes'"


def parse_instant(value: str | int | date | datetime) -> int:
    """Microseconds since 1970 of a point in time; without a zone it is in UTC.

    >>> parse_instant("1970-01-01 00:01"), parse_instant("1970-01-01 02:00:00.5+02:00")
    (60000000, 500000)
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, date)):
        raise SettingError(f"{value!r} is not a time; write one like '2013-01-01 12:05'")
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days * DAY
    match = _INSTANT.fullmatch(value.strip())
    if match is None:
        raise SettingError(f"{value!r} is not a time; write one like '2013-01-01 12:05'")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or "0").ljust(6, "0")[:6])
    try:
        aware = datetime(year, month, day, hour, minute, second, fraction, UTC)
    except ValueError as error:
        raise SettingError(f"{value!r} is not a time: {error}") from None
    return (aware - _EPOCH) // timedelta(microseconds=1) - _zone_microseconds(match[8])


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
