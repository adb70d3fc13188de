"""Sessions have the answers of Spark's session_window in batch mode, whatever the batches and their disorder."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = [pytest.mark.comparison, ON_BOTH]

SCHEMA = "ts timestamp, site int, price double, side string"
AGGREGATES = (
    "count(*) AS n",
    "sum(price) AS total",
    "max(price) - min(price) AS spread",
    "count(DISTINCT side) AS sides",
    "median(price) AS middle",
    "min(side) AS least",
    "count_if(price > 1) AS high",
    "stddev(price) AS deviation",
)
CONDITIONS = (
    "price > 0",
    "side = 'a'",
    "side IS NOT NULL AND price < 2",
    "site IN (1, 2)",
    "site + price > 2",
)


def drawn_rows(draw: random.Random, count: int) -> list[dict[str, Any]]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        {
            "ts": start + timedelta(seconds=draw.choice([number * 3, number * 3, draw.randrange(1_800)])),
            "site": draw.choice([1, 2, 3, None]),
            "price": draw.choice([0.5, 1.0, 1.5, -2.25, None]),
            "side": draw.choice(["a", "b", None]),
        }
        for number in range(count)
    ]


def drawn_text(draw: random.Random) -> str:
    gap = draw.choice([5, 9, 12, 30, 60, 300])
    keys = draw.sample(["site", "side", "price > 1"], draw.randint(0, 2))
    items = ["session_window.start AS a", "session_window.end AS b"]
    items += [f"{key} AS k{place}" for place, key in enumerate(keys)]
    items += draw.sample(AGGREGATES, draw.randint(1, 4))
    where = draw.choice(["", *(f" WHERE {condition}" for condition in CONDITIONS)])
    groups = ", ".join([f"session_window(ts, '{gap} seconds')", *keys])
    having = draw.choice(["", "", " HAVING count(*) > 1"])
    return f"SELECT {', '.join(items)} FROM drawn{where} GROUP BY {groups}{having}"


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    def rounded(value: Any) -> Any:
        return round(value, 9) if isinstance(value, float) else value

    return Counter(repr(sorted((name, rounded(value)) for name, value in row.items())) for row in rows)


@pytest.mark.timeout(0)
def test_generated_sessions_are_those_of_spark(
    make_engine: EngineFactory, spark_without_ansi: Any, seed: int
) -> None:
    draw = random.Random(seed)
    rows = drawn_rows(draw, 400)
    texts = {f"q{number}": drawn_text(draw) for number in range(20)}
    engine = make_engine()
    feed = engine.feed("drawn", SCHEMA, time="ts", slack="1 hour")
    queries = engine.register_all(texts)
    shuffled = draw.sample(rows, len(rows))
    for start in range(0, len(rows), 100):
        feed.push(shuffled[start : start + 100])
        engine.step()
    engine.flush("drawn")
    engine.step(empty=True)
    frame = spark_without_ansi.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)
    frame.createOrReplaceTempView("drawn")
    for name, text in texts.items():
        theirs: pa.Table = spark_without_ansi.sql(text).toArrow()
        ours = queries[name].results().select(theirs.column_names).cast(theirs.schema)
        assert counted(ours.to_pylist()) == counted(theirs.to_pylist()), text
