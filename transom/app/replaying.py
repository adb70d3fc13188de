"""`transom replay`: a recording comes again, and results are printed as they come."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from transom.app.adhoc import split_statements
from transom.app.build import open_engine
from transom.app.commands import LOOK_EVERY, summary
from transom.app.looking import default_format
from transom.app.output import (
    SYSTEM_COLUMNS,
    Format,
    of_lookup,
    of_preferred,
    plain,
    without_system_columns,
    write,
)
from transom.app.pipeline import check_summaries
from transom.errors import SettingError

BARE = ("query", "kind", "window_start", "window_end")  # for people, values that need no name


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
                kind = "found" if handle.preferred else None
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


class Printer:
    """Prints results as they come, each marked as early or final; lookups, and what queries with a preference
    have found, marked so."""

    def __init__(self, form: Format, full: bool, several: bool, out: TextIO):
        self.form, self.full, self.several, self.out = form, full, several, out
        self._started = False
        self._error: OSError | None = None

    def add(self, name: str, results: pa.Table, kind: str | None = None) -> None:
        """Print a page's results of a query; called by the engine, which would only log an error."""
        try:
            self._print(name, results, kind)
            self.out.flush()
        except OSError as error:
            self._error = error

    def check(self) -> None:
        """Raise what went wrong in printing."""
        if self._error is not None:
            raise self._error

    def _print(self, name: str, results: pa.Table, kind: str | None) -> None:
        shown = results
        if kind is not None:
            kinds = pa.chunked_array([pa.repeat(kind, results.num_rows)])
            if not self.full:
                shown = of_lookup(results, self.form) if kind == "lookup" else of_preferred(results)
            shown = shown.add_column(0, "kind", kinds)
        elif not self.full:
            kinds = results.column(results.num_columns - SYSTEM_COLUMNS)
            shown = without_system_columns(results).add_column(0, "kind", kinds)
        if self.several:
            shown = shown.add_column(0, "query", pa.chunked_array([pa.repeat(name, results.num_rows)]))
        if self.form is Format.TABLE:
            self.out.writelines(lines(shown))
            return
        text = StringIO()
        write({name: shown}, self.form, text)
        header = self.form is Format.CSV and self._started
        self.out.write(text.getvalue().partition("\n")[2] if header else text.getvalue())
        self._started = True


def lines(results: pa.Table) -> Iterator[str]:
    """Results for people, one a line: who, which window, and every other value with its name."""
    for row in zip(*(column.to_pylist() for column in results.columns), strict=True):
        cells = []
        for name, value in zip(results.column_names, row, strict=True):
            text = "null" if value is None else plain(value)
            if isinstance(value, datetime):
                text = text.replace("T", " ").removesuffix("Z")
            cells.append(text if name in BARE else f"{name} {text}")
        yield "  ".join(cells) + "\n"
