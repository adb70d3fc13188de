"""Queries over queries on Spark: finals flow on, early results are put on top and replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import SettableClock, at, bids, bids_engine
from tests.runtime.prod_helpers import TRAFFIC, early, final, told, traffic

PER_SENSOR = "SELECT sensor, sum(volume) AS n FROM s [RANGE 20 SLIDE 20] GROUP BY sensor"
BUSIEST = "SELECT max(n) AS n FROM per_sensor [RANGE 40 SLIDE 40]"


def both(engine: transom.Engine, outer: str = BUSIEST, inner: str = PER_SENSOR) -> tuple[Any, Any]:
    """An inner and an outer query."""
    found = engine.register_all({"outer": outer, "per_sensor": inner})
    return found["per_sensor"], found["outer"]


# --- the thesis ------------------------------------------------------------------------------


def test_panes_as_a_query_of_their_own(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    pane, window = engine.register_all(
        {
            "pane": "SELECT max(volume) AS v FROM s [RANGE 10 SLIDE 10]",
            "win": "SELECT max(v) AS v FROM pane [RANGE 30 SLIDE 10]",
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
    assert early(window, "v") == [(100, 130, 55)]
    assert final(window, "v") == [(80, 110, 55), (90, 120, 55), (100, 130, 58)]


def test_a_max_of_sums_sees_each_sum_once_and_as_large_as_it_is(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    inner, outer = both(engine)
    assert outer.prod().num_rows == 0 and engine.prod("per_sensor") == {}, "nothing has come"
    total = engine.register("SELECT sum(n) AS n, count(*) AS c FROM per_sensor [RANGE 40 SLIDE 40]")
    feed.push([(1, 1, 0, 5), (2, 2, 0, 3), (21, 1, 0, 1)])
    engine.step()
    assert early(outer.prod(), "n", "rows") == [(0, 40, 5, 3)]
    feed.push([(3, 2, 0, 4)])
    engine.step()
    for _ in range(2):
        assert early(outer.prod(), "n") == [(0, 40, 7)]
        assert early(total.prod(), "n", "c") == [(0, 40, 13, 3)]
    feed.punctuate(until=20)
    engine.step()
    assert final(inner, "sensor", "n") == [(0, 20, 1, 5), (0, 20, 2, 7)] and final(outer) == []
    feed.push([(22, 1, 0, 8)])
    engine.step()
    assert early(outer.prod(), "n") == [(0, 40, 9)], "a final, and what is known of the other"
    feed.punctuate(until=40)
    engine.step()
    assert final(outer, "n", "rows") == [(0, 40, 9, 3)] and final(total, "n", "c") == [(0, 40, 21, 3)]
    assert outer.prod().num_rows == 0
    feed.push([(41, 1, 0, 1)])
    engine.step()
    again, _ = traffic(make_engine, tmp_path)
    assert early(again.prod("per_sensor", at=80)["outer"], "n") == [(40, 80, 1)], "before its first batch"


def test_three_levels(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=5)
    texts = {
        "top": "SELECT max(n) AS n FROM busiest [RANGE 80 SLIDE 80]",
        "busiest": "SELECT sum(n) AS n FROM per_sensor [RANGE 40 SLIDE 40]",
        "per_sensor": PER_SENSOR,
    }
    queries = engine.register_all(texts)
    feed.push([(1, 1, 0, 1), (2, 2, 0, 2), (30, 1, 0, 4), (50, 1, 0, 8)])
    feed.prod()
    engine.step()
    assert early(queries["top"], "n") == [(0, 80, 8)], "7 is final, 8 is early"
    feed.push([(90, 1, 0, 1)])
    engine.step()
    assert final(queries["top"], "n") == [(0, 80, 8)] and final(queries["busiest"], "n") == [
        (0, 40, 7),
        (40, 80, 8),
    ]
    assert early(engine.prod("busiest", until=160)["top"], "n") == [(80, 160, 1)]


# --- what outer queries can be ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "columns", "expected"),
    [
        (
            "SELECT sensor, sum(n) AS n FROM per_sensor [RANGE 40 SLIDE 40] GROUP BY sensor",
            ["sensor", "n"],
            [(0, 40, 1, 5), (0, 40, 2, 2), (40, 80, 1, 8)],
        ),
        (
            "SELECT road, max(n) AS n FROM per_sensor [RANGE 40 SLIDE 40], roads "
            "WHERE per_sensor.sensor = roads.sensor GROUP BY road",
            ["road", "n"],
            [(0, 40, "east", 4), (0, 40, "west", 2), (40, 80, "east", 8)],
        ),
        (
            "SELECT count(*) AS n FROM per_sensor [RANGE 40 SLIDE 40] "
            "WHERE window_start >= 20 AND window_end <= 60",
            ["n"],
            [(0, 40, 1), (40, 80, 1)],
        ),
        (
            "SELECT sum(rows) * 10 AS n FROM per_sensor [RANGE 40 SLIDE 40] HAVING sum(rows) > 1",
            ["n"],
            [(0, 40, 30)],
        ),
        (
            "SELECT max(n) AS n FROM per_sensor [RANGE 60 SLIDE 20]",
            ["n"],
            [(-40, 20, 2), (-20, 40, 4), (0, 60, 8), (20, 80, 8), (40, 100, 8)],
        ),
        ("SELECT max(n) AS n FROM per_sensor [RANGE 20 SLIDE 40]", ["n"], [(20, 40, 4)]),
    ],
    ids=[
        "grouped by a key of the inner",
        "joined with a table",
        "over windows chosen by their ends",
        "over the number of rows, with HAVING",
        "sliding",
        "with gaps",
    ],
)
def test_an_outer_query(
    make_engine: EngineFactory, tmp_path: Path, outer: str, columns: list[str], expected: Any
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.table("roads", [{"sensor": 1, "road": "east"}, {"sensor": 2, "road": "west"}])
    _, query = both(engine, outer)
    feed.push([(1, 1, 0, 1), (2, 2, 0, 2), (30, 1, 0, 4), (50, 1, 0, 8)])
    engine.step()
    assert early(query.prod(), *columns) == expected, "all of it early"
    engine.drain()
    assert final(query, *columns) == expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        (
            f"{PER_SENSOR} HAVING sum(volume) > 2",
            "SELECT count(*) AS n FROM per_sensor [RANGE 40 SLIDE 40]",
            [(0, 40, 1), (40, 80, 1)],
        ),
        (
            "SELECT sum(volume) AS n FROM s [ROWS 2 SLIDE 2]",
            "SELECT max(n) AS n FROM per_sensor [RANGE 4 SLIDE 4]",
            [(0, 4, 12)],
        ),
        (
            "SELECT sum(volume) AS n FROM s [RANGE 20 SLIDE 20]",
            "SELECT max(n) AS n FROM per_sensor [ROWS 2 SLIDE 2]",
            [(0, 2, 4), (2, 4, 8)],
        ),
        (
            "SELECT count(*) AS n FROM s [RANGE 2 SLIDE 2 WATTR volume]",
            "SELECT sum(n) AS n FROM per_sensor [RANGE 4 SLIDE 4]",
            [(0, 4, 2), (4, 8, 1), (8, 12, 1)],
        ),
    ],
    ids=["with HAVING", "over windows of rows", "read by windows of rows", "along another column"],
)
def test_an_inner_query(
    make_engine: EngineFactory, tmp_path: Path, inner: str, outer: str, expected: Any
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    _, query = both(engine, outer, inner)
    feed.push([(1, 1, 0, 1), (2, 2, 0, 2), (30, 1, 0, 4), (50, 1, 0, 8)])
    engine.step()
    assert final(query, "n") + early(query.prod(), "n") == expected
    engine.drain()
    assert final(query, "n") == expected


def test_a_punctuation_of_a_group_closes_the_outer_group(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    inner, outer = both(
        engine, "SELECT sensor, max(n) AS n FROM per_sensor [RANGE 40 SLIDE 40] GROUP BY sensor"
    )
    whole = engine.register(BUSIEST)
    feed.push([(1, 1, 0, 1), (2, 2, 0, 2), (30, 1, 0, 4)])
    feed.punctuate(until=40, where={"sensor": 1})
    engine.step()
    assert final(inner, "sensor", "n") == [(0, 20, 1, 1), (20, 40, 1, 4)]
    assert final(outer, "sensor", "n") == [(0, 40, 1, 4)] and final(whole) == []
    assert early(outer.prod(), "sensor", "n") == [(0, 40, 2, 2)]
    assert early(outer.prod(where={"sensor": 1})) == [] and early(outer.prod(where={"sensor": 2})) == [
        (0, 40)
    ]
    feed.punctuate(until=40)
    engine.step()
    assert final(outer, "sensor", "n") == [(0, 40, 1, 4), (0, 40, 2, 2)] and final(whole, "n") == [(0, 40, 4)]


def test_a_silent_stream_closes_the_whole_cascade(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack="1 minute", idle="5 minutes")
    engine.register("SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site", "i")
    outer = engine.register("SELECT max(n) AS n FROM i [RANGE 2 minutes SLIDE 2 minutes]", "o")
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:00:30"), (2, 1.0, "12:03")))
    engine.step()
    assert final(outer, "n") == [("12:00", "12:02", 2)]
    assert early(outer.prod(until=at("12:04")), "n") == [("12:02", "12:04", 1)]
    clock.advance(minutes=6)
    engine.step()
    assert final(outer, "n") == [("12:00", "12:02", 2), ("12:02", "12:04", 1)]
    feed.push(bids((1, 1.0, "12:10")))
    engine.drain()
    assert final(outer, "n")[2:] == [("12:10", "12:12", 1)]


# --- joining and leaving ---------------------------------------------------------------------


def test_an_outer_query_that_joins_later_reports_whole_windows_only(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    engine.register(PER_SENSOR, "per_sensor")
    feed.push([(1, 1, 0, 1), (21, 1, 0, 2), (45, 1, 0, 4)])
    engine.step()
    whole = engine.register(BUSIEST, "whole")
    sums = "SELECT sum(n) AS n FROM per_sensor [RANGE 60 SLIDE 60]"
    part = engine.register(sums, "part", partial=True)
    feed.push([(61, 1, 0, 8), (82, 1, 0, 16)])
    engine.step()
    assert final(whole, "n", "complete") == [(40, 80, 8, True)]
    assert final(part, "n", "complete") == [(0, 60, 4, False)]
    assert early(part.prod(), "n", "complete") == [(60, 120, 24, True)]


def test_who_reads_whom_is_looked_after(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    with pytest.raises(transom.SQLError, match="per_sensor"):
        engine.register(BUSIEST)
    with pytest.raises(transom.SQLError, match="can't read its own results"):
        engine.register("SELECT max(n) AS n FROM a [RANGE 40 SLIDE 40]", "a")
    circle = {
        "a": "SELECT max(n) AS n FROM b [RANGE 40 SLIDE 40]",
        "b": "SELECT max(n) AS n FROM a [RANGE 40 SLIDE 40]",
    }
    with pytest.raises(transom.SQLError, match="a can't read its own results: it reads b, which reads a"):
        engine.register_all(circle)
    inner, outer = both(engine)
    with pytest.raises(transom.StateError, match="per_sensor is read by outer: drop that first"):
        inner.drop()
    feed.push([(1, 1, 0, 1)])
    engine.step()
    with pytest.raises(transom.StateError, match="is read by outer"):
        inner.drop()
    outer.drop()
    inner.drop()
    engine.step()
    assert engine.queries() == {} and engine.prod() == {}
    _, outer = both(engine)
    feed.push([(41, 1, 0, 1)])
    engine.step()
    assert early(outer.prod(), "n") == [(40, 80, 1)]


def test_a_suspended_inner_query_has_no_more_rows_for_the_outer(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, max_failures=1)
    engine.udf("fussy", lambda x: 1 // (x - 13) and x, "int")
    inner, outer = both(engine, inner="SELECT sum(fussy(volume)) AS n FROM s [RANGE 20 SLIDE 20]")
    feed.push([(1, 1, 0, 14)])
    feed.punctuate(until=20)
    engine.step()
    feed.push([(21, 1, 0, 13), (22, 1, 0, 14)])
    engine.step()
    assert inner.suspended is not None and outer.suspended is None
    assert early(outer.prod(), "n") == [(0, 40, 14)], "what it has it keeps"
    feed.push([(41, 1, 0, 14)])
    engine.step()
    assert final(inner, "n") == [(0, 20, 14)] and final(outer) == []
    engine.stop()
    again, feed = traffic(make_engine, tmp_path, max_failures=1)
    again.udf("fussy", lambda x: x, "int")
    feed.push([(81, 1, 0, 14)])
    again.step()
    assert again.query("per_sensor").suspended is not None
    again.query("outer").drop()
    again.query("per_sensor").drop()
    again.step()
    assert again.queries() == {}


# --- restarts and places ---------------------------------------------------------------------

BATCHES = [
    [(1, 1, 0, 1), (2, 2, 0, 2), (18, 3, 0, 3)],
    [(22, 1, 0, 4), (12, 2, 0, 5), (38, 3, 0, 6)],
    [(45, 1, 0, 7), (33, 2, 0, 8)],
    [(88, 1, 0, 9)],
]
TEXTS = {
    "per_sensor": PER_SENSOR,
    "busiest": BUSIEST,
    "grouped": "SELECT sensor, sum(n) AS n FROM per_sensor [RANGE 60 SLIDE 20] GROUP BY sensor",
    "top": "SELECT max(n) AS n FROM busiest [RANGE 80 SLIDE 80]",
}


def run(make_engine: EngineFactory, place: Path, restarts: bool, **options: Any) -> dict[str, Any]:
    """All results of a cascade, prodded with every batch and after it, started again between batches or not."""
    engine, feed = traffic(make_engine, place, slack=5, **options)
    queries = engine.register_all(TEXTS)
    for batch_id in BATCHES:
        if restarts:
            engine.stop()
            engine, feed = traffic(make_engine, place, slack=5, **options)
            queries = {name: engine.query(name) for name in TEXTS} if engine.queries() else {}
            queries = queries or engine.register_all(TEXTS)
        feed.push(batch_id)
        feed.prod()
        engine.step()
        engine.prod(where={"sensor": 1})
        queries["top"].prod()
    engine.drain()
    columns = {"per_sensor": ["sensor"], "grouped": ["sensor"]}
    return {
        name: told(query, *columns.get(name, []), "n", "rows", "batch") for name, query in queries.items()
    }


@pytest.fixture(scope="module")
def expected(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What state on the driver gives when nothing happens."""
    found = run(make_engine, tmp_path_factory.mktemp("near"), False)
    assert [row for row in found["busiest"] if row[0] == "final"] == [
        ("final", 0, 40, 8, 6, 3),
        ("final", 40, 80, 7, 1, 4),
        ("final", 80, 120, 9, 1, 5),
    ]
    assert all({row[0] for row in rows} == {"early", "final"} for rows in found.values())
    return found


