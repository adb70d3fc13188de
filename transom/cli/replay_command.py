"""The command `transom replay`: deliver a recording by its timestamps and print results as they are made."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from transom.cli.adhoc_options import split_statements
from transom.cli.build_engine import open_engine
from transom.cli.commands import STOP_POLL_SECONDS, print_summary
from transom.cli.live_output import ResultPrinter
from transom.cli.pipeline import check_summaries
from transom.cli.result_text import Format, default_format
from transom.cli.spinner import spinner
from transom.errors import SettingError
from transom.sql.clauses.view import is_view_statement


def named_queries(sql: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """The queries of `--sql`, named q1, q2 and so on, and those of `--query NAME=SQL`."""
    texts = [statement for text in sql for statement in split_statements(text)]
    queries = {f"q{number}": text for number, text in enumerate(texts, 1)}
    for pair in named:
        name, equals, text = pair.partition("=")
        if not re.fullmatch(r"\w[\w.-]*", name.strip()) or not equals or not text.strip():
            raise SettingError(f"--query {pair}: write NAME=SQL")
        if name.strip() in queries:
            raise SettingError(f"--query {pair}: {name.strip()} is given twice")
        queries[name.strip()] = text
    if not queries:
        raise SettingError("give a query: --sql 'SELECT ...' or --query NAME='SELECT ...'")
    return queries


def stream_name(path: str) -> str:
    """The default name of a recording: its file's name up to the first dot.

    >>> stream_name("data/bids.json.gz"), stream_name("data/2013-bids/")
    ('bids', '_2013_bids')
    """
    stem = re.sub(r"\W", "_", Path(path).name.split(".")[0])
    return stem if stem and not stem[0].isdigit() else f"_{stem}"


def replay_recording(
    name: str,
    path: str,
    queries: Mapping[str, str],
    options: Mapping[str, Any],
    form: Format | None,
    full: bool,
    master: str | None,
    statements: Sequence[str] = (),
) -> None:
    """Deliver a recording to its end and print results; then close every window and print lookups."""
    form = default_format(form, sys.stdout)
    summaries = [text for text in statements if not is_view_statement(text)]
    check_summaries(summaries, [f"--summary {text}" for text in summaries])
    if form is not None and form.is_csv and len(queries) > 1:
        raise SettingError("CSV can print the results of only one query; use --format json for several")
    console, started = Console(stderr=True), monotonic()
    with spinner("Starting Spark"):
        engine = open_engine({} if master is None else {"master": master})
    try:
        recording = engine.replay(name, path, **options)
        for text in statements:
            engine.execute(text)
        printer = ResultPrinter(form, full, len(queries) > 1, sys.stdout)
        handles = engine.register_all(queries)
        for query_name, handle in handles.items():
            if not handle.on_demand:
                kind = "found" if handle.has_preference else None
                handle.subscribe(partial(printer.add, query_name, kind=kind))
        with _progress_bar(console) as progress:
            task = progress.add_task(name, total=recording.rows)
            engine.start()
            while not recording.finished and not engine.await_termination(STOP_POLL_SECONDS):
                progress.update(task, completed=recording.delivered)
                printer.check()
            engine.drain()
            progress.update(task, completed=recording.delivered)
        for query_name, handle in handles.items():
            if handle.on_demand:
                printer.add(query_name, handle.lookup(), kind="lookup")
        printer.check()
        print_summary(console, engine, monotonic() - started)
    finally:
        engine.stop()


def _progress_bar(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True)
