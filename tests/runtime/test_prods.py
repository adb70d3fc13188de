"""Prods on Spark, from wherever they come: which windows they are told of."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, STREAMING, EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_SITE, at, bids, bids_engine
from tests.runtime.prod_helpers import BY_SENSOR, early, final, told, traffic
from transom.durations import parse_instant

# --- the thesis's examples -------------------------------------------------------------------


def test_the_window_sum_of_section_3_1_is_110_early_and_135_final(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    total = engine.register("SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50]")
    feed.push([(11, 1, 45, 40), (23, 2, 46, 20), (32, 3, 44, 30), (45, 4, 45, 20)])
    feed.prod(until=50)
    feed.push([(46, 1, 45, 25)])
    feed.punctuate(until=50)
    engine.step()
    assert told(total, "v", "rows") == [("early", 0, 50, 110, 4), ("final", 0, 50, 135, 5)]


def test_the_paned_window_max_of_section_3_3_is_55_early_and_58_final(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
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
def still(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An engine whose windows are closed up to 20, those of sensor 1 up to 30; prods change nothing of it."""
    engine, feed = traffic(make_engine, tmp_path_factory.mktemp("still"))
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
        ({"until": 1.5}, "not a whole number: 1.5"),
        ({"until": True}, "not a whole number: True"),
        ({"until": float("inf")}, "not a whole number: inf"),
        ({"until": Decimal("1.5")}, "not a whole number: Decimal"),
        ({"until": Decimal("Infinity")}, "not a whole number: Decimal"),
        ({"where": {"sensor": Decimal("1.5")}}, "sensor can't be Decimal.*: it is no whole number"),
        ({"where": {"sensor": np.float32(1.5)}}, "sensor can't be .*: it is no whole number"),
        ({"until": 10**30}, "too large a number"),
        ({"where": {"sensor": "one"}}, "sensor can't be 'one'"),
        ({"where": {"sensor": 1.5}}, "sensor can't be 1.5: it is no whole number"),
        ({"where": {"sensor": 2**70}}, "sensor can't be 1180591620717411303424"),
        ({"on": "when"}, "when"),
        ({"queries": ["hole"]}, "whole"),
    ],
    ids=[
        "two times",
        "no time",
        "an unknown column",
        "a part of a number",
        "a truth value as a time",
        "an endless time",
        "a part of a number as a decimal",
        "an endless decimal",
        "a decimal between two numbers",
        "a single between two numbers",
        "a number beyond 64 bits",
        "a value of another type",
        "a value between two numbers",
        "a value beyond 64 bits",
        "an unknown clock",
        "a query",
    ],
)
def test_a_prod_that_says_nonsense_is_refused(still: transom.Engine, words: Any, message: str) -> None:
    with pytest.raises((transom.SettingError, transom.StateError), match=message):
        still.prod("s", **words)
    with pytest.raises(transom.SettingError, match="there is no stream or query named t"):
        still.prod("t")


def test_prods_too_early_and_too_late_harm_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
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


def test_a_window_that_several_prods_of_a_batch_request_is_emitted_once(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
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


def prods_as(kind: str, make_engine: EngineFactory, place: Path) -> Any:
    """Two prods: up to 12:01 for site 1, and for everything."""
    rows = [("12:01", 1), (None, None)]
    place.mkdir()
    lines = [json.dumps({"at": time and at(time), "site": site}) for time, site in rows]
    (place / "prods.json").write_text("\n".join(lines))
    schema = "at timestamp, site int"
    if kind == "a path":
        return {"source": str(place), "schema": schema}
    if kind == "rows":
        times = [time and parse_instant(at(time)) for time, _ in rows]
        instants = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        sites = pa.array([site for _, site in rows], pa.int32())
        return {"source": make_engine.rows(pa.table({"at": instants, "site": sites}))}
    return {"source": make_engine.session.readStream.schema(schema).json(str(place))}


@ON_BOTH
@pytest.mark.parametrize("kind", ["a path", "rows"])
def test_a_separate_stream_of_prods_from(make_engine: EngineFactory, tmp_path: Path, kind: str) -> None:
    check_prods_from(kind, make_engine, tmp_path)


@STREAMING
def test_a_separate_stream_of_prods_from_a_streaming_dataframe(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    check_prods_from("a streaming DataFrame", make_engine, tmp_path)


def check_prods_from(kind: str, make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 hour")
    query = engine.register(PER_SITE)
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00"), (1, 1.0, "12:02")))
    engine.step()
    again = make_engine(str(tmp_path / "checkpoint"))
    feed = again.feed("bids", BIDS, time="ts", slack="1 hour")
    again.prods(
        "alarms", of="bids", until="at", where=["site"], **prods_as(kind, make_engine, tmp_path / "prods")
    )
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


def test_a_stream_of_prods_is_no_stream_to_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    words = prods_as("a path", make_engine, tmp_path / "prods")
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


@ON_BOTH
def test_rows_that_are_prods(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
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


def test_a_feed_is_cut_at_its_prods(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(BY_SENSOR)
    for volume in (1, 2, 4):
        feed.push([(10 * volume, 1, 0, volume)])
        feed.prod()
    assert engine.step() == 3
    assert early(query, "v", "batch") == [(0, 50, 1, 1), (0, 50, 3, 2), (0, 50, 7, 3)]
