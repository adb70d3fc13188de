"""Plots of the experiments' tables; only plotting needs matplotlib."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Row = dict[str, str]
NO_PLOTS = "no plots: install matplotlib, or run `make reproduce`, which installs it"
COLORS = {"avg": "#1f77b4", "max": "#2ca02c", "sum": "#d62728", "count": "#9467bd"}
TITLES = {
    "figure_4_6": "Uniform values (figure 4.6)",
    "figure_4_7": "Normal values, SD 100 (figure 4.7)",
    "figure_4_8": "Normal values, SD 400 (figure 4.8)",
    "figure_4_9": "Normal values, SD 1000 (figure 4.9)",
    "figure_4_10": "Worst cases, sliding windows, SD 400 (figure 4.10)",
    "figure_4_11": "Worst cases, tumbling windows, SD 400 (figure 4.11)",
}
LABELS = {"raw": "as arrived", "projected": "projected", "best_constant": "best constant"}
LATENCIES = {
    "figure_4_2": "Q4-1 on freeway data, prodded at 90 s of 120 (figure 4.2)",
    "figure_4_5": "Q4-2 through bursts (figure 4.5)",
    "figure_6_3_a": "Every tuple in its turn (figure 6.3 a)",
    "figure_6_3_b": "Bursts sidelined (figure 6.3 b)",
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def subplots(*panels: int, **look: Any) -> tuple[Any, Any]:
    """A figure and its panels, drawn without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(*panels, **look)


def draw_all(directory: Path, tables: Iterable[str]) -> None:
    """Draw every table that has a figure."""
    there = {name: read(directory / f"{name}.csv") for name in tables}
    for name, title in TITLES.items():
        if rows := there.get(name):
            _aggressiveness(
                rows, "worst" if "Worst" in title else "accuracy", title, directory / f"{name}.svg"
            )
    for name, title in LATENCIES.items():
        if rows := there.get(name):
            _latencies(rows, title, directory / f"{name}.svg")
    if rows := there.get("estimates"):
        _estimates(rows, directory / "projected.svg")


def read(path: Path) -> list[Row]:
    """The rows of a table; an empty list if the table was not written."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _aggressiveness(rows: Sequence[Row], column: str, title: str, path: Path) -> None:
    figure, axes = subplots(figsize=(6, 4))
    for aggregate, color in COLORS.items():
        own = [row for row in rows if row["aggregate"] == aggregate]
        levels = [float(row["aggressiveness"]) for row in own]
        axes.plot(
            levels, [float(row[column]) for row in own], color=color, marker="o", label=aggregate.upper()
        )
        thesis_points = [(float(row["aggressiveness"]), float(row["thesis"])) for row in own if row["thesis"]]
        if thesis_points and column == "accuracy":
            axes.plot(*zip(*thesis_points, strict=True), "x", color=color)
    gains = [row for row in rows if row["aggregate"] == "avg"]
    axes.plot(
        [float(row["aggressiveness"]) for row in gains],
        [float(row["latency_gain_percent"]) for row in gains],
        color="gray",
        linestyle="--",
        label="latency gain",
    )
    axes.set_xlabel("aggressiveness, % of the slide (x: the thesis)")
    axes.set_ylabel("%")
    axes.legend(fontsize=8)
    save(figure, title, path)


def _latencies(rows: Sequence[Row], title: str, path: Path) -> None:
    figure, axes = subplots(figsize=(7, 4))
    first = float(rows[0]["window_end"])
    for column, marker, label in (("final_latency", "*", "final"), ("early_latency", "^", "early")):
        points = [(float(row["window_end"]) - first, float(row[column])) for row in rows if row[column]]
        if points:
            axes.plot(*zip(*points, strict=True), marker, markersize=4, label=label)
    axes.set_xlabel("end of the window, s")
    axes.set_ylabel("latency, s")
    axes.legend(fontsize=8)
    save(figure, title, path)


def _estimates(rows: Sequence[Row], path: Path) -> None:
    """Plot the accuracy of SUM over uniform values: as arrived, projected, and times the best constant."""
    figure, panels = subplots(1, 2, figsize=(9, 4), sharey=True)
    for axes, kind in zip(panels, ("clumped", "poisson"), strict=True):
        wanted = {"arrivals": kind, "windows": "sliding", "values": "uniform", "aggregate": "sum"}
        shown = [row for row in rows if wanted.items() <= row.items()]
        for column, label in (
            ("raw", "as arrived"),
            ("projected", "projected"),
            ("best_constant", "best constant"),
        ):
            points = [(float(row["aggressiveness"]), float(row[column])) for row in shown if row[column]]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", label=label)
        axes.set_title(f"{kind} arrivals", fontsize=9)
        axes.set_xlabel("aggressiveness, % of the slide")
        axes.legend(fontsize=8)
    panels[0].set_ylabel("accuracy of SUM, %")
    save(figure, "Projected values (ours)", path)


def draw_response_times(table: Path, column: str, title: str) -> None:
    """Plot response times by a column: a panel per kind of data, a line per system."""
    rows = read(table)
    systems, kinds = (list(dict.fromkeys(row[what] for row in rows)) for what in ("system", "data"))
    figure, panels = subplots(1, len(kinds), figsize=(9, 4), sharey=True)
    for axes, kind in zip(panels, kinds, strict=True):
        for system in systems:
            times = {  # of several lengths, the last one remains: the longest
                float(row[column]): float(row["microseconds_per_tuple"])
                for row in rows
                if row["data"] == kind and row["system"] == system
            }
            axes.plot(list(times), list(times.values()), marker="o", label=system.replace("_", " "))
        axes.set(xscale="log", yscale="log", xlabel=f"{column} (log)")
        axes.set_title(f"{kind} data", fontsize=9)
        axes.legend(fontsize=8)
    panels[0].set_ylabel("microseconds per tuple (log)")
    save(figure, title, table.with_suffix(".svg"))


def save(figure: Any, title: str, path: Path) -> None:
    """Save a figure; the same rows give the same file."""
    import matplotlib
    from matplotlib import pyplot

    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    with matplotlib.rc_context({"svg.hashsalt": "transom"}):
        figure.savefig(path, metadata={"Software" if path.suffix == ".png" else "Date": None}, dpi=72)
    pyplot.close(figure)
