"""Cumulative and calendar windows against the oracle, on streams and query sets drawn at random."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.case_counts import case_seeds
from tests.differential.calendar_cases import calendar_window, growing_window, in_hours
from tests.differential.case_engine import check_on_engine
from tests.differential.cases import Case, alike, case, prodded
from tests.differential.on_engine import check_on_feed, check_on_files
from tests.differential.oracle_comparison import check
from tests.engine_factory import ON_BOTH, EngineFactory
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Place, Strategy
from transom.results import merge_slices

pytestmark = pytest.mark.any_worker

STRATEGIES: dict[str, dict[str, Any]] = {
    "shared": {"strategy": Strategy()},
    "unshared": {"strategy": Strategy(shared=False)},
    "paned": {"strategy": Strategy(True, True)},
    "joint fragments": {"strategy": Strategy(True, False, FragmentSharing.JOINT)},
    "naive": {"naive": True},
    "moving in nearly every batch": {"strategy": Strategy(adapts=True, limits=Limits(clearly_better=3.0))},
    "without few-row plans": {"strategy": Strategy(limits=Limits(matrix_cells=0))},
    "with the executors": {"strategy": Strategy(place=Place.EXECUTORS)},
}


def growing(rng: Random) -> Case:
    """Queries with cumulative windows."""
    return rng.choice([case, alike])(rng, growing_window)


def on_calendars(rng: Random) -> Case:
    """Queries with calendar windows."""
    return in_hours(rng, rng.choice([case, alike])(rng, calendar_window))


@pytest.fixture(autouse=True)
def merges_slices_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_slices, "FEWEST_SLICES", 1)


@pytest.mark.parametrize("draw", [growing, on_calendars])
@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy_gives_the_oracles_answers(draw: Any, options: dict[str, Any], seed: int) -> None:
    start = seed + 10_000 * list(STRATEGIES.values()).index(options)
    for number in case_seeds(start, 4):
        check(draw(Random(number)), restart=number % 2 == 0, seed=number, **options)


@pytest.mark.parametrize("draw", [growing, on_calendars])
def test_prods_are_told_what_the_oracle_knows(draw: Any, seed: int) -> None:
    for number in case_seeds(seed, 4):
        rng = Random(number)
        check_on_engine(prodded(rng, draw(rng)), number, restart=number % 2 == 0)


@ON_BOTH
@pytest.mark.parametrize("draw", [growing, on_calendars])
def test_engines_of_both_backends_give_the_oracles_answers(
    draw: Any, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    check_on_feed(draw(Random(seed)), make_engine, tmp_path / "pushed", restart=make_engine.name == "local")
    check_on_files(draw(Random(seed + 1)), make_engine, tmp_path / "files")
