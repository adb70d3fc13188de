"""The options of the commands about alerts of a running server; the commands import their code when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from transom.api.conventions import DEFAULT_URL
from transom.cli.remote_options import ServerUrl, TokenFile


def alerts(
    events: Annotated[bool, typer.Option("--events", help="print the newest events instead")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="print the definitions instead")] = False,
    silences: Annotated[bool, typer.Option("--silences", help="print the silences instead")] = False,
    sinks: Annotated[
        bool, typer.Option("--sinks", help="print the sinks instead, with their queues")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print events as they come")] = False,
    alert: Annotated[str | None, typer.Option("--alert", metavar="NAME", help="only this alert")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="the largest number of events")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="print all fields, as JSON lines")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """List what fires and what is pending, or the events of alerts."""
    from transom.cli import alert_commands, remote_commands

    with remote_commands.connected(server, token_file) as connection:
        if follow:
            alert_commands.follow_events(connection, alert, as_json)
        elif events:
            alert_commands.print_events(connection, alert, limit, as_json)
        elif rules:
            alert_commands.print_rules(connection, as_json)
        elif silences:
            alert_commands.print_silences(connection, as_json)
        elif sinks:
            alert_commands.print_sinks(connection, as_json)
        else:
            alert_commands.print_alerts(connection, alert, as_json)


def silence(
    matchers: Annotated[
        list[str],
        typer.Argument(
            metavar="MATCHER", help="alert=NAME, COLUMN=VALUE, LABEL!=VALUE or COLUMN=~REGEX; all must match"
        ),
    ],
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="how long, as in '2 hours'")
    ] = "1 hour",
    comment: Annotated[str, typer.Option("--comment", metavar="TEXT", help="why")] = "",
    author: Annotated[
        str, typer.Option("--author", metavar="NAME", help="who (default: the name of the token)")
    ] = "",
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Silence alerts, and print the id of the silence.

    transom silence alert=busy site=7 --for "2 hours" --comment "known"
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        print(connection.alerting.silence(matchers, duration, author=author, comment=comment).id)


def unsilence(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="the silences")],
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """End silences."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        for id in ids:
            connection.alerting.unsilence(id)


ALERT_COMMANDS = (alerts, silence, unsilence)
