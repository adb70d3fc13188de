"""Selections with asc that are planned together take the same tuples as if each were planned alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.preference_helpers import sales, stores
from transom.promising import shared_selections

PREFERENCES = (
    "asc SUMMARY.Estimate.Count(item)",
    "asc SUMMARY.Estimate.Count(item) WINDOW '30 seconds'",
    "asc SUMMARY.Estimate.Count(item) * price",
    "desc SUMMARY.Estimate.Count(item)",
)
CONDITIONS = (
    "item BETWEEN {0} AND {1}",
    "item > {0} AND price > {1}",
    "price < 1{0} OR item = {1}",
    "item % 2 = {2}",
)


def texts(count: int, budget: int = 6) -> dict[str, str]:
    """Selections with different conditions, preferences and budgets."""
    made = {}
    for number in range(count):
        where = CONDITIONS[number % 4].format(number % 5, number % 5 + 9, number % 2)
        preference = PREFERENCES[number // 4 % 4]
        columns = ("item, price, ts", "price * 2 AS twice, ts")[number % 2]
        made[f"q{number}"] = (
            f"SELECT {columns} FROM store1 WHERE {where} WITH PREFERENCE {preference} "
            f"BUDGET {budget + number % 3 * 4} PROBES"
        )
    return made


def batches(query: Any) -> dict[int, Counter[Any]]:
    """The results of a query by batch, without the time at which they were made."""
    found: dict[int, Counter[Any]] = {}
    for row in query.results().to_pylist():
        shown = tuple(value for name, value in row.items() if name != "made")
        found.setdefault(row["batch"], Counter())[shown] += 1
    return found


def run(make_engine: EngineFactory, place: Path, seed: int, restarts: bool = False) -> dict[str, Any]:
    """The results and the coverage of all queries after batches out of order and idle steps."""
    engine, feeds = stores(make_engine, place)
    queries = texts(32)
    engine.register_all({name: queries[name] for name in list(queries)[:24]})
    rng = np.random.default_rng(seed)
    for batch in range(9):
        if restarts and batch in (3, 6):
            engine.stop()
            engine, feeds = stores(make_engine, place)
        if batch == 4:
            engine.register_all({name: queries[name] for name in list(queries)[24:]})
        rows = sales(rng, 8.0 * batch, int(rng.integers(5, 120)), 16.0)
        feeds[1].push(
            [(None if i % 17 == 0 else item, price, ts) for i, (item, price, ts) in enumerate(rows)]
        )
        engine.step()
        if batch == 5:
            engine.step()
    for _ in range(3):
        engine.step()
    found = {name: (batches(engine.query(name)), engine.query(name).coverage()) for name in queries}
    engine.stop()
    return found


def test_selections_with_asc_take_the_same_tuples_together_as_alone(
    make_engine: EngineFactory, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = run(make_engine, tmp_path / "together", seed)
    restarted = run(make_engine, tmp_path / "restarted", seed, restarts=True)
    monkeypatch.setattr(shared_selections, "_rarest_members", lambda *_: np.zeros(0, np.int64))
    alone = run(make_engine, tmp_path / "alone", seed)
    for name, (found, coverage) in alone.items():
        for others in (together, restarted):
            assert others[name][0] == found, name
            mine = others[name][1]
            assert (mine.probes, mine.produced, mine.left) == (
                coverage.probes,
                coverage.produced,
                coverage.left,
            )
            assert mine.skipped == pytest.approx(coverage.skipped)


def test_more_deferred_regions_than_a_query_may_have_count_as_skipped(
    make_engine: EngineFactory, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("rarest_first", "shared_selections", "probe_planner"):
        monkeypatch.setattr(f"transom.promising.{module}.MAX_DEFERRED_REGIONS", 5)
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT item FROM store1 WITH PREFERENCE asc SUMMARY.Estimate.Count(item) BUDGET 3 PROBES", "few"
    )
    rng, pushed = np.random.default_rng(seed), 0
    for batch in range(4):
        rows = sales(rng, 8.0 * batch, 40, 8.0)
        pushed += len(rows)
        feeds[1].push(rows)
        engine.step()
    coverage = query.coverage()
    assert coverage.produced + round(coverage.skipped) == pushed
    assert coverage.produced + coverage.left == pushed
    engine.stop()
