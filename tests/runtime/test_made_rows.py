"""UNION ALL and explode in an engine: rows made once, windows that wait for all inputs, lookups, files, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SettingError
from transom.plan.limits import Limits

WINDOW = "[RANGE 10 seconds SLIDE 10 seconds]"
CARTS = "ts timestamp, shop int, items array<struct<name: string, n: int>>, notes map<string, int>"
EACH_ITEM = "SELECT ts, shop, explode(items) AS item FROM carts"
PER_ITEM = f"SELECT item.name AS name, sum(item.n) AS total FROM each_item {WINDOW} GROUP BY item.name"


def at(second: int) -> str:
    return f"2024-01-01 00:00:{second:02d}"


def cart(second: int, *items: tuple[str, int], shop: int = 1) -> dict[str, Any]:
    listed = [{"name": name, "n": n} for name, n in items]
    return {"ts": at(second), "shop": shop, "items": listed, "notes": dict(items)}


CART_ROWS = [
    cart(1, ("tea", 2), ("milk", 1)),
    cart(2),
    {"ts": at(3), "shop": 2, "items": None, "notes": None},
    cart(9, ("tea", 5), shop=2),
    cart(12, ("milk", 7)),
    cart(25),
]


def rows_of(query: Any, *names: str, kind: str = "final") -> list[tuple[Any, ...]]:
    rows = [row for row in query.results().to_pylist() if row["kind"] == kind]
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def push(feed: Any, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    feed.push([tuple(row[name] for name in names) for row in rows])


@ON_BOTH
@pytest.mark.parametrize("source", ["feed", "files"])
def test_elements_become_rows(make_engine: EngineFactory, tmp_path: Path, source: str) -> None:
    engine = make_engine(
        str(tmp_path / "checkpoint"), limits=Limits(pushed_rows=10_000 if source == "feed" else 0)
    )
    if source == "feed":
        feed = engine.feed("carts", CARTS, time="ts")
    else:
        (tmp_path / "carts").mkdir()
        lines = "\n".join(json.dumps(row) for row in CART_ROWS)
        (tmp_path / "carts" / "a.json").write_text(lines + "\n")
        engine.stream("carts", str(tmp_path / "carts"), time="ts", format="json", schema=CARTS)
    engine.view("each_item", EACH_ITEM)
    per_item = engine.register(PER_ITEM, "per_item")
    outer = engine.register(
        f"SELECT item.name AS name, count(*) AS n FROM carts {WINDOW} LATERAL VIEW OUTER explode(items) i AS item "
        "WHERE i.item.n > 1 OR item IS NULL GROUP BY item.name"
    )
    places = engine.register(
        f"SELECT p, max(i.n) AS m FROM (SELECT posexplode(items) AS (p, i) FROM carts) {WINDOW} GROUP BY p"
    )
    notes = engine.register(
        f"SELECT k, sum(v) AS v FROM (SELECT explode(notes) AS (k, v) FROM carts WHERE shop = 1) {WINDOW} GROUP BY k"
    )
    if source == "feed":
        push(feed, CART_ROWS)
    engine.step()
    assert rows_of(per_item, "name", "total") == [("milk", 1), ("milk", 7), ("tea", 7)]
    assert rows_of(outer, "name", "n") == [("milk", 1), ("tea", 2), (None, 2)]
    assert rows_of(places, "p", "m") == [(0, 5), (0, 7), (1, 1)]
    assert rows_of(notes, "k", "v") == [("milk", 1), ("milk", 7), ("tea", 2)]
    account = per_item.account
    assert (account.rows, account.counted, account.unwanted, account.late) == (7, 4, 3, 0)
    plan = engine.explain()
    assert "its rows are derived from explode(items) of carts" in plan
    assert all(len(engine.rejected(name)) == len(engine.late(name)) == 0 for name in engine.streams())
    assert sum("exploded" in name for name in engine.streams()) == 2  # of the items and of the notes


def test_queries_over_the_same_array_share_slices(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("carts", CARTS, time="ts")
    engine.view("each_item", EACH_ITEM)
    engine.register_all(
        {
            "a": PER_ITEM,
            "b": f"SELECT item.name AS x, sum(item.n) AS s FROM (SELECT explode(items) AS item FROM carts) {WINDOW} "
            "GROUP BY item.name",
        }
    )
    push(feed, CART_ROWS)
    engine.step()
    assert "slices shared by 2 queries" in engine.explain()


def test_a_query_that_joins_later_reports_what_it_saw_all_of(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("carts", CARTS, time="ts")
    push(feed, [cart(1, ("tea", 1)), cart(12, ("tea", 1))])
    engine.step()
    engine.view("each_item", EACH_ITEM)
    query = engine.register(PER_ITEM)
    push(feed, [cart(3, ("tea", 9)), cart(13, ("tea", 9)), cart(21, ("tea", 4)), cart(31, ("tea", 1))])
    engine.step()
    assert rows_of(query, "name", "total") == [("tea", 4)]
    assert (query.account.late, query.account.counted) == (1, 3)
    assert query.late(rows=True)["ts"].to_pylist()[0].second == 3


def test_a_union_waits_for_its_slowest_input(make_engine: EngineFactory, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any, Any]:
        engine = make_engine(str(tmp_path))
        web = engine.feed("web", "ts timestamp, amount int", time="ts", slack="5 seconds")
        shop = engine.feed("shop", "paid timestamp, till int, cents bigint", time="paid")
        engine.view(
            "sales",
            "SELECT ts, amount AS euros, 'web' AS place FROM web WHERE amount > 0 "
            "UNION ALL SELECT paid, CAST(cents DIV 100 AS INT), 'shop' FROM shop",
        )
        return engine, web, shop

    engine, web, shop = made()
    text = f"SELECT place, sum(euros) AS total FROM sales {WINDOW} GROUP BY place"
    engine.register(text, "total")
    on_demand = engine.register("SELECT sum(euros) AS total FROM sales [RANGE 1 minute]", "now")
    web.push([(at(1), 5), (at(2), -1), (at(30), 7)])
    engine.step()
    assert rows_of(engine.query("total"), "place") == []  # the shop has not said anything
    assert engine.query("total").prod()["total"].to_pylist() == [5, 7]
    engine.stop()
    engine, web, shop = made()
    shop.push([(at(4), 1, 200), (at(19), 1, 900)])
    engine.step()
    assert rows_of(engine.query("total"), "place", "total") == [("shop", 2), ("web", 5)]
    web.push([(at(5), 100), (at(18), 3)])  # the first is late
    engine.step()
    shop.punctuate(at(40))
    engine.step()
    assert rows_of(engine.query("total"), "place", "total") == [
        ("shop", 2), ("shop", 9), ("web", 3), ("web", 5)
    ]  # fmt: skip
    assert engine.query("total").account.late == 1
    assert engine.query("now").lookup()["total"].to_pylist() == [126]  # it is late for closed windows only
    assert on_demand.name == "now"
    engine.drain()
    assert ("web", 7) in rows_of(engine.query("total"), "place", "total")


def test_a_derived_stream_is_forgotten_with_its_last_reader(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("carts", CARTS, time="ts")
    engine.view("each_item", EACH_ITEM)
    query = engine.register(PER_ITEM)
    push(feed, CART_ROWS)
    engine.step()
    query.drop()
    engine.step(empty=True)
    engine.step(empty=True)
    assert list(engine.streams()) == ["carts"]
    assert list(engine._loop.state.streams) == ["carts"]


def test_early_results_and_queries_over_queries(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("carts", CARTS, time="ts")
    engine.view("each_item", EACH_ITEM)
    early = engine.register(f"{PER_ITEM} EMIT EARLY AT 50% OF SLIDE", "per_item")
    above = engine.register(f"SELECT max(total) AS m FROM per_item {WINDOW}")
    push(feed, CART_ROWS[:4])
    engine.step()
    assert engine.prod("carts")["per_item"]["total"].to_pylist() == [7, 1]
    push(feed, CART_ROWS[4:])
    engine.step()
    assert rows_of(early, "name", "total", kind="early") != []
    assert rows_of(above, "m") == [(7,), (7,)]


def test_streams_with_a_budget_are_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    engine.feed("carts", CARTS, time="ts", overload="sideline", budget=5)
    engine.view("each_item", EACH_ITEM)
    with pytest.raises(SettingError, match="carts sidelines or sheds rows of bursts"):
        engine.register(PER_ITEM)


def test_late_elements_are_listed_with_columns_that_no_query_reads(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path))
    feed = engine.feed("carts", CARTS, time="ts")
    query = engine.register(PER_ITEM.replace("each_item", f"({EACH_ITEM})"), name="per_item")
    push(feed, CART_ROWS)
    engine.step()
    push(feed, [cart(4, ("tea", 1), ("milk", 3), shop=7), cart(26, ("tea", 1))])
    engine.step()
    late = query.late(rows=True).to_pylist()
    assert [(row["shop"], row["exploded_col"]["name"], dict(row["notes"])) for row in late] == [
        (7, "tea", {"tea": 1, "milk": 3}),
        (7, "milk", {"tea": 1, "milk": 3}),
    ]
    assert [len(row["items"]) for row in late] == [2, 2]


@ON_BOTH
def test_unions_of_unions(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    web = engine.feed("web", "ts timestamp, k int, v int, spot struct<x: int>, tags array<int>", time="ts")
    shop = engine.feed("shop", "ts timestamp, k bigint, v double", time="ts")
    engine.view(
        "sales",
        "SELECT ts, k, v * 2 AS v, spot.x AS x FROM web WHERE v > 3 UNION ALL SELECT ts, k, v, NULL FROM shop",
    )
    engine.view("tagged", "SELECT ts, explode(tags) AS tag, v FROM web")
    engine.view(
        "everything",
        "SELECT ts, k + 1 AS k, v + coalesce(x, 0) AS h FROM sales WHERE v < 15 "
        "UNION ALL SELECT ts, tag, v FROM tagged WHERE tag > 1 UNION ALL SELECT ts, k, NULL FROM sales",
    )
    query = engine.register(f"SELECT k, count(*) AS n, sum(h) AS s FROM everything {WINDOW} GROUP BY k")
    online = [(second, second % 4, second % 10, second % 3, [second % 3, second % 5]) for second in range(30)]
    offline = [(second, second % 3, second % 8 + 0.5) for second in range(30)]
    web.push([(at(second), k, v, {"x": x}, tags) for second, k, v, x, tags in online])
    shop.push([(at(second), k, v) for second, k, v in offline])
    engine.drain()
    sales = [(t, k, v * 2.0, x) for t, k, v, x, _ in online if v > 3] + [(t, k, v, 0) for t, k, v in offline]
    rows: list[tuple[int, int, float | None]] = [(t, k + 1, v + x) for t, k, v, x in sales if v < 15]
    rows += [(t, tag, v) for t, _, v, _, tags in online for tag in tags if tag > 1]
    rows += [(t, k, None) for t, k, _, _ in sales]
    expected = []
    for window in range(3):
        for key in sorted({k for t, k, _ in rows if t // 10 == window}):
            values = [h for t, k, h in rows if (t // 10, k) == (window, key)]
            known = [h for h in values if h is not None]
            expected.append((at(window * 10), key, len(values), sum(known) if known else None))
    found = [
        (f"{row['window_start']:%Y-%m-%d %H:%M:%S}", row["k"], row["n"], row["s"])
        for row in query.results().to_pylist()
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
