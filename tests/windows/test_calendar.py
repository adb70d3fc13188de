"""Cumulative and calendar windows: drawn days on which clocks change, and the rest against the oracle."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import numpy as np
import pytest

from transom.durations import DAY, HOUR
from transom.elements import Calendar, CalendarLength, WindowSpec
from transom.oracle.calendar_windows import last_end
from transom.oracle.window_close import windows_of
from transom.windows import ids
from transom.windows.calendar import LocalDays
from transom.windows.slices import count_edges, next_edges, progressions

ONE_DAY, ONE_MONTH = CalendarLength(days=1), CalendarLength(months=1)


def at(text: str) -> int:
    """Microseconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def window_around(spec: WindowSpec, time: str) -> list[tuple[str, str]]:
    wids = np.arange(ids.wid_from(spec, at(time)), ids.wid_to(spec, at(time)) + 1)
    bounds = zip(ids.window_start(spec, wids).tolist(), ids.window_end(spec, wids).tolist(), strict=True)
    shown = [tuple(datetime.fromtimestamp(one / 1e6, UTC) for one in pair) for pair in bounds]
    return [(f"{start:%m-%d %H:%M}", f"{end:%m-%d %H:%M}") for start, end in shown]


# A day of a zone begins when its clocks first show midnight, or skip it. Times are in UTC.
@pytest.mark.parametrize(
    ("zone", "time", "start", "end"),
    [
        ("Europe/Berlin", "2024-03-31 12:00", "03-30 23:00", "03-31 22:00"),  # 23 hours
        ("Europe/Berlin", "2024-10-27 12:00", "10-26 22:00", "10-27 23:00"),  # 25 hours
        ("America/New_York", "2024-03-10 12:00", "03-10 05:00", "03-11 04:00"),
        ("America/New_York", "2024-11-03 12:00", "11-03 04:00", "11-04 05:00"),
        ("Asia/Kolkata", "2024-03-31 12:00", "03-30 18:30", "03-31 18:30"),
        ("Australia/Lord_Howe", "2024-04-06 16:00", "04-06 13:00", "04-07 13:30"),  # half an hour more
        ("America/Sao_Paulo", "2018-11-04 12:00", "11-04 03:00", "11-05 02:00"),  # midnight is skipped
        ("America/Havana", "2024-11-03 12:00", "11-03 04:00", "11-04 05:00"),  # midnight comes twice
        (
            "Pacific/Apia",
            "2011-12-30 12:00",
            "12-30 10:00",
            "12-31 10:00",
        ),  # the 30th is skipped: this is the 31st
        ("UTC", "2024-03-31 12:00", "03-31 00:00", "04-01 00:00"),
    ],
)
def test_a_day_begins_at_its_first_moment(zone: str, time: str, start: str, end: str) -> None:
    spec = WindowSpec.following(Calendar(zone, ONE_DAY, ONE_DAY))
    assert (start, end) in window_around(spec, time)


@pytest.mark.parametrize(
    ("length", "slide", "origin", "time", "windows"),
    [
        (ONE_MONTH, ONE_MONTH, 0, "2024-03-31 12:00", [("02-29 23:00", "03-31 22:00")]),
        (CalendarLength(days=7), CalendarLength(days=7), 4 * DAY, "2024-03-31 12:00", [("03-24 23:00", "03-31 22:00")]),
        (CalendarLength(months=3), CalendarLength(months=3), 0, "2024-02-03 00:00", [("12-31 23:00", "03-31 22:00")]),
        (ONE_MONTH, ONE_MONTH, 14 * DAY, "2024-03-14 23:30", [("03-14 23:00", "04-14 22:00")]),
        (ONE_DAY, ONE_DAY, 6 * HOUR, "2024-03-31 03:59", [("03-30 05:00", "03-31 04:00")]),
    ],
)  # fmt: skip
def test_weeks_months_and_origins_in_berlin(
    length: CalendarLength, slide: CalendarLength, origin: int, time: str, windows: list[tuple[str, str]]
) -> None:
    spec = WindowSpec.following(Calendar("Europe/Berlin", length, slide, origin))
    assert window_around(spec, time) == windows


def test_a_month_before_the_last_days_of_march_is_the_end_of_february() -> None:
    spec = WindowSpec.following(Calendar("UTC", ONE_MONTH, ONE_DAY))
    found = dict(pair[::-1] for pair in window_around(spec, "2024-02-29 12:00"))
    assert [found[f"03-{day} 00:00"] for day in (28, 29, 30, 31)] == ["02-28 00:00"] + ["02-29 00:00"] * 3


#  RANGE UP TO 60 SLIDE 20, ORIGIN 10     10    30    50    70    90
#                                         [-----)
#                                         [-----------)
#                                         [-----------------)
#                                                           [-----)
def test_windows_that_grow_start_together() -> None:
    spec = WindowSpec.cumulative(60, 20, 10)
    wids = np.arange(4)
    assert ids.window_start(spec, wids).tolist() == [10, 10, 10, 70]
    assert ids.window_end(spec, wids).tolist() == [30, 50, 70, 90]
    assert (ids.wid_from(spec, 35), ids.wid_to(spec, 35), ids.first_starting(spec, 35)) == (1, 2, 3)


