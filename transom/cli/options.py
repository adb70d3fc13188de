"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from transom.cli.settings_table import ENGINE, SERVER, STREAM

HELP = {setting.name: setting.help for setting in SERVER + STREAM + ENGINE}

Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help=f"{HELP['master']}, such as spark://host:7077")
]
PipelineFile = Annotated[Path, typer.Argument(metavar="PIPELINE", help="the pipeline file, in YAML")]


def on_master(pipeline: Any, master: str | None) -> Any:
    """The pipeline on the master of the command line, which goes before the file's."""
    if master is not None:
        pipeline.engine["master"] = master
    return pipeline
