"""Promising tuples compared with simple joins, selections and aggregates: `python -m reproduce promising`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from reproduce.plot import NO_PLOTS, can_draw
from reproduce.promising import costs, joins, selection
from reproduce.promising.bars import BUDGET, bars
from reproduce.promising.data import Stores, all_stores, generated
from reproduce.promising.plots import draw_figures
from reproduce.report import Options, write_tables
from reproduce.shared_aggregates.measures import Bar, Tables, markdown

SECONDS, SHORT = 180, 90  # the length of a pair of streams
QUERIES = 100
Rows = list[dict[str, Any]]


def run_promising(directory: Path, options: Options) -> list[Bar]:
    """Write tables and, if matplotlib is installed, plots; print the bars."""
    console = Console(stderr=True)
    results: Tables = {}
    started = monotonic()
    for name, rows in tables(options):
        results[name] = rows
        write_tables({f"promising_{name}": rows}, directory)
        console.print(f"{name}: {monotonic() - started:.1f} s", style="dim", highlight=False)
        started = monotonic()
    measured_bars = bars(results)
    (directory / "promising_bars.md").write_text(markdown(measured_bars), encoding="utf-8")
    records = [vars(bar) | {"met": bar.met} for bar in measured_bars]
    (directory / "promising_bars.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if can_draw():
        draw_figures(directory)
    else:
        console.print(NO_PLOTS, highlight=False)
    print(markdown(measured_bars), end="", flush=True)
    return measured_bars


def tables(options: Options) -> Iterator[tuple[str, Rows]]:
    """The tables of the experiments, one after the other."""
    every = list(all_stores(options, SHORT if options.short else SECONDS))
    yield "stores", [stores.as_row() for stores in every]
    yield "insertion", list(costs.insertion(options.short))
    yield "structures", list(costs.structures(options))
    yield "interarrival", list(costs.by_interarrival(options))
    yield "windows", list(costs.by_window(options))
    for name, rows in _experiments(options).items():
        yield name, [row for stores in every for row in rows(stores)]
    length = SHORT if options.short else SECONDS
    yield "settings", list(joins.settings(generated(length, seed=0), BUDGET, options.short))


def _experiments(options: Options) -> Mapping[str, Callable[[Stores], Iterator[dict[str, Any]]]]:
    """The experiments that run on every pair of stores."""
    budgets = (1, 10, 100) if options.short else joins.BUDGETS
    numbers = (20, 100, 200) if options.short else selection.QUERIES
    batch_rows = 10 * joins.BATCH if options.short else joins.BATCH
    shares = [percent / 100 for percent in budgets]
    return {
        **{name: _curve(name, budgets, batch_rows) for name in joins.PREFERENCES},
        "selection": lambda stores: selection.selection(stores, QUERIES, shares),
        "queries": lambda stores: selection.by_queries(stores, numbers),
        "aggregates": lambda stores: selection.aggregates(stores, QUERIES, budgets),
    }


def _curve(
    name: str, budgets: tuple[int, ...], batch_rows: int
) -> Callable[[Stores], Iterator[dict[str, Any]]]:
    return lambda stores: joins.curve(stores, name, budgets, batch_rows)
