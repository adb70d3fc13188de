"""Prods on Spark, from wherever they come: told what is known, at once, and harmless to final results."""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import transom
from tests.spark.engine_helpers import (
    BIDS,
    PER_MINUTE,
    PER_SITE,
    SettableClock,
    at,
    bids,
    bids_engine,
)
from tests.spark.prod_helpers import early, final, told, traffic
from transom.spark import outputs
from transom.spark.far import Far

PATIENCE = 60  # seconds; tests wait for events, not for time to pass
BY_SENSOR = "SELECT sensor, sum(volume) AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor"


# --- the thesis's examples -------------------------------------------------------------------


def test_the_window_sum_of_section_3_1_is_110_early_and_135_final(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path)
    total = engine.register("SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50]")
    feed.push([(11, 1, 45, 40), (23, 2, 46, 20), (32, 3, 44, 30), (45, 4, 45, 20)])
    feed.prod(until=50)
    feed.push([(46, 1, 45, 25)])
    feed.punctuate(until=50)
    engine.step()
    assert told(total, "v", "rows") == [("early", 0, 50, 110, 4), ("final", 0, 50, 135, 5)]


def test_the_paned_window_max_of_section_3_3_is_55_early_and_58_final(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path)
    pane, window = engine.register_all(
        {
            "pane": "SELECT max(volume) AS v FROM s [RANGE 10 SLIDE 10]",
            "win": "SELECT max(volume) AS v FROM s [RANGE 30 SLIDE 10]",
        }
    ).values()
    feed.push([(101, 1, 45, 55), (112, 2, 46, 52), (125, 2, 46, 45)])
    feed.punctuate(until=120)
    feed.push([(126, 1, 50, 54)])
    feed.prod(until=130)
    feed.push([(126, 1, 40, 58)])
    feed.punctuate(until=130)
    engine.step()
    assert early(pane, "v") == [(120, 130, 54)] and final(pane, "v")[-1] == (120, 130, 58)
    assert early(window, "v") == [(100, 130, 55)], "it holds pane 10, which the thesis forgot"
    assert final(window, "v") == [(80, 110, 55), (90, 120, 55), (100, 130, 58)]


# --- which windows and groups ----------------------------------------------------------------

OPEN = [(5, 1, 0, 1), (5, 2, 0, 2), (15, 1, 0, 4), (25, 2, 0, 8), (35, 1, 0, 16)]


