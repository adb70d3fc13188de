"""The command `transom serve`: a pipeline's engine, the API and the dashboard in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transom.cli.options import HELP, Master, PipelineFile, on_master
from transom.errors import StateError

if TYPE_CHECKING:
    from transom.cli.pipeline import Pipeline
    from transom.server.settings import ServerSettings


def serve(
    pipeline_file: PipelineFile,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help=HELP["host"])] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, metavar="N", help=HELP["port"])
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help=HELP["token_file"])
    ] = None,
    generate_token: Annotated[
        bool, typer.Option("--generate-token", help="ask for a new token, which is shown once on stderr")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="another name by which it is reached; repeatable"),
    ] = None,
    dashboard: Annotated[
        bool | None,
        typer.Option("--dashboard/--no-dashboard", help="whether to serve the dashboard beside the API"),
    ] = None,
    exit_on_failure: Annotated[
        bool,
        typer.Option("--exit-on-failure", help="end when the engine fails, instead of telling those who ask"),
    ] = False,
    master: Master = None,
) -> None:
    """Serve a pipeline: its engine, an HTTP API and a dashboard in one process, until stopped.

    It listens on this machine only, unless told otherwise; beyond it, a token is needed. Queries that people
    register stay, with a checkpoint, when it is started again. Ctrl-C and SIGTERM stop it cleanly.
    """
    from transom.cli.pipeline import load_pipeline
    from transom.server.settings import server_settings

    pipeline = on_master(load_pipeline(pipeline_file, served=True), master)
    given = {
        "host": host,
        "port": port,
        "token_file": None if token_file is None else str(token_file),
        "hosts": [*pipeline.server.get("hosts", []), *allow_host] if allow_host else None,
        "dashboard": dashboard,
    }
    settings = server_settings(pipeline.server, given, generate_token)
    if generate_token:
        typer.echo(f"token: {settings.token}", err=True)
    run(pipeline, settings, exit_on_failure)


def run(pipeline: Pipeline, settings: ServerSettings, exit_on_failure: bool = False) -> None:
    """Serve until asked to stop, or until the engine fails. The address is told when it runs, not before."""
    from transom.cli.build_engine import building
    from transom.cli.commands import LOOK_EVERY, asked_to_stop
    from transom.server.lifecycle import HttpServer, serve_engine

    http = HttpServer(settings)
    typer.echo("starting Spark ...", err=True)
    try:
        with building(pipeline, keep=True) as engine, asked_to_stop() as asked:
            service = serve_engine(http, engine, settings)
            typer.echo(f"transom serves at {http.url}")
            while not asked.wait(LOOK_EVERY) and not (exit_on_failure and service.failure):
                pass
            typer.echo("stopping after the batch at hand ...", err=True)
            http.stop()
            service.stop()
    finally:
        http.stop()
    if service.failure is not None:
        raise StateError(f"the engine failed: {service.failure}")
