"""Plots are drawn of all tables that were written, if matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduce.plot import draw_all, draw_response_times
from reproduce.report import Report, write, write_tables

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


def test_response_times_have_a_panel_for_each_kind_of_data(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        {
            "data": data,
            "system": system,
            "ratio": ratio,
            "tuples": 1000,
            "microseconds_per_tuple": 5.0 / ratio,
        }
        for data in ("uniform", "gaussian")
        for system in ("naive", "ordered_sharing")
        for ratio in (1, 10)
    ]
    write_tables({"ratios": rows}, tmp_path)
    draw_response_times(tmp_path / "ratios.csv", "ratio", "Response time")
    drawn = (tmp_path / "ratios.svg").read_text()
    for text in ("uniform data", "gaussian data", "ordered sharing", "Response time"):
        assert text in drawn
