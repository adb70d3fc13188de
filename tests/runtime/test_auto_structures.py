"""STRUCTURE auto in a running engine: what the structures produce there decides, not what a trial predicts.

On the driver, tuples are found by key and all structures produce the same. Here the driver plans by cells, as for
tuples on the executors, so that structures matter where they can be changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.preference_helpers import JOIN, sale, stores
from transom.plan.limits import Limits
from transom.promising import execution
from transom.promising.probe_planner import ProbePlanner
from transom.promising.structure_choice import SUMMARY_STRUCTURES
from transom.promising.structure_review import ChosenStructure, StructureReview

ITEMS, TUPLES, BATCHES = 60, 300, 44
REVIEW = 5  # batches between two reviews
TAIL = 12  # the batches at the end, in which the engine has made up its mind


@pytest.fixture
def by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan without the tuples at hand."""

    def planner(state: Any, arrivals: Any, batch_id: int, *at_hand: Any) -> ProbePlanner:
        return ProbePlanner(state, arrivals, batch_id, None)

    monkeypatch.setattr(execution, "ProbePlanner", planner)


def run(
    make_engine: EngineFactory, place: Path, structure: str, predicted: Iterable[str] | None = None
) -> tuple[list[int], list[str]]:
    """The output of each batch, and the structure of the second store's summary after it."""
    engine, feeds = stores(make_engine, place, f"AND BUCKETS 16 AND STRUCTURE {structure}")
    promising = engine._loop.promising
    promising.clock = process_time
    if predicted is not None:
        turns = iter(predicted)
        promising.review = StructureReview(
            Limits(first_review=REVIEW, longest_review=REVIEW),
            lambda *given: ChosenStructure(next(turns), "it is its turn"),
        )
    query = engine.register(f"{JOIN.format('desc')} BUDGET 1500 PROBES", "cut")
    rng, totals, structures = np.random.default_rng(5), [0], []
    likely = 1 / np.arange(1, ITEMS + 1)
    for number in range(BATCHES):
        items = rng.choice(ITEMS, TUPLES, p=likely / likely.sum()).tolist()
        rows = [sale(item, number // 2 + n / TUPLES) for n, item in enumerate(items)]
        feeds[number % 2 + 1].push(rows)
        engine.step()
        totals.append(query.coverage().produced)
        structures.append(engine.summaries()["items2"].structure)
    engine.stop()
    return [after - before for before, after in itertools.pairwise(totals)], structures


@pytest.mark.usefixtures("by_cell")
def test_auto_returns_to_the_structure_that_produced_the_most(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    fixed = {
        structure: sum(run(make_engine, tmp_path / structure, structure)[0][-TAIL:])
        for structure in SUMMARY_STRUCTURES
    }
    assert fixed["none"] < 0.5 * fixed["adjusting"], "structures matter in this engine"
    predictions = {
        "always wrong": itertools.repeat("none"),
        "wrong in two ways": itertools.cycle(["none", "none", "time", "time"]),
    }
    for name, predicted in predictions.items():
        output, structures = run(make_engine, tmp_path / name, "auto", predicted)
        assert "none" in structures, f"{name}: the prediction was tried"
        assert set(structures[-TAIL:]) <= {"cells", "adjusting"}, f"{name}: what was measured decides"
        assert sum(output[-TAIL:]) >= 0.9 * max(fixed.values()), name
