"""Prods answered at once, beside the batches; and what is kept of what was told."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_MINUTE, SettableClock, at, bids, bids_engine, written
from tests.runtime.prod_helpers import BY_SENSOR, early, final, told, traffic
from transom.runtime import outputs
from transom.runtime.executor_state import ExecutorState

PATIENCE = 60  # seconds; tests wait for events, not for time to pass


# --- at once ---------------------------------------------------------------------------------


def test_prods_before_the_first_batch_and_after_the_last(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(BY_SENSOR, name="q")
    assert query.prod().num_rows == 0 and query.prod().schema == query.results().schema
    assert engine.prod() == {} == engine.prod("s")
    assert engine.step() == 1 and engine.prod() == {} and query.prod(until=50).num_rows == 0
    feed.push([(10, 1, 0, 1)])
    assert query.prod().num_rows == 0, "what was pushed and not processed is not known"
    engine.step()
    assert early(query.prod(), "v") == [(0, 50, 1)]
    engine.stop()
    assert early(query.prod(until=50), "v") == [(0, 50, 1)]
    again, _ = traffic(make_engine, tmp_path)
    assert early(again.prod()["q"], "v") == [(0, 50, 1)], "before it has made a batch"
    assert early(again.query("q").prod(), "v") == [(0, 50, 1)]
    again.query("q").drop()
    again.step()
    assert again.prod() == {}


def test_a_prod_is_answered_while_a_batch_is_being_processed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query, other = engine.register(BY_SENSOR), engine.register(BY_SENSOR + " HAVING sum(volume) > 1")
    feed.push([(10, 1, 0, 1), (60, 1, 0, 2)])
    engine.step()
    entered, go_on = threading.Event(), threading.Event()

    def hold(table: pa.Table) -> None:
        if table["kind"][0].as_py() == "final":
            entered.set()
            assert go_on.wait(PATIENCE)

    other.subscribe(hold)
    query.subscribe(hold)
    feed.push([(61, 1, 0, 4)])
    feed.punctuate(until=50)
    batch = threading.Thread(target=engine.step)
    batch.start()
    try:
        assert entered.wait(PATIENCE)
        assert early(query.prod(), "v") == [(0, 50, 1), (50, 100, 2)], "of the batch before"
        assert early(engine.prod("s", at=100)["q2"], "v") == [(50, 100, 2)]
        assert early(query.results(), "v") == [(0, 50, 1), (50, 100, 2), (50, 100, 2)]
    finally:
        go_on.set()
        batch.join(PATIENCE)
    assert final(query, "v") == [(0, 50, 1)] and early(query.prod(), "v") == [(50, 100, 6)]


@ON_BOTH
def test_a_prod_whose_batch_is_overtaken_is_told_of_the_next(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path, state="executors")
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 0, 1), (60, 1, 0, 2)])
    engine.step()
    feed.punctuate(until=100)
    feed.push([(110, 1, 0, 4)])
    real = ExecutorState.close

    def overtaken(far: ExecutorState, *args: Any) -> Any:
        monkeypatch.setattr(ExecutorState, "close", real)
        engine.step()  # another thread's batch: it lets go of the shards that were to be read
        return real(far, *args)

    monkeypatch.setattr(ExecutorState, "close", overtaken)
    assert early(query.prod(), "v", "batch") == [(100, 150, 4, 3)]
    assert told(query, "v") == [("early", 100, 150, 4), ("final", 0, 50, 1), ("final", 50, 100, 2)]


def test_queries_are_prodded_by_name_whatever_other_streams_there_are(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    other = engine.feed("bids", BIDS, time="ts", slack=None)
    engine.register_all({"q": BY_SENSOR, "n": PER_MINUTE, "r": BY_SENSOR + " HAVING sum(volume) > 9"})
    assert engine.prod(queries=["q"], until=50, where={"sensor": 1}) == {}
    feed.push([(10, 1, 0, 1)])
    other.push(bids((1, 1.0, "12:00")))
    engine.step()
    assert list(engine.prod(queries=["q", "r"], until=50, where={"sensor": 1})) == ["q"]
    assert list(engine.prod(queries=["n"], at=at("12:01"))) == ["n"]
    assert sorted(engine.prod()) == ["n", "q"] == sorted(engine.prod(queries=["n", "q"]))


def test_the_timer_of_an_engine_in_the_background(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = traffic(make_engine, tmp_path, clock=clock, poll="20 ms")
    query = engine.register(BY_SENSOR + " EMIT EARLY EVERY '1 minute'")
    heard: queue.Queue[pa.Table] = queue.Queue()
    query.subscribe(heard.put)
    engine.start()
    try:
        feed.push([(10, 1, 0, 1)])
        assert told(heard.get(timeout=PATIENCE), "v") == [("early", 0, 50, 1)]
        feed.push([(11, 1, 0, 2)])
        feed.prod()
        assert told(heard.get(timeout=PATIENCE), "v") == [("early", 0, 50, 3)]
        clock.advance(minutes=1)  # and nothing comes
        assert told(heard.get(timeout=PATIENCE), "v", "made") == [("early", 0, 50, 3, "12:01")]
        assert early(query.prod(), "v") == [(0, 50, 3)] == early(heard.get(timeout=PATIENCE), "v")
    finally:
        engine.stop()
    assert heard.empty()


def test_windows_along_other_clocks(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    counted = engine.register("SELECT count(*) AS n FROM s [RANGE 2 SLIDE 2 WATTR volume]")
    rows = engine.register("SELECT count(*) AS n FROM s [ROWS 4 SLIDE 2]")
    feed.push([(1, 1, 0, 1), (2, 1, 0, 3), (3, 1, 0, 5)])
    engine.step()
    assert early(counted.prod(until=4), "n") == [(0, 2, 1), (2, 4, 1)]
    assert early(engine.prod("s", at=6, on="volume")["q1"], "n") == [(4, 6, 1)]
    assert early(rows.prod(), "n") == [(0, 4, 3), (2, 6, 1)]
    with pytest.raises(transom.SettingError, match="windows of rows have no time"):
        rows.prod(until=4)
    feed.prod(until=50)  # says nothing to either
    feed.prod(until=2, on="volume")
    engine.step()
    assert early(counted, "n", "batch").count((0, 2, 1, 2)) == 1 and len(early(rows)) == 2


def test_a_subscriber_may_prod(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(BY_SENSOR)
    heard: list[pa.Table] = []

    def ask(table: pa.Table) -> None:
        heard.append(table)
        if len(heard) == 1:
            query.prod()

    query.subscribe(ask)
    feed.push([(10, 1, 0, 1), (60, 1, 0, 2)])
    engine.step()
    feed.punctuate(until=50)
    engine.step()
    assert [told(table, "v") for table in heard] == [
        [("final", 0, 50, 1)],
        [("early", 0, 50, 1), ("early", 50, 100, 2)],
    ]


# --- what is told with it --------------------------------------------------------------------


def test_early_results_say_when_they_were_made_and_how_long_after_the_first_row(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock(at("13:00"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:10")))
    engine.step()
    clock.advance(minutes=1)
    feed.push(bids((1, 1.0, "12:00:20"), (1, 1.0, "12:01:20")))
    feed.prod()
    engine.step()
    clock.advance(minutes=2)
    query.prod(at=at("12:01"))
    feed.punctuate(until=at("12:02"))
    engine.step()
    shown = ("n", "made", "latency", "rows", "batch", "complete")
    assert told(query, *shown) == [
        ("early", "12:00", "12:01", 2, "13:01", 60.0, 2, 2, True),
        ("early", "12:00", "12:01", 2, "13:03", 180.0, 2, 2, True),
        ("early", "12:01", "12:02", 1, "13:01", 0.0, 1, 2, True),
        ("final", "12:00", "12:01", 2, "13:03", 180.0, 2, 3, True),
        ("final", "12:01", "12:02", 1, "13:03", 120.0, 1, 3, True),
    ]


def test_what_was_told_is_kept_across_a_restart_and_forgotten_with_the_results(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, retention=2)
    query = engine.register(BY_SENSOR, name="q")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    for _ in range(2):
        query.prod()
    engine.stop()
    again, feed = traffic(make_engine, tmp_path, retention=2)
    query = again.register(BY_SENSOR, name="q")
    query.prod()
    assert early(query, "v", "batch") == [(0, 50, 1, 1)] * 3
    for time in (60, 61, 62):
        feed.push([(time, 1, 0, 2)])
        again.step()
        query.prod(at=100)
    assert sorted(early(query, "v", "batch")) == [(50, 100, 4, 3), (50, 100, 6, 4)]
    assert {path.name for path in (tmp_path / "checkpoint" / "prods").iterdir()} == {
        "0000000002",  # is deleted with the next commit
        "0000000003",
        "0000000004",
    }


def test_results_that_a_batch_lets_go_of_while_they_are_read(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path, retention=1)
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 0, 1)])
    engine.step()
    query.prod()
    feed.push([(11, 1, 0, 2)])
    real = outputs.rows_of_query

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(outputs, "rows_of_query", real)
        engine.step()
        engine.step(empty=True)  # deletes what the batch before it let go of
        return real(*args)

    monkeypatch.setattr(outputs, "rows_of_query", overtaken)
    assert query.results().num_rows == 0
    assert early(query.prod(), "v") == [(0, 50, 3)] == early(query, "v")


def test_a_query_of_the_same_name_does_not_inherit_what_another_was_told(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(BY_SENSOR, name="q")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    query.prod()
    query.drop()
    assert early(query, "v") == [(0, 50, 1)]
    other = engine.register(BY_SENSOR, name="q", partial=True)
    engine.step()
    assert early(other) == []
    feed.push([(11, 1, 0, 2)])
    engine.step()
    assert told(other.prod(), "v", "complete") == [("early", 0, 50, 2, False)]


@ON_BOTH
def test_sinks_get_the_early_results_of_batches(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    texts = {
        "q": BY_SENSOR,
        "emits": "SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50] EMIT EARLY ON DEMAND",
    }
    query, emits = engine.register_all(texts).values()
    query.sink("csv", path=str(tmp_path / "csv"), header=True)
    emits.sink("parquet", path=str(tmp_path / "parquet"))
    engine.sink("json", path=str(tmp_path / "all"))
    feed.push([(10, 1, 0, 1)])
    feed.prod()
    feed.push([(20, 1, 0, 2)])
    feed.punctuate(until=50)
    engine.step()
    query.prod()
    of_csv = written(tmp_path / "csv", "csv")
    assert sorted((row["kind"], row["v"], row["rows"]) for row in of_csv) == [
        ("early", "1", "1"),
        ("final", "3", "2"),
    ]
    of_parquet = written(tmp_path / "parquet")
    assert {*emits.results().column_names} <= {*of_parquet[0]}
    assert sorted((row["kind"], row["v"]) for row in of_parquet) == [("early", 1), ("final", 3)]
    lines = written(tmp_path / "all", "json")
    assert sorted((one["query"], one["kind"], one["values"]["v"]) for one in lines) == [
        ("emits", "early", 1),
        ("emits", "final", 3),
        ("q", "early", 1),
        ("q", "final", 3),
    ]


@pytest.mark.parametrize("moment", ["2013-01-01 12:00:05", "2013-01-01T12:00:05Z"])
def test_a_pattern_may_write_times_as_text(make_engine: EngineFactory, tmp_path: Path, moment: str) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register("SELECT ts, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY ts")
    feed.push(bids((1, 1.0, "12:00:05"), (1, 1.0, "12:00:06")))
    engine.step()
    assert query.prod(where={"ts": moment})["n"].to_pylist() == [1]
