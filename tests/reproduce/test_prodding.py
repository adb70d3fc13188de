"""Small runs of the experiments agree with the thesis."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from reproduce.prodding import aggressiveness, bursts, delays, overhead
from reproduce.prodding import experiments as prodding
from reproduce.prodding import sideline_strategies as sidelining
from reproduce.prodding import simulation as simulate
from reproduce.prodding.data import SECOND, recording
from reproduce.prodding.simulation import Script, Windows
from reproduce.report import Line, Options, Report, markdown


class Tiny(Options):
    """Streams of a few windows."""

    def seconds(self, full: int) -> int:
        return full // 16


TINY = Tiny(seeds=1, short=True)


def number(report: Report, what: str) -> float:
    (found,) = [line.ours for line in report.lines if line.what == what]
    return found


#   arrivals   0         10        20
#   marks           5         15        25     50 % of the slide: the row of second 5 has not arrived at 5
def test_an_early_result_has_exactly_the_rows_that_arrived_before_its_mark() -> None:
    windows = Windows(10, 10)
    script = Script(recording(np.arange(0, 30) * SECOND)).close(windows).look(windows, [0.5]).measure(windows)
    query = f"SELECT count(*) AS n FROM S {windows.clause} {simulate.emit_at([0.5])}"
    found = simulate.simulate({"q": query}, script).results["q"].to_pylist()
    assert [(row["kind"], row["n"], row["latency"]) for row in found] == [
        ("early", 5, 5.0),
        ("final", 10, 10.0),
    ] * 3


def test_aggressiveness_lowers_the_accuracy_of_sums_and_counts_but_not_of_averages() -> None:
    report = aggressiveness.run(TINY)
    for aggregate, least, most in (("AVG", 95, 100), ("MAX", 99, 100), ("SUM", 70, 90), ("COUNT", 70, 90)):
        found = number(report, f"{aggregate}, uniform values, 50 % aggressive")
        assert least <= found <= most, aggregate
    assert set(report.tables) == {
        *(f"figure_4_{n}" for n in range(6, 12)),
        "estimates",
    }
    assert number(report, "latency gain at 50 %") == pytest.approx(
        5 * number(report, "latency gain at 10 %"), rel=0.1
    )


def test_prodding_changes_no_final_result() -> None:
    first = overhead.compare_latencies(*next(overhead.cases(TINY)), times=1)
    assert first["finals_are_the_same"]
    assert first["ratio"] < 1.05


def test_early_results_of_delayed_data_come_three_seconds_sooner() -> None:
    report = delays.run(TINY)
    assert 3.0 <= number(report, "Uniform_2000: latency gain") <= 3.6
    assert number(report, "Uniform_2000: accuracy of MAX") > 97


def test_only_windows_of_a_burst_have_early_results() -> None:
    report = bursts.run(Options(seeds=1, short=True))
    rows = report.tables["figure_4_5"]
    early = [row for row in rows if row["early_latency"] != ""]
    assert 0 < len(early) < len(rows) / 2
    assert all(row["final_latency"] > row["early_latency"] for row in early)


def test_the_report_is_written_as_csv_and_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Report({"one": [{"a": 1, "b": float("nan")}]}, [Line("figure 1", "this", 99.5, 98.25)])
    monkeypatch.setattr(prodding, "EXPERIMENTS", {"only": lambda options: done})
    said: list[str] = []
    prodding.reproduce(TINY, tmp_path / "out", said.append)
    assert said[0].startswith("only: ")
    with (tmp_path / "out/one.csv").open() as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": ""}]
    assert "| figure 1 | this | 99.50 % | 98.25 % |  |" in (tmp_path / "out/comparison.md").read_text()


def test_nan_is_shown_as_none_yet() -> None:
    assert "none yet" in markdown([Line("ours", "coverage", None, float("nan"))])


def test_a_sidelined_burst_delays_no_later_window_and_loses_no_row() -> None:
    report = sidelining.run(Options(seeds=1, short=True))
    assert number(report, "final results that are the same") == 100
    in_turn, sidelined = (line.ours for line in report.lines if line.what.startswith("worst delay"))
    assert sidelined <= 1.0 and in_turn > 0
    affected = [row for row in report.tables["figure_6_3_b"] if row["early_latency"] != ""]
    assert affected and all(row["final_latency"] > row["early_latency"] for row in affected)
