"""Queries that read the results of queries WITH PREFERENCE."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.preference_helpers import NOON, SALES, SUMMARY, Sale, joined, sale, sales

PAIRS = (
    "SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item WITH PREFERENCE"
    " {} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item) WINDOW '20 seconds' {}"
)
PER_ITEM = (
    "SELECT item, count(*) AS n, max(here) AS newest FROM pairs [RANGE '20 s' SLIDE '10 s'] GROUP BY item"
)
RARE = "SELECT item, here, there FROM pairs WHERE item > 3"
SLACK = 15


def two_stores(
    make_engine: EngineFactory, place: Path, **settings: Any
) -> tuple[transom.Engine, dict[int, Any]]:
    """An engine with two stores whose sales may come a quarter of a minute late."""
    engine = make_engine(place / "checkpoint", **settings)
    feeds = {n: engine.feed(f"store{n}", SALES, time="ts", slack=f"{SLACK} s") for n in (1, 2)}
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SUMMARY}")
    return engine, feeds


def windows_of(pairs: Counter[Any], range_s: int = 20, slide: int = 10) -> Counter[tuple[int, int]]:
    """How many pairs are in each window, by the window's end in seconds and the item."""
    counts: Counter[tuple[int, int]] = Counter()
    for (item, here, there), count in pairs.items():
        seconds = (max(here, there) - NOON).total_seconds()
        first = int(seconds // slide + 1) * slide
        for end in range(first, first + range_s, slide):
            counts[end, item] += count
    return counts


def reported(query: Any) -> Counter[tuple[int, int]]:
    """The windows that a query has reported."""
    return Counter(
        {
            (int((row["window_end"] - NOON).total_seconds()), row["item"]): row["n"]
            for row in query.results().to_pylist()
        }
    )


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_without_a_budget_every_pair_of_rows_in_time_is_in_time(
    state: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    rng, sold = np.random.default_rng(seed), {1: list[Sale](), 2: list[Sale]()}
    engine, feeds = two_stores(make_engine, tmp_path, state=state)
    texts = {"pairs": PAIRS.format("desc", ""), "per_item": PER_ITEM, "rare": RARE}
    queries = engine.register_all(texts)
    for batch in range(14):
        # Windows close when both stores have moved on, so the last two batches are one of each.
        number = int(rng.integers(1, 3)) if batch < 12 else batch - 11
        rows = sales(rng, 6.0 * batch, rows=25, seconds=float(SLACK))
        sold[number] += rows
        feeds[number].push(rows)
        engine.step()
        if batch == 7:
            engine.stop()
            engine, feeds = two_stores(make_engine, tmp_path, state=state)
            queries = {name: engine.query(name) for name in texts}
    truth = joined(sold[1], sold[2], 20)
    expected = windows_of(truth)
    closed = max((end for end, _ in reported(queries["per_item"])), default=0)
    assert closed > 40, seed
    assert reported(queries["per_item"]) == Counter({k: n for k, n in expected.items() if k[0] <= closed}), (
        seed
    )
    assert queries["per_item"].late().num_rows == 0
    assert all(queries["per_item"].results()["complete"].to_pylist())
    found = Counter((row["item"], row["here"], row["there"]) for row in queries["rare"].results().to_pylist())
    assert found == Counter({pair: n for pair, n in truth.items() if pair[0] > 3}), seed
    for name in ("store1", "store2"):  # the results end with the stream that ends last
        engine.flush(name)
        engine.step()
    assert reported(queries["per_item"]) == expected, seed
    engine.stop()


def only_store(make_engine: EngineFactory, place: Path, query: str, reader: str) -> tuple[Any, Any, Any, Any]:
    """An engine with one store, a query WITH PREFERENCE over it, and a query that reads its results."""
    engine, feeds = two_stores(make_engine, place)
    bound = engine.register_all({"chosen": query, "reader": reader})
    return engine, feeds[1], bound["chosen"], bound["reader"]


COUNTS = "SELECT count(*) AS n FROM chosen [RANGE '10 s' SLIDE '10 s']"


def test_expired_tuples_are_not_read_again(make_engine: EngineFactory, tmp_path: Path) -> None:
    query = "SELECT item FROM store1 WHERE item < 4 WITH PREFERENCE desc SUMMARY.Estimate.Count(item) WINDOW '5 s'"
    engine, feed, chosen, reader = only_store(make_engine, tmp_path, query, COUNTS)
    rows = engine.register("SELECT item FROM chosen", "rows")
    for second in range(0, 60, 2):
        feed.push([sale(second % 6, second)])
        engine.step()
    assert sum(chosen.results()["expired"].to_pylist()) > 10
    assert [row["n"] for row in reader.results().to_pylist()] == [4, 3, 3, 4]
    assert rows.results().num_rows == 20


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_deferred_results_that_are_late_are_counted_and_listed(
    order: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    engine, feeds = two_stores(make_engine, tmp_path)
    text = PAIRS.format(order, "BUDGET 60 PROBES")
    pairs, reader = engine.register_all(
        {"pairs": text, "reader": "SELECT count(*) AS n FROM pairs [RANGE '10 s' SLIDE '10 s']"}
    ).values()
    for batch in range(8):
        for number in feeds:
            feeds[number].push(sales(rng, 10.0 * batch, rows=30))
            engine.step()
    for name in ("store1", "store2"):
        engine.flush(name)
    while engine.step():  # deferred probes resume when all windows are closed
        pass
    produced, account = pairs.coverage().produced, reader.account
    reported, late = reader.results(), reader.late(rows=True)
    assert account.counted + account.late == produced == pairs.results().num_rows, seed
    assert sum(reported["n"].to_pylist()) == account.counted, seed
    assert 0 < account.late == late.num_rows and set(late.column_names) >= {
        "item",
        "result_time",
        "reason",
    }, seed
    assert not any(reported["complete"].to_pylist()[:3]), "something was deferred"
    places = engine._loop.outputs.rows.committed
    assert [name for name in places if "@" in name] == [
        f"late/{engine._loop.directory.registry['pairs'].identity}"
    ]
    for name in ("reader", "pairs"):
        engine.query(name).drop()
    engine.step()
    engine.step(1, empty=True)
    left = [name for name in (tmp_path / "checkpoint/late").iterdir() if any(name.iterdir())]
    assert not any("@" in name for name in engine._loop.outputs.rows.committed)
    assert not any("@" in place.name for place in left), seed


GROUPS = (
    "SELECT item, count(*) AS n, sum(price) AS sales FROM store1 GROUP BY item "
    "WITH PREFERENCE desc SUMMARY.Estimate.Count(item) WINDOW '10 seconds'"
)


@ON_BOTH
def test_aggregates_are_read_as_of_their_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    """Each batch has a row for each group; none is late, although a punctuation has closed the time of its tuples."""
    peaks = "SELECT item, max(n) AS peak, count(*) AS batches FROM chosen [RANGE '10 s' SLIDE '10 s'] GROUP BY item"
    engine, feed, _, reader = only_store(make_engine, tmp_path, GROUPS, f"{peaks} HAVING peak > 1")
    for second in (1, 2, 4, 8):
        feed.push([sale(1, second), sale(second, second)])
        engine.step()
    feed.punctuate(until=NOON.replace(second=12))
    feed.push([sale(1, 9)])
    engine.step()
    engine.flush("store1")
    engine.step()
    found = [
        (row["window_end"].second, row["item"], row["peak"], row["batches"])
        for row in reader.results().to_pylist()
    ]
    assert found == [(10, 1, 5, 4), (20, 1, 6, 1)]
    assert reader.late().num_rows == 0


def test_a_query_that_joins_later_reports_windows_of_which_it_reads_all(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    engine.register(PAIRS.format("desc", ""), "pairs")
    text = "SELECT count(*) AS n FROM pairs [RANGE '10 s' SLIDE '10 s']"
    queries = {"first": engine.register(text, "first")}
    for second in range(0, 140, 4):
        if second == 40:
            queries["second"] = engine.register(text, "second")
        if second == 80:
            engine.query("pairs").pause()
        if second == 92:
            engine.query("pairs").resume()
        for number in feeds:
            feeds[number].push([sale(1, second)])
            engine.step()
    ends = {
        name: {
            (row["window_end"] - NOON).total_seconds(): row["complete"] for row in query.results().to_pylist()
        }
        for name, query in queries.items()
    }
    assert min(ends["first"]) == 10 and min(ends["second"]) == 70, (
        "pairs with an earlier tuple come up to 20 s later"
    )
    # While the other query was paused, tuples from 61 s on could arrive; resumed, it may lack pairs with these.
    assert [end for end, complete in ends["first"].items() if not complete] == [70, 80, 100, 110]
    assert ends["first"][60] and ends["first"][120] and 90 not in ends["first"]


def test_readers_of_readers_prods_lookups_alerts_and_tables(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    engine.table("goods", [{"good": 1, "kind": "toy"}, {"good": 2, "kind": "book"}])
    window, groups = "[RANGE '10 s' SLIDE '10 s']", "GROUP BY kind HAVING n > 1 ALERT"
    queries = engine.register_all(
        {
            "pairs": PAIRS.format("desc", ""),
            "kinds": f"SELECT kind, count(*) AS n FROM pairs {window} JOIN goods ON item = good {groups}",
            "busiest": "SELECT max(n) AS n FROM kinds [RANGE '20 s' SLIDE '20 s']",
            "recent": "SELECT count(*) AS n FROM pairs [RANGE '10 s']",
            "early": f"SELECT count(*) AS n FROM pairs {window} EMIT EARLY AT 50% OF SLIDE",
        }
    )
    for second in range(0, 48, 4):
        for number in feeds:
            feeds[number].push([sale(1, second), sale(2, second)])
        engine.step()
    kinds = [(r["window_end"].second, r["kind"], r["n"]) for r in queries["kinds"].results().to_pylist()]
    assert kinds == [(10, "book", 9), (10, "toy", 9), (20, "book", 16), (20, "toy", 16)]
    assert [row["n"] for row in queries["busiest"].results().to_pylist()] == [16]
    assert queries["recent"].lookup()["n"].to_pylist() == [2 * 33]
    for early in (
        engine.prod("store1", queries=["kinds"])["kinds"],
        engine.prod()["kinds"],
        queries["kinds"].prod(),
    ):
        assert early["n"].to_pylist() == [33, 22, 22] * 2
    assert "early" in queries["early"].results()["kind"].to_pylist()
    assert {alert.query for alert in engine.alerts()} == {"kinds"}
    assert "its results are read by kinds, recent, early" in queries["pairs"].explain()
    with pytest.raises(transom.errors.StateError, match="pairs is read by kinds"):
        queries["pairs"].drop()


def test_another_query_of_the_name_begins_anew(make_engine: EngineFactory, tmp_path: Path) -> None:
    """The clock of the results of a query is forgotten with the last query that reads them."""
    engine, feeds = two_stores(make_engine, tmp_path)
    for number, start, columns in ((1, 100, "item"), (2, 0, "'x' AS item, price")):
        select = f"SELECT {columns} FROM store{number} WITH PREFERENCE desc SUMMARY.Estimate.Count(item)"
        chosen = engine.register(select, "chosen")
        reader = engine.register(COUNTS, "reader")
        for second in range(start, start + 40, 2):
            feeds[number].push([sale(1, second)])
            engine.step()
        assert [row["n"] for row in reader.results().to_pylist()] == [5, 5] and not reader.late().num_rows
        feeds[number].push([sale(1, start)])  # late for the window, not for the summary
        engine.step()
        assert reader.late(rows=True)["item"].to_pylist() == [1 if number == 1 else "x"]
        reader.drop()
        chosen.drop()
        engine.step(empty=True)
