"""ORDER BY ... LIMIT in an engine: shared state, early results, queries over it, groups on executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import at, bids_engine

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
ROWS = [("a", 1), ("b", 5), ("c", 5), ("d", 2), ("b", 1), ("e", None)]


def rows_at(time: str) -> list[tuple[Any, ...]]:
    return [(*row, at(time)) for row in ROWS]


def values(table: Any, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=str)


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_the_first_rows_of_each_window(make_engine: EngineFactory, tmp_path: Path, state: str) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="item string, price int, ts timestamp", state=state
    )
    text = f"SELECT item, sum(price) AS total FROM bids {WINDOW} GROUP BY item ORDER BY total"
    most = engine.register(f"{text} DESC LIMIT 2", name="most")
    least = engine.register(f"{text} NULLS LAST LIMIT 1", name="least")
    by_other = engine.register(
        f"SELECT item FROM bids {WINDOW} GROUP BY item ORDER BY max(price) / 2 DESC, item DESC LIMIT 1"
    )
    above = engine.register(f"SELECT sum(total) AS x, count(*) AS n FROM most {WINDOW}")
    feed.push(rows_at("12:00:10"))
    engine.step()
    assert values(most.prod(), "item", "total") == [("b", 6), ("c", 5)]
    feed.push([("d", 100, at("12:00:50")), *rows_at("12:01:10")])
    engine.step()
    engine.drain()
    assert values(most.results().filter(most.results()["kind"].to_numpy() == "final"), "item", "total") == [
        ("b", 6), ("b", 6), ("c", 5), ("d", 102),
    ]  # fmt: skip
    assert values(least.results(), "item") == [("a",), ("a",)]
    assert values(by_other.results(), "item") == [("c",), ("d",)]
    assert values(above.results(), "x", "n") == [(108, 2), (11, 2)]


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_rows_of_a_window_are_in_their_order(make_engine: EngineFactory, tmp_path: Path, state: str) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="item string, price int, ts timestamp", state=state
    )
    text = "SELECT item, sum(price) AS total FROM bids {} GROUP BY item ORDER BY total DESC NULLS LAST, item LIMIT 4"
    query = engine.register(text.format(WINDOW))
    on_demand = engine.register(text.format("[RANGE 10 minutes]"))
    in_order = ["b", "c", "d", "a"]
    feed.push(rows_at("12:00:10"))
    engine.step()
    assert query.prod()["item"].to_pylist() == in_order
    assert on_demand.lookup()["item"].to_pylist() == in_order
    feed.push(rows_at("12:01:10"))
    engine.step()
    engine.drain()
    results = query.results()
    finals = results.filter(results["kind"].to_numpy() == "final")
    assert finals["item"].to_pylist() == [*in_order, *in_order]


def test_queries_with_other_limits_share_the_state(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema="item string, price int, ts timestamp")
    text = f"SELECT item, sum(price) AS total FROM bids {WINDOW} GROUP BY item"
    for number in range(1, 6):
        engine.register(f"{text} ORDER BY total DESC LIMIT {number}", name=f"top{number}")
    engine.register(text, name="all")
    feed.push(rows_at("12:00:10"))
    engine.step()
    assert "6 queries in 1 selection of 1 family" in engine.explain()


def test_a_window_is_reported_when_it_is_closed_for_all_groups(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema="item string, price int, ts timestamp")
    text = f"SELECT item, sum(price) AS total FROM bids {WINDOW} GROUP BY item"
    top, whole = engine.register(f"{text} ORDER BY total DESC LIMIT 1"), engine.register(text)
    feed.push(rows_at("12:00:10"))
    engine.punctuate("bids", at("12:01:00"), where={"item": "a"})
    engine.step()
    assert values(whole.results(), "item") == [("a",)]
    assert values(top.results(), "item") == []
    feed.push([("a", 50, at("12:00:20"))])
    engine.drain()
    assert values(top.results(), "item", "total") == [("a", 51)]


def test_a_lookup_gives_the_first_groups(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema="item string, price int, ts timestamp")
    query = engine.register(
        "SELECT item, sum(price) AS total FROM bids [RANGE 1 minute] GROUP BY item ORDER BY total DESC LIMIT 2"
    )
    feed.push(rows_at("12:00:10"))
    engine.step()
    assert values(query.lookup(), "item", "total") == [("b", 6), ("c", 5)]


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_with_ties_rows_that_equal_the_last_are_results(
    make_engine: EngineFactory, tmp_path: Path, state: str
) -> None:
    engine, feed = bids_engine(
        make_engine, tmp_path, schema="item string, price int, ts timestamp", state=state
    )
    text = "SELECT item, max(price) AS top FROM bids {} GROUP BY item ORDER BY top DESC NULLS LAST LIMIT {}"
    queries = {
        limit: engine.register(text.format(WINDOW, limit))
        for limit in ("1", "1 WITH TIES", "2 WITH TIES", "3 WITH TIES", "4 WITH TIES EMIT EARLY ON DEMAND")
    }
    on_demand = engine.register(text.format("[RANGE 10 minutes]", "1 WITH TIES"))
    feed.push([*rows_at("12:00:10"), ("f", 2, at("12:00:20"))])
    engine.step()
    assert values(queries["1 WITH TIES"].prod(), "item") == [("b",), ("c",)]
    assert values(on_demand.lookup(), "item") == [("b",), ("c",)]
    engine.drain()
    found = {
        limit: "".join(row["item"] for row in query.results().to_pylist() if row["kind"] == "final")
        for limit, query in queries.items()
    }
    assert found == {
        "1": "b", "1 WITH TIES": "bc", "2 WITH TIES": "bc", "3 WITH TIES": "bcdf",
        "4 WITH TIES EMIT EARLY ON DEMAND": "bcdf",
    }  # fmt: skip
