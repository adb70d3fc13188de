"""Small runs of the experiments on promising tuples, and properties that hold at any scale."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from reproduce.__main__ import app
from reproduce.plot import can_draw
from reproduce.prodding.data import SECOND
from reproduce.promising import bars as promising_bars
from reproduce.promising import joins as promising_joins
from reproduce.promising import selection as promising_selection
from reproduce.promising.baselines import Pairs
from reproduce.promising.data import Stores, generated
from reproduce.promising.joins import PREFERENCES, Join
from reproduce.promising.plots import FIGURES

SEED = 3


@pytest.fixture(scope="module")
def stores() -> Stores:
    return generated(90, SEED)


def pairs(found: Pairs) -> list[tuple[int, int]]:
    return sorted(zip(found.left.tolist(), found.right.tolist(), strict=True))


def naive(stores: Stores, window: int | None) -> list[tuple[int, int]]:
    one, two = stores.first, stores.second
    same = one.items[:, None] == two.items[None, :]
    if window is not None:
        same &= np.abs(one.times[:, None] - two.times[None, :]) <= window
    return sorted(zip(*(rows.tolist() for rows in np.nonzero(same)), strict=True))


@pytest.mark.parametrize("name", PREFERENCES)
def test_a_budget_gives_part_of_the_exact_answer_and_no_budget_gives_all(name: str, stores: Stores) -> None:
    join = Join(stores, PREFERENCES[name], batch_length=5 * SECOND)
    exact = naive(stores, join.preference.window)
    assert pairs(join.exact) == exact
    assert pairs(join.promising().run()) == exact
    budget = join.budget(10)
    for run in (join.promising().run, join.simple.run):
        some = run(budget)
        assert len(set(pairs(some))) == len(some)  # no pair is found twice
        assert set(pairs(some)) <= set(exact)
        assert all(probes <= budget(batch_id) for batch_id, probes in some.probes.items())  # type: ignore[operator]


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_highest_promise_gives_at_least_the_output_of_a_hash_join(percent: int, stores: Stores) -> None:
    join = Join(stores, PREFERENCES["sliding"], batch_length=5 * SECOND)
    simple, guided = (row["output"] for row in promising_joins.compare_systems(join, percent))
    assert guided >= simple


def test_each_query_selects_5_to_10_percent_of_the_tuples(stores: Stores) -> None:
    predicates = promising_selection.ranges(stores, 50, SEED)
    shares = predicates.matching(stores.first.items).mean(axis=1)
    assert (shares >= 0.05).all() and (shares <= 0.10).all()


def test_selections_that_may_probe_every_tuple_find_all_matches(stores: Stores) -> None:
    rows = list(promising_selection.selection(stores, 20, [0.1, 1.0]))
    found = {(row["system"], row["budget_percent"]): row["output_percent"] for row in rows}
    for system in ("simple", "promising", "promising, hashed"):
        assert found[system, 100] == 100
        assert found[system, 10] >= found["simple", 10]


def test_aggregates_are_exact_with_full_budget_and_closer_than_simple_ones_with_less(stores: Stores) -> None:
    rows = list(promising_selection.aggregates(stores, 20, (10, 100)))
    found = {(row["system"], row["budget_percent"]): row for row in rows}
    for column in ("avg_mse", "sum_mse"):
        assert found["simple", 100][column] == found["promising", 100][column] == 0
        assert found["promising", 10][column] < found["simple", 10][column]


def test_a_bar_reports_the_worst_seed_of_each_kind_of_data() -> None:
    rows = [
        {"data": data, "seed": seed, "system": system, "budget_percent": 10, "output_percent": percent}
        for data, seed, simple, guided in (("a", 0, 10, 20), ("a", 1, 10, 14), ("b", 0, 5, 15))
        for system, percent in (("simple", simple), ("promising", guided))
    ]
    bars = list(promising_bars.ratio_bars("output", rows, "output_percent", least=1.5))
    assert [(bar.what, bar.measured, bar.met) for bar in bars] == [
        ("a: output", 1.4, False),
        ("b: output", 3.0, True),
    ]


def test_the_command_writes_tables_and_bars(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["promising", "--short", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "promising_bars.md").read_text() in done.output
    bars = json.loads((tmp_path / "promising_bars.json").read_text())
    exact = [bar for bar in bars if bar["what"].startswith("answers with no budget")]
    assert [bar["met"] for bar in exact] == [True]
    with (tmp_path / "promising_sliding.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["system"] for row in rows} == {"simple", "promising"}
    output = {(row["system"], row["budget_percent"]): float(row["output_percent"]) for row in rows}
    assert output["promising", "10"] >= output["simple", "10"]
    assert output["promising", ""] == 100
    drawn = {path.stem.removeprefix("promising_") for path in tmp_path.glob("*.svg")}
    assert drawn == (set(FIGURES) if can_draw() else set())
