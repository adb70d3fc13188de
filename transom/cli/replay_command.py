"""`transom replay`: a recording comes again, and results are printed as they come."""

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
from transom.cli.commands import LOOK_EVERY, summary
from transom.cli.live_output import Printer
from transom.cli.lookups import default_format
from transom.cli.pipeline import check_summaries
from transom.cli.result_text import Format
from transom.errors import SettingError


def named_queries(sql: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """The queries of `--sql` as q1, q2 and so on, and those of `--query NAME=SQL` by their names."""
    texts = [statement for text in sql for statement in split_statements(text)]
    found = {f"q{number}": text for number, text in enumerate(texts, 1)}
    for pair in named:
        name, equals, text = pair.partition("=")
        if not re.fullmatch(r"\w[\w.-]*", name.strip()) or not equals or not text.strip():
            raise SettingError(f"--query {pair}: write NAME=SQL")
        if name.strip() in found:
            raise SettingError(f"--query {pair}: {name.strip()} is given twice")
        found[name.strip()] = text
    if not found:
        raise SettingError("give a query: --sql 'SELECT ...' or --query NAME='SELECT ...'")
    return found


def stream_name(path: str) -> str:
    """What a recording is called unless it is given a name: its file's, up to the first dot.

    >>> stream_name("data/bids.json.gz"), stream_name("data/2013-bids/")
    ('bids', '_2013_bids')
    """
    stem = re.sub(r"\W", "_", Path(path).name.split(".")[0])
    return stem if stem and not stem[0].isdigit() else f"_{stem}"


def replay(
    name: str,
    path: str,
    queries: Mapping[str, str],
    options: Mapping[str, Any],
    form: Format | None,
    full: bool,
    master: str | None,
    summaries: Sequence[str] = (),
) -> None:
    """Deliver a recording by its times until it ends, print results, close every window, print lookups."""
    form = default_format(form, sys.stdout)
    check_summaries(summaries, [f"--summary {text}" for text in summaries])
    if form is Format.CSV and len(queries) > 1:
        raise SettingError("results that come together are of one query in CSV; --format json has any number")
    console, started = Console(stderr=True), monotonic()
    engine = open_engine({} if master is None else {"master": master})
    try:
        recording = engine.replay(name, path, **options)
        for text in summaries:
            engine.execute(text)
        printer = Printer(form, full, len(queries) > 1, sys.stdout)
        handles = engine.register_all(queries)
        for own, handle in handles.items():
            if not handle.on_demand:
                kind = "found" if handle.has_preference else None
                handle.subscribe(partial(printer.add, own, kind=kind))
        with _bar(console) as progress:
            task = progress.add_task(name, total=recording.rows)
            engine.start()
            while not recording.finished and not engine.await_termination(LOOK_EVERY):
                progress.update(task, completed=recording.delivered)
                printer.check()
            engine.drain()
            progress.update(task, completed=recording.delivered)
        for own, handle in handles.items():
            if handle.on_demand:
                printer.add(own, handle.lookup(), kind="lookup")
        printer.check()
        summary(console, engine, monotonic() - started)
    finally:
        engine.stop()


def _bar(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True)
