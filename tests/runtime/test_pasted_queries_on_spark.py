"""Queries pasted from Spark, generated from the forms that people write, have Spark's answers on both backends."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = [pytest.mark.comparison, ON_BOTH]

SCHEMA = (
    "ts timestamp, site int, price double, side string, tags array<string>, nums array<int>, "
    "scores map<string, int>, parts array<struct<f: int, g: string>>"
)
CONDITIONS = (
    "side LIKE ANY ('a%', '_')",
    "side NOT LIKE ANY ('a%', 'b')",
    "side LIKE ALL ('a%', '%b')",
    "side NOT LIKE ALL ('a', NULL)",
    "NOT side LIKE ANY ('a%', 'b')",
    "(site, side) IN ((1, 'a'), (2, 'ab'), (3, 'b'))",
    "(site, side) NOT IN ((1, 'a'), (2, 'ab'))",
    "exists(nums, x -> x > site)",
    "forall(nums, x -> x > 0)",
    "exists(tags, t -> t LIKE 'a%')",
    "scores.a > 1",
    "scores.b IS NULL",
    "parts.f[0] > 1",
    "size(filter(nums, (x, i) -> x > i)) > 1",
    "aggregate(nums, 0, (acc, x) -> acc + coalesce(x, 0)) > 2",
    "array_contains(transform(nums, x -> x + site), 4)",
)
KEYS = (
    "site",
    "upper(side) AS u",
    "site > 1 AS high",
    "scores.a AS sa",
    "size(tags) AS tagged",
    "parts.g[0] AS g",
)
AGGREGATES = (
    "count(*) AS n",
    "sum(price) AS total",
    "max(aggregate(nums, 0, (acc, x) -> acc + x)) AS most",
    "sum(size(filter(tags, t -> t = 'a'))) AS tag_a",
    "min(scores.b) AS least",
)
SOURCES = (
    ("", "drawn"),
    ("", "(SELECT * FROM drawn WHERE site > 1 OR side = 'a')"),
    (
        "WITH halves AS (SELECT *, price / 2 AS half FROM drawn) ",
        "(SELECT * FROM halves h WHERE h.half > 0.25) d",
    ),
)
LATERAL = {
    "n": "n * 2 AS twice",
    "total": "total + 1 AS above",
    "u": "u || '!' AS shout",
    "site": "site + 1 AS next",
}


def drawn_rows(draw: random.Random, count: int) -> list[dict[str, Any]]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    texts = ["a", "ab", "b", None, ""]
    return [
        {
            "ts": start + timedelta(seconds=draw.randrange(600)),
            "site": draw.choice([1, 2, 3, None]),
            "price": draw.choice([0.5, 1.0, -2.25, None]),
            "side": draw.choice(texts),
            "tags": draw.choice([None, [], draw.choices(texts, k=3)]),
            "nums": draw.choice([None, [], draw.choices([1, 2, 3, None], k=3)]),
            "scores": draw.choice([None, {}, {"a": 1, "b": 2}, {"a": 3}]),
            "parts": draw.choice([None, [], [{"f": draw.randrange(4), "g": draw.choice(texts)}, None]]),
        }
        for _ in range(count)
    ]


def drawn_text(draw: random.Random) -> str:
    keys, aggregates = draw.sample(KEYS, draw.randint(0, 2)), draw.sample(AGGREGATES, draw.randint(1, 3))
    items = [*keys, *aggregates]
    names = [item.rpartition(" AS ")[2] for item in items]
    by_all = draw.random() < 0.5
    if not by_all:  # Spark does not support both in one query yet
        items += [LATERAL[name] for name in names if name in LATERAL and draw.random() < 0.5]
    where = f" WHERE {' AND '.join(draw.sample(CONDITIONS, draw.randint(0, 2)))}"
    having = draw.choice(["", " HAVING count(*) > 1", " HAVING n > 2" if "n" in names else ""])
    if by_all:
        group = "GROUP BY ALL"
        items.insert(0, "window(ts, '2 minutes', '1 minute') AS w")
    else:
        written = [key.partition(" AS ")[0] for key in keys]
        group = f"GROUP BY {', '.join(['window(ts, ' + repr('2 minutes') + ', ' + repr('1 minute') + ')', *written])}"
        items[:0] = ["window.start AS w0", "window.end AS w1"]
    before, source = draw.choice(SOURCES)
    return f"{before}SELECT {', '.join(items)} FROM {source}{where if where != ' WHERE ' else ''} {group}{having}"


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.timeout(0)
def test_generated_queries_have_spark_s_answers(
    make_engine: EngineFactory, spark_without_ansi: Any, seed: int
) -> None:
    draw = random.Random(seed)
    rows = drawn_rows(draw, 300)
    texts = {f"q{number}": drawn_text(draw) for number in range(25)}
    engine = make_engine()
    feed = engine.feed("drawn", SCHEMA, time="ts", slack="1 hour")
    queries = engine.register_all(texts)
    feed.push(rows[:150])
    feed.push(rows[150:])
    engine.step()
    engine.flush("drawn")
    engine.step(empty=True)

    frame = spark_without_ansi.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
    frame.createOrReplaceTempView("drawn")
    for name, text in texts.items():
        theirs: pa.Table = spark_without_ansi.sql(text).toArrow()
        ours = queries[name].results().select(theirs.column_names).cast(theirs.schema)
        assert counted(ours.to_pylist()) == counted(theirs.to_pylist()), text
