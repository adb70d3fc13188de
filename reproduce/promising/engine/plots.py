"""Plots of promising tuples in the engine, from CSV files: `python -m reproduce.promising.engine.plots CSV PLOTS`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.plot import Row, read, save, subplots

PREFIX = "promising_engine_"
TIME = "processor time per tuple, µs"


@dataclass(frozen=True)
class Panel:
    """A row of plots: a column of a table against another, a line for each system, a plot for each kind of data."""

    table: str
    along: str
    column: str
    label: str
    axis: str
    logarithmic: str = "x"  # the axes that are logarithmic


def _join(table: str, column: str, label: str, logarithmic: str = "x") -> Panel:
    return Panel(table, "cpu_us", column, label, TIME, logarithmic)


FIGURES: Mapping[str, tuple[str, Sequence[Panel]]] = {
    "figure_9": (
        "Structures of a summary on the executors, and the driver's plan by key",
        (
            Panel("structures", "system", "insert_us", "t_ins, µs", "", ""),
            Panel("structures", "system", "hit_us", "t_hit, µs", "", "y"),
            Panel("structures", "system", "output_per_input", "output per input tuple", "", ""),
        ),
    ),
    "figure_10": (
        "Output with limited time per tuple",
        (
            Panel("interarrival", "tuple_us", "output_percent", "output, %", "time per tuple, µs"),
            Panel("windows", "window_s", "output_percent", "output, %", "window, s", ""),
        ),
    ),
    "figure_11": ("desc, one minute", (_join("sliding", "output_percent", "output, %"),)),
    "figure_12": (
        "desc, whole stream, fade 0.8",
        (
            _join("whole", "output_percent", "output, %"),
            _join("whole", "mean_age_s", "|ts1 - ts2|, s"),
        ),
    ),
    "figure_13": (
        "weighted, one minute",
        (
            _join("faithful", "output_percent", "output, %"),
            _join("faithful", "hist_mse", "Hist-MSE", "xy"),
        ),
    ),
    "figure_14": (
        "asc, one minute",
        (
            _join("rare", "outlier_percent", "outliers, % of the output"),
            _join("rare", "outliers_found_percent", "% of all outliers found"),
        ),
    ),
    "figure_15": (
        "Selections",
        (
            _join("selection", "output_percent", "output, %"),
            Panel("queries", "queries", "cpu_us", TIME, "queries", "y"),
        ),
    ),
    "figure_16": (
        "Aggregates of 100 selections",
        (
            _join("aggregates", "avg_mse", "MSE of AVG", "xy"),
            _join("aggregates", "sum_mse", "MSE of SUM", "xy"),
        ),
    ),
    "time_budget": (
        "A budget of time at three times capacity",
        (Panel("time_budget", "paid_ms", "output_per_batch", "results per batch", "ms per batch", ""),),
    ),
}


def draw_engine_figures(tables: Path, plots: Path) -> None:
    """Draw every figure whose tables were written."""
    plots.mkdir(parents=True, exist_ok=True)
    for name, (title, panels) in FIGURES.items():
        rows = [(panel, read(tables / f"{PREFIX}{panel.table}.csv")) for panel in panels]
        if all(found for _, found in rows):
            _draw(title, rows, plots / f"{PREFIX}{name}.png")


def _draw(title: str, panels: Sequence[tuple[Panel, list[Row]]], path: Path) -> None:
    kinds = list(dict.fromkeys(row.get("data", "generated") for _, rows in panels for row in rows))
    figure, axes = subplots(
        len(panels), len(kinds), figsize=(1 + 3.6 * len(kinds), 0.6 + 2.7 * len(panels)), squeeze=False
    )
    for line, (panel, rows) in zip(axes, panels, strict=True):
        for place, kind in zip(line, kinds, strict=True):
            own = [row for row in rows if row.get("data", "generated") == kind and row[panel.column]]
            if not own:
                place.set_axis_off()
                continue
            _draw_panel(place, own, panel)
            place.set_title(kind, fontsize=8)
    save(figure, title, path)


def _draw_panel(axes: Any, rows: list[Row], panel: Panel) -> None:
    if panel.along == "system":
        means = {system: _points(own, panel)[0][1] for system, own in _by(rows, "system").items()}
        axes.bar(list(means), list(means.values()), color="#1f77b4")
    elif "setting" in rows[0]:
        for row in rows:
            axes.plot(float(row[panel.along]), float(row[panel.column]), *_setting_style(row["setting"]))
        axes.axvline(float(rows[0]["budget_ms"]), color="gray", linestyle="--")
    else:
        for system, own in _lines(rows, panel).items():
            axes.plot(*zip(*_points(own, panel), strict=True), marker="o", markersize=4, label=system)
        axes.legend(fontsize=7)
    for axis in panel.logarithmic:
        _set_logarithmic(axes, axis)
    if "y" in panel.logarithmic and 0 < sum(float(row[panel.column]) == 0 for row in rows) < len(rows):
        least = min(value for row in rows if (value := float(row[panel.column])) > 0)
        axes.set_yscale("symlog", linthresh=least)
    axes.set_xlabel(panel.axis, fontsize=8)
    axes.set_ylabel(panel.label, fontsize=8)
    axes.tick_params(labelsize=7)


def _set_logarithmic(axes: Any, axis: str) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(**{f"{axis}scale": "log"})
    ticks = axes.xaxis if axis == "x" else axes.yaxis
    if axis == "x":
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ticks.set_major_formatter(StrMethodFormatter("{x:g}"))
    ticks.set_minor_formatter(NullFormatter())


def _setting_style(setting: str) -> tuple[str]:
    return ("r*",) if setting == "time" else ("kx",) if setting == "no budget" else ("b.",)


def _by(rows: list[Row], column: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _lines(rows: list[Row], panel: Panel) -> dict[str, list[Row]]:
    """The rows of each system, and of each budget unless the points of a line are those of different budgets."""
    systems = _by(rows, "system")
    if panel.along != "queries":
        return systems
    return {
        f"{system}, {percent} %" if percent else system: some
        for system, own in systems.items()
        for percent, some in _by(own, "budget_percent").items()
    }


def _points(rows: list[Row], panel: Panel) -> list[tuple[float, float]]:
    """The means over the seeds, in the order of the budgets, or of the numbers along the axis."""
    cases: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        case = tuple(row.get(key, "") for key in ("budget_percent", "tuple_us", "window_s", "queries"))
        cases.setdefault(case, []).append(row)
    points = []
    for own in cases.values():
        along = 0.0 if panel.along == "system" else _mean(own, panel.along)
        points.append((along, _mean(own, panel.column)))
    return points


def _mean(rows: list[Row], column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


if __name__ == "__main__":
    draw_engine_figures(Path(sys.argv[1]), Path(sys.argv[2]))
