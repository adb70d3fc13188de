"""Views, UNION ALL, explode and grouping sets have the answers that Spark has for the same text over all rows."""

# ruff: noqa: E501 -- a query is a line

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = [pytest.mark.comparison, ON_BOTH]

SCHEMA = "ts timestamp, site int, price double, side string, nums array<int>, scores map<string, int>"
WINDOW = "window(ts, '2 minutes', '1 minute')"
VIEWS = {
    "high": "SELECT ts, site, price * 2 AS twice FROM drawn WHERE price > 0 OR side = 'a'",
    "numbers": "SELECT ts, site, posexplode(nums) AS (place, num) FROM drawn WHERE side IS NOT NULL",
    "both": "SELECT ts, site, price FROM drawn WHERE site > 1 UNION ALL SELECT ts, site + 1, -price FROM drawn",
}
TEXTS = [
    f"SELECT window.start AS w, site, sum(twice) AS s FROM high GROUP BY {WINDOW}, site",
    f"SELECT window.start AS w, place, count(*) AS n, sum(num) AS s FROM numbers GROUP BY {WINDOW}, place",
    f"SELECT window.start AS w, num, count(*) AS n FROM drawn LATERAL VIEW explode(nums) x AS num GROUP BY {WINDOW}, num",
    f"SELECT window.start AS w, num, count(*) AS n FROM drawn LATERAL VIEW OUTER explode(nums) x AS num GROUP BY {WINDOW}, x.num",
    f"SELECT window.start AS w, key, sum(value) AS s FROM (SELECT ts, explode_outer(scores) FROM drawn) GROUP BY {WINDOW}, key",
    f"SELECT window.start AS w, site, sum(price) AS s, count(*) AS n FROM both GROUP BY {WINDOW}, site",
    f"SELECT window.start AS w, site, side, count(*) AS n, sum(price) AS s, grouping(site) AS g, grouping_id() AS i FROM drawn GROUP BY {WINDOW}, ROLLUP(site, side)",
    f"SELECT window.start AS w, site, upper(side) AS u, count(*) AS n, sum(site) AS s, grouping_id() AS i FROM drawn GROUP BY {WINDOW}, CUBE(site, upper(side)) HAVING count(*) > 1",
    f"SELECT window.start AS w, site, side, max(price) AS m, grouping_id() AS i FROM drawn WHERE price > 0 GROUP BY GROUPING SETS (({WINDOW}, site, side), ({WINDOW}, side), ({WINDOW}))",
    f"SELECT window.start AS w, site, count(*) AS n, grouping(site) + grouping(side) AS g, grouping_id() AS i FROM drawn GROUP BY {WINDOW}, site, ROLLUP(side)",
    f"SELECT window.start AS w, site % 2 AS odd, side, count(*) AS n, grouping_id() AS i FROM drawn GROUP BY {WINDOW}, GROUPING SETS (ROLLUP(site % 2), (side))",
]


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.timeout(0)
def test_the_answers_are_spark_s(make_engine: EngineFactory, spark_without_ansi: Any, seed: int) -> None:
    draw = random.Random(seed)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [
        {
            "ts": start + timedelta(seconds=draw.randrange(400)),
            "site": draw.choice([1, 2, 3, None]),
            "price": draw.choice([0.5, 1.0, -2.25, None]),
            "side": draw.choice(["a", "b", None]),
            "nums": draw.choice([None, [], [1], [2, None, 2]]),
            "scores": draw.choice([None, {}, {"a": 1, "b": 2}, {"a": 3}]),
        }
        for _ in range(150)
    ]
    engine = make_engine()
    feed = engine.feed("drawn", SCHEMA, time="ts", slack="1 hour")
    for name, text in VIEWS.items():
        engine.view(name, text)
    queries = engine.register_all({f"q{number}": text for number, text in enumerate(TEXTS)})
    feed.push(rows[:70])
    feed.push(rows[70:])
    engine.step()
    engine.flush("drawn")
    engine.step(empty=True)
    frame = spark_without_ansi.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
    frame.createOrReplaceTempView("drawn")
    for name, text in VIEWS.items():
        spark_without_ansi.sql(text).createOrReplaceTempView(name)
    for query, text in zip(queries.values(), TEXTS, strict=True):
        theirs: pa.Table = spark_without_ansi.sql(text).toArrow()
        ours = query.results().select(theirs.column_names).cast(theirs.schema)
        assert counted(ours.to_pylist()) == counted(theirs.to_pylist()), text