@pytest.fixture(scope="module")
def still(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An engine whose windows are closed up to 20, those of sensor 1 up to 30; prods change nothing of it."""
    engine, feed = traffic(spark, tmp_path_factory.mktemp("still"))
    engine.register_all(
        {
            "grouped": "SELECT sensor, sum(volume) AS v FROM s [RANGE 20 SLIDE 10] GROUP BY sensor",
            "pinned": "SELECT sum(volume) AS v FROM s [RANGE 20 SLIDE 10] WHERE sensor = 1",
            "whole": "SELECT sum(volume) AS v FROM s [RANGE 20 SLIDE 10]",
        }
    )
    feed.push(OPEN)
    feed.punctuate(until=20)
    feed.punctuate(until=30, where={"sensor": 1})
    engine.step()
    return engine


@pytest.mark.parametrize(
    ("words", "grouped", "pinned", "whole"),
    [
        (
            {},
            [(10, 30, 2, 8), (20, 40, 1, 16), (20, 40, 2, 8), (30, 50, 1, 16)],
            [(20, 40, 16), (30, 50, 16)],
            [(10, 30, 12), (20, 40, 24), (30, 50, 16)],
        ),
        (
            {"until": 40},
            [(10, 30, 2, 8), (20, 40, 1, 16), (20, 40, 2, 8)],
            [(20, 40, 16)],
            [(10, 30, 12), (20, 40, 24)],
        ),
        (
            {"until": 49},
            [(10, 30, 2, 8), (20, 40, 1, 16), (20, 40, 2, 8)],
            [(20, 40, 16)],
            [(10, 30, 12), (20, 40, 24)],
        ),
        ({"at": 40}, [(20, 40, 1, 16), (20, 40, 2, 8)], [(20, 40, 16)], [(20, 40, 24)]),
        ({"at": 30, "where": {"sensor": 1}}, [], [], []),
        ({"at": 30, "where": {"sensor": 2}}, [(10, 30, 2, 8)], [], []),
        ({"at": 40, "where": {"sensor": 2}}, [(20, 40, 2, 8)], [], []),
        (
            {"until": 50, "where": {"sensor": 1}},
            [(20, 40, 1, 16), (30, 50, 1, 16)],
            [(20, 40, 16), (30, 50, 16)],
            [],
        ),
        ({"where": {"sensor": 2}}, [(10, 30, 2, 8), (20, 40, 2, 8)], [], []),
        ({"where": {"sensor": 3}}, [], [], []),
        ({"until": 20}, [], [], []),
        ({"at": 10}, [], [], []),
        ({"at": 500}, [], [], []),
    ],
    ids=[
        "for all",
        "up to a time at which a window ends",
        "up to a time between two ends",
        "at a time",
        "at a time, of a group that is closed",
        "at a time, of a group that is open",
        "at a time, of one group of two",
        "up to a time, of a group",
        "for a group",
        "for a group without rows",
        "too late",
        "too late for one window",
        "too early",
    ],
)
def test_a_prod(still: transom.Engine, words: Any, grouped: Any, pinned: Any, whole: Any) -> None:
    found = still.prod("s", **words)
    assert {
        name: early(table, *(["sensor"] if name == "grouped" else []), "v") for name, table in found.items()
    } == {name: rows for name, rows in (("grouped", grouped), ("pinned", pinned), ("whole", whole)) if rows}
    assert early(still.query("grouped").prod(**words), "sensor", "v") == grouped


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"until": 1, "at": 2}, "until.*at"),
        ({"until": "noon"}, "not a number"),
        ({"where": {"senser": 1}}, "senser"),
        ({"where": {"sensor": "one"}}, "sensor can't be 'one'"),
        ({"on": "when"}, "when"),
        ({"queries": ["hole"]}, "whole"),
    ],
    ids=[
        "two times",
        "no time",
        "an unknown column",
        "a value of another type",
        "an unknown clock",
        "a query",
    ],
)
def test_a_prod_that_says_nonsense_is_refused(still: transom.Engine, words: Any, message: str) -> None:
    with pytest.raises((transom.SettingError, transom.StateError), match=message):
        still.prod("s", **words)
    with pytest.raises(transom.SettingError, match="there is no stream or query named t"):
        still.prod("t")


def test_prods_too_early_and_too_late_harm_nothing(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
    query = engine.register(BY_SENSOR)
    feed.prod(until=50)  # nothing has come
    feed.push([(10, 1, 0, 1)])
    feed.punctuate(until=50)
    feed.prod(until=50)  # it is closed
    feed.prod(at=50, where={"sensor": 1})
    feed.push([(60, 1, 0, 2)])
    feed.prod(at=150)  # nothing is there yet
    engine.step()
    engine.drain()
    assert told(query, "sensor", "v") == [("final", 0, 50, 1, 1), ("final", 50, 100, 1, 2)]


def test_a_window_that_several_prods_of_a_page_ask_for_is_told_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path)
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 0, 1), (11, 2, 0, 2)])
    for words in (
        {"where": {"sensor": 1}},
        {"at": 50, "where": {"sensor": 1}},
        {"where": {"sensor": 2}},
        {"until": 50},
    ):
        feed.prod(**words)
    engine.step()
    assert sorted(early(query, "sensor", "v")) == [(0, 50, 1, 1), (0, 50, 2, 2)]


# --- where prods come from -------------------------------------------------------------------


def prods_as(kind: str, spark: SparkSession, place: Path) -> Any:
    """Two prods: up to 12:01 for site 1, and for everything."""
    rows = [("12:01", 1), (None, None)]
    place.mkdir()
    lines = [json.dumps({"at": time and at(time), "site": site}) for time, site in rows]
    (place / "prods.json").write_text("\n".join(lines))
    schema = "at timestamp, site int"
    if kind == "a path":
        return {"source": str(place), "schema": schema}
    if kind == "a batch DataFrame":
        return {"source": spark.read.schema(schema).json(str(place))}
    return {"source": spark.readStream.schema(schema).json(str(place))}


@pytest.mark.parametrize("kind", ["a path", "a batch DataFrame", "a streaming DataFrame"])
def test_a_separate_stream_of_prods_from(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    engine, feed = bids_engine(spark, tmp_path, slack="1 hour")
    query = engine.register(PER_SITE)
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00"), (1, 1.0, "12:02")))
    engine.step()
    again = transom.Engine(spark, str(tmp_path / "checkpoint"))
    feed = again.feed("bids", BIDS, time="ts", slack="1 hour")
    again.prods("alarms", of="bids", until="at", where=["site"], **prods_as(kind, spark, tmp_path / "prods"))
    query = again.register(PER_SITE)
    again.drain()
    assert sorted(early(query, "site", "n")) == [
        ("11:59", "12:01", 1, 1),
        ("11:59", "12:01", 2, 1),
        ("12:00", "12:02", 1, 1),
        ("12:00", "12:02", 2, 1),
        ("12:01", "12:03", 1, 1),
        ("12:02", "12:04", 1, 1),
    ]
    assert len(final(query)) == 6


def test_a_stream_of_prods_is_no_stream_to_query(spark: SparkSession, tmp_path: Path) -> None:
    engine, _ = bids_engine(spark, tmp_path)
    words = prods_as("a path", spark, tmp_path / "prods")
    with pytest.raises(transom.SettingError, match="no stream named asks"):
        engine.prods("alarms", of="asks", **words)
    with pytest.raises(transom.SettingError, match="when"):
        engine.prods("alarms", of="bids", until="when", **words)
    engine.prods("alarms", of="bids", at="at", where={"site": "site"}, **words)
    with pytest.raises(transom.SQLError, match="alarms"):
        engine.register("SELECT count(*) AS n FROM alarms [RANGE 1 minute SLIDE 1 minute]")
    with pytest.raises(transom.StateError, match="already"):
        engine.prods("alarms", of="bids", **words)
    with pytest.raises(transom.SettingError, match="int32"):
        engine.prods("others", of="bids", until="site", **words)
    assert list(engine.progress().streams) == ["bids"] and "alarms" not in engine.explain()
    assert engine.prod("alarms") == {}


def test_rows_that_are_prods(spark: SparkSession, tmp_path: Path) -> None:
    engine = transom.Engine(spark, str(tmp_path))
    marks = {"punctuation": "kind = 'end'", "prod": "kind = 'ask'"}
    feed = engine.feed("s", "ts bigint, sensor int, volume int, kind string", time="ts", slack=None, **marks)
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 5, None), (11, 2, 6, None), (50, 1, None, "ask")])
    engine.step()
    assert told(query, "sensor", "v") == [("early", 0, 50, 1, 5)]
    feed.push([(12, 1, 1, None), (None, None, None, "ask"), (50, 2, None, "end")])
    engine.step()
    assert told(query, "sensor", "v")[1:] == [("early", 0, 50, 1, 6), ("final", 0, 50, 2, 6)]
    assert engine.progress().streams["s"].rows == 3, "prods are no data"


def test_a_feed_is_cut_at_its_prods(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
    query = engine.register(BY_SENSOR)
    for volume in (1, 2, 4):
        feed.push([(10 * volume, 1, 0, volume)])
        feed.prod()
    assert engine.step() == 3
    assert early(query, "v", "page") == [(0, 50, 1, 1), (0, 50, 3, 2), (0, 50, 7, 3)]


# --- at once ---------------------------------------------------------------------------------


def test_prods_before_the_first_page_and_after_the_last(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
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
    again, _ = traffic(spark, tmp_path)
    assert early(again.prod()["q"], "v") == [(0, 50, 1)], "before it has made a page"
    assert early(again.query("q").prod(), "v") == [(0, 50, 1)]
    again.query("q").drop()
    again.step()
    assert again.prod() == {}


def test_a_prod_is_answered_while_a_page_is_being_processed(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
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
    page = threading.Thread(target=engine.step)
    page.start()
    try:
        assert entered.wait(PATIENCE)
        assert early(query.prod(), "v") == [(0, 50, 1), (50, 100, 2)], "of the page before"
        assert early(engine.prod("s", at=100)["q2"], "v") == [(50, 100, 2)]
        assert early(query.results(), "v") == [(0, 50, 1), (50, 100, 2), (50, 100, 2)]
    finally:
        go_on.set()
        page.join(PATIENCE)
    assert final(query, "v") == [(0, 50, 1)] and early(query.prod(), "v") == [(50, 100, 6)]


def test_a_prod_whose_page_is_overtaken_is_told_of_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(spark, tmp_path, state="executors")
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 0, 1), (60, 1, 0, 2)])
    engine.step()
    feed.punctuate(until=100)
    feed.push([(110, 1, 0, 4)])
    real = Far.close

    def overtaken(far: Far, *args: Any) -> Any:
        monkeypatch.setattr(Far, "close", real)
        engine.step()  # another thread's page: it lets go of the shards that were to be read
        return real(far, *args)

    monkeypatch.setattr(Far, "close", overtaken)
    assert early(query.prod(), "v", "page") == [(100, 150, 4, 3)]
    assert told(query, "v") == [("early", 100, 150, 4), ("final", 0, 50, 1), ("final", 50, 100, 2)]


def test_queries_are_prodded_by_name_whatever_other_streams_there_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path)
    other = engine.feed("bids", BIDS, time="ts", slack=None)
    engine.register_all({"q": BY_SENSOR, "n": PER_MINUTE, "r": BY_SENSOR + " HAVING sum(volume) > 9"})
    assert engine.prod(queries=["q"], until=50, where={"sensor": 1}) == {}
    feed.push([(10, 1, 0, 1)])
    other.push(bids((1, 1.0, "12:00")))
    engine.step()
    assert list(engine.prod(queries=["q", "r"], until=50, where={"sensor": 1})) == ["q"]
    assert list(engine.prod(queries=["n"], at=at("12:01"))) == ["n"]
    assert sorted(engine.prod()) == ["n", "q"] == sorted(engine.prod(queries=["n", "q"]))


def test_the_timer_of_an_engine_in_the_background(spark: SparkSession, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = traffic(spark, tmp_path, clock=clock, poll="20 ms")
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


def test_windows_along_other_clocks(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
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
    assert early(counted, "n", "page").count((0, 2, 1, 2)) == 1 and len(early(rows)) == 2


def test_a_subscriber_may_prod(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
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
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = SettableClock(at("13:00"))
    engine, feed = bids_engine(spark, tmp_path, clock=clock, slack=None)
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
    shown = ("n", "made", "latency", "rows", "page", "complete")
    assert told(query, *shown) == [
        ("early", "12:00", "12:01", 2, "13:01", 60.0, 2, 2, True),
        ("early", "12:00", "12:01", 2, "13:03", 180.0, 2, 2, True),
        ("early", "12:01", "12:02", 1, "13:01", 0.0, 1, 2, True),
        ("final", "12:00", "12:01", 2, "13:03", 180.0, 2, 3, True),
        ("final", "12:01", "12:02", 1, "13:03", 120.0, 1, 3, True),
    ]


def test_what_was_told_is_kept_across_a_restart_and_forgotten_with_the_results(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path, retention=2)
    query = engine.register(BY_SENSOR, name="q")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    for _ in range(2):
        query.prod()
    engine.stop()
    again, feed = traffic(spark, tmp_path, retention=2)
    query = again.register(BY_SENSOR, name="q")
    query.prod()
    assert early(query, "v", "page") == [(0, 50, 1, 1)] * 3
    for time in (60, 61, 62):
        feed.push([(time, 1, 0, 2)])
        again.step()
        query.prod(at=100)
    assert sorted(early(query, "v", "page")) == [(50, 100, 4, 3), (50, 100, 6, 4)]
    assert {path.name for path in (tmp_path / "checkpoint" / "prods").iterdir()} == {
        "0000000003",
        "0000000004",
    }


def test_results_that_a_page_lets_go_of_while_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(spark, tmp_path, retention=1)
    query = engine.register(BY_SENSOR)
    feed.push([(10, 1, 0, 1)])
    engine.step()
    query.prod()
    feed.push([(11, 1, 0, 2)])
    real = outputs.own_rows

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(outputs, "own_rows", real)
        engine.step()
        return real(*args)

    monkeypatch.setattr(outputs, "own_rows", overtaken)
    assert query.results().num_rows == 0
    assert early(query.prod(), "v") == [(0, 50, 3)] == early(query, "v")


def test_a_query_of_the_same_name_does_not_inherit_what_another_was_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path)
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


def test_sinks_get_the_early_results_of_pages(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path)
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
    csv = spark.read.csv(str(tmp_path / "csv"), header=True).select("kind", "v", "rows").collect()
    assert sorted(map(tuple, csv)) == [("early", "1", "1"), ("final", "3", "2")]
    parquet = spark.read.parquet(str(tmp_path / "parquet"))
    assert {*emits.results().column_names} <= {*parquet.columns}
    assert sorted(map(tuple, parquet.select("kind", "v").collect())) == [("early", 1), ("final", 3)]
    lines = [
        json.loads(line)
        for file in (tmp_path / "all").glob("page=*/*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted((one["query"], one["kind"], json.loads(one["values"])["v"]) for one in lines) == [
        ("emits", "early", 1),
        ("emits", "final", 3),
        ("q", "early", 1),
        ("q", "final", 3),
    ]


# --- queries of every kind -------------------------------------------------------------------

KINDS = {
    "grouped": BY_SENSOR,
    "having": BY_SENSOR + " HAVING sum(volume) > 2",
    "computed": "SELECT sensor, sum(volume) * 2 + count(*) AS v FROM s [RANGE 40 SLIDE 20] GROUP BY sensor",
    "joined": "SELECT road, sum(volume) AS v FROM s [RANGE 50 SLIDE 50], roads "
    "WHERE s.sensor = roads.sensor GROUP BY road",
    "rows": "SELECT max(volume) AS v FROM s [ROWS 4 SLIDE 4]",
    "gaps": "SELECT count(*) AS v FROM s [RANGE 15 SLIDE 20]",
    "filtered": "SELECT count(*) AS v FROM s [RANGE 50 SLIDE 50] WHERE volume > 2",
}
KNOWN = {
    "grouped": [(0, 50, 1, 5), (0, 50, 2, 2)],
    "having": [(0, 50, 1, 5)],
    "computed": [(-20, 20, 1, 3), (0, 40, 1, 12), (0, 40, 2, 5), (20, 60, 1, 9), (20, 60, 2, 5)],
    "joined": [(0, 50, "east", 5), (0, 50, None, 2)],
    "rows": [(0, 4, 4)],
    "gaps": [(5, 20, 1), (25, 40, 1)],
    "filtered": [(0, 50, 1)],
}


KEYS = {"grouped": ["sensor"], "having": ["sensor"], "computed": ["sensor"], "joined": ["road"]}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, list(KINDS)),
        ({"strategy": "naive"}, list(KINDS)),
        ({"strategy": "unshared_paired"}, list(KINDS)),
        ({"strategy": "shared_paned"}, list(KINDS)),
        ({"state": "executors"}, ["computed"]),
    ],
    ids=["shared", "naive", "unshared", "paned", "with the executors"],
)
def test_queries_of_every_kind_can_be_prodded(
    spark: SparkSession, tmp_path: Path, options: Any, names: list[str]
) -> None:
    engine, feed = traffic(spark, tmp_path, **options)
    engine.table("roads", [{"sensor": 1, "road": "east"}, {"sensor": 2, "road": None}])
    queries = engine.register_all({name: KINDS[name] for name in names})
    feed.push([(10, 1, 0, 1), (21, 2, 0, 2)])
    engine.step()
    feed.push([(30, 1, 0, 4)])
    feed.prod()
    engine.step()
    expected = {name: KNOWN[name] for name in names}
    assert {name: early(query, *KEYS.get(name, []), "v") for name, query in queries.items()} == expected
    now = {name: early(table, *KEYS.get(name, []), "v") for name, table in engine.prod("s").items()}
    assert now == expected
    if options.get("state") == "executors":
        assert engine.progress().far_rows > 0


def test_finals_and_early_results_of_one_page_both_come_from_the_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path, state="executors")
    query = engine.register(BY_SENSOR)
    query.sink("json", path=str(tmp_path / "out"))
    heard: list[pa.Table] = []
    query.subscribe(heard.append)
    feed.push([(10, 1, 0, 1), (60, 2, 0, 2)])
    feed.prod(where={"sensor": 1})
    feed.prod(where={"sensor": 2})
    feed.prod(at=100, where={"sensor": 2})
    feed.punctuate(until=50)
    engine.step()
    assert told(query, "sensor", "v") == [("early", 50, 100, 2, 2), ("final", 0, 50, 1, 1)]
    sent = spark.read.json(str(tmp_path / "out")).select("kind", "v", "page").collect()
    assert sorted(map(tuple, sent)) == sorted(
        (row["kind"], row["v"], row["page"]) for row in query.results().to_pylist()
    )
    assert sum(table.num_rows for table in heard) == query.results().num_rows


# --- one query's bad luck --------------------------------------------------------------------


def test_a_query_whose_function_raises_when_prodded_is_not_told_and_the_others_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine, feed = traffic(spark, tmp_path, max_failures=1)
    engine.udf("picky", lambda x: 1 // (x - 1), "int")
    picky = engine.register("SELECT picky(sum(volume)) AS v FROM s [RANGE 50 SLIDE 50]", name="picky")
    plain = engine.register(BY_SENSOR, name="plain")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    told_now = engine.prod("s")
    assert early(told_now["plain"], "v") == [(0, 50, 1)]
    assert early(picky.prod(), "v") == [(0, 50, None)] and picky.suspended is None
    feed.push([(11, 1, 0, 1)])
    engine.drain()
    assert final(picky, "v") == [(0, 50, 1)] and final(plain, "v") == [(0, 50, 2)]


def test_a_suspended_query_is_told_nothing(spark: SparkSession, tmp_path: Path) -> None:
    engine, feed = traffic(spark, tmp_path, max_failures=1)
    engine.udf("hopeless", lambda x: x.no_such_thing, "int")
    lost = engine.register("SELECT sum(hopeless(volume)) AS v FROM s [RANGE 50 SLIDE 50]", name="lost")
    plain = engine.register(BY_SENSOR, name="plain")
    feed.push([(10, 1, 0, 1)])
    feed.prod()
    engine.step()
    assert lost.suspended is not None
    assert lost.prod().num_rows == 0 and list(engine.prod("s")) == ["plain"]
    assert len(early(plain)) == 2


# --- finals ----------------------------------------------------------------------------------


def test_final_results_are_the_same_whoever_prods(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    texts = {
        "grouped": "SELECT sensor, sum(volume) AS v, avg(speed) AS a FROM s [RANGE 30 SLIDE 10] "
        "GROUP BY sensor",
        "whole": "SELECT max(volume) AS v, count(*) AS n FROM s [RANGE 25 SLIDE 10] WHERE speed > 20",
        "of results": "SELECT max(v) AS v, count(*) AS n FROM grouped [RANGE 40 SLIDE 20]",
    }
    emits = (
        " EMIT EARLY EVERY '1 second'",
        " EMIT EARLY AT 25%, 75% OF SLIDE",
        " EMIT EARLY WITH ACCURACY 90%",
    )
    random, found = Random(seed), []
    pages = [
        [
            (
                max(0, 30 * page + random.randint(-20, 20)),
                random.randint(1, 3),
                random.randint(0, 50),
                random.randint(0, 99),
            )
            for _ in range(30)
        ]
        for page in range(5)
    ]
    for prods in (False, True):
        clock = SettableClock()
        engine, feed = traffic(spark, tmp_path / str(prods), clock=clock, slack=20)
        ends = emits if prods else ("",) * 3
        queries = engine.register_all(
            {n: text + end for (n, text), end in zip(texts.items(), ends, strict=True)}
        )
        for page in pages:
            feed.push(page)
            clock.advance(minutes=1)
            if prods:
                feed.prod(until=random.randint(0, 200), where={"sensor": random.randint(1, 3)})
                feed.prod(at=random.randint(0, 200))
            engine.step()
            if prods:
                engine.prod()
        engine.drain()
        found.append({name: sorted(final(query, *_items(query))) for name, query in queries.items()})
        assert bool(early(queries["of results"])) == prods, f"seed {seed}"
    assert found[0] == found[1], f"seed {seed}"


def _items(query: Any) -> list[str]:
    names = query.results().column_names
    return [n for n in names[2:] if not n.endswith(("_projected", "_low", "_high", "made", "latency"))]
