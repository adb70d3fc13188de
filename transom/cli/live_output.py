"""Results printed as they come: a line each for people, JSON lines or CSV for programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import TextIO

import pyarrow as pa

from transom.api.value_text import plain_text
from transom.cli.result_text import (
    SYSTEM_COLUMNS,
    Format,
    of_lookup,
    of_preference_query,
    without_system_columns,
    write,
)

BARE = ("query", "kind", "window_start", "window_end")  # for people, values that need no name


class Printer:
    """Prints results as they come, each marked as early or final; lookups, and what queries with a preference
    have found, marked so."""

    def __init__(self, form: Format, full: bool, several: bool, out: TextIO):
        self.form, self.full, self.several, self.out = form, full, several, out
        self._started = False
        self._error: OSError | None = None

    def add(self, name: str, results: pa.Table, kind: str | None = None) -> None:
        """Print a batch's results of a query; called by the engine, which would only log an error."""
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
                shown = of_lookup(results, self.form) if kind == "lookup" else of_preference_query(results)
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
            text = "null" if value is None else plain_text(value)
            if isinstance(value, datetime):
                text = text.replace("T", " ").removesuffix("Z")
            cells.append(text if name in BARE else f"{name} {text}")
        yield "  ".join(cells) + "\n"
