"""Plots of the last run's results: `python -m benchmarks.plot [--results DIRECTORY] [--out DIRECTORY]`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.analysis import PAPER_FRAGMENTS, RATES, Point, read_points
from benchmarks.rows import Row, latest, read
from benchmarks.run import RESULTS, ROOT

OUT = ROOT / "docs" / "benchmarks"
FIGURES = {
    "A": "A: same predicates, different windows (figure 13)",
    "A_seconds": "A with edges on whole seconds",
    "B": "B: different predicates, same windows (figure 14)",
    "C_regular": "C: regular (figure 15)",
    "C_low": "C: low sharing (figure 16)",
}
LINE_STYLES = {
    "unshared_paned": ("unshared, paned", "#b5651d", "v"),
    "unshared_paired": ("unshared, paired", "#d62728", "s"),
    "shared_paned": ("shared, paned", "#7f7f7f", "^"),
    "shared_paired": ("shared, paired", "#1f77b4", "o"),
    "transom": ("Transom", "#1f77b4", "o"),
    "polars": ("Polars, one scan", "#2ca02c", "D"),
    "polars_in_chunks": ("Polars, in chunks", "#98df8a", "d"),
    "single_job": ("Spark SQL, one job", "#ff7f0e", "s"),
    "jobs_of_64": ("Spark SQL, jobs of 64 queries", "#ffbb78", "s"),
    "native": ("native streaming queries", "#9467bd", "v"),
    "native_scaled": ("native streaming queries, scaled", "#c5b0d5", "v"),
    "noop": ("a kernel that does nothing", "#7f7f7f", "x"),
}


def lines(rows: Iterable[Row]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """By workload and strategy: the number of queries and the mean of the seconds, in order."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.seconds is not None:
            found[row.workload, row.strategy][row.queries].append(row.seconds)
    return {key: sorted((n, mean(s)) for n, s in by_size.items()) for key, by_size in found.items()}


def draw(axes: Any, points: Sequence[tuple[int, float]], strategy: str, label: str = "", **more: Any) -> None:
    """One line of a plot."""
    text, color, marker = LINE_STYLES[strategy]
    axes.plot(*zip(*points, strict=True), marker=marker, color=color, label=label or text, **more)


def finish(figure: Any, axes: Any, title: str, path: Path, unit: str = "seconds") -> None:
    """Set scales and labels, and write the file; equal rows give equal files."""
    axes.set(title=title, xlabel="queries", ylabel=unit, xscale="log", yscale="log")
    ticks = sorted({x for line in axes.get_lines() for x in line.get_xdata()})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def plot_aggregation(results: Path, out: Path) -> list[Path]:
    """Time against the number of queries, a plot for each workload, as in figures 13 to 16."""
    found = lines(latest(read(results, "aggregation")))
    paths = []
    for workload, title in FIGURES.items():
        by_strategy = {strategy: points for (name, strategy), points in found.items() if name == workload}
        if by_strategy:
            figure, axes = plt.subplots(figsize=(6, 4))
            for strategy in sorted(by_strategy, key=list(LINE_STYLES).index):
                draw(axes, by_strategy[strategy], strategy)
            paths.append(out / f"aggregation-{workload.lower().replace('_', '-')}.svg")
            finish(figure, axes, title, paths[-1], "seconds of processor time")
    return paths


def plot_scale(results: Path, out: Path) -> list[Path]:
    """Streaming end to end, compared with the other systems."""
    figure, axes = plt.subplots(figsize=(7, 4.5))
    others = [row for name in ("native", "single_job", "noop") for row in latest(read(results, name))]
    found = lines(row for row in others if row.strategy != "transom")
    for (_, strategy), points in sorted(found.items(), key=lambda item: list(LINE_STYLES).index(item[0][1])):
        draw(axes, points, strategy)
    for (workload, strategy), points in sorted(lines(latest(read(results, "scale"))).items()):
        style = "--" if workload == "C_regular" else "-"
        draw(axes, points, strategy, f"Transom, {FIGURES[workload].split(' (')[0]}", linestyle=style)
    if not axes.get_lines():
        plt.close(figure)
        return []
    path = out / "scale.svg"
    finish(figure, axes, "An hour of trades in ten batches, end to end", path)
    return [path]


def plot_polars(results: Path, out: Path) -> list[Path]:
    """The kernel alone against Polars."""
    found = lines(latest(read(results, "polars")))
    if not found:
        return []
    figure, axes = plt.subplots(figsize=(6, 4))
    for (_, strategy), points in sorted(found.items()):
        draw(axes, points, strategy)
    path = out / "polars.svg"
    finish(figure, axes, "Partial and final aggregation, C: low sharing", path)
    return [path]


def plot_analysis(results: Path, out: Path) -> list[Path]:
    """Aggregations by formula, as in figures 4 and 10."""
    points = read_points(results)
    if not points:
        return []
    figure, panels = plt.subplots(1, len(RATES) + 1, figsize=(14, 4))
    for axes, rate in zip(panels, RATES, strict=False):
        _analysed(axes, [point for point in points if point.figure == 4 and point.rate == rate])
        each_hour = f"{rate:g} tuples a second" if rate > 1 else f"{rate * 3600:g} tuples an hour"
        axes.set(title=f"Slices, {each_hour} (figure 4)", xlabel="windows", ylabel="aggregations an hour")
    _analysed(panels[-1], [point for point in points if point.figure == 10])
    panels[-1].axvline(PAPER_FRAGMENTS, color="#7f7f7f", linestyle=":", label="the paper's workload")
    panels[-1].set(title="Fragments (figure 10)", xlabel="fragments", ylabel="aggregations in ten minutes")
    for axes in panels:
        axes.set(xscale="log", yscale="log")
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize="small")
    figure.tight_layout()
    path = out / "analysis.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return [path]


def _analysed(axes: Any, points: Sequence[Point]) -> None:
    for technique in dict.fromkeys(point.technique for point in points):
        line = [(point.x, point.total) for point in points if point.technique == technique]
        color = "#d62728" if technique.startswith("unshared") else "#1f77b4"
        style = "--" if technique.endswith("counted") else "-"
        axes.plot(*zip(*line, strict=True), color=color, linestyle=style, label=technique)


def main(given: Sequence[str] | None = None) -> None:
    """Draw the plots for which there are results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "transom"  # otherwise the ids differ from run to run
    for plotted in (plot_aggregation, plot_scale, plot_polars, plot_analysis):
        for path in plotted(options.results, options.out):
            print(path.name)


if __name__ == "__main__":
    main()
