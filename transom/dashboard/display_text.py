"""Numbers, times and sizes as text for people."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import escape
from typing import Any

from transom.api.value_text import value_to_text
from transom.dashboard.display_zone import zone_offset
from transom.durations import format_instant

NO_VALUE = "–"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE = 1_000_000, 60_000_000  # microseconds
_SIZES = ("B", "KB", "MB", "GB", "TB")
_SHORT = {"day": "d", "hour": "h", "minute": "min", "second": "s", "millisecond": "ms"}
_UNITS = re.compile(r"\b(\d[\d.,]*) (day|hour|minute|second|millisecond)s?\b")
_LONG_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def esc(value: Any) -> str:
    """Escape text for use in HTML and its attributes."""
    return escape(str(value), quote=True)


def format_number(value: Any) -> str:
    """A number with all its integer digits, and up to four decimals if it is small.

    >>> [format_number(value) for value in (1234567, 3.14159265, 12345.678, None, float("nan"))]
    ['1,234,567', '3.1416', '12,345.7', '–', 'NaN']
    """
    if value is None:
        return NO_VALUE
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return value_to_text(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return value_to_text(value)
    size = abs(float(value))
    if size and size < 1e-4:
        return f"{value:.3g}"
    digits = 1 if size >= 10_000 else 2 if size >= 100 else 4
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_estimate(value: Any) -> str:
    """An estimate, rounded to about three significant digits.

    >>> [format_estimate(value) for value in (34.9714, 56.8181, 0.12345, 12345.678, 7, None)]
    ['35', '56.8', '0.123', '12,346', '7', '–']
    """
    if not isinstance(value, (float, Decimal)) or not math.isfinite(value) or not value:
        return format_number(value)
    digits = 2 - math.floor(math.log10(abs(float(value))))
    return format_number(value) if digits > 4 else format_number(round(float(value), max(0, digits)))


def format_count(value: float) -> str:
    """A count or rate in about three digits.

    >>> [format_count(value) for value in (950, 12_340, 4_500_000, 0.26, -3)]
    ['950', '12.3k', '4.5M', '0.3', '-3']
    """
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.0f}{unit}" if abs(scaled) >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:,.0f}" if size >= 10 or value == int(value) else f"{value:.1f}"


def format_bytes(count: int) -> str:
    """A number of bytes.

    >>> format_bytes(512), format_bytes(48_300), format_bytes(3_250_000)
    ('512 B', '48.3 KB', '3.2 MB')
    """
    scaled, unit = float(count), 0
    while scaled >= 1000 and unit < len(_SIZES) - 1:
        scaled, unit = scaled / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{scaled:.1f} {_SIZES[unit]}"


def format_seconds(value: float | None) -> str:
    """A duration in its one or two largest units.

    >>> [format_seconds(value) for value in (0.0421, 3.25, 200, 5400, None)]
    ['42 ms', '3.2 s', '3 min 20 s', '1 h 30 min', '–']
    """
    if value is None or math.isnan(value):
        return NO_VALUE
    sign, value = ("-" if value < 0 else ""), abs(value)
    if value < 1:
        return f"{sign}{value * 1000:.0f} ms"
    if value < 60:
        return f"{sign}{value:.1f} s" if value < 10 else f"{sign}{value:.0f} s"
    whole = round(value)
    parts, rest = [], whole
    for length, unit in (*_LONG_UNITS, (1, "s")):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])


def format_age(made: int | None, now: int) -> str:
    """How long ago something was made; both times in microseconds.

    >>> format_age(1_000_000, 1_500_000), format_age(0, 59_000_000), format_age(0, 7_300_000_000)
    ('now', '59 s ago', '2 h ago')
    """
    if made is None:
        return NO_VALUE
    age = (now - made) / 1e6
    if age < 2:
        return "now"
    for length, unit in _LONG_UNITS:
        if age >= length:
            return f"{age / length:.0f} {unit} ago"
    return f"{age:.0f} s ago"


def format_event_time(value: int | None, is_time: bool = True) -> str:
    """A point in a stream's event time, in the user's zone, to the second, or to the millisecond if it needs that.

    >>> format_event_time(60_000_000), format_event_time(1200, is_time=False), format_event_time(None)
    ('1970-01-01 00:01:00', '1,200', '–')
    >>> format_event_time(60_500_000), format_event_time(60_000_001)
    ('1970-01-01 00:01:00.5', '1970-01-01 00:01:00')
    """
    if value is None:
        return NO_VALUE
    return format_instant(_to_milliseconds(value + zone_offset(value))) if is_time else f"{value:,}"


def _to_milliseconds(microseconds: int) -> int:
    """Without the microseconds: people who read a table do not need them, and downloads have them."""
    return microseconds // 1000 * 1000


def window_label(start: int, end: int, is_time: bool) -> str:
    """A window from start to end; a day that both share is written once, and long windows need no milliseconds.

    >>> window_label(0, 60_000_000, True), window_label(0, 1200, False)
    ('1970-01-01 00:00:00 – 00:01:00', '0 – 1,200')
    >>> window_label(250_000, 60_250_000, True), window_label(250_000, 500_000, True)
    ('1970-01-01 00:00:00 – 00:01:00', '1970-01-01 00:00:00.25 – 00:00:00.5')
    """
    if is_time and end - start >= _MINUTE:
        start, end = (time // _SECOND * _SECOND for time in (start, end))
    first, last = (format_event_time(time, is_time) for time in (start, end))
    same_day = is_time and first[:10] == last[:10]
    return f"{first} – {last[11:] if same_day else last}"


def format_clock(value: int | None) -> str:
    """The time of day, to the second, in the user's zone.

    >>> format_clock(43_385_250_000)
    '12:03:05'
    """
    return NO_VALUE if value is None else format_instant(value + zone_offset(value))[11:19]


def format_percent(part: float | None, digits: int = 1) -> str:
    """A fraction as a percentage.

    >>> format_percent(0.9512), format_percent(0.25, 0), format_percent(float("nan"))
    ('95.1 %', '25 %', '–')
    """
    if part is None or math.isnan(part):
        return NO_VALUE
    return f"{part * 100:.{digits}f} %"


def format_cell(value: Any) -> str:
    """A value of a result, as shown in a table; a time without a zone is shown as it is.

    >>> format_cell(datetime(2013, 1, 1, 12, 5, 0, 250_123, tzinfo=UTC)), format_cell(datetime(2013, 1, 1, 12))
    ('2013-01-01 12:05:00.25', '2013-01-01 12:00:00')
    """
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return format_event_time((value - _EPOCH) // timedelta(microseconds=1))
        since = (value - _EPOCH.replace(tzinfo=None)) // timedelta(microseconds=1)
        return format_instant(_to_milliseconds(since))
    return format_number(value)


def short_window(text: str | None) -> str:
    """A short form of a window's description.

    >>> short_window("range 1 hour 40 minutes, slide 45 minutes"), short_window("the last 24 hours of ts")
    ('1 h 40 min / 45 min', 'last 24 h of ts')
    """
    if not text:
        return NO_VALUE
    short = _UNITS.sub(lambda match: f"{match[1]} {_SHORT[match[2]]}", text)
    return short.removeprefix("range ").removeprefix("the ").replace(", slide ", " / ")
