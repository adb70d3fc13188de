"""Retained rows, and queries that ask for the past: what is kept, what is refused, and what a user sees."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import bids_files
from transom import CheckpointError, SettingError, TransomError
from transom.plan.limits import Limits
from transom.runtime import batch_replay, row_history
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed

SCHEMA = "site int, price double, ts timestamp"
START = datetime(2013, 1, 1, 12, tzinfo=UTC)
PER_MINUTE = "SELECT count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute]"


def opened(make_engine: EngineFactory, place: Path | None = None, **stream: Any) -> tuple[Engine, Feed]:
    engine = make_engine(None if place is None else str(place), limits=Limits(backfill_share=0.0))
    return engine, engine.feed("bids", SCHEMA, **{"time": "ts", "retain": "1 hour", **stream})


def push(engine: Engine, feed: Feed, *seconds: float) -> None:
    """Run a batch of rows at some seconds."""
    feed.push([{"site": 1, "price": 0.5, "ts": START + timedelta(seconds=second)} for second in seconds])
    engine.step(1)


def merge(engine: Engine) -> None:
    """Merge retained rows as an engine does that has nothing else to do: each commit lists what was merged before."""
    for _ in range(4):
        while engine._loop.tend_history():
            pass
        engine.step(1, empty=True)


def counts(query: Any) -> dict[int, int]:
    """The number of rows of each window, by its start in seconds."""
    return {
        int((row["window_start"] - START).total_seconds()): row["n"]
        for row in query.results().to_pylist()
        if row["kind"] == "final"
    }


def rows_retained(engine: Engine) -> int:
    return sum(file.rows for file in engine._loop.history.rows.committed["bids"].files)


def test_a_query_with_since_reports_windows_from_before_it_was_registered(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine)
    for second in (10, 70, 130):
        push(engine, feed, second, second + 5)
    plain = engine.register(PER_MINUTE, "plain")
    query = engine.register(PER_MINUTE, "past", since=START)
    engine.step()
    assert counts(query) == {0: 2, 60: 2}, "the windows that closed before, at once"
    push(engine, feed, 190)
    assert counts(query) == {0: 2, 60: 2, 120: 2}, "a window that was open, and its rows from before"
    assert counts(plain) == {}
    assert engine.query("past").backfill is None


@pytest.mark.parametrize(
    ("since", "windows"),
    [
        ("1 hour ago", [0, 60, 120]),
        ("130 seconds ago", [60, 120]),  # the newest row is at 2:55
        ("2013-01-01 12:01:00", [60, 120]),
        (START + timedelta(seconds=61), [120]),
        (timedelta(seconds=130), [60, 120]),
    ],
)
def test_windows_are_reported_that_begin_since_then(
    make_engine: EngineFactory, since: Any, windows: list[int]
) -> None:
    engine, feed = opened(make_engine)
    for second in (10, 70, 130):
        push(engine, feed, second, second + 45)
    query = engine.register(PER_MINUTE, since=since)
    engine.step()
    engine.drain(close=True)
    assert list(counts(query)) == windows


def test_the_progress_of_a_replay_of_all_rows_has_no_start(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine)
    push(engine, feed, 10, 70)
    query = engine.register(f"{PER_MINUTE} BACKFILL")
    push(engine, feed, 310)
    assert query.backfill is not None and query.backfill.since is None


def test_progress_is_shown_while_rows_are_replayed(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine)
    for second in range(0, 300, 30):
        push(engine, feed, second)
    query = engine.register(PER_MINUTE, since=START)
    push(engine, feed, 310)
    progress = query.backfill
    assert progress is not None and progress.share == 0.0 and progress.since is not None
    assert engine._loop.backfill(0.0), "one step"
    progress = query.backfill
    assert progress is not None
    assert 0 < progress.batches <= progress.all_batches == 11
    assert query.results().num_rows == 0
    engine.step()
    assert query.backfill is None
    assert list(counts(query)) == [0, 60, 120, 180, 240]


@pytest.mark.parametrize(
    ("clause", "windows"),
    [
        ("BACKFILL", [0, 60, 120]),
        ("BACKFILL SINCE '130 seconds ago'", [60, 120]),
        ("backfill since '2013-01-01 12:02'", [120]),
        ("EMIT EARLY EVERY '10 seconds' BACKFILL", [0, 60, 120]),
        ("EMIT EARLY AT 50% OF SLIDE BACKFILL SINCE '2 hours ago'", [0, 60, 120]),
    ],
)
def test_a_query_asks_for_the_past_in_its_text(
    make_engine: EngineFactory, clause: str, windows: list[int]
) -> None:
    engine, feed = opened(make_engine)
    for second in (10, 70, 130):
        push(engine, feed, second, second + 45)
    query = engine.register(f"{PER_MINUTE} {clause}")
    engine.step()
    assert list(counts(query)) == windows[:-1]
    engine.drain(close=True)
    assert list(counts(query)) == windows
    assert all(row["complete"] for row in query.results().to_pylist() if row["kind"] == "final")


def test_results_of_the_past_keep_columns_that_are_named_like_system_columns(
    make_engine: EngineFactory,
) -> None:
    engine, feed = opened(make_engine)
    push(engine, feed, 10, 20, 70)
    query = engine.register(
        "SELECT count(*) AS batch, max(price) AS latency FROM bids [RANGE 1 minute SLIDE 1 minute] BACKFILL"
    )
    engine.step()
    (row,) = query.results().to_pylist()
    assert (row["batch"], row["latency"], row["transom_latency"]) == (2, 0.5, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{PER_MINUTE} BACKFILL SINCE", "a time like"),
        (f"{PER_MINUTE} BACKFILL '1 hour ago'", "expected SINCE"),
        (f"{PER_MINUTE} BACKFILL SINCE yesterday", "a time like"),
        (f"{PER_MINUTE} BACKFILL SINCE 1.5", "a whole number"),
        (f"{PER_MINUTE} BACKFILL SINCE '1 hour ago' EMIT EARLY ON DEMAND", "very end"),
        (f"{PER_MINUTE} AS OF '2013-01-01 12:00'", "AS OF is for lookups"),
        ("SELECT site FROM bids WITH PREFERENCE desc price BACKFILL", "can't ask for the past"),
        ("SELECT count(*) AS n FROM (SELECT site, ts FROM bids BACKFILL SINCE '1 hour ago') x", "very end"),
    ],
)
def test_a_past_that_is_not_well_written_is_refused(
    make_engine: EngineFactory, text: str, reason: str
) -> None:
    engine, _ = opened(make_engine)
    with pytest.raises(TransomError, match=reason):
        engine.register(text)


def test_backfill_and_since_exclude_each_other(make_engine: EngineFactory) -> None:
    engine, _ = opened(make_engine)
    with pytest.raises(SettingError, match="leave since out"):
        engine.register(f"{PER_MINUTE} BACKFILL", since="1 hour ago")
    with pytest.raises(SettingError, match="leave partial out"):
        engine.register(f"{PER_MINUTE} BACKFILL", partial=True)


def test_backfill_can_be_a_name(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine)
    text = "SELECT backfill.site AS since, count(*) AS backfill FROM bids backfill [RANGE 1 minute SLIDE 1 minute]"
    query = engine.register(f"{text} GROUP BY backfill.site HAVING backfill > 0")
    push(engine, feed, 10, 70)
    assert query.results()["backfill"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT max(price) AS m FROM bids [ROWS 5 SLIDE 1]", "its windows are of rows"),
        (
            "SELECT max(price) AS m FROM bids [PARTITION BY site ROWS 5 SLIDE 1] GROUP BY site",
            "windows are of rows",
        ),
        ("SELECT max(price) AS m FROM bids [RANGE 1 minute]", "on-demand"),
        ("SELECT site FROM bids WHERE price > 1", "it has no window"),
        (
            "SELECT sum(n) AS n FROM per_minute [RANGE 2 minutes SLIDE 1 minute]",
            "the results of another query",
        ),
        (
            "SELECT count(*) AS n FROM bids a JOIN bids b ON a.site = b.site AND b.ts BETWEEN a.ts AND a.ts + "
            "INTERVAL 1 minute [RANGE 1 minute SLIDE 1 minute]",
            "it joins two streams",
        ),
        ("SELECT count(*) AS n FROM others [RANGE 1 minute SLIDE 1 minute]", "retains no rows"),
    ],
)
def test_queries_that_cannot_ask_for_the_past_are_refused(
    make_engine: EngineFactory, sql: str, reason: str
) -> None:
    engine, _ = opened(make_engine)
    engine.feed("others", SCHEMA, time="ts")
    engine.table("sites", [{"site": 1, "name": "one"}])
    engine.register(PER_MINUTE, "per_minute")
    with pytest.raises(SettingError, match=reason):
        engine.register(sql, since="1 hour ago")


@pytest.mark.parametrize(
    ("since", "says"),
    [
        (24, "ts is a time, and 24 a number without a unit"),
        ("24 hours", "did you mean '24 hours ago'"),
        ("2030-01-01", "'2030-01-01' is after the newest row of bids, 2013-01-01 12:00:10"),
    ],
)
def test_a_time_that_can_not_be_meant(make_engine: EngineFactory, since: Any, says: str) -> None:
    engine, feed = opened(make_engine)
    engine.register(f"{PER_MINUTE} BACKFILL SINCE '2030-01-01'", "before any row")
    push(engine, feed, 10)
    with pytest.raises(SettingError, match=says):
        engine.register(PER_MINUTE, since=since)
    if since != "2030-01-01":
        written = since if isinstance(since, int) else f"'{since}'"
        with pytest.raises(SettingError, match=says):
            engine.register(f"{PER_MINUTE} BACKFILL SINCE {written}")
        with pytest.raises(SettingError, match=says):
            engine.lookup(f"{PER_MINUTE} AS OF {written}")


@pytest.mark.parametrize("since", ["yesterday", "3 ago", "2 parsecs ago"])
def test_a_since_that_is_no_time_is_refused(make_engine: EngineFactory, since: str) -> None:
    engine, feed = opened(make_engine)
    push(engine, feed, 1)
    with pytest.raises(SettingError):
        engine.register(PER_MINUTE, since=since)


def test_since_and_partial_exclude_each_other(make_engine: EngineFactory) -> None:
    engine, _ = opened(make_engine)
    with pytest.raises(SettingError, match="leave partial out"):
        engine.register(PER_MINUTE, since="1 hour ago", partial=True)


@pytest.mark.parametrize("retain", [60, "-1 minute", "a while"])
def test_a_retain_that_is_no_length_is_refused(make_engine: EngineFactory, retain: Any) -> None:
    with pytest.raises(SettingError):
        opened(make_engine, retain=retain)


def test_rows_are_deleted_after_their_time_except_those_that_are_replayed(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 2)
    engine, feed = opened(make_engine, tmp_path / "checkpoint", retain="5 minutes")
    for second in range(0, 600, 10):
        push(engine, feed, second)
    assert 31 <= rows_retained(engine) <= 31 + 8, "five minutes, and the rest of a file"
    query = engine.register(PER_MINUTE, since="5 minutes ago")
    for second in range(600, 1200, 10):
        push(engine, feed, second)
    assert rows_retained(engine) > 90, "the query needs them still"
    engine.step()
    assert next(iter(counts(query))) == 300
    push(engine, feed, 1200)
    assert rows_retained(engine) <= 31 + 8
    push(engine, feed, 1201)  # files are deleted when the next batch is committed
    names = {path.name for path in (tmp_path / "checkpoint" / "history" / "bids").iterdir()}
    assert len(names) < 20, "small files are merged"


def test_a_file_of_many_batches_holds_the_rows_of_all_of_them(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 4)
    engine, feed = opened(make_engine)
    for second in range(64):
        push(engine, feed, second, second)
    batches = [file.batches for file in engine._loop.history.rows.committed["bids"].files]
    assert batches == [16] * 2 + [4] * 7 + [1] * 4, "a busy engine merges what has waited"
    merge(engine)
    [file] = engine._loop.history.rows.committed["bids"].files
    assert (file.first, file.last, file.batches, file.rows) == (1, 64, 64, 128)
    batches, table = engine._loop.history.rows.read(file)
    assert [batch.batch_id for batch in batches] == list(range(1, 65))
    assert table is not None and table.num_rows == 128


def test_files_with_other_types_of_columns_are_merged_among_themselves(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 4)
    for kind, value, batches in (("int", 1, 2), ("string", "one", 8)):
        engine = make_engine(str(tmp_path / "checkpoint"))
        feed = engine.feed("bids", f"site {kind}, ts timestamp", time="ts", retain="1 hour")
        for second in range(batches):
            feed.push([{"site": value, "ts": START + timedelta(seconds=second)}])
            engine.step(1)
        merge(engine)
        engine.stop()
    batches = [file.batches for file in engine._loop.history.rows.committed["bids"].files]
    assert batches == [1, 1, 4, 4]


@pytest.mark.parametrize("largest", [1, 1 << 24], ids=["large batches", "merged batches"])
def test_columns_of_any_type_are_retained(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 4)
    monkeypatch.setattr(row_history, "LARGEST_MERGE", largest)
    engine = make_engine(None)
    schema = (
        "ts timestamp, `a.b` int, tiny tinyint, small smallint, big bigint, day date, price decimal(12, 2), f float, "
        "seen boolean, name string, raw binary, tags array<string>, at struct<x: int, y: string>"
    )
    feed = engine.feed("rows", schema, time="ts", retain="1 hour")
    rows = []
    for number in range(5):
        row = {
            "ts": START + timedelta(seconds=number),
            "a.b": number,
            "tiny": -number,
            "small": None,
            "big": 2**62 - number,
            "day": date(1, 1, 1),
            "price": Decimal("1234567890.12"),
            "f": 0.5,
            "seen": bool(number % 2),
            "name": None if number == 2 else f"name {number}",
            "raw": b"\x00",
            "tags": ["a", None],
            "at": {"x": number, "y": None},
        }
        rows.append(row)
        feed.push([row])
        engine.step(1)
    merge(engine)
    history = engine._loop.history.rows
    files = history.committed["rows"].files
    assert [file.batches for file in files] == ([1] * 5 if largest == 1 else [4, 1])
    assert [row for file in files for row in history.read(file)[1].to_pylist()] == rows  # type: ignore[union-attr]
    some = [row for file in files for row in history.read(file, ["at", "a.b", "gone"])[1].to_pylist()]  # type: ignore[union-attr]
    assert some == [{"at": row["at"], "a.b": row["a.b"]} for row in rows] or some == [
        {"a.b": row["a.b"], "at": row["at"]} for row in rows
    ]
    assert [batch.batch_id for file in files for batch in history.batches(file)] == [1, 2, 3, 4, 5]


def test_a_large_batch_is_replayed_in_parts(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_replay, "JOINED_ROWS", 10)
    engine, feed = opened(make_engine)
    push(engine, feed, *range(130))
    query = engine.register(PER_MINUTE, since=START)
    push(engine, feed, 131)
    steps = 0
    while query.backfill is not None and engine._loop.backfill(0.0):
        steps += 1
        if (progress := query.backfill) is not None and progress.rows == 50:
            assert (progress.batches, progress.all_batches) == (0, 2)
        if steps > 15:
            break
    assert steps >= 13, "ten rows at a time"
    engine.step()
    assert counts(query) == {0: 60, 60: 60}


def test_a_batch_that_adopts_a_query_is_the_same_when_it_runs_again(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    for second in (10, 70, 130):
        push(engine, feed, second)
    engine.register(PER_MINUTE, "past", since=START)
    push(engine, feed, 131)

    def fail(report: Any) -> None:
        raise OSError("the sink is gone")

    engine._loop.listeners.append(fail)
    with pytest.raises(Exception, match="the sink is gone"):
        engine.step()
    again, feed = opened(make_engine, tmp_path / "checkpoint")
    again.step(1)
    query = again.query("past")
    assert counts(query) == {0: 1, 60: 1}
    push(again, feed, 190)
    assert counts(query) == {0: 1, 60: 1, 120: 2}


def test_a_damaged_file_suspends_the_query_and_a_resumed_one_begins_again(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    for second in (10, 70, 130):
        push(engine, feed, second)
    [file, *_] = sorted((place / "history" / "bids").iterdir())
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(CheckpointError):
        engine._loop.history.rows.read(engine._loop.history.rows.committed["bids"].files[0])
    query = engine.register(PER_MINUTE, "past", since=START)
    engine.step()
    engine.step(empty=True)
    assert query.suspended is not None and file.name in query.suspended
    file.write_bytes(content)
    query.resume()
    engine.step()
    engine.step(empty=True)
    assert query.suspended is None
    assert counts(query) == {0: 1, 60: 1}


def test_a_begun_batch_whose_replay_fails_after_a_restart_goes_on_without_the_query(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    for second in (10, 70, 130):
        push(engine, feed, second)
    engine.register(PER_MINUTE, "past", since=START)
    live = engine.register(PER_MINUTE, "live")
    push(engine, feed, 131)

    def fail(report: Any) -> None:
        raise OSError("the sink is gone")

    engine._loop.listeners.append(fail)
    with pytest.raises(Exception, match="the sink is gone"):
        engine.step()
    [file, *_] = sorted((place / "history" / "bids").iterdir())
    file.unlink()
    engine, feed = opened(make_engine, place)
    push(engine, feed, 200, 310)  # first the batch that was begun
    engine.step()
    suspended = engine.query("past").suspended
    assert suspended is not None and file.name in suspended
    live = engine.query("live")
    assert counts(live) == {180: 1}


@pytest.mark.parametrize(
    "options",
    [
        {"overload": "sideline", "budget": 4, "share": 1},
        {"overload": "shed", "budget": 4},
        {"partition": "site", "partition_idle": None},
        {"horizon": "1 minute"},
        {"slack": None},
        {"slack": "20 seconds", "time": "ts"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_whatever_closes_windows_closed_the_same_ones(
    make_engine: EngineFactory, options: dict[str, Any]
) -> None:
    engine, feed = opened(make_engine, **options)
    dice = Random(7)
    sql = "SELECT site, count(*) AS n, sum(price) AS total FROM bids [RANGE 40 seconds SLIDE 10 seconds] GROUP BY site"
    live = engine.register(sql, "live")
    for number in range(30):
        seconds = [10 * number + dice.randint(-25, 10) for _ in range(dice.randint(1, 9))]
        if number == 12 and "horizon" in options:
            seconds.append(100_000)  # far ahead of the others
        rows = [(dice.randint(1, 3), START + timedelta(seconds=second)) for second in seconds]
        feed.push([{"site": site, "price": 0.5, "ts": time} for site, time in rows])
        if number % 4 == 3:
            feed.punctuate(until=START + timedelta(seconds=10 * number - 20))
        engine.step(1)
        if number == 20:
            query = engine.register(sql, "past", since=START - timedelta(days=1))
    engine.step()
    engine.drain(close=True)
    columns = ["window_start", "window_end", "site", "n", "total", "complete", "late", "rows"]
    order = [("window_start", "ascending"), ("site", "ascending")]
    ours, theirs = (each.results().select(columns).sort_by(order) for each in (query, live))
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.num_rows > 10
    accepted = engine._loop.state.stream("bids").totals.accepted
    assert rows_retained(engine) == accepted


def changes() -> Iterator[Any]:
    yield pytest.param(lambda query: query.rename("other"), "other", id="renamed")
    yield pytest.param(lambda query: (query.pause(), query.resume()), "past", id="paused and resumed")
    yield pytest.param(lambda query: query.describe("the past"), "past", id="described")


@pytest.mark.parametrize(("change", "name"), list(changes()))
def test_a_query_that_is_changed_while_rows_are_replayed(
    make_engine: EngineFactory, change: Any, name: str
) -> None:
    engine, feed = opened(make_engine)
    for second in (10, 70, 130):
        push(engine, feed, second)
    query = engine.register(PER_MINUTE, "past", since=START)
    push(engine, feed, 131)
    engine._loop.backfill(0.0)
    change(query)
    push(engine, feed, 132)
    engine.step()
    push(engine, feed, 190)
    assert counts(engine.query(name)) == {0: 1, 60: 1, 120: 3}


def test_a_query_that_is_registered_anew_is_not_the_one_that_has_caught_up(
    make_engine: EngineFactory,
) -> None:
    engine, feed = opened(make_engine)
    for second in (10, 70, 130):
        push(engine, feed, second)
    query = engine.register(PER_MINUTE, "past", since=START)
    push(engine, feed, 131)
    query.drop()
    late = engine.register(
        PER_MINUTE.replace("count(*)", "count(*) + 100"), "past", since=START + timedelta(seconds=60)
    )
    engine._loop.backfill(10.0)
    engine.step()
    push(engine, feed, 190)
    assert counts(late) == {60: 101, 120: 102}


def test_a_stream_that_retains_nothing_any_more_deletes_its_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    push(engine, feed, 1)
    engine.stop()
    engine, feed = opened(make_engine, place, retain=None)
    for second in (2, 3, 4):
        push(engine, feed, second)
    assert not list((place / "history" / "bids").iterdir())
    engine.stop()
    engine, feed = opened(make_engine, place)
    push(engine, feed, 70, 130)
    query = engine.register(PER_MINUTE, since=START)
    engine.step()
    assert counts(query) == {60: 1}, "rows of the first minute came before"


def test_rejected_rows_are_not_retained(make_engine: EngineFactory) -> None:
    engine, feed = opened(make_engine)
    feed.push([{"site": 1, "price": 1.0, "ts": None}, {"site": 1, "price": 1.0, "ts": START}])
    engine.step(1)
    assert rows_retained(engine) == 1


@ON_BOTH
@pytest.mark.parametrize("pushed_rows", [0, 50_000])
def test_rows_of_files_are_retained(make_engine: EngineFactory, tmp_path: Path, pushed_rows: int) -> None:
    rows = [[(1, 1.0, f"12:{minute:02d}:10"), (2, 2.0, f"12:{minute:02d}:20")] for minute in range(4)]
    bids_files(tmp_path / "in", *rows)
    limits = Limits(pushed_rows=pushed_rows)
    engine = make_engine(str(tmp_path / "checkpoint"), limits=limits)
    engine.stream("bids", str(tmp_path / "in"), time="ts", retain="1 day")
    live = engine.register(PER_MINUTE, "live")
    engine.step()
    query = engine.register(PER_MINUTE, "past", since="1 day ago")
    engine.drain()
    columns = ["window_start", "window_end", "n", "total", "complete", "late"]
    assert query.results().select(columns).to_pylist() == live.results().select(columns).to_pylist()
    assert query.results().num_rows == 4


@pytest.mark.parametrize(
    ("tail", "newest"),
    [
        ("EMIT EARLY AT 50% OF SLIDE", {1: 1, 2: 1}),
        ("HAVING count(*) > 0 WITH CONFIDENCE 90%", {1: 1, 2: 1}),
        ("HAVING sum(price) > 1.5 WITH CONFIDENCE 90%", {1: 1}),
        ("EMIT CORRECTIONS WITHIN '1 hour'", {1: 1, 2: 3}),
        ("EMIT EARLY AT 50% OF SLIDE EMIT CORRECTIONS WITHIN '1 hour'", {1: 1, 2: 3}),
    ],
)
def test_clauses_of_a_query_apply_to_its_past(
    make_engine: EngineFactory, tail: str, newest: dict[int, int]
) -> None:
    """A query that asks for the past has the finals and corrections of one that was there, and so has a lookup."""

    def shown(results: Any) -> list[Any]:
        names = set(results.column_names) - {"batch", "made", "latency", "late", "decision"}
        rows = [row for row in results.select(sorted(names)).to_pylist() if row["kind"] != "early"]
        return sorted(map(repr, rows))

    engine, feed = opened(make_engine)
    text = f"SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site {tail}"
    plain = engine.register(text, "plain")
    batches: list[list[tuple[int, float, int]]] = [
        [(1, 2.0, 10), (2, 1.0, 20)],
        [(1, 1.0, 70)],
        [(2, 5.0, 30)],
        [(1, 1.0, 200)],
        [(2, 3.0, 100)],
        [(2, 1.0, 40), (1, 2.0, 230)],
        [(1, 1.0, 300)],
    ]
    for number, rows in enumerate(batches):
        if number == 5:
            query = engine.register(text, "past", since=START)
        feed.push([(site, price, START + timedelta(seconds=second)) for site, price, second in rows])
        engine.step()
    assert query.suspended is None and query.backfill is None
    assert shown(query.results()) == shown(plain.results())
    if "decision" in query.results().column_names:
        assert query.results()["decision"].to_pylist()[0] == "missed"
    answer = plain.lookup(at=START + timedelta(seconds=60))
    assert {row["site"]: row["n"] for row in answer.to_pylist()} == newest
    assert answer.num_rows == len(newest)
