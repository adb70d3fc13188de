"""The measurements of both algorithms of the paper on shared aggregates: tables, bars, plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from reproduce.plot import NO_PLOTS, can_draw, draw_response_times
from reproduce.report import Options, Row, write_tables
from reproduce.shared_aggregates.response_times import DATA, LARGEST, Workload, measure_systems

RATIOS = (1, 2, 5, 10, 20, 50, 100)
QUERIES = (1, 2, 3, 4, 5, 6, 7, 8, 1000, 10_000)
MANY = (8, 1000, 10_000)  # numbers of queries for which the cost of a lookup is measured
REPEATED = 3  # runs of a short stream
PAPER = 8  # queries; the paper's system could not run more
# With more queries, `tuples * queries` is limited to this product; otherwise the naive system would take hours.
MOST_NAIVE, MOST, MOST_IF_SHORT = 20_000, 1_000_000, 100_000

Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Bar:
    """A measured number and the bound that it must meet, if it has one."""

    what: str
    measured: float
    least: float | None = None
    most: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.measured >= self.least) and (
            self.most is None or self.measured <= self.most
        )

    def cells(self) -> tuple[str, str, str, str]:
        """The cells of the bar's row in a table."""
        bar = "" if self.met is None else f"{'at least' if self.least is not None else 'at most'} "
        bar += "".join(f"{limit:,.6g} {self.unit}" for limit in (self.least, self.most) if limit is not None)
        met = {None: "", True: "met", False: "missed"}[self.met]
        return self.what, bar, f"{self.measured:,.4g} {self.unit}", met


def markdown(bars: Sequence[Bar]) -> str:
    """The bars as a Markdown table."""
    lines = ["| what | bar | measured | |", "| --- | --- | ---: | --- |"]
    return "\n".join(lines + [f"| {' | '.join(bar.cells())} |" for bar in bars]) + "\n"


@dataclass(frozen=True)
class Experiment:
    """An algorithm, its tables, its bars and its figures."""

    name: str
    tables: Callable[[Options], Iterator[tuple[str, list[dict[str, Any]]]]]
    bars: Callable[[Tables], list[Bar]]
    figures: Mapping[str, tuple[str, str]]  # table name -> the column of the x-axis, the title


def run(experiment: Experiment, directory: Path, options: Options) -> list[Bar]:
    """Write tables and, if matplotlib is installed, plots; print the bars."""
    console = Console(stderr=True)
    tables: Tables = {}
    started = monotonic()
    for name, rows in experiment.tables(options):
        tables[name] = rows
        write_tables({f"{experiment.name}_{name}": rows}, directory)
        console.print(f"{name}: {monotonic() - started:.1f} s", style="dim", highlight=False)
        started = monotonic()
    bars = experiment.bars(tables)
    (directory / f"{experiment.name}_bars.md").write_text(markdown(bars), encoding="utf-8")
    if can_draw():
        for name, (column, title) in experiment.figures.items():
            draw_response_times(directory / f"{experiment.name}_{name}.csv", column, title)
    else:
        console.print(NO_PLOTS, highlight=False)
    print(markdown(bars), end="", flush=True)
    return bars


def by_ratio(
    systems: Sequence[str],
    options: Options,
    functions: tuple[str, ...] = ("max",),
    largest: int = LARGEST,
) -> list[dict[str, Any]]:
    """Response times of eight queries with fewer and fewer lookups per tuple (figures 3 and 5)."""
    return [
        row
        for data in DATA
        for tuples in lengths(options)
        if tuples <= lengths(options)[0] or largest == LARGEST
        for ratio in (RATIOS[::3] if options.short else RATIOS)
        for row in measure_systems(
            dict.fromkeys(systems, Workload(data, PAPER, ratio, tuples, functions, largest)),
            _seeds(tuples, options),
        )
    ]


