"""Plots of the experiments on promising tuples, one for each figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reproduce.plot import Row, read, save, subplots


@dataclass(frozen=True)
class Figure:
    """A plot of one column of a table against another, with the layout of the paper's figure."""

    table: str
    along: str
    column: str
    title: str
    shape: str  # the paper's result in a few words; its text has no numbers for its figures
    logarithmic: str = "x"  # the axes that are logarithmic


FIGURES: Mapping[str, Figure] = {
    "figure_9a": Figure(
        "structures", "structure", "insert_us", "t_ins, microseconds (9a)", "rises from T1 to T4", ""
    ),
    "figure_9b": Figure(
        "structures", "structure", "hit_us", "t_hit, microseconds (9b)", "falls from T1 to T4", ""
    ),
    "figure_9c": Figure(
        "structures", "structure", "output_per_input", "N o/p (9c)", "rises from T1 to T4", ""
    ),
    "figure_10a": Figure(
        "interarrival",
        "interarrival_us",
        "output_percent",
        "output, %, by interarrival time (10a)",
        "at small times T1 is ahead, T4 later",
    ),
    "figure_10b": Figure(
        "windows",
        "window_s",
        "output_percent",
        "output, %, by window (10b)",
        "T1 is ahead in small windows, T4 in large ones",
        "",
    ),
    "figure_11": Figure(
        "sliding", "budget_percent", "output_percent", "output, %, one-minute window (11)", "PT above SHJ"
    ),
    "figure_12a": Figure(
        "whole", "budget_percent", "output_percent", "output, %, whole stream (12a)", "PT above SHJ"
    ),
    "figure_12b": Figure(
        "whole", "budget_percent", "mean_age_s", "|ts1 - ts2|, s, fade 0.8 (12b)", "PT below SHJ"
    ),
    "figure_13a": Figure(
        "faithful", "budget_percent", "output_percent", "output, %, weighted (13a)", "PT above SHJ"
    ),
    "figure_13b": Figure(
        "faithful", "budget_percent", "hist_mse", "Hist-MSE, weighted (13b)", "PT below SHJ", "xy"
    ),
    "figure_14a": Figure("rare", "budget_percent", "output_percent", "output, %, asc (14a)", "PT below SHJ"),
    "figure_14b": Figure(
        "rare",
        "budget_percent",
        "outlier_percent",
        "outliers, % of the output, asc (14b)",
        "PT far above SHJ",
    ),
    "figure_15a": Figure(
        "selection",
        "budget_percent",
        "output_percent",
        "output, %, 100 selections (15a)",
        "PT above simple, up to a third more",
    ),
    "figure_15b": Figure(
        "queries",
        "queries",
        "output_percent",
        "output, %, by queries (15b)",
        "simple ahead up to 80 queries, PT after",
        "",
    ),
    "figure_16a": Figure(
        "aggregates", "budget_percent", "avg_mse", "MSE of AVG (16a)", "PT below simple; both fall", "xy"
    ),
    "figure_16b": Figure(
        "aggregates", "budget_percent", "sum_mse", "MSE of SUM (16b)", "PT below simple; both fall", "xy"
    ),
}


def draw_figures(directory: Path) -> None:
    """Draw every figure whose table was written: a panel for each kind of data, a line for each system."""
    for name, figure in FIGURES.items():
        rows = read(directory / f"promising_{figure.table}.csv")
        if drawn := [row for row in rows if row[figure.along] and row[figure.column]]:
            _draw(drawn, figure, directory / f"promising_{name}.svg")


def _draw(rows: list[Row], figure: Figure, path: Path) -> None:
    kinds = list(dict.fromkeys(row["data"] for row in rows))
    drawn, panels = subplots(1, len(kinds), figsize=(1 + 4 * len(kinds), 4), squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        own = [row for row in rows if row["data"] == kind]
        if figure.along == "structure":
            means = _means(own, figure)
            axes.bar(list(means), list(means.values()), color="#1f77b4")
        else:
            for system in dict.fromkeys(row["system"] for row in own):
                means = _means([row for row in own if row["system"] == system], figure)
                axes.plot([float(x) for x in means], list(means.values()), marker="o", label=system)
            axes.set(**{f"{axis}scale": "log" for axis in figure.logarithmic})
            axes.legend(fontsize=8)
        axes.set_xlabel(figure.along.replace("_", " "))
        axes.set_title(kind, fontsize=9)
    save(drawn, f"{figure.title}\nthe paper: {figure.shape}", path)


def _means(rows: list[Row], figure: Figure) -> dict[str, float]:
    """The means over the seeds."""
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row[figure.along], []).append(float(row[figure.column]))
    return {along: sum(found) / len(found) for along, found in values.items()}
