"""Lookups after restarts and faults, on the driver and on executors, and while batches run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import another_batch, committed
from tests.runtime.fault_helpers import Crash, Fault
from tests.runtime.prod_helpers import traffic
from tests.runtime.test_lookups import ALL, FIRST, SECOND, looked_up
from transom.errors import StateError
from transom.ondemand.partitioned_stores import PartitionedStores
from transom.plan.limits import Limits
from transom.storage.file_store import Store

PATIENCE = 60  # seconds; tests wait for events, not for time to pass


def test_a_restart_continues_from_files_that_are_written_once(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "checkpoint"))
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(ALL, name="all")
    feed.push(FIRST)
    engine.step()
    before = looked_up(query.lookup(), "m", "s", "n")
    assert len(store.list("runs")) == 1
    engine.stop()
    again, feed = traffic(make_engine, tmp_path)
    assert looked_up(again.query("all").lookup(), "m", "s", "n") == before, "before it has made a batch"
    feed.push(SECOND)
    again.step()
    assert looked_up(again.query("all").lookup(), "m", "s", "n") == [(-39, 61, 7, -1, 7)]
    assert looked_up(again.lookup("SELECT sum(volume) AS x FROM s [RANGE 25]"), "x") == [(36, 61, 14)]
    feed.push([(500, 1, 1, 1)])
    again.step()
    assert looked_up(again.query("all").lookup(), "n") == [(401, 501, 1)]
    another_batch(again)
    assert len(store.list("runs")) == 1, "what is out of all windows is gone"
    again.query("all").drop()
    again.step()
    another_batch(again)
    assert store.list("runs") == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("part", ["runs/", "state/"])
def test_a_batch_that_fails_around_its_commit_is_taken_in_once(
    part: str, after: bool, make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(ALL, name="all")
    feed.push(FIRST)
    engine.step()
    feed.push(SECOND)
    with monkeypatch.context() as patch:
        Fault(patch, Store, "write", lambda store, name, *rest: name.startswith(part), after)
        with pytest.raises(Crash):
            engine.step()
        engine.step()
    assert looked_up(query.lookup(), "m", "s", "n") == [(-39, 61, 7, -1, 7)]
    engine.stop()
    again, _ = traffic(make_engine, tmp_path)
    assert looked_up(again.query("all").lookup(), "m", "s", "n") == [(-39, 61, 7, -1, 7)]


def test_a_batch_that_a_new_engine_runs_again_keeps_the_files_that_the_first_attempt_wrote_too(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(ALL, name="all")
    feed.push(FIRST)
    engine.step()
    feed.push(SECOND)
    with monkeypatch.context() as patch:
        Fault(patch, Store, "write", lambda store, name, *rest: name.startswith("state/"), False)
        with pytest.raises(Crash):
            engine.step()
    engine.stop()
    again, _ = traffic(make_engine, tmp_path)
    again.step()
    another_batch(again)  # the states that refer to the file are now all that can be loaded
    assert "0000000002.arrow" in Store(str(tmp_path / "checkpoint")).list("runs")
    again.stop()
    third, _ = traffic(make_engine, tmp_path)
    assert looked_up(third.query("all").lookup(), "m", "s", "n") == [(-39, 61, 7, -1, 7)]


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_many_rows_in_tasks_come_to_the_same_near_and_far(
    place: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, state=place)
    query = engine.register(
        "SELECT sensor, max(speed) AS top, sum(volume) AS s, count(*) AS n, avg(speed) AS a FROM s "
        "[RANGE 5000] GROUP BY sensor"
    )
    bounds = engine.register(
        "SELECT sensor, sum(speed) AS s FROM s [RANGE 5000] GROUP BY sensor USING timegram(8, SLICE 100)"
    )
    for batch_id in range(3):
        times = range(batch_id * 12_000, batch_id * 12_000 + 12_000)
        feed.push([(t, t % 7, t * 31 % 101, t % 13) for t in times])
        engine.step()
    for length in (5000, 1234):
        expected = []
        for sensor in range(7):
            kept = [t for t in range(36_000 - length, 36_000) if t % 7 == sensor]
            speeds = [t * 31 % 101 for t in kept]
            expected.append(
                (sensor, max(speeds), sum(t % 13 for t in kept), len(kept), sum(speeds) / len(kept))
            )
            found = bounds.lookup(range=length, where={"sensor": sensor}).to_pylist()[0]
            assert found["s_low"] <= sum(speeds) <= found["s_high"]
        found = looked_up(query.lookup(range=length), "sensor", "top", "s", "n", "a")
        assert [row[2:] for row in found] == expected
    assert any(store.on_executors for store in engine.progress().on_demand.stores.values()) == (
        place == "executors"
    )
    engine.stop()
    again, _ = traffic(make_engine, tmp_path, state=place)
    found = looked_up(again.query(query.name).lookup(range=1234), "sensor", "top", "s", "n", "a")
    assert [row[2:] for row in found] == expected


@ON_BOTH
def test_groups_that_become_too_many_move_to_the_executors_and_their_files_are_merged(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, limits=Limits(driver_rows=100, store_files=4))
    query = engine.register(
        "SELECT sensor, max(volume) AS m, count(*) AS n FROM s [RANGE 40] GROUP BY sensor"
    )
    for time in range(12):
        feed.push([(time, sensor, 1, time) for sensor in range(time + 1)])
        engine.step()
        found = looked_up(query.lookup(range=5), "sensor", "m", "n")
        assert [row[2:] for row in found] == [(s, time, min(5, time + 1 - s)) for s in range(time + 1)]
    stores = committed(tmp_path)[0].stores.values()
    assert all(store.on_executors and len(store.refs) <= 5 for store in stores)
    store = Store(tmp_path / "checkpoint")
    files = {name for batch_id in store.list("shards") for name in store.list(f"shards/{batch_id}")}
    assert files == {file.rpartition("/")[2] for store in stores for ref in store.refs for file in ref.files}


def test_lookups_are_answered_while_batches_go_by(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register("SELECT count(*) AS n, max(ts) AS t, min(ts) AS f FROM s [ROWS 50]")
    stop, problems = threading.Event(), list[Any]()

    def ask() -> None:
        while not stop.is_set():
            for row in query.lookup().to_pylist():
                if row["t"] - row["f"] + 1 != row["n"] or row["t"] + 1 != row["window_end"]:
                    problems.append(row)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for batch_id in range(12):
            feed.push([(batch_id * 20 + i, 1, 1, 1) for i in range(20)])
            engine.step()
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert problems == []
    assert looked_up(query.lookup(), "n") == [(190, 240, 50)]


def test_a_lookup_whose_files_a_batch_lets_go_is_answered_from_that_batch(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path, state="executors")
    query = engine.register("SELECT sensor, sum(volume) AS v FROM s [RANGE 10] GROUP BY sensor")
    feed.push([(1, 1, 1, 5)])
    engine.step()
    real = PartitionedStores.answered

    def overtaken(stores: PartitionedStores, *asked: Any) -> Any:
        monkeypatch.setattr(PartitionedStores, "answered", real)
        feed.push([(100, 1, 1, 7)])
        engine.step()
        another_batch(engine)
        return real(stores, *asked)

    monkeypatch.setattr(PartitionedStores, "answered", overtaken)
    assert looked_up(query.lookup(), "sensor", "v") == [(91, 101, 1, 7)]


def test_ordered_sharing_is_right_while_batches_are_committed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register("SELECT max(ts) AS t, min(ts) AS f FROM s [ROWS 8] USING ordered_sharing")
    stop, wrong = threading.Event(), list[Any]()

    def ask() -> None:
        while not stop.is_set():
            for row in query.lookup().to_pylist():
                newest = row["window_end"] - 1
                if (row["t"], row["f"]) != (newest, max(0, newest - 7)):
                    wrong.append(row)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for time in range(25):
            feed.push([(time, 1, 1, 1)])
            engine.step()
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert wrong == []
    store = next(own for key, own in engine.progress().on_demand.stores.items() if "values" in key)
    assert 0 < store.hits < store.lookups


def test_a_type_that_changed_is_told_when_the_engine_is_opened_again(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    place = str(tmp_path / "checkpoint")
    engine = make_engine(place)
    feed = engine.feed("s", "ts bigint, v double", time="ts")
    engine.register("SELECT sum(v) AS x FROM s [RANGE 100]", name="total")
    feed.push([(1, 1.5)])
    engine.step()
    engine.stop()
    again = make_engine(place)
    again.feed("s", "ts bigint, v int", time="ts")
    with pytest.raises(StateError, match="the columns of total have other types"):
        again.step()


@pytest.mark.parametrize("overload", [None, "sideline", "shed"])
def test_a_lookup_ends_at_the_newest_row_that_was_processed(
    overload: str | None, make_engine: EngineFactory, tmp_path: Path
) -> None:
    options = {} if overload is None else {"overload": overload, "budget": 8}
    engine, feed = traffic(make_engine, tmp_path, **options)
    query = engine.register("SELECT count(*) AS n, max(ts) AS newest FROM s [RANGE 10]")
    feed.push([(0, 1, 1, 1), *((7500 + i, 1, 1, 1) for i in range(30))])
    engine.step(1)
    newest = 7529 if overload is None else 7506
    assert [row[1:] for row in looked_up(query.lookup(), "n", "newest")] == [
        (newest + 1, min(10, newest - 7499), newest)
    ]
    engine.drain()
    stream = engine.progress().streams["s"]
    assert stream.late == 0 and stream.counted == (8 if overload == "shed" else 31)
    if overload != "shed":
        assert looked_up(query.lookup(), "n", "newest") == [(7520, 7530, 10, 7529)]
