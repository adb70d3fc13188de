"""The papers whose experiments can be reproduced, and the function that runs each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from reproduce.prodding.experiments import run_prodding
from reproduce.promising.engine.experiments import run_promising_engine
from reproduce.promising.experiments import run_promising
from reproduce.report import Options
from reproduce.shared_aggregates.ordered_sharing import run_ordered_sharing
from reproduce.shared_aggregates.timegram import run_timegram


class Paper(StrEnum):
    """A paper, by the name that the command line takes."""

    PRODDING = "prodding"
    TIMEGRAM = "timegram"
    ORDERED_SHARING = "ordered-sharing"
    PROMISING = "promising"
    PROMISING_ENGINE = "promising-engine"


def run_paper(paper: Paper, directory: Path, options: Options) -> None:
    """Run the experiments of a paper and write their tables to a directory."""
    match paper:
        case Paper.PRODDING:
            run_prodding(directory, options.with_one_seed_if_short())
        case Paper.TIMEGRAM:
            run_timegram(directory, options)
        case Paper.ORDERED_SHARING:
            run_ordered_sharing(directory, options)
        case Paper.PROMISING:
            run_promising(directory, options.with_one_seed_if_short())
        case Paper.PROMISING_ENGINE:
            run_promising_engine(directory, options.with_one_seed_if_short())
