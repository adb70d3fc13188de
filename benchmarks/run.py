"""Run the experiments: `python -m benchmarks.run [--short] [--only NAME] [--out DIRECTORY]`.

The run appends rows to one CSV file per experiment and prints the bars at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.bars import BARS, Bar, resized
from benchmarks.experiments import EXPERIMENTS, FULL, SHORT, Bench
from benchmarks.rows import Row, append

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SHORT_RESULTS = ROOT / "artifacts" / "bench-short"  # not kept: a short run only checks that everything works


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small run of everything, for CI")
    parser.add_argument("--only", action="append", choices=list(EXPERIMENTS), help="may be given repeatedly")
    parser.add_argument("--out", type=Path, help="the directory for the CSV files")
    parser.add_argument("--data", type=Path, help="the directory for generated data")
    parser.add_argument("--seeds", type=int, help="the number of query sets of each size")
    parser.add_argument("--repeats", type=int, help="repetitions of each measurement; their median counts")
    parser.add_argument("--unshared", type=int, help="queries of a set that run unshared, to scale from")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the experiments and print the bars; fail if a bar cannot be computed, but not if it is missed."""
    options = arguments(given)
    scale = SHORT if options.short else FULL
    scale = replace(scale, seeds=options.seeds or scale.seeds)
    scale = replace(scale, repeats=options.repeats or scale.repeats)
    scale = replace(scale, unshared_queries=options.unshared or scale.unshared_queries)
    names = options.only or list(EXPERIMENTS)
    out = options.out or (SHORT_RESULTS if options.short else RESULTS)
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows: list[Row] = []
    with progress(len(names)) as (step, done):
        bench = Bench(scale, options.data, step)
        for name in names:
            for row in EXPERIMENTS[name](bench):
                rows.append(replace(row, run=started))
                append(out, rows[-1])
            done()
    bars = [resized(bar, scale.instead) for bar in BARS if bar.experiment in names]
    Console().print(shown(bars, rows, options.short))
    missing = [bar.what for bar in bars if bar.measured(rows) is None]
    for what in missing:
        print(f"not measured: {what}", file=sys.stderr)
    return 1 if missing else 0


def shown(bars: Sequence[Bar], rows: Sequence[Row], short: bool = False) -> Table:
    """A table of the bars, the measurements and the verdicts; a short run gives no verdicts."""
    title = "a short run of fewer queries and trades: no verdicts" if short else f"{os.cpu_count()} cores"
    table = Table("what", "bar", "measured", "", "queries", "reference", title=title)
    for bar in bars:
        measured = bar.measured(rows)
        if measured is None:
            verdict, value = "[yellow]not measured", "-"
        else:
            value = f"{measured:.3g}{bar.unit}"
            verdict = "computed" if short else "[green]met" if bar.met(measured) else "[red]missed"
        table.add_row(bar.what, bar.shown_limit(), value, verdict, bar.sizes(), bar.reference)
    return table


@contextmanager
def progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """A progress bar on stderr: yields a function that names the next step and one that counts an experiment."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def step(what: str) -> None:
            bar.update(task, description=what)
            if not console.is_terminal:
                console.print(what)

        yield step, lambda: bar.advance(task)


if __name__ == "__main__":
    sys.exit(main())
