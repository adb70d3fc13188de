"""Lookups in the shell: at the end of the data, and now and then while a pipeline runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa
from rich.console import Console

from transom.cli.result_text import (
    Format,
    arranged,
    of_lookup,
    of_preference_query,
    without_system_columns,
    write,
)
from transom.durations import parse_duration
from transom.errors import SettingError, TransomError

if TYPE_CHECKING:
    from transom.runtime.engine import Engine
    from transom.runtime.handles import QueryHandle


def answer(query: QueryHandle, full: bool, form: Format) -> pa.Table:
    """What a query has to tell at the end: all its results, or if it is on demand the answer now."""
    if query.has_preference:
        return (
            query.results() if full else of_preference_query(query.results())
        )  # in the order they were found
    if query.on_demand:
        return arranged(query.lookup() if full else of_lookup(query.lookup(), form))
    return arranged(query.results() if full else without_system_columns(query.results()))


def default_format(form: Format | None, out: TextIO) -> Format:
    """The format that was asked for, or what suits the reader: a table for people, JSON for programs."""
    return form or (Format.TABLE if out.isatty() else Format.JSON)


class Looking:
    """The on-demand queries of a pipeline that runs; their answers go to stdout."""

    def __init__(self, engine: Engine, form: Format | None, console: Console):
        self.engine = engine
        self.out = sys.stdout  # progress on a terminal puts another in its place
        self.form, self.console = default_format(form, self.out), console
        self._looked = False

    def queries(self) -> Mapping[str, QueryHandle]:
        return {name: query for name, query in self.engine.queries().items() if query.on_demand}

    def look(self) -> None:
        """Print what every query is answered now; one that can't be is told on stderr."""
        found = {}
        for name, query in self.queries().items():
            try:
                found[name] = arranged(of_lookup(query.lookup(), self.form, when=True))
            except TransomError as error:
                self.console.print(f"{name}: {error}", style="red", highlight=False, markup=False)
        if self._looked and self.form is not Format.JSON:
            self.out.write("\n")
        write(found, self.form, self.out, named=True)
        self.out.flush()
        self._looked = bool(found)

    @contextmanager
    def meanwhile(self, every: str | None) -> Iterator[None]:
        """Look now and then, from a thread of its own, and once more at the end unless that is a failure."""
        if every is not None and not self.queries():
            self.console.print("--lookup-every: no query of the pipeline is without SLIDE", style="yellow")
        ended = threading.Event()
        thread = threading.Thread(target=self._look_on, args=(ended, seconds_of(every)), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self.look()

    def _look_on(self, ended: threading.Event, every: float | None) -> None:
        with suppress(OSError):  # whoever reads has gone: the last look says so
            while not ended.wait(every):
                self.look()


def seconds_of(every: str | None) -> float | None:
    """An interval between lookups, in seconds."""
    if every is None:
        return None
    try:
        micros = parse_duration(every)
    except SettingError as error:
        raise SettingError(f"--lookup-every: {error}") from None
    if micros <= 0:
        raise SettingError(f"--lookup-every {every}: an interval is positive")
    return micros / 1e6
