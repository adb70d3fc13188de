"""Lookups of on-demand queries: at the end of the data, and periodically while a pipeline runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
from rich.console import Console

from transom.cli.options import interval_seconds
from transom.cli.result_text import (
    Format,
    default_format,
    in_window_order,
    shorten_lookup,
    shorten_preference_query,
    without_system_columns,
    write_results,
)
from transom.errors import TransomError
from transom.runtime.engine import Engine
from transom.runtime.handles import QueryHandle


def final_answer(query: QueryHandle, full: bool, form: Format) -> pa.Table:
    """All results of a query, or the current answer of an on-demand query."""
    if query.has_preference:
        return (
            query.results() if full else shorten_preference_query(query.results())
        )  # in the order of discovery
    if query.on_demand:
        return in_window_order(query.lookup() if full else shorten_lookup(query.lookup(), form))
    return in_window_order(query.results() if full else without_system_columns(query.results()))


class PeriodicLookups:
    """Looks up the on-demand queries of a running engine and prints their answers to stdout."""

    def __init__(self, engine: Engine, form: Format | None, console: Console):
        self.engine = engine
        self.out = sys.stdout  # kept, since the progress display on a terminal replaces sys.stdout
        self.form, self.console = default_format(form, self.out), console
        self._printed = False

    def queries(self) -> Mapping[str, QueryHandle]:
        """The on-demand queries by name."""
        return {name: query for name, query in self.engine.queries().items() if query.on_demand}

    def print_answers(self) -> None:
        """Print the current answer of every query; an error goes to stderr."""
        answers = {}
        for name, query in self.queries().items():
            try:
                answers[name] = in_window_order(shorten_lookup(query.lookup(), self.form, with_time=True))
            except TransomError as error:
                self.console.print(f"{name}: {error}", style="red", highlight=False, markup=False)
        if self._printed and self.form is not Format.JSON:
            self.out.write("\n")
        write_results(answers, self.form, self.out, named=True)
        self.out.flush()
        self._printed = bool(answers)

    @contextmanager
    def running(self, every: str | None) -> Iterator[None]:
        """Look up at an interval while the block runs, and once more after it, unless it fails."""
        if every is not None and not self.queries():
            self.console.print("--lookup-every: the pipeline has no query without SLIDE", style="yellow")
        ended = threading.Event()
        thread = threading.Thread(target=self._repeat, args=(ended, interval_seconds(every)), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self.print_answers()

    def _repeat(self, ended: threading.Event, every: float | None) -> None:
        with suppress(OSError):  # the reader closed the pipe: the last lookup reports it
            while not ended.wait(every):
                self.print_answers()
