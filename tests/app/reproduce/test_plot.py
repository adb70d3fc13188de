"""Plots are drawn of the tables that there are, where matplotlib is."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.app.reproduce.plot import draw_all
from transom.app.reproduce.report import Report, write

LATENCIES = [
    {"window_end": 10, "early_latency": 9.5, "final_latency": 10.0, "accuracy": 99.0},
    {"window_end": 20, "early_latency": "", "final_latency": 10.0, "accuracy": ""},
]


def test_a_plot_for_each_table_that_has_a_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(Report({"figure_4_5": LATENCIES, "table_4_3": [{"stream": "Burst_1"}]}), tmp_path)
    draw_all(tmp_path, ["figure_4_5", "table_4_3"])
    assert [path.name for path in tmp_path.glob("*.svg")] == ["figure_4_5.svg"]
    first = (tmp_path / "figure_4_5.svg").read_bytes()
    draw_all(tmp_path, ["figure_4_5"])
    assert (tmp_path / "figure_4_5.svg").read_bytes() == first