def test_since_local_midnight_on_the_day_that_summer_time_begins() -> None:
    spec = WindowSpec.following(Calendar("Europe/Berlin", ONE_DAY, None), True, 8 * HOUR)
    assert window_around(spec, "2024-03-31 00:00") == [
        ("03-30 23:00", "03-31 07:00"),
        ("03-30 23:00", "03-31 15:00"),
        ("03-30 23:00", "03-31 22:00"),  # seven hours: the day has 23
    ]


LENGTHS = [*(CalendarLength(days=n) for n in (1, 2, 3, 7)), *(CalendarLength(months=n) for n in (1, 3, 12))]
GROWING = [(ONE_MONTH, ONE_DAY), (CalendarLength(days=6), CalendarLength(days=2)), (LENGTHS[-1], LENGTHS[-2])]
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo",
         "Pacific/Apia", "America/St_Johns", "UTC"]  # fmt: skip
TIMES = ["2024-03-29", "2024-10-25", "2011-12-28", "1999-10-29", "2018-11-02", "2024-02-27", "1969-12-30"]


def drawn(rng: Random) -> WindowSpec:
    """Cumulative windows, or calendar windows."""
    zone, origin = rng.choice(ZONES), rng.choice([0, 0, 4 * DAY, 14 * DAY, 6 * HOUR, 40 * DAY + 5 * HOUR])
    kind = rng.randrange(6)
    if kind == 0:
        step = rng.choice([1, 2, 5]) * HOUR
        return WindowSpec.cumulative(step * rng.randrange(1, 9), step, rng.randrange(-30, 30) * HOUR)
    if kind == 1:
        return WindowSpec.following(
            Calendar(zone, rng.choice(LENGTHS), None, origin), True, rng.choice([HOUR, 8 * HOUR])
        )
    if kind == 2:
        return WindowSpec.following(Calendar(zone, *rng.choice(GROWING), origin), True)
    return WindowSpec.following(Calendar(zone, rng.choice(LENGTHS), rng.choice(LENGTHS), origin))


def test_ids_and_edges_are_those_of_an_enumeration(seed: int) -> None:
    rng = Random(seed)
    for _ in range(25):
        spec, first = drawn(rng), at(rng.choice(TIMES))
        cut = progressions([[spec]])
        for _ in range(4):
            time = first + rng.randrange(96) * HOUR + rng.choice([0, HOUR // 2, -1, 1, HOUR // 60])
            low, high = ids.wid_from(spec, time), ids.wid_to(spec, time)
            wids = np.arange(low, high + 1)
            starts, ends = ids.window_start(spec, wids), ids.window_end(spec, wids)
            there = starts < ends  # short periods have windows without any time
            windows = list(zip(starts[there].tolist(), ends[there].tolist(), strict=True))
            assert sorted(windows) == sorted(windows_of(time, spec)), (seed, spec, time)
            assert windows or ids.has_gaps(spec)
            starts_by_end = {
                end: start for start, end in reversed(windows)
            }  # windows before a skipped day end with it
            assert {end: ids.start_of(spec, end) for end in starts_by_end} == starts_by_end
            later = ids.first_starting(spec, time)
            assert ids.window_start(spec, later - 1) < time <= ids.window_start(spec, later)
            both = ids.WindowSpecs.of([WindowSpec(60, 20), spec, spec])
            assert ids.wid_from(both, np.array(time))[1:].tolist() == [low, low]
            assert ids.wid_to(both, np.array([time] * 3))[1:].tolist() == [high, high]
            assert ids.wid_to(both, np.array([time] * 3))[0] == ids.wid_to(WindowSpec(60, 20), time)
            if spec.calendar is not None:
                assert ids.window_end(spec, ids.last_ended(spec, time)) == last_end(time, spec)
            before, after = cut.around(np.array([time]))
            assert before[0] <= time < after[0] and next_edges(cut, time, 1) == after.tolist()
            assert (
                cut.before(time, 1).tolist() == before.tolist()
                and cut.after(time, 1).tolist() == after.tolist()
            )
            edges = np.unique(cut.between(int(before[0]) - 1, int(after[0]))[1])
            assert edges.tolist() == [before[0], after[0]]
            assert count_edges(cut, int(before[0]) - 1, int(after[0]), 10**9) == 2


@pytest.mark.parametrize("point", [0.25, 0.5, 1.0])
def test_a_mark_lies_in_the_last_slide_of_a_window_whatever_its_length(point: float) -> None:
    spec = WindowSpec.following(Calendar("Europe/Berlin", ONE_DAY, ONE_DAY))
    start, end = at("2024-03-30 23:00"), at("2024-03-31 22:00")
    wid = ids.wid_from(spec, start)
    mark = start + round(point * (end - start))
    assert ids.wid_by_mark(spec, point, mark - 1) == wid and ids.wid_by_mark(spec, point, mark) == wid + 1


def test_times_and_numbers_beyond_all_years_are_cut_off() -> None:
    spec = WindowSpec.following(Calendar("Europe/Berlin", ONE_DAY, ONE_DAY))
    wids = ids.wid_from(spec, np.array([-(2**62), 0, 2**62]))
    assert np.all(np.diff(wids) > 0) and np.all(
        np.diff(ids.window_end(spec, np.array([-(2**62), 0, 2**62]))) > 0
    )
    assert len(LocalDays("UTC").instants(np.array([], np.int64))) == 0
