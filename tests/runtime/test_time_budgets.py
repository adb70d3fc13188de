"""A budget of time in an engine: what it pays for, by a clock that only counted work advances."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.preference_helpers import JOIN, sale, stores
from transom.results.result_rows import Results

TUPLES, BATCHES = 250, 24
ROW = 1e-6  # seconds to write a row of results


class WorkClock:
    """A clock that stands still, except while rows of results are written."""

    def __init__(self, engine: transom.Engine):
        self.now = 0.0
        engine._loop.promising.clock = lambda: self.now
        self._write = engine._loop.outputs.write_results
        engine._loop.outputs.write_results = self._written  # type: ignore[method-assign]

    def _written(self, directory: str, results: Results, identity: Any) -> int | None:
        self.now += ROW * sum(batch.table.num_rows for batch in results.batches)
        return self._write(directory, results, identity)


def produced(engine: transom.Engine, feeds: dict[int, Any], name: str) -> list[int]:
    """The results of a query in each batch: all tuples have the same item, so that nothing is ever complete."""
    totals = [0]
    for number in range(BATCHES):
        feeds[number % 2 + 1].push([sale(1, number // 2 + n / TUPLES) for n in range(TUPLES)])
        engine.step()
        totals.append(engine.query(name).coverage().produced)
    return [after - before for before, after in itertools.pairwise(totals)]


def test_a_budget_of_time_pays_for_writing_results(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    WorkClock(engine)
    engine.register(f"{JOIN.format('desc')} BUDGET '5 ms'", "timed")
    settled = produced(engine, feeds, "timed")[12:]
    assert settled == pytest.approx([5_000] * len(settled), rel=0.02), "a row takes a microsecond to write"
    engine.stop()


def test_a_budget_of_time_does_not_pay_for_results_of_other_queries(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    WorkClock(engine)
    engine.register(f"{JOIN.format('desc')} BUDGET '5 ms'", "timed")
    for number in range(20):
        engine.register(f"SELECT item, price FROM store1 WHERE item < {number + 2}")
    settled = produced(engine, feeds, "timed")[12:]
    assert settled == pytest.approx([5_000] * len(settled), rel=0.02)
    engine.stop()
