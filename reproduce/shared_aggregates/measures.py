"""The measurements of both algorithms of the paper on shared aggregates: tables, bars, plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from reproduce.plot import NO_PLOTS, can_draw, draw_responses
from reproduce.report import Options, Row, write_tables
from reproduce.shared_aggregates.responses import DATA, LARGEST, Workload, measured

RATIOS = (1, 2, 5, 10, 20, 50, 100)
QUERIES = (1, 2, 3, 4, 5, 6, 7, 8, 1000, 10_000)
MANY = (8, 1000, 10_000)  # numbers of queries for which the cost of a lookup is measured
REPEATED = 3  # runs of a short stream
PAPER = 8  # queries, of which the paper's system could not take more
# Of more queries than that, a system is given only so many tuples times queries: naive would take hours.
MOST_NAIVE, MOST, MOST_IF_SHORT = 20_000, 1_000_000, 100_000

Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Bar:
    """A measured number and, if there is one, the bound that it must meet."""

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
        """The bar as a line of a table."""
        bar = "" if self.met is None else f"{'at least' if self.least is not None else 'at most'} "
        bar += "".join(f"{limit:,.6g} {self.unit}" for limit in (self.least, self.most) if limit is not None)
        met = {None: "", True: "met", False: "missed"}[self.met]
        return self.what, bar, f"{self.measured:,.4g} {self.unit}", met


def markdown(bars: Sequence[Bar]) -> str:
    """The bars as a table."""
    lines = ["| what | bar | measured | |", "| --- | --- | ---: | --- |"]
    return "\n".join(lines + [f"| {' | '.join(bar.cells())} |" for bar in bars]) + "\n"


@dataclass(frozen=True)
class Experiment:
    """An algorithm, its tables, its bars and its figures."""

    name: str
    tables: Callable[[Options], Iterator[tuple[str, list[dict[str, Any]]]]]
    bars: Callable[[Tables], list[Bar]]
    figures: Mapping[str, tuple[str, str]]  # of a table, the column along the axis, and the title


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
            draw_responses(directory / f"{experiment.name}_{name}.csv", column, title)
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
    """Eight queries, and ever fewer lookups (figures 3 and 5)."""
    return [
        row
        for data in DATA
        for tuples in lengths(options)
        if tuples <= lengths(options)[0] or largest == LARGEST
        for ratio in (RATIOS[::3] if options.short else RATIOS)
        for row in measured(
            dict.fromkeys(systems, Workload(data, PAPER, ratio, tuples, functions, largest)),
            _seeds(tuples, options),
        )
    ]


def by_queries(systems: Sequence[str], options: Options) -> list[dict[str, Any]]:
    """A lookup of every query after every tuple, and ever more queries (figures 4, 6, 9 and 10)."""
    return [
        row
        for data in DATA
        for length in lengths(options)
        for queries in ((1, 4, PAPER, 1000) if options.short else QUERIES)
        if queries <= PAPER or length == lengths(options)[-1]  # of many, they are given as many tuples
        for row in measured(_workloads(systems, data, queries, 1, length, options), _seeds(length, options))
    ]


def by_lookup(systems: Sequence[str], options: Options) -> list[dict[str, Any]]:
    """The cost of one lookup: the time with lookups after every tuple minus the time without, per lookup."""
    rows: list[dict[str, Any]] = []
    length = 2000 if options.short else 10_000
    for data in DATA:
        for queries in MANY:
            looked, plain = (_workloads(systems, data, queries, ratio, length, options) for ratio in (1, 0))
            found = zip(*(measured(own, range(options.seeds)) for own in (looked, plain)), strict=True)
            for both, inserts in found:
                cost = 1e6 * (both["seconds"] - inserts["seconds"]) / looked[both["system"]].lookups
                rows.append(both | {"microseconds_per_lookup": round(cost, 4)})
    return rows


def _seeds(length: int, options: Options) -> list[int]:
    """Short streams are measured several times, because a few milliseconds are too short to time."""
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
    """How many of the tuples a system is given, if there are many queries."""
    most = MOST_NAIVE if system == "naive" else MOST_IF_SHORT if options.short else MOST
    return tuples if queries <= PAPER else min(tuples, most // queries)


def speedups(rows: Sequence[Row], slow: str, quick: str, **wanted: Any) -> list[float]:
    """How many times quicker one system is than another, tuple for tuple, in every workload they share."""
    costs: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            # Of many queries the systems are given different numbers of tuples.
            length = row["tuples"] if row["queries"] <= PAPER else 0
            workload = (
                *(row[key] for key in ("data", "functions", "largest_window", "queries", "ratio")),
                length,
            )
            costs.setdefault(workload, {})[row["system"]] = row["microseconds_per_tuple"]
    return [cost[slow] / cost[quick] for cost in costs.values() if slow in cost and quick in cost]


def common_bars(tables: Tables, system: str, title: str) -> list[Bar]:
    """The bars that both algorithms have; of several streams and lengths, the worst."""
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
