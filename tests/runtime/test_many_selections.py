"""Many selections WITH PREFERENCE over one stream: answered together, and the same as if each were alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.preference_helpers import Sale, sales, stores
from transom.plan.limits import Limits

ORDERS = ("desc", "asc", "weighted")


CONDITIONS: dict[str, tuple[str, Callable[[Any, float], bool]]] = {
    "all": ("", lambda item, price: True),
    "range": ("WHERE item BETWEEN 2 AND 4", lambda item, price: 2 <= item <= 4),
    "both": ("WHERE item < 6 AND price >= 30", lambda item, price: item < 6 and price >= 30),
    "either": ("WHERE item = 1 OR price > 90", lambda item, price: item == 1 or price > 90),
    "sum": ("WHERE item + price > 60", lambda item, price: item + price > 60),
    "none": ("WHERE item < 0", lambda item, price: False),
}


def texts_of(budget: str) -> dict[str, str]:
    """Selections with all orders, and different conditions and SELECT lists."""
    return {
        f"{order} {name}": f"SELECT item, price, ts{', price * 2 AS twice' if number % 2 else ''} FROM store1 {where} "
        f"WITH PREFERENCE {order} SUMMARY.Estimate.Count(item) {budget}"
        for order in ORDERS
        for number, (name, (where, _)) in enumerate(CONDITIONS.items())
    }


def selected(name: str, rows: list[Sale]) -> Counter[Any]:
    """The rows that a selection selects, one by one."""
    _, holds = CONDITIONS[name.split()[1]]
    return Counter(row for row in rows if holds(row[0], row[1]))


def found(query: Any) -> Counter[Any]:
    rows = query.results().to_pylist()
    assert all(row.get("twice", 2 * row["price"]) == 2 * row["price"] for row in rows)
    return Counter((row["item"], row["price"], row["ts"]) for row in rows)


def push(engine: transom.Engine, feed: Any, rng: np.random.Generator, batch: int) -> list[Sale]:
    rows = sales(rng, 10.0 * batch, rows=60)
    feed.push(rows)
    engine.step()
    return rows


@ON_BOTH
@pytest.mark.parametrize("budget", ["", "BUDGET 1000 PROBES"])
def test_with_a_sufficient_budget_every_selection_is_exact(
    budget: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    queries = engine.register_all(texts_of(budget))
    rng = np.random.default_rng(seed)
    rows = [row for batch in range(3) for row in push(engine, feeds[1], rng, batch)]
    for name, query in queries.items():
        assert found(query) == selected(name, rows), name
        assert query.coverage().complete and query.coverage().produced == selected(name, rows).total()
        assert all(row["complete"] and row["share"] == 1 for row in query.results().to_pylist())
    engine.stop()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_budget_takes_what_is_preferred_and_the_rest_when_there_is_time(
    is_restarted: bool, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    engine.register_all(texts_of("BUDGET 7 PROBES"))
    rng, rows = np.random.default_rng(seed), list[Sale]()
    for batch in range(4):
        rows += push(engine, feeds[1], rng, batch)
        if is_restarted:
            engine.stop()
            engine, feeds = stores(make_engine, tmp_path)
    for name in texts_of(""):
        query, exact = engine.query(name), selected(name, rows)
        assert not found(query) - exact, name
        assert query.coverage().produced <= 7 * 4
        left = exact.total() - found(query).total()
        assert query.coverage().skipped == left and query.coverage().left == left, name
    best = [row["item"] for row in engine.query("desc all").results().to_pylist()]
    assert best.count(1) == len(best), "item 1 sells best, and a budget of 7 does not suffice for it"
    while engine.step():
        if is_restarted:
            engine.stop()
            engine, feeds = stores(make_engine, tmp_path)
    for name in texts_of(""):
        assert found(engine.query(name)) == selected(name, rows), name
        assert engine.query(name).coverage().complete
    engine.stop()


def test_results_do_not_depend_on_other_selections(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    """A selection finds the same tuples alone as among others, whether or not they are planned together."""
    results = {}
    for kind, names in (("alone", ["desc either"]), ("together", list(texts_of("")))):
        engine, feeds = stores(make_engine, tmp_path / kind)
        engine.register_all({name: texts_of("BUDGET 9 PROBES")[name] for name in names})
        rng = np.random.default_rng(seed)
        for batch in range(3):
            push(engine, feeds[1], rng, batch)
        query = engine.query("desc either")
        results[kind] = found(query), query.coverage()
        engine.stop()
    assert results["alone"] == results["together"]


def test_deferred_tuples_are_found_after_they_moved_to_the_executors(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    limits = Limits(tuple_files=2, driver_tuples=150)
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 8", state="auto", limits=limits)
    names = ["desc all", "desc both", "desc either", "asc range"]
    queries = engine.register_all({name: texts_of("BUDGET 7 PROBES")[name] for name in names})
    rng = np.random.default_rng(seed)
    rows = [row for batch in range(4) for row in push(engine, feeds[1], rng, batch)]
    assert any("more than 150" in record.reason for record in queries["desc all"].decisions())
    while engine.step():
        pass
    for name, query in queries.items():
        assert found(query) == selected(name, rows), name
    engine.stop()


def test_a_sample_that_moved_to_the_executors_counts_what_it_lost(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    limits = Limits(tuple_files=2, driver_tuples=150)
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 8", state="auto", limits=limits)
    query = engine.register(texts_of("BUDGET 7 PROBES")["weighted all"])
    rng = np.random.default_rng(seed)
    rows = [row for batch in range(3) for row in push(engine, feeds[1], rng, batch)]
    while engine.step():
        pass
    assert not found(query) - selected("weighted all", rows)
    coverage = query.coverage()
    assert coverage.produced + coverage.skipped == pytest.approx(len(rows)) and not coverage.complete
    engine.stop()
