"""Queries over the past with static tables, LAG or EMIT EMPTY, beside the same query that was there from the start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from transom.plan.limits import Limits
from transom.runtime import row_history
from transom.runtime.engine import Engine

START = datetime(2013, 1, 1, 12, tzinfo=UTC)
SITES = [
    {"site": 1, "name": "one"},
    {"site": 2, "name": "two"},
    {"site": 2, "name": "second"},
    {"site": 4, "name": "four"},
]
WINDOW = "[RANGE 2 minutes SLIDE 1 minute]"
TEXTS = {
    "an inner join that repeats rows": f"SELECT name, count(*) AS x FROM bids {WINDOW} JOIN sites ON "
    "bids.site = sites.site GROUP BY name",
    "a left join": f"SELECT name, sum(price) AS x FROM bids {WINDOW} LEFT JOIN sites ON bids.site = sites.site "
    "GROUP BY name",
    "a semi join": f"SELECT count(*) AS x FROM bids {WINDOW} WHERE site IN (SELECT site FROM sites)",
    "a view": f"SELECT count(*) AS x FROM (SELECT site, price * 2 AS twice, ts FROM bids WHERE site > 1) {WINDOW} "
    "WHERE twice > 2",
    "LAG": f"SELECT site, sum(price) AS x, LAG(sum(price)) OVER WINDOWS AS before FROM bids {WINDOW} GROUP BY site",
    "EMIT EMPTY": f"SELECT count(*) AS x FROM bids {WINDOW} WHERE price > 3 EMIT EMPTY",
    "EMIT EMPTY by group": f"SELECT site, count(*) AS x FROM bids {WINDOW} WHERE price > 3 GROUP BY site EMIT EMPTY",
    "LAG and EMIT EMPTY": f"SELECT count(*) AS x, LAG(count(*)) OVER WINDOWS AS before FROM bids {WINDOW} "
    "WHERE site = 3 EMIT EMPTY",
}


def results(engine: Engine, name: str) -> list[tuple[Any, ...]]:
    names = ("window_start", "window_end", "name", "site", "x", "before", "rows", "complete")
    rows = engine.query(name).results().to_pylist()
    return sorted((tuple(row.get(column) for column in names) for row in rows), key=repr)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_query_that_asks_for_the_past_has_the_results_of_one_that_was_always_there(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(row_history, "MERGED_FILES", 4)
    now = 0
    engine = make_engine(None, limits=Limits(backfill_share=0.0), clock=lambda: now)
    feed = engine.feed(
        "bids",
        "site int, price double, ts timestamp",
        time="ts",
        slack="5 seconds",
        idle="1 hour",
        retain="1 day",
    )
    engine.table("sites", SITES)
    engine.register(text, "there")
    dice = Random(text)
    for number in range(40):
        if number == 20:  # nothing comes for a while, and all windows close
            now += 7_200_000_000
            engine.step(1)
        start = 20 * number + (600 if number >= 20 else 0)
        seconds = [start + dice.randint(-30, 20) for _ in range(dice.randint(0, 5))]
        if number == 30:
            engine.register(text, "past", since="1 day ago")
        feed.push(
            [
                {
                    "site": dice.randint(1, 4),
                    "price": float(dice.randint(0, 4)),
                    "ts": START + timedelta(seconds=s),
                }
                for s in seconds
            ]
        )
        engine.step(1)
        if number == 35:
            engine.step()
            assert engine.query("past").backfill is None
    engine.drain(close=True)
    assert engine.query("past").suspended is None
    assert results(engine, "past") == results(engine, "there")
    past, there = (engine.query(name).account for name in ("past", "there"))
    assert (past.counted, past.late) == (there.counted, there.late)


def test_rows_of_the_past_see_a_table_as_it_is_now(make_engine: EngineFactory) -> None:
    engine = make_engine(None)
    feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts", retain="1 day")
    engine.table("sites", [{"site": 1, "name": "old"}])
    for minute in range(3):
        feed.push([{"site": 1, "price": 1.0, "ts": START + timedelta(minutes=minute)}])
        engine.step(1)
    engine.table("sites", [{"site": 1, "name": "new"}])
    text = TEXTS["a left join"].replace(WINDOW, "[RANGE 1 minute SLIDE 1 minute]")
    query = engine.register(text, since=START)
    engine.step()
    assert query.results()["name"].to_pylist() == ["new", "new"]
    answer = engine.lookup(f"{text} AS OF '2013-01-01 12:01'")
    assert answer["name"].to_pylist() == ["new"]
