"""The command `transom serve`: a pipeline's engine, the API and the dashboard in one process."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from transom.cli.options import HELP, Master, PipelineFile, on_master
from transom.cli.spinner import LOADING, spinner
from transom.errors import StateError


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
        bool,
        typer.Option(
            "--generate-token",
            help="require a new random token of the role admin, which is printed once on stderr",
        ),
    ] = False,
    read_token_file: Annotated[
        Path | None,
        typer.Option("--read-token-file", metavar="FILE", help="a file with a token of the role read"),
    ] = None,
    register_token_file: Annotated[
        Path | None,
        typer.Option(
            "--register-token-file", metavar="FILE", help="a file with a token of the role register"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="a further host name that leads to the server; repeatable"
        ),
    ] = None,
    dashboard: Annotated[
        bool | None,
        typer.Option("--dashboard/--no-dashboard", help=HELP["dashboard"]),
    ] = None,
    exit_on_failure: Annotated[
        bool,
        typer.Option(
            "--exit-on-failure",
            help="exit when the engine fails, instead of reporting the failure to clients",
        ),
    ] = False,
    master: Master = None,
) -> None:
    """Run a pipeline file with an HTTP API and a dashboard, until Ctrl-C.

    It listens on this machine only, unless --host names another address; that needs a token.
    If the file names a checkpoint, queries that users registered are still there after a restart.
    """
    with spinner(LOADING):
        from transom.cli.pipeline import load_pipeline
        from transom.server.settings import server_settings

    pipeline = on_master(load_pipeline(pipeline_file, served=True), master)
    files = {"read": read_token_file, "register": register_token_file}
    role_tokens = [
        {"name": role, "role": role, "token_file": str(file)}
        for role, file in files.items()
        if file is not None
    ]
    options = {
        "host": host,
        "port": port,
        "token_file": None if token_file is None else str(token_file),
        "tokens": [*pipeline.server.get("tokens", []), *role_tokens] if role_tokens else None,
        "hosts": [*pipeline.server.get("hosts", []), *allow_host] if allow_host else None,
        "dashboard": dashboard,
    }
    settings = server_settings(pipeline.server, options, generate_token)
    if generate_token:
        typer.echo(f"token: {settings.token}", err=True)

    # Importing Spark and the web server takes seconds, so usage errors are reported before that.
    with spinner(LOADING):
        from transom.cli.build_engine import built_engine
        from transom.cli.commands import (
            BACKEND_STOPPED,
            SIGNAL_SECONDS,
            STOP_POLL_SECONDS,
            backend_was_stopped,
            stop_requested,
        )
        from transom.cli.small_input import check_before_start
        from transom.server.lifecycle import HttpServer
        from transom.web_service import serve_engine

    http = HttpServer(settings)
    try:
        check_before_start(pipeline)
        typer.echo("starting the engine ...", err=True)
        with built_engine(pipeline, keep=True) as engine, stop_requested() as requested:
            service = serve_engine(http, engine, settings)
            typer.echo(f"transom serves at {http.url}")  # printed only when the engine is running
            lost_since = None  # a backend that ended long before the signal is a failure
            while not requested.wait(STOP_POLL_SECONDS) and not (exit_on_failure and service.failure):
                if lost_since is None and engine.lost_backend:
                    lost_since = monotonic()
            is_failure = lost_since is not None and monotonic() - lost_since > SIGNAL_SECONDS
            typer.echo("stopping after the current batch ...", err=True)
            http.stop()
            service.stop()
            was_stopped = not is_failure and backend_was_stopped(engine, requested)
    finally:
        http.stop()
    if was_stopped:
        typer.echo(BACKEND_STOPPED, err=True)
    elif service.failure is not None:
        raise StateError(f"the engine failed: {service.failure}")
