"""Sealed slices: which rows they take the place of, and what happens to their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import DeadlineError, SettingError
from transom.plan.limits import Limits
from transom.runtime import row_history, runner, slice_tiers, slice_work
from transom.runtime.batch_replay import BatchReplay, ReplaySlices
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed
from transom.runtime.row_history import RowHistory

SCHEMA = "site int, price double, ts timestamp"
START = datetime(2013, 1, 1, 12, tzinfo=UTC)
WIDE = (
    "SELECT site, count(*) AS n, sum(price) AS s, min(price) AS low FROM bids [RANGE 1 hour SLIDE 1 hour] "
    "WHERE price >= 1 GROUP BY site"
)
TEXTS = {
    "the same groups": "SELECT site, avg(price) AS x FROM bids [RANGE 3 minutes SLIDE 1 minute] WHERE price >= 1 "
    "GROUP BY site",
    "all groups together": "SELECT min(price) AS x, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 2 minutes] "
    "WHERE price >= 1",
    "one group": "SELECT sum(price) AS x FROM bids [RANGE 60 seconds SLIDE 30 seconds] WHERE price >= 1 AND site = 2",
    "cumulative windows": "SELECT site, count(*) AS x FROM bids [RANGE UP TO 4 minutes SLIDE 1 minute] "
    "WHERE price >= 1 GROUP BY site",
    "corrections": "SELECT site, sum(price) AS x FROM bids [RANGE 2 minutes SLIDE 1 minute] WHERE price >= 1 "
    "GROUP BY site EMIT CORRECTIONS WITHIN '90 seconds'",
    "another condition": "SELECT site, sum(price) AS x FROM bids [RANGE 2 minutes SLIDE 1 minute] WHERE price >= 2 "
    "GROUP BY site",
    "windows with gaps": "SELECT count(*) AS x FROM bids [RANGE 20 seconds SLIDE 1 minute] WHERE price >= 1",
    "windows between slices": "SELECT count(*) AS x FROM bids [RANGE 1500 milliseconds SLIDE 500 milliseconds] "
    "WHERE price >= 1",
}
REFUSED = {"another condition", "windows with gaps", "windows between slices"}


@pytest.fixture(autouse=True)
def slices_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 4)
    monkeypatch.setattr(slice_work, "FEWEST_ROWS", 20)
    monkeypatch.setattr(slice_work, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(slice_tiers, "ROWS_PER_SLICE", 0)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[ReplaySlices]:
    """The slices that replays took."""
    taken: list[ReplaySlices] = []
    add = BatchReplay.add

    def added(self: BatchReplay, sliced: ReplaySlices) -> None:
        taken.append(sliced)
        add(self, sliced)

    monkeypatch.setattr(BatchReplay, "add", added)
    return taken


def opened(
    make_engine: EngineFactory, place: Path, retain: str = "1 day", **limits: Any
) -> tuple[Engine, Feed]:
    engine = make_engine(str(place), limits=Limits(backfill_share=0.0, **limits))
    return engine, engine.feed("bids", SCHEMA, time="ts", slack="5 seconds", retain=retain)


def push(engine: Engine, feed: Feed, dice: Random, batches: range, disorder: int) -> None:
    """Run batches of twenty seconds each; the more disorder, the more rows are late."""
    for number in batches:
        seconds = [20 * number + dice.randint(-disorder, 20) for _ in range(12)]
        feed.push(
            [
                {
                    "site": dice.randint(1, 3),
                    "price": float(dice.randint(0, 4)),
                    "ts": START + timedelta(seconds=s),
                }
                for s in seconds
            ]
        )
        engine.step(1)


def seal(engine: Engine) -> int:
    """Merge all rows and make all slices; in how many files."""
    for _ in range(4):  # what was merged is listed by the next commit
        while engine._loop.tend_history():
            pass
        engine.step(1, empty=True)
    return sum(map(len, engine._loop.history.slices._names.get("bids", {}).values()))


def results(engine: Engine, name: str) -> list[tuple[Any, ...]]:
    rows = engine.query(name).results().to_pylist()
    names = ("window_start", "window_end", "site", "x", "n", "rows", "kind", "revision")
    return sorted((tuple(row.get(column) for column in names) for row in rows), key=repr)


@pytest.mark.parametrize("disorder", [0, 15, 50, 200], ids="disorder of {} seconds".format)
def test_a_query_over_slices_has_the_results_of_one_that_was_there(
    make_engine: EngineFactory, tmp_path: Path, used: list[ReplaySlices], disorder: int
) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    dice = Random(disorder)
    live = {f"live {what}": text for what, text in TEXTS.items()}
    engine.register_all({f"live{i}": text for i, text in enumerate(live.values())})
    engine.register(WIDE, "wide")
    push(engine, feed, dice, range(45), disorder)
    assert seal(engine) > 0
    for number, (what, text) in enumerate(TEXTS.items()):
        before = len(used)
        if what in REFUSED:
            engine._loop.history.slices._names.clear()  # those of the live query with the same text
        engine.register(text, f"past{number}", since="1 day ago")
        engine.step(1)
        while engine._loop.backfill(1.0):
            pass
        engine.step(1)
        assert engine.query(f"past{number}").backfill is None
        assert what in REFUSED or len(used) > before, what
    push(engine, feed, dice, range(45, 52), disorder)
    engine.drain(close=True)
    for number, what in enumerate(TEXTS):
        assert results(engine, f"past{number}") == results(engine, f"live{number}"), what
        past, there = (engine.query(f"{kind}{number}").account for kind in ("past", "live"))
        assert (past.counted, past.late) == (there.counted, there.late), what
    if disorder == 50:
        assert any(one.rows is not None for one in used), "rows of some batches are in no slice"


def test_a_backfill_adds_slices_within_the_deadline(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(8), 5)
    seal(engine)
    limited, added = [False], []

    @contextmanager
    def time_limit() -> Iterator[None]:
        limited[0] = True
        yield
        limited[0] = False

    monkeypatch.setattr(engine._loop.history.backfills, "time_limit", time_limit)
    monkeypatch.setattr(BatchReplay, "add", lambda *_: added.append(limited[0]))
    engine.register(TEXTS["the same groups"], "past", since="1 day ago")
    engine.step()
    assert added and all(added)


@ON_BOTH
def test_lookups_read_slices_and_say_so(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(45), 50)
    text = "SELECT site, count(*) AS n, sum(price) AS s FROM bids [RANGE 8 minutes] WHERE price >= 1 GROUP BY site"
    sliding = text.replace("8 minutes]", "8 minutes SLIDE 1 minute]")
    from_rows = [engine.lookup(each, at="2013-01-01 12:10") for each in (text, sliding)]
    assert [b"sealed" in answer.schema.metadata[b"stores"] for answer in from_rows] == [False, False]
    seal(engine)
    retained = engine.progress().streams["bids"].retained
    assert 0 < retained.sliced_rows < retained.rows == 45 * 12
    assert f"retained 540, of them in sealed slices {retained.sliced_rows}" in str(
        engine.progress().streams["bids"]
    )
    from_slices = [engine.lookup(each, at="2013-01-01 12:10") for each in (text, sliding)]
    for rows, slices in zip(from_rows, from_slices, strict=True):
        assert slices.schema.metadata[b"stores"].startswith(b"sealed slices of bids: ")
        assert (
            slices.drop_columns(["batch", "made"]).to_pylist()
            == rows.drop_columns(["batch", "made"]).to_pylist()
        )
    between = engine.lookup(text, at="2013-01-01 12:10:00.5")
    assert b"sealed" not in between.schema.metadata[b"stores"]


def test_slices_outlive_a_restart_and_go_with_their_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place, retain="10 minutes")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(30), 5)
    files = seal(engine)
    engine.stop()
    engine, feed = opened(make_engine, place, retain="10 minutes")
    assert seal(engine) == files > 0, "they are not made again"
    stray = place / "slices" / "bids" / "0000000001-00000000-00000000.arrow"
    stray.write_bytes(b"")  # an engine that died did not delete it
    engine.stop()
    engine, feed = opened(make_engine, place, retain="10 minutes")
    names = {path.name for path in (place / "slices" / "bids").iterdir()}
    push(engine, feed, Random(2), range(90, 92), 5)
    engine.step(1, empty=True)
    left = {path.name for path in (place / "slices" / "bids").iterdir()}
    assert names and not left & names
    assert not stray.exists()


def test_files_that_an_engine_did_not_write_are_left_alone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(8), 5)
    assert seal(engine) > 0
    engine.stop()
    places = ("slices", "history", "late", "rejected", "sidelined", "feeds", "slices/bids", "slices/other")
    foreign = [place / name / "notes.txt" for name in places]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not of an engine")
    engine, feed = opened(make_engine, place)
    push(engine, feed, Random(2), range(8, 12), 5)
    assert all(path.exists() for path in foreign)


def test_slices_go_with_the_rows_of_their_own_stream(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(8), 5)
    assert seal(engine) > 0
    slices = engine._loop.history.slices
    bids = engine._loop.history.rows.committed["bids"].files[0].path
    assert not slices.without_rows([bids.replace("bids", "asks")])
    assert len(slices.without_rows([bids])) == 1


def test_damaged_slices_are_left_alone_and_made_again(
    make_engine: EngineFactory, tmp_path: Path, used: list[ReplaySlices], caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(30), 5)
    files = seal(engine)
    paths = list((place / "slices" / "bids").iterdir())
    for path in paths:
        path.write_bytes(path.read_bytes()[:-9])
    engine.stop()
    engine, feed = opened(make_engine, place)
    engine.step(1)
    answer = engine.lookup(f"{WIDE} AS OF '2013-01-01 12:10'".replace("1 hour", "4 minutes"))
    assert answer.num_rows and not used
    assert "rows are read" in caplog.text
    assert seal(engine) == files
    engine.lookup(f"{WIDE} AS OF '2013-01-01 12:10'".replace("1 hour", "4 minutes"))
    assert used


@pytest.mark.parametrize(("most", "files"), [(0, 0), (1, 1), (16, 2)])
def test_slices_of_so_many_selections_are_kept(
    make_engine: EngineFactory, tmp_path: Path, most: int, files: int
) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint", sealed_selections=most)
    engine.register(WIDE, "wide")
    engine.register(WIDE.replace("price >= 1", "price >= 2"), "other")
    engine.register("SELECT median(price) AS m FROM bids [RANGE 1 hour SLIDE 1 hour]", "grows with the rows")
    push(engine, feed, Random(1), range(4), 5)
    assert seal(engine) == files


def test_slices_of_queries_that_come_and_go_stay_within_the_limit(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place, sealed_selections=2)
    push(engine, feed, Random(1), range(4), 5)
    for price in range(6):
        engine.register(WIDE.replace("price >= 1", f"price >= {price}"), "wide")
        assert seal(engine) == min(price + 1, 2) == len(list((place / "slices" / "bids").iterdir()))
        engine.query("wide").drop()
        engine.step(1)


@pytest.mark.parametrize("what", ["slices", "rows", "merging"])
def test_what_fails_is_given_up_and_the_rest_goes_on(
    make_engine: EngineFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    engine.register(WIDE.replace("price >= 1", "price >= 2"), "failing")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(4), 5)
    seal(engine)
    push(engine, feed, Random(2), range(4, 8), 5)
    if what == "slices":
        slices_of = BatchReplay.slices_of

        def failing(self: BatchReplay, rows: Any) -> Any:
            if "2" in str(self.query.conjunct_texts):
                raise ZeroDivisionError("a defect")
            return slices_of(self, rows)

        monkeypatch.setattr(BatchReplay, "slices_of", failing)
    elif what == "rows":
        seal(engine)
        merged = next((place / "history" / "bids").glob("*.rows"))
        engine.stop()
        for path in (place / "slices" / "bids").iterdir():
            path.unlink()
        merged.write_bytes(b"damaged")
        engine, feed = opened(make_engine, place)
    else:
        engine.stop()
        next((place / "history" / "bids").glob("*.arrow")).write_bytes(b"damaged")
        engine, feed = opened(make_engine, place)
        monkeypatch.setattr(slice_work, "FEWEST_ROWS", 12)
        monkeypatch.setattr(RowHistory, "waits_for_merge", lambda *_: set())
    expected = {"slices": 3, "rows": 2, "merging": 2 + 2 * 3}[what]
    assert seal(engine) == expected == seal(engine)
    assert 0 < sum(record.levelname == "WARNING" for record in caplog.records) <= 3


def test_a_damaged_slice_does_not_hide_another(make_engine: EngineFactory, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = opened(make_engine, place)
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(4), 5)
    assert seal(engine) == 1
    engine.stop()
    [path] = (place / "slices" / "bids").iterdir()
    base = path.name.rpartition("-")[0]
    damaged = path.with_name(f"{base}-00000000.arrow")  # of other slots: no work would overwrite it
    damaged.write_bytes(b"damaged")
    before = path.stat().st_mtime_ns
    engine, feed = opened(make_engine, place)
    engine.step()
    assert seal(engine) == 1 and not damaged.exists()
    assert path.stat().st_mtime_ns == before


def test_large_files_are_not_read_for_slices(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_work, "LARGEST_MERGE", 100)
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(4), 5)
    assert seal(engine) == 0


def test_a_step_with_rows_leaves_the_history_to_a_step_without(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    tended = []
    tend = engine._loop.tend_history
    monkeypatch.setattr(engine._loop, "tend_history", lambda: bool(tended.append(True)) or tend())
    for _ in range(6):
        feed.push([{"site": 1, "price": 2.0, "ts": START}] * 20)
        engine.step()
    assert not tended
    engine.step()
    assert tended
    feed.push([{"site": 1, "price": 2.0, "ts": START}] * 20)
    engine.step()  # lists the four files that were made one
    engine.step()
    assert engine._loop.history.slices.rows("bids") == 4 * 20


def test_rows_that_are_never_merged_have_slices(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint", retain="1 hour")
    engine.register(WIDE, "wide")
    for minutes in range(0, 60, 10):  # four files would cover more than an eighth of what is retained
        feed.push([{"site": 1, "price": 2.0, "ts": START + timedelta(minutes=minutes)}] * 20)
        engine.step()
        engine.step()
    assert engine._loop.history.slices.rows("bids") >= 5 * 20


def test_rows_that_are_merged_soon_have_no_slices(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE, "wide")
    written = []
    write = engine._loop.history.slices.write
    engine._loop.history.slices.write = lambda file, *rest: (written.append(file.batches), write(file, *rest))
    for _ in range(10):
        feed.push([{"site": 1, "price": 2.0, "ts": START}] * 20)
        engine.step()
        engine.step()
    assert written == [4, 4]


def test_a_step_of_the_program_makes_slices_for_so_long_only(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = opened(make_engine, tmp_path / "checkpoint")
    calls: list[int] = []
    monkeypatch.setattr(runner, "TENDING_SECONDS", 0.05)
    monkeypatch.setattr(engine._loop, "tend_history", lambda: calls.append(len(calls)) or len(calls) < 1e6)
    engine.step()
    assert 0 < len(calls) < 1e6


def test_lookups_count_slices_and_the_rows_beside_them(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = opened(make_engine, tmp_path / "checkpoint", lookup_rows=24)
    engine.register(WIDE, "wide")
    push(engine, feed, Random(1), range(32), 5)
    seal(engine)
    text = "SELECT count(*) AS n, sum(price) AS s FROM bids [RANGE {}] WHERE price >= 1"
    minutes = engine.lookup(text.format("4 minutes"), at="2013-01-01 12:06")
    assert minutes.schema.metadata[b"stores"].startswith(b"sealed slices")
    with pytest.raises(SettingError, match="and the limit is 24"):
        engine.lookup(text.format("241 seconds"), at="2013-01-01 12:06:01")


def test_a_tier_with_as_many_slices_as_rows_is_not_kept(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_work, "ROWS_PER_SLICE", 8)
    monkeypatch.setattr(slice_tiers, "ROWS_PER_SLICE", 8)
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register("SELECT count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour]", "few")
    engine.register("SELECT ts, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour] GROUP BY ts", "many")
    push(engine, feed, Random(1), range(12), 5)
    seal(engine)
    kept = {
        record.keys: [one.unit // 1_000_000 for one in record.tiers]
        for record in engine._loop.history.slices._records.values()
    }
    assert kept == {(): [60, 3600], ("`ts`",): []} or kept == {(): [60], ("`ts`",): []}


def test_slices_that_take_too_long_are_tried_again_after_more_and_more_batches(
    make_engine: EngineFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(slice_work, "FIRST_SLICE_WAIT", 8)
    engine, feed = opened(make_engine, tmp_path / "checkpoint")
    engine.register(WIDE.replace("price >= 1", "price >= 2"), "slow")
    engine.register(WIDE, "wide")
    slices_of, attempts, misses = BatchReplay.slices_of, list[int](), 2

    def slow(self: BatchReplay, rows: Any) -> Any:
        if "2" in str(self.query.conjunct_texts):
            attempts.append(engine._loop.state.batch_id)
            if len(attempts) <= misses:
                raise DeadlineError("it took longer than 30 seconds")
        return slices_of(self, rows)

    monkeypatch.setattr(BatchReplay, "slices_of", slow)
    push(engine, feed, Random(1), range(4), 5)
    assert seal(engine) == 1
    retained = engine.progress().streams["bids"].retained
    assert retained.missed_deadlines == 1 and "deadlines missed by sealed slices 1" in str(engine.progress())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"(WHERE price >= 2.0) until batch {attempts[0] + 8}: it took longer" in caplog.text.replace(
        "`", ""
    )
    files = [0]
    for _ in range(60):
        engine.step(1, empty=True)
        while engine._loop.tend_history():
            pass
        files.append(sum(map(len, engine._loop.history.slices._names["bids"].values())))
    first, second, *others = attempts
    assert 8 < second - first <= 12 and 32 < others[0] - second <= 36
    assert files[-1] == 2 and engine.progress().streams["bids"].retained.missed_deadlines == misses
    assert not engine._loop.history.slice_work._missed
