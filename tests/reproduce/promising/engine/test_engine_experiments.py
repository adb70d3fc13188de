"""Small runs of the experiments through the engine: answers by counts, and processor time with wide margins."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reproduce.__main__ import app
from reproduce.plot import can_draw
from reproduce.promising.data import generated
from reproduce.promising.engine import workloads
from reproduce.promising.engine.experiments import PREFIX
from reproduce.promising.engine.joins import EngineJoin
from reproduce.promising.engine.plots import FIGURES
from reproduce.promising.engine.workloads import WORKLOADS, join_workload
from tests.reproduce.promising.engine.test_baselines_of_engine import nested_loops

pytestmark = pytest.mark.timeout(1_200)  # half a minute of processor time, on a machine that may be busy
SEED = 3
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a short run."""
    directory = tmp_path_factory.mktemp("run")
    done = CliRunner().invoke(app, ["promising-engine", "--short", "--out", str(directory)])
    assert done.exit_code == 0, done.output
    assert (directory / f"{PREFIX}bars.md").read_text() in done.output
    return directory


def table(directory: Path, name: str) -> list[dict[str, str]]:
    with (directory / f"{PREFIX}{name}.csv").open() as file:
        return list(csv.DictReader(file))


def by_system(directory: Path, name: str, budget: str) -> dict[str, dict[str, str]]:
    return {row["system"]: row for row in table(directory, name) if row["budget_percent"] == budget}


def bars(directory: Path, beginning: str) -> list[dict[str, Any]]:
    every = json.loads((directory / f"{PREFIX}bars.json").read_text())
    chosen = [bar for bar in every if beginning in bar["what"]]
    assert chosen, beginning
    return chosen


@pytest.mark.parametrize("name", ["join", "structure", "selection", "time_budget"])
def test_a_short_workload_differs_from_the_full_one_in_values_only(name: str) -> None:
    read = getattr(workloads, f"{name}_workload")
    full, short = read(False), read(True)
    assert type(full) is type(short) and full != short
    assert {field.name for field in fields(full)} == {field.name for field in fields(short)}


def test_every_workload_is_a_data_file() -> None:
    assert {path.stem for path in WORKLOADS.glob("*.json")} == {
        "joins",
        "structures",
        "selections",
        "time_budget",
    }


@pytest.mark.parametrize("name", join_workload(short=True).figures)
def test_the_engine_and_key_chains_give_the_exact_answer(name: str) -> None:
    workload = join_workload(short=True)
    join = EngineJoin(generated(40, SEED), workload.figures[name], workload)
    loops = sum(nested_loops(join.batches, join.window).values())
    rows = [row for row in join.rows() if row["budget_percent"] is None]
    assert [(row["output"], row["differs"]) for row in rows] == [(loops, 0)] * 3


def test_a_wrong_answer_of_full_size_is_noticed() -> None:
    workload = join_workload(short=True)
    join = EngineJoin(generated(20, SEED), workload.figures["sliding"], workload)
    wrong = np.append(join.exact.left[:-1], join.exact.left[0])
    assert join.metrics(wrong, join.exact.right)["differs"]


def test_answers_without_a_budget_are_exact(short_run: Path) -> None:
    for beginning in ("joins without a budget whose answer is not exact", "least output of selections"):
        assert [bar["met"] for bar in bars(short_run, beginning)] == [True]


@pytest.mark.parametrize(
    "what",
    [
        "weighted: Hist-MSE against key chains",
        "whole stream, fade 0.8: age against key chains",
        "asc: outliers found against key chains",
        "SUM: mean square error",
    ],
)
def test_preferences_give_better_answers_at_the_same_size(what: str, short_run: Path) -> None:
    assert all(bar["met"] for bar in bars(short_run, what))


def test_the_budget_is_the_size_of_the_answer(short_run: Path) -> None:
    """On the driver, a probe is a result, as for key chains: no preference gives a larger answer."""
    for name in ("sliding", "whole", "faithful", "rare"):
        outputs = [float(row["output_percent"]) for row in by_system(short_run, name, "10").values()]
        assert outputs == pytest.approx([outputs[0]] * 3, rel=0.05), name


def test_a_budget_of_time_holds_in_the_engine(short_run: Path) -> None:
    """The margins are wide, because the batches of a short run take 20 ms."""
    rows = {row["setting"]: row for row in table(short_run, "time_budget")}
    exact, timed = rows["no budget"], rows["time"]
    assert float(exact["paid_ms"]) > 1.8 * float(exact["budget_ms"]), "the engine is overloaded"
    assert 0.6 < float(timed["paid_ms"]) / float(timed["budget_ms"]) < 1.4
    assert float(timed["of_best_fixed"]) > 0.6


def test_plots_have_a_file_for_each_figure(short_run: Path) -> None:
    drawn = {path.stem.removeprefix(PREFIX) for path in short_run.glob("*.png")}
    assert drawn == (set(FIGURES) if can_draw() else set())


def test_the_repository_has_the_tables_and_plots_of_a_full_run() -> None:
    page = (ROOT / "docs/reproduce/promising-engine.md").read_text()
    for name, (_, panels) in FIGURES.items():
        assert f"(promising-engine/{PREFIX}{name}.png)" in page, name
        assert (ROOT / f"docs/reproduce/promising-engine/{PREFIX}{name}.png").stat().st_size < 120_000
        for panel in panels:
            rows = (ROOT / f"reproduce/results/{PREFIX}{panel.table}.csv").read_text().splitlines()
            assert {panel.along, panel.column} <= set(rows[0].split(","))
