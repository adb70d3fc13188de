"""The options of the commands for a running server; the commands import their code when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transom.api.conventions import DEFAULT_URL
from transom.api.formats import ExportFormat, ResultKind
from transom.api.unit_text import units_from_text
from transom.cli.result_text import Format

ServerUrl = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TRANSOM_SERVER", help="the server's address")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="a file with the server's token (default: the variable TRANSOM_TOKEN, if it is set)",
    ),
]
OutputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="the output format (default: a table on a terminal, otherwise JSON)"),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="COLUMN=VALUE", help="only groups with this value; repeatable"),
]


def ps(
    streams: Annotated[
        bool, typer.Option("--streams", help="list the streams instead, with rates, lag and watermark")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print all fields, as JSON lines")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """List the queries, or the streams."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.print_status(connection, streams, as_json)


def register(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME] SQL", help="a name, if you want to choose it, and the query"),
    ] = None,
    sql_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--sql-file", metavar="FILE", help="a file with queries, separated by semicolons; repeatable"
        ),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="also report windows that began before the query joined, marked as not complete"
        ),
    ] = False,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="the value of :NAME in the query; repeatable"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="replay retained rows since then: '24 hours ago', or a time"
        ),
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Register queries, all or none of them, and print their names.

    transom register busy "SELECT site, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site"
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.register_queries(
            connection, words or [], sql_file or [], partial, parameter or [], since
        )


def drop(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Drop queries."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.drop_queries(connection, names)


def edit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the query")],
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="the new SQL")] = None,
    sql_file: Annotated[
        Path | None, typer.Option("--sql-file", metavar="FILE", help="a file with the new SQL")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="the value of :NAME in the query; repeatable"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="change nothing; only print what would happen")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Replace the SQL of a query, and print what happens to its open windows.

    transom edit busy "SELECT site, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site HAVING n > 9"
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.edit_text(connection, name, sql, sql_file, parameter or [], dry_run)


def rename(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the query")],
    to: Annotated[str, typer.Argument(metavar="NEW", help="its new name")],
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Rename a query; its results and open windows stay."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.rename_query(connection, name, to)


def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the query")],
    description: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="what the query is for (default: unchanged)")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="a tag; all tags of the query are replaced; repeatable"),
    ] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="remove all tags")] = False,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            "--unit",
            metavar="COLUMN=UNIT",
            help="the unit of a value, for charts; all units of the query are replaced; repeatable",
        ),
    ] = None,
    no_units: Annotated[bool, typer.Option("--no-units", help="remove all units")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Set the description, the tags and the units of a query; with the name alone, print them.

    transom describe busy "sites with many bids" --tag bids --tag sites --unit total=EUR
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.describe_query(
            connection,
            name,
            description,
            [] if no_tags else tag,
            {} if no_units else None if unit is None else units_from_text(unit),
        )


def pause(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Pause queries: until they are resumed, they read no rows; their open windows are dropped."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.pause_queries(connection, names)


def resume(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Let paused or suspended queries read rows again, from the next batch on."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.resume_queries(connection, names)


def tail(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="the queries")],
    from_start: Annotated[bool, typer.Option("--from-start", help="print the earlier results first")] = False,
    form: OutputFormat = None,
    full: Annotated[
        bool, typer.Option("--full", help="also print the system columns of each result")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Print results as they are made, until Ctrl-C."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.print_new_results(connection, names, from_start, form, full)


def prod(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="the queries (default: all)")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="NAME", help="only queries of this stream")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="only windows that end at this time or before"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="only the last window that ends at this time or before"),
    ] = None,
    where: WhereOption = None,
    form: OutputFormat = None,
    full: Annotated[
        bool, typer.Option("--full", help="also print the system columns of each result")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Print early results: the current values of open windows."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.print_early_results(
            connection, names or [], stream, until, at, where or [], form, full
        )


def lookup(
    name_or_sql: Annotated[str, typer.Argument(metavar="NAME|SQL", help="the name of a query, or its SQL")],
    range: Annotated[
        str | None, typer.Option("--range", metavar="DURATION", help="a shorter window than the query's")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="a shorter window than the query's, in rows")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            "--as-of",
            metavar="TIME",
            help="where the window ends; a window of the past needs a stream that retains its rows",
        ),
    ] = None,
    where: WhereOption = None,
    form: OutputFormat = None,
    full: Annotated[bool, typer.Option("--full", help="also print complete, batch and made")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Print the current answer of a query without SLIDE, or a past window of any query."""
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.print_answer(connection, name_or_sql, range, rows, at, where or [], form, full)


def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="the query")],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="PATH", help="a file, or a directory: the file gets the query's name"),
    ] = Path("."),
    form: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="the file's format (default: by the ending of --out, or csv)"),
    ] = None,
    kind: Annotated[ResultKind, typer.Option("--kind", help="which results to write")] = ResultKind.FINAL,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Write the results of a query to a file, as many as the server retains.

    transom export busy --format parquet
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.export_results(connection, name, out, form, kind)


def push(
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="a stream that the pipeline file declares with push: true")
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="a file of JSON lines or Parquet; without one, or with -, JSON lines from stdin",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, max=30, help="how long to wait until the rows are committed"
        ),
    ] = 30,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Push rows into a stream.

    transom push tx rows.jsonl
    """
    from transom.cli import remote_commands

    with remote_commands.connected(server, token_file) as connection:
        remote_commands.push_files(connection, stream, files or ["-"], wait)


QueryFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="a folder of .sql files, with one query in each")
]
FolderTag = Annotated[
    str | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="the tag of the queries that the folder manages (default: folder: and the folder's name)",
    ),
]


def plan(
    folder: QueryFolder,
    tag: FolderTag = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="also list queries that are not in the folder as dropped")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the changes as JSON")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Print what a folder of .sql files would change on a running server. Nothing is changed.

    The exit code is 3 if something would change, and 0 if nothing would.
    """
    from transom.cli import folder_commands, remote_commands

    with remote_commands.connected(server, token_file) as connection:
        folder_commands.print_changes(connection, folder, tag, prune, as_json)


def apply(
    folder: QueryFolder,
    tag: FolderTag = None,
    prune: Annotated[bool, typer.Option("--prune", help="drop queries that are not in the folder")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="make the changes without asking")] = False,
    server: ServerUrl = DEFAULT_URL,
    token_file: TokenFile = None,
) -> None:
    """Register, edit and describe queries of a running server as the .sql files of a folder have them.

    Only queries with the folder's tag are changed. The changes are printed first.
    """
    from transom.cli import folder_commands, remote_commands

    with remote_commands.connected(server, token_file) as connection:
        folder_commands.apply_folder(connection, folder, tag, prune, yes)


COMMANDS = (
    *(ps, register, edit, rename, describe, pause, resume, drop, tail, prod, lookup, export, push),
    *(plan, apply),
)
