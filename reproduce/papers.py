"""Whose experiments there are: `transom reproduce PAPER`."""

from __future__ import annotations

from pathlib import Path

from reproduce.prodding.experiments import run_prodding
from reproduce.promising.experiments import run_promising
from reproduce.report import Options
from reproduce.shared_aggregates.ordered_sharing import run_ordered_sharing
from reproduce.shared_aggregates.timegram import run_timegram
from transom.cli.result_text import Paper


def run(paper: Paper, directory: Path, short: bool, seeds: int, data: Path | None) -> None:
    """Run a paper's experiments."""
    match paper:
        case Paper.PRODDING:
            run_prodding(directory, short, seeds, data)
        case Paper.TIMEGRAM:
            run_timegram(directory, Options(seeds, short))
        case Paper.ORDERED_SHARING:
            run_ordered_sharing(directory, Options(seeds, short))
        case Paper.PROMISING:
            run_promising(directory, Options(1 if short else seeds, short, data))
