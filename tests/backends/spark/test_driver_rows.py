"""Rows that are on the driver: no Spark job is started for them, and the answers are Spark's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory, on_spark
from tests.runtime.prod_helpers import traffic
from transom.backends.base import Backend, Frame, TableJoin
from transom.backends.scalar_placement import MOST_ROWS_ONE_BY_ONE
from transom.backends.spark.backend import SparkBackend
from transom.backends.spark.driver_frame import DriverFrame
from transom.sql.query import Join

pytestmark = [on_spark("whether Spark starts a job is seen in Spark"), pytest.mark.comparison]

STREAM = "site int, price double, name string, ts timestamp"


@contextmanager
def no_jobs(session: Any) -> Iterator[None]:
    """Fails if this thread starts a job in the block, whether it succeeds or not."""
    context = session.sparkContext
    context.setJobGroup("watched", "rows on the driver")
    try:
        yield
        assert list(context.statusTracker().getJobIdsForGroup("watched")) == []
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


def rows(minute: int) -> list[tuple[Any, ...]]:
    return [(i % 3, float(i), f"n{i}", f"2013-01-01 12:{minute:02d}:{i:02d}") for i in range(20)]


def test_a_pushed_batch_starts_no_job(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    engine.table("sites", pa.table({"site": pa.array([0, 1], pa.int32()), "city": ["Rome", "Ulm"]}))
    feed = engine.feed("s", STREAM, time="ts")
    plain = engine.register(
        "SELECT site, avg(price) / 2 AS p, max(name) AS m FROM s [RANGE 2 minutes SLIDE 1 minute] "
        "WHERE price * 2 > 6 OR name = 'n1' GROUP BY site HAVING avg(price) > 1",
        "plain",
    )
    joined = engine.register(
        "SELECT city, count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute] "
        "JOIN sites ON s.site = sites.site GROUP BY city",
        "joined",
    )
    over = engine.register("SELECT sum(n) AS n FROM joined [RANGE 2 minutes SLIDE 2 minutes]", "over")
    for minute in range(3):  # the first batches read the table's files
        feed.push(rows(minute))
        engine.step()
    with no_jobs(make_engine.session):
        for minute in (3, 4, 2, 5):  # those of minute 2 are late, if a query wants them
            feed.push([*rows(minute), (1, 1.0, "no time", None)])
            engine.step()
    assert plain.results().num_rows and joined.results().num_rows and over.results().num_rows
    assert engine.late("s").num_rows == 19 and engine.rejected("s").num_rows == 4


def test_a_burst_starts_no_job(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", STREAM, time="ts", overload="sideline", budget=10)
    query = engine.register("SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]", "q")
    feed.push(rows(0)[:5])
    engine.step()
    with no_jobs(make_engine.session):
        feed.push([row for minute in (1, 2, 3) for row in rows(minute)])
        engine.drain()
    assert sorted(query.results()["n"].to_pylist()) == [5, 20, 20, 20]


def test_an_arrow_table_as_a_source_starts_no_job(make_engine: EngineFactory) -> None:
    engine = make_engine()
    times = pa.array([60_000_000 * i for i in range(10)], pa.timestamp("us", tz="UTC"))
    engine.stream("s", pa.table({"v": list(range(10)), "ts": times}), time="ts")
    query = engine.register("SELECT sum(v) AS v FROM s [RANGE 5 minutes SLIDE 5 minutes]", "q")
    with no_jobs(make_engine.session):
        engine.drain()
    assert query.results()["v"].to_pylist() == [10, 35]


# --- joins -----------------------------------------------------------------------------------

NAN = math.nan
LEFT = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "i": pa.array([1, 2, 2, None, 4, -1, 7, 0], pa.int32()),
        "l": pa.array([1, 2, 2, None, 4, -1, 2**62, 0], pa.int64()),
        "d": pa.array([1.0, NAN, -0.0, None, 4.0, math.inf, 0.1, 0.0], pa.float64()),
        "s": pa.array(["1", " 2", "b", None, "4.0", "", "ä", "0"]),
        "m": pa.array([1, 2, None, None, 4, -1, 7, 0], pa.int32()).cast(pa.decimal128(12, 2)),
        "t": pa.array([0, 86_400_000_000, None, 1, 2, 3, 4, 5], pa.timestamp("us", tz="UTC")),
        "day": pa.array([0, 1, None, 2, 3, 4, 5, 6], pa.int32()).cast(pa.date32()),
        "b": pa.array([True, False, None, True, False, True, False, True]),
    }
)
TABLE = pa.table(
    {
        "number": pa.array(range(10), pa.int64()),
        **{name: pa.concat_arrays([LEFT[name].combine_chunks().slice(1), LEFT[name].combine_chunks().slice(0, 3)])
           for name in LEFT.column_names if name != "id"},
    }
)  # fmt: skip
CONDITIONS = {
    **{f"equal {name}": f"`{name}` = `j.{name}`" for name in LEFT.column_names if name != "id"},
    "the table's column first": "`j.i` = `i`",
    "two keys": "`i` = `j.i` AND `s` = `j.s`",
    "an int and a bigint": "`i` = `j.l`",
    "an int and a double": "`i` = `j.d`",
    "an int and a decimal": "`i` = `j.m`",
    "a decimal and a double": "`m` = `j.d`",
    "an int and a text": "`i` = `j.s`",
    "a double and a text": "`d` = `j.s`",
    "a date and a time": "`day` = `j.t`",
    "a key and another condition": "`i` = `j.i` AND `d` < `j.number`",
    "a key that is compared as null too": "`i` <=> `j.i`",
    "a condition without keys": "`i` < `j.i` AND `b`",
    "an expression of a key": "`i` + 1 = `j.i`",
    "one of two keys": "`i` = `j.i` OR `s` = `j.s`",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_joins_match_the_rows_that_spark_s_join_matches(
    backend: Backend, make_engine: EngineFactory, name: str
) -> None:
    join = Join("j", "table", CONDITIONS[name], (), tuple(TABLE.column_names))
    scalars = {"number": "`j.number`", "matched": "`j`"}

    def joined(frame: Frame | Any, table: Frame | Any) -> list[tuple[Any, ...]]:
        found = frame.project(scalars, ["id"], [TableJoin(join, table)]).to_table()
        return sorted(
            map(repr, zip(*(found[column].to_pylist() for column in found.column_names), strict=True))
        )

    here = joined(backend.frame(LEFT), backend.frame(TABLE))
    there = joined(backend.input_of(make_engine.rows(LEFT)), backend.input_of(make_engine.rows(TABLE)))
    assert here == there


def test_an_index_is_made_once(backend: Backend) -> None:
    table, join = backend.frame(TABLE), Join("j", "table", "`i` = `j.i`", ("i",), ("s",))
    frame = backend.frame(LEFT)
    assert isinstance(table, DriverFrame)
    frame.project({}, ["id"], [TableJoin(join, table)])
    (index,) = table.key_indexes._by_keys.values()
    frame.project({}, ["id"], [TableJoin(join, table)])
    assert list(table.key_indexes._by_keys.values()) == [index]


def test_a_table_that_is_not_on_the_driver_is_joined_by_spark(
    backend: Backend, make_engine: EngineFactory
) -> None:
    join = Join("j", "table", "`i` = `j.i`", ("i",), ("number",))
    table = backend.input_of(make_engine.rows(TABLE))
    assert isinstance(table, Frame)
    found = backend.frame(LEFT).project({"number": "`j.number`"}, ["id"], [TableJoin(join, table)])
    assert not isinstance(found, DriverFrame) and found.to_table().num_rows > LEFT.num_rows


# --- who evaluates an expression -------------------------------------------------------------

COLUMNS = {"s": pa.string(), "i": pa.int32(), "d": pa.float64(), "t": pa.timestamp("us", tz="UTC")}
COMPILED = [
    "`i`",
    "`i` + 1",
    "`d` / 3 > 1",
    "upper(`s`)",
    "CASE WHEN `i` > 1 THEN `d` END",
    "unix_micros(`t`)",
]
COMPILED += [
    "`s` LIKE 'a%'",
    "NOT `s` LIKE '%a_b%'",
    "`s` LIKE '%a%b%c%'",
    "`s` ILIKE 'a%'",
    "concat(`s`, 'x', `i`)",
    "concat_ws('-', `s`, 'y')",
]
BY_SPARK = {
    "soundex(`s`)": "only Spark can evaluate it",
    "`s` RLIKE '(a+)+b'": "it may take any time, and only Spark's jobs can be cancelled",
    "`s` LIKE concat('%', `s`)": "it may take any time, and only Spark's jobs can be cancelled",
    "repeat(`s`, `i`)": "it may take any time, and only Spark's jobs can be cancelled",
}


def test_who_evaluates_which_expression(backend: Backend) -> None:
    assert backend.delegated(COLUMNS, [*COMPILED, *BY_SPARK]) == BY_SPARK


def test_in_another_time_zone_spark_evaluates_what_depends_on_it(spark: Any) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "America/New_York")
    try:
        backend = SparkBackend(spark)
        texts = [
            "hour(`t`)",
            "CAST(`s` AS TIMESTAMP)",
            "CAST(`t` AS STRING)",
            "date_trunc('day', `t`)",
            "`t` > '2020-01-01'",
        ]
        assert list(backend.delegated(COLUMNS, [*texts, *COMPILED])) == texts
        table = pa.table({"t": pa.array([0], pa.timestamp("us", tz="UTC"))})
        assert backend.frame(table).project({"h": "hour(`t`)"}).to_table()["h"].to_pylist() == [19]
    finally:
        spark.conf.set(zone, before)


def test_each_evaluates_its_expressions_and_rows_keep_their_order(backend: Backend) -> None:
    table = pa.table(
        {"s": [f"r{i}" for i in range(50)], "i": pa.array(range(50), pa.int32()), "unused": [0] * 50}
    )
    found = (
        backend.frame(table).project({"a": "soundex(`s`)", "b": "`i` * 2", "c": "`I` - 1"}, ["s"]).to_table()
    )
    assert found.column_names == ["s", "a", "b", "c"]
    assert found["a"].to_pylist()[:2] == ["R000", "R000"] and found["b"].to_pylist() == [
        2 * i for i in range(50)
    ]
    assert found["s"].to_pylist() == table["s"].to_pylist()


def test_many_rows_of_an_expression_without_a_vector_form_go_to_spark(backend: Backend) -> None:
    table = pa.table({"s": [f"word {i}" for i in range(MOST_ROWS_ONE_BY_ONE + 1)]})
    found = backend.frame(table).project({"a": "initcap(`s`)"}).to_table()
    assert found["a"].to_pylist() == [f"Word {i}" for i in range(MOST_ROWS_ONE_BY_ONE + 1)]


def test_explain_shows_who_evaluates_which_expression(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.feed("s", STREAM, time="ts")
    engine.register(
        "SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute] WHERE soundex(name) = 'A' AND price > 3"
    )
    text = engine.explain()
    assert "Spark evaluates 1, compiled code the others" in text
    assert "soundex(name) (1): by Spark, because only Spark can evaluate it" in text
    assert '"by_spark": "only Spark can evaluate it"' in engine.explain(format="json")


def test_hostile_expressions_on_pushed_rows_are_quarantined(make_engine: EngineFactory) -> None:
    engine = make_engine(batch_deadline="3 seconds")
    feed = engine.feed("s", STREAM, time="ts")
    good = engine.register("SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]", "good")
    bad = engine.register(
        "SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute] WHERE size(sequence(0L, 3000000000L + site)) > 1",
        "bad",
    )
    for minute in range(3):
        feed.push(rows(minute))
        engine.step()
    assert good.suspended is None and good.results()["n"].to_pylist() == [20, 20]
    assert bad.suspended is not None


def test_a_lookup_with_arithmetic_over_aggregates_starts_no_job(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(
        "SELECT sensor, max(speed) - min(speed) AS span, sum(volume) / count(*) AS mean, "
        "round(avg(speed), 1) AS speed, CASE WHEN count(*) > 1 THEN 'many' ELSE 'one' END AS rows "
        "FROM s [RANGE 100] GROUP BY sensor HAVING max(speed) > 2 * min(volume) ORDER BY span + 1 DESC LIMIT 5"
    )
    feed.push([(10, 1, 30, 3), (20, 2, 50, -10), (30, 1, 40, -9)])
    engine.step()
    with no_jobs(make_engine.session):
        found = [tuple(row.values())[2:6] for row in query.lookup().to_pylist()]
    assert found == [(1, 10, -3.0, 35.0), (2, 0, -10.0, 50.0)]
