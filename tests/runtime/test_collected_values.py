"""Lists and texts are bounded: a query beyond the bound is suspended, and no other notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import at, bids_engine
from transom.errors import SQLError
from transom.plan.limits import Limits

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SCHEMA = "item string, price int, ts timestamp"


@ON_BOTH
def test_a_list_beyond_the_limit_suspends_its_query_alone(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA, limits=Limits(collected_values=3))
    lists = engine.register(
        f"SELECT collect_list(price) AS x FROM bids {WINDOW} WHERE price < 10", name="lists"
    )
    text = engine.register(f"SELECT string_agg(item, '+') AS x FROM bids {WINDOW}", name="text")
    total = engine.register(f"SELECT sum(price) AS x FROM bids {WINDOW}", name="total")
    feed.push([(item, price, at("12:00:10")) for item, price in [("b", 2), ("a", 1), ("c", 30), ("a", 9)]])
    engine.drain()
    assert lists.results()["x"].to_pylist() == [[1, 2, 9]]
    assert total.results()["x"].to_pylist() == [42]
    assert text.results().num_rows == 0
    assert "string_agg has more than 3 values in a group of a window" in engine.progress().suspended["text"]


def test_explain_says_what_grows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    engine.register(f"SELECT median(price) AS m, collect_list(price) AS l FROM bids {WINDOW}")
    feed.push([("a", 1, at("12:00:10"))])
    engine.step()
    text = engine.explain()
    assert "multiset(price) [exact: grows with the distinct values" in text
    assert "grows with the rows, up to 10,000 values" in text


def test_text_functions_take_text(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    with pytest.raises(SQLError, match="string_agg needs text, and this is int32; a cast can make it text"):
        engine.register(f"SELECT string_agg(price) FROM bids {WINDOW}")


@ON_BOTH
def test_distinct_texts_have_their_own_order_or_the_reverse(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    text = "SELECT string_agg(DISTINCT item, ',') WITHIN GROUP (ORDER BY {}) AS x FROM bids " + WINDOW
    up, down = (engine.register(text.format(order)) for order in ("item", "item DESC"))
    with pytest.raises(SQLError, match="with DISTINCT, WITHIN GROUP orders string_agg by its argument"):
        engine.register(text.format("price"))
    feed.push([(item, 1, at("12:00:10")) for item in ("b", "a", "c", "a", None)])
    engine.drain()
    assert [query.results()["x"].to_pylist() for query in (up, down)] == [["a,b,c"], ["c,b,a"]]
