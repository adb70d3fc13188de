"""Values as Spark SQL has them: nulls, NaN, decimals, times of all types; and functions that fail."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from tests.runtime.engine_helpers import PER_MINUTE, SettableClock, accounted, answers, at, bids, bids_engine

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"


def one_window(
    make_engine: EngineFactory,
    tmp_path: Path,
    schema: str,
    rows: list[tuple[Any, ...]],
    items: str,
    rest: str = "",
) -> list[tuple[Any, ...]]:
    """The answers of a query over rows that all lie in one window, without the window."""
    engine, feed = bids_engine(make_engine, tmp_path, schema=f"{schema}, ts timestamp")
    query = engine.register(f"SELECT {items} FROM bids {WINDOW} {rest}")
    feed.push([(*row, at("12:00:30")) for row in rows])
    engine.drain()
    table = query.results()
    names = table.column_names[2:-7]
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


# --- groups and aggregates -------------------------------------------------------------------


@ON_BOTH
def test_nulls_nan_and_both_zeros_as_groups(make_engine: EngineFactory, tmp_path: Path) -> None:
    values = [None, None, math.nan, -math.nan, 0.0, -0.0, 1.0]
    found = one_window(
        make_engine,
        tmp_path,
        "x double",
        [(v,) for v in values],
        "x, count(*) AS n, count(x) AS m",
        "GROUP BY x",
    )
    assert sorted((str(x), n, m) for x, n, m in found) == [
        ("0.0", 2, 2),
        ("1.0", 1, 1),
        ("None", 2, 0),
        ("nan", 2, 2),
    ]


CASES = {
    "nothing but nulls": (
        "x int",
        [None, None],
        "count(x), sum(x), avg(x), min(x), max(x)",
        (0, None, None, None, None),
    ),
    "nulls are skipped": (
        "x int",
        [None, 1, 3],
        "count(*), count(x), sum(x), avg(x), min(x)",
        (3, 2, 4, 2.0, 1),
    ),
    "NaN is the largest number": ("x double", [1.0, math.nan], "min(x), max(x) = 'NaN'", (1.0, True)),
    "the sample variance of one value is null": (
        "x double",
        [5.0],
        "var_samp(x), var_pop(x), stddev(x)",
        (None, 0.0, None),
    ),
    "variances": ("x int", [1, 2, 3, 4], "var_pop(x), round(stddev_samp(x), 6)", (1.25, 1.290994)),
    "decimals are exact": (
        "x decimal(5, 2)",
        [Decimal("0.10"), Decimal("0.20")],
        "sum(x), avg(x), max(x)",
        (Decimal("0.30"), Decimal("0.150000"), Decimal("0.20")),
    ),
    "integers wrap around": ("x bigint", [2**63 - 1, 1], "sum(x)", (-(2**63),)),
    "text has an order": ("x string", ["b", "a", None], "min(x), max(x)", ("a", "b")),
    "a filter of an aggregate": (
        "x int",
        [1, 2, 3],
        "count(*) FILTER (WHERE x > 1), sum(x) FILTER (WHERE x > 5)",
        (2, None),
    ),
    "expressions inside and over": ("x int", [1, 2, 3], "sum(x * 2) / count(*), max(x) - min(x)", (4.0, 2)),
    "distinct values": ("x int", [1, 2, 2, None], "approx_count_distinct(x)", (2,)),
    "percentiles": (
        "x int",
        [1, 2, 3, 4, 5],
        "approx_percentile(x, 0.5), approx_percentile(x, array(0.0, 1.0))",
        (3, [1, 5]),
    ),
    "dates": ("x date", [date(2013, 1, 2), None], "max(x), count(x)", (date(2013, 1, 2), 1)),
    "a division by zero is null": ("x int", [0, 1], "sum(1 / x), count(1 / x), count(*)", (1.0, 1, 2)),
    "a failed cast is null": ("x string", ["1", "one"], "sum(CAST(x AS INT)), count(*)", (1, 2)),
}


@pytest.mark.parametrize(("schema", "values", "items", "expected"), CASES.values(), ids=CASES.keys())
def test_values(
    make_engine: EngineFactory,
    tmp_path: Path,
    schema: str,
    values: list[Any],
    items: str,
    expected: tuple[Any, ...],
) -> None:
    assert one_window(make_engine, tmp_path, schema, [(v,) for v in values], items) == [expected]


@on_spark("the expected types are those of Spark")
def test_types_of_decimals_are_sparks(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, schema="x decimal(5, 2), y decimal(38, 4), ts timestamp")
    query = engine.register(
        f"SELECT sum(x) AS a, avg(x) AS b, sum(y) AS c, avg(y) AS d, max(x) AS e FROM bids {WINDOW}"
    )
    frame = make_engine.session.createDataFrame([], "x decimal(5, 2), y decimal(38, 4)")
    expected = frame.selectExpr(
        "sum(x) AS a", "avg(x) AS b", "sum(y) AS c", "avg(y) AS d", "max(x) AS e"
    ).toArrow()
    types = query.results().schema
    assert [types.field(n).type for n in "abcde"] == [expected.schema.field(n).type for n in "abcde"]


# --- times -----------------------------------------------------------------------------------


def test_times_with_zones_are_instants(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema="ts timestamp, seen timestamp")
    query = engine.register(f"SELECT max(seen) AS last, hour(max(seen)) AS h FROM bids {WINDOW}")
    feed.push(
        [("2013-01-01T14:00:10+02:00", datetime(2013, 1, 1, 12, tzinfo=UTC)), ("2013-01-01 12:00:20", None)]
    )
    engine.drain()
    assert answers(query) == [("12:00", "12:01", "12:00", 12)]
    assert query.results().schema.field("last").type == pa.timestamp("us", tz="UTC")


@on_spark("only a Spark session has a zone")
def test_the_sessions_zone_moves_no_window(make_engine: EngineFactory, tmp_path: Path) -> None:
    make_engine.session.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        engine, feed = bids_engine(make_engine, tmp_path, schema="ts timestamp")
        query = engine.register(
            "SELECT max(ts) AS last, hour(max(ts)) AS h FROM bids [RANGE 1 day SLIDE 1 day]"
        )
        feed.push([("2013-01-01 12:00:10Z",), ("2013-01-01 23:59:59Z",)])
        engine.drain()
        (row,) = query.results().to_pylist()
    finally:
        make_engine.session.conf.set("spark.sql.session.timeZone", "UTC")
    assert row["window_start"] == datetime(2013, 1, 1, tzinfo=UTC)
    assert row["last"] == datetime(2013, 1, 1, 23, 59, 59, tzinfo=UTC)
    assert row["h"] == 20  # as Spark SQL has it in that session


@pytest.mark.parametrize(
    ("kind", "value", "clock_type"),
    [
        ("timestamp_ntz", datetime(2013, 1, 1, 12, 0, 30), pa.timestamp("us")),
        ("date", date(2013, 1, 1), None),
        ("timestamp", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), pa.timestamp("us", tz="UTC")),
        ("string", "2013-01-01 12:00:30", pa.timestamp("us", tz="UTC")),
    ],
    ids=["a timestamp without zone", "a date", "an instant before 1970", "text"],
)
def test_a_streams_time_may_be(
    make_engine: EngineFactory, tmp_path: Path, kind: str, value: Any, clock_type: Any
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=f"x int, ts {kind}")
    query = engine.register("SELECT sum(x) AS x FROM bids [RANGE 1 day SLIDE 1 day]")
    feed.push([(1, value), (2, value), (4, None)])
    engine.drain()
    table = query.results()
    (row,) = table.to_pylist()
    assert row["x"] == 3 and f"{row['window_start']:%Y-%m-%d %H:%M}" == f"{str(value)[:10]} 00:00"
    assert table.schema.types[0] == table.schema.types[1]
    assert clock_type is None or table.schema.types[0] == clock_type
    assert accounted(engine)["rejected"] == 1


@ON_BOTH
def test_the_current_time_is_the_batches(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock(at("12:00"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    query = engine.register(
        f"SELECT count(*) AS n, max(current_timestamp()) AS now FROM bids {WINDOW} WHERE ts <= now()"
    )
    feed.push(bids((1, 1.0, "12:00:00"), (1, 1.0, "12:00:01")))
    engine.step()
    clock.advance(minutes=1)
    feed.push(bids((1, 1.0, "12:00:02")))
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 2, "12:01")]


# --- functions of the program ----------------------------------------------------------------


@ON_BOTH
def test_a_function_that_raises_on_some_rows_gives_null_there(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, max_failures=3)
    engine.udf("half_of", lambda x: 1 // (x % 2) * x / 2, "double")
    halves = engine.register(f"SELECT sum(half_of(site)) AS s, count(*) AS n FROM bids {WINDOW}")
    plain = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00"), (3, 1.0, "12:00")))
    engine.step()
    feed.push(bids((1, 1.0, "12:02")))  # no failure: the count starts again
    engine.step()
    for minute in (4, 6):
        feed.push(bids((2, 1.0, f"12:0{minute}")))
        engine.step()
    assert halves.suspended is None
    engine.drain()
    assert answers(halves) == [
        ("12:00", "12:01", 2.0, 3),
        ("12:02", "12:03", 0.5, 1),
        ("12:04", "12:05", None, 1),
        ("12:06", "12:07", None, 1),
    ]
    assert len(answers(plain)) == 4


@ON_BOTH
def test_a_query_whose_function_always_fails_is_suspended(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, max_failures=2)
    engine.udf("never", lambda x: x.no_such_thing, "int")
    failing = engine.register(f"SELECT sum(never(site)) AS s FROM bids {WINDOW}", name="failing")
    plain = engine.register(PER_MINUTE)
    for minute in range(4):
        feed.push(bids((1, 1.0, f"12:0{minute}")))
        engine.step()
        assert (failing.suspended is not None) == (minute >= 1), minute
    assert "failed" in failing.suspended
    assert dict(engine.progress().suspended) == {"failing": failing.suspended}
    engine.drain()
    assert answers(plain) == [(f"12:0{i}", f"12:0{i + 1}", 1) for i in range(4)]
    again, _ = bids_engine(make_engine, tmp_path, max_failures=2)
    assert again.query("failing").suspended == failing.suspended
    assert accounted(engine) == {"rows": 4, "counted": 4, "unwanted": 0, "late": 0, "rejected": 0}


def test_others_come_and_go_after_one_that_they_shared_with_was_suspended(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, max_failures=1)
    engine.udf("never_ever", lambda x: x.no_such_thing, "int")
    failing = engine.register(f"SELECT sum(never_ever(site)) AS s FROM bids {WINDOW}", name="failing")
    leaving = engine.register(PER_MINUTE)
    staying = engine.register(f"SELECT max(price) AS p FROM bids {WINDOW}")
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()
    assert failing.suspended is not None
    leaving.drop()
    joining = engine.register(f"SELECT min(price) AS p FROM bids {WINDOW}")
    feed.push(bids((1, 2.0, "12:01"), (1, 3.0, "12:01")))
    engine.drain()
    assert answers(staying) == [("12:00", "12:01", 1.0), ("12:01", "12:02", 3.0)]
    assert answers(joining) == [("12:01", "12:02", 2.0)]


@on_spark("functions that are registered with Spark itself")
@pytest.mark.parametrize(
    "pushed", [True, False], ids=["in a batch of a feed", "in a batch of a batch DataFrame"]
)
def test_a_function_of_sparks_that_raises_suspends_its_query_only(
    make_engine: EngineFactory, tmp_path: Path, pushed: bool
) -> None:
    def explosive(x: int) -> int:
        raise RuntimeError("boom")

    make_engine.session.udf.register("explosive", explosive, "int")
    make_engine.session.udf.register("harmless", lambda x: x + 1, "int")
    if pushed:
        engine, feed = bids_engine(make_engine, tmp_path)
        feed.push(bids((1, 1.0, "12:00"), (2, 1.0, "12:00")))
    else:
        engine = make_engine(str(tmp_path))
        frame = make_engine.session.sql(
            "SELECT explode(array(1, 2)) AS site, timestamp'2013-01-01 12:00:00' AS ts"
        )
        engine.stream("bids", frame, time="ts")
    bad = engine.register(f"SELECT sum(explosive(site)) AS s FROM bids {WINDOW}")
    good = engine.register(f"SELECT sum(harmless(site)) AS s FROM bids {WINDOW} WHERE harmless(site) > 0")
    plain = engine.register(PER_MINUTE)
    engine.drain()
    assert answers(plain) == [("12:00", "12:01", 2)] and answers(good) == [("12:00", "12:01", 5)]
    assert good.suspended is None and "boom" in (bad.suspended or "") and answers(bad) == []


def test_an_average_of_large_integers_does_not_wrap(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("s", "n bigint, ts timestamp", time="ts")
    query = engine.register("SELECT avg(n) AS mean FROM s [RANGE 1 minute SLIDE 1 minute]")
    feed.push([(2**63 - 1, "2013-01-01 12:00:00"), (2**63 - 1, "2013-01-01 12:00:01")])
    engine.step()
    engine.drain()
    assert query.results()["mean"].to_pylist() == [float(2**63)]


@on_spark("only a Spark session has a zone")
def test_times_without_a_zone_are_the_sessions(make_engine: EngineFactory) -> None:
    make_engine.session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        engine = make_engine()
        feed = engine.feed("s", "ts timestamp", time="ts")
        query = engine.register(
            "SELECT count(*) AS n FROM s [RANGE 1 day SLIDE 1 day] WHERE ts >= '2013-01-01 12:00:00'"
        )
        feed.push([("2013-01-01 12:00:00Z",), ("2013-01-01 17:00:00Z",), ("2013-01-01 18:00:00Z",)])
        engine.step()
        engine.drain()
        assert query.results()["n"].to_pylist() == [2]  # noon in New York is 17:00 in UTC
    finally:
        make_engine.session.conf.set("spark.sql.session.timeZone", "UTC")


NOON = "2013-01-01 12:00:00"
DAYS = "[RANGE 1 day SLIDE 1 day]"


@ON_BOTH
@pytest.mark.parametrize("zone", ["America/New_York", "+02:00"])
def test_a_time_without_an_offset_is_the_same_wherever_it_is_written(
    make_engine: EngineFactory, tmp_path: Path, zone: str
) -> None:
    hours = {"America/New_York": 5, "+02:00": -2}[zone]
    if make_engine.session is None:
        hours = 0  # without Spark, the zone is UTC
    else:
        make_engine.session.conf.set("spark.sql.session.timeZone", zone)
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC) + timedelta(hours=hours)
    try:
        engine = make_engine(tmp_path / "checkpoint")
        feed = engine.feed("s", "ts timestamp, seen timestamp, wall timestamp_ntz", time="ts")
        newest = f"SELECT max(ts) AS ts, max(seen) AS seen, max(wall) AS wall FROM s {DAYS}"
        queries = {
            "newest": engine.register(newest),
            "literal": engine.register(f"SELECT count(*) AS n FROM s {DAYS} WHERE ts = TIMESTAMP '{NOON}'"),
            "text": engine.register(f"SELECT count(*) AS n FROM s {DAYS} WHERE seen = '{NOON}'"),
            "origin": engine.register(
                f"SELECT count(*) AS n FROM s [RANGE 1 day SLIDE 1 day ORIGIN '{NOON}']"
            ),
        }
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "a.json").write_text(json.dumps({"ts": NOON}))
        engine.stream("f", str(tmp_path / "files"), time="ts", format="json", schema="ts timestamp")
        queries["file"] = engine.register(f"SELECT max(ts) AS ts FROM f {DAYS}")
        engine.register("SELECT count(*) AS n FROM s [RANGE 1 hour] GROUP BY seen", "looked_up")
        feed.push([(NOON, datetime(2013, 1, 1, 12), NOON)])
        feed.punctuate(NOON)
        engine.step()
        engine.step()
        assert queries["origin"].results().num_rows == 0
        assert engine.progress().streams["s"].watermark == int(noon.timestamp()) * 1_000_000
        answer = engine.query("looked_up").lookup(where={"seen": NOON})
        assert answer["n"].to_pylist() == [1]
        for stream in ("s", "f"):
            engine.flush(stream)
        engine.step(empty=True)
        (row,) = queries["newest"].results().to_pylist()
        assert (row["ts"], row["seen"], row["wall"]) == (noon, noon, datetime(2013, 1, 1, 12))
        assert queries["literal"].results()["n"].to_pylist() == [1]
        assert queries["text"].results()["n"].to_pylist() == [1]
        assert queries["origin"].results()["window_start"].to_pylist() == [noon]
        assert queries["file"].results()["ts"].to_pylist() == [noon]
    finally:
        if make_engine.session is not None:
            make_engine.session.conf.set("spark.sql.session.timeZone", "UTC")


@on_spark("only Spark evaluates a frame again")
@pytest.mark.parametrize("window", ["[ROWS 2 SLIDE 2]", "[RANGE 1 day SLIDE 1 day]"])
def test_rows_of_the_current_time_are_not_ahead_of_the_stream(
    make_engine: EngineFactory, window: str
) -> None:
    frame = make_engine.session.range(100_000).selectExpr("current_timestamp() AS ts", "id AS v")
    engine = make_engine()
    engine.stream("s", frame, time="ts")
    query = engine.register(f"SELECT count(*) AS n FROM s {window}")
    engine.drain()
    engine.flush("s")
    engine.step(empty=True)
    progress = engine.progress().streams["s"]
    assert (progress.rows, progress.counted, progress.rejected) == (100_000, 100_000, 0)
    assert sum(query.results()["n"].to_pylist()) == 100_000


def test_rejected_rows_of_any_year_can_be_read_back(make_engine: EngineFactory, tmp_path: Path) -> None:
    times = [datetime(2013, 1, 1, 12, tzinfo=UTC), datetime(2013, 1, 1, 12, 0, 1, tzinfo=UTC)]
    times.append(datetime(2999, 1, 1, tzinfo=UTC))
    rows = make_engine.rows(pa.table({"ts": pa.array(times, pa.timestamp("us", tz="UTC"))}))
    engine = make_engine()
    engine.stream("s", rows, time="ts")
    engine.register("SELECT count(*) FROM s [RANGE 1 minute SLIDE 1 minute]")
    engine.drain()
    assert [row["ts"].year for row in engine.rejected("s").to_pylist()] == [2999]


@on_spark("functions that are registered with Spark itself")
def test_a_function_over_aggregates_that_breaks_suspends_its_query_only(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("s", "n bigint, ts timestamp", time="ts")
    make_engine.session.udf.register("breaks", lambda n: 1 // 0, "bigint")
    good = engine.register("SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]")
    bad = engine.register("SELECT breaks(count(*)) AS n FROM s [RANGE 1 minute SLIDE 1 minute]")
    feed.push([(1, "2013-01-01 12:00:00"), (1, "2013-01-01 12:02:00")])
    engine.step()
    assert good.results()["n"].to_pylist() == [1]
    assert bad.suspended is not None and "failed because of it: ZeroDivisionError" in bad.suspended
