"""The command line: `transom query`, `run`, `serve`, `replay`, `explain`, `demo`, `doctor`, and the commands
for a running server.

Only results go to stdout; progress, warnings and the summary go to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import transom
from transom.api.formats import PlanFormat
from transom.cli import alert_options, remote_options
from transom.cli.backend_choice import BackendChoice
from transom.cli.doctor_command import doctor
from transom.cli.options import HELP, Master, PipelineFile, interval_seconds, on_master
from transom.cli.repair_command import repair
from transom.cli.result_text import Format
from transom.cli.serve_command import serve
from transom.cli.spinner import LOADING, spinner
from transom.errors import SettingError, SQLError, TransomError
from transom.extras import extra_needed

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
LOCAL_PANEL, SERVER_PANEL = "Commands that run queries", "Commands for a running server (transom serve)"

_debug = False  # set by --debug

app = typer.Typer(
    name="transom",
    help="Many standing window-aggregate SQL queries over one stream, answered in a single pass, on Spark. "
    "Begin with `transom demo`, or with `transom query` over a file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 finished, or stopped by Ctrl-C or SIGTERM where a command runs until then; 1 failed; "
    "2 wrong usage, SQL or pipeline file, nothing was run; 130 interrupted.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"transom {transom.__version__}")
        raise typer.Exit()


@app.callback()
def global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command."""
    global _debug
    _debug = debug


def with_exit_codes(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with errors reported as a message on stderr and an exit code."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            with extra_needed("this command"):
                command(*args, **kwargs)
        except typer.Exit:
            raise
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(OK) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if _debug:
                raise
            typer.echo(f"error: {_message(error)}", err=True)
            raise typer.Exit(USAGE if isinstance(error, (SQLError, SettingError)) else FAILED) from None

    return wrapper


def _message(error: Exception) -> str:
    """The message of an error; only the first line if it is not Transom's, since it may hold a Java stack trace."""
    if isinstance(error, TransomError):
        return str(error)
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first} (transom --debug ... shows the traceback)"


