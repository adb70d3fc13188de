"""Lookups of past windows: what they answer from, what is refused, and what a user sees."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import bids_files
from tests.runtime.test_backfill import PER_MINUTE, SCHEMA, START, opened, push
from transom import SettingError
from transom.plan.limits import Limits
from transom.runtime.engine import Engine


def rows_of(answer: Any) -> list[dict[str, Any]]:
    hidden = {"complete", "batch", "made", "window_start", "window_end"}
    return [{name: row[name] for name in row if name not in hidden} for row in answer.to_pylist()]


def source(answer: Any) -> str:
    return (answer.schema.metadata or {})[b"stores"].decode()


@pytest.fixture
def engine(make_engine: EngineFactory) -> Engine:
    """Two rows a minute of five sites, for five minutes."""
    engine, feed = opened(make_engine)
    for minute in range(5):
        times = [START + timedelta(minutes=minute, seconds=second) for second in (10, 40)]
        feed.push([{"site": minute, "price": float(minute), "ts": time} for time in times])
        engine.step(1)
    return engine


def test_a_closed_window_of_a_registered_query_is_looked_up(engine: Engine) -> None:
    query = engine.register(PER_MINUTE, "minutes")
    engine.step()
    answer = query.lookup(at="2013-01-01 12:02:30")
    assert rows_of(answer) == [{"n": 2, "total": 2.0}]
    (row,) = answer.to_pylist()
    assert (row["window_start"], row["window_end"]) == (
        START + timedelta(minutes=1),
        START + timedelta(minutes=2),
    )
    assert source(answer) == "retained rows of bids: 2 of 1 file"
    assert rows_of(query.lookup(at="100 seconds ago")) == [{"n": 2, "total": 4.0}]
    with pytest.raises(SettingError, match="is still open: prod the query"):
        query.lookup(at="2013-01-01 12:05")
    with pytest.raises(SettingError, match="without range"):
        query.lookup("30 seconds", at="2013-01-01 12:02")


def test_a_query_that_nobody_keeps_is_looked_up(engine: Engine) -> None:
    text = "SELECT site, max(price) AS top FROM bids [RANGE 2 minutes] GROUP BY site"
    assert rows_of(engine.lookup(text)) == [{"site": 3, "top": 3.0}, {"site": 4, "top": 4.0}]
    past = engine.lookup(f"{text} AS OF '2013-01-01 12:02:00'")
    assert rows_of(past) == [{"site": 0, "top": 0.0}, {"site": 1, "top": 1.0}]
    assert rows_of(engine.lookup(text, at="2013-01-01 12:02:00", where={"site": [1, 7]})) == [
        {"site": 1, "top": 1.0}
    ]
    first = engine.lookup(f"{text} ORDER BY top DESC LIMIT 1 AS OF '2013-01-01 12:02:00'")
    assert rows_of(first) == [{"site": 1, "top": 1.0}]
    assert rows_of(engine.lookup(text, at="2012-12-31")) == []


def test_a_query_that_waits_for_its_first_batch_is_looked_up(engine: Engine) -> None:
    """Its answers are those of its text."""
    text = "SELECT site, max(price) AS top FROM bids [RANGE 2 minutes] GROUP BY site"
    tops = engine.register(text, "tops")
    minutes = engine.register(PER_MINUTE, "minutes")
    assert rows_of(tops.lookup()) == [{"site": 3, "top": 3.0}, {"site": 4, "top": 4.0}]
    assert rows_of(tops.lookup("1 minute")) == [{"site": 4, "top": 4.0}]
    for moment in ("2013-01-01 12:02", "2012-12-31", "3 minutes ago"):
        assert rows_of(tops.lookup(at=moment)) == rows_of(engine.lookup(text, at=moment))
    assert rows_of(minutes.lookup(at="2013-01-01 12:02:30")) == [{"n": 2, "total": 2.0}]
    for query, length, moment, says in [
        (tops, None, "1 hour", "is not a time"),
        (tops, "1 hour", None, "for 2 minutes or less"),
        (minutes, None, "2013-01-01 12:05", "is still open"),
    ]:
        with pytest.raises(SettingError, match=says):
            query.lookup(length, at=moment)
    with pytest.raises(SettingError, match="BACKFILL is for queries that are registered"):
        engine.lookup(f"{text} BACKFILL")


def test_stores_answer_where_they_reach(engine: Engine) -> None:
    text = "SELECT count(*) AS n FROM bids [RANGE 2 minutes]"
    query = engine.register(text, "kept")
    engine.step()
    whole = query.lookup()
    assert rows_of(whole) == [{"n": 4}] and whole["complete"].to_pylist() == [True]
    assert source(whole).startswith("retained rows"), "the store has seen no row yet"
    for minute in (7, 9):
        engine.push("bids", [{"site": 1, "price": 1.0, "ts": START + timedelta(minutes=minute)}])
        engine.step()
    assert query.lookup().schema.metadata is None
    assert rows_of(query.lookup(at="2013-01-01 12:04")) == [{"n": 4}]
    assert rows_of(query.lookup("30 seconds", at="2013-01-01 12:04")) == [{"n": 1}]
    assert rows_of(query.lookup("30 seconds", at="2013-01-01 12:20")) == []


def test_bounds_of_a_past_window_are_exact(engine: Engine) -> None:
    text = "SELECT avg(price) AS mean, count(*) AS n FROM bids [RANGE 3 minutes] WITHIN 5% AS OF '2013-01-01 12:03'"
    (row,) = rows_of(engine.lookup(text))
    assert row == {"mean": 1.0, "mean_low": 1.0, "mean_high": 1.0, "n": 6, "n_low": 6, "n_high": 6}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]", "look up a past window of it"),
        ("SELECT count(*) AS n FROM bids [SESSION 1 minute] AS OF '2013-01-01 12:02'", "of any length"),
        ("SELECT max(price) AS m FROM bids [ROWS 5] AS OF '2013-01-01 12:02'", "windows of rows"),
        ("SELECT site FROM bids", "without a window"),
        ("SELECT max(price) AS m FROM others [RANGE 1 minute] AS OF '2013-01-01 12:02'", "retains no rows"),
        ("SELECT max(price) AS m FROM bids [RANGE 1 minute] AS OF 'noon'", "noon"),
        ("SELECT max(price) AS m FROM bids [RANGE 1 minute] AS OF 5.5", "whole number"),
    ],
)
def test_what_has_no_past_window_is_refused(engine: Engine, sql: str, reason: str) -> None:
    others = engine.feed("others", SCHEMA, time="ts")
    others.push([{"site": 1, "price": 1.0, "ts": START + timedelta(minutes=9)}])
    engine.step()
    with pytest.raises(ValueError, match=reason):
        engine.lookup(sql)


@pytest.mark.parametrize(
    "at",
    [
        "999999999 days ago",
        "800000 days ago",
        "-999999999 days ago",
        f"{10**20} days ago",
        timedelta.max,
        timedelta.min,
    ],
)
def test_a_time_beyond_the_calendar_is_refused(engine: Engine, at: Any) -> None:
    text = "SELECT count(*) AS n FROM bids [RANGE 1 minute]"
    query = engine.register(PER_MINUTE, "minutes")
    engine.step()
    for lookup in (query.lookup, lambda at: engine.lookup(text, at=at)):
        with pytest.raises(SettingError, match="is not in the years 1 to 9999"):
            lookup(at=at)
    with pytest.raises(SettingError, match="is not in the years 1 to 9999"):
        engine.register(PER_MINUTE, "late", since=at)


def test_a_part_of_a_number_is_no_group(engine: Engine) -> None:
    text = "SELECT site, count(*) AS n FROM bids [RANGE 1 hour] GROUP BY site"
    assert rows_of(engine.lookup(text, at="12 seconds ago", where={"site": 1.0})) == [{"site": 1, "n": 2}]
    for value in (1.5, [1, 1.5], float("nan"), 2**70):
        with pytest.raises(SettingError, match="site can't be"):
            engine.lookup(text, at="12 seconds ago", where={"site": value})


def test_as_of_and_at_exclude_each_other(engine: Engine) -> None:
    with pytest.raises(SettingError, match="leave at out"):
        engine.lookup("SELECT max(price) AS m FROM bids [RANGE 1 minute] AS OF '2013-01-01'", at="2013-01-01")


def test_a_window_with_deleted_rows_is_refused(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine, retain="5 minutes")
    for second in (10, 70, 400):
        push(engine, feed, second)
    text = "SELECT count(*) AS n FROM bids [RANGE 1 minute]"
    with pytest.raises(SettingError, match="does not retain all rows from before"):
        engine.lookup(text, at="2013-01-01 12:01")
    assert rows_of(engine.lookup(text, at="2013-01-01 12:06:41")) == [{"n": 1}]


def test_rows_from_before_a_stream_retained_any_are_known_to_be_missing(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place, retain=None)
    push(engine, feed, 1)
    engine.stop()
    engine, feed = opened(make_engine, place)
    with pytest.raises(SettingError, match="does not retain all rows"):
        engine.lookup("SELECT count(*) AS n FROM bids [RANGE 1 minute]", at="2013-01-01 12:00:30")
    query = engine.register(PER_MINUTE, since=START)
    engine.step()  # it catches up with a log of no batches
    push(engine, feed, 30, 70, 130)
    assert [row["n"] for row in query.results().to_pylist()] == [1], "not the window with the first row"


def test_a_lookup_reads_at_most_so_many_rows(make_engine: EngineFactory) -> None:
    engine = make_engine(None, limits=Limits(lookup_rows=3))
    feed = engine.feed("bids", SCHEMA, time="ts", retain="1 hour")
    for second in (10, 70):
        push(engine, feed, second, second + 1)
    text = "SELECT count(*) AS n FROM bids [RANGE {}] AS OF '2013-01-01 12:02'"
    with pytest.raises(SettingError, match="would read 4 retained rows, and the limit is 3"):
        engine.lookup(text.format("2 minutes"))
    assert rows_of(engine.lookup(text.format("1 minute"))) == [{"n": 2}]


def test_columns_that_rows_did_not_have_are_null(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    engine = make_engine(place)
    feed = engine.feed("bids", SCHEMA, time="ts", retain="1 hour")
    push(engine, feed, 10)
    engine.stop()
    engine = make_engine(place)
    engine.feed("bids", "site int, price double, ts timestamp, kind string", time="ts", retain="1 hour")
    text = "SELECT count(*) AS n, count(kind) AS kinds FROM bids [RANGE 1 minute] AS OF '2013-01-01 12:01'"
    assert rows_of(engine.lookup(text)) == [{"n": 1, "kinds": 0}]


@ON_BOTH
@pytest.mark.parametrize("pushed_rows", [0, 50_000])
def test_rows_of_files_are_looked_up(make_engine: EngineFactory, tmp_path: Path, pushed_rows: int) -> None:
    rows = [[(1, 1.0, f"12:{minute:02d}:10"), (2, 2.0, f"12:{minute:02d}:20")] for minute in range(4)]
    bids_files(tmp_path / "in", *rows)
    engine = make_engine(str(tmp_path / "checkpoint"), limits=Limits(pushed_rows=pushed_rows))
    engine.stream("bids", str(tmp_path / "in"), time="ts", retain="1 day")
    engine.step()
    text = "SELECT site, sum(price) AS total FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
    assert rows_of(engine.lookup(f"{text} AS OF '2013-01-01 12:02'")) == [
        {"site": 1, "total": 2.0},
        {"site": 2, "total": 4.0},
    ]
