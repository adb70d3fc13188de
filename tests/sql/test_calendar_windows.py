"""Cumulative windows, and windows in a time zone: how they are written, and what is refused."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.durations import DAY, HOUR, MINUTE
from transom.elements import Calendar, CalendarLength, ClockKind, WindowSpec
from transom.errors import SQLError
from transom.plan.explain.element_text import window_text
from transom.sql import bind, bind_one

BERLIN = "IN TIME ZONE 'Europe/Berlin'"
ONE_DAY, ONE_WEEK, ONE_MONTH = CalendarLength(days=1), CalendarLength(days=7), CalendarLength(months=1)
MONDAY = 4 * DAY


def following(
    *lengths: CalendarLength | None, origin: int = 0, grows: bool = False, step: int | None = None
) -> WindowSpec:
    return WindowSpec.following(
        Calendar("Europe/Berlin", lengths[0] or ONE_DAY, lengths[1], origin), grows, step
    )


@pytest.mark.parametrize(
    ("bracket", "spec", "text"),
    [
        ("[RANGE UP TO 1 day SLIDE 1 minute]", WindowSpec.cumulative(DAY, MINUTE), "range up to 1 day, slide 1 minute"),
        ("[SLIDE '1 minute', RANGE = up to '1 day']", WindowSpec.cumulative(DAY, MINUTE), "range up to 1 day, slide 1 minute"),
        ("[RANGE UP TO 1 day SLIDE 1 hour ORIGIN 6 hours]", WindowSpec.cumulative(DAY, HOUR, 6 * HOUR), "range up to 1 day, slide 1 hour, starts 6 hours past each range"),
        ("[RANGE UP TO 100 SLIDE 10 WATTR volume]", WindowSpec.cumulative(100, 10), "range up to 1 day"),
        ("[ROWS UP TO 100 SLIDE 10]", WindowSpec.cumulative(100, 10), "range up to 1 day"),
        (f"[RANGE 1 month SLIDE 1 month {BERLIN}]", following(ONE_MONTH, ONE_MONTH), "range 1 month, slide 1 month in Europe/Berlin"),
        (f"[{BERLIN} RANGE '7 days', SLIDE 1 day]", following(ONE_WEEK, ONE_DAY), "range 7 days, slide 1 day in Europe/Berlin"),
        (f"[RANGE 1 week SLIDE 1 week {BERLIN}]", following(ONE_WEEK, ONE_WEEK, origin=MONDAY), "range 7 days, slide 7 days in Europe/Berlin, origin 1970-01-05 00:00:00"),
        (f"[RANGE 1 quarter SLIDE 1 year 6 months {BERLIN}]", following(CalendarLength(months=3), CalendarLength(months=18)), "range 3 months, slide 18 months in Europe/Berlin"),
        (f"[RANGE 1 day SLIDE 1 day ORIGIN 6 hours {BERLIN}]", following(ONE_DAY, ONE_DAY, origin=6 * HOUR), "range 1 day, slide 1 day in Europe/Berlin, origin 1970-01-01 06:00:00"),
        (f"[RANGE 1 month SLIDE 1 month ORIGIN DATE '1970-02-15' {BERLIN}]", following(ONE_MONTH, ONE_MONTH, origin=45 * DAY), "range 1 month, slide 1 month in Europe/Berlin, origin 1970-02-15 00:00:00"),
        (f"[RANGE UP TO 1 day SLIDE 1 minute {BERLIN}]", following(ONE_DAY, None, grows=True, step=MINUTE), "range up to 1 day, slide 1 minute in Europe/Berlin"),
        (f"[RANGE UP TO 1 month SLIDE 1 day {BERLIN}]", following(ONE_MONTH, ONE_DAY, grows=True), "range up to 1 month, slide 1 day in Europe/Berlin"),
        (f"[RANGE UP TO 1 week SLIDE 1 hour {BERLIN}]", following(ONE_WEEK, None, origin=MONDAY, grows=True, step=HOUR), "range up to 7 days, slide 1 hour in Europe/Berlin, origin 1970-01-05 00:00:00"),
    ],
)  # fmt: skip
def test_every_window_can_be_written(bracket: str, spec: WindowSpec, text: str) -> None:
    assert bound(f"SELECT count(*) FROM Trades {bracket}").window == spec
    if "WATTR" not in bracket and "ROWS" not in bracket:
        assert window_text(spec, ClockKind.TIME) == text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT LAG(count(*)) OVER WINDOWS AS n FROM Trades [RANGE UP TO 1 day SLIDE 1 hour {BERLIN}]", "LAG is not supported for cumulative windows in a time zone"),
        (f"SELECT count(*) AS n FROM Trades [RANGE UP TO 1 day SLIDE 1 hour {BERLIN}] EMIT EMPTY", "EMIT EMPTY is not supported for cumulative windows in a time zone"),
    ],
)  # fmt: skip
def test_windows_of_unequal_days_have_no_window_before_them(query: str, message: str) -> None:
    with pytest.raises(SQLError, match=message):
        bound(query)
    for other in (query.replace("UP TO ", "").replace("1 hour", "1 day"), query.replace(BERLIN, "")):
        bound(other)


def test_a_column_without_a_zone_has_calendar_windows_of_utc() -> None:
    for column in ("local", "day"):
        query = bound(
            f"SELECT count(*) FROM Trades [RANGE 1 month SLIDE 1 month WATTR {column} IN TIME ZONE 'UTC']"
        )
        assert query.window.calendar == Calendar("UTC", ONE_MONTH, ONE_MONTH)


def test_queries_that_differ_in_lengths_only_are_read_once() -> None:
    for text in (f"[RANGE # days SLIDE # days {BERLIN}]", "[RANGE UP TO #0 minutes SLIDE # minutes]"):
        texts = {
            length: f"SELECT count(*) FROM Trades {text}".replace("#", length) for length in ("1", "2", "30")
        }
        assert bind(texts, CATALOG, Rules()) == {name: bound(one) for name, one in texts.items()}


@pytest.mark.parametrize(
    ("bracket", "message", "place"),
    [
        ("[RANGE 1 month SLIDE 1 month]", "RANGE: a month has no fixed length; add IN TIME ZONE, as in", "1 month"),
        ("[RANGE 1 day SLIDE 1 year]", "SLIDE: a month has no fixed length", "1 year"),
        ("[RANGE UP TO 1 day]", "UP TO needs SLIDE", "UP TO 1 day"),
        ("[RANGE UP TO 1 day SLIDE 7 hours]", "must be a multiple of SLIDE", "UP TO 1 day"),
        ("[ROWS UP TO 10 SLIDE 3]", "must be a multiple of SLIDE", "UP TO 10"),
        ("[RANGE 1 month IN TIME ZONE 'UTC']", "IN TIME ZONE needs SLIDE", "'UTC'"),
        ("[ROWS 10 SLIDE 10 IN TIME ZONE 'UTC']", "IN TIME ZONE needs a window over time", "'UTC'"),
        ("[RANGE 10 SLIDE 10 WATTR volume IN TIME ZONE 'UTC']", "IN TIME ZONE needs a window over time", "'UTC'"),
        ("[RANGE 1 day SLIDE 1 day IN TIME ZONE 'Europe/Berlim']", "unknown time zone 'Europe/Berlim'; did you mean Europe/Berlin?", "'Europe/Berlim'"),
        ("[RANGE 1 day SLIDE 1 day IN TIME ZONE '+02:00']", "write a region like 'Europe/Berlin'", "'+02:00'"),
        ("[RANGE 1 day SLIDE 1 day IN TIME ZONE '../UTC']", "unknown time zone", "'../UTC'"),
        ("[RANGE 1 day SLIDE 1 day IN TIME ZONE]", "IN TIME ZONE needs the name of a zone in quotes", "IN TIME ZONE"),
        ("[RANGE 1 day SLIDE 1 day IN TIME ZONE UTC]", "IN TIME ZONE needs the name of a zone in quotes", "IN TIME ZONE"),
        ("[IN TIME ZONE 'UTC' RANGE 1 day SLIDE 1 day IN TIME ZONE 'UTC']", "IN TIME ZONE is given twice", "IN TIME ZONE"),
        ("[RANGE 1 month SLIDE 1 month WATTR local IN TIME ZONE 'Europe/Berlin']", "can only be IN TIME ZONE 'UTC'", "'Europe/Berlin'"),
        (f"[RANGE 36 hours SLIDE 1 day {BERLIN}]", "RANGE in a time zone: '36 hours' is not a whole number of days, weeks", "36 hours"),
        (f"[RANGE 1 day SLIDE 1 hour {BERLIN}]", "SLIDE in a time zone: '1 hour' is not a whole number of days", "1 hour"),
        (f"[RANGE 1.5 days SLIDE 1 day {BERLIN}]", "is not a whole number of days", "1.5 days"),
        (f"[RANGE 0 days SLIDE 1 day {BERLIN}]", "RANGE must be positive", "0 days"),
        (f"[RANGE 1 month 2 days SLIDE 1 day {BERLIN}]", "has months and days", "1 month 2 days"),
        (f"[RANGE 99999999999 months SLIDE 1 day {BERLIN}]", "RANGE is longer than any stream", "99999999999 months"),
        (f"[RANGE UP TO 1 day SLIDE 7 hours {BERLIN}]", "SLIDE of cumulative windows must divide a day", "7 hours"),
        (f"[RANGE UP TO 1 year SLIDE 5 months {BERLIN}]", "cumulative windows must be a multiple of SLIDE", "UP TO 1 year"),
        (f"[RANGE UP TO 1 week SLIDE 2 days {BERLIN}]", "must be a multiple of SLIDE", "UP TO 1 week"),
        (f"[RANGE UP TO 1 month SLIDE 5 weeks {BERLIN}]", "SLIDE is longer than the shortest range", "5 weeks"),
        (f"[RANGE 1 month SLIDE 1 month ORIGIN '2024-01-31' {BERLIN}]", "one of the first 28 days", "'2024-01-31'"),
        (f"[RANGE 1 day SLIDE 1 day ORIGIN '2024-01-31 06:00Z' {BERLIN}]", "leave out the offset", "'2024-01-31 06:00Z'"),
        (f"[RANGE 1 day SLIDE 1 day ORIGIN noon {BERLIN}]", "ORIGIN is a time or a duration", "noon"),
    ],
)  # fmt: skip
def test_a_wrong_window_is_pointed_at(bracket: str, message: str, place: str) -> None:
    text = f"SELECT count(*) FROM Trades {bracket}"
    with pytest.raises(SQLError) as refused:
        bind_one(text, CATALOG, Rules())
    error = refused.value
    assert message in error.message
    assert error.start is not None and place in text[error.start : error.end]
