"""Static tables and HAVING in queries WITH PREFERENCE, compared batch by batch with loops over all tuples."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.preference_helpers import SALES, SUMMARY, Sale, sale
from transom.errors import SettingError, SQLError

GOODS = [{"item": n, "kind": "ab"[n % 2], "weight": n / 2} for n in range(0, 8)] + [
    {"item": None, "kind": "none", "weight": 0.0}
]
KINDS = {row["item"]: row["kind"] for row in GOODS if row["item"] is not None}
BOTH = "SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)"
JOIN = "FROM store1 a JOIN store2 b ON a.item = b.item"
ONE = "WITH PREFERENCE desc SUMMARY.Estimate.Count(s.item)"
BATCHES = 5


def batch(rng: np.random.Generator, number: int, rows: int = 40) -> list[Sale]:
    """Sales of items of which some are not in the table, one in ten without an item."""
    items = [None if rng.random() < 0.1 else int(rng.integers(0, 12)) for _ in range(rows)]
    seconds = rng.uniform(number * 5, number * 5 + 5, rows)
    prices = rng.integers(0, 50, rows).astype(float)
    return [sale(*row) for row in zip(items, seconds.tolist(), prices.tolist(), strict=True)]


def shop(make_engine: EngineFactory, place: Path, state: str) -> tuple[transom.Engine, dict[int, Any]]:
    engine = make_engine(str(place / "checkpoint"), state=state)
    feeds = {number: engine.feed(f"store{number}", SALES, time="ts") for number in (1, 2)}
    engine.table("goods", GOODS)
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SUMMARY} AND BUCKETS 8")
    return engine, feeds


def sell(engine: transom.Engine, feeds: dict[int, Any], seed: int = 5) -> dict[int, list[Sale]]:
    """Some batches of each store; all their sales."""
    rng = np.random.default_rng(seed)
    sold: dict[int, list[Sale]] = {1: [], 2: []}
    for number in range(BATCHES):
        for store, feed in feeds.items():
            rows = batch(rng, number)
            sold[store] += rows
            feed.push(rows)
            engine.step()
    return sold


def rows_of(query: Any, *names: str) -> Counter[Any]:
    return Counter(tuple(row[name] for name in names) for row in query.results().to_pylist())


def last(query: Any, *names: str) -> list[Any]:
    """The results of the last batch."""
    rows = query.results().to_pylist()
    newest = max((row["batch"] for row in rows), default=None)
    return sorted(tuple(row[name] for name in names) for row in rows if row["batch"] == newest)


def pairs(one: Iterable[Sale], other: Sequence[Sale]) -> list[tuple[Sale, Sale]]:
    return [(a, b) for a in one for b in other if a[0] is not None and a[0] == b[0]]


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_static_tables_are_joined_to_the_tuples_of_selections_and_joins(
    state: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = shop(make_engine, tmp_path, state)
    queries = {
        "inner": f"SELECT s.item, kind, price FROM store1 s JOIN goods g ON s.item = g.item WHERE price > 9 {ONE}",
        "comma": f"SELECT s.item, kind FROM store1 s, goods g WHERE s.item = g.item AND kind = 'a' {ONE}",
        "left": f"SELECT s.item, kind FROM store1 s LEFT JOIN goods g ON g.item = s.item {ONE}",
        "semi": f"SELECT item, price FROM store1 s WHERE item IN (SELECT item FROM goods WHERE weight > 1) {ONE}",
        "anti": f"SELECT s.item, price FROM store1 s LEFT ANTI JOIN goods g ON s.item = g.item {ONE}",
        "pairs": f"SELECT a.item, a.price AS x, b.price AS y, g.kind {JOIN} JOIN goods g ON b.item = g.item"
        f" WHERE g.weight > 1 AND a.price < b.price + weight WITH PREFERENCE desc {BOTH}",
        "two tables": f"SELECT a.item, g.kind AS one, h.kind AS two {JOIN} JOIN goods g ON a.item = g.item"
        f" LEFT JOIN goods h ON b.item = h.item AND h.kind = 'b' WITH PREFERENCE desc {BOTH}",
    }
    handles = {name: engine.register(text, name=name) for name, text in queries.items()}
    sold = sell(engine, feeds)
    known = [(item, price) for item, price, _ in sold[1] if item in KINDS]
    assert rows_of(handles["inner"], "item", "kind", "price") == Counter(
        (item, KINDS[item], price) for item, price in known if price > 9
    )
    assert rows_of(handles["comma"], "item", "kind") == Counter(
        (item, "a") for item, _ in known if KINDS[item] == "a"
    )
    assert rows_of(handles["left"], "item", "kind") == Counter(
        (item, KINDS.get(item)) for item, _, _ in sold[1]
    )
    assert rows_of(handles["semi"], "item", "price") == Counter(row for row in known if row[0] > 2)
    assert rows_of(handles["anti"], "item", "price") == Counter(
        (item, price) for item, price, _ in sold[1] if item not in KINDS
    )
    every = pairs(sold[1], sold[2])
    assert rows_of(handles["pairs"], "item", "x", "y", "kind") == Counter(
        (a[0], a[1], b[1], KINDS[a[0]])
        for a, b in every
        if a[0] in KINDS and a[0] > 2 and a[1] < b[1] + a[0] / 2
    )
    assert rows_of(handles["two tables"], "item", "one", "two") == Counter(
        (a[0], KINDS[a[0]], "b" if KINDS[a[0]] == "b" else None) for a, _ in every if a[0] in KINDS
    )
    engine.stop()


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_groups_of_columns_of_tables_with_having(
    state: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = shop(make_engine, tmp_path, state)
    window = "WINDOW '1 minute'"
    queries = {
        "selection": "SELECT g.kind, sum(price) AS total FROM store1 s JOIN goods g ON s.item = g.item GROUP BY g.kind"
        f" HAVING count(*) > 20 AND total > 100 {ONE} {window}",
        "without pairs": f"SELECT g.kind, a.item, count(*) AS n {JOIN} JOIN goods g ON a.item = g.item"
        " GROUP BY g.kind, a.item HAVING n >= 250 OR max(b.price) - min(b.price) > 48 OR a.item + 1 = 3"
        f" WITH PREFERENCE desc {BOTH} {window}",
        "with pairs": f"SELECT a.item % 3 AS third, count(*) AS n {JOIN} WHERE a.price < b.price GROUP BY a.item % 3"
        f" HAVING a.item % 3 <> 1 AND sum(a.price) > 5 WITH PREFERENCE desc {BOTH} {window}",
        "no groups": f"SELECT count(*) AS n FROM store1 s HAVING n > 100 {ONE} {window}",
    }
    handles = {name: engine.register(text, name=name) for name, text in queries.items()}
    sold = sell(engine, feeds)
    kinds: dict[str, list[float]] = defaultdict(list)
    for item, price, _ in sold[1]:
        if item in KINDS:
            kinds[KINDS[item]].append(price)
    assert last(handles["selection"], "kind", "total") == sorted(
        (kind, sum(prices)) for kind, prices in kinds.items() if len(prices) > 20 and sum(prices) > 100
    )
    every = pairs(sold[1], sold[2])
    items: dict[int, list[float]] = defaultdict(list)
    thirds: dict[int, list[float]] = defaultdict(list)
    for a, b in every:
        if a[0] in KINDS:
            items[a[0]].append(b[1])
        if a[1] < b[1]:
            thirds[a[0] % 3].append(a[1])
    expected = sorted(
        (KINDS[item], item, len(prices))
        for item, prices in items.items()
        if len(prices) >= 250 or max(prices) - min(prices) > 48 or item == 2
    )
    assert 0 < len(expected) < len(items), "the condition selects some of the groups"
    assert last(handles["without pairs"], "kind", "item", "n") == expected
    assert last(handles["with pairs"], "third", "n") == sorted(
        (third, len(prices)) for third, prices in thirds.items() if third != 1 and sum(prices) > 5
    )
    shown = handles["without pairs"].explain()
    assert "store1 with the static table goods on " in shown
    assert "  having count(*) >= 250 OR max(price) - min(price) > 48 OR " in shown
    counts = [row["n"] for row in handles["no groups"].results().to_pylist()]
    assert counts == [n for n in range(40, len(sold[1]) + 1, 40) if n > 100], "a batch of store1 has 40 rows"
    engine.stop()


def test_the_estimates_of_a_sample_are_what_having_compares(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = shop(make_engine, tmp_path, "driver")
    text = (
        "SELECT item, avg(price) AS mean FROM store1 GROUP BY item{} WITH PREFERENCE weighted"
        " SUMMARY.Estimate.Count(item) WINDOW '1 minute' BUDGET 20 PROBES"
    )
    every, some = engine.register(text.format("")), engine.register(text.format(" HAVING count(*) > 12"))
    counted = engine.register(text.format("").replace("avg(price) AS mean", "count(*) AS n"))
    sell(engine, feeds)
    names = ("batch", "item", "mean", "mean_low", "mean_high", "rows")
    large = {key for key in rows_of(counted, "batch", "item", "n") if key[2] > 12}
    kept = {key[:2] for key in large}
    assert list(some.results().column_names) == list(every.results().column_names)
    assert rows_of(some, *names) == Counter(
        {row: n for row, n in rows_of(every, *names).items() if row[:2] in kept}
    )
    assert 0 < some.results().num_rows < every.results().num_rows
    engine.stop()


def test_a_table_that_is_read_again_joins_the_tuples_that_arrive_from_then_on(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = shop(make_engine, tmp_path, "driver")
    query = engine.register(f"SELECT s.item, kind FROM store1 s JOIN goods g ON s.item = g.item {ONE}")
    feeds[1].push([sale(1, 0), sale(9, 1)])
    engine.step()
    engine.table(
        "goods", [{"item": 1, "kind": "new", "weight": 1.0}, {"item": 9, "kind": "x", "weight": 1.0}]
    )
    feeds[1].push([sale(1, 2), sale(9, 3)])
    engine.step()
    assert rows_of(query, "item", "kind") == Counter([(1, "b"), (1, "new"), (9, "x")])
    twice = [{"item": 1, "kind": kind, "weight": 1.0} for kind in "ab"]
    with pytest.raises(SettingError, match="need one row of goods for each item, and there are several"):
        engine.table("goods", twice)
    feeds[1].push([sale(1, 4)])
    engine.step()
    assert rows_of(query, "item", "kind")[1, "new"] == 2, "the table stays as it was"
    engine.stop()


def test_a_restart_keeps_the_columns_of_a_table_with_the_tuples(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = shop(make_engine, tmp_path, "driver")
    text = f"SELECT a.item, g.kind {JOIN} JOIN goods g ON b.item = g.item WITH PREFERENCE desc {BOTH}"
    engine.register(text, name="pairs")
    feeds[2].push([sale(1, 0), sale(2, 0)])
    engine.step()
    engine.stop()
    engine = make_engine(str(tmp_path / "checkpoint"), state="driver")
    feeds = {number: engine.feed(f"store{number}", SALES, time="ts") for number in (1, 2)}
    engine.table("goods", [{"item": 1, "kind": "new", "weight": 1.0}])
    feeds[1].push([sale(1, 1), sale(2, 1)])
    engine.step()
    assert rows_of(engine.query("pairs"), "item", "kind") == Counter([(1, "b"), (2, "a")])
    engine.stop()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT s.item FROM store1 s JOIN twins t ON s.item = t.item", "rows of twins have equal item; WITH PREFERENCE, a static table has one row for each key"),
        ("SELECT s.item FROM store1 s JOIN goods g ON s.price BETWEEN g.weight AND g.item", "the condition has no equality; WITH PREFERENCE"),
        ("SELECT s.item FROM store1 s JOIN goods g ON s.price = g.item", "item of g is compared with an expression or another type"),
        ("SELECT s.item FROM store1 s RIGHT JOIN goods g ON s.item = g.item", "RIGHT JOIN of a static table is not supported"),
        ("SELECT kind FROM store1 s WHERE item IN (SELECT item FROM goods)", "unknown column kind"),
    ],
)  # fmt: skip
def test_tables_that_can_not_be_joined_are_errors(
    text: str, message: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, _ = shop(make_engine, tmp_path, "driver")
    engine.table("twins", [{"item": 1, "kind": "a"}, {"item": 1, "kind": "b"}])
    with pytest.raises(SQLError, match=message):
        engine.register(f"{text} {ONE}")
    with pytest.raises(SQLError, match="a promise can use only columns of a stream, and weight is a table's"):
        engine.register(
            "SELECT s.item FROM store1 s JOIN goods g ON s.item = g.item WITH PREFERENCE desc weight"
        )
    with pytest.raises(SQLError, match="the condition of g reads both streams"):
        engine.register(
            f"SELECT a.item {JOIN} JOIN goods g ON g.item = a.item AND g.weight = b.price WITH PREFERENCE desc {BOTH}"
        )
    engine.stop()
