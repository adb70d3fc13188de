"""Queries without SLIDE on Spark: looked up while batches go by, in what they share, near and far."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import short
from tests.runtime.prod_helpers import traffic
from transom.errors import SettingError, StateError
from transom.ondemand.partitioned_stores import RunCache
from transom.ondemand.structures.runs import Run
from transom.runtime import lookups
from transom.storage.shard_refs import ShardRef

PATIENCE = 60  # seconds; tests wait for events, not for time to pass
FIRST = [(10, 1, 30, 3), (20, 2, 50, -10), (30, 1, 40, -9)]
SECOND = [(40, 2, 60, 5), (55, 1, 70, 2), (60, 3, 35, 7), (12, 1, 99, 1)]
ALL = "SELECT max(volume) AS m, sum(volume) AS s, count(*) AS n FROM s [RANGE 100]"


def looked_up(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a lookup: the ends of the window, then the named columns."""
    shown = ["window_start", "window_end", *columns]
    rows = [tuple(short(row[name]) for name in shown) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, 0 if value is None else value) for value in row])


def test_a_lookup_answers_for_its_window_and_any_shorter_one(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(ALL)
    rows = engine.register("SELECT sum(volume) AS s FROM s [ROWS 4] WHERE sensor < 3")
    groups = engine.register(
        "SELECT sensor, max(speed) AS v FROM s [RANGE 30] GROUP BY sensor HAVING max(speed) > 36"
    )
    assert query.lookup().num_rows == 0, "before any batch"
    feed.push(FIRST)
    assert query.lookup().num_rows == 0, "what was pushed and not processed is not known"
    engine.step()
    assert looked_up(query.lookup(), "m", "s", "n") == [(-69, 31, 3, -16, 3)]
    feed.push(SECOND)
    engine.step()
    assert looked_up(query.lookup(), "m", "s", "n") == [(-39, 61, 7, -1, 7)]
    assert looked_up(query.lookup(range=21), "m", "s", "n") == [(40, 61, 7, 14, 3)]
    assert looked_up(query.lookup(range=1), "m", "n") == [(60, 61, 7, 1)]
    assert looked_up(query.lookup(at=71, range=12), "s") == [(59, 71, 7)]
    assert looked_up(query.lookup(at=500), "s") == [], "the newest row is out of the window"
    # The rows of a batch are numbered by their time: 12, 40, 55, 60 are the last four.
    assert looked_up(rows.lookup(), "s") == [(3, 7, 8)] and looked_up(rows.lookup(rows=3), "s") == [(4, 7, 7)]
    assert looked_up(groups.lookup(), "sensor", "v") == [(31, 61, 1, 70), (31, 61, 2, 60)]
    assert looked_up(groups.lookup(where={"sensor": 2}), "v") == [(31, 61, 60)]
    assert query.lookup().column_names == [
        "window_start",
        "window_end",
        "m",
        "s",
        "n",
        "complete",
        "batch",
        "made",
    ]
    assert set(query.lookup()["complete"].to_pylist()) == {True}


def test_queries_that_are_not_registered_are_answered_from_existing_stores(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(ALL, name="all")
    engine.register("SELECT min(speed) AS m FROM s [RANGE 60] USING timegram(BOUNDS 30, 40, 50, 60, 70)")
    feed.push([*FIRST, *SECOND])
    engine.step()
    assert looked_up(engine.lookup("SELECT sum(volume) AS x FROM s [RANGE 25]"), "x") == [(36, 61, 14)]
    assert looked_up(engine.lookup("SELECT avg(volume) AS x FROM s [RANGE 25]"), "x") == [(36, 61, 14 / 3)]
    assert looked_up(engine.lookup("SELECT min(volume) AS x FROM s [RANGE 45]"), "x") == [(16, 61, -10)]
    found = engine.lookup("SELECT max(speed) AS x FROM s [RANGE 25]").to_pylist()[0]
    assert (found["x_low"], found["x_high"]) == (60, 70), "the hull of what is in the last bucket"
    with pytest.raises(SettingError, match="asks for 101, and no more than 100 is kept"):
        engine.lookup("SELECT sum(volume) FROM s [RANGE 101]")
    with pytest.raises(SettingError, match="no more than 60 is kept"):
        engine.lookup("SELECT max(speed) FROM s [RANGE 61]")
    with pytest.raises(SettingError, match="no on-demand query over the same rows"):
        engine.lookup("SELECT sum(volume) FROM s [RANGE 10] WHERE sensor = 1")
    with pytest.raises(
        SettingError, match=r"needs values of `speed`, and all, q1 keep only .*values of `volume`"
    ):
        engine.lookup("SELECT var_pop(speed) FROM s [RANGE 10]")
    with pytest.raises(SettingError, match="a query's text"):
        engine.lookup(engine.query("all"))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="has SLIDE"):
        engine.lookup("SELECT sum(volume) FROM s [RANGE 10 SLIDE 10]")
    with pytest.raises(transom.SQLError, match="unknown column volum"):
        engine.lookup("SELECT sum(volum) FROM s [RANGE 10]")


def test_a_lookup_that_no_store_answers_names_the_kept_query_and_what_it_lacks(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path / "checkpoint"))
    feed = engine.feed("s", "sensor int, volume int, t int", time="t")
    engine.register("SELECT sensor FROM s [RANGE 10] GROUP BY sensor", "sensors")
    feed.push([(1, 5, 1), (2, 6, 2)])
    engine.step()
    with pytest.raises(SettingError) as refused:
        engine.lookup("SELECT sensor, sum(volume) AS x FROM s [RANGE 10] GROUP BY sensor")
    assert str(refused.value) == (
        "nothing is kept that answers this query: it needs values of `volume`, and sensors keeps only which groups "
        "have rows; register the query to keep them"
    )


