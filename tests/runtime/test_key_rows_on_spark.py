"""The last rows of each key are those of OVER (PARTITION BY ... ROWS ... PRECEDING) in Spark."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = [pytest.mark.comparison, ON_BOTH]

SCHEMA = "ts timestamp, site int, price double"
ITEMS = "count(*) AS n, sum(price) AS total, max(price) AS most, min(price) FILTER (WHERE price > 1) AS low"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_row_has_the_window_of_spark(
    make_engine: EngineFactory, spark_without_ansi: Any, seed: int, rows: int
) -> None:
    draw, start = random.Random(seed), datetime(2024, 1, 1, tzinfo=UTC)
    drawn = [
        (start + timedelta(seconds=number), draw.choice([1, 2, 3, None]), draw.choice([0.5, 1.5, 4.0, None]))
        for number in range(200)
    ]
    engine = make_engine()
    feed = engine.feed("drawn", SCHEMA, time="ts")
    query = engine.register(
        f"SELECT site, {ITEMS} FROM drawn [PARTITION BY site ROWS {rows} SLIDE 1] GROUP BY site", "last"
    )
    for first in range(0, len(drawn), 50):
        feed.push(draw.sample(drawn[first : first + 50], 50))
        engine.step()
    spark_without_ansi.createDataFrame(drawn, SCHEMA).createOrReplaceTempView("drawn")
    over = f"OVER (PARTITION BY site ORDER BY ts ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW)"
    low = f"min(CASE WHEN price > 1 THEN price END) {over}"
    theirs = spark_without_ansi.sql(
        f"SELECT site, count(*) {over} AS n, sum(price) {over} AS total, max(price) {over} AS most, {low} AS low, "
        "row_number() OVER (PARTITION BY site ORDER BY ts) AS window_end FROM drawn"
    ).toArrow()
    names = ["site", "n", "total", "most", "low", "window_end"]

    def counted(table: Any) -> Counter[str]:
        return Counter(repr([row[name] for name in names]) for row in table.to_pylist())

    assert counted(query.results()) == counted(theirs)
