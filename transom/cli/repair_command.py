"""`transom repair`: what a checkpoint holds, and how to get past a batch that can't be completed."""

from __future__ import annotations

from typing import Annotated

import typer


def repair(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="the directory of the checkpoint")],
    suspend: Annotated[
        list[str] | None,
        typer.Option("--suspend", metavar="NAME", help="suspend this query or summary; repeatable"),
    ] = None,
    skip: Annotated[
        list[int] | None,
        typer.Option(
            "--skip",
            metavar="N",
            help="leave out the control element with this number in the list; repeatable",
        ),
    ] = None,
) -> None:
    """Show what the checkpoint of a stopped engine holds, and get past a batch that can't be completed."""
    from transom.runtime.repair import Repair

    opened = Repair(checkpoint)
    for name in suspend or []:
        opened.suspend(name)
    for number in sorted(set(skip or []), reverse=True):
        opened.skip(number)
    for line in opened.lines():
        print(line)
