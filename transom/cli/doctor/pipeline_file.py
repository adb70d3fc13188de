"""Checks of a pipeline file: its settings, its queries as far as they can be bound without Spark, and its server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from transom.cli.doctor.finding import Finding, fine, problem, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.errors import TransomError
from transom.plan.explain.text_parts import counted
from transom.server.settings import ServerSettings, server_settings


def check_pipeline_file(subject: DoctorSubject) -> Iterator[Finding]:
    """The file, and what can be told about its streams and queries without Spark."""
    if subject.file is None:
        return
    if subject.pipeline is None:
        yield problem(
            "pipeline", str(subject.failure), "correct the file; docs/reference/settings.md has all settings"
        )
        return
    from transom.cli.small_input import check_without_spark

    try:
        check_without_spark(subject.pipeline)
    except (TransomError, OSError) as error:
        yield problem("pipeline", f"{subject.file}: {error}", "correct the file, and run transom check on it")
        return
    parts = ", ".join(
        (
            counted(len(subject.pipeline.streams), "stream"),
            counted(len(subject.pipeline.queries), "query", "queries"),
        )
    )
    yield fine("pipeline", f"{subject.file}: {parts}, fine as far as that can be told without Spark")


def check_server(subject: DoctorSubject) -> Iterator[Finding]:
    """The server's tokens, and whether its port is free."""
    section = {} if subject.pipeline is None else subject.pipeline.server
    if subject.failure is not None:
        return
    try:
        settings = server_settings(section, {"port": subject.port})
    except TransomError as error:
        yield problem("server", str(error), "correct the section server of the pipeline file")
        return
    yield _port_finding(settings)


def _port_finding(settings: ServerSettings) -> Finding:
    address = f"{settings.host}:{settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        return warning(
            "port",
            f"transom serve can't listen on {address}: {error.strerror or error}",
            "if another server runs there, nothing needs to be done; otherwise choose another --port",
        )
    return fine("port", f"{address} is free")