def by_queries(systems: Sequence[str], options: Options) -> list[dict[str, Any]]:
    """Response times of more and more queries, each looked up after every tuple (figures 4, 6, 9 and 10)."""
    return [
        row
        for data in DATA
        for length in lengths(options)
        for queries in ((1, 4, PAPER, 1000) if options.short else QUERIES)
        if queries <= PAPER or length == lengths(options)[-1]  # `affordable` limits both lengths alike
        for row in measure_systems(
            _workloads(systems, data, queries, 1, length, options), _seeds(length, options)
        )
    ]


def by_lookup(systems: Sequence[str], options: Options) -> list[dict[str, Any]]:
    """The cost of one lookup: the time with lookups after every tuple minus the time without, per lookup."""
    rows: list[dict[str, Any]] = []
    length = 2000 if options.short else 10_000
    for data in DATA:
        for queries in MANY:
            with_lookups = _workloads(systems, data, queries, 1, length, options)
            inserts_only = _workloads(systems, data, queries, 0, length, options)
            seeds = range(options.seeds)
            for row, inserts in zip(
                measure_systems(with_lookups, seeds), measure_systems(inserts_only, seeds), strict=True
            ):
                lookups = with_lookups[row["system"]].lookups
                cost = 1e6 * (row["seconds"] - inserts["seconds"]) / lookups
                rows.append(row | {"microseconds_per_lookup": round(cost, 4)})
    return rows


def _seeds(length: int, options: Options) -> list[int]:
    """The seeds of the measured streams; short streams run several times, because milliseconds are hard to time."""
    return list(range(options.seeds)) * (1 if options.short or length > 1000 else REPEATED)


def _workloads(
    systems: Sequence[str], data: str, queries: int, ratio: int, length: int, options: Options
) -> dict[str, Workload]:
    return {
        system: Workload(data, queries, ratio, affordable(system, queries, length, options))
        for system in systems
    }


def lengths(options: Options) -> tuple[int, ...]:
    """As many tuples as in the paper, and ten times as many."""
    return (1000,) if options.short else (1000, 10_000)


def affordable(system: str, queries: int, tuples: int, options: Options) -> int:
    """How many of the tuples a system processes; fewer if there are many queries."""
    most = MOST_NAIVE if system == "naive" else MOST_IF_SHORT if options.short else MOST
    return tuples if queries <= PAPER else min(tuples, most // queries)


def speedups(rows: Sequence[Row], slow: str, quick: str, **wanted: Any) -> list[float]:
    """How many times faster per tuple one system is than another, for every workload that both ran."""
    costs: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            # With many queries, the systems process different numbers of tuples.
            length = row["tuples"] if row["queries"] <= PAPER else 0
            workload = (
                *(row[key] for key in ("data", "functions", "largest_window", "queries", "ratio")),
                length,
            )
            costs.setdefault(workload, {})[row["system"]] = row["microseconds_per_tuple"]
    return [cost[slow] / cost[quick] for cost in costs.values() if slow in cost and quick in cost]


def common_bars(tables: Tables, system: str, title: str) -> list[Bar]:
    """The bars that both algorithms have; each reports the worst of all streams and lengths."""
    bars = [
        Bar(
            f"{title} against naive, {PAPER} queries, ratio {ratio}:1",
            min(speedups(tables["ratios"], "naive", system, ratio=ratio)),
            least=least,
        )
        for ratio, least in ((1, 5), (10, 20))
    ]
    for name, label in ((system, title), ("exact", "exact")):
        bars.append(
            Bar(f"{label}: a lookup, {MANY[-1]:,} queries against {PAPER}", _growth(tables, name), most=2)
        )
    return bars


def _growth(tables: Tables, system: str) -> float:
    costs = {
        (row["data"], row["queries"]): row["microseconds_per_lookup"]
        for row in tables["lookups"]
        if row["system"] == system
    }
    return max(costs[data, MANY[-1]] / costs[data, PAPER] for data in DATA)
