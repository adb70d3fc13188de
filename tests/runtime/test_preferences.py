"""Queries WITH PREFERENCE: right with enough budget, a part of that with less, nothing twice."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from tests.runtime.engine_helpers import written
from tests.runtime.preference_helpers import BATCHES, JOIN, SUMMARY, joined, pairs, sale, sell, stores
from transom.errors import SettingError


@pytest.mark.parametrize("structure", ["T1", "T2", "T3", "T4", "auto"])
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_without_a_budget_a_join_is_exact(
    structure: str, state: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path, f"AND STRUCTURE {structure} AND BUCKETS 8", state=state)
    query = engine.register(JOIN.format("desc"), "all")
    sold = sell(engine, feeds, seed, BATCHES if state == "driver" else 3)
    assert pairs(query) == joined(sold[1], sold[2])
    assert set(query.results()["share"].to_pylist()) == {1.0}
    assert query.coverage().share == 1.0
    engine.stop()


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_a_budget_finds_a_part_and_idle_steps_find_the_rest(
    order: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    cut = engine.register(f"{JOIN.format(order)} BUDGET 150 PROBES", "cut")
    sold = sell(engine, feeds, seed, 4)
    exact, found = joined(sold[1], sold[2]), pairs(cut)
    assert not found - exact and 0 < found.total() < exact.total()
    assert cut.coverage().probes <= 8 * 150
    last = cut.results().to_pylist()[-1]
    assert last["share"] < 1 and last["skipped"] > 0
    while engine.step():
        pass
    assert pairs(cut) == exact, "nothing has left the window, so all of it is found in the end"
    assert cut.coverage().share == 1.0
    engine.stop()


def test_desc_prefers_what_sells_best_and_asc_what_sells_least(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    most, least = (
        engine.register(f"{JOIN.format(order)} BUDGET {probes} PROBES", order)
        for order, probes in (("desc", 64), ("asc", 2))
    )
    for number, feed in feeds.items():
        frequent = [sale(1, number + i) for i in range(8)]
        feed.push([*frequent, sale(2, number), sale(3, number)])
        engine.step()
    assert Counter(most.results()["item"].to_pylist()) == {1: 64}
    assert Counter(least.results()["item"].to_pylist()) == {2: 1, 3: 1}
    engine.stop()


def test_rows_out_of_order_and_values_without_an_equal(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(JOIN.format("desc"), "all")
    first = [sale(1, 30), sale(None, 31), sale(2, 5)]
    feeds[1].push(first)
    engine.step()
    second = [sale(1, 90), sale(1, 91), sale(None, 31), sale(2, 7), sale(2, 66)]
    feeds[2].push(second)
    engine.step()
    late = [sale(1, 32), sale(2, 6)]
    feeds[1].push(late)
    engine.step()
    assert pairs(query) == joined([*first, *late], second)
    engine.stop()


def test_floats_join_by_value(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path / "checkpoint"))
    feeds = [engine.feed(name, "x double, ts timestamp", time="ts") for name in ("a", "b")]
    for name in ("a", "b"):
        engine.execute(f"CREATE SUMMARY {name}s ON {name}(x) WITH GRANULARITY '1 minute' AND COLLAPSE(2, 2)")
    query = engine.register(
        "SELECT a.x, b.x AS y FROM a JOIN b ON a.x = b.x WITH PREFERENCE desc SUMMARY.Estimate.Count(a.x)"
    )
    when = sale(0, 0)[2]
    for feed, values in zip(feeds, ([0.0, 1.5, float("nan")], [-0.0, 1.5, 2.5, float("nan")]), strict=True):
        feed.push([(value, when) for value in values])
        engine.step()
    found = sorted(str(abs(row["x"])) for row in query.results().to_pylist())
    assert found == ["0.0", "1.5", "nan"], "NaN is equal to itself, as everywhere in Spark"
    engine.stop()


def test_conditions_and_expressions_of_a_join(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT a.item * 10 AS tenfold, a.price + b.price AS both FROM store1 a JOIN store2 b "
        "ON a.item = b.item WHERE a.price > 20 AND upper(concat('x', b.item)) <> 'X3' AND a.price < b.price "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item) WINDOW '1 minute'"
    )
    sold = sell(engine, feeds, seed, 2)
    expected = sorted(
        (item * 10, one + other)
        for item, one, here in sold[1]
        for same, other, there in sold[2]
        if item == same and one > 20 and item != 3 and one < other
    )
    assert sorted((row["tenfold"], row["both"]) for row in query.results().to_pylist()) == expected
    engine.stop()


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_selections_by_the_hundred_remember_where_they_stopped(
    state: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path, state=state)
    texts = {
        f"q{i}": "SELECT item, price, ts FROM store1 "
        f"WHERE item BETWEEN {i % 7} AND {i % 7 + 3} AND price > {i} "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(item) BUDGET 15 PROBES"
        for i in range(100 if state == "driver" else 5)
    }
    queries = engine.register_all(texts)
    sold = sell(engine, {1: feeds[1]}, seed, 3)[1]
    exact = {
        f"q{i}": Counter((s[0], s[1], s[2]) for s in sold if i % 7 <= s[0] <= i % 7 + 3 and s[1] > i)
        for i in range(len(texts))
    }
    first = {name: Counter(rows_of(query)) for name, query in queries.items()}
    assert all(not first[name] - exact[name] for name in texts)
    assert sum(found.total() for found in first.values()) > sum(own.total() for own in exact.values()) * 0.4
    while engine.step():
        pass
    assert {name: Counter(rows_of(query)) for name, query in queries.items()} == exact
    engine.stop()


def rows_of(query: Any) -> list[Any]:
    return [(row["item"], row["price"], row["ts"]) for row in query.results().to_pylist()]


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_weighted_sample_does_not_depend_on_time(
    make_engine: EngineFactory, tmp_path: Path, state: str
) -> None:
    """Prices rise from 0 to 10 within each batch; the oldest tenth of each item would have a mean of about 0.5."""
    engine, feeds = stores(make_engine, tmp_path, state=state)
    query = engine.register(
        "SELECT avg(price) AS a, median(price) AS m FROM store1 "
        "WITH PREFERENCE weighted SUMMARY.Estimate.Count(item) BUDGET 200 PROBES"
    )
    for batch in range(5):
        times = np.linspace(0, 10, 2000)
        feeds[1].push([sale(i % 4, 10 * batch + t, float(t)) for i, t in enumerate(times)])
        engine.step()
    last = query.results().to_pylist()[-1]
    assert last["rows"] == 1000  # the standard error of a mean is 0.09, that of a median 0.16
    assert abs(last["a"] - 5) < 0.4 and abs(last["m"] - 5) < 0.7
    engine.stop()


@ON_BOTH
def test_aggregates_over_a_selection(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT count(*) AS n, sum(price) AS s, avg(price) AS a, min(item) AS low, max(price * 2) AS top, "
        "median(price) AS m FROM store1 WHERE item < 10 "
        "WITH PREFERENCE weighted SUMMARY.Estimate.Count(item) WINDOW '1 minute'"
    )
    feeds[1].push([sale(1, 0, 3.0), sale(2, 10, 5.0), sale(50, 11, 99.0), sale(3, 20, 10.0)])
    engine.step()
    feeds[1].push([sale(4, 65, 7.0)])
    engine.step()
    shown = [
        tuple(row[name] for name in ("n", "s", "a", "low", "top", "m", "rows", "share"))
        for row in query.results().to_pylist()
    ]
    assert shown == [
        (3, 18.0, 6.0, 1, 20.0, 5.0, 3, 1.0),
        (3, 22.0, 22.0 / 3, 2, 20.0, 7.0, 3, 1.0),
    ], "the first sale has left the window"
    engine.stop()


@ON_BOTH
def test_results_reach_subscribers_and_sinks(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(JOIN.format("desc"), "all")
    told: list[Any] = []
    query.subscribe(lambda table: told.extend(table["item"].to_pylist()))
    query.sink("parquet", str(tmp_path / "own"))
    engine.sink("json", str(tmp_path / "every"))
    feeds[1].push([sale(7, 0)])
    feeds[2].push([sale(7, 1)])
    engine.step()
    assert told == [7]
    assert [row["item"] for row in written(tmp_path / "own")] == [7]
    [row] = written(tmp_path / "every", "json")
    assert (row["query"], row["complete"]) == ("all", True) and row["values"]["item"] == 7
    engine.stop()


def test_a_function_that_keeps_failing_suspends_its_query_only(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path, max_failures=2)
    engine.udf("picky", lambda price: 1 / 0, "double")
    bad = engine.register(
        "SELECT picky(price) AS p FROM store1 WITH PREFERENCE desc SUMMARY.Estimate.Count(item)", "bad"
    )
    good = engine.register(
        "SELECT price FROM store1 WITH PREFERENCE desc SUMMARY.Estimate.Count(item)", "good"
    )
    for batch_id in range(3):
        feeds[1].push([sale(1, batch_id)])
        engine.step()
    assert bad.suspended is not None and good.suspended is None
    assert good.results().num_rows == 3
    engine.stop()


def test_an_aggregate_is_emitted_again_only_when_it_has_changed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT count(*) AS n FROM store1 WHERE price > 5 "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(item) WINDOW '1 minute' BUDGET 2 PROBES"
    )
    feeds[1].push([sale(1, second, price=10.0 if second < 3 else 1.0) for second in range(9)])
    engine.step()
    while engine.step():
        pass
    assert query.results()["n"].to_pylist() == [2, 3]
    with pytest.raises(SettingError, match="partial is for windows"):
        engine.register(JOIN.format("desc"), partial=True)
    engine.stop()


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_budget_that_suffices_is_enough_for_batches_much_longer_than_the_window(
    state: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path, state=state)
    text = JOIN.format("desc").replace("1 minute", "1 second")
    exact, cut = (engine.register(f"{text} {budget}") for budget in ("", "BUDGET 3000 PROBES"))
    for feed in feeds.values():
        feed.push([sale(1, second / 2) for second in range(600)])
        engine.step()
    needed = exact.coverage().probes
    assert needed < 3000 and pairs(exact).total() == needed
    if state == "executors":  # rounds are jobs there, and few: what is left comes when there is time
        while engine.step():
            pass
    assert pairs(cut) == pairs(exact)
    assert cut.coverage().probes == needed
    engine.stop()


def test_decimals_and_nan_are_aggregated_as_by_window_queries(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path / "checkpoint"))
    feed = engine.feed(
        "s", "item int, d decimal(8, 2), big decimal(38, 2), x double, ts timestamp", time="ts"
    )
    engine.execute(f"CREATE SUMMARY items ON s(item) {SUMMARY}")
    query = engine.register(
        "SELECT avg(d) AS a, sum(d) AS s, sum(big) AS o, max(x) AS m, min(x) AS l, median(x) AS mid "
        "FROM s WITH PREFERENCE weighted SUMMARY.Estimate.Count(item)"
    )
    when, huge, nan = sale(0, 0)[2], Decimal(9).scaleb(35), float("nan")
    rows = [(1, "1.00", huge, 1.0), (1, "1.01", huge, nan), (2, "2.00", huge, 3.0)]
    feed.push([(item, Decimal(d), big, x, when) for item, d, big, x in rows])
    engine.step()
    [row] = query.results().to_pylist()
    assert (row["a"], row["s"]) == (Decimal("1.336667"), Decimal("4.01"))
    assert row["o"] is None, "too many digits, as in Spark"
    assert np.isnan(row["m"]) and (row["l"], row["mid"]) == (1.0, 3.0)
    engine.stop()


@on_spark("a function that is registered with Spark itself")
def test_a_function_in_a_condition_that_fails_suspends_its_query_only(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)

    def bad(item: int) -> int:
        raise ValueError("no")

    make_engine.session.udf.register("bad_condition", bad, "int")
    wrong = engine.register(
        "SELECT item FROM store1 WHERE bad_condition(item) > 0 "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(item)"
    )
    right = engine.register("SELECT item FROM store1 WITH PREFERENCE desc SUMMARY.Estimate.Count(item)")
    feeds[1].push([sale(1, 0)])
    engine.step()
    assert right.results().num_rows == 1
    assert wrong.suspended is not None
    engine.stop()


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_aggregates_of_a_weighted_sample_are_for_all_tuples_and_have_bounds(
    state: str, make_engine: EngineFactory, tmp_path: Path
) -> None:
    """Prices depend on the item and rise with time; a tenth of the tuples is sampled."""
    engine = make_engine(str(tmp_path / "checkpoint"), state=state)
    feed = engine.feed("s", "item int, price double, ts timestamp", time="ts")
    engine.execute(f"CREATE SUMMARY items ON s(item) {SUMMARY} AND BUCKETS 8")
    sample = engine.register(
        "SELECT count(*) AS n, count(price) AS priced, sum(price) AS total, avg(price) AS mean, "
        "median(price) AS middle, max(price) AS most FROM s WHERE item < 40 "
        "WITH PREFERENCE weighted SUMMARY.Estimate.Count(item) WINDOW '1 minute' BUDGET 100 PROBES"
    )
    prices: list[float] = []
    rng = np.random.default_rng(3)
    for number in range(3):
        items = rng.integers(0, 50, 1_000).tolist()
        rows = [sale(item, number * 10 + i / 100, item / 10 + i / 100) for i, item in enumerate(items)]
        feed.push(rows)
        engine.step()
        prices += [price for item, price, _ in rows if item < 40]
        row = sample.results().to_pylist()[-1]
        exact = {
            "n": len(prices),
            "priced": len(prices),
            "total": sum(prices),
            "mean": float(np.mean(prices)),
            "middle": float(np.median(prices)),
        }
        for name, value in exact.items():
            assert row[f"{name}_low"] <= row[f"{name}_high"], (name, row)
            # 95 % bounds, widened to five standard errors: this must not fail by chance
            spread = max((row[f"{name}_high"] - row[f"{name}_low"]) * 1.25, 1e-9 * value)
            assert abs(row[name] - value) <= spread, (name, row, exact)
        assert row["most_low"] is row["most_high"] is None
        assert row["rows"] <= 100 * (number + 1) < row["n"]
    if state == "driver":
        assert row["n"] == row["n_low"] == row["n_high"] == len(prices), "selected tuples are counted"
    while engine.step():
        pass
    row = sample.results().to_pylist()[-1]
    assert row["rows"] == row["n"] == len(prices)
    assert (
        row["total"] == pytest.approx(sum(prices)) and row["total_low"] == row["total"] == row["total_high"]
    )
    engine.stop()


def test_only_an_even_sample_has_bounds(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path / "checkpoint"))
    feed = engine.feed("s", "item int, price double, ts timestamp", time="ts")
    engine.execute(f"CREATE SUMMARY items ON s(item) {SUMMARY}")
    tilted = engine.register(
        "SELECT sum(price) AS total FROM s "
        "WITH PREFERENCE weighted SUMMARY.Estimate.Count(item) * price BUDGET 3 PROBES"
    )
    first = engine.register(
        "SELECT sum(price) AS total FROM s WITH PREFERENCE desc SUMMARY.Estimate.Count(item) BUDGET 3 PROBES"
    )
    feed.push([sale(number % 3, number, 2.0) for number in range(9)])
    engine.step()
    for query in (tilted, first):
        (row,) = query.results().to_pylist()
        assert row["total"] == 6.0 and "total_low" not in row
    engine.stop()


def test_auto_produces_as_much_as_the_best_structure_on_executors(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    """Judged by the pairs that the running engine produces with the same budget."""
    produced = {}
    for structure in ("none", "cells", "auto"):
        engine, feeds = stores(
            make_engine, tmp_path / structure, f"AND STRUCTURE {structure}", state="executors"
        )
        query = engine.register(f"{JOIN.format('desc')} BUDGET 200 PROBES", "cut")
        sell(engine, feeds, seed, 4)
        produced[structure] = query.coverage().produced
        engine.stop()
    assert produced["auto"] >= 0.8 * max(produced.values()) > produced["none"]
