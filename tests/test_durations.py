"""Durations and instants: what is read, what is refused, and that what is written reads back."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.durations import format_duration, format_instant, parse_duration, parse_instant
from transom.errors import SettingError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("12 min", 720 * SECOND),
        ("4 minutes", 240 * SECOND),
        ("30 seconds", 30 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1 hour, 30 minutes", 5400 * SECOND),
        ("250 ms", 250_000),
        ("1 day", 86_400 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("INTERVAL 5 MINUTES", 300 * SECOND),
        ("interval '5' minutes", 300 * SECOND),
        ("500 microseconds", 500),
        ("10min", 600 * SECOND),
        ("1.5 hours", 5400 * SECOND),
        (".5 s", 500_000),
        ("-5 minutes", -300 * SECOND),
        ("- 5 minutes", -300 * SECOND),
        ("  2  S ", 2 * SECOND),
        (17, 17),
        (timedelta(minutes=1, microseconds=3), 60_000_003),
    ],
)
def test_a_duration_is_read(text: Any, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5 minuts", "unknown unit minuts; did you mean minutes?"),
        ("1 month", "a month has no fixed length; use days or weeks"),
        ("2 years", "a year has no fixed length"),
        ("12", "'12' has no unit; did you mean '12 seconds'?"),
        ("soon", "'soon' is not a duration"),
        ("", "'' is not a duration"),
        ("0.1 microseconds", "finer than a microsecond"),
        ("5 minutes later", "is not a duration"),
        (f"{'9' * 1_000_000} days", "has 1,000,000 digits; no stream is that long"),
        (True, "True is not a duration"),
        (None, "None is not a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_reason(text: Any, said: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_duration(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01 00:01", 60 * SECOND),
        ("1970-01-01T00:00:06.5", 6_500_000),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01 02:00+02:00", 0),
        ("1969-12-31 22:00:00-02:00", 0),
        ("1969-12-31 23:59:59.999999", -1),
        ("2013-01-01 12:05", 1_357_041_900 * SECOND),
        (date(1970, 1, 2), 86_400 * SECOND),
        (datetime(1970, 1, 1, 0, 0, 1), SECOND),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (42, 42),
    ],
)
def test_an_instant_is_read_in_utc(value: Any, microseconds: int) -> None:
    assert parse_instant(value) == microseconds


@pytest.mark.parametrize(
    ("value", "zone", "utc"),
    [
        ("2013-01-01 12:00", "America/New_York", "2013-01-01 17:00"),
        ("2013-07-01 12:00", "America/New_York", "2013-07-01 16:00"),
        ("2013-01-01 12:00", "Asia/Kolkata", "2013-01-01 06:30"),
        ("2013-01-01 12:00", "+02:00", "2013-01-01 10:00"),
        ("2013-01-01 12:00", "GMT-8", "2013-01-01 20:00"),
        ("2013-01-01 12:00Z", "America/New_York", "2013-01-01 12:00"),
        ("2013-01-01 12:00+01:00", "America/New_York", "2013-01-01 11:00"),
        ("2013-01-01", "America/New_York", "2013-01-01 05:00"),
        (date(2013, 1, 1), "America/New_York", "2013-01-01 05:00"),
        (datetime(2013, 1, 1, 12), "America/New_York", "2013-01-01 17:00"),
        ("2024-03-31 02:30", "Europe/Berlin", "2024-03-31 01:30"),  # skipped: an hour later
        ("2024-10-27 02:30", "Europe/Berlin", "2024-10-27 00:30"),  # shown twice: the first
        ("0001-01-01 00:00", "Asia/Kolkata", "0001-01-01 00:00"),
    ],
)
def test_an_instant_without_an_offset_is_in_a_zone(value: Any, zone: str, utc: str) -> None:
    away = (
        0 if not str(value).startswith("0001") else (5 * 3_600 + 53 * 60 + 28) * SECOND
    )  # before the first rules
    assert parse_instant(value, zone) == parse_instant(utc) - away


def test_an_unknown_zone_is_refused_by_name() -> None:
    with pytest.raises(
        SettingError, match="the time zone 'Mars/Olympus' is not known: write times with an offset"
    ):
        parse_instant("2013-01-01", "Mars/Olympus")


@pytest.mark.parametrize(
    "value",
    ["yesterday", "2013-13-01", "2013-01-01 25:00", "12:05", 1.5, True, None, "2013-01-01 12:00+99:00"],
)
def test_what_is_no_instant_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingError, match="is not a time") as refused:
        parse_instant(value)
    assert repr(value) in str(refused.value)


def test_instants_beyond_the_calendar_are_still_shown() -> None:
    assert format_instant(2**62) == f"{2**62} microseconds"


@given(st.integers(-(10**15), 10**15))
def test_what_is_written_reads_back(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds
    assert parse_instant(format_instant(microseconds)) == microseconds
