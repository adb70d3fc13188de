"""The command `python -m reproduce PAPER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reproduce.papers import Paper, run_paper
from reproduce.report import Options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    paper: Annotated[Paper, typer.Argument(help="the paper whose experiments to run")],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="directory for CSV files, plots and the comparison")
    ] = Path("reproduced"),
    short: Annotated[
        bool, typer.Option("--short", help="use shorter streams, to check that the experiments run")
    ] = False,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, metavar="N", help="number of generated streams of each kind")
    ] = 3,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="directory of recorded streams; they are optional"),
    ] = None,
) -> None:
    """Run a paper's experiments, without Spark, and compare its findings with ours."""
    run_paper(paper, out, Options(seeds, short, data))


if __name__ == "__main__":
    app(prog_name="python -m reproduce")
