"""Semi and anti joins, IN, EXISTS and range joins with static tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from tests.results.pure_batches import SCALARS
from transom import oracle
from transom.columns.interval_index import IntervalIndex, ordered_numbers
from transom.plan.limits import Limits
from transom.sql import Catalog, Relation
from transom.sql.binding.bind import bind_one

TIME = pa.timestamp("us", "UTC")
START = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCHEMA = "site int, kind string, price double, ip bigint, ts timestamp"
COLUMNS = {"site": pa.int32(), "kind": pa.string(), "price": pa.float64(), "ip": pa.int64(), "ts": TIME}
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
COUNT = f"SELECT count(*) AS n, sum(price) AS p FROM bids b {WINDOW}"


def bid(site: int | None, kind: str | None, price: float, ip: int | None, second: int = 0) -> dict[str, Any]:
    return {"site": site, "kind": kind, "price": price, "ip": ip, "ts": START + timedelta(seconds=second)}


ROWS = [
    bid(1, "a", 1.0, 5),
    bid(2, "b", 2.0, 15),
    bid(3, "a", 4.0, 25),
    bid(None, "c", 8.0, 20),
    bid(4, None, 16.0, None),
]
SITES = pa.table({"site": pa.array([1, 1, 2, 2], pa.int32()), "city": ["A", "B", "A", None]})
NULLED = pa.table({"site": pa.array([1, None], pa.int32()), "city": ["A", "B"]})
NETS = pa.table({"lo": [0, 10, 10, 25, None], "hi": [9, 20, 30, 25, 50], "net": ["w", "x", "y", "z", "v"]})
EMPTY = SITES.slice(0, 0)
TABLES = {"sites": SITES, "nulled": NULLED, "nets": NETS, "none": EMPTY}

# Conditions, and the sum of the prices of the rows that meet them; None: none do.
CASES = {
    "LEFT SEMI JOIN sites s ON b.site = s.site": 3.0,
    "SEMI JOIN sites s USING (site)": 3.0,
    "LEFT ANTI JOIN sites s ON b.site = s.site": 28.0,
    "LEFT ANTI JOIN sites s ON b.site = s.site AND s.city = 'B'": 30.0,
    "LEFT SEMI JOIN sites s ON b.site = s.site AND b.kind = lower(s.city)": 1.0,
    "WHERE site IN (SELECT site FROM sites)": 3.0,
    "WHERE b.site NOT IN (SELECT s.site FROM sites s)": 20.0,  # not the row without a site
    "WHERE site NOT IN (SELECT site FROM nulled)": None,  # it might be the null
    "WHERE site NOT IN (SELECT site FROM nulled WHERE city = 'A')": 22.0,
    "WHERE site IN (SELECT site FROM nulled)": 1.0,
    "WHERE site NOT IN (SELECT site FROM none)": 31.0,  # also the row without a site
    "WHERE site IN (SELECT site FROM none)": None,
    "WHERE NOT (site IN (SELECT site FROM sites WHERE city IS NULL))": 21.0,
    "WHERE EXISTS (SELECT 1 FROM sites s WHERE s.site = b.site AND city = 'B')": 1.0,
    "WHERE NOT EXISTS (SELECT * FROM nulled WHERE nulled.site = b.site)": 30.0,
    "WHERE site + 1 IN (SELECT site FROM sites) AND price < 2": 1.0,
    "WHERE upper(kind) IN (SELECT city FROM sites)": 7.0,
    "WHERE site IN (SELECT site FROM sites) AND site NOT IN (SELECT site FROM nulled WHERE city = 'A')": 2.0,
    "JOIN nets n ON b.ip BETWEEN n.lo AND n.hi": 1.0 + 2 * 2.0 + 2 * 4.0 + 2 * 8.0,
    "LEFT JOIN nets n ON b.ip BETWEEN n.lo AND n.hi": 1.0 + 2 * 2.0 + 2 * 4.0 + 2 * 8.0 + 16.0,
    "JOIN nets n ON b.ip > n.lo AND b.ip < n.hi": 1.0 + 2 * 2.0 + 4.0 + 8.0,
    "JOIN nets n ON n.lo BETWEEN b.ip - 5 AND b.ip": 1.0 + 2 * 2.0 + 4.0,
    "LEFT SEMI JOIN nets n ON b.ip BETWEEN n.lo AND n.hi": 15.0,
    "WHERE NOT EXISTS (SELECT 1 FROM nets n WHERE b.ip BETWEEN n.lo AND n.hi)": 16.0,
    "JOIN sites s ON b.site = s.site JOIN nets n ON b.ip >= n.lo AND b.ip <= n.hi WHERE net = 'x'": 4.0,
}


def bids(make_engine: EngineFactory, place: Path, **options: Any) -> tuple[transom.Engine, Any]:
    engine = make_engine(place, **options)
    for name, table in TABLES.items():
        engine.table(name, make_engine.rows(table))
    return engine, engine.feed("bids", SCHEMA, time="ts")


@ON_BOTH
def test_searches_have_the_answers_of_sql(make_engine: EngineFactory, tmp_path: Path) -> None:
    limits = (
        Limits() if make_engine.session is None else Limits(table_rows=1)
    )  # so that Spark joins all tables
    engine, feed = bids(make_engine, tmp_path, limits=limits)
    chosen = CASES if make_engine.session is None else dict(list(CASES.items())[1::3])
    queries = {text: engine.register(f"{COUNT} {text}") for text in chosen}
    plain = engine.register(COUNT)
    feed.push(ROWS)
    engine.drain()
    for text, expected in chosen.items():
        shown = [row["p"] for row in queries[text].results().to_pylist()]
        assert shown == ([] if expected is None else [expected]), text
    assert [row["p"] for row in plain.results().to_pylist()] == [31.0]
    assert engine.progress().streams["bids"].counted == 5


def test_rates_by_currency_and_time(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids(make_engine, tmp_path)
    since = [START + timedelta(seconds=seconds) for seconds in (0, 10, 0, 20)]
    until = [START + timedelta(seconds=seconds) for seconds in (10, 60, 20, 60)]
    rates = pa.table({
        "cur": ["a", "a", "b", "b"], "since": pa.array(since, TIME), "until": pa.array(until, TIME),
        "rate": [1.0, 2.0, 10.0, 20.0]})  # fmt: skip
    engine.table("rates", rates)
    query = engine.register(
        f"SELECT sum(price * rate) AS p, count(*) AS n FROM bids t {WINDOW} JOIN rates r "
        "ON t.kind = r.cur AND t.ts >= r.since AND t.ts < r.until"
    )
    feed.push(
        [bid(1, "a", 1.0, 1, 0), bid(1, "a", 1.0, 1, 10), bid(1, "b", 1.0, 1, 19), bid(1, "b", 1.0, 1, 30)]
    )
    engine.drain()
    assert [(row["p"], row["n"]) for row in query.results().to_pylist()] == [(33.0, 4)]


def test_queries_share_a_search(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids(make_engine, tmp_path)
    semi = engine.register(f"{COUNT} LEFT SEMI JOIN sites s ON b.site = s.site")
    member = engine.register(f"{COUNT} WHERE site IN (SELECT site FROM sites)")
    anti = engine.register(f"{COUNT} WHERE NOT EXISTS (SELECT 1 FROM sites WHERE sites.site = b.site)")
    assert semi.bound.joins == member.bound.joins == anti.bound.joins
    assert semi.bound.where == member.bound.where
    feed.push(ROWS)
    engine.step()
    assert engine._loop.state.queries[semi.name].homes == engine._loop.state.queries[member.name].homes


def test_a_new_version_of_the_table(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids(make_engine, tmp_path)
    query = engine.register(f"{COUNT} WHERE site NOT IN (SELECT site FROM none)")
    feed.push([bid(1, "a", 1.0, 5)])
    engine.step()
    engine.table("none", SITES)
    feed.push([bid(1, "a", 2.0, 5), bid(7, "a", 4.0, 5), bid(None, "a", 8.0, 5)])
    engine.drain()
    assert [row["p"] for row in query.results().to_pylist()] == [5.0]


def draw_condition(dice: Random) -> str:
    table, key = dice.choice([("sites", "site"), ("nulled", "site"), ("none", "site")])
    value = dice.choice(["b.site", "b.site + 1", "b.ip"])
    also = dice.choice(["", "city = 'A'", "city IS NULL", "b.kind = lower(city)"])
    where = f" WHERE {also}" if also else ""
    both = f" AND {also}" if also else ""
    low, high = dice.choice([("lo", "hi"), ("hi", "lo"), ("lo", "lo")])
    return dice.choice(
        [
            f"WHERE {value} IN (SELECT {key} FROM {table}{where})",
            f"WHERE {value} NOT IN (SELECT {key} FROM {table}{where})",
            f"WHERE EXISTS (SELECT 1 FROM {table} x WHERE x.{key} = {value}{both})",
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} x WHERE x.{key} = {value}{both})",
            f"LEFT SEMI JOIN {table} ON {value} = {table}.{key}{both}",
            f"LEFT ANTI JOIN {table} ON {value} = {table}.{key}{both}",
            f"{dice.choice(['', 'LEFT '])}JOIN nets ON b.ip BETWEEN nets.{low} AND nets.{high}",
            f"{dice.choice(['', 'LEFT '])}JOIN nets ON b.ip > {low} AND b.ip - {dice.randint(0, 20)} <= {high}",
            f"LEFT ANTI JOIN nets ON b.ip BETWEEN {low} AND {high} AND nets.net != b.kind",
        ]
    )


def test_searches_give_the_answers_of_the_oracle(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    relations = {
        name: Relation(name, dict(zip(table.column_names, table.schema.types, strict=True)))
        for name, table in TABLES.items()
    }
    catalog = Catalog({"bids": Relation("bids", COLUMNS, "ts")}, relations)
    texts = {f"q{number}": f"{COUNT} {draw_condition(dice)}" for number in range(24)}
    bound = {name: bind_one(text, catalog, SCALARS) for name, text in texts.items()}
    batches = [
        [
            bid(
                dice.choice([1, 2, 3, None]),
                dice.choice(["a", "b", "x", None]),
                float(2**at),
                dice.choice([0, 9, 10, 15, 25, 26, 31, None]),
                30 * number,
            )
            for at in range(8)
        ]
        for number in range(3)
    ]
    engine, feed = bids(make_engine, tmp_path)
    queries = engine.register_all(texts)
    for rows in batches:
        feed.push(rows)
        engine.step()
    engine.drain()
    rules = oracle.OracleStreamRules("ts", columns=COLUMNS, slack=10_000_000)
    given = [oracle.OracleBatch("bids", rows) for rows in batches]
    given.append(oracle.OracleBatch("bids", end_of_stream=True))
    joined = oracle.join_tables(TABLES, SCALARS)
    expected = oracle.answer(bound, given, {"bids": rules}, SCALARS, joined)
    for name, query in queries.items():
        ours = [(row["n"], row["p"], row["rows"]) for row in query.results().to_pylist()]
        theirs = [(row["n"], row["p"], row["rows"]) for row in expected.results[name]]
        assert sorted(ours) == sorted(theirs), texts[name]


@pytest.mark.comparison
@on_spark("the answers are Spark's own")
def test_searches_give_the_answers_of_spark(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    conditions = [*CASES, *(draw_condition(dice) for _ in range(30))]
    engine, feed = bids(make_engine, tmp_path)
    queries = [engine.register(f"{COUNT} {condition}") for condition in conditions]
    feed.push(ROWS)
    engine.drain()
    schema = pa.schema(list(COLUMNS.items()))
    for name, table in {**TABLES, "bids": pa.Table.from_pylist(ROWS, schema)}.items():
        make_engine.rows(table).createOrReplaceTempView(name)
    for condition, query in zip(conditions, queries, strict=True):
        (row,) = make_engine.session.sql(f"SELECT count(*), sum(price) FROM bids b {condition}").collect()
        ours = [(one["n"], one["p"]) for one in query.results().to_pylist()]
        assert ours == ([tuple(row)] if row[0] else []), condition


def test_an_index_of_intervals_finds_all_that_hold_a_value(seed: int) -> None:
    dice = Random(seed)
    for _ in range(50):
        lows = [dice.choice([None, dice.randint(-50, 50)]) for _ in range(dice.randint(0, 30))]
        highs = [None if dice.random() < 0.1 else (low or 0) + dice.choice([-1, 0, 1, 5, 40]) for low in lows]
        values = [dice.choice([None, dice.randint(-60, 60)]) for _ in range(20)]
        kind = dice.choice([pa.int64(), pa.float64(), pa.int32()])
        columns = [pa.chunked_array([pa.array(column, kind)]) for column in (lows, highs, values)]
        low, high, value = map(ordered_numbers, columns)
        found = IntervalIndex(low, high).matches(value, value)
        pairs = set(zip(*(part.tolist() for part in found.pairs()), strict=True))
        assert len(pairs) == found.count
        for at, sought in enumerate(values):
            for row, (start, end) in enumerate(zip(lows, highs, strict=True)):
                if None not in (sought, start, end) and start <= sought <= end:
                    assert (at, row) in pairs