def test_what_cannot_be_asked_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(ALL, name="all")
    rows = engine.register("SELECT sum(volume) AS s FROM s [ROWS 4]")
    pushed = engine.register("SELECT count(*) FROM s [RANGE 10 SLIDE 10]", name="pushed")
    grouped = engine.register("SELECT sensor, count(*) FROM s [RANGE 10] GROUP BY sensor")
    feed.push(FIRST)
    engine.step()
    for asked, problem in {
        lambda: query.lookup(range=101): "100 or less, not for 101",
        lambda: query.lookup(range=0): "positive",
        lambda: query.lookup(rows=3): "say range=",
        lambda: query.lookup(range="1 minute"): "plain numbers",
        lambda: query.lookup(range=3, rows=3): "not both",
        lambda: query.lookup(at=30): "retains no rows",
        lambda: query.lookup(where={"sensor": 1}): "does not group by sensor",
        lambda: query.lookup(where="sensor = 1"): "a mapping from columns",
        lambda: grouped.lookup(where={"sensor": "x"}): "sensor can't be 'x'",
        lambda: grouped.lookup(where={"lane": 1}): "does not group by lane",
        lambda: rows.lookup(range=3): "say rows=",
        lambda: rows.lookup(at=30): "leave `at` out",
        lambda: pushed.lookup(): "pushed has SLIDE",
        lambda: query.results(): "no SLIDE",
        lambda: query.subscribe(print): "no SLIDE",
        lambda: query.prod(): "no SLIDE",
    }.items():
        with pytest.raises(SettingError, match=problem):
            asked()
    query.drop()
    with pytest.raises(StateError, match="was dropped"):
        query.lookup()


