"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from transom.cli.settings_table import ENGINE, SERVER, STREAM
from transom.durations import parse_duration
from transom.errors import SettingError

# What pipeline files can say and options can't is left out.
HELP = {setting.name: setting.help for setting in SERVER + STREAM + ENGINE} | {
    "slack": "how long to wait for rows that arrive out of order, such as '30 seconds'; a share of the rows such as "
    "99.9%: as long as it takes for this share; none: only "
    "punctuations close windows",
    "schema": "the columns, such as 'site int, price double, ts timestamp' (default: as the files have them)",
}

Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help=f"{HELP['master']}, such as spark://host:7077")
]
PipelineFile = Annotated[Path, typer.Argument(metavar="PIPELINE", help="the pipeline file, in YAML")]


def on_master(pipeline: Any, master: str | None) -> Any:
    """The pipeline with the master of the command line, which overrides the file's."""
    if master is not None:
        pipeline.engine["master"] = master
    return pipeline


def interval_seconds(every: str | None) -> float | None:
    """The value of --lookup-every, in seconds."""
    if every is None:
        return None
    try:
        micros = parse_duration(every)
    except SettingError as error:
        raise SettingError(f"--lookup-every: {error}") from None
    if micros <= 0:
        raise SettingError(f"--lookup-every {every}: the interval must be positive")
    return micros / 1e6