@pytest.mark.parametrize(
    ("restarts", "options"),
    [
        (True, {}),
        (False, {"state": "executors"}),
        (False, {"strategy": "naive"}),
        (False, {"strategy": "unshared_paired"}),
    ],
    ids=["restarted between batches", "with the executors", "naive", "unshared"],
)
def test_a_cascade_is_the_same(
    make_engine: EngineFactory, tmp_path: Path, expected: Any, restarts: bool, options: Any
) -> None:
    assert run(make_engine, tmp_path, restarts, **options) == expected


@ON_BOTH
def test_a_cascade_over_a_batch_is_final_at_its_end(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    columns = zip(*(row for batch in BATCHES for row in batch), strict=True)
    kinds = {"ts": pa.int64(), "sensor": pa.int32(), "speed": pa.int32(), "volume": pa.int32()}
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)]
    engine.stream("s", make_engine.rows(pa.table(arrays, names=list(kinds))), time="ts")
    queries = engine.register_all(TEXTS)
    engine.drain()
    assert final(queries["busiest"], "n") == [(0, 40, 8), (40, 80, 7), (80, 120, 9)]
    assert final(queries["top"], "n") == [(0, 80, 8), (80, 160, 9)]


def test_queries_of_a_checkpoint_can_be_read_before_the_first_batch(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(PER_SENSOR, "per_sensor")
    engine.register("SELECT count(*) AS n FROM s [RANGE 40 SLIDE 40]", "edited")
    feed.push([(1, 1, 0, 5)])
    engine.step()
    engine.stop()

    engine, feed = traffic(make_engine, tmp_path)
    engine.query("edited").edit(BUSIEST)
    engine.stop()

    engine, feed = traffic(make_engine, tmp_path)
    engine.view("busy", "SELECT sensor, n FROM per_sensor WHERE n > 2")
    engine.stop()

    engine, feed = traffic(make_engine, tmp_path)
    outer = engine.register(BUSIEST, "outer")
    feed.push([(2, 1, 0, 3)])
    engine.drain()
    assert final(outer, "n") == [(0, 40, 8)]


def test_another_inner_query_of_the_name_has_a_clock_of_its_own(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """The first one reads a stream that is far ahead of the second one's."""
    engine, ahead = traffic(make_engine, tmp_path)
    feeds = {"s": ahead, "t": engine.feed("t", TRAFFIC, time="ts", slack=None)}
    for name, start in (("s", 1000), ("t", 0)):
        inner, outer = both(engine, inner=PER_SENSOR.replace("FROM s", f"FROM {name}"))
        feeds[name].push([(start + 1, 1, 0, 5), (start + 21, 1, 0, 7)])
        feeds[name].punctuate(until=start + 40)
        engine.step()
        assert final(outer, "n") == [(start, start + 40, 7)] and not outer.late().num_rows
        outer.drop()
        inner.drop()
        engine.step(empty=True)


def test_a_union_ends_with_the_last_of_its_streams(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, first = traffic(make_engine, tmp_path)
    second = engine.feed("t", TRAFFIC, time="ts", slack=None)
    both_streams = "(SELECT ts, volume FROM s UNION ALL SELECT ts, volume FROM t)"
    query = engine.register(f"SELECT sum(volume) AS n FROM {both_streams} [RANGE 20 SLIDE 20]")
    for feed in (first, second):
        feed.push([(1, 1, 0, 5)])
    engine.step()
    for name, expected in (("s", []), ("t", [(0, 20, 10)])):
        engine.flush(name)
        engine.step()
        assert final(query, "n") == expected
