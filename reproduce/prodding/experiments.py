"""All experiments of the prodding thesis: `python -m reproduce prodding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from rich.console import Console

from reproduce.plot import NO_PLOTS, can_draw, draw_all
from reproduce.prodding import aggressiveness, bursts, delays, departures, overhead
from reproduce.prodding import closed_loop as loop
from reproduce.prodding import sideline_strategies as sidelining
from reproduce.report import Options, Report, markdown, write

EXPERIMENTS: Mapping[str, Callable[[Options], Report]] = {
    "overhead of prodding (4.2)": overhead.run,
    "delayed data (4.3.1)": delays.run,
    "bursts (4.3.2)": bursts.run,
    "aggressiveness (4.4)": aggressiveness.run,
    "burst processing (6.2)": sidelining.run,
    "real delays": departures.run,
    "accuracy loop": loop.run,
}


def run_prodding(directory: Path, options: Options) -> None:
    """Write tables and, if matplotlib is installed, plots; print the comparison."""
    console = Console(stderr=True)
    report = reproduce(options, directory, lambda line: console.print(line, style="dim", highlight=False))
    if can_draw():
        draw_all(directory, [name for name, rows in report.tables.items() if rows])
    else:
        console.print(NO_PLOTS, highlight=False)
    print(markdown(report.lines), end="", flush=True)


def reproduce(options: Options, directory: Path, say: Callable[[str], None]) -> Report:
    """Run every experiment, and write its tables when it is done."""
    report = Report()
    for name, run in EXPERIMENTS.items():
        started = monotonic()
        report = report + run(options)
        write(report, directory)
        say(f"{name}: {monotonic() - started:.1f} s")
    return report
