"""Bars are ratios of measured rows; the experiments give every bar something to be computed from."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from benchmarks import engine_runs, experiments
from benchmarks.analysis import figure_4, figure_10, write
from benchmarks.bars import BARS, Bar, Side, resized
from benchmarks.engine_runs import Churn, minutes
from benchmarks.experiments import EXPERIMENTS, SHORT, Bench
from benchmarks.rows import Row, append, latest, read
from benchmarks.run import arguments, shown
from benchmarks.trades import trading_hour

FAST, SLOW = Side("A", 256, "fast"), Side("A", 256, "slow")
BAR = Bar("how much faster", "race", SLOW, FAST, 10)


def rows(strategy: str, *seconds: tuple[int, float]) -> list[Row]:
    return [Row("race", "A", 256, seed, strategy, seconds=value) for seed, value in seconds]


def test_a_ratio_is_taken_seed_by_seed() -> None:
    found = rows("slow", (0, 10.0), (1, 90.0), (2, 60.0)) + rows(
        "fast", (0, 1.0), (1, 3.0), (2, 2.0), (3, 9.0)
    )
    assert BAR.measured(found) == 30
    assert BAR.met(30) and not BAR.met(9.9)


def test_repetitions_count_by_their_median() -> None:
    assert BAR.measured(rows("slow", (0, 10.0)) + rows("fast", (0, 1.0), (0, 2.0), (0, 500.0))) == 5


def test_a_bar_without_rows_is_not_measured() -> None:
    assert BAR.measured(rows("slow", (0, 10.0))) is None
    assert BAR.measured(rows("slow", (0, 10.0)) + rows("fast", (1, 10.0))) is None
    assert replace(BAR, under=None).measured([]) is None


def test_rows_of_another_experiment_or_size_are_not_taken() -> None:
    others = [replace(row, experiment="walk") for row in rows("slow", (0, 10.0))]
    others += [replace(row, queries=16) for row in rows("slow", (0, 10.0))]
    assert BAR.measured(others + rows("fast", (0, 1.0))) is None


def test_a_bar_of_one_side_is_that_side() -> None:
    bar = replace(BAR, under=None, limit=30, at_least=False)
    assert bar.measured(rows("slow", (0, 29.0))) == 29
    assert bar.met(29) and not bar.met(31)


def test_the_table_tells_met_from_missed() -> None:
    console = Console(width=200, record=True, file=StringIO())
    found = rows("slow", (0, 20.0)) + rows("fast", (0, 1.0))
    console.print(shown([BAR, replace(BAR, limit=21), replace(BAR, experiment="walk")], found))
    text = console.export_text()
    assert "at least 10x" in text and "20x" in text
    assert [word for word in text.split() if word in ("met", "missed", "-")] == ["met", "missed", "-"]


def test_a_short_run_gives_no_verdict_and_names_its_own_sizes() -> None:
    console = Console(width=200, record=True, file=StringIO())
    found = [replace(row, queries=16) for row in rows("slow", (0, 20.0)) + rows("fast", (0, 1.0))]
    console.print(shown([resized(BAR, {256: 16})], found, short=True))
    words = console.export_text().split()
    assert "computed" in words and "16" in words
    assert "met" not in words and "missed" not in words


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    first = Row("race", "A", 16, 3, "fast", 1, 0.25, 0.125, 0.125, 7, 8, 9, "a note, with a comma", "2024")
    second = Row("race", "A", 16, 4, "fast", seconds=2.0, run="2025")
    append(tmp_path, first)
    append(tmp_path, second)
    assert read(tmp_path, "race") == [first, second]
    assert latest(read(tmp_path, "race")) == [second]
    assert read(tmp_path, "walk") == []


def test_every_bar_belongs_to_an_experiment_that_can_be_chosen() -> None:
    assert {bar.experiment for bar in BARS} == set(EXPERIMENTS)
    assert arguments(["--only", "noop", "--only", "scale", "--short"]).only == ["noop", "scale"]


def test_minutes_hold_all_trades(tmp_path: Path) -> None:
    batches = minutes(trading_hour(tmp_path, 5_000))
    assert len(batches) == 60
    assert sum(batch.num_rows for batch in batches) == 5_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    trading_hour(directory, 1_000)
    return directory


@dataclass(frozen=True)
class Measured:
    partial_seconds: float = 0.5
    final_seconds: float = 0.25
    partials: int = 3
    finals: int = 2
    state_bytes: int = 100


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel, an engine and competitors that take a second without doing anything."""
    kernel = ModuleType("benchmarks.kernel")
    kernel.measure = lambda *_, **__: Measured()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.kernel", kernel)
    monkeypatch.setattr(Bench, "spark", None)
    monkeypatch.setattr(experiments, "native", lambda spark, hour, queries: (float(len(queries)), {}))
    monkeypatch.setattr(experiments, "in_polars", lambda *_, repeats, **__: [1.0] * repeats)
    monkeypatch.setattr(experiments, "SingleJob", Job)
    monkeypatch.setattr(engine_runs, "stream", lambda *_, **__: (2.0, 1_000))
    monkeypatch.setattr(engine_runs, "register", lambda *_: 3.0)
    monkeypatch.setattr(engine_runs, "churn", lambda *_: Churn([1.0, 2.0], 60.0))


class Job:
    def __init__(self, *_: object): ...

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, chunk: int | None) -> tuple[float, dict[int, dict[int, float]]]:
        return 4.0, {}


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", [SHORT, replace(experiments.FULL, rows=1_000)], ids=["short", "full"])
def test_an_experiment_gives_each_of_its_bars_both_sides(
    data: Path, name: str, scale: experiments.Scale
) -> None:
    found = list(EXPERIMENTS[name](Bench(replace(scale, rows=1_000), data)))
    assert {row.experiment for row in found} == {name}
    for bar in BARS:
        if bar.experiment == name:
            assert resized(bar, scale.instead).measured(found) is not None, bar.what


@pytest.mark.usefixtures("nothing_runs")
def test_unshared_is_one_plan_at_a_time_added_up(data: Path) -> None:
    found = EXPERIMENTS["aggregation"](Bench(replace(SHORT, rows=1_000), data))
    by_strategy = {row.strategy: row for row in found if row.workload == "A_seconds"}
    assert by_strategy["shared_paired"].seconds == 0.75
    assert by_strategy["unshared_paired"].seconds == 16 * 0.75
    assert by_strategy["unshared_paired"].partial_aggregations == 16 * 3
    assert set(by_strategy) == {"shared_paired", "unshared_paired", "shared_paned", "unshared_paned"}


@pytest.mark.usefixtures("nothing_runs")
def test_native_queries_are_scaled_along_a_line(data: Path) -> None:
    found = EXPERIMENTS["native"](Bench(replace(SHORT, rows=1_000), data))
    assert {row.strategy: row.seconds for row in found}["native_scaled"] == 16.0


@pytest.mark.usefixtures("nothing_runs")
def test_plots_are_drawn_from_the_files(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import plot

    for name in EXPERIMENTS:
        for row in EXPERIMENTS[name](Bench(replace(SHORT, rows=1_000), data)):
            append(tmp_path / "results", row)
    write([*figure_4(), *figure_10(observed=5)], tmp_path / "results")
    for folder in ("once", "again"):
        plot.main(["--results", str(tmp_path / "results"), "--out", str(tmp_path / folder)])
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert len(drawn) == 8
    assert drawn == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
