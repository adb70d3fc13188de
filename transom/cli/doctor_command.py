"""The options of `transom doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    pipeline_file: Annotated[
        Path | None, typer.Argument(metavar="PIPELINE", help="a pipeline file to check, too")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="a checkpoint to check (default: the pipeline's)"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, metavar="N", help="the port of the server (default: the pipeline's)"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
) -> None:
    """Check the installation, a pipeline file and a checkpoint, and say what to do. Nothing is started or changed.

    The exit code is 1 if there is a problem.
    """
    from transom.cli.doctor.report import examined, findings_json, findings_text, has_problem
    from transom.cli.doctor.subject import DoctorSubject

    findings = examined(DoctorSubject.of(pipeline_file, checkpoint, port))
    typer.echo(findings_json(findings) if as_json else findings_text(findings))
    if has_problem(findings):
        raise typer.Exit(1)