def test_intervals_of_a_timegram_and_what_they_are_called(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(
        "SELECT sensor, max(speed) AS top, avg(speed) AS a, count(*) AS n FROM s [RANGE 100] GROUP BY sensor "
        "USING timegram(4 BETWEEN 30 AND 70)"
    )
    wide = engine.register("SELECT sum(speed) AS total FROM s [RANGE 30] WITHIN 5%")
    feed.push([*FIRST, *SECOND])
    engine.step()
    first = query.lookup(where={"sensor": 1}).to_pylist()[0]
    assert list(first)[2:10] == ["sensor", "top", "a", "n", "top_low", "top_high", "a_low", "a_high"]
    assert first["top_low"] <= 99 <= first["top_high"] and (first["n"], first["n_low"], first["n_high"]) == (
        4,
        4,
        4,
    )
    assert first["a_low"] <= (30 + 40 + 70 + 99) / 4 <= first["a_high"]
    total = wide.lookup().to_pylist()[0]
    assert (
        total["total_low"] <= 165 <= total["total_high"]
        and total["total_high"] - total["total_low"] <= 0.05 * 165
    )


@pytest.mark.parametrize("using", ["", " USING naive", " USING ordered_sharing"])
def test_exact_structures_agree_while_updates_and_lookups_interleave(
    using: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(f"SELECT max(volume) AS m, min(volume) AS l FROM s [ROWS 6]{using}")
    volumes: list[int] = []
    for number, volume in enumerate([5, 3, 9, 1, 1, 2, 0, 4, 4, 1, 0, 0, 7]):
        volumes.append(volume)
        feed.push([(number, 1, 1, volume)])
        engine.step()
        for rows in (6, 3, 1):
            seen = volumes[-rows:]
            assert query.lookup(rows=rows).select(["m", "l"]).to_pylist() == [
                {"m": max(seen), "l": min(seen)}
            ]


def test_rows_come_late_for_lookups_only_when_they_are_older_than_all_that_is_kept(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    short = engine.register("SELECT sum(volume) AS s FROM s [RANGE 20]")
    query = engine.register("SELECT sum(volume) AS s FROM s [RANGE 50]")
    pushed = engine.register("SELECT count(*) FROM s [RANGE 10 SLIDE 10]")
    feed.push([(100, 1, 1, 1)])
    engine.step()
    feed.push([(60, 1, 1, 2), (50, 1, 1, 4), (90, 2, 1, 8)])
    engine.step()
    assert looked_up(query.lookup(), "s") == [(51, 101, 11)]
    missed = {row["ts"]: set(row["missed_by"]) for row in engine.late("s").to_pylist()}
    everyone = {short.name, query.name, pushed.name}
    assert missed == {50: everyone, 60: {short.name, pushed.name}, 90: {pushed.name}}
    assert [one.account.late for one in (short, query, pushed)] == [2, 1, 3]
    assert query.late().to_pylist() == [{"window_start": None, "window_end": None, "late": 1}]
    assert [row["ts"] for row in query.late(rows=True).to_pylist()] == [50]
    stream = engine.progress().streams["s"]
    assert (stream.rows, stream.counted, stream.late) == (4, 1, 3)


def test_lookups_of_a_query_that_joins_late_report_whether_they_are_complete(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register("SELECT sum(volume) AS s FROM s [RANGE 20]")
    feed.push([(100, 1, 1, 1), (110, 1, 1, 2)])
    engine.step()
    longer = engine.register("SELECT sum(volume) AS s FROM s [RANGE 60]")
    other = engine.register("SELECT max(speed) AS v FROM s [RANGE 20]")
    feed.push([(115, 1, 9, 4)])
    engine.step()
    told = longer.lookup().to_pylist()[0]
    assert (told["s"], told["complete"]) == (7, False), "what came before 91 may have been let go"
    told = longer.lookup(range=20).to_pylist()[0]
    assert (told["s"], told["complete"]) == (7, True), "from what the first query kept"
    assert other.lookup()["complete"].to_pylist() == [False]
    assert other.lookup(range=5)["complete"].to_pylist() == [True]


def test_results_of_a_query_can_be_looked_up(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    engine.register(
        "SELECT sensor, sum(volume) AS v FROM s [RANGE 10 SLIDE 10] GROUP BY sensor", name="inner"
    )
    query = engine.register(
        "SELECT max(v) AS m, count(*) AS n FROM inner_ [RANGE 20]".replace("inner_", "`inner`")
    )
    feed.push([(1, 1, 1, 5), (2, 2, 1, 7), (11, 1, 1, 3), (25, 1, 1, 1)])
    engine.step()
    assert looked_up(query.lookup(), "m", "n") == [(0, 20, 7, 3)]
    assert looked_up(query.lookup(range=10), "m", "n") == [(10, 20, 3, 1)]
    feed.push([(31, 1, 1, 3)])
    engine.step()
    assert looked_up(query.lookup(), "m", "n") == [(10, 30, 3, 2)]


@ON_BOTH
def test_joins_and_functions_of_on_demand_queries(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    lanes = pa.table({"sensor": pa.array([1, 1, 2], pa.int32()), "lane": ["a", "b", "a"]})
    engine.table("lanes", make_engine.rows(lanes))

    def broken(speed: int) -> bool:
        raise ValueError("no")

    engine.udf("broken", broken, "boolean")
    query = engine.register(
        "SELECT lane, sum(volume) AS v FROM s [RANGE 100], lanes WHERE s.sensor = lanes.sensor GROUP BY lane"
    )
    plain = engine.register("SELECT sum(volume) AS v FROM s [RANGE 100]")
    bad = engine.register("SELECT sum(volume) AS v FROM s [RANGE 100] WHERE broken(speed)")
    feed.push(FIRST)
    engine.step()
    assert looked_up(query.lookup(), "lane", "v") == [(-69, 31, "a", -16), (-69, 31, "b", -6)]
    assert looked_up(query.lookup(where={"lane": "b"}), "v") == [(-69, 31, -6)]
    assert query.lookup(where={"lane": ["b", "a", "c"]})["lane"].to_pylist() == ["a", "b"]
    assert looked_up(plain.lookup(), "v") == [(-69, 31, -16)]
    for time in range(31, 35):
        feed.push([(time, 1, 1, 0)])
        engine.step()
    assert bad.suspended is not None
    with pytest.raises(StateError, match="suspended"):
        bad.lookup()
    assert looked_up(plain.lookup(), "v") == [(-65, 35, -16)]


def test_texts_over_results_are_not_remembered(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    text, outer = "SELECT max(v) AS m FROM each [RANGE 50]", "SELECT sum(v) AS m FROM each [RANGE 50]"
    for item, expected in (("sum(volume)", 5), ("sum(volume) / 4", 1.25)):
        inner = engine.register(f"SELECT {item} AS v FROM s [RANGE 10 SLIDE 10]", name="each")
        reader, other = engine.register(text), engine.register(outer)
        start = 0 if expected == 5 else 100
        feed.push([(start + 1, 1, 1, 5), (start + 25, 1, 1, 0)])
        engine.step()
        assert engine.lookup(text)["m"].to_pylist() == [expected]
        for query in (reader, other, inner):
            query.drop()
        engine.step()


def test_a_length_of_time_has_a_unit(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("s", "ts timestamp, v int", time="ts")
    query = engine.register("SELECT sum(v) AS x FROM s [RANGE 1 hour]")
    feed.push([(f"2026-01-01 00:{minute:02}:00", 1) for minute in range(10)])
    engine.step()
    for length in ("2 minutes", timedelta(minutes=2)):
        assert query.lookup(range=length)["x"].to_pylist() == [2]
    with pytest.raises(SettingError, match="60 has no unit; did you mean '60 seconds'"):
        query.lookup(range=60)


def test_a_window_longer_than_all_of_time(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(f"SELECT count(*) AS n FROM s [RANGE {2**70}]")
    feed.push(FIRST)
    engine.step()
    feed.push(SECOND)
    engine.step()
    assert query.lookup()["n"].to_pylist() == [7] and query.lookup(range=2**65)["n"].to_pylist() == [7]


def test_texts_of_lookups_are_bound_once(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(ALL)
    feed.push(FIRST)
    engine.step()
    text = "SELECT sum(volume) AS x FROM s [RANGE 25]"
    engine.lookup(text)
    monkeypatch.setattr(lookups, "bind_all", None)
    assert looked_up(engine.lookup(text), "x") == [(6, 31, -16)]


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_a_lookup_of_named_groups_has_their_answers_and_runs_no_task(
    make_engine: EngineFactory, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path, state=place)
    query = engine.register(
        "SELECT sensor, speed, sum(volume) AS v, max(volume) AS top FROM s [RANGE 900] GROUP BY sensor, speed"
    )
    for start in (0, 400):
        feed.push([(start + i, i % 7 if i % 5 else None, i % 3, i) for i in range(400)])
        engine.step()
    everything = looked_up(query.lookup(), "sensor", "speed", "v", "top")
    assert len(everything) == 24
    tasks = []
    run = type(engine._parts.loop.backend).run
    monkeypatch.setattr(
        type(engine._parts.loop.backend), "run", lambda *given: tasks.append(given) or run(*given)
    )
    for row in everything:
        found = query.lookup(where={"sensor": row[2], "speed": row[3]})
        assert looked_up(found, "sensor", "speed", "v", "top") == [row]
    several = query.lookup(where={"sensor": [1, None, 99], "speed": [0, 2]})
    assert looked_up(several, "sensor", "speed", "v", "top") == [
        row for row in everything if row[2] in (1, None) and row[3] in (0, 2)
    ]
    assert query.lookup(where={"sensor": 99, "speed": 0}).num_rows == 0
    for place_of_column, column in ((2, "sensor"), (3, "speed")):
        for value in (1, None):
            partly = looked_up(query.lookup(where={column: value}), "sensor", "speed", "v", "top")
            assert partly == [row for row in everything if row[place_of_column] == value]
    assert not tasks
    assert looked_up(query.lookup(), "sensor", "speed", "v", "top") == everything
    assert len(tasks) == (place == "executors")


def test_runs_of_files_are_remembered_up_to_some_bytes() -> None:
    runs = [Run.of((pa.array([i]),), np.array([0, 100]), np.arange(100)) for i in range(3)]
    reads: list[str] = []

    class Files:
        def put(self, name: str, table: pa.Table) -> int:
            raise AssertionError

        def get(self, name: str) -> pa.Table:
            reads.append(name)
            return pa.table({"run": pa.array([runs[int(name[1])].packed()], pa.large_binary())})

    refs = [ShardRef(f"r{i}", ((0, 100, 1000),), {}) for i in range(3)]
    cache = RunCache(most_bytes=2 * runs[0].nbytes)
    for at, expected in ((0, 1), (1, 1), (0, 0), (2, 1), (0, 0), (1, 1)):
        reads.clear()
        (found,) = cache.fetched(Files(), [refs[at]], 0)
        assert found.keys[0].to_pylist() == [at] and len(reads) == expected
    assert cache.fetched(Files(), refs, 1) == []
