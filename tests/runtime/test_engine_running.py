"""The life of an engine: stepped, started, stopped, drained, and started again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transom
from tests.engine_factory import ON_BOTH, STREAMING, EngineFactory
from tests.runtime.engine_helpers import (
    BIDS,
    PER_MINUTE,
    PER_SITE,
    SettableClock,
    answers,
    at,
    bids,
    bids_engine,
    bids_files,
    bids_table,
    written,
)

PATIENCE = 60  # seconds; tests wait for events, not for time to pass


class Heard:
    """A subscriber that can be waited for."""

    def __init__(self, query: Any):
        self.tables: list[pa.Table] = []
        self._some = threading.Condition()
        query.subscribe(self)

    def __call__(self, table: pa.Table) -> None:
        with self._some:
            self.tables.append(table)
            self._some.notify_all()

    def wait_for(self, rows: int) -> list[tuple[Any, ...]]:
        with self._some:
            assert self._some.wait_for(lambda: sum(t.num_rows for t in self.tables) >= rows, PATIENCE)
            return [row for table in self.tables for row in answers(table, "n")]


@ON_BOTH
def test_an_engine_in_the_background(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(
        make_engine, tmp_path, clock=clock, poll="20 ms", slack="1 minute", idle="5 minutes"
    )
    first = Heard(engine.register(PER_MINUTE, name="first"))
    engine.start()
    with pytest.raises(transom.StateError, match="running"):
        engine.start()
    with pytest.raises(transom.StateError, match="running"):
        engine.step()
    with pytest.raises(transom.StateError, match="before the engine is started"):
        engine.feed("asks", BIDS, time="ts")
    assert engine.await_termination(timeout=0.01) is False
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:02")))
    assert first.wait_for(1) == [("12:00", "12:01", 1)]
    second = Heard(engine.register(PER_SITE, name="second"))  # while running
    feed.push(bids((1, 1.0, "12:10"), (2, 1.0, "12:20")))
    assert second.wait_for(2) == [("12:09", "12:11", 1), ("12:10", "12:12", 1)]
    engine.punctuate("bids", until=at("12:21"))  # while no data comes
    assert second.wait_for(3)[2] == ("12:19", "12:21", 1)
    clock.advance(minutes=5)  # the source is idle
    assert second.wait_for(4)[3] == ("12:20", "12:22", 1)
    engine.query("second").drop()
    engine.stop()
    assert engine.await_termination() is True
    engine.stop()  # once more is no harm
    feed.push(bids((1, 1.0, "13:00")))
    assert engine.step() >= 1
    assert len(answers(engine.query("first"))) == 4


def test_waiting_for_an_engine_that_was_not_started(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(transom.StateError, match="not started"):
        engine.await_termination()


def test_an_engine_is_stopped_at_the_end_of_with(make_engine: EngineFactory, tmp_path: Path) -> None:
    with make_engine(str(tmp_path)) as engine:
        engine.feed("bids", BIDS, time="ts")
        engine.start()
    assert engine.await_termination() is True
    assert engine.step() == 0


@ON_BOTH
def test_what_made_an_engine_fail_is_raised_to_who_waits(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, poll="20 ms")
    query = engine.register(PER_MINUTE)
    query.sink("parquet", path=str(tmp_path / "taken"))
    (tmp_path / "taken").write_text("a file where a directory is wanted")
    engine.start()
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:02")))
    with pytest.raises(Exception, match="taken"):
        engine.await_termination(PATIENCE)
    engine.stop()
    (tmp_path / "taken").unlink()
    engine.start()  # and again, now that the cause is gone
    with pytest.raises(transom.StateError):
        engine.step()
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1), ("12:02", "12:03", 1)]
    assert len(written(tmp_path / "taken")) == 2


def test_a_drained_engine_goes_on_when_there_is_more(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    engine.drain()  # nothing yet
    feed.push(bids((1, 1.0, "12:00")))
    engine.drain(close=False)
    assert answers(query) == []
    engine.drain()
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:01")))
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1), ("12:01", "12:02", 1)]
    assert engine.late("bids").num_rows == 1  # the end closed its window


def test_files_that_come_while_running(make_engine: EngineFactory, tmp_path: Path) -> None:
    bids_files(tmp_path / "in", [(1, 1.0, "12:00"), (1, 1.0, "12:02")])
    engine = make_engine(str(tmp_path / "checkpoint"), poll="20 ms")
    engine.stream("bids", str(tmp_path / "in"), time="ts")
    heard = Heard(engine.register(PER_MINUTE))
    engine.start()
    heard.wait_for(1)
    bids_files(tmp_path / "more", [(1, 1.0, "12:05")])
    (tmp_path / "more" / "0000.parquet").rename(tmp_path / "in" / "0001.parquet")
    assert heard.wait_for(2) == [("12:00", "12:01", 1), ("12:02", "12:03", 1)]
    engine.stop()


@STREAMING
def test_a_spark_stream_while_running(make_engine: EngineFactory, tmp_path: Path) -> None:
    source = bids_files(tmp_path / "in", [(1, 1.0, "12:00"), (1, 1.0, "12:02")])
    engine = make_engine(str(tmp_path / "checkpoint"), poll="20 ms")
    engine.stream("bids", make_engine.session.readStream.schema(BIDS).parquet(str(source)), time="ts")
    asks = engine.feed("asks", "ts timestamp", time="ts")
    heard = Heard(engine.register(PER_MINUTE))
    of_asks = Heard(engine.register("SELECT count(*) AS n FROM asks [RANGE 1 minute SLIDE 1 minute]"))
    engine.start()
    assert heard.wait_for(1) == [("12:00", "12:01", 1)]
    asks.push([(at("15:00"),), (at("15:01"),)])
    assert of_asks.wait_for(1) == [("15:00", "15:01", 1)]
    late_comer = engine.register(PER_SITE)
    engine.punctuate("bids", until=at("12:03"))
    assert heard.wait_for(2)[1] == ("12:02", "12:03", 1)
    bids_files(tmp_path / "more", [(3, 1.0, "12:10")])
    (tmp_path / "more" / "0000.parquet").rename(source / "0001.parquet")
    engine.drain(close=True)
    assert answers(late_comer, "site", "n") == [("12:09", "12:11", 3, 1), ("12:10", "12:12", 3, 1)]


@ON_BOTH
def test_a_restart_between_any_two_batches_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    batches = [
        bids((1, 1.0, "12:00"), (2, 2.0, "12:03")),
        bids((2, 1.0, "12:02"), (1, 4.0, "12:05"), (None, 1.0, "12:04:10")),
        bids((1, 1.0, "12:00"), (2, 2.0, "12:05:30")),
        bids((1, 8.0, "12:09")),
    ]
    texts = {"per_site": PER_SITE, "rows": "SELECT sum(price) AS p FROM bids [ROWS 3 SLIDE 2]"}

    def run(place: Path, restart: bool) -> Any:
        engine, feed = bids_engine(make_engine, place, slack="1 minute")
        engine.register_all(texts)
        for batch_id in batches:
            if restart:
                engine.stop()
                engine, feed = bids_engine(make_engine, place, slack="1 minute")
                engine.register_all(texts)  # as a program does each time it starts
            feed.push(batch_id)
            engine.step()
        engine.drain()
        return [answers(engine.query(name)) for name in texts], engine.late("bids").to_pylist()

    assert run(tmp_path / "without", False) == run(tmp_path / "with", True)


def test_a_batch_dataframe_is_not_read_again_after_a_restart(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    for _ in range(2):
        engine = make_engine(str(tmp_path))
        engine.stream("bids", make_engine.rows(bids_table((1, 1.0, "12:00"))), time="ts")
        query = engine.register(PER_MINUTE, name="q")
        engine.drain()
        assert answers(query) == [("12:00", "12:01", 1)]
        assert engine.progress().streams["bids"].rows == 1


# --- names, clocks and sinks that are used again ---------------------------------------------


def test_a_name_that_is_used_again_has_results_of_its_own(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    old = engine.register(PER_MINUTE, name="q")
    feed.push(bids((1, 1.0, "12:00:10"), (1, 1.0, "12:02:10")))
    engine.step()
    before = old.results().num_rows
    assert before
    heard: list[int] = []
    old.subscribe(lambda table: heard.append(table.num_rows))
    old.drop()
    new = engine.register(PER_MINUTE.replace("count(*)", "count(price)"), name="q")
    assert new.results().num_rows == 0
    feed.push(bids((1, 1.0, "12:05:10"), (1, 1.0, "12:09:10")))
    engine.step()
    assert old.results().num_rows == before and not heard
    assert new.results().num_rows == 1  # of 12:05


def test_a_query_that_joins_a_clock_again_knows_that_it_missed_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine()
    feed = engine.feed("s", "seq bigint, ts timestamp", time="ts")
    text = "SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10 WATTR seq]"
    first = engine.register(text, name="first")
    feed.push([(1, "2013-01-01 12:00:00")])
    engine.step()
    first.drop()
    feed.push([(21, "2013-01-01 12:00:01"), (22, "2013-01-01 12:00:02")])
    engine.step()
    second = engine.register(text, name="second", partial=True)
    feed.push([(25, "2013-01-01 12:00:03"), (40, "2013-01-01 12:00:04")])
    engine.step()
    found = second.results().to_pylist()
    assert [(row["window_start"], row["n"], row["complete"]) for row in found] == [(20, 1, False)]


def test_a_subscriber_can_stop_the_engine_and_can_not_step_it(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    refused: list[Exception] = []

    def step_inside(table: object) -> None:
        try:
            engine.step()
        except transom.StateError as error:
            refused.append(error)
        engine.stop()

    query.subscribe(step_inside)
    feed.push(bids((1, 1.0, "12:00:10"), (1, 1.0, "12:02:10")))
    engine.step()
    assert len(refused) == 1 and query.results().num_rows == 1


def test_changes_during_the_last_batch_are_committed_before_the_engine_stops(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE, name="first")

    def change_and_stop(table: object) -> None:
        engine.register(PER_SITE, name="second")
        query.drop()
        engine.stop()

    query.subscribe(change_and_stop)
    engine.start()
    feed.push(bids((1, 1.0, "12:00:10"), (1, 1.0, "12:02:10")))
    assert engine.await_termination(PATIENCE) is True
    again, _ = bids_engine(make_engine, tmp_path)
    assert set(again.queries()) == {"second"}


def test_two_sinks_share_no_path_and_another_runs_batches_are_left_alone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    path = str(tmp_path / "out")
    engine = make_engine()
    feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]")
    query.sink("parquet", path=path)
    with pytest.raises(transom.SettingError, match="another sink"):
        engine.sink("parquet", path=path)
    feed.push([(1, 1.0, "2013-01-01 12:00:10")])
    engine.step()
    engine.drain()
    assert pq.read_table(path).column_names[-1] == "batch"
    other = make_engine()
    with pytest.raises(transom.SettingError, match="another run: choose another directory"):
        other.sink("parquet", path=path)


def test_a_writer_that_the_backend_does_not_have_is_refused_at_once(make_engine: EngineFactory) -> None:
    says = "json, csv, console, delta: it has no writer for parqet; did you mean parquet"
    with pytest.raises(transom.SettingError, match=says):
        make_engine().sink("parqet", path="somewhere")


def test_two_engines_on_one_checkpoint_do_not_go_unnoticed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    first, feed = bids_engine(make_engine, tmp_path)
    second, other = bids_engine(make_engine, tmp_path)
    other.push(bids((1, 1.0, "12:00:20")))
    second.step()
    feed.push(bids((1, 1.0, "12:00:10")))
    with pytest.raises(transom.StateError, match="another engine"):
        first.step()


# --- single batches --------------------------------------------------------------------------


def test_a_step_can_be_of_one_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "checkpoint")
    files = bids_files(tmp_path / "in", [(1, 1.0, "12:00")], [(1, 1.0, "12:01")], [(1, 1.0, "12:02")])
    engine.stream("bids", str(files), time="ts")
    assert [engine.step(1), engine.step(1), engine.step(5), engine.step(1)] == [1, 1, 1, 0]
    with pytest.raises(transom.SettingError, match="at least one batch, not 0"):
        engine.step(0)


def test_a_step_commits_an_empty_batch_if_it_is_told_to(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    assert (engine.step(), engine.progress().batch_id) == (0, 0)
    assert (engine.step(empty=True), engine.progress().batch_id) == (1, 1)
    feed.push(bids((1, 1.0, "12:00")))
    assert (engine.step(empty=True), engine.progress().batch_id) == (1, 2), "there is another one"


def test_a_stream_that_is_flushed_closes_its_windows_and_goes_on(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00:10")))
    engine.step()
    assert answers(query) == []
    engine.flush("bids")
    engine.step()
    assert answers(query) == [("12:00", "12:01", 1)]
    feed.push(bids((1, 1.0, "12:00:20"), (1, 1.0, "12:01:10"), (1, 1.0, "12:02:10")))
    engine.step()
    assert answers(query) == [("12:00", "12:01", 1), ("12:01", "12:02", 1)]
    assert engine.progress().streams["bids"].late == 1
    with pytest.raises(transom.SettingError, match="there is no stream named bid; did you mean bids"):
        engine.flush("bid")
