"""Conditions on the rows of a batch: each is compiled once, not again in every batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from transom.sql.interpreter.expressions import parsed

SCHEMA = "site string, price double, ts timestamp"
QUERIES = {
    "windows of rows": "SELECT max(price) AS n FROM a [ROWS 5 SLIDE 2]",
    "a union": "WITH u AS (SELECT ts, price FROM a UNION ALL SELECT ts, price FROM b) "
    "SELECT avg(price) AS n FROM u [RANGE 1 minute SLIDE 1 minute]",
    "a join": "SELECT count(*) AS n FROM a x JOIN b y ON x.site = y.site "
    "AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 1 minute [RANGE 1 minute SLIDE 1 minute]",
    "a selection with a preference": "SELECT site, price FROM a WHERE price > 1 WITH PREFERENCE desc price",
}


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
def test_later_batches_compile_nothing(make_engine: EngineFactory, tmp_path: Path, text: str) -> None:
    engine = make_engine(tmp_path)
    feeds = [engine.feed(name, SCHEMA, time="ts") for name in ("a", "b")]
    if "PREFERENCE" in text:
        engine.execute("CREATE SUMMARY a_price ON a(price) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)")
    engine.register(text)
    compiled = []
    for batch in range(12):
        at = datetime(2026, 3, 2, 12, tzinfo=UTC) + timedelta(seconds=20 * batch)
        for feed in feeds:
            feed.push([{"site": "s", "price": float(batch), "ts": at}])
        engine.step()
        compiled.append(parsed.cache_info().misses)
    assert compiled[-1] == compiled[5], "windows have closed before the sixth batch"
