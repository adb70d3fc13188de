"""Promising tuples in the engine, by processor time: `python -m reproduce promising-engine`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

from rich.console import Console

from reproduce.plot import NO_PLOTS, can_draw
from reproduce.promising.data import Stores, all_stores, generated
from reproduce.promising.engine.bars import engine_bars
from reproduce.promising.engine.joins import EngineJoin
from reproduce.promising.engine.plots import draw_engine_figures
from reproduce.promising.engine.selections import EngineSelections
from reproduce.promising.engine.structures import StructureRuns
from reproduce.promising.engine.time_budget import time_budget_rows
from reproduce.promising.engine.workloads import (
    join_workload,
    selection_workload,
    structure_workload,
    time_budget_workload,
)
from reproduce.report import Options, write_tables
from reproduce.shared_aggregates.measures import Bar, Tables, markdown

PREFIX = "promising_engine_"
Rows = list[dict[str, Any]]


def run_promising_engine(directory: Path, options: Options) -> list[Bar]:
    """Write tables and, if matplotlib is installed, plots; print the bars."""
    console = Console(stderr=True)
    results: Tables = {}
    warm_up()
    started = process_time()
    for name, rows in engine_tables(options):
        results[name] = rows
        write_tables({f"{PREFIX}{name}": rows}, directory)
        console.print(f"{name}: {process_time() - started:.1f} s", style="dim", highlight=False)
        started = process_time()
    measured_bars = engine_bars(results)
    (directory / f"{PREFIX}bars.md").write_text(markdown(measured_bars), encoding="utf-8")
    records = [vars(bar) | {"met": bar.met} for bar in measured_bars]
    (directory / f"{PREFIX}bars.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if can_draw():
        draw_engine_figures(directory, directory)
    else:
        console.print(NO_PLOTS, highlight=False)
    print(markdown(measured_bars), end="", flush=True)
    return measured_bars


def warm_up() -> None:
    """Run a small join, so that imports and first calls are not measured."""
    workload = join_workload(short=True)
    for figure in workload.figures.values():
        list(EngineJoin(generated(20, 0), figure, workload).rows())


def engine_tables(options: Options) -> Iterator[tuple[str, Rows]]:
    """The tables of the experiments, one after the other."""
    structures = structure_workload(options.short)
    every = list(all_stores(options, structures.seconds, structures.interarrival_s))
    runs = [StructureRuns(stores, structures) for stores in every]
    yield "structures", [row for one in runs for row in one.costs()]
    seeded = [one for one in runs if one.stores.name == "generated"]
    yield "interarrival", [row for one in seeded for row in one.by_time()]
    yield "windows", [row for one in seeded for row in one.by_window()]

    joins = join_workload(options.short)
    every = list(all_stores(options, joins.seconds, joins.interarrival_s))
    yield "stores", [stores.as_row() for stores in every]
    for name, figure in joins.figures.items():
        yield name, [row for stores in every for row in EngineJoin(stores, figure, joins).rows()]

    yield from _selection_tables(options)
    timed = time_budget_workload(options.short)
    yield "time_budget", list(time_budget_rows(timed, options.seeds))


def _selection_tables(options: Options) -> Iterator[tuple[str, Rows]]:
    workload = selection_workload(options.short)
    every: list[Stores] = list(all_stores(options, workload.seconds, workload.interarrival_s))
    selections = [EngineSelections(stores, workload.queries, workload) for stores in every]
    budgets = (*workload.budgets_percent, None)
    yield "selection", [row for one in selections for row in one.selection_rows(budgets)]
    some_budgets = (workload.numbers_budget_percent, None)
    yield (
        "queries",
        [
            row
            for stores in every
            for queries in workload.numbers_of_queries
            for row in EngineSelections(stores, queries, workload).selection_rows(some_budgets)
        ],
    )
    yield "aggregates", [row for one in selections for row in one.aggregate_rows()]