def _silence_stdout() -> None:
    """Discard further output after the reader closed the pipe; Python would report an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


SummaryStatements = Annotated[
    list[str] | None,
    typer.Option(
        "--summary", metavar="SQL", help="a CREATE SUMMARY statement, for queries WITH PREFERENCE; repeatable"
    ),
]


def _per_stream(name: str, metavar: str) -> Any:
    """An option for all streams (`--time ts`) or for one of them (`--time bids=ts`)."""
    return typer.Option(f"--{name.replace('_', '-')}", metavar=f"[STREAM=]{metavar}", help=HELP[name])


@app.command(rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def query(
    sql: Annotated[
        list[str] | None,
        typer.Argument(metavar="SQL", help="the queries, each in quotes; several share one pass"),
    ] = None,
    sql_file: Annotated[
        list[Path] | None,
        typer.Option("--sql-file", metavar="FILE", help="a file with queries, separated by semicolons"),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="STREAM=PATH",
            help="a stream: its name in queries, and a file, a directory or a pattern with *",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="TABLE=PATH", help="a static table that queries can join: its name, and a file"
        ),
    ] = None,
    summary: SummaryStatements = None,
    time: Annotated[list[str] | None, _per_stream("time", "COLUMN")] = None,
    time_unit: Annotated[list[str] | None, _per_stream("time_unit", "UNIT")] = None,
    slack: Annotated[list[str] | None, _per_stream("slack", "DURATION|SHARE")] = None,
    slack_start: Annotated[list[str] | None, _per_stream("slack_start", "DURATION")] = None,
    slack_min: Annotated[list[str] | None, _per_stream("slack_min", "DURATION")] = None,
    slack_max: Annotated[list[str] | None, _per_stream("slack_max", "DURATION")] = None,
    partition: Annotated[list[str] | None, _per_stream("partition", "EXPRESSION")] = None,
    watermark_by: Annotated[list[str] | None, _per_stream("watermark_by", "COLUMN")] = None,
    horizon: Annotated[list[str] | None, _per_stream("horizon", "DURATION")] = None,
    max_ahead: Annotated[list[str] | None, _per_stream("max_ahead", "DURATION")] = None,
    schema: Annotated[list[str] | None, _per_stream("schema", "COLUMNS")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="[STREAM=]KEY=VALUE",
            help="an option of Spark's reader, such as 'timestampFormat=M/d/yyyy H:mm:ss'; repeatable",
        ),
    ] = None,
    punctuation: Annotated[list[str] | None, _per_stream("punctuation", "EXPRESSION")] = None,
    files_per_batch: Annotated[list[str] | None, _per_stream("files_per_batch", "N")] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="the output format: a table, JSON lines or CSV (default: a table on a terminal, otherwise JSON)",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="write the results to a file instead of stdout"),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="also print the system columns of each result: kind, complete, rows, late, batch, made, latency",
        ),
    ] = False,
    late: Annotated[
        Path | None,
        typer.Option("--late", metavar="FILE", help="write late and rejected rows to a file, as JSON lines"),
    ] = None,
    backend: Annotated[
        BackendChoice,
        typer.Option(
            "--backend",
            help="local: in this process, without Spark, which starts faster; auto: local for small files if the "
            "answers are the same, otherwise spark",
        ),
    ] = BackendChoice.AUTO,
    master: Master = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="print the plan of the queries instead of running them")
    ] = False,
) -> None:
    """Run queries over files and print the results.

    Options with [STREAM=] hold for all streams, or for one: --time ts --time asks=asked_at.
    A query without SLIDE is looked up once, at the end of the input.

    transom query "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    --from bids=bids.json --time ts --slack '30 seconds'
    """
    with spinner(LOADING):
        from transom.cli.adhoc_options import read_adhoc

    per_stream = {
        "time": time,
        "time_unit": time_unit,
        "slack": slack,
        "slack_start": slack_start,
        "slack_min": slack_min,
        "slack_max": slack_max,
        "partition": partition,
        "watermark_by": watermark_by,
        "horizon": horizon,
        "max_ahead": max_ahead,
        "schema": schema,
        "punctuation": punctuation,
        "files_per_batch": files_per_batch,
    }
    pipeline = read_adhoc(
        sql or [],
        sql_file or [],
        streams or [],
        tables or [],
        per_stream,
        option or [],
        master,
        summary or [],
    )
    # This takes half a second more, so usage errors are reported before.
    with spinner(LOADING):
        from transom.cli import commands

    if explain:
        commands.print_adhoc_plan(pipeline, backend)
    else:
        commands.run_to_end(pipeline, backend, form, out, full, late)


@app.command(rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def run(
    pipeline_file: PipelineFile,
    master: Master = None,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="stop at the end of the input, instead of waiting for more"),
    ] = False,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="show progress on stderr while running")
    ] = True,
    lookup_every: Annotated[
        str | None,
        typer.Option(
            "--lookup-every",
            metavar="DURATION",
            help="look up queries without SLIDE at this interval, too, and not only at the end",
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="the format of lookups (default: a table on a terminal, otherwise JSON)"
        ),
    ] = None,
) -> None:
    """Run the streams, tables, queries and sinks of a pipeline file until Ctrl-C.

    Ctrl-C and SIGTERM stop it after the current batch.
    If the file names a checkpoint, the next run continues there.
    Queries without SLIDE are looked up at the end, and their answers are printed.
    """
    with spinner(LOADING):
        from transom.cli.pipeline import load_pipeline

    interval_seconds(lookup_every)  # raises if it is wrong, before Spark is started
    pipeline = on_master(load_pipeline(pipeline_file), master)

    with spinner(LOADING):
        from transom.cli import commands

    commands.run_pipeline(pipeline, drain, progress, lookup_every, form)


app.command(rich_help_panel=LOCAL_PANEL)(with_exit_codes(serve))


@app.command(rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def replay(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="the recording: a file, a directory or a pattern with *")
    ],
    time: Annotated[str, typer.Option("--time", metavar="COLUMN", help=HELP["time"])],
    sql: Annotated[
        list[str] | None,
        typer.Option(
            "--sql",
            metavar="SQL",
            help="a query, or a CREATE VIEW statement; queries are named q1, q2, ...; repeatable",
        ),
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option("--query", metavar="NAME=SQL", help="a query with a name; repeatable")
    ] = None,
    summaries: SummaryStatements = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="STREAM", help="the name of the stream in queries (default: the file's name)"
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="FACTOR", help="how many times faster than recorded")
    ] = 1.0,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="DURATION", help="delay each row at random by up to this much"),
    ] = None,
    delays: Annotated[
        str,
        typer.Option(
            "--delays",
            metavar="KIND",
            help="how --delay is drawn: uniform, or exponential with --delay as the mean",
        ),
    ] = "uniform",
    burst: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--burst",
            metavar="EVERY FOR",
            help="two durations: hold back the last FOR of each EVERY, and deliver it at once",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="the seed of the random delays")] = 0,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="leave out rows that were recorded before this time"),
    ] = None,
    slack: Annotated[
        str, typer.Option("--slack", metavar="DURATION|SHARE", help=HELP["slack"])
    ] = "0 seconds",
    schema: Annotated[str | None, typer.Option("--schema", metavar="COLUMNS", help=HELP["schema"])] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="an option of Spark's reader")
    ] = None,
    punctuation: Annotated[
        str | None, typer.Option("--punctuation", metavar="EXPRESSION", help=HELP["punctuation"])
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="a line per result, JSON lines or CSV")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="also print the system columns of each result")
    ] = False,
    master: Master = None,
) -> None:
    """Play a recorded stream at the pace of its timestamps, or faster, and print results as they are made.

    transom replay bids.json --time ts --speed 60
    --sql "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] EMIT EARLY AT 50% OF SLIDE"
    """
    with spinner(LOADING):
        from transom.cli.adhoc_options import read_replay
        from transom.sql.clauses.view import is_view_statement

    options = read_replay(
        path,
        {"time": time, "slack": slack, "schema": schema, "punctuation": punctuation},
        {"speed": speed, "delay": delay, "delays": delays, "burst": burst, "seed": seed, "start": start},
        option or [],
    )
    with spinner(LOADING):
        from transom.cli import replay_command

    views = [text for text in sql or [] if is_view_statement(text)]
    queries = replay_command.named_queries([text for text in sql or [] if text not in views], query or [])
    stream = name or replay_command.stream_name(path)
    replay_command.replay_recording(
        stream, path, queries, options, form, full, master, [*views, *(summaries or [])]
    )


@app.command("check", rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def check_file(pipeline_file: PipelineFile) -> None:
    """Find mistakes in a pipeline file without running it: in paths, streams, tables, views, queries and sinks."""
    with spinner(LOADING):
        from transom.cli.pipeline import load_pipeline

    pipeline = load_pipeline(pipeline_file)

    with spinner(LOADING):
        from transom.cli import commands

    commands.check_pipeline(pipeline)


@app.command(rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def explain(
    pipeline_file: PipelineFile,
    form: Annotated[
        PlanFormat, typer.Option("--format", help="text for people, JSON for programs, or a Mermaid diagram")
    ] = PlanFormat.TEXT,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="also show every family, selection and query, and the decisions of each pass"
        ),
    ] = False,
    master: Master = None,
) -> None:
    """Print how the queries of a pipeline file would be computed, and what they share."""
    with spinner(LOADING):
        from transom.cli.pipeline import load_pipeline

    pipeline = on_master(load_pipeline(pipeline_file), master)

    with spinner(LOADING):
        from transom.cli import commands

    commands.print_plan(pipeline, form, verbose)


@app.command(rich_help_panel=LOCAL_PANEL)
@with_exit_codes
def demo(
    queries: Annotated[int, typer.Option("--queries", min=1, metavar="N", help="the number of queries")] = 52,
    days: Annotated[
        int, typer.Option("--days", min=1, max=365, metavar="N", help="the number of days of 2013")
    ] = 7,
    keep_running: Annotated[
        bool | None,
        typer.Option(
            "--keep-running/--once",
            help="whether to go on until Ctrl-C, year after year, or to end after --days (default: go on if "
            "this is a terminal)",
        ),
    ] = None,
    master: Master = None,
) -> None:
    """Play real flights, with their delays, through dozens of queries, and show them on the dashboard."""
    with spinner(LOADING):
        from transom.cli.demo import run_demo

    run_demo(queries, days, keep_running, master)


app.command(rich_help_panel=LOCAL_PANEL)(with_exit_codes(repair))
app.command(rich_help_panel=LOCAL_PANEL)(with_exit_codes(doctor))
for command in (*remote_options.COMMANDS, *alert_options.ALERT_COMMANDS):
    app.command(rich_help_panel=SERVER_PANEL)(with_exit_codes(command))


def main(arguments: list[str] | None = None) -> None:
    """The entry point of the `transom` script."""
    app(arguments)
