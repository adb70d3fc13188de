"""The commands that ask a running server; what they do is imported when they do it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transom.cli.result_text import Format

URL = "http://127.0.0.1:8710"

At = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TRANSOM_SERVER", help="where `transom serve` runs")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="holds the server's token (default: TRANSOM_TOKEN's)"),
]
Form = Annotated[
    Format | None,
    typer.Option("--format", help="how to print (default: for people on a terminal, otherwise JSON)"),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="COLUMN=VALUE", help="a pattern on the groups; repeatable"),
]


def ps(
    streams: Annotated[
        bool, typer.Option("--streams", help="the streams: their rates, lag and watermark")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="all that is known, as JSON lines")] = False,
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """List the queries of a running server, or its streams."""
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.ps(connected, streams, as_json)


def register(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME] SQL", help="what to call it, and the query")
    ] = None,
    sql_file: Annotated[
        list[Path] | None,
        typer.Option("--sql-file", metavar="FILE", help="queries from a file, with ; between; repeatable"),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="also report windows that it sees only in part")
    ] = False,
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """Register queries with a running server, all or none of them, and print their names.

    transom register busy "SELECT site, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site"
    """
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.register(connected, words or [], sql_file or [], partial)


def drop(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """Let queries of a running server leave."""
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.drop(connected, names)


def tail(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    from_start: Annotated[
        bool, typer.Option("--from-start", help="what there is already, too, and not only what comes")
    ] = False,
    form: Form = None,
    full: Annotated[
        bool, typer.Option("--full", help="also print when each result was made, and of how much")
    ] = False,
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """Print results of a running server's queries as they come, until Ctrl-C."""
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.tail(connected, names, from_start, form, full)


def prod(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="the queries (default: all)")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="NAME", help="of one stream's queries only")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="of the windows that end by then")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="of the last window that ends by then")
    ] = None,
    where: Where = None,
    form: Form = None,
    full: Annotated[
        bool, typer.Option("--full", help="also print when each result was made, and of how much")
    ] = False,
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """Print early results of a running server: what is known now of open windows."""
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.prod(connected, names or [], stream, until, at, where or [], form, full)


def lookup(
    asked: Annotated[str, typer.Argument(metavar="NAME|SQL", help="a query without SLIDE, or its text")],
    range: Annotated[
        str | None, typer.Option("--range", metavar="DURATION", help="a shorter window than its own")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="the same, of a window of rows")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="let the window end later than the newest row")
    ] = None,
    where: Where = None,
    form: Form = None,
    full: Annotated[bool, typer.Option("--full", help="also print complete, batch and made")] = False,
    server: At = URL,
    token_file: TokenFile = None,
) -> None:
    """Print the answer now of a running server's query without SLIDE."""
    from transom.cli import remote

    with remote.connected(server, token_file) as connected:
        remote.lookup(connected, asked, range, rows, at, where or [], form, full)


COMMANDS = (ps, register, drop, tail, prod, lookup)
